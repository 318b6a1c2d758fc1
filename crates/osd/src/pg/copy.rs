//! Copying objects: the primary of the target reads the source from the source's primary, as a
//! client would, and makes the copy one update (CHECKLIST CEPH-09).
//!
//! ```text
//!  target's queue   CopyFrom: waits ──▶ ReadWhole ──▶ source's queue, at its front ──▶ OpReply ──▶ one update of the target
//! ```
//! One read returns all of the source, so all of it is of one version. The read goes to the front
//! of the source's queue: it waits only for updates that have their position in the log, and never
//! for waiting operations. So two objects can be copied into each other, and an object into itself.
//! The copy has the source's contents at some time between the copy's beginning and its end.

use super::pending::Pending;
use super::{Interval, Lead};
use crate::copies::{Asked, Copied};
use crate::key;
use crate::shared::Shared;
use nacre_types::{ClientId, PgId};
use nacre_wire::msg::client::{OpRequest, RequestId, SubOp};
use nacre_wire::{Message, Payload};

/// Requests the source for a copy operation at the front of a queue, unless that was done a short
/// while ago.
pub(super) fn ask_source(front: &Pending, at: &Interval, sh: &mut Shared) {
    let (pg, interval, now) = (at.pg, at.since, sh.now);
    let retry = sh.config.timing.retry_interval;
    let (target, request) = (&front.request.object, front.request.request);
    let Some(source) = front.request.ops.iter().find_map(SubOp::source).cloned() else {
        return;
    };
    let turn = sh.copies.turn((pg, interval), request, now, retry);
    let Some((sequence, attempt)) = turn else {
        return;
    };
    let Some(map) = &sh.map else { return };
    let Some(pool) = map.pools.get(&pg.pool) else {
        return;
    };
    let place = PgId {
        seed: key::seed(key::hash(&source), pool.pg_num),
        ..pg
    };
    let Some(to) = map.pgs.get(&place).and_then(|record| record.primary()) else {
        return;
    };
    let asked = Asked {
        pg,
        interval,
        target: target.clone(),
        request,
        at: now,
        attempt,
    };
    sh.copies.ask(sequence, asked);
    let question = OpRequest {
        request: RequestId {
            client: ClientId(u64::MAX - u64::from(sh.config.id.0)),
            instance: sh.instance,
            sequence,
        },
        pg: place,
        object: source,
        ops: vec![SubOp::ReadWhole {}],
        attempt,
        ..OpRequest::default()
    };
    let message = Message::OpRequest(question, Payload::new());
    if to == sh.config.id {
        sh.loopback.push_back(message);
    } else {
        sh.send(to, message);
    }
}

impl Lead<'_> {
    /// A source has arrived: its copy can continue.
    pub(crate) fn on_copied(&mut self, copied: Copied, sh: &mut Shared) {
        let Copied {
            target,
            request,
            source,
            ..
        } = copied;
        let primary = &mut *self.primary;
        let Some(op) = primary.objects.queued_mut(&target, &request) else {
            return;
        };
        op.source = Some(source);
        self.process_object(&target, sh);
    }
}
