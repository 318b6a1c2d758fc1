//! Gathers requests into proposals (MAL-17) such that no request's effect invalidates another's
//! precondition.
//!
//! ```text
//!  arrival ─▶ queue ──(propose interval, nothing in flight)──▶ batch ─▶ one log entry ─▶ one epoch
//! ```
//! One proposal is in flight at a time, so preconditions are checked on the committed map, which is
//! the latest proposed one. Within a batch, a request is checked only if nothing it reads was
//! written by an earlier one of the same batch; otherwise it waits for the next. Locations in the
//! hierarchy are the exception: they are gathered, so that many OSDs can enter in one epoch, and
//! put into its text once, when the batch is closed. The proposal contains the text's changes, not
//! the text.

use nacre_types::{Entity, MonId, Name, OsdId, PgId, PoolId};
use nacre_wire::map::{Change, patch};
use std::collections::BTreeSet;

use crate::hierarchy::{self, Place};

/// A part of the map, for conflicts within a batch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// A monitor.
    Mon(MonId),
    /// An OSD.
    Osd(OsdId),
    /// A store's identity: no two OSDs may have the same one.
    Store(u128),
    /// A pool with all records of its PGs.
    Pool(PoolId),
    /// A PG.
    Pg(PgId),
    /// An entity's fences.
    Fence(Entity),
    /// An option.
    Config(Name),
    /// The flags.
    Flags,
    /// The required features.
    Features,
    /// Programs.
    Programs,
    /// Clients' capabilities.
    Clients,
}

/// Collects the parts that a change writes.
fn written(change: &Change, parts: &mut BTreeSet<Part>) {
    match change {
        Change::MonSet { mon, .. } | Change::MonRemove { mon } => {
            parts.insert(Part::Mon(*mon));
        }
        Change::OsdNew { osd, store } | Change::OsdUp { osd, store, .. } => {
            parts.insert(Part::Store(*store));
            parts.insert(Part::Osd(*osd));
        }
        Change::OsdDown { osd, .. } | Change::OsdWeight { osd, .. } | Change::OsdRemove { osd } => {
            parts.insert(Part::Osd(*osd));
        }
        Change::PoolSet { pool, .. }
        | Change::PoolRemove { pool }
        | Change::SnapCreate { pool, .. }
        | Change::SnapRemove { pool, .. } => {
            parts.insert(Part::Pool(*pool));
        }
        Change::Crush { .. } | Change::CrushPatch { .. } => {}
        Change::Upmap { pg, .. }
        | Change::PgActivate { pg, .. }
        | Change::PgTemporary { pg, .. } => {
            parts.insert(Part::Pg(*pg));
        }
        Change::Fence { entity, .. } | Change::FenceLift { entity, .. } => {
            parts.insert(Part::Fence(*entity));
        }
        Change::Config { key, .. } => {
            parts.insert(Part::Config(key.clone()));
        }
        Change::Flags { .. } => {
            parts.insert(Part::Flags);
        }
        Change::RequireFeatures { .. } => {
            parts.insert(Part::Features);
        }
        Change::ProgramInstall { .. }
        | Change::ProgramActivate { .. }
        | Change::ProgramRemove { .. } => {
            parts.insert(Part::Programs);
        }
        Change::ClientSet { .. } | Change::ClientRemove { .. } => {
            parts.insert(Part::Clients);
        }
    }
}

/// The parts that a request reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reads {
    /// All parts.
    All,
    /// These.
    Parts(Vec<Part>),
}

/// A proposal being assembled.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    changes: Vec<Change>,
    crush: Option<String>,
    places: Vec<Place>,
    written: BTreeSet<Part>,
}

impl Batch {
    /// Whether a request that reads this can be checked on the committed map.
    #[must_use]
    pub fn admits(&self, reads: &Reads) -> bool {
        match reads {
            Reads::All => self.changes.is_empty() && self.crush.is_none() && self.places.is_empty(),
            Reads::Parts(parts) => parts.iter().all(|part| !self.written.contains(part)),
        }
    }
    /// Adds an OSD's location in the hierarchy.
    pub fn put(&mut self, place: Place) {
        self.places.push(place);
    }
    /// Adds a request's changes.
    pub fn add(&mut self, changes: Vec<Change>) {
        for change in changes {
            written(&change, &mut self.written);
            match change {
                Change::Crush { text } => self.crush = Some(text),
                change => self.changes.push(change),
            }
        }
    }
    /// Number of changes so far.
    #[must_use]
    pub fn changes(&self) -> usize {
        self.changes.len() + usize::from(self.crush.is_some()) + self.places.len()
    }
    /// The changes of the proposal, from the committed hierarchy's text. The hierarchy comes first;
    /// the order does not matter, as placement is derived after all of them.
    #[must_use]
    pub fn into_changes(self, committed: &str) -> Vec<Change> {
        let text = match (self.crush, self.places.is_empty()) {
            (crush, true) => crush,
            (crush, false) => Some(hierarchy::put_all(
                crush.as_deref().unwrap_or(committed),
                &self.places,
            )),
        };
        let crush = text.filter(|text| text != committed).map(|text| {
            let hunks = patch::diff(committed, &text);
            let size: usize = hunks.iter().map(|hunk| hunk.lines.len() + 32).sum();
            if size < text.len() {
                Change::CrushPatch { hunks }
            } else {
                Change::Crush { text }
            }
        });
        crush.into_iter().chain(self.changes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Failed when `admits` always returned true.
    #[test]
    fn a_request_waits_when_what_it_reads_was_written_in_the_batch() {
        let mut batch = Batch::default();
        assert!(batch.admits(&Reads::All));
        batch.add(vec![
            Change::OsdRemove { osd: OsdId(3) },
            Change::Crush { text: "t".into() },
        ]);
        assert!(!batch.admits(&Reads::All));
        assert!(!batch.admits(&Reads::Parts(vec![Part::Osd(OsdId(3))])));
        batch.add(vec![Change::OsdNew {
            osd: OsdId(5),
            store: 77,
        }]);
        assert!(!batch.admits(&Reads::Parts(vec![Part::Osd(OsdId(4)), Part::Store(77)])));
        assert!(batch.admits(&Reads::Parts(vec![Part::Osd(OsdId(4))])));
        assert_eq!(batch.changes(), 3);
        assert_eq!(
            batch.into_changes("committed")[0],
            Change::Crush { text: "t".into() }
        );
    }
}
