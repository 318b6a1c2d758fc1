//! Checks the licences of all linked crates, banned crates, and exceptions with a reason.

use super::report;
use crate::workspace::{Package, Workspace};
use anyhow::Result;

/// Licences that require no more than a notice. BSL-1.0 is Boost's, not the Business Source Licence
/// (`BUSL-1.1`).
const ALLOWED: &[&str] = &[
    "MIT",
    "BSL-1.0",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Unicode-3.0",
    "Zlib",
    "CC0-1.0",
];

/// Banned crates, and what to use instead.
const BANNED: &[(&str, &str)] = &[
    ("rocksdb-sys", "a large C++ build; the store has redb"),
    ("librocksdb-sys", "a large C++ build; the store has redb"),
    (
        "openssl-sys",
        "ties the binary to the machine's OpenSSL; use rustls with ring",
    ),
    ("aws-lc-sys", "a large C build; use ring"),
];

/// A crate with a known vulnerability that does not affect us, as long as only the named crates use
/// it.
struct Tolerated {
    name: &'static str,
    version: &'static str,
    only_for: &'static [&'static str],
    reason: &'static str,
}

const TOLERATED: &[Tolerated] = &[Tolerated {
    name: "protobuf",
    version: "2.28.",
    // The last three only generate raft-proto's code at build time.
    only_for: &[
        "raft",
        "raft-proto",
        "nacre-mon",
        "protobuf-build",
        "protobuf-codegen",
        "protobuf-parse",
    ],
    reason: "RUSTSEC-2024-0437 is about hostile input; raft's messages travel only between authenticated monitors, in our own frames",
}];

/// Checks everything in `Cargo.lock`.
///
/// # Errors
/// Every crate that is not allowed.
pub fn check(workspace: &Workspace) -> Result<()> {
    let mut findings = Vec::new();
    for package in &workspace.outside {
        let Package {
            name,
            version,
            license,
            ..
        } = package;
        if !allows(license) {
            findings.push(format!(
                "{name} {version} is licensed `{license}`, which is not on the list"
            ));
        }
        if let Some((_, why)) = BANNED.iter().find(|(banned, _)| banned == name) {
            findings.push(format!("{name} is banned: {why}"));
        }
    }
    for tolerated in TOLERATED {
        findings.extend(tolerate(
            tolerated,
            workspace.members.iter().chain(&workspace.outside),
        ));
    }
    println!("        {} outside crates", workspace.outside.len());
    report(findings)
}

fn tolerate<'p>(
    rule: &Tolerated,
    packages: impl Iterator<Item = &'p Package> + Clone,
) -> Vec<String> {
    let Tolerated {
        name,
        version,
        only_for,
        reason,
    } = rule;
    let covered =
        |package: &&Package| package.name == *name && package.version.starts_with(version);
    if !packages.clone().any(|package| covered(&package)) {
        return Vec::new();
    }
    println!("        note: {name} {version}x is tolerated: {reason}");
    let uses = |package: &&Package| {
        package
            .dependencies
            .iter()
            .any(|edge| edge.name == *name && !edge.dev)
    };
    let others = packages
        .filter(uses)
        .filter(|package| !only_for.contains(&package.name.as_str()));
    others
        .map(|package| {
            format!(
                "{} uses {name}, which only {} may",
                package.name,
                only_for.join(", ")
            )
        })
        .collect()
}

/// Whether an SPDX expression allows a choice that is on the list.
///
/// ```text
/// any  = all ("OR" | "/") all …      all = one "AND" one …      one = "(" any ")" | licence ["WITH" exception]
/// ```
fn allows(expression: &str) -> bool {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    // An unparsed rest was not understood, and so is not allowed.
    any(&mut rest) && rest.is_empty()
}

fn any(words: &mut &[&str]) -> bool {
    let mut good = all(words);
    while let ["OR", rest @ ..] = *words {
        *words = rest;
        good |= all(words);
    }
    good
}
fn all(words: &mut &[&str]) -> bool {
    let mut good = one(words);
    while let ["AND", rest @ ..] = *words {
        *words = rest;
        good &= one(words);
    }
    good
}
fn one(words: &mut &[&str]) -> bool {
    match *words {
        ["(", rest @ ..] => {
            *words = rest;
            let good = any(words);
            match *words {
                [")", rest @ ..] => {
                    *words = rest;
                    good
                }
                _ => false,
            }
        }
        // An exception only adds permissions.
        [licence, "WITH", _, rest @ ..] | [licence, rest @ ..] => {
            *words = rest;
            ALLOWED.contains(licence)
        }
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dependency;
    use std::path::PathBuf;

    #[test]
    fn expressions_are_read_as_spdx_means_them() {
        for good in [
            "MIT",
            "MIT OR Apache-2.0",
            "MIT/Apache-2.0",
            "Unlicense OR MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR MIT",
            "GPL-3.0 OR (MIT AND ISC)",
        ] {
            assert!(allows(good), "{good}");
        }
        for bad in [
            "",
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "MPL-2.0",
            "(MIT",
            "MIT)",
            "MIT Apache-2.0",
            "OR MIT",
            "MIT AND (GPL-2.0 OR MPL-2.0)",
        ] {
            assert!(!allows(bad), "{bad}");
        }
    }

    #[test]
    fn a_tolerated_crate_stays_with_those_it_was_tolerated_for() {
        let package = |name: &str, version: &str, needs: &[&str]| Package {
            name: name.to_owned(),
            version: version.to_owned(),
            license: "MIT".to_owned(),
            dependencies: needs
                .iter()
                .map(|name| Dependency {
                    name: (*name).to_owned(),
                    dev: false,
                })
                .collect(),
            features: Vec::new(),
            binaries: Vec::new(),
            folder: PathBuf::new(),
        };
        let fine = [
            package("protobuf", "2.28.0", &[]),
            package("raft", "0.7.0", &["protobuf"]),
        ];
        assert!(tolerate(&TOLERATED[0], fine.iter()).is_empty());
        let spread = [
            package("protobuf", "2.28.0", &[]),
            package("nacre-wire", "0.1.0", &["protobuf"]),
        ];
        assert!(tolerate(&TOLERATED[0], spread.iter())[0].contains("nacre-wire uses protobuf"));
        let newer = [
            package("protobuf", "3.7.2", &[]),
            package("nacre-wire", "0.1.0", &["protobuf"]),
        ];
        assert!(tolerate(&TOLERATED[0], newer.iter()).is_empty());
    }
}
