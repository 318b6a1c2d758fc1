//! Hostile scripts, a file each (`zoo/NN-name.lua`; the first line states the expected result).
//! After each one the same VM runs an ordinary script, its memory is released, and a second run
//! ends in the same way after the same number of instructions (MAL-24, invariants 1 to 3).

use crate::model::{Caller, Model};
use nacre_policy::{Budget, CallEnd, Chunk, ClassVm, Target};
use nacre_types::SplitMix64;
use std::path::PathBuf;

fn scripts() -> Vec<(String, String)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/zoo");
    let mut scripts: Vec<_> = std::fs::read_dir(folder)
        .expect("the zoo is there")
        .map(|entry| entry.expect("readable").path())
        .map(|path| {
            (
                path.file_stem()
                    .expect("named")
                    .to_string_lossy()
                    .into_owned(),
                std::fs::read_to_string(&path).expect("text"),
            )
        })
        .collect();
    scripts.sort();
    scripts
}

/// The result of a call, in the words of the scripts' first lines, and the number of instructions.
fn run(at: &mut Caller, script: &str) -> (String, u64) {
    let mut object = Model {
        absent: vec!["getxattr"],
        ..Model::with("base")
    };
    let chunk = Chunk::new("zoo", script);
    match at.end(&mut object, Target::Eval(&chunk), "f", b"in") {
        CallEnd::Wait => ("Wait".into(), 0),
        CallEnd::Done(outcome) => {
            let shown = match &outcome.error {
                Some(error) => {
                    assert!(
                        error.to_string().len() < 4096 && !error.to_string().contains('\n'),
                        "one line: {error}"
                    );
                    assert!(
                        !error.message.contains("0x") && !error.message.contains("[nacre]"),
                        "no address, no line of ours: {error}"
                    );
                    assert_eq!(error.script, "zoo", "{error}");
                    format!("{:?}", error.kind)
                }
                None => format!("Ok {}", String::from_utf8_lossy(&outcome.output)),
            };
            if shown != "Instructions" {
                assert!(outcome.instructions <= Budget::CLASS.instructions);
            }
            // Where the memory ends depends slightly on the heap's layout; that it ends does not.
            let instructions = if shown == "Memory" {
                0
            } else {
                outcome.instructions
            };
            (shown, instructions)
        }
    }
}

fn honest(at: &mut Caller) {
    let mut object = Model::with("base");
    let script = "local n = 0 function f(i,o) n = n + 1 objclass.setxattr('k', i) o:append(objclass.read(0, 0)) o:append(tostring(n)) return 3 end objclass.register(f)";
    let outcome = at.on(&mut object, script, "f", b"value");
    assert_eq!(
        (outcome.status, &outcome.output[..], outcome.instructions),
        (3, &b"base1"[..], HONEST_INSTRUCTIONS),
        "{:?}",
        outcome.error
    );
    assert_eq!(&object.attributes[&b"k"[..]][..], b"value");
}

/// Cost of the ordinary script in a new VM, and in one that has run the zoo.
const HONEST_INSTRUCTIONS: u64 = 68;

#[test]
fn every_animal_ends_as_its_sign_says_and_leaves_the_vm_as_it_was() {
    let scripts = scripts();
    assert!(
        scripts.len() >= 100,
        "the zoo has only {} animals: is it all there?",
        scripts.len()
    );
    let mut shared = Caller::new();
    honest(&mut shared);
    let mut wrong = Vec::new();
    for (name, script) in &scripts {
        let expected = script
            .lines()
            .next()
            .and_then(|line| line.strip_prefix("-- expect: "))
            .expect("the first line says what is expected");
        // In a VM that ran all scripts before, and in a new one.
        let (first, second) = (run(&mut shared, script), run(&mut shared, script));
        let alone = run(&mut Caller::new(), script);
        if first.0 != expected || second != first || alone != first {
            wrong.push(format!(
                "{name}: expected {expected}, got {first:?}, again {second:?}, alone {alone:?}"
            ));
        }
        honest(&mut shared);
        let held = shared.vm.stats().memory;
        if held > 3 << 20 {
            wrong.push(format!("{name}: the VM holds {held} bytes"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// In a VM that keeps every compiled script, as daemons do, no eviction triggers a collection:
/// calls begin with the garbage of earlier ones, with little of their memory free. (Seed 1 ended
/// the process after 1,501 calls: `isolation.rs`, the leftovers of a call.)
#[test]
fn animals_of_all_kinds_live_in_one_vm() {
    let scripts = scripts();
    for seed in 1_u64..=2 {
        let mut random = SplitMix64(seed);
        let mut below = |n: u64| random.below(n);
        let mut at = Caller::new();
        at.vm = ClassVm::new(256);
        for _ in 0..1_600 {
            let (_, script) = &scripts[below(scripts.len() as u64) as usize];
            let absent = if below(2) == 0 {
                vec!["getxattr", "read", "stat"]
            } else {
                Vec::new()
            };
            let mut object = Model {
                absent,
                ..Model::with("base")
            };
            let instructions = 500 + below(20_000);
            at.budget = Budget {
                instructions,
                memory: 1 << 20,
                churn: 8 << 20,
                ..Budget::CLASS
            };
            at.end(
                &mut object,
                Target::Eval(&Chunk::new("zoo", script)),
                "f",
                b"in",
            );
        }
        at.budget = Budget::CLASS;
        honest(&mut at);
    }
}
