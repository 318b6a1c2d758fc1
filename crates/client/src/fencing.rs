//! Fencing another client: requests that it sent and that were not executed yet never will be
//! (DESIGN §3, Fencing).
//!
//! ```text
//!  fence ─▶ open ──Command "fence add"──▶ monitors      resent over a new session and periodically; it is idempotent
//!     ◀─ done ◀── a map that has the fence ──           or an answer with the reason for refusing it
//! ```
//! What counts is the map, not the answer: with that map, each of our operations brings the fence
//! to the OSD that it reaches, before it is executed there. So after a successful fence, what the
//! other client held can be taken over.
//!
//! Invariant: each fence ends exactly once.

use nacre_types::{ClientId, Entity, Instance, Time};
use nacre_wire::ClusterMap;
use nacre_wire::msg::monitor::{Command, CommandReply};
use std::collections::BTreeMap;
use std::time::Duration;

/// Limit of open fences: each is a command for the monitors.
const OPEN_MAX: usize = 64;

#[derive(Debug)]
struct Open {
    client: ClientId,
    instance: Instance,
    sent: Time,
}

/// See the module head.
#[derive(Debug, Default)]
pub(crate) struct Fencing {
    open: BTreeMap<u64, Open>,
}

impl Fencing {
    pub(crate) fn has_room(&self) -> bool {
        self.open.len() < OPEN_MAX
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// The numbers of the open fences.
    pub(crate) fn open(&self) -> impl Iterator<Item = u64> {
        self.open.keys().copied()
    }

    /// Opens a fence under the caller's number; returns what to send.
    pub(crate) fn begin(
        &mut self,
        now: Time,
        id: u64,
        client: ClientId,
        instance: Instance,
    ) -> Command {
        let open = self.open.entry(id).or_insert(Open {
            client,
            instance,
            sent: now,
        });
        command(id, open)
    }

    /// What to resend: everything after a new session, otherwise what has waited this long.
    pub(crate) fn again(&mut self, now: Time, waited: Duration) -> Vec<Command> {
        let late = self
            .open
            .iter_mut()
            .filter(|(_, open)| now.since(open.sent) >= waited);
        late.map(|(id, open)| {
            open.sent = now;
            command(*id, open)
        })
        .collect()
    }

    /// Handles a monitor's answer; returns the fence that was refused, with the reason. A success
    /// appears in a map.
    pub(crate) fn on_reply(&mut self, reply: &CommandReply) -> Option<(u64, String)> {
        let why = reply.error.clone()?;
        self.open.remove(&reply.token).map(|_| (reply.token, why))
    }

    /// The fences that this map completes.
    pub(crate) fn on_map(&mut self, map: &ClusterMap) -> Vec<u64> {
        let done =
            |_: &u64, open: &mut Open| map.is_fenced(Entity::Client(open.client), open.instance);
        self.open.extract_if(.., done).map(|(id, _)| id).collect()
    }

    /// Abandons a fence; returns whether it was open.
    pub(crate) fn abandon(&mut self, id: u64) -> bool {
        self.open.remove(&id).is_some()
    }
}

fn command(id: u64, open: &Open) -> Command {
    let entity = Entity::Client(open.client);
    // Both are numbers: nothing needs escaping.
    let request = format!(
        r#"{{"command": "fence add", "entity": "{entity}", "instance": {}}}"#,
        open.instance.0
    );
    Command { token: id, request }
}
