//! Offline inspection of a store (`nacre store check`): `nacre_store::check`, in sentences.

use crate::device::Blocks;
use crate::directory::{opening, show_identity};
use crate::error::StartError;
use nacre_store::{BlockingDevice, CheckOptions, Finding, RootError};
use std::path::Path;
use std::sync::Arc;

/// Result of checking a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreReport {
    /// Its owner, if that could be read.
    pub owner: Option<String>,
    /// Objects walked.
    pub objects: u64,
    /// Blocks of objects' data.
    pub blocks: u64,
    /// Entries of objects' ordered maps.
    pub omap_entries: u64,
    /// Transactions that are only in the log so far.
    pub replayed: u64,
    /// Errors found, one sentence each. Empty: the store is intact.
    pub findings: Vec<String>,
}

fn sentence(finding: &Finding) -> String {
    match finding {
        Finding::Root(RootError::NotAStore) => "this is no Nacre store".to_owned(),
        Finding::Root(RootError::Damaged) => {
            "both copies of the superblock are damaged; nothing more was checked".to_owned()
        }
        Finding::Root(RootError::Shrunk { was, is }) => {
            format!("the device has shrunk from {was} to {is} bytes; nothing more was checked")
        }
        Finding::Root(RootError::UnknownVersion(version)) => {
            format!("its format is version {version}; use a newer release to check it")
        }
        Finding::Root(RootError::UnknownFeatures(features)) => {
            format!("it uses unknown formats (bits {:#x}); use a newer release to check it", features.incompat)
        }
        Finding::Root(RootError::Device(why)) => format!("the superblock cannot be read: {why}"),
        Finding::RootCopy => {
            "one copy of the superblock is damaged or behind, the other serves; the next checkpoint repairs it"
                .to_owned()
        }
        Finding::Open(why) => format!("it does not open: {why}; nothing more was checked"),
        Finding::IndexBlock(block) => {
            format!("block {block} of the index fails its checksum; not everything was checked")
        }
        Finding::IndexTree => "the tree of the index is inconsistent".to_owned(),
        Finding::Record(key) => format!("the index record `{}` is damaged or contradicts others", key.escape_ascii()),
        Finding::Unmarked(unit) => format!("unit {unit} is in use but marked as free: it may be overwritten"),
        Finding::Leaked(unit) => format!("unit {unit} is marked as in use, but not referenced: lost space"),
        Finding::References { unit, found, recorded } => {
            format!("unit {unit} has {found} users, but its record says {recorded}")
        }
        Finding::Count(collection) => format!("collection {} does not hold as many objects as recorded", collection.0),
        Finding::Data { collection, key, offset } => {
            format!("object `{}` of collection {} is damaged at byte {offset}", key.escape_ascii(), collection.0)
        }
    }
}

/// Checks a store without writing to it; with `data`, also reads all data and verifies its
/// checksums.
///
/// # Errors
/// [`StartError::StoreInUse`] while a daemon has it open; others when it cannot be read at all.
/// Damage is in the report.
pub fn inspect(path: &Path, data: bool) -> Result<StoreReport, StartError> {
    let blocks: Arc<dyn BlockingDevice> =
        Arc::new(Blocks::open_to_read(path).map_err(opening(path))?);
    let report =
        nacre_store::check(&blocks, CheckOptions { data }).map_err(|why| StartError::Store {
            path: path.to_owned(),
            why: format!("its device fails: {why}"),
        })?;
    Ok(StoreReport {
        owner: report.identity.as_ref().map(show_identity),
        objects: report.objects,
        blocks: report.blocks,
        omap_entries: report.omap_entries,
        replayed: report.replayed,
        findings: report.findings.iter().map(sentence).collect(),
    })
}
