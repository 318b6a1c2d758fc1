//! `nacre meta` on a Ceph cluster: the one whose `ceph.conf` the variable `NACRE_TEST_CEPH` names.

use super::{nacre, prints};
use serde_json::Value;

#[test]
fn the_verbs_of_metadata_mean_on_ceph_what_they_mean_here() {
    let Some(conf) = std::env::var_os("NACRE_TEST_CEPH") else {
        eprintln!("SKIPPED nacre meta on Ceph: NACRE_TEST_CEPH names no ceph.conf");
        return;
    };
    let cluster = format!("ceph:{}", conf.to_str().expect("readable"));
    // A separate namespace: others use the same metadata.
    let namespace = format!("cli-test-{}", std::process::id());
    let key = |name: &str| format!("{namespace}/{name}");
    let words = |words: &[&str]| {
        let first = ["--cluster", &cluster, "meta"];
        first
            .iter()
            .chain(words)
            .map(|word| (*word).to_owned())
            .collect::<Vec<_>>()
    };
    let text = |arguments: &[&str]| prints(words(arguments));
    let json = |arguments: &[&str]| -> Value {
        let mut all = words(arguments);
        all.insert(0, "--json".to_owned());
        serde_json::from_str(&prints(all)).expect("JSON")
    };
    let fails = |arguments: &[&str]| {
        let output = nacre(words(arguments));
        assert!(!output.status.success(), "{arguments:?} succeeded");
        String::from_utf8(output.stderr).expect("text")
    };

    let mode = key("mode");
    let first = json(&["put", &mode, "fast"])["revision"]
        .as_u64()
        .expect("a revision");
    assert_eq!(text(&["get", &mode]), "fast\n");
    let second =
        json(&["put", &mode, "slow", "--if-revision", &first.to_string()])["revision"].as_u64();
    let why = fails(&["put", &mode, "late", "--if-revision", &first.to_string()]);
    assert!(
        why.contains(&format!(
            "changed last by revision {}",
            second.expect("a revision")
        )),
        "{why}"
    );

    let lease = json(&["lease", "grant", "60"])["lease"]
        .as_u64()
        .expect("a lease");
    let (number, lease) = (lease, lease.to_string());
    text(&["put", &key("leader"), "me", "--lease", &lease]);
    let leases = json(&["lease", "ls"]);
    let mine = |lease_of: &&Value| lease_of["lease"] == number;
    assert_eq!(
        leases["leases"]
            .as_array()
            .into_iter()
            .flatten()
            .find(mine)
            .expect("there")["keys"],
        1
    );
    assert_eq!(
        text(&["lease", "keep-alive", &lease]),
        format!("lease {lease}, 60 s\n")
    );
    assert_eq!(
        text(&["ls", &key("")]),
        format!("{}\n{mode}\n", key("leader"))
    );
    assert_eq!(
        text(&["lease", "revoke", &lease]),
        "ended; 1 keys went with it\n"
    );
    assert_eq!(text(&["ls", &key("")]), format!("{mode}\n"));

    // All of the past at once, and in order.
    let told = text(&[
        "watch",
        &key(""),
        "--from",
        &first.to_string(),
        "--count",
        "4",
    ]);
    let told: Vec<String> = told
        .lines()
        .map(|line| line.split_once(' ').expect("a revision").1.to_owned())
        .collect();
    let leader = key("leader");
    let expected = [
        format!("put {mode} fast"),
        format!("put {mode} slow"),
        format!("put {leader} me"),
        format!("delete {leader}"),
    ];
    assert_eq!(told, expected);

    let why = fails(&["namespace", &namespace, r#"{"validator": "positive"}"#]);
    assert!(why.contains("`meta_programs`"), "{why}");
    assert!(text(&["rm", &key(""), "--prefix"]).starts_with("1 deleted in revision "));
    assert!(fails(&["get", &mode]).contains("there is no key"));
}
