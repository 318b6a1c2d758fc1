//! A planted bug of messages of an earlier interval (with `messages.rs`).

use super::{Message, OsdId, Payload, Pg, ReplicaUpdate, Role, Shared, Version};
use crate::mutants::{Mutant, mutant};
use nacre_wire::msg::replication::{Logged, ReplicateAcks};

pub(super) fn on_replicate(
    pg: &mut Pg,
    from: &OsdId,
    message: &ReplicaUpdate,
    _: &Payload,
    sh: &mut Shared,
) -> Option<()> {
    let version = message.entry.version();
    if !mutant(Mutant::AckIntervalUnchecked)
        || pg.is_ordered_by(*from, message.interval)
        || logged(pg).number < version.number
    {
        return None;
    }
    let logged = Logged {
        pg: message.pg,
        interval: message.interval,
        version,
    };
    let acks = ReplicateAcks {
        logged: vec![logged],
        nearly_full: false,
    };
    sh.send(*from, Message::ReplicateAcks(acks));
    Some(())
}

/// The version up to which its log is durable.
const fn logged(pg: &Pg) -> Version {
    match &pg.role {
        Role::Member(member) => member.logged,
        Role::Primary(primary) => primary.logged,
        Role::Stray(_) => Version::NONE,
    }
}
