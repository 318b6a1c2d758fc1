//! The only place that knows how daemons and connections are made: everything else in this crate sees [`Session`] and [`Running`].
//!
//! The host crate (`nacre-node`) is not part of this tree yet. Until it is, these functions say so; what they are to do is in their
//! descriptions, and nothing else has to change.

use super::Session;
use anyhow::{Result, bail};
use std::path::Path;

const NOT_YET: &str =
    "this build has no daemons and no connections yet (the crate nacre-node is missing); crush, history and sim work";

/// What a new cluster is made of.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code, reason = "read by the host crate, once it is here")]
pub struct Shape {
    /// Monitors.
    pub mons: u32,
    /// OSDs.
    pub osds: u32,
    /// The first port; daemons take the following ones. None: only inside one process.
    pub base_port: Option<u16>,
}

/// Daemons that run in this process.
pub trait Running {
    /// Ends an OSD as a crash would: nothing is flushed, nobody is told.
    ///
    /// # Errors
    /// When there is none.
    fn kill_osd(&mut self, osd: u32) -> Result<()>;
    /// Starts an OSD again.
    ///
    /// # Errors
    /// When it does not start.
    fn start_osd(&mut self, osd: u32) -> Result<()>;
    /// Stops everything in order.
    ///
    /// # Errors
    /// When something could not be written.
    fn stop(self: Box<Self>) -> Result<()>;
}

/// Connects to the cluster of a folder or file.
///
/// # Errors
/// When its monitors do not answer.
pub fn connect(_place: &Path) -> Result<Box<dyn Session>> {
    bail!(NOT_YET)
}
/// Makes a cluster in an empty folder.
///
/// # Errors
/// When the folder holds something.
pub fn init(_dir: &Path, _shape: &Shape) -> Result<()> {
    bail!(NOT_YET)
}
/// Starts a cluster's daemons in this process.
///
/// # Errors
/// When one does not start.
pub fn start(_dir: &Path) -> Result<Box<dyn Running>> {
    bail!(NOT_YET)
}
/// Runs one monitor until it is told to end.
///
/// # Errors
/// When it does not start, or stops by itself.
pub fn run_mon(_config: &Path, _id: u32) -> Result<()> {
    bail!(NOT_YET)
}
/// Runs one OSD until it is told to end.
///
/// # Errors
/// When it does not start, or stops by itself.
pub fn run_osd(_config: &Path, _id: u32) -> Result<()> {
    bail!(NOT_YET)
}
/// Waits for Ctrl-C or the signal to end.
///
/// # Errors
/// When signals cannot be watched.
pub fn wait_for_signal() -> Result<()> {
    bail!(NOT_YET)
}
