//! Connections to monitors. An OSD, client or operator has one connection to any of them; when it
//! breaks, the next one is tried, like in `nacre_node`.
//!
//! ```text
//!  none ──seek: the next monitor, if it is up and reachable──▶ up ──it dies, or a cut lasts──▶ none
//! ```

use nacre_types::{Entity, MonId};
use std::collections::BTreeMap;

/// One connection.
#[derive(Clone, Copy, Debug, Default)]
struct Session {
    /// The monitor.
    mon: Option<MonId>,
    /// Distinguishes successive connections.
    number: u64,
    /// The monitor tried last.
    last: Option<MonId>,
}

/// See the module head.
#[derive(Debug, Default)]
pub struct Sessions {
    all: BTreeMap<Entity, Session>,
}

impl Sessions {
    /// The monitor that an entity is connected to.
    #[must_use]
    pub fn of(&self, who: Entity) -> Option<MonId> {
        self.all.get(&who)?.mon
    }
    /// The connection's number, so that no later one is broken by mistake.
    #[must_use]
    pub fn number(&self, who: Entity) -> u64 {
        self.all.get(&who).map_or(0, |session| session.number)
    }
    /// The monitor to try next.
    pub fn next(&mut self, who: Entity, mons: u32) -> MonId {
        let session = self.all.entry(who).or_default();
        // Entities begin with different monitors.
        let first = match who {
            Entity::Mon(id) => id.0,
            Entity::Osd(id) => id.0,
            Entity::Client(id) => id.0 as u32,
        };
        let next = session.last.map_or(first, |last| last.0 + 1) % mons;
        session.last = Some(MonId(next));
        MonId(next)
    }
    /// Opens a connection.
    pub fn open(&mut self, who: Entity, mon: MonId) {
        let session = self.all.entry(who).or_default();
        session.mon = Some(mon);
        session.number += 1;
    }
    /// Closes it. Returns the monitor.
    pub fn close(&mut self, who: Entity) -> Option<MonId> {
        self.all.get_mut(&who)?.mon.take()
    }
    /// All entities connected to this monitor.
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
