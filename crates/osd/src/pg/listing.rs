//! Listings: the objects of a PG that exist for clients, in the PG's order.
//!
//! ```text
//!  store's listing and what is missing here ─▶ without clones ─▶ those whose name has clones may be whiteouts: read their state
//!                                                             ─▶ and list again with that ─▶ answer
//! ```
//! A listing is answered when every update that it may show, or whose removal it may hide, is
//! committed on the whole acting set.
//!
//! Clones precede the live object of their name. So a live object without a clone before it in the
//! page needs no check, except for the page's first.

use super::local::Local;
use super::object::{Listing, Objects};
use super::pending::Pending;
use super::update::Answer;
use super::{Interval, Lead};
use crate::key;
use crate::purpose::Purpose;
use crate::shared::Shared;
use bytes::Bytes;
use nacre_object::snaps;
use nacre_store::{Read, ReadError, ReadReply};
use nacre_types::{ObjectId, Version};
use nacre_wire::msg::client::{OpFailure, SubOp, SubReply};
use std::collections::BTreeSet;

/// The next step of a listing.
#[derive(Debug)]
pub(super) enum Next {
    /// Nothing now: the store is listing, or the listing is retried later.
    Waits,
    /// Retry.
    Again,
    /// These objects are missing here and must be checked; the listing is retried from time to
    /// time.
    Recover(Vec<ObjectId>),
    /// It cannot be answered.
    Fail(Box<Pending>),
    /// It is answered when the ordered updates are committed.
    Answer(Answer),
}

/// Listings of a PG. Of the primary's state they change only the operations; they read the store.
#[derive(Debug)]
pub(super) struct Lister<'a> {
    pub(super) objects: &'a mut Objects,
    pub(super) local: &'a Local,
    pub(super) interval: &'a Interval,
}

impl Lister<'_> {
    /// Asks the store, unless it was already asked. The caller serves, under a lease.
    fn try_now(&mut self, number: u64, sh: &mut Shared) {
        let id = self.interval.pg;
        let Some(listing) = self.objects.listings.get_mut(&number) else {
            return;
        };
        // One at a time: the list of missing objects belongs to one answer of the store.
        if listing.waiting > 0 || listing.missing.is_some() {
            return;
        }
        let [SubOp::ListObjects { after, limit }] = &listing.op.request.ops[..] else {
            return;
        };
        // As the store is now: an object recovered before the store answers is not in that answer,
        // and is no longer missing by then.
        listing.missing = Some(self.local.missing.keys().cloned().collect());
        let (first, to) = key::range(id.seed, self.local.pg_num);
        let from = if after.is_empty() {
            first
        } else {
            after.clone().max(first)
        };
        let read = Read::List {
            collection: key::collection(id.pool, id.shard),
            from,
            to,
            limit: (*limit as usize).clamp(1, sh.config.limits.list_objects),
        };
        self.interval.read(sh, read, Purpose::ClientList(number));
    }

    /// The store has answered.
    fn on_list(
        &mut self,
        number: u64,
        reply: Result<ReadReply, ReadError>,
        sh: &mut Shared,
    ) -> Next {
        let Some(listing) = self.objects.listings.get_mut(&number) else {
            return Next::Waits;
        };
        let missing = listing.missing.take().unwrap_or_default();
        let [SubOp::ListObjects { after, .. }] = &listing.op.request.ops[..] else {
            return Next::Waits;
        };
        let (keys, more) = match reply {
            Ok(ReadReply::List { keys, more }) if !listing.failed => (keys, more),
            // No objects yet, and no collection.
            Err(ReadError::NotFound) => (Vec::new(), false),
            // A listing that omits objects would be wrong.
            _ => {
                let listing = self.objects.listings.remove(&number).expect("just seen");
                return Next::Fail(listing.op);
            }
        };
        // The next listing begins just after the last listed key.
        let next = more
            .then(|| keys.last().map(|last| [&last[..], &[0]].concat().into()))
            .flatten();
        let mut positions: BTreeSet<Bytes> = keys.into_iter().collect();
        let inside = |position: &Bytes| {
            position >= after && next.as_ref().is_none_or(|next| position < next)
        };
        positions.extend(missing.iter().map(key::position).filter(inside));
        let all: Vec<ObjectId> = positions
            .iter()
            .filter_map(|position| key::object_at(position))
            .collect();
        let with_clones = all.iter().enumerate().filter(|(at, object)| {
            let clone_before = *at == 0
                || (snaps::is_clone(&all[at - 1]) && snaps::live(&all[at - 1]) == **object);
            !snaps::is_clone(object) && clone_before
        });
        let unknown = with_clones
            .map(|(_, object)| object)
            .filter(|object| !listing.known.contains_key(object));
        let unknown: Vec<ObjectId> = unknown.cloned().collect();
        if !unknown.is_empty() {
            return self.look_at(number, unknown, sh);
        }
        sh.counters.borders.list_pages += u64::from(next.is_some());
        let removed = self.objects.listings.remove(&number);
        let Listing { op, known, .. } = removed.expect("just seen");
        let there = |object: &ObjectId| {
            !snaps::is_clone(object) && known.get(object).copied().unwrap_or(true)
        };
        let results = vec![SubReply::Objects {
            objects: all.into_iter().filter(there).collect(),
            next,
        }];
        Next::Answer(Answer::new(op, Version::NONE, results))
    }

    /// Finds out whether these objects exist for clients; then the listing continues.
    fn look_at(&mut self, number: u64, objects: Vec<ObjectId>, sh: &mut Shared) -> Next {
        let (here, gone): (Vec<ObjectId>, Vec<ObjectId>) = objects
            .into_iter()
            .partition(|object| !self.local.missing.contains_key(object));
        let listing = self.objects.listings.get_mut(&number);
        listing.expect("the caller's").waiting = here.len();
        for object in here {
            let read = Read::Stat(key::store_key(self.interval.pg, &object));
            let purpose = Purpose::ListedStat { number, object };
            self.interval.read(sh, read, purpose);
        }
        Next::Recover(gone)
    }

    /// The state of one of the objects was read.
    fn on_stat(
        &mut self,
        number: u64,
        object: ObjectId,
        reply: Result<ReadReply, ReadError>,
    ) -> Next {
        let Some(listing) = self.objects.listings.get_mut(&number) else {
            return Next::Waits;
        };
        listing.waiting -= 1;
        match reply {
            Ok(ReadReply::Stat(stat)) => {
                let exists = nacre_object::Context::of(stat).exists;
                listing.known.insert(object, exists);
            }
            Err(ReadError::NotFound) => drop(listing.known.insert(object, false)),
            _ => listing.failed = true,
        }
        if listing.waiting == 0 {
            Next::Again
        } else {
            Next::Waits
        }
    }
}

