//! Golden bytes: the encoding of every message, record and frame when it was released, which must
//! not change.
//!
//! `golden.txt` has the bytes, `samples.rs` the values that they encode. A type without golden
//! bytes fails [`nothing_is_without_golden_bytes`], which finds all types in the tag tables and the
//! sources. `docs/formats/wire.md` explains how to add bytes and why old ones stay.

mod check;
mod file;
mod fs;
mod meta;
mod meter;
mod sample;
mod samples;

use nacre_wire::Message;
use nacre_wire::map::{Capability, Change, ProgramKind, Protocol, SnapMode};
use nacre_wire::msg::client::{OpFailure, SubOp, SubReply};
use nacre_wire::msg::monitor::Severity;
use nacre_wire::msg::replication::Effect;
use sample::Sample;
use std::collections::BTreeSet;

const GOLDEN: &str = include_str!("golden.txt");

/// A decoder may allocate this many bytes per byte that it reads, and this many in addition. A list
/// of 1-byte elements that take 200 in memory is legal, and so is a reservation of 256 elements
/// before the first is read; a trusted length is neither. Hierarchies are the expensive part: text
/// becomes tables.
const PER_BYTE: usize = 512;
const BESIDES: usize = 256 << 10;

#[test]
fn every_example_is_written_as_it_always_was() {
    check::written_as_ever(GOLDEN, &samples::all());
}

#[test]
fn every_golden_byte_string_still_reads_as_it_did() {
    check::read_as_ever(GOLDEN, samples::all());
}

#[test]
fn nothing_is_without_golden_bytes() {
    let golden = file::parse(GOLDEN);
    let texts = check::sources(env!("CARGO_MANIFEST_DIR"));
    let mut wanted = check::wanted(&texts);
    for (_, name, version, _) in Message::KINDS {
        wanted.insert(format!("frame {name} v{version}"));
    }
    let enums: [(&str, &[(u8, &str)]); 10] = [
        ("Capability", Capability::VARIANTS),
        ("ProgramKind", ProgramKind::VARIANTS),
        ("Change", Change::VARIANTS),
        ("Effect", Effect::VARIANTS),
        ("OpFailure", OpFailure::VARIANTS),
        ("Protocol", Protocol::VARIANTS),
        ("Severity", Severity::VARIANTS),
        ("SnapMode", SnapMode::VARIANTS),
        ("SubOp", SubOp::VARIANTS),
        ("SubReply", SubReply::VARIANTS),
    ];
    let known: BTreeSet<&str> = enums
        .iter()
        .chain(&meta::ENUMS)
        .chain(&fs::ENUMS)
        .map(|(name, _)| *name)
        .collect();
    for (name, _) in texts
        .iter()
        .flat_map(|text| check::declared(text, "wire_enum"))
    {
        assert!(
            known.contains(name.as_str()),
            "{name} is an enum that this test does not know: add its VARIANTS"
        );
    }
    for (name, variants) in enums.into_iter().chain(meta::ENUMS).chain(fs::ENUMS) {
        for (tag, variant) in variants {
            let name = format!("variant {name}.{variant}");
            // The example must be of that variant, not of its neighbour in the list.
            if let Some(bytes) = golden.get(&name) {
                assert_eq!(bytes.first(), Some(tag), "{name}: another variant's bytes");
            }
            wanted.insert(name);
        }
    }
    check::nothing_is_without(GOLDEN, &wanted, 210);
}

/// Decodes damaged bytes: the result is an error, or a value that survives a round trip; in both
/// cases no more memory is allocated than the bytes justify.
fn survive(sample: &Sample, damaged: &[u8], what: &str) {
    let (decoded, asked) = meter::asked(|| (sample.decode)(damaged));
    let bound = BESIDES + PER_BYTE * damaged.len();
    assert!(
        asked <= bound,
        "{}, {what}: {asked} bytes of memory for {} bytes",
        sample.name,
        damaged.len()
    );
    let Ok(first) = decoded else { return };
    let second = (sample.decode)(&first.bytes)
        .unwrap_or_else(|why| panic!("{}, {what}: {why}", sample.name));
    assert_eq!(
        first.bytes, second.bytes,
        "{}, {what}: written differently the second time",
        sample.name
    );
}

#[test]
fn every_truncation_is_an_error_or_a_value() {
    for sample in samples::all() {
        for length in 0..sample.bytes.len() {
            survive(
                &sample,
                &sample.bytes[..length],
                &format!("cut to {length}"),
            );
        }
    }
}

#[test]
fn every_changed_byte_gives_an_error_or_a_value() {
    for sample in samples::all() {
        let mut damaged = sample.bytes.clone();
        for at in 0..damaged.len() {
            let good = damaged[at];
            // All single-bit flips, and the most harmful values for counts and tags.
            let bits = (0..8).map(|bit| good ^ (1 << bit));
            for bad in bits
                .chain([0, 1, 0x7f, 0x80, 0xfe, 0xff])
                .filter(|bad| *bad != good)
            {
                damaged[at] = bad;
                survive(&sample, &damaged, &format!("byte {at} is {bad:#04x}"));
            }
            damaged[at] = good;
        }
    }
}

/// A frame's checksums hide its meta section from the test above: here the checksums are right and
/// the fields are wrong.
#[test]
fn every_changed_byte_of_a_meta_section_gives_an_error_or_a_value() {
    for sample in samples::all()
        .into_iter()
        .filter(|sample| sample.name.starts_with("frame "))
    {
        let bytes = &sample.bytes;
        let word = |at: usize| {
            u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize
        };
        let (kind, meta_len) = (u16::from_le_bytes([bytes[4], bytes[5]]), word(8));
        let mut meta = bytes[40..40 + meta_len].to_vec();
        let payload = bytes::Bytes::copy_from_slice(&bytes[40 + meta_len..]);
        for at in 0..meta.len() {
            let good = meta[at];
            for bad in [good ^ 1, good ^ 0x80, 0, 0xff] {
                meta[at] = bad;
                let decode = || Message::decode(kind, 1, &meta, vec![payload.clone()]);
                let (decoded, asked) = meter::asked(decode);
                assert!(
                    asked <= BESIDES + PER_BYTE * meta.len(),
                    "{}: {asked} bytes of memory",
                    sample.name
                );
                let Ok(message) = decoded else { continue };
                let mut again = Vec::new();
                message.put_meta(&mut again);
                let second = Message::decode(kind, 1, &again, message.payload().to_vec())
                    .expect("reads what it wrote");
                // Not compared with ==: a weight that is not a number equals nothing.
                let mut third = Vec::new();
                second.put_meta(&mut third);
                assert_eq!(again, third, "{} byte {at}", sample.name);
            }
            meta[at] = good;
        }
    }
}
