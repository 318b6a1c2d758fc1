//! Sources of programs are ordinary objects: they survive failed daemons and bit rot (MAL-70), and
//! their committed records survive the loss of all monitors (MAL-15).

use super::operator::Site;
use rustix::fs::{SeekFrom, seek};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// A class that contains its version, long enough to have its own blocks; `MARK` is found in a
/// store's file.
fn source(version: u32) -> String {
    let text = format!(
        "function version(input, output)\n  output:append(\"{version}\")\nend\nobjclass.register(\"version\", version, {{read_only = true}})\n"
    );
    let remark = format!(
        "-- MARK-OF-VERSION-{version} --------------------------------------------------------------\n"
    );
    text + &remark.repeat(200)
}

/// Flips a bit of every occurrence of the source in a stopped store; returns the number of
/// occurrences. A store's file is large and mostly holes.
fn rot(store: &Path, version: u32) -> usize {
    let mark = format!("MARK-OF-VERSION-{version} ");
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(store)
        .expect("writable");
    let (mut places, mut at) = (0, 0);
    while let Ok(data) = seek(&file, SeekFrom::Data(at)) {
        at = seek(&file, SeekFrom::Hole(data)).expect("the end is a hole");
        let mut bytes = vec![0; usize::try_from(at - data).expect("fits")];
        file.read_exact_at(&mut bytes, data).expect("readable");
        for found in memchr::memmem::find_iter(&bytes, &mark) {
            file.write_all_at(&[bytes[found] ^ 1], data + found as u64)
                .expect("written");
            places += 1;
        }
    }
    places
}

#[test]
fn a_class_outlives_daemons_monitors_and_rot() {
    let mut site = Site::new("durability", 12);
    site.up(&["--processes", "--mons", "3"]);
    site.put("a", "an object");
    let file = |version: u32| {
        let path = site.dir().join(format!("said-{version}.lua"));
        std::fs::write(&path, source(version)).expect("writable");
        path.to_str().expect("readable").to_owned()
    };
    let files = [file(1), file(2)];
    let version = |site: &Site| {
        site.text(&[
            "class", "exec", "data", "a", "said", "version", "--input", "",
        ])
    };
    site.text(&["class", "install", "said", &files[0]]);
    assert_eq!(version(&site), "1");

    // An OSD with a replica of the source is dead: another version is installed, and the first one
    // is activated again.
    site.kill("osd.0");
    site.text(&["class", "install", "said", &files[1]]);
    assert_eq!(version(&site), "2");
    site.text(&["class", "rollback", "said"]);
    assert_eq!(version(&site), "1");
    site.start_by_hand("osd", "0");
    site.text(&["class", "install", "said", &files[1]]);

    // All monitors die at once, as soon as that was committed.
    for mon in ["mon.0", "mon.1", "mon.2"] {
        site.kill(mon);
    }
    for mon in ["0", "1", "2"] {
        site.start_by_hand("mon", mon);
    }
    site.until("known", |site| {
        site.run(&["class", "show", "said"]).status.success()
    });
    assert!(
        site.text(&["class", "show", "said", "--source"])
            .contains("MARK-OF-VERSION-2")
    );
    site.until_clean();
    assert_eq!(version(&site), "2");
    let shown = site.json(&["class", "show", "said"]);
    let digest = shown["versions"]
        .as_array()
        .expect("versions")
        .last()
        .expect("two")["digest"]
        .clone();
    let object = format!("class/said/{}", digest.as_str().expect("a digest"));
    let place = site.json(&["object", "where", "nacre.programs", &object]);
    let primary = &place["places"][0]["primary"];
    assert_eq!(place["exists"], true, "{place}");
    let primary = primary
        .as_u64()
        .or_else(|| primary.as_str()?.strip_prefix("osd.")?.parse().ok())
        .expect("a primary");
    site.stop();

    // The replica that others read is corrupted on its disk. Every OSD is restarted, so it has to
    // read the source again. A part of it may still be in the store's log: then that OSD is left
    // out, and says so.
    assert!(
        rot(&site.dir().join(format!("osd.{primary}/store")), 2) >= 200,
        "osd.{primary} has a copy of the source"
    );
    site.up(&[]);
    site.until("served", |site| {
        site.run(&[
            "class", "exec", "data", "a", "said", "version", "--input", "",
        ])
        .status
        .success()
    });
    assert_eq!(version(&site), "2", "osd.{primary}");
    assert_eq!(
        site.text(&["class", "show", "said", "--source"]),
        source(2),
        "osd.{primary}"
    );
}
