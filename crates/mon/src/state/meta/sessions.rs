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
