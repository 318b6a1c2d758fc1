//! Compares `layers.toml` with the manifests: the allowed dependencies between crates, and the
//! crates that are pure (DESIGN §2).
//!
//! Only a crate's own dependencies count: tests may depend on more. Cargo itself ensures that there
//! are no cycles.

use super::report;
use crate::workspace::{Package, Workspace};
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The restrictions of a crate.
#[derive(Debug)]
struct Layer {
    pure: bool,
    edges: BTreeSet<String>,
    outside: BTreeSet<String>,
    /// Files of a pure crate that adapt a library that is not pure (DESIGN §2): one named module
    /// each.
    adapters: BTreeSet<String>,
}

/// Checks the layers.
///
/// # Errors
/// Every edge that is not allowed, every crate that is not listed, every pure crate that is not
/// pure.
pub fn check(workspace: &Workspace) -> Result<()> {
    let text =
        fs::read_to_string(workspace.root.join("layers.toml")).context("reading layers.toml")?;
    let layers = parse(&text).context("layers.toml")?;
    let mut findings = edges(&layers, &workspace.members);
    for package in &workspace.members {
        if layers
            .get(short(&package.name))
            .is_some_and(|layer| layer.pure)
        {
            findings.extend(purity(package, &layers[short(&package.name)].adapters)?);
        }
    }
    report(findings)
}

/// The name of a crate without the project's prefix.
fn short(package: &str) -> &str {
    package.strip_prefix("nacre-").unwrap_or(package)
}

fn parse(text: &str) -> Result<BTreeMap<String, Layer>> {
    let table: toml::Table = text.parse()?;
    let crates = table
        .get("crate")
        .and_then(toml::Value::as_table)
        .context("there is no table `crate`")?;
    let mut layers = BTreeMap::new();
    for (name, entry) in crates {
        let set = |key: &str| -> Result<BTreeSet<String>> {
            let list = entry.get(key).and_then(toml::Value::as_array);
            let list = list.with_context(|| format!("crate {name}: `{key}` is no list"))?;
            Ok(list
                .iter()
                .filter_map(|item| item.as_str().map(str::to_owned))
                .collect())
        };
        let pure = entry.get("pure").and_then(toml::Value::as_bool);
        let pure =
            pure.with_context(|| format!("crate {name}: `pure` is neither true nor false"))?;
        let adapters = if entry.get("adapters").is_some() {
            set("adapters")?
        } else {
            BTreeSet::new()
        };
        layers.insert(
            name.clone(),
            Layer {
                pure,
                edges: set("edges")?,
                outside: set("outside")?,
                adapters,
            },
        );
    }
    Ok(layers)
}

fn edges(layers: &BTreeMap<String, Layer>, members: &[Package]) -> Vec<String> {
    let ours: BTreeSet<&str> = members
        .iter()
        .map(|package| package.name.as_str())
        .collect();
    let mut findings = Vec::new();
    for package in members {
        let name = short(&package.name);
        let Some(layer) = layers.get(name) else {
            findings.push(format!(
                "layers.toml does not list the crate {name}: say what it may depend on"
            ));
            continue;
        };
        for edge in package.dependencies.iter().filter(|edge| !edge.dev) {
            let target = short(&edge.name);
            if !ours.contains(edge.name.as_str()) {
                if !layer.outside.contains(&edge.name) {
                    findings
                        .push(format!("{name} uses the outside crate {target}, which layers.toml does not allow it"));
                }
                continue;
            }
            if !layer.edges.contains(target) {
                findings.push(format!(
                    "{name} depends on {target}, an edge that layers.toml does not allow"
                ));
            }
            if layer.pure && layers.get(target).is_some_and(|target| !target.pure) {
                findings.push(format!(
                    "{name} is pure and cannot depend on {target}, which is not"
                ));
            }
        }
    }
    findings
}

