//! Admission of clients' operations: which ones are accepted, and what happens to the others.
//!
//! ```text
//!  what a daemon holds for clients:  │ operations in progress               │ one PG that does not serve: an eighth    │
//!                                    │ one object that is held up: three times what is left, or a sixteenth            │
//!  request ─▶ in flight? merged ─▶ undated? behind another? no memory? ─▶ resent, in order (`turned_away.rs`) ─▶ queue
//!                                                          memory is full ─▶ operations on held-up objects are sent back
//! ```
//! A daemon whose memory for operations is full accepts no operations of any client. Operations in
//! progress free memory by themselves; operations that all wait for one slow thing would block all
//! other clients (F17; seed 3026), so they have a limited share, and their clients keep the rest.
//!
//! Invariant: of one client's operations on one object none is accepted while an earlier one was
//! sent back.

use super::dedup::DedupTable;
use super::object::Objects;
use super::pending::Pending;
use super::watch::Watching;
use crate::shared::Shared;
use crate::turned_away::{Holds, TurnedAway, Why};
use nacre_object::snaps;
use nacre_types::Entity;
use nacre_wire::Message;
use nacre_wire::msg::client::{Dated, OpBlocked, OpFailure, OpRequest, SubOp};
use std::time::Duration;

#[cfg(feature = "mutants")]
#[path = "../mutants/shares.rs"]
mod planted;

/// A PG that does not serve holds at most this fraction of the operations and bytes that the daemon
/// holds for clients.
const BLOCKED_SHARE: usize = 8;
/// An object is held up if none of its waiting operations was begun for this time.
const HELD_UP: Duration = Duration::from_secs(1);
/// The operations waiting for it may take this multiple of the remaining memory: with a few such
/// objects, some memory stays for the others.
const OBJECT_TIMES: usize = 3;
/// They may always take this fraction of the total: many such objects together may fill it.
const OBJECT_SHARE: usize = 16;

/// Operations and their bytes.
type Load = (usize, u64);

/// Whether there is no memory for `bytes` more. One operation is always accepted, regardless of its
/// size.
const fn exceeds(held: Load, bytes: u64, most: Load) -> bool {
    held.0 > 0 && (held.0 >= most.0 || held.1 + bytes > most.1)
}

/// The limit of operations that wait for one held-up object.
fn object_share(sh: &Shared) -> Load {
    let (limits, load) = (&sh.config.limits, sh.client_load);
    let (ops, bytes) = (
        limits.client_ops.saturating_sub(load.0),
        limits.client_bytes.saturating_sub(load.1),
    );
    let least = (
        limits.client_ops / OBJECT_SHARE,
        limits.client_bytes / OBJECT_SHARE as u64,
    );
    (
        (ops * OBJECT_TIMES).max(least.0),
        (bytes * OBJECT_TIMES as u64).max(least.1),
    )
}

/// Admission of operations: of the PG it accesses the queues, the clients served, and the clients
/// turned away.
#[derive(Debug)]
pub(super) struct Admit<'a> {
    pub(super) objects: &'a mut Objects,
    pub(super) watching: &'a mut Watching,
    pub(super) turned_away: &'a mut TurnedAway,
    /// Read-only.
    pub(super) dedup: &'a DedupTable,
}

