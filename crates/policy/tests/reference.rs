//! `docs/program-api.md` is generated from the code, and `library/nacre.d.luau` lists exactly the
//! functions that a script finds.

use crate::library::Desk;
use crate::model::{Caller, Model};
use nacre_policy::library;
use nacre_policy::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::PathBuf;

const TYPES: &str = include_str!("../library/nacre.d.luau");

/// The declarations of the definition file: `objclass.read` and the like, with type and comment.
#[derive(Clone)]
struct Declared {
    name: String,
    kind: String,
    text: String,
}

fn declared() -> Vec<Declared> {
    let (mut found, mut places, mut text) =
        (Vec::new(), Vec::<String>::new(), Vec::<String>::new());
    for line in TYPES.lines().map(str::trim) {
        if let Some(comment) = line.strip_prefix("--") {
            text.push(comment.trim().to_owned());
            continue;
        }
        let words = line
            .trim_start_matches("declare ")
            .trim_start_matches("class ");
        if let Some(place) = words.strip_suffix(": {") {
            places.push(place.to_owned());
        } else if line.starts_with("declare class") {
            places.push(words.to_owned());
        } else if line.starts_with('}') || line == "end" {
            places.pop();
        } else if !places.is_empty() {
            let entry = line.strip_prefix("function ").map_or_else(
                || {
                    line.trim_end_matches(',')
                        .split_once(": ")
                        .map(|(name, kind)| (name, kind.to_owned()))
                },
                |rest| {
                    rest.split_once('(')
                        .map(|(name, kind)| (name, format!("({kind}")))
                },
            );
            if let Some((name, kind)) = entry {
                let name = format!("{}.{name}", places.join("."));
                found.push(Declared {
                    name,
                    kind,
                    text: text.join(" "),
                });
            }
        }
        text.clear();
    }
    found
}

