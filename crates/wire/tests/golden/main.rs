//! Golden bytes: what every message, record and frame looked like when it was released, and looks like still.
//!
//! `golden.txt` has the bytes, `samples.rs` the values they are of. A type without golden bytes fails
//! [`nothing_is_without_golden_bytes`], which asks the tag tables and reads the sources for what there is.
//! How to add bytes, and why the old ones stay, is in `docs/formats/wire.md`.

mod file;
mod meter;
mod sample;
mod samples;

use nacre_wire::Message;
use nacre_wire::map::{Change, Protocol};
use nacre_wire::msg::client::{OpFailure, SubOp, SubReply};
use nacre_wire::msg::monitor::Severity;
use nacre_wire::msg::replication::Effect;
use sample::Sample;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const GOLDEN: &str = include_str!("golden.txt");

/// A decoder may ask for this many bytes per byte it reads, and this many besides. A list of 1-byte elements that take 200 in memory is
/// legal, and so is a reservation of 256 elements before the first is read; a trusted length is neither. Hierarchies are the
/// expensive part: text becomes tables.
const PER_BYTE: usize = 512;
const BESIDES: usize = 256 << 10;

/// The examples' names without those that have a newer version: these are read, and written no more.
fn newest_versions() -> BTreeSet<String> {
    let mut newest: BTreeMap<String, (u32, String)> = BTreeMap::new();
    for name in samples::all().into_iter().map(|sample| sample.name) {
        let (plain, version) = name.rsplit_once(" v").unwrap_or((&name, "0"));
        let this = (version.parse().expect("a version is a number"), name.clone());
        let best = newest.entry(plain.to_owned()).or_insert_with(|| this.clone());
        if this > *best {
            *best = this;
        }
    }
    newest.into_values().map(|(_, name)| name).collect()
}

#[test]
fn every_example_is_written_as_it_always_was() {
    let golden = file::parse(GOLDEN);
    let newest = newest_versions();
    let written = samples::all().into_iter().filter(|sample| newest.contains(&sample.name));
    let differing = written.filter(|sample| golden.get(&sample.name) != Some(&sample.bytes));
    let lines: Vec<String> = differing.map(|sample| file::print(&sample.name, &sample.bytes)).collect();
    let lines = lines.concat();
    assert!(lines.is_empty(), "not as in golden.txt; docs/formats/wire.md says what to do. Now:\n{lines}");
}

#[test]
fn every_golden_byte_string_still_reads_as_it_did() {
    let golden = file::parse(GOLDEN);
    let mut samples: BTreeMap<String, Sample> = samples::all().into_iter().map(|s| (s.name.clone(), s)).collect();
    for (name, bytes) in golden {
        let sample = samples.remove(&name).unwrap_or_else(|| panic!("{name} has golden bytes, and no example"));
        let decoded = (sample.decode)(&bytes).unwrap_or_else(|why| panic!("{name}: {why}"));
        assert!(decoded.same, "{name} reads as another value");
    }
    assert!(samples.is_empty(), "no golden bytes: {:?}", samples.keys());
}

/// The names in `macro!(Name …` of a source text, with the version where there is one.
fn declared(source: &str, macro_name: &str) -> Vec<(String, Option<u8>)> {
    let mut found = Vec::new();
    // At a line's beginning: tests inside the sources indent theirs.
    for line in source.lines().filter_map(|line| line.strip_prefix(macro_name)) {
        let Some(rest) = line.strip_prefix("!(") else { continue };
        let mut words = rest.split([' ', '{']);
        let name = words.next().expect("split gives one part").to_owned();
        let version = (words.next() == Some("version")).then(|| words.next().expect("a version follows"));
        found.push((name, version.map(|version| version.parse().expect("a version is a number"))));
    }
    found
}

fn sources(folder: &Path, into: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).expect("the crate's sources are there") {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            into.push(std::fs::read_to_string(&path).expect("sources are text"));
        }
    }
}

