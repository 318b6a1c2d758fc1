//! Listings: the objects of a group that are there for clients, in the group's order.
//!
//! ```text
//!  store's listing and what is missing here ─▶ without clones ─▶ those whose name has clones may be whiteouts: read what they are
//!                                                             ─▶ and list again, knowing that ─▶ answer
//! ```
//! What is listed is answered when every update that it may show, or whose removal it may hide, is
//! committed on the whole acting set.
//!
//! Clones come before the live object of their name. So a live object with no clone before it in
//! the page needs no look, but for the page's first.

use super::local::Local;
use super::object::{Listing, Objects};
use super::pending::Pending;
use super::update::Answer;
use super::{Interval, Lead};
use crate::awaited::Awaited;
use crate::key;
use crate::shared::Shared;
use bytes::Bytes;
use nacre_object::snaps;
use nacre_store::{Read, ReadError, ReadReply};
use nacre_types::{ObjectId, Version};
use nacre_wire::msg::client::{OpFailure, SubOp, SubReply};
use std::collections::BTreeSet;

/// What a listing needs next.
#[derive(Debug)]
pub(super) enum Next {
    /// Nothing now: the store is asked, or it is tried again.
    Waits,
    /// To be tried again.
    Again,
    /// These objects are missing here and have to be looked at; it is tried again now and then.
    Recover(Vec<ObjectId>),
    /// It cannot be answered.
    Fail(Pending),
    /// It is answered when what is ordered is committed.
    Answer(Answer),
}

/// Listings of a group. Of its primary's state they touch the operations, and look at the store.
#[derive(Debug)]
pub(super) struct Lister<'a> {
    pub(super) objects: &'a mut Objects,
    pub(super) local: &'a Local,
    pub(super) interval: &'a Interval,
}

impl Lister<'_> {
    /// Asks the store, if it is not asked already. The caller serves, under a lease.
    fn try_now(&mut self, number: u64, sh: &mut Shared) {
        let id = self.interval.pg;
        let Some(listing) = self.objects.listings.get_mut(&number) else {
            return;
        };
        // One at a time: what was missing goes with one answer of the store's.
        if listing.waiting > 0 || listing.missing.is_some() {
            return;
        }
        let [SubOp::ListObjects { after, limit }] = &listing.op.request.ops[..] else {
            return;
        };
        // As the store is now: what is brought before it answers is not in what it answers, and not
        // missing any more by then.
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
        self.interval.read(sh, read, Awaited::ClientList(number));
    }

    /// The store has listed.
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
            // No objects yet, not even a collection.
            Err(ReadError::NotFound) => (Vec::new(), false),
            // A listing that leaves something out would be a lie.
            _ => {
                let listing = self.objects.listings.remove(&number).expect("just seen");
                return Next::Fail(listing.op);
            }
        };
        // One past the last listed key is where the next listing begins.
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

    /// Finds out whether these are there for clients; the listing goes on then.
    fn look_at(&mut self, number: u64, objects: Vec<ObjectId>, sh: &mut Shared) -> Next {
        let (here, gone): (Vec<ObjectId>, Vec<ObjectId>) = objects
            .into_iter()
            .partition(|object| !self.local.missing.contains_key(object));
        let listing = self.objects.listings.get_mut(&number);
        listing.expect("the caller's").waiting = here.len();
        for object in here {
            let read = Read::Stat(key::store_key(self.interval.pg, &object));
            let awaited = Awaited::ListedStat { number, object };
            self.interval.read(sh, read, awaited);
        }
        Next::Recover(gone)
    }

    /// One of the objects was looked at.
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

    /// Asks the store for a listing, if that can be answered.
    pub(super) fn try_listing(&mut self, number: u64, sh: &mut Shared) {
        if self.primary.serves(sh.now) && self.interval.lease_until(sh) > sh.now {
            self.lister().try_now(number, sh);
        }
    }

    /// The store has listed for a client.
    pub(super) fn on_client_list(
        &mut self,
        number: u64,
        reply: Result<ReadReply, ReadError>,
        sh: &mut Shared,
    ) {
        let next = self.lister().on_list(number, reply, sh);
        self.go_on_listing(number, next, sh);
    }

    /// An object of a listing was looked at.
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
            // The store has applied what is ordered and not yet committed: names that may vanish
            // again, and the absence of some that may come back. The listing is said when all of it
            // is committed, as reads are (F4).
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
