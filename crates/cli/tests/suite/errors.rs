//! Every error: one line on standard error with a recommended action, nothing on standard output,
//! exit code not 0.

use super::{golden, nacre, scratch};

/// Runs it; returns the line and the code.
pub fn fails(arguments: &[&str]) -> (String, i32) {
    let output = nacre(arguments);
    let error = String::from_utf8(output.stderr).expect("text");
    assert!(!output.status.success(), "{arguments:?} succeeded");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{arguments:?}");
    assert_eq!(error.lines().count(), 1, "{arguments:?}: {error}");
    assert!(error.starts_with("nacre: "), "{arguments:?}: {error}");
    (error, output.status.code().expect("it was not killed"))
}

#[test]
fn wrong_arguments_are_one_line_with_the_nearest_right_ones() {
    let (error, code) = fails(&["crsh", "test"]);
    assert!(code == 2 && error.contains("'crush'"), "{error}");
    let (error, code) = fails(&["crush", "hash", "--pgnum", "8", "x"]);
    assert!(code == 2 && error.contains("--pg-num"), "{error}");
    let (error, code) = fails(&["crush", "test", "--rule", "a"]);
    assert!(code == 2 && error.contains("--map"), "{error}");
    let (error, code) = fails(&["crush", "hash", "--pg-num", "0", "x"]);
    assert!(code == 2 && error.contains("0 is not in 1"), "{error}");
    let (error, code) = fails(&["osd", "out", "x"]);
    assert!(code == 2 && error.contains("\"osd.3\""), "{error}");
    let (error, code) = fails(&["flag", "set", "noot"]);
    assert!(code == 2 && error.contains("noout"), "{error}");
}

#[test]
fn what_cannot_be_done_says_what_can() {
    let flat = golden().join("flat10.crush");
    let flat = flat.to_str().expect("readable");
    let test = |more: &[&str]| {
        fails(
            &[
                &["crush", "test", "--map", flat, "--replicas", "3"][..],
                more,
            ]
            .concat(),
        )
    };
    let (error, code) = test(&["--rule", "rep_hots"]);
    assert!(code == 1 && error.contains("rep_osd (0)"), "{error}");
    let (error, _) = test(&["--rule", "rep_osd", "--reweight", "77:0.5"]);
    assert!(error.contains("osd.77"), "{error}");
    let (error, code) = test(&["--rule", "rep_osd", "--reweight", "3:1.5"]);
    assert!(code == 2 && error.contains("3:0.5"), "{error}");
    let (error, _) = test(&["--rule", "rep_osd", "--min-x", "9", "--max-x", "8"]);
    assert!(error.contains("larger"), "{error}");
    let (error, _) = fails(&["crush", "tree", "/no/such/map"]);
    assert!(
        error.contains("/no/such/map") && error.contains("No such file"),
        "{error}"
    );
}

#[test]
fn without_a_cluster_the_error_says_how_to_get_one() {
    for arguments in [
        &["status"][..],
        &["object", "ls", "data"],
        &["bench", "object", "read", "--size", "4k"],
        &["osd", "out", "3"],
    ] {
        let (error, code) = fails(arguments);
        assert!(
            code == 1
                && error.contains("nacre-data holds no cluster")
                && error.contains("nacre up"),
            "{error}"
        );
        let (error, _) = fails(&[&["--cluster", "/no/such/folder"][..], arguments].concat());
        assert!(
            error.contains("/no/such/folder holds no cluster"),
            "{error}"
        );
    }
}

#[test]
fn benchmarks_refuse_sizes_that_are_none() {
    let (error, code) = fails(&["bench", "object", "write", "--size", "4q"]);
    assert!(code == 2 && error.contains("4KiB"), "{error}");
}

#[test]
fn help_is_no_error() {
    for arguments in [
        &["--help"][..],
        &["crush", "test", "--help"],
        &["--version"],
    ] {
        assert!(nacre(arguments).status.success(), "{arguments:?}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let output = nacre(["completions", shell]);
        assert!(
            output.status.success() && output.stdout.len() > 1000,
            "{shell}"
        );
    }
}

#[test]
fn files_that_are_cut_off_or_damaged_are_refused_with_the_place() {
    let flat = std::fs::read_to_string(golden().join("flat10.crush")).expect("readable");
    let file = scratch("damaged.crush");
    let name = file.to_str().expect("readable");
    // Cut off in the middle of a bucket and between two sections, an invalid word and weight, bytes
    // that are not text.
    let middle = flat.rfind("item ").expect("items") + 3;
    let between = flat.rfind("rule ").expect("rules");
    let broken = [
        flat.as_bytes()[..middle].to_vec(),
        flat.as_bytes()[..between].to_vec(),
        flat.replacen("\talg ", "\talgo ", 1).into_bytes(),
        flat.replacen("osd.0 weight ", "osd.0 weight x", 1)
            .into_bytes(),
        vec![0xff, 0xfe, 0, 1],
    ];
    for text in &broken {
        std::fs::write(&file, text).expect("writable");
        for arguments in [
            &["crush", "tree", name][..],
            &["crush", "compile", name],
            &[
                "crush",
                "test",
                "--map",
                name,
                "--rule",
                "rep_osd",
                "--replicas",
                "3",
            ],
        ] {
            let (error, code) = fails(arguments);
            assert!(code == 1 && error.contains("damaged.crush"), "{error}");
        }
    }
    let file = scratch("damaged.history");
    let name = file.to_str().expect("readable");
    let good = r#"{"client":1,"op":"write","key":"a","value":7,"invoke_ns":1,"return_ns":9}"#;
    let second = r#"{"client":2,"op":"read","key":"a","invoke_ns":3,"return_ns":8,"result":7}"#;
    for (text, line) in [
        (format!("{good}\n{}", &second[..40]), "2"),
        (format!("{good}\n\u{1}\u{2}\n"), "2"),
        (good.replace("\"op\":\"write\"", "\"op\":\"wriet\""), "1"),
        (good.replace("\"value\":7,", ""), "1"),
    ] {
        std::fs::write(&file, &text).expect("writable");
        let (error, code) = fails(&["history", "check", name]);
        assert!(
            code == 1 && error.contains("damaged.history") && error.contains(line),
            "{error}"
        );
    }
}