impl Lead<'_> {
    fn lister(&mut self) -> Lister<'_> {
        Lister {
            objects: &mut self.primary.objects,
            local: self.local,
            interval: self.interval,
        }
    }

    /// Asks the store for a listing, if it can be answered.
    pub(super) fn try_listing(&mut self, number: u64, sh: &mut Shared) {
        if self.primary.serves(sh.now) && self.interval.lease_until(sh) > sh.now {
            self.lister().try_now(number, sh);
        }
    }

    /// The store has answered a client's listing.
    pub(super) fn on_client_list(
        &mut self,
        number: u64,
        reply: Result<ReadReply, ReadError>,
        sh: &mut Shared,
    ) {
        let next = self.lister().on_list(number, reply, sh);
        self.go_on_listing(number, next, sh);
    }

    /// The state of an object of a listing was read.
    pub(super) fn on_listed_stat(
        &mut self,
        number: u64,
        object: ObjectId,
        reply: Result<ReadReply, ReadError>,
        sh: &mut Shared,
    ) {
        let next = self.lister().on_stat(number, object, reply);
        self.go_on_listing(number, next, sh);
    }

    fn go_on_listing(&mut self, number: u64, next: Next, sh: &mut Shared) {
        match next {
            Next::Waits => {}
            Next::Again => self.try_listing(number, sh),
            Next::Recover(gone) => {
                for object in gone {
                    self.recover_now(&object, sh);
                }
            }
            Next::Fail(op) => self
                .replies()
                .fail(op, OpFailure::Corrupt { offset: 0 }, sh),
            // The store has applied updates that are ordered and not yet committed: some names may
            // disappear again, and some absent ones may return. The listing is answered when all of
            // these are committed, like reads (F4).
            Next::Answer(answer) if self.primary.in_flight.is_empty() => {
                let lease = self.interval.lease_until(sh);
                self.replies().answer(answer, Some(lease), sh);
            }
            Next::Answer(answer) => {
                let head = self.local.log.head();
                self.replies().answer_when_committed(head, answer, sh);
            }
        }
    }
}
