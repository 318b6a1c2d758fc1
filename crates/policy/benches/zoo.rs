//! The cost of hostile scripts (MAL-24): `cargo bench -p nacre-policy --bench zoo`, `-- sort` for
//! those whose name contains `sort`.
//!
//! Every script of the zoo runs under the budgets of a metadata validator, of a metadata trigger
//! and of a class. The table is sorted by time. An instruction stands for 50 ns: a validator's
//! 20,000 for 1 ms. A script that takes longer per instruction is undercharged.
#![allow(
    clippy::disallowed_methods,
    missing_docs,
    reason = "a bench measures time and reads its arguments"
)]

#[path = "../tests/model.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod model;

use bytes::Bytes;
use model::Model;
use nacre_policy::*;
use std::sync::Arc;

/// CPU seconds of this thread: other load on the machine is not counted.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    stat.split(' ')
        .next()
        .and_then(|ns| ns.parse::<f64>().ok())
        .expect("nanoseconds")
        / 1e9
}

struct Row {
    name: String,
    milliseconds: f64,
    instructions: u64,
    end: String,
}

/// The kernel updates the CPU time every few milliseconds: a call is repeated until the time is
/// measurable.
const SEEN: f64 = 0.04;

fn measure(name: &str, text: &str, budget: &Budget) -> Row {
    let (classes, request) = (Arc::new(Classes::default()), Request::default());
    let chunk = Chunk::new("zoo", text);
    let target = Target::Eval(&chunk);
    let call = Call {
        classes: &classes,
        target,
        method: "f",
        input: Bytes::from_static(b"in"),
        request: &request,
        budget,
    };
    let mut vm = ClassVm::<Model>::new(4);
    let (start, mut rounds) = (cpu(), 0);
    loop {
        let object = Model {
            absent: vec!["getxattr"],
            ..Model::with("base")
        };
        let (_, end) = vm.call(object, &call);
        rounds += 1;
        let seconds = cpu() - start;
        if seconds < SEEN && rounds < 2_000 {
            continue;
        }
        let (instructions, end) = match end {
            CallEnd::Wait => (0, "waits".to_owned()),
            CallEnd::Done(outcome) => (
                outcome.instructions,
                outcome
                    .error
                    .map_or("ok".to_owned(), |error| format!("{:?}", error.kind)),
            ),
        };
        return Row {
            name: name.to_owned(),
            milliseconds: seconds * 1e3 / f64::from(rounds),
            instructions,
            end,
        };
    }
}

fn main() {
    let only = std::env::args()
        .nth(1)
        .filter(|only| !only.starts_with("--"))
        .unwrap_or_default();
    let folder = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/zoo");
    let mut animals: Vec<_> = std::fs::read_dir(folder)
        .expect("the zoo is there")
        .map(|entry| entry.expect("readable").path())
        .map(|path| {
            (
                path.file_stem()
                    .expect("named")
                    .to_string_lossy()
                    .into_owned(),
                path,
            )
        })
        .filter(|(name, _)| name.contains(&only))
        .map(|(name, path)| (name, std::fs::read_to_string(path).expect("text")))
        .collect();
    animals.sort();
    for (what, budget) in [
        ("validator", Budget::VALIDATOR),
        ("trigger", Budget::TRIGGER),
        ("class", Budget::CLASS),
    ] {
        let mut rows: Vec<_> = animals
            .iter()
            .map(|(name, text)| measure(name, text, &budget))
            .collect();
        rows.sort_by(|a, b| b.milliseconds.total_cmp(&a.milliseconds));
        println!(
            "{what}: {} instructions, {} KiB",
            budget.instructions,
            budget.memory >> 10
        );
        for Row {
            name,
            milliseconds,
            instructions,
            end,
        } in rows.iter().take(32)
        {
            let each = milliseconds * 1e6 / (*instructions).max(1) as f64;
            println!(
                "  {name:<36} {milliseconds:>9.2} ms {instructions:>9} instructions {each:>10.0} ns each  {end}"
            );
        }
    }
}
