//! Snapshots, rollbacks and copies through the command line, over a real cluster.

use super::operator::Site;
use std::path::PathBuf;

/// Larger than one operation: striped.
fn large(salt: u8) -> Vec<u8> {
    (0..(33 << 20) + 17)
        .map(|i: u32| (i as u8).wrapping_mul(31).wrapping_add((i >> 12) as u8) ^ salt)
        .collect()
}

fn file(site: &Site, name: &str) -> PathBuf {
    site.dir().join(name)
}
fn put(site: &Site, name: &str, data: &[u8]) {
    let file = file(site, "in");
    std::fs::write(&file, data).expect("writable");
    site.text(&[
        "object",
        "put",
        "data",
        name,
        file.to_str().expect("readable"),
    ]);
}
fn get(site: &Site, name: &str, more: &[&str]) -> Vec<u8> {
    let file = file(site, "out");
    site.text(
        &[
            &[
                "object",
                "get",
                "data",
                name,
                file.to_str().expect("readable"),
            ],
            more,
        ]
        .concat(),
    );
    std::fs::read(file).expect("written")
}
fn pieces(site: &Site) -> usize {
    let all = site.json(&["object", "ls", "data", "--namespace", ".stripes/"]);
    all.as_array().expect("a list").len()
}

#[test]
fn what_a_snapshot_preserves_comes_back_in_one_piece_and_in_many() {
    let site = Site::new("snapshots", 5);
    site.up(&[]);
    site.text(&["pool", "create", "other"]);
    assert!(
        site.fails(&["pool", "snap", "rm", "data", "monday"])
            .contains("no snapshot monday")
    );
    assert!(
        site.fails(&["object", "get", "data", "a", "-", "--snap", "monday"])
            .contains("no snapshot monday")
    );

    let (old, new) = (large(1), large(2));
    put(&site, "small", b"monday's");
    put(&site, "large", &old);
    put(&site, "gone", b"still here");
    site.text(&["object", "xattr", "set", "data", "small", "colour", "red"]);
    assert_eq!(
        site.json(&["pool", "snap", "create", "data", "monday"])["id"],
        1
    );
    assert!(
        site.fails(&["pool", "snap", "create", "data", "monday"])
            .contains("already")
    );
    // Written by other clients, a moment later: none of it is in the snapshot.
    put(&site, "small", b"now");
    put(&site, "large", &new);
    put(&site, "later", b"made afterwards");
    site.text(&["object", "rm", "data", "gone"]);
    site.text(&["pool", "snap", "create", "data", "tuesday"]);

    for snap in ["monday", "1"] {
        assert_eq!(get(&site, "small", &["--snap", snap]), b"monday's");
        assert!(
            get(&site, "large", &["--snap", snap]) == old,
            "all pieces as they were"
        );
        assert_eq!(get(&site, "gone", &["--snap", snap]), b"still here");
        assert!(
            site.fails(&["object", "get", "data", "later", "-", "--snap", snap])
                .contains("not there at")
        );
    }
    assert!(get(&site, "large", &["--snap", "tuesday"]) == new);
    assert_eq!(
        site.json(&["object", "ls", "data"]),
        serde_json::json!(["large", "later", "small"]),
        "heads only"
    );
    let snaps = site.json(&["object", "snaps", "data", "large"]);
    let rows = snaps["snaps"].as_array().expect("a list");
    let rows: Vec<_> = rows
        .iter()
        .map(|row| (row["name"].as_str(), row["size_bytes"].as_u64()))
        .collect();
    assert_eq!(
        rows,
        [
            (Some("monday"), Some(old.len() as u64)),
            (Some("tuesday"), Some(new.len() as u64))
        ]
    );
    let text = site.text(&["object", "snaps", "data", "small"]);
    assert!(
        text.contains("monday")
            && text
                .lines()
                .next()
                .is_some_and(|line| line.contains("CLONE")),
        "{text}"
    );
    let listed = site.json(&["pool", "snap", "ls", "data"]);
    assert_eq!(
        (&listed["mode"], listed["snaps"].as_array().map(Vec::len)),
        (&"named".into(), Some(2))
    );

    // Copies: of one piece, of many, over a striped object.
    assert!(
        site.fails(&["object", "cp", "data", "nothing", "x"])
            .contains("there is no object nothing")
    );
    assert!(
        site.fails(&["object", "cp", "data", "small", "small"])
            .contains("the same name")
    );
    let before = pieces(&site);
    site.text(&["object", "cp", "data", "large", "copy"]);
    assert!(get(&site, "copy", &[]) == new);
    assert_eq!(pieces(&site), 2 * before);
    site.text(&["object", "cp", "data", "small", "copy"]);
    assert_eq!(get(&site, "copy", &[]), b"now");
    assert_eq!(
        pieces(&site),
        before,
        "what it was is gone, and nothing is left of the way"
    );
    assert_eq!(
        site.text(&["object", "xattr", "get", "data", "copy", "colour"]),
        "red"
    );

    for name in ["small", "large", "gone"] {
        site.text(&["object", "rollback", "data", name, "monday"]);
    }
    assert_eq!(get(&site, "small", &[]), b"monday's");
    assert!(get(&site, "large", &[]) == old && get(&site, "large", &["--snap", "tuesday"]) == new);
    assert_eq!(pieces(&site), before, "those of what was replaced are gone");
    assert_eq!(get(&site, "gone", &[]), b"still here");
    site.text(&["object", "rollback", "data", "later", "monday"]);
    assert!(
        site.fails(&["object", "stat", "data", "later"])
            .contains("no object later")
    );
    assert!(
        site.fails(&["object", "rollback", "data", "never", "monday"])
            .contains("was not there at monday")
    );

    // Objects that only a snapshot had are removed with it.
    site.text(&["object", "rm", "data", "gone"]);
    for snap in ["monday", "tuesday"] {
        site.text(&["pool", "snap", "rm", "data", snap]);
    }
    assert!(
        site.fails(&["object", "get", "data", "small", "-", "--snap", "1"])
            .contains("no snapshot 1")
    );
    site.until("trimmed", |site| {
        site.run(&["object", "snaps", "data", "gone"]).status.code() != Some(0)
    });
    assert!(get(&site, "large", &[]) == old);

    // Clients with their own snapshot contexts.
    assert_eq!(site.json(&["pool", "snap", "create", "other"])["id"], 1);
    assert!(
        site.fails(&["pool", "snap", "create", "other", "name"])
            .contains("snapshots of their own")
    );
    assert!(
        site.text(&["pool", "snap", "ls", "other"])
            .contains("1 live")
    );
}
