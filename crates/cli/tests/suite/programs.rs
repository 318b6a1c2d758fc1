//! Policies and classes of the library from the first version to the last, on a cluster (MAL-70).

use super::operator::Site;
use super::prints;

fn save(site: &Site, name: &str, text: &str) -> String {
    let file = site.dir().join(name);
    std::fs::write(&file, text).expect("writable");
    file.to_str().expect("readable").to_owned()
}

/// The row of a policy in `ls`: version, activation, count of versions.
fn row(site: &Site, name: &str) -> Vec<String> {
    let text = site.text(&["policy", "ls"]);
    let line = text
        .lines()
        .find(|line| line.starts_with(name))
        .unwrap_or_else(|| panic!("no {name}: {text}"));
    line.split_whitespace()
        .skip(1)
        .take(3)
        .map(str::to_owned)
        .collect()
}

#[test]
fn a_policy_is_installed_tested_activated_rolled_back_and_deactivated() {
    let site = Site::new("programs", 11);
    site.up(&[]);
    let first = prints(["policy", "library", "adaptable"]);
    let second = format!("-- Our own words.\n{first}");
    let [first_file, second_file] =
        [("one.lua", &first), ("two.lua", &second)].map(|(name, text)| save(&site, name, text));
    let trace = save(
        &site,
        "load.trace",
        &prints(["policy", "trace", "hot-spot", "--ranks", "4"]),
    );

    // Before it is used: on recorded load.
    let tested = site.text(&[
        "policy",
        "test",
        &first_file,
        "--trace",
        &trace,
        "--summary",
    ]);
    assert!(tested.ends_with("fine\n"), "{tested}");
    let explained = site.text(&[
        "policy",
        "explain",
        &first_file,
        "--trace",
        &trace,
        "--tick",
        "1",
    ]);
    assert!(explained.contains("Metrics in\nRANK"), "{explained}");

    assert_eq!(
        site.text(&["policy", "install", "even", &first_file]),
        "policy even: version 1 is installed; `nacre policy activate even` makes it active\n"
    );
    assert_eq!(
        row(&site, "even")[..],
        ["none", "0", "1"],
        "installed, not active"
    );
    let shown = site.text(&["policy", "show", "even"]);
    assert!(
        shown.starts_with("policy even: no version is active, ") && !shown.contains(" active  "),
        "{shown}"
    );
    site.text(&["policy", "activate", "even"]);
    assert_eq!(row(&site, "even")[..], ["1", "1", "1"]);
    assert!(
        site.text(&["policy", "show", "even"])
            .starts_with("policy even: version 1 is active, activation 1, ")
    );

    site.text(&["policy", "install", "even", &second_file]);
    assert_eq!(
        row(&site, "even")[..],
        ["1", "1", "2"],
        "a new version waits"
    );
    let again = site.text(&["policy", "install", "even", &second_file]);
    assert_eq!(
        again,
        "policy even: this source is version 2 already; nothing changed\n"
    );
    let diff = site.text(&["policy", "diff", "even"]);
    assert!(
        diff.contains("--- even version 1\n+++ even version 2\n")
            && diff.contains("\n+-- Our own words.\n"),
        "{diff}"
    );
    assert_eq!(
        site.text(&["policy", "show", "even", "--source"]),
        first,
        "that of the active one"
    );
    assert_eq!(
        site.text(&["policy", "show", "even", "--source", "--number", "2"]),
        second
    );

    site.text(&["policy", "activate", "even"]);
    assert_eq!(row(&site, "even")[0], "2");
    site.text(&["policy", "rollback", "even"]);
    assert_eq!(row(&site, "even")[0], "1");
    let shown = site.json(&["policy", "show", "even"]);
    assert_eq!(
        (&shown["active"], shown["versions"].as_array().map(Vec::len)),
        (&1.into(), Some(2)),
        "{shown}"
    );
    site.text(&["policy", "deactivate", "even"]);
    assert_eq!(row(&site, "even")[0], "none");
    assert!(
        site.text(&["policy", "show", "even"])
            .starts_with("policy even: no version is active, ")
    );

    let broken = save(&site, "broken.lua", "targets[1 = 2\n");
    assert!(
        site.fails(&["policy", "install", "even", &broken])
            .contains("policy even is refused: even:1:")
    );
    assert_eq!(row(&site, "even")[2], "2", "nothing of it");
    site.text(&["policy", "rm", "even"]);
    assert!(!site.text(&["policy", "ls"]).contains("even"));
    assert!(site.fails(&["policy", "show", "even"]).contains("even"));

    // The library: a wrong name installs nothing, a second time changes nothing.
    assert!(
        site.fails(&["class", "library", "--install", "lock", "luck"])
            .contains("the library has no class luck")
    );
    assert!(!site.text(&["class", "ls"]).contains("lock"));
    let installed = site.text(&["class", "library", "--install", "lock", "zlog"]);
    assert_eq!(
        installed,
        "class lock: version 1 is active (activation 4)\nclass zlog: version 1 is active (activation 5)\n"
    );
    let all = site.text(&["class", "library", "--install"]);
    assert_eq!(
        all.matches("version 1 is active (activation ").count() + 2,
        all.lines().count(),
        "{all}"
    );
    assert!(
        all.contains("class lock: this source is version 1 already; nothing changed\n"),
        "{all}"
    );
    let all = site.json(&["class", "library", "--install"]);
    let replies = all["classes"].as_array().expect("a list");
    assert!(
        replies.len() > 8 && replies.iter().all(|reply| reply["unchanged"] == true),
        "{all}"
    );
}
