//! A real cluster in a real process, through the command line.

use super::{nacre, prints, scratch};

#[test]
fn the_tour_finds_every_byte_after_a_daemon_was_killed() {
    let dir = scratch("tour");
    let dir = dir.to_str().expect("readable");
    let from = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
    let told = prints(["tour", "--json", "--fresh", "--dir", dir, "--from", from]);
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON and nothing else");
    assert_eq!(told["equal"], true, "{told}");
    assert!(
        told["objects"].as_u64().is_some_and(|objects| objects > 15),
        "{told}"
    );
    let number = |name: &str| told[name].as_u64().expect("a number");
    assert!(number("overwritten") > 0 && number("added") > 0, "{told}");
    assert!(
        number("recovered") >= number("overwritten") + number("added"),
        "{told}"
    );
    match told["mounted"]["skipped"].as_str() {
        Some(why) => eprintln!("SKIPPED the tour's mounted file system: {why}"),
        None => {
            assert_eq!(told["mounted"]["equal"], true, "{told}");
            assert!(
                told["mounted"]["files"]
                    .as_u64()
                    .is_some_and(|files| files > 15),
                "{told}"
            );
        }
    }
    assert!(
        !std::path::Path::new(dir).exists(),
        "it cleans up after itself"
    );
}

#[test]
fn a_tour_never_removes_what_it_did_not_make() {
    let dir = scratch("not-a-tour");
    std::fs::create_dir_all(&dir).expect("made");
    std::fs::write(dir.join("precious"), "x").expect("written");
    let output = nacre(["tour", "--fresh", "--dir", dir.to_str().expect("readable")]);
    assert!(!output.status.success());
    assert!(dir.join("precious").exists());
}
