//! Who is connected to which monitor. An OSD, client or operator has one connection to any of them;
//! when it breaks, the next one is tried, as `nacre_node` does it.
//!
//! ```text
//!  none ──seek: the next monitor, if it lives and is reached──▶ up ──it dies, or a cut lasts──▶ none
//! ```

use nacre_types::{Entity, MonId};
use std::collections::BTreeMap;

/// One connection.
#[derive(Clone, Copy, Debug, Default)]
struct Session {
    /// With whom.
    mon: Option<MonId>,
    /// Tells one connection from the next.
    number: u64,
    /// Who was tried last.
    last: Option<MonId>,
}

/// See the module head.
#[derive(Debug, Default)]
pub struct Sessions {
    all: BTreeMap<Entity, Session>,
}

impl Sessions {
    /// Whom an entity is connected to.
    #[must_use]
    pub fn of(&self, who: Entity) -> Option<MonId> {
        self.all.get(&who)?.mon
    }
    /// The connection's number, to break no later one.
    #[must_use]
    pub fn number(&self, who: Entity) -> u64 {
        self.all.get(&who).map_or(0, |session| session.number)
    }
    /// Whom to try next, of so many.
    pub fn next(&mut self, who: Entity, mons: u32) -> MonId {
        let session = self.all.entry(who).or_default();
        // Not everybody begins with the same one.
        let first = match who {
            Entity::Mon(id) => id.0,
            Entity::Osd(id) => id.0,
            Entity::Client(id) => id.0 as u32,
        };
        let next = session.last.map_or(first, |last| last.0 + 1) % mons;
        session.last = Some(MonId(next));
        MonId(next)
    }
    /// It is connected.
    pub fn open(&mut self, who: Entity, mon: MonId) {
        let session = self.all.entry(who).or_default();
        session.mon = Some(mon);
        session.number += 1;
    }
    /// It is not any more. Returns with whom it was.
    pub fn close(&mut self, who: Entity) -> Option<MonId> {
        self.all.get_mut(&who)?.mon.take()
    }
    /// Everybody who is connected to this monitor.
    #[must_use]
    pub fn with(&self, mon: MonId) -> Vec<Entity> {
        self.all
            .iter()
            .filter(|(_, session)| session.mon == Some(mon))
            .map(|(who, _)| *who)
            .collect()
    }
    /// All connections.
    #[must_use]
    pub fn all(&self) -> Vec<(Entity, MonId)> {
        self.all
            .iter()
            .filter_map(|(who, session)| Some((*who, session.mon?)))
            .collect()
    }
}
