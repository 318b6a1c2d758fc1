//! Logs on their way: the authority's to the primary, the primary's to those that adopt it.

use super::Interval;
use super::local::Local;
use crate::shared::Shared;
use nacre_types::{OsdId, Version};
use nacre_wire::Message;
use nacre_wire::msg::replication::{Adopt, LogQuery, LogReply};

/// A primary wants our log.
pub(super) fn send_log(
    to: OsdId,
    message: &LogQuery,
    local: &Local,
    at: &Interval,
    sh: &mut Shared,
) {
    let log = &local.log;
    let from_version = message.common.max(log.tail());
    let reply = LogReply {
        pg: at.pg,
        interval: at.since,
        from: from_version,
        tail: log.tail(),
        head: log.head(),
        entries: log.after(from_version).cloned().collect(),
        // Beside a log that may begin anywhere up to there.
        dedup: local.dedup.beyond(from_version),
        totals: local.base_totals(),
    };
    sh.send(to, Message::LogReply(reply));
}

/// Sends our log after a position that both have; without one, the receiver starts over.
pub(super) fn send_adopt(
    to: OsdId,
    shared: Option<Version>,
    local: &Local,
    at: &Interval,
    sh: &mut Shared,
) {
    let log = &local.log;
    let restart = shared.is_none();
    let from = shared.unwrap_or(log.tail());
    let message = Adopt {
        pg: at.pg,
        interval: at.since,
        from,
        tail: log.tail(),
        head: log.head(),
        entries: log.after(from).cloned().collect(),
        // Beside a log that may begin anywhere up to there.
        dedup: local.dedup.beyond(from),
        restart,
        committed: Version::NONE,
        totals: local.base_totals(),
    };
    sh.send(to, Message::Adopt(message));
}
