//! Sending logs: the authoritative log to the primary, the primary's log to members that adopt it.

use super::Interval;
use super::local::Local;
use crate::shared::Shared;
use nacre_types::{OsdId, Version};
use nacre_wire::msg::replication::{Adopt, LogQuery, LogReply};
use nacre_wire::{Message, RecordView};

/// Sends our log to a primary that requests it.
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
        entries: log.after(from_version).map(RecordView::to_record).collect(),
        // The receiver's log may begin anywhere up to there.
        dedup: local.dedup.beyond(from_version),
        totals: local.base_totals(),
    };
    sh.send(to, Message::LogReply(reply));
}

/// Sends our log after a position that both have; without a position, the receiver starts over.
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
        entries: log.after(from).map(RecordView::to_record).collect(),
        // The receiver's log may begin anywhere up to there.
        dedup: local.dedup.beyond(from),
        restart,
        committed: Version::NONE,
        totals: local.base_totals(),
    };
    sh.send(to, Message::Adopt(message));
}
