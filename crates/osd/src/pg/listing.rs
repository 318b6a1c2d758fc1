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

use super::Lead;
use super::object::Listing;
use super::update::Answer;
use crate::awaited::Awaited;
use crate::key;
use crate::shared::Shared;
use bytes::Bytes;
use nacre_object::snaps;
use nacre_store::{Read, ReadError, ReadReply};
use nacre_types::{ObjectId, Version};
use nacre_wire::Payload;
use nacre_wire::msg::client::{OpFailure, OpReply, SubOp, SubReply};
use std::collections::BTreeSet;

impl Lead<'_> {
    pub(super) fn try_listing(&mut self, number: u64, sh: &mut Shared) {
        if !self.serving(sh) || self.lease_until(sh) <= sh.now {
            return;
        }
        let (id, since) = (self.id(), self.interval.since);
        let (first, to) = key::range(id.seed, self.local.pg_num);
        let listing = self.primary.objects.listings.get(&number);
        // One at a time: what was missing goes with one answer of the store's.
        if listing.is_none_or(|listing| listing.waiting > 0 || listing.missing.is_some()) {
            return;
        }
        let missing: Vec<ObjectId> = self.local.missing.keys().cloned().collect();
        let listing = self
            .primary
            .objects
            .listings
            .get_mut(&number)
            .expect("just seen");
        let [SubOp::ListObjects { after, limit }] = &listing.op.request.ops[..] else {
            return;
        };
        // As the store is now: what is brought before it answers is not in what it answers, and not
        // missing any more by then.
        listing.missing = Some(missing);
        let from = if after.is_empty() {
            first
        } else {
            after.clone().max(first)
        };
        let collection = key::collection(id.pool, id.shard);
        let read = Read::List {
            collection,
            from,
            to,
            limit: (*limit as usize).clamp(1, sh.config.limits.list_objects),
        };
        sh.read(id, since, read, Awaited::ClientList(number));
    }

    pub(super) fn on_client_list(
        &mut self,
        number: u64,
        reply: Result<ReadReply, ReadError>,
        sh: &mut Shared,
    ) {
        let lease = self.lease_until(sh);
        let primary = &mut *self.primary;
        let Some(listing) = primary.objects.listings.get_mut(&number) else {
            return;
        };
        let missing = listing.missing.take().unwrap_or_default();
        let [SubOp::ListObjects { after, .. }] = &listing.op.request.ops[..] else {
            return;
        };
        let (keys, more) = match reply {
            Ok(ReadReply::List { keys, more }) if !listing.failed => (keys, more),
            // No objects yet, not even a collection.
            Err(ReadError::NotFound) => (Vec::new(), false),
            // A listing that leaves something out would be a lie.
            _ => {
                let listing = primary.objects.listings.remove(&number).expect("just seen");
                self.fail(listing.op, OpFailure::Corrupt { offset: 0 }, sh);
                return;
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
            self.look_at_listed(number, unknown, sh);
            return;
        }
        sh.counters.borders.list_pages += u64::from(next.is_some());
        let Listing { op, known, .. } =
            primary.objects.listings.remove(&number).expect("just seen");
        let there = |object: &ObjectId| {
            !snaps::is_clone(object) && known.get(object).copied().unwrap_or(true)
        };
        let results = vec![SubReply::Objects {
            objects: all.into_iter().filter(there).collect(),
            next,
        }];
        let (request, attempt) = (op.request.request, op.request.attempt);
        let reply = OpReply {
            request,
            failure: None,
            version: Version::NONE,
            results,
            attempt,
        };
        let answer = Answer {
            to: op.from,
            reply,
            payload: Payload::new(),
            op: Some(op),
        };
        // The store has applied what is ordered and not yet committed: names that may vanish again,
        // and the absence of some that may come back. The listing is said when all of it is
        // committed, as reads are (F4).
        match self.primary.in_flight.is_empty() {
            true => self.answer(answer, Some(lease), sh),
            false => self.answer_when_committed(self.local.log.head(), answer, sh),
        }
    }

    /// Finds out whether these are there for clients; the listing goes on then.
    fn look_at_listed(&mut self, number: u64, objects: Vec<ObjectId>, sh: &mut Shared) {
        let (id, since) = (self.id(), self.interval.since);
        let (here, gone): (Vec<ObjectId>, Vec<ObjectId>) = objects
            .into_iter()
            .partition(|object| !self.local.missing.contains_key(object));
        let listing = self.primary.objects.listings.get_mut(&number);
        listing.expect("the caller's").waiting = here.len();
        for object in here {
            let read = Read::Stat(key::store_key(id, &object));
            sh.read(id, since, read, Awaited::ListedStat { number, object });
        }
        // The listing is tried again now and then.
        for object in gone {
            self.recover_now(&object, sh);
        }
    }

    pub(super) fn on_listed_stat(
        &mut self,
        number: u64,
        object: ObjectId,
        reply: Result<ReadReply, ReadError>,
        sh: &mut Shared,
    ) {
        let Some(listing) = self.primary.objects.listings.get_mut(&number) else {
            return;
        };
        listing.waiting -= 1;
        match reply {
            Ok(ReadReply::Stat(stat)) => drop(
                listing
                    .known
                    .insert(object, nacre_object::Context::of(stat).exists),
            ),
            Err(ReadError::NotFound) => drop(listing.known.insert(object, false)),
            _ => listing.failed = true,
        }
        if listing.waiting == 0 {
            self.try_listing(number, sh);
        }
    }
}
