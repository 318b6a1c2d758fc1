//! The contents of the workspace, according to `cargo metadata`.

use anyhow::{Context, Result};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

/// The workspace with everything it depends on.
pub struct Workspace {
    /// The directory of its manifest.
    pub root: PathBuf,
    /// Cargo's target directory.
    pub target: PathBuf,
    /// Its own crates, by name.
    pub members: Vec<Package>,
    /// Third-party crates in `Cargo.lock`.
    pub outside: Vec<Package>,
}

/// One crate.
pub struct Package {
    /// Name in its manifest.
    pub name: String,
    /// Version in its manifest.
    pub version: String,
    /// An SPDX expression; empty when its manifest has none.
    pub license: String,
    /// What it depends on.
    pub dependencies: Vec<Dependency>,
    /// Cargo features.
    pub features: Vec<String>,
    /// Names of its binaries.
    pub binaries: Vec<String>,
    /// Its directory.
    pub folder: PathBuf,
}

/// A dependency on another crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// The crate's name, even if it is renamed in the code.
    pub name: String,
    /// Only for tests, examples and benchmarks.
    pub dev: bool,
}

impl Workspace {
    /// Runs cargo.
    ///
    /// # Errors
    /// When cargo does not run, or `Cargo.lock` does not match the manifests.
    pub fn load() -> Result<Self> {
        let output = Command::new(env!("CARGO"))
            .args(["metadata", "--format-version", "1", "--locked"])
            .output();
        let output = output.context("cargo does not start")?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr)
                .trim()
                .replace('\n', " ");
            anyhow::bail!("cargo metadata: {why}");
        }
        Self::parse(&serde_json::from_slice(&output.stdout).context("cargo metadata is no JSON")?)
    }

    /// Parses cargo's output.
    fn parse(metadata: &Value) -> Result<Self> {
        let folder = |name: &str| {
            metadata[name]
                .as_str()
                .map(PathBuf::from)
                .with_context(|| format!("no {name}"))
        };
        let members = metadata["workspace_members"]
            .as_array()
            .context("no workspace_members")?;
        let (mut ours, mut outside) = (Vec::new(), Vec::new());
        for package in metadata["packages"].as_array().context("no packages")? {
            let list = if members.contains(&package["id"]) {
                &mut ours
            } else {
                &mut outside
            };
            list.push(Package::parse(package)?);
        }
        ours.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Self {
            root: folder("workspace_root")?,
            target: folder("target_directory")?,
            members: ours,
            outside,
        })
    }

    /// The member with this name.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<&Package> {
        self.members.iter().find(|package| package.name == name)
    }
    /// Whether there is a member with this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.member(name).is_some()
    }
    /// The path of the release binary, once built.
    #[must_use]
    pub fn binary(&self) -> PathBuf {
        self.target.join("release/nacre")
    }
}

impl Package {
    fn parse(package: &Value) -> Result<Self> {
        let text = |name: &str| package[name].as_str().unwrap_or_default().to_owned();
        let list = |name: &str| {
            package[name]
                .as_array()
                .map(Vec::as_slice)
                .unwrap_or_default()
        };
        let dependencies = list("dependencies").iter().map(|edge| Dependency {
            name: edge["name"].as_str().unwrap_or_default().to_owned(),
            dev: edge["kind"] == "dev",
        });
        let is_binary = |target: &&Value| {
            target["kind"]
                .as_array()
                .is_some_and(|kinds| kinds.contains(&"bin".into()))
        };
        let manifest = PathBuf::from(text("manifest_path"));
        Ok(Self {
            name: text("name"),
            version: text("version"),
            license: text("license"),
            dependencies: dependencies.collect(),
            features: package["features"]
                .as_object()
                .map(|all| all.keys().cloned().collect())
                .unwrap_or_default(),
            binaries: list("targets")
                .iter()
                .filter(is_binary)
                .filter_map(|target| target["name"].as_str().map(str::to_owned))
                .collect(),
            folder: manifest
                .parent()
                .context("a manifest lies in a folder")?
                .to_owned(),
        })
    }
}
