//! Clusters: finding, starting and querying them.
//!
//! * [`host`]: the only module that creates daemons and connections;
//! * [`admin`]: commands that the monitors answer;
//! * [`members`]: adding and removing OSDs and monitors, with their stores and entries in
//!   `cluster.toml`;
//! * [`up`], [`processes`], [`background`], [`down`]: starting and stopping.

pub mod admin;
pub mod background;
pub mod down;
pub mod host;
pub mod members;
pub mod processes;
pub mod snap;
pub mod up;

use crate::objects::Objects;
use anyhow::{Context as _, Result, bail};
use nacre_client::WatchNews;
use nacre_command::Command;
use nacre_wire::map::programs::PROGRAM_POOL;
use nacre_wire::msg::meta::{MetaCall, MetaCompare, MetaOp, MetaPair, MetaResult, MetaSpan};
use serde_json::Value;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Default location of a cluster.
const DEFAULT: &str = "nacre-data";
/// The file that marks a cluster's directory.
const FILE: &str = "cluster.toml";

/// A cluster's control path, as used by the commands.
pub trait Commands {
    /// Sends a command to the monitors (`docs/formats/commands.md`).
    ///
    /// # Errors
    /// The monitors' refusal, or that they do not answer.
    fn command(&mut self, command: &Command) -> Result<Value>;
    /// The pool of programs' sources.
    fn program_pool(&self) -> &'static str {
        PROGRAM_POOL
    }
}

/// Access to service metadata, as used by the commands.
pub trait Metadata {
    /// Executes a request; returns the store's revision, and the result.
    ///
    /// # Errors
    /// It is refused, or its result is unknown.
    fn meta(&mut self, call: MetaCall) -> Result<(u64, MetaResult)>;
    /// All keys of a span, and the revision of the read.
    ///
    /// # Errors
    /// As [`Self::meta`].
    fn list(&mut self, span: MetaSpan) -> Result<(Vec<MetaPair>, u64)>;
    /// Reports changes from a revision on (0: from now on), until `each` returns that it is done.
    ///
    /// # Errors
    /// An error of `each`, or that the cluster cannot be watched.
    fn watch(
        &mut self,
        span: MetaSpan,
        from: u64,
        each: &mut dyn FnMut(WatchNews) -> Result<bool>,
    ) -> Result<()>;

    /// Ends leases of owners that have been silent for `time`, where clients have to do that.
    ///
    /// # Errors
    /// As [`Self::meta`].
    fn settle(&mut self, time: Duration) -> Result<()> {
        // Monitors do it by themselves.
        let _ = time;
        Ok(())
    }

    /// Applies operations if all conditions hold; returns whether it did.
    ///
    /// # Errors
    /// As [`Self::meta`].
    fn transact(&mut self, compares: Vec<MetaCompare>, then: Vec<MetaOp>) -> Result<bool> {
        let call = MetaCall::Transact {
            compares,
            then,
            otherwise: Vec::new(),
        };
        let (_, result) = self.meta(call)?;
        Ok(matches!(
            result,
            MetaResult::Transacted {
                succeeded: true,
                ..
            }
        ))
    }

    /// The current value of a key.
    ///
    /// # Errors
    /// As [`Self::meta`].
    fn get(&mut self, key: &str) -> Result<Option<MetaPair>> {
        Ok(self.list(MetaSpan::Key { key: key.into() })?.0.pop())
    }
    /// Sets a key; returns the revision of the change.
    ///
    /// # Errors
    /// As [`Self::meta`].
    fn put(&mut self, key: &str, value: Vec<u8>) -> Result<u64> {
        let put = MetaOp::Put {
            key: key.into(),
            value: value.into(),
            lease: 0,
        };
        Ok(self
            .meta(MetaCall::Transact {
                compares: vec![],
                then: vec![put],
                otherwise: vec![],
            })?
            .0)
    }
}

/// A connection: a separate client.
pub trait Session: Objects + Commands {
    /// The cluster's metadata, through the same client.
    ///
    /// # Errors
    /// When that is not possible.
    fn metadata(&mut self) -> Result<Box<dyn Metadata>>;
}

/// How long a command waits for another one that changes the cluster's file: longer than `mon rm`
/// waits for the monitor to leave.
const CHANGING_MAX: Duration = Duration::from_secs(45);
/// How long a command waits for a starting cluster.
const STARTING: Duration = Duration::from_secs(1);
/// Prefix of the path of a Ceph cluster's configuration.
const CEPH: &[u8] = b"ceph:";

/// A cluster, as named on the command line: its directory, or its file; or `ceph:` and the
/// configuration of a Ceph cluster.
pub struct Place {
    path: PathBuf,
    /// Configuration of a Ceph cluster.
    ceph: Option<PathBuf>,
    /// Name of the client.
    name: String,
}

