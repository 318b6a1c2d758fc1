//! Who asked what lately: a request that comes again is answered, not repeated.
//!
//! ```text
//!   forgotten       low                       low + window
//!  ──────────────────┼─────────────────────────────┼──────────▶ sequence
//!    refused          remembered or carried out      refused
//! ```
//! A client that sends nothing for long may be forgotten when there are many. Its resends are then refused as *superseded*: they may have been
//! carried out. A client that is merely new is told from it by the revision it knew when it first asked.

use super::record::{MetaSession, MetaWho};
use nacre_types::Entity;
use nacre_wire::msg::meta::{META_WINDOW, MetaError, MetaResult};
use std::collections::BTreeMap;

/// Clients remembered.
pub const SESSIONS_MAX: usize = 4_096;

/// What is known of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// It is to be carried out.
    New,
    /// It was carried out: its revision and result.
    Done(u64, MetaResult),
    /// It must not be carried out.
    Refused(MetaError),
}

/// See the module head.
#[derive(Clone, Debug, Default)]
pub struct Sessions {
    by_client: BTreeMap<Entity, MetaSession>,
    forgotten: Option<u64>,
}

impl Sessions {
    /// From an image.
    #[must_use]
    pub const fn of(by_client: BTreeMap<Entity, MetaSession>, forgotten: Option<u64>) -> Self {
        Self { by_client, forgotten }
    }
    /// For an image.
    #[must_use]
    pub fn to_image(&self) -> (BTreeMap<Entity, MetaSession>, Option<u64>) {
        (self.by_client.clone(), self.forgotten)
    }

    /// What is known of a request.
    #[must_use]
    pub fn look(&self, who: &MetaWho) -> Known {
        if who.sequence >= who.answered_below.saturating_add(META_WINDOW) || who.sequence < who.answered_below {
            let why = format!("request {} is outside its client's window of {META_WINDOW}", who.sequence);
            return Known::Refused(MetaError::Invalid { why });
        }
        match self.by_client.get(&who.client) {
            Some(session) if session.instance == who.instance => match session.results.get(&who.sequence) {
                Some((revision, result)) => Known::Done(*revision, result.clone()),
                None if who.sequence < session.low => Known::Refused(MetaError::Superseded {}),
                None => Known::New,
            },
            Some(session) if session.instance > who.instance => Known::Refused(MetaError::Superseded {}),
            _ if who.again && self.forgotten.is_some_and(|at| who.known <= at) => {
                Known::Refused(MetaError::Superseded {})
            }
            _ => Known::New,
        }
    }

    /// It was carried out.
    pub fn remember(&mut self, who: &MetaWho, entry: u64, revision: u64, result: MetaResult) {
        let fresh =
            || MetaSession { instance: who.instance, low: 0, revision, touched: entry, results: BTreeMap::new() };
        let session = self.by_client.entry(who.client).or_insert_with(fresh);
        if session.instance != who.instance {
            *session = fresh();
        }
        session.low = session.low.max(who.answered_below);
        session.results = session.results.split_off(&session.low);
        session.results.insert(who.sequence, (revision, result));
        (session.touched, session.revision) = (entry, revision);
        if self.by_client.len() > SESSIONS_MAX {
            let oldest = self.by_client.iter().min_by_key(|(_, session)| session.touched);
            let oldest = *oldest.expect("there are many").0;
            let gone = self.by_client.remove(&oldest).expect("just found");
            self.forgotten = self.forgotten.max(Some(gone.revision));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::{ClientId, Instance};

    fn who(sequence: u64, answered_below: u64) -> MetaWho {
        MetaWho {
            client: Entity::Client(ClientId(7)),
            instance: Instance(1),
            sequence,
            answered_below,
            known: 0,
            again: true,
            name: "seven".into(),
        }
    }

    fn result() -> MetaResult {
        MetaResult::Leases { leases: Vec::new() }
    }

    /// A copy that was on its way through a monitor that was cut off arrives when its answer is forgotten already, at every place of the window.
    #[test]
    fn what_is_forgotten_is_refused_up_to_the_very_mark() {
        let mut sessions = Sessions::default();
        for sequence in 1..=3 {
            sessions.remember(&who(sequence, sequence), sequence, sequence, result());
        }
        // The third said that the first two are answered.
        for (sequence, expected) in [
            (0, Known::Refused(MetaError::Superseded {})),
            (1, Known::Refused(MetaError::Superseded {})),
            (2, Known::Refused(MetaError::Superseded {})),
            (3, Known::Done(3, result())),
            (4, Known::New),
        ] {
            assert_eq!(sessions.look(&who(sequence, 0)), expected, "request {sequence}");
        }
        for sequence in [META_WINDOW, META_WINDOW + 1] {
            assert!(matches!(sessions.look(&who(sequence, 0)), Known::Refused(MetaError::Invalid { .. })));
        }
        assert_eq!(sessions.look(&who(META_WINDOW - 1, 0)), Known::New);
    }
}
