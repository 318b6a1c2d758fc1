//! `nacre crush …` against Ceph's own answers, through the fixed command lines.

use super::{golden, golden_files, nacre, prints, scratch};
use std::fs;
use std::path::Path;

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The word after another one.
fn after<'t>(line: &'t str, word: &str) -> &'t str {
    let mut words = line.split_whitespace().skip_while(|found| *found != word);
    words
        .nth(1)
        .unwrap_or_else(|| panic!("`{line}` has no `{word}`"))
}

/// The arguments in the second line of a golden mapping: `# rule 3 hybrid num_rep 3 x 0..255
/// reweight 0:0 5:0.5`.
fn arguments(file: &Path, header: &str) -> Vec<String> {
    let name = file
        .file_name()
        .and_then(|name| name.to_str())
        .expect("a readable name");
    let map = golden().join(format!(
        "{}.crush",
        name.split('.').next().expect("a first part")
    ));
    let (first, last) = after(header, "x").split_once("..").expect("a range");
    // Old maps have rules without a name; then the header has `num_rep` in place of the name.
    let number = after(header, "rule");
    let named = header
        .split_whitespace()
        .nth(3)
        .filter(|word| *word != "num_rep")
        .unwrap_or(number);
    let mut arguments: Vec<String> = ["crush", "test", "--map"].map(str::to_owned).to_vec();
    arguments.push(map.display().to_string());
    for (flag, value) in [
        ("--rule", named),
        ("--replicas", after(header, "num_rep")),
        ("--min-x", first),
        ("--max-x", last),
    ] {
        arguments.extend([flag.to_owned(), value.to_owned()]);
    }
    let (_, reweights) = header.split_once("reweight ").expect("reweights");
    for pair in reweights.split_whitespace().filter(|word| *word != "none") {
        arguments.extend(["--reweight".to_owned(), pair.to_owned()]);
    }
    arguments
}

#[test]
fn mappings_are_printed_as_ceph_prints_them_and_nothing_else() {
    for file in golden_files("map", 100) {
        let golden = text(&file);
        let header = golden.lines().nth(1).expect("a second line");
        let expected: Vec<&str> = golden.lines().skip(2).map(str::trim_end).collect();
        let printed = prints(arguments(&file, header));
        let found: Vec<&str> = printed.lines().collect();
        assert_eq!(found, expected, "{}", file.display());
    }
}

#[test]
fn mappings_as_json_have_nulls_for_holes() {
    let file = golden().join("classes.crush");
    let file = file.to_str().expect("a readable path");
    let mut arguments = vec![
        "crush",
        "test",
        "--json",
        "--map",
        file,
        "--rule",
        "ec_hdd",
        "--replicas",
        "40",
        "--max-x",
        "0",
    ];
    let json: serde_json::Value = serde_json::from_str(&prints(&arguments)).expect("JSON");
    let osds = json["mappings"][0]["osds"].as_array().expect("a list");
    assert_eq!(osds.len(), 40);
    assert!(
        osds.iter().any(serde_json::Value::is_null) && osds.iter().any(serde_json::Value::is_u64)
    );
    arguments.remove(2);
    assert!(
        prints(&arguments)
            .split_whitespace()
            .any(|word| word == "-")
    );
}

#[test]
fn hashes_are_printed_as_ceph_prints_them() {
    let golden = text(&golden().join("object-hash.tsv"));
    let mut checked = 0;
    for row in golden
        .lines()
        .filter(|row| !row.starts_with('#'))
        .step_by(7)
    {
        let columns: Vec<&str> = row.split('\t').collect();
        let [pg_num, namespace, name, raw, pg] = columns[..] else {
            panic!("{row}")
        };
        let plain = |text: &str| serde_json::from_str::<String>(text).expect("a JSON string");
        let (namespace, name) = (plain(namespace), plain(name));
        let printed = prints([
            "crush",
            "hash",
            "--pg-num",
            pg_num,
            "--namespace",
            &namespace,
            "--",
            &name,
        ]);
        assert_eq!(printed, format!("raw {raw} pg {pg}\n"), "{row}");
        checked += 1;
    }
    assert!(checked > 50, "{checked}");
}

#[test]
fn names_that_are_not_text_are_hashed_too() {
    use std::os::unix::ffi::OsStrExt;
    let bytes = std::ffi::OsStr::from_bytes(b"\xff\xfe");
    let odd = prints([
        std::ffi::OsStr::new("crush"),
        "hash".as_ref(),
        "--pg-num".as_ref(),
        "8".as_ref(),
        bytes,
    ]);
    assert_ne!(
        odd,
        prints(["crush", "hash", "--pg-num", "8", "\u{fffd}\u{fffd}"])
    );
}

#[test]
fn maps_are_written_back_as_they_were_read() {
    let compiled = scratch("compiled.crush");
    for file in golden_files("crush", 20) {
        let (source, target) = (
            file.to_str().expect("readable"),
            compiled.to_str().expect("readable"),
        );
        assert_eq!(prints(["crush", "compile", source, "-o", target]), "");
        assert_eq!(
            prints(["crush", "decompile", target]),
            text(&file),
            "{source}"
        );
    }
}

#[test]
fn trees_and_previews_say_what_is_there() {
    let file = golden().join("flat10.crush");
    let file = file.to_str().expect("readable");
    let tree = prints(["crush", "tree", file]);
    assert_eq!(
        tree.lines().filter(|line| line.contains("osd.")).count(),
        10,
        "{tree}"
    );
    let rows: serde_json::Value =
        serde_json::from_str(&prints(["crush", "tree", "--json", file])).expect("JSON");
    assert_eq!(rows.as_array().expect("a list").len(), 11);
    let preview = [
        "crush",
        "balance-preview",
        "--json",
        "--map",
        file,
        "--rule",
        "rep_osd",
        "--replicas",
        "3",
        "--pg-num",
        "333",
    ];
    let preview: serde_json::Value = serde_json::from_str(&prints(preview)).expect("JSON");
    let worst = |when: &str| {
        preview[format!("worst_deviation_{when}_pgs")]
            .as_f64()
            .expect("a number")
    };
    assert!(
        worst("after") < 3.0 && worst("before") > worst("after"),
        "{preview}"
    );
    assert!(preview["swaps"].as_u64().expect("a number") > 0);
}

#[test]
fn who_stops_reading_is_not_an_error() {
    use std::process::{Command, Stdio};
    let mut child = Command::new(env!("CARGO_BIN_EXE_nacre"))
        .args([
            "crush",
            "test",
            "--rule",
            "0",
            "--replicas",
            "3",
            "--max-x",
            "200000",
            "--map",
        ])
        .arg(golden().join("flat10.crush"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn a_map_that_is_damaged_is_refused_with_its_line() {
    let damaged = scratch("damaged.crush");
    let whole = text(&golden().join("flat10.crush"));
    let cut = whole.len() / 2;
    fs::write(&damaged, &whole[..cut]).expect("writable");
    let output = nacre(["crush", "tree", damaged.to_str().expect("readable")]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && error.contains("damaged.crush: line "),
        "{error}"
    );
    fs::write(&damaged, [0xff, 0x00, 0x01]).expect("writable");
    let output = nacre(["crush", "tree", damaged.to_str().expect("readable")]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && error.contains("crushtool -d"),
        "{error}"
    );
}
