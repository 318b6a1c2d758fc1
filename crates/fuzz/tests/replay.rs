//! Every target over its corpus, and over a fixed number of mutations of it: on stable, with the
//! same inputs on every machine.

// A test reads its corpora from files.
#![allow(clippy::disallowed_methods)]

use nacre_fuzz::{Dice, TARGETS, mutate, run};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Mutations per target.
const MUTATIONS: usize = 3000;
/// Targets whose mutations take long to run: fewer of them.
const SLOW: &[(&str, usize)] = &[("store_image", 300)];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display()));
    let stem = |path: PathBuf| {
        path.file_stem()
            .expect("a file has a name")
            .to_string_lossy()
            .into_owned()
    };
    entries
        .map(|entry| stem(entry.expect("a readable folder").path()))
        .collect()
}

fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = folder().join("corpus").join(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display()));
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a readable folder").path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{target} has no corpus");
    files
        .into_iter()
        .map(|file| (file.clone(), fs::read(&file).expect("a readable file")))
        .collect()
}

#[test]
fn every_target_has_a_corpus_and_a_driver() {
    let targets: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names(&folder().join("corpus")), targets);
    assert_eq!(names(&folder().join("fuzz_targets")), targets);
}

fn replay(target: &str) {
    let corpus = corpus(target);
    for (file, input) in &corpus {
        // Shown when the test fails: the last one printed is the cause.
        println!("{}", file.display());
        run(target, input);
    }
    let count = SLOW
        .iter()
        .find(|(slow, _)| *slow == target)
        .map_or(MUTATIONS, |(_, count)| *count);
    let mut dice = Dice::new(42);
    for number in 0..count {
        let (one, other) = (dice.below(corpus.len()), dice.below(corpus.len()));
        let input = mutate(&mut dice, &corpus[one].1, &corpus[other].1);
        println!("mutation {number} of {}", corpus[one].0.display());
        run(target, &input);
    }
}

macro_rules! replays {
    ($($target:ident),*) => {
        $( #[test] fn $target() { replay(stringify!($target)); } )*
        #[test]
        fn every_target_is_replayed() {
            let replayed = [$(stringify!($target)),*];
            assert_eq!(replayed.to_vec(), TARGETS.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        }
    };
}
replays!(
    command,
    config_toml,
    crush_text,
    delta,
    frame,
    history_file,
    map,
    message,
    store_image
);