impl Place {
    /// From `--cluster`, else `$NACRE_CLUSTER`, else `./nacre-data`.
    #[must_use]
    pub fn new(given: Option<PathBuf>) -> Self {
        let path = given.unwrap_or_else(|| PathBuf::from(DEFAULT));
        let ceph = path.as_os_str().as_bytes().strip_prefix(CEPH);
        let ceph = ceph.map(|conf| PathBuf::from(OsStr::from_bytes(conf)));
        Self {
            path,
            ceph,
            name: nacre_node::ADMIN.to_owned(),
        }
    }
    /// The configuration of the Ceph cluster, if it is one.
    #[must_use]
    pub fn ceph(&self) -> Option<&Path> {
        self.ceph.as_deref()
    }
    /// For a client of that name.
    #[must_use]
    pub fn named(self, name: String) -> Self {
        Self { name, ..self }
    }
    /// Name of the client, which determines its rights.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
    /// The path as given.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// The location for a process in another directory.
    ///
    /// # Errors
    /// There is no such file.
    pub fn absolute(&self) -> Result<PathBuf> {
        let path = self.ceph().unwrap_or(&self.path);
        let found = path
            .canonicalize()
            .with_context(|| format!("finding {}", path.display()))?;
        if self.ceph.is_none() {
            return Ok(found);
        }
        Ok(PathBuf::from(OsStr::from_bytes(
            &[CEPH, found.as_os_str().as_bytes()].concat(),
        )))
    }
    /// The directory that holds the daemons' files.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        if self.path.is_file() {
            self.path
                .parent()
                .map_or_else(PathBuf::new, Path::to_path_buf)
        } else {
            self.path.clone()
        }
    }
    /// The daemons' pid files.
    #[must_use]
    pub fn run_folder(&self) -> PathBuf {
        match &self.ceph {
            Some(conf) => conf
                .parent()
                .map_or_else(PathBuf::new, Path::to_path_buf)
                .join("run"),
            None => self.folder().join("run"),
        }
    }
    /// Whether the cluster exists.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.path.is_file() || self.path.join(FILE).is_file()
    }
    /// The content of its file.
    ///
    /// # Errors
    /// When there is no cluster, or the file is wrong.
    pub fn config(&self) -> Result<nacre_node::Config> {
        if let Some(conf) = &self.ceph {
            bail!(
                "{} is a Ceph cluster's, and this needs a cluster of Nacre's own daemons; `ceph` administers the other kind",
                conf.display()
            );
        }
        if !self.exists() {
            let at = self.path.display();
            bail!(
                "{at} holds no cluster; `nacre up --dir {at}` makes one, --cluster or $NACRE_CLUSTER names another"
            );
        }
        Ok(nacre_node::Config::load(&self.path)?)
    }
    /// The content of its file, unless no daemon runs.
    ///
    /// # Errors
    /// As [`Self::config`]; also when no daemon runs: waiting for an answer would be useless.
    pub fn config_of_running(&self) -> Result<nacre_node::Config> {
        let config = self.config()?;
        let begun = std::time::Instant::now();
        // It may be about to start.
        while nacre_node::locks::nothing_runs(&config) {
            if begun.elapsed() > STARTING {
                let dir = config.dir.display();
                bail!("nothing runs in {dir}; `nacre up --dir {dir}` starts it");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(config)
    }
    /// The content of its file, with an exclusive lock for a command that will change it.
    ///
    /// # Errors
    /// As [`Self::config`]; also when the file has another name than the one that would be written.
    pub fn config_to_change(&self) -> Result<(nacre_node::locks::Changing, nacre_node::Config)> {
        if self.path.is_file() && self.path.file_name().is_none_or(|name| name != FILE) {
            bail!(
                "{} would have to be changed, and only a file named {FILE} is: rename it",
                self.path.display()
            );
        }
        let dir = self.config()?.dir;
        // The previous holder may have changed what was read before the lock was acquired.
        let changing = nacre_node::locks::Changing::begin(&dir, CHANGING_MAX)?;
        Ok((changing, self.config()?))
    }
    /// Connects.
    ///
    /// # Errors
    /// When there is no cluster, or its file is wrong.
    pub fn connect(&self) -> Result<Box<dyn Session>> {
        if let Some(conf) = self.ceph() {
            return host::connect_ceph(conf, &self.name, false);
        }
        self.config_of_running()?;
        host::connect(&self.path, &self.name)
    }
    /// Connects for the objects of file systems.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub fn connect_for_files(&self) -> Result<Box<dyn Session>> {
        match self.ceph() {
            Some(conf) => host::connect_ceph(conf, &self.name, true),
            None => self.connect(),
        }
    }
    /// Connects for service metadata alone.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub fn metadata(&self) -> Result<Box<dyn Metadata>> {
        if let Some(conf) = self.ceph() {
            return host::metadata_on_ceph(conf, &self.name);
        }
        self.config_of_running()?;
        host::metadata(&self.path, &self.name)
    }
}