impl Admit<'_> {
    /// Whether the operation is already in flight: a client resends every two seconds, and each
    /// duplicate would take memory until no operations are accepted any more (F17), or be evaluated
    /// in parallel with the first. The operation in flight keeps its position and is answered as
    /// the newest attempt ([`super::object::Objects::in_hand_mut`]).
    pub(super) fn is_in_hand(
        &mut self,
        from: Entity,
        request: &OpRequest,
        sh: &mut Shared,
    ) -> bool {
        let (id, now) = (request.request, sh.now);
        if request.attempt <= 1 {
            return false;
        }
        let Some((op, under_way)) = self.objects.in_hand_mut(request) else {
            return false;
        };
        op.comes_again(from, request.attempt);
        sh.counters.borders.came_while_under_way += u64::from(under_way);
        // Its client is alive, and operations that it sent after this one need not wait for it.
        self.watching
            .hear(&snaps::live(&request.object), id.client, id.instance, now);
        self.turned_away.take(&id);
        true
    }

    /// Whether the waiting operations leave no memory for this one.
    fn finds_no_room(&self, request: &OpRequest, bytes: u64, serving: bool, sh: &Shared) -> bool {
        let limits = &sh.config.limits;
        if !serving {
            let held = sh
                .blocked_load
                .get(&request.pg)
                .copied()
                .unwrap_or_default();
            let most = (
                limits.client_ops / BLOCKED_SHARE,
                limits.client_bytes / BLOCKED_SHARE as u64,
            );
            return exceeds(held, bytes, most);
        }
        // A deletion may free space: it is never refused here.
        if matches!(request.ops[..], [SubOp::Delete {}]) {
            return false;
        }
        let live = snaps::live(&request.object);
        let waits = self.objects.held_up(&live, sh.now, HELD_UP);
        waits.is_some_and(|waits| exceeds(waits, bytes, object_share(sh)))
    }

    /// Whether the client may have been forgotten, and does not state by our clock when it first
    /// sent the operation.
    #[nacre_types::planted]
    fn is_undated(&self, request: &OpRequest, process: u64) -> bool {
        request.dated.process != process && self.dedup.is_stranger(&request.request)
    }

    /// The reason why the operation must be resent, if it must. There may be no memory for it. Or
    /// the client may have been forgotten, and does not state by our clock when it first sent the
    /// operation (`dedup.rs`). Operations that a client sends after a refused one are refused too,
    /// until that one is accepted: all are resent, in order.
    pub(super) fn comes_again(
        &mut self,
        from: Entity,
        request: &OpRequest,
        bytes: u64,
        (serving, writes): (bool, bool),
        sh: &mut Shared,
    ) -> Option<OpFailure> {
        let now = Dated {
            process: sh.config.process,
            reading: sh.now.0,
        };
        // Daemons only read, ask again under another number, and guarantee no order. Operations
        // waiting for an object may wait for this very copy of it.
        if !matches!(from, Entity::Client(_)) {
            return (!serving && self.finds_no_room(request, bytes, serving, sh))
                .then_some(OpFailure::WrongTarget {});
        }
        let undated = writes && self.is_undated(request, now.process);
        let behind = self.turned_away.must_wait(sh.now, request);
        let full = self.finds_no_room(request, bytes, serving, sh);
        let (why, holds) = match behind {
            _ if full && !serving => (Why::NoRoom, Holds::Group),
            _ if full => (
                Why::NoRoom,
                behind.unwrap_or_else(|| Holds::object(&request.object)),
            ),
            _ if undated => (Why::Undated, behind.unwrap_or(Holds::Group)),
            Some(holds) => (Why::Behind, holds),
            None => {
                self.turned_away.take(&request.request);
                return None;
            }
        };
        let borders = &mut sh.counters.borders;
        borders.undated += u64::from(why == Why::Undated);
        borders.share_refused += u64::from(full && !serving);
        borders.object_refused += u64::from(full && serving);
        if serving {
            // A lock's lease must not expire because of lack of memory.
            let id = request.request;
            self.watching.hear(
                &snaps::live(&request.object),
                id.client,
                id.instance,
                sh.now,
            );
        }
        // A client that only has to date its operation does so at once, in order. Others wait until
        // there may be memory; but no client can date an operation without a reading of our clock.
        let at_once = self.turned_away.refuse(sh.now, request, why, holds);
        if at_once || why == Why::Undated {
            return Some(OpFailure::Undated { now });
        }
        tell_why(from, request, serving, sh);
        Some(OpFailure::WrongTarget {})
    }

    /// The daemon's memory for operations is full: operations that wait for held-up objects are
    /// sent back, beyond their share. The last ones first, so that no operation is behind one that
    /// was sent back.
    pub(super) fn make_room(&mut self, sh: &mut Shared) {
        for (object, mut waits) in self.objects.all_held_up(sh.now, HELD_UP) {
            while exceeds(waits, 0, object_share(sh))
                && let Some(op) = self.objects.pop_back(&object)
            {
                waits = (waits.0 - 1, waits.1 - op.bytes());
                self.send_back(op, sh);
            }
        }
    }

    fn send_back(&mut self, op: Box<Pending>, sh: &mut Shared) {
        op.release(sh);
        let request = &op.request;
        self.turned_away
            .refuse(sh.now, request, Why::NoRoom, Holds::object(&request.object));
        sh.counters.borders.object_sent_back += 1;
        tell_why(op.from, request, true, sh);
        sh.refuse(
            op.from,
            request.request,
            request.attempt,
            OpFailure::WrongTarget {},
        );
    }
}

/// Informs a client why it must resend.
fn tell_why(to: Entity, request: &OpRequest, serving: bool, sh: &mut Shared) {
    let what = if serving {
        "the object is held up"
    } else {
        "the placement group does not serve"
    };
    let reason = format!(
        "{what}, and much waits for it already ({}, {})",
        request.pg, request.object
    );
    sh.reply(
        to,
        Message::OpBlocked(OpBlocked {
            request: request.request,
            reason,
            since_ms: 0,
        }),
        None,
    );
}
