//! One class of the library, installed and called on both engines: our own, and the Ceph cluster
//! whose `ceph.conf` NACRE_TEST_CEPH names.

use super::nacre;
use super::operator::Site;
use super::prints;
use serde_json::Value;

/// Activations are counted separately by each cluster.
fn without_activations(text: &str) -> String {
    let mut words = text.split("activation ");
    let mut out = words.next().unwrap_or_default().to_owned();
    for word in words {
        out.push_str("activation N");
        out.push_str(word.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    out
}

/// The result of a command on a cluster: whether it succeeds, and its output on both streams.
fn on(cluster: &str, command: &[&str]) -> (bool, String, String) {
    let output = nacre([&["--cluster", cluster][..], command].concat());
    let text = |bytes: Vec<u8>| without_activations(&String::from_utf8(bytes).expect("text"));
    (
        output.status.success(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn a_class_of_the_library_gives_the_same_on_both_engines() {
    let Some(conf) = std::env::var_os("NACRE_TEST_CEPH") else {
        eprintln!(
            "SKIPPED classes on both engines: NACRE_TEST_CEPH names no ceph.conf (`./x test` brings a Ceph cluster up where its packages are)"
        );
        return;
    };
    let ceph = format!("ceph:{}", conf.to_str().expect("readable"));
    let site = Site::new("engines", 13);
    site.up(&[]);
    let ours = site.dir().to_str().expect("readable").to_owned();
    let name = format!("engines-{}", std::process::id());
    let (class, pool) = (&name[..], &name[..]);
    let file = |name: &str, text: &str| {
        let file = site.dir().join(name);
        std::fs::write(&file, text).expect("writable");
        file.to_str().expect("readable").to_owned()
    };
    let source = prints(["class", "library", "numops", "--source"]);
    let first = file("first.lua", &source);
    let second = file("second.lua", &format!("{source}-- Changed.\n"));
    let broken = file("broken.lua", "--!profile portable\nfunction f( end\n");

    let both = |command: &[&str]| {
        let [here, there] = [&ours[..], &ceph[..]].map(|cluster| on(cluster, command));
        assert_eq!(here, there, "{command:?}");
        here
    };
    let works = |command: &[&str]| {
        let (succeeded, out, said) = both(command);
        assert!(succeeded, "{command:?}: {said}");
        (out, said)
    };
    let fails = |command: &[&str]| {
        let (succeeded, _, said) = both(command);
        assert!(!succeeded, "{command:?}");
        said
    };
    for cluster in [&ours[..], &ceph[..]] {
        let (made, _, said) = on(cluster, &["pool", "create", pool, "--pg-num", "8"]);
        assert!(made, "{said}");
    }
    let exec = |method: &'static str, input: &'static str| {
        let words = ["class", "exec", pool, "o", class, method, "--input", input];
        words.map(str::to_owned)
    };
    let call = |method, input| works(&exec(method, input).each_ref().map(String::as_str));
    let refused = |method, input| fails(&exec(method, input).each_ref().map(String::as_str));

    assert_eq!(
        works(&["class", "install", class, &first]).0,
        format!("class {class}: version 1 is active (activation N)\n")
    );
    let said = format!("class {class}, activation N, status 0\n");
    assert_eq!(call("add", "n 40"), (String::new(), said.clone()));
    assert_eq!(call("add", "n 2"), (String::new(), said.clone()));
    assert_eq!(call("get", "n"), ("42".to_owned(), said.clone()));
    assert!(refused("add", "n two").contains("EINVAL"));
    assert!(refused("mul", "n 9007199254740991").contains("ERANGE"));
    assert!(refused("nothing", "").contains("`nothing` is not registered"));
    assert_eq!(call("get", "n").0, "42", "what failed changed nothing");
    let json = exec("get", "n");
    let json: Vec<&str> = ["--json"]
        .into_iter()
        .chain(json.iter().map(String::as_str))
        .collect();
    for cluster in [&ours[..], &ceph[..]] {
        let value: Value = serde_json::from_str(&on(cluster, &json).1).expect("JSON");
        assert_eq!(
            (&value["output"], &value["status"]),
            (&"42".into(), &0.into()),
            "{value}"
        );
        assert!(value["activation"].as_u64() > Some(0), "{value}");
    }

    assert!(
        works(&["class", "install", class, &second])
            .0
            .contains("version 2 is active")
    );
    assert!(
        works(&["class", "install", class, &second])
            .0
            .contains("nothing changed")
    );
    assert!(
        works(&["class", "diff", class])
            .0
            .contains("\n+-- Changed.\n")
    );
    assert!(
        works(&["class", "rollback", class])
            .0
            .contains("version 1 is active")
    );
    assert_eq!(works(&["class", "show", class, "--source"]).0, source);
    assert_eq!(call("get", "n"), ("42".to_owned(), said));
    assert!(
        fails(&["class", "install", class, &broken])
            .contains(&format!("class {class} is refused: {class}:2: "))
    );
    assert!(
        fails(&["class", "rollback", class, "--to", "7"])
            .contains("has no version 7; there are 1, 2")
    );
    // Other installed programs are each cluster's own, and so they are shown.
    for cluster in [&ours[..], &ceph[..]] {
        let (shown, _, why) = on(cluster, &["class", "show", "no-such-class"]);
        assert!(
            !shown
                && why.contains("there is no class no-such-class; installed are")
                && why.contains(class),
            "{why}"
        );
    }

    // Supported only by our own engine, with an error that says so.
    let (succeeded, _, why) = on(&ceph, &["class", "library", "--install", "zlog"]);
    assert!(
        !succeeded
            && why.contains("class zlog is refused")
            && why.contains("exec_reads_own_writes"),
        "{why}"
    );
    works(&["class", "rm", class]);
    for cluster in [&ours[..], &ceph[..]] {
        assert!(!on(cluster, &["class", "ls"]).1.contains(class), "removed");
        let gone = exec("get", "n");
        assert!(
            !on(cluster, &gone.each_ref().map(String::as_str)).0,
            "nobody can call it any more"
        );
        let (removed, _, said) = on(cluster, &["pool", "rm", pool, "--yes-i-really-mean-it"]);
        assert!(removed, "{said}");
    }
}