#[test]
fn nothing_is_without_golden_bytes() {
    let golden = file::parse(GOLDEN);
    let mut wanted = BTreeSet::new();
    for (_, name, version, _) in Message::KINDS {
        wanted.insert(format!("frame {name} v{version}"));
    }
    let mut texts = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut texts);
    for text in &texts {
        for (name, version) in declared(text, "wire_record") {
            let newest = version.unwrap_or_else(|| panic!("{name} has no version"));
            // All that ever were: an old daemon may still send them.
            wanted.extend((1..=newest).map(|version| format!("record {name} v{version}")));
        }
        wanted.extend(declared(text, "wire_fields").into_iter().map(|(name, _)| format!("fields {name}")));
    }
    let enums: [(&str, &[(u8, &str)]); 7] = [
        ("Change", Change::VARIANTS),
        ("Effect", Effect::VARIANTS),
        ("OpFailure", OpFailure::VARIANTS),
        ("Protocol", Protocol::VARIANTS),
        ("Severity", Severity::VARIANTS),
        ("SubOp", SubOp::VARIANTS),
        ("SubReply", SubReply::VARIANTS),
    ];
    let known: BTreeSet<&str> = enums.iter().map(|(name, _)| *name).collect();
    for (name, _) in texts.iter().flat_map(|text| declared(text, "wire_enum")) {
        assert!(known.contains(name.as_str()), "{name} is an enum that this test does not know: add its VARIANTS");
    }
    for (name, variants) in enums {
        for (tag, variant) in variants {
            let name = format!("variant {name}.{variant}");
            // The example must be of that variant, not of its neighbour in the list.
            if let Some(bytes) = golden.get(&name) {
                assert_eq!(bytes.first(), Some(tag), "{name}: another variant's bytes");
            }
            wanted.insert(name);
        }
    }
    assert!(wanted.len() > 150, "the sources declare fewer things than there were: {}", wanted.len());
    let missing: Vec<&String> = wanted.iter().filter(|name| !golden.contains_key(*name)).collect();
    assert!(missing.is_empty(), "no golden bytes: {missing:?}; docs/formats/wire.md says how to add them");
}

/// Decodes damaged bytes: an error, or a value that is written and read back; in either case no more memory than the bytes justify.
fn survive(sample: &Sample, damaged: &[u8], what: &str) {
    let (decoded, asked) = meter::asked(|| (sample.decode)(damaged));
    let bound = BESIDES + PER_BYTE * damaged.len();
    assert!(asked <= bound, "{}, {what}: {asked} bytes of memory for {} bytes", sample.name, damaged.len());
    let Ok(first) = decoded else { return };
    let second = (sample.decode)(&first.bytes).unwrap_or_else(|why| panic!("{}, {what}: {why}", sample.name));
    assert_eq!(first.bytes, second.bytes, "{}, {what}: written differently the second time", sample.name);
}

#[test]
fn every_truncation_is_an_error_or_a_value() {
    for sample in samples::all() {
        for length in 0..sample.bytes.len() {
            survive(&sample, &sample.bytes[..length], &format!("cut to {length}"));
        }
    }
}

#[test]
fn every_changed_byte_gives_an_error_or_a_value() {
    for sample in samples::all() {
        let mut damaged = sample.bytes.clone();
        for at in 0..damaged.len() {
            let good = damaged[at];
            // All single bits, and the values that counts and tags like least.
            let bits = (0..8).map(|bit| good ^ (1 << bit));
            for bad in bits.chain([0, 1, 0x7f, 0x80, 0xfe, 0xff]).filter(|bad| *bad != good) {
                damaged[at] = bad;
                survive(&sample, &damaged, &format!("byte {at} is {bad:#04x}"));
            }
            damaged[at] = good;
        }
    }
}

/// A frame's checksums hide its meta section from the test above: here they are right, and the fields are not.
#[test]
fn every_changed_byte_of_a_meta_section_gives_an_error_or_a_value() {
    for sample in samples::all().into_iter().filter(|sample| sample.name.starts_with("frame ")) {
        let bytes = &sample.bytes;
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize;
        let (kind, meta_len) = (u16::from_le_bytes([bytes[4], bytes[5]]), word(8));
        let mut meta = bytes[40..40 + meta_len].to_vec();
        let payload = bytes::Bytes::copy_from_slice(&bytes[40 + meta_len..]);
        for at in 0..meta.len() {
            let good = meta[at];
            for bad in [good ^ 1, good ^ 0x80, 0, 0xff] {
                meta[at] = bad;
                let decode = || Message::decode(kind, 1, &meta, vec![payload.clone()]);
                let (decoded, asked) = meter::asked(decode);
                assert!(asked <= BESIDES + PER_BYTE * meta.len(), "{}: {asked} bytes of memory", sample.name);
                let Ok(message) = decoded else { continue };
                let mut again = Vec::new();
                message.put_meta(&mut again);
                let second = Message::decode(kind, 1, &again, message.payload().to_vec()).expect("reads what it wrote");
                // Not compared with ==: a weight of text that is not a number is nobody's equal.
                let mut third = Vec::new();
                second.put_meta(&mut third);
                assert_eq!(again, third, "{} byte {at}", sample.name);
            }
            meta[at] = good;
        }
    }
}