/// Clippy's lists of disallowed items must not be disabled in pure crates, nor replaced by another
/// list.
fn purity(package: &Package, adapters: &BTreeSet<String>) -> Result<Vec<String>> {
    let name = short(&package.name);
    let mut findings = Vec::new();
    for own in ["clippy.toml", ".clippy.toml"] {
        if package.folder.join(own).exists() {
            findings.push(format!(
                "{name} has a {own}, which replaces the workspace's list of forbidden things"
            ));
        }
    }
    for adapter in adapters
        .iter()
        .filter(|adapter| !package.folder.join(adapter).exists())
    {
        findings.push(format!(
            "layers.toml excepts {adapter} of {name}, which does not exist"
        ));
    }
    for file in sources(&package.folder.join("src"))? {
        if adapters
            .iter()
            .any(|adapter| package.folder.join(adapter) == file)
        {
            continue;
        }
        let text =
            fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
        for (index, line) in text.lines().enumerate() {
            if switches_off(line) {
                findings.push(format!(
                    "{}:{}: a pure crate switches off a forbidden list",
                    file.display(),
                    index + 1
                ));
            }
        }
    }
    Ok(findings)
}

fn switches_off(line: &str) -> bool {
    let code = line.trim_start();
    !code.starts_with("//")
        && (code.contains("allow(") || code.contains("expect("))
        && code.contains("clippy::disallowed_")
}

fn sources(folder: &Path) -> Result<Vec<PathBuf>> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in
            fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))?
        {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dependency;

    const LAYERS: &str = "
        [crate.types]\npure = true\nedges = []\noutside = ['bytes']
        [crate.osd]\npure = true\nedges = ['types', 'node']\noutside = []
        [crate.node]\npure = false\nedges = ['types', 'osd']\noutside = ['tokio']";

    fn package(name: &str, edges: &[(&str, bool)]) -> Package {
        let dependencies = edges
            .iter()
            .map(|(name, dev)| Dependency {
                name: (*name).to_owned(),
                dev: *dev,
            })
            .collect();
        Package {
            name: name.to_owned(),
            version: String::new(),
            license: String::new(),
            dependencies,
            features: Vec::new(),
            binaries: Vec::new(),
            folder: PathBuf::new(),
        }
    }

    fn findings(packages: &[Package]) -> Vec<String> {
        edges(&parse(LAYERS).expect("a legal file"), packages)
    }

    #[test]
    fn what_is_allowed_passes_and_tests_may_depend_on_more() {
        let packages = [
            package("nacre-types", &[("bytes", false), ("proptest", true)]),
            package("nacre-osd", &[("nacre-types", false)]),
            package("nacre-node", &[("nacre-osd", false), ("tokio", false)]),
        ];
        assert_eq!(findings(&packages), Vec::<String>::new());
    }

    #[test]
    fn an_edge_up_an_outside_crate_and_an_unlisted_crate_are_found() {
        let up = [
            package("nacre-types", &[("nacre-osd", false)]),
            package("nacre-osd", &[]),
        ];
        assert!(findings(&up)[0].contains("types depends on osd"));
        let outside = [package("nacre-types", &[("tokio", false)])];
        assert!(findings(&outside)[0].contains("outside crate tokio"));
        let unlisted = [package("nacre-new", &[])];
        assert!(findings(&unlisted)[0].contains("does not list the crate new"));
    }

    #[test]
    fn a_pure_crate_cannot_lean_on_one_that_is_not_even_if_listed() {
        let packages = [
            package("nacre-osd", &[("nacre-node", false)]),
            package("nacre-node", &[]),
        ];
        assert!(findings(&packages)[0].contains("osd is pure"));
    }

    #[test]
    fn opting_out_is_recognised() {
        assert!(switches_off("#![allow(clippy::disallowed_methods)]"));
        assert!(switches_off(
            "    #[expect(clippy::disallowed_types, reason = \"…\")]"
        ));
        assert!(!switches_off(
            "// hosts write #![allow(clippy::disallowed_methods)]"
        ));
        assert!(!switches_off("#[allow(clippy::too_many_lines)]"));
    }
}