/// Every function that a class finds in a table, determined by running a class.
fn present(table: &str) -> BTreeSet<String> {
    let mut at = Caller::new();
    let list = format!(
        "local n = {{}} for k, v in pairs({table}) do n[#n + 1] = k .. '=' .. type(v) end table.sort(n) o:append(table.concat(n, ' '))"
    );
    let names = at.text(&list);
    names
        .split(' ')
        .filter_map(|entry| entry.strip_suffix("=function"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_types_name_what_there_is_and_nothing_else() {
    let in_types = |place: &str| -> BTreeSet<String> {
        let prefix = format!("{place}.");
        let names = declared()
            .into_iter()
            .filter_map(|entry| entry.name.strip_prefix(&prefix).map(str::to_owned));
        names.filter(|name| !name.contains('.')).collect()
    };
    for place in ["objclass", "bufferlist", "nacre.u64"] {
        assert_eq!(in_types(place), present(place), "{place}");
    }
    let mut of_nacre = present("objclass");
    of_nacre.extend(in_types("nacre").into_iter().filter(|name| name != "u64"));
    assert_eq!(
        present("nacre"),
        of_nacre,
        "nacre has all that objclass has, and what the types say besides"
    );
    assert_eq!(
        in_types("bufferlist_value"),
        BTreeSet::from(["append".to_owned(), "str".to_owned()])
    );
    let mut at = Caller::new();
    assert_eq!(
        at.text("local b = bufferlist.new('x') b:append('y') o:append(b:str())"),
        "xy"
    );
    // The globals beside Luau's own.
    let globals = "local n = {} for k in pairs(_G) do if type(_G[k]) == 'table' then n[#n + 1] = k end end table.sort(n) o:append(table.concat(n, ' '))";
    assert_eq!(
        at.text(globals),
        "_G bit32 buffer bufferlist math nacre objclass string table utf8"
    );
}

/// Calls each function in a portable class: functions that Ceph lacks are refused, and marked so.
#[test]
fn what_is_marked_as_ours_is_what_a_portable_class_may_not_use() {
    let arguments: BTreeMap<&str, &str> = BTreeMap::from([
        ("objclass.create", "false"),
        ("objclass.read", "0, 0"),
        ("objclass.write", "0, 0, b"),
        ("objclass.write_full", "b"),
        ("objclass.append", "b"),
        ("objclass.truncate", "0"),
        ("objclass.zero", "0, 0"),
        ("objclass.rollback", "1"),
        ("objclass.getxattr", "'a'"),
        ("objclass.setxattr", "'a', b"),
        ("objclass.rmxattr", "'a'"),
        ("objclass.map_get_val", "'a'"),
        ("objclass.map_get_vals", "'', '', 1"),
        ("objclass.map_get_keys", "'', 1"),
        ("objclass.map_set_val", "'a', b"),
        ("objclass.map_set_vals", "{a = b}"),
        ("objclass.map_remove_key", "'a'"),
        ("objclass.map_write_header", "b"),
        ("objclass.call", "'zlog', 'seal', '1'"),
        ("objclass.log", "'x'"),
        ("objclass.register", "f"),
        ("bufferlist.new", ""),
    ]);
    for entry in declared()
        .into_iter()
        .filter(|entry| entry.name.starts_with("objclass."))
    {
        let arguments = arguments
            .get(entry.name.as_str())
            .copied()
            .unwrap_or_default();
        let script = format!(
            "--!profile portable\nlocal b = bufferlist.new() function f(i, o) {}({arguments}) end objclass.register(f)",
            entry.name
        );
        let mut desk = Desk::new("zlog");
        let outcome = desk.at.on(&mut Model::with("base"), &script, "f", b"");
        let refused = outcome
            .error
            .is_some_and(|error| error.kind == Kind::Profile);
        assert_eq!(refused, entry.text.starts_with("(Nacre)"), "{}", entry.name);
    }
}

/// Lines that are neither empty nor comments.
fn code_lines(source: &str, comment: &str) -> usize {
    source
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with(comment))
        .count()
}

fn reference() -> String {
    let mut out = String::from(
        "# The interface of programs\n\nMade from the code by a test of `crates/policy`; [program.md](program.md) is where to begin.\n",
    );
    let mut put = |text: std::fmt::Arguments<'_>| out.write_fmt(text).expect("a string takes all");
    put(format_args!(
        "\n## Functions\n\n(Nacre): not in Ceph's classes. A function that fails raises a negative errno.\n"
    ));
    let mut place = String::new();
    for entry in declared() {
        let (at, name) = entry.name.rsplit_once('.').expect("a place and a name");
        if at != place {
            place = at.to_owned();
            let title = if at == "bufferlist_value" {
                "a bufferlist"
            } else {
                at
            };
            put(format_args!(
                "\n### {title}\n\n| function | type | |\n| --- | --- | --- |\n"
            ));
        }
        let kind = entry
            .kind
            .replace('|', "\\|")
            .replace("bufferlist_value", "bufferlist");
        put(format_args!("| `{name}` | `{kind}` | {} |\n", entry.text));
    }
    put(format_args!(
        "\n## Errors\n\nConstants of `objclass`; a status is negative.\n\n"
    ));
    let names: Vec<String> = errno::NAMES
        .iter()
        .map(|(name, number)| format!("{name} {number}"))
        .collect();
    put(format_args!("{}.\n", names.join(", ")));
    put(format_args!(
        "\n## Budgets\n\n| | instructions | memory at once | in total | operators at full memory | output and log | classes deep |\n| --- | --- | --- | --- | --- | --- | --- |\n"
    ));
    for (what, budget) in [
        ("a call of a class", Budget::CLASS),
        ("a run of a policy", Budget::POLICY),
    ] {
        let Budget {
            instructions,
            memory,
            churn,
            operator_bytes,
            text: _,
            depth,
            output,
        } = budget;
        let operators = operator_bytes / memory;
        let [memory, churn, output] = [memory >> 20, churn >> 20, output >> 10];
        put(format_args!(
            "| {what} | {instructions} | {memory} MiB | {churn} MiB | {operators} | {output} KiB | {depth} |\n"
        ));
    }
    put(format_args!(
        "\nA text with more operators (`+ - * / % ^ < >`, three for each `for`, comments and strings included) may hold as much less at once: {}.\n",
        "operators on long strings take time, and no instructions"
    ));
    put(format_args!(
        "\nA call of the object costs {} instructions, each pair or key of a list {} more, and each KiB moved one.\n",
        budget::API_COST,
        budget::PAIR_COST
    ));
    put(format_args!("\n## The library\n"));
    for class in library::classes() {
        let found = class.documented();
        let flags: BTreeMap<String, MethodFlags> = check_class(&class.chunk())
            .expect(class.name)
            .into_iter()
            .collect();
        let profile = if class.profile() == Profile::Portable {
            "portable: also runs on Ceph"
        } else {
            "luau"
        };
        put(format_args!(
            "\n### {}\n\n{} Profile: {profile}.\n",
            class.name, found.summary
        ));
        let mut drawing = false;
        for line in found.text.lines() {
            let drawn = line.starts_with("  ");
            if drawn != drawing {
                put(format_args!(
                    "{}",
                    if drawn { "\n```text" } else { "\n```" }
                ));
                drawing = drawn;
            }
            put(format_args!("\n{line}"));
        }
        put(format_args!("\n"));
        for method in found.methods {
            let reads = if flags[&method.name].read_only {
                " (read-only)"
            } else {
                ""
            };
            put(format_args!(
                "\n* **`{}`**{reads} {}\n",
                method.name, method.text
            ));
            put(format_args!(
                "  * input: {}\n  * output: {}\n  * errors: {}\n",
                method.input, method.output, method.errors
            ));
            if !method.examples.is_empty() {
                put(format_args!("\n  ```text\n"));
                method
                    .examples
                    .iter()
                    .for_each(|example| put(format_args!("  {example}\n")));
                put(format_args!("  ```\n"));
            }
        }
    }
    put(format_args!(
        "\n## Lines of code\n\nNeither empty nor comment.\n\n| class | Lua | Rust |\n| --- | --- | --- |\n"
    ));
    let native = code_lines(include_str!("../src/native/zlog.rs"), "//");
    for class in library::classes() {
        let rust = if class.name == "zlog" {
            native.to_string()
        } else {
            String::new()
        };
        put(format_args!(
            "| {} | {} | {rust} |\n",
            class.name,
            code_lines(class.source, "--")
        ));
    }
    let lua = code_lines(library::class("zlog").expect("there").source, "--");
    put(format_args!(
        "\nzlog in Rust passes the same tests and stores the same bytes; it takes {:.1} times the lines of Lua. (Malacology, §4.2, says about ten times, of\n\
         classes in C++.) What Lua saves beyond lines is the build, and the restart of every daemon.\n",
        native as f64 / lua as f64
    ));
    out
}

#[test]
#[allow(
    clippy::disallowed_methods,
    reason = "a test puts a file where a person can take it from"
)]
fn the_reference_is_what_the_code_says() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/program-api.md");
    let now = reference();
    if std::fs::read_to_string(&path).ok().as_ref() != Some(&now) {
        let fresh = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("program-api.md");
        std::fs::write(&fresh, &now).expect("the folder of tests is writable");
        panic!(
            "docs/program-api.md is out of date: copy {} over it",
            fresh.display()
        );
    }
}
