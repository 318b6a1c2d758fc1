//! Checks of golden bytes: types are still written and read as before, and none lacks golden bytes.
//! The tests of monitors and OSDs, whose stores hold records of their own, include this file and
//! its neighbours.

use crate::file;
use crate::sample::Sample;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The examples' names without those that have a newer version: older ones are read but no longer
/// more.
pub fn newest_versions(samples: &[Sample]) -> BTreeSet<String> {
    let mut newest: BTreeMap<String, (u32, String)> = BTreeMap::new();
    for name in samples.iter().map(|sample| sample.name.clone()) {
        let versioned = name
            .rsplit_once(" v")
            .and_then(|(plain, version)| Some((plain, version.parse().ok()?)));
        let (plain, version) = versioned.unwrap_or((&name, 0));
        let this = (version, name.clone());
        let best = newest
            .entry(plain.to_owned())
            .or_insert_with(|| this.clone());
        if this > *best {
            *best = this;
        }
    }
    newest.into_values().map(|(_, name)| name).collect()
}

/// Every example is encoded as in the golden text.
pub fn written_as_ever(golden: &str, samples: &[Sample]) {
    let golden = file::parse(golden);
    let newest = newest_versions(samples);
    let written = samples
        .iter()
        .filter(|sample| newest.contains(&sample.name));
    let differing = written.filter(|sample| golden.get(&sample.name) != Some(&sample.bytes));
    let lines: Vec<String> = differing
        .map(|sample| file::print(&sample.name, &sample.bytes))
        .collect();
    let lines = lines.concat();
    assert!(
        lines.is_empty(),
        "not as in golden.txt; docs/formats/wire.md says what to do. Now:\n{lines}"
    );
}

/// All golden bytes, including old versions, decode to their examples.
pub fn read_as_ever(golden: &str, samples: Vec<Sample>) {
    let mut samples: BTreeMap<String, Sample> =
        samples.into_iter().map(|s| (s.name.clone(), s)).collect();
    for (name, bytes) in file::parse(golden) {
        let sample = samples
            .remove(&name)
            .unwrap_or_else(|| panic!("{name} has golden bytes, and no example"));
        let decoded = (sample.decode)(&bytes).unwrap_or_else(|why| panic!("{name}: {why}"));
        assert!(decoded.same, "{name} reads as another value");
    }
    assert!(samples.is_empty(), "no golden bytes: {:?}", samples.keys());
}

/// The names in `macro!(Name …` of a source text, with the version where there is one.
pub fn declared(source: &str, macro_name: &str) -> Vec<(String, Option<u8>)> {
    let mut found = Vec::new();
    // At a line's beginning: tests inside the sources indent theirs.
    for line in source
        .lines()
        .filter_map(|line| line.strip_prefix(macro_name))
    {
        let Some(rest) = line.strip_prefix("!(") else {
            continue;
        };
        let mut words = rest.split([' ', '{']);
        let name = words.next().expect("split gives one part").to_owned();
        let version =
            (words.next() == Some("version")).then(|| words.next().expect("a version follows"));
        found.push((
            name,
            version.map(|version| version.parse().expect("a version is a number")),
        ));
    }
    found
}

/// The names that the golden text must have for the records and fixed structures declared in these
/// sources, in all versions.
pub fn wanted(texts: &[String]) -> BTreeSet<String> {
    let mut wanted = BTreeSet::new();
    for text in texts {
        for (name, version) in declared(text, "wire_record") {
            let newest = version.unwrap_or_else(|| panic!("{name} has no version"));
            // All versions: an old daemon may still send them.
            wanted.extend((1..=newest).map(|version| format!("record {name} v{version}")));
        }
        wanted.extend(
            declared(text, "wire_fields")
                .into_iter()
                .map(|(name, _)| format!("fields {name}")),
        );
    }
    wanted
}

/// Everything wanted has golden bytes, and there are at least `least` such things.
pub fn nothing_is_without(golden: &str, wanted: &BTreeSet<String>, least: usize) {
    let golden = file::parse(golden);
    assert!(
        wanted.len() >= least,
        "the sources declare fewer things than there were: {wanted:?}"
    );
    let missing: Vec<&String> = wanted
        .iter()
        .filter(|name| !golden.contains_key(*name))
        .collect();
    assert!(
        missing.is_empty(),
        "no golden bytes: {missing:?}; docs/formats/wire.md says how to add them"
    );
}

/// All sources of a crate; `folder` contains its manifest.
pub fn sources(folder: &str) -> Vec<String> {
    fn gather(folder: &Path, into: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).expect("the crate's sources are there") {
            let path = entry.expect("a readable folder").path();
            if path.is_dir() {
                gather(&path, into);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                into.push(std::fs::read_to_string(&path).expect("sources are text"));
            }
        }
    }
    let mut texts = Vec::new();
    gather(&Path::new(folder).join("src"), &mut texts);
    texts
}
