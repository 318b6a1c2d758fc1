//! Slices of fragments are loaded when a request needs them, and evicted when memory is full.
//!
//! ```text
//!  an inode by number ─▶ its place: from the journal, the request, or its directory's backpointer
//!                      └▶ first the directories above, then the slice with its entry
//!  a slice ─▶ one page of the fragment's object, from a little before the hash needed
//! ```
//! One page of a fragment is read at a time. A page shows the state when it was requested: it is
//! used only where nothing was in memory then, and a fragment with a read in flight keeps its head.
//!
//! Invariants: a directory is in memory only with all directories above it; dirty slices, slices
//! being written and slices that a waiting request needs are not evicted.

use super::*;
use crate::dirty::Part;
use crate::evaluate::stray_name;
use crate::tree::SliceId;
use nacre_wire::fs::Backpointer;

/// The fraction of a page that is read for one name.
const OF_A_PAGE: u32 = 16;

/// A read of a fragment, and what has been read so far.
#[derive(Debug)]
pub(super) struct Page {
    dir: Ino,
    frag: Frag,
    /// Hashes that were not in memory.
    range: (u64, u64),
    /// Entries per read.
    count: u32,
    head: Option<Head>,
    entries: Vec<(Name, Entry)>,
}

impl Page {
    /// The fragment that cannot be read.
    pub const fn of(&self) -> (Ino, Frag) {
        (self.dir, self.frag)
    }
}

/// Most numbers remembered as not existing: they can be determined again.
const NOWHERE_MAX: usize = 10_000;

/// Possible places of inodes that are not in memory.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// Places from waiting requests.
    hints: BTreeMap<Ino, (Ino, Name)>,
    /// Places from directories' backpointers; dropped once they were followed.
    parents: BTreeMap<Ino, (Ino, Name)>,
    /// Backpointers that turned out to be wrong.
    doubted: BTreeMap<Ino, (Ino, Name)>,
    asked: BTreeSet<Ino>,
    /// Numbers without a directory.
    nowhere: BTreeSet<Ino>,
}

impl Places {
    /// A possible place of an inode.
    pub fn hint(&mut self, ino: Ino, place: (Ino, Name)) {
        self.hints.insert(ino, place);
    }
    fn told(&self, ino: Ino) -> Option<(Ino, Name)> {
        self.hints
            .get(&ino)
            .or_else(|| self.parents.get(&ino))
            .cloned()
    }
    fn forget(&mut self, ino: Ino) {
        if self.hints.remove(&ino).is_none() {
            self.parents.remove(&ino);
        }
    }
}

impl Mds {
    /// A request names its file's place.
    pub(super) fn note_hint(&mut self, call: &FsCall, place: Option<&FsPlace>) {
        let Some(ino) = call.ino().filter(|ino| ino.rank() == self.config.rank) else {
            return;
        };
        self.note_place(ino, place);
    }
    /// Whether a file may be in this directory, as far as its number tells.
    fn may_be_in(&self, dir: Ino) -> bool {
        let rank = self.config.rank;
        let is_hidden_one = [Ino::TOP, Ino::links(rank), Ino::strays(rank)].contains(&dir);
        dir.rank() == rank && (!dir.is_hidden() || is_hidden_one)
    }
    /// Records a file's possible place.
    pub(super) fn note_place(&mut self, ino: Ino, place: Option<&FsPlace>) {
        // For a file open for writing the place is known. Places in another rank's directories do
        // not help here.
        if let Some(place) = self.writers.place(ino) {
            self.places.hint(ino, place.clone());
        } else if let Some(place) = place.filter(|place| self.may_be_in(place.dir)) {
            self.places.hint(ino, (place.dir, place.name.clone()));
        }
    }
    /// No request is waiting.
    pub(super) fn forget_hints(&mut self) {
        self.places.hints.clear();
        // A round that reads what the journal refers to may need places, too.
        if !matches!(self.writing.round, writing::Round::Loading) {
            self.places.doubted.clear();
        }
    }

    /// Begins to read what is missing.
    pub(super) fn seek(&mut self, missing: Missing) -> Result<(), u16> {
        match missing {
            Missing::Slice(dir, frag, hash) => self.climb((dir, frag, hash), &mut BTreeSet::new()),
            Missing::Page(dir, frag, hash) => {
                let page = self.config.limits.page;
                self.climb_for((dir, frag, hash), page, &mut BTreeSet::new())
            }
            Missing::Inode(ino) => self.climb_to(ino, &mut BTreeSet::new()),
        }
    }

    /// Reads a slice, or first the directories above it. `seen` contains those already visited:
    /// places that form a cycle are outdated, or invented by a client.
    fn climb(&mut self, place: (Ino, Frag, u64), seen: &mut BTreeSet<Ino>) -> Result<(), u16> {
        let page = self.config.limits.page;
        // In a directory larger than a page only one name is needed, not its neighbours.
        let is_large = self
            .tree
            .head(place.0, place.1)
            .is_some_and(|head| head.entries > u64::from(page));
        self.climb_for(
            place,
            if is_large {
                page.div_ceil(OF_A_PAGE)
            } else {
                page
            },
            seen,
        )
    }
    fn climb_for(
        &mut self,
        (dir, frag, hash): (Ino, Frag, u64),
        count: u32,
        seen: &mut BTreeSet<Ino>,
    ) -> Result<(), u16> {
        if self.lost.contains(&(dir, frag)) {
            return Err(EIO);
        }
        if !dir.is_hidden() && self.tree.inode(dir).is_none() {
            return self.climb_to(dir, seen);
        }
        if self.overlay.is_all(dir, frag) {
            let range = self.about(dir, frag, hash, count);
            let range = self.overlay.piece(dir, frag, range, count as usize);
            self.load(dir, frag, Head::default(), range, Vec::new());
        } else if self.loading.insert((dir, frag)) {
            let range = self.about(dir, frag, hash, count);
            self.read_page(Page {
                dir,
                frag,
                range,
                count,
                head: None,
                entries: Vec::new(),
            });
        }
        Ok(())
    }
    /// The range of a fragment to read for this hash with this many entries: some before it and
    /// some after it, if the number of entries is known, and nothing that is in memory.
    fn about(&self, dir: Ino, frag: Frag, hash: u64, count: u32) -> (u64, u64) {
        let (first, last) = self.tree.gap(dir, frag, hash);
        let Some(head) = self.tree.head(dir, frag) else {
            return (first, last);
        };
        let pieces = (head.entries / u64::from(count).div_ceil(2)).max(1).ilog2() + 1;
        let of_hash = (1 << u64::from(Frag::HASH_BITS).saturating_sub(pieces.into())) - 1;
        (first.max(hash & !of_hash), last)
    }

    /// Reads the slice with an inode's entry.
    fn climb_to(&mut self, ino: Ino, seen: &mut BTreeSet<Ino>) -> Result<(), u16> {
        if ino == Ino::ROOT {
            return self.climb((Ino::TOP, Frag::WHOLE, 0), seen);
        }
        if !seen.insert(ino) {
            // The places were read at different times: all are read again, this one first.
            let place = self.places.told(ino);
            seen.iter().for_each(|ino| self.places.forget(*ino));
            return self.doubt(ino, place);
        }
        if let Some((dir, frag, hash)) = self.overlay.place(ino) {
            if self.tree.slice_of(dir, frag, hash).is_none() {
                return self.climb((dir, frag, hash), seen);
            }
            // A later change in the journal moved it.
            self.overlay.forget_place(ino, (dir, frag));
        }
        let Some((dir, name)) = self.places.told(ino) else {
            return self.seek_parent(ino);
        };
        if !dir.is_hidden() && self.tree.inode(dir).is_none() {
            return self.climb_to(dir, seen);
        }
        match self.tree.find(dir, &name) {
            Found::Unknown(frag, hash) => self.climb((dir, frag, hash), seen),
            Found::Entry(entry)
                if entry.ino() == ino
                    && let Some((home, name)) = entry.home()
                    && let Found::Unknown(frag, hash) = self.tree.find(home, &name) =>
            {
                self.climb((home, frag, hash), seen)
            }
            Found::Entry(_) | Found::Nothing => {
                // It was there, but no longer is.
                self.places.forget(ino);
                self.doubt(ino, Some((dir, name)))
            }
        }
    }

    /// A place was wrong: reads the current one. If that is the same again, the inode is being
    /// removed.
    fn doubt(&mut self, ino: Ino, place: Option<(Ino, Name)>) -> Result<(), u16> {
        if let Some(place) = place
            && self.places.doubted.insert(ino, place.clone()) == Some(place)
        {
            self.places.doubted.remove(&ino);
            return Err(ESTALE);
        }
        self.seek_parent(ino)
    }

    /// Reads a directory's backpointer.
    fn seek_parent(&mut self, dir: Ino) -> Result<(), u16> {
        // An inode with several names, or one in another rank's directory, is in the first of
        // these, and one without a name in the second.
        for hidden in [Ino::links(self.config.rank), Ino::strays(self.config.rank)] {
            if let Found::Unknown(frag, hash) = self.tree.find(hidden, &stray_name(dir))
                && !self.lost.contains(&(hidden, frag))
            {
                return self.climb((hidden, frag, hash), &mut BTreeSet::new());
            }
        }
        if self.places.nowhere.contains(&dir) {
            return Err(ESTALE);
        }
        if self.places.asked.insert(dir) {
            let ops = vec![SubOp::GetAttr {
                name: PARENT_ATTR.into(),
            }];
            let operation = self.operation(&fragment_name(dir, Frag::WHOLE), ops, Vec::new());
            self.queue.push_back((operation, Purpose::Parent(dir)));
        }
        Ok(())
    }
    /// Handles a backpointer; `None`: there is no such directory.
    pub(super) fn on_parent(&mut self, dir: Ino, results: Option<&[SubReply]>) {
        self.places.asked.remove(&dir);
        self.try_again = true;
        let place = match results {
            Some([SubReply::Value { value }]) => Backpointer::from_bytes(value).ok(),
            _ => None,
        };
        match place {
            Some(Backpointer { dir: parent, name }) => {
                drop(self.places.parents.insert(dir, (parent, name)))
            }
            None => {
                if self.places.nowhere.len() >= NOWHERE_MAX {
                    self.places.nowhere.clear();
                }
                self.places.nowhere.insert(dir);
            }
        }
    }

    fn read_page(&mut self, page: Page) {
        let (first, _) = page.range;
        // In key order, a hash alone precedes all names that have it.
        let after = page.entries.last().map_or_else(
            || Bytes::copy_from_slice(&first.to_be_bytes()),
            |(name, _)| Bytes::copy_from_slice(entry_key(name).as_bytes()),
        );
        let ops = vec![
            SubOp::GetAttr {
                name: HEAD_ATTR.into(),
            },
            SubOp::OmapList {
                after,
                limit: page.count,
            },
        ];
        let operation = self.operation(&fragment_name(page.dir, page.frag), ops, Vec::new());
        self.queue.push_back((operation, Purpose::Page(page)));
    }

    /// Adds a range of a fragment to memory, with later changes from the journal.
    fn load(
        &mut self,
        dir: Ino,
        frag: Frag,
        head: Head,
        range: (u64, u64),
        entries: Vec<(Name, Entry)>,
    ) {
        // What is only in the journal is dirty.
        for change in self.overlay.changes_in(dir, frag, range) {
            self.dirty.note(&change);
        }
        let (newer, mut entries) = self.overlay.merge(dir, frag, range, entries);
        for (name, entry) in &mut entries {
            // An entry's copy of its directory's head is only updated when it is written.
            if let Entry::Inode {
                inode,
                head: Some(copy),
            } = entry
                && let Some(newer) = self.overlay.head(inode.ino)
            {
                **copy = newer;
                self.dirty.part(dir, frag).name(name.clone());
            }
            self.removing.see_entry(dir, entry, self.config.rank);
            self.places.parents.remove(&entry.ino());
            self.places.doubted.remove(&entry.ino());
        }
        self.tree
            .load_slice(dir, frag, newer.unwrap_or(head), range, entries, self.turns);
        self.overlay.retire(
            dir,
            frag,
            self.tree.known_to(dir, frag, frag.first()) == Some(frag.last()),
        );
        self.loading.remove(&(dir, frag));
        self.try_again = true;
    }

    pub(super) fn on_page(&mut self, mut page: Page, results: &[SubReply]) {
        let Page {
            dir,
            frag,
            range: (first, last),
            ..
        } = page;
        let [
            SubReply::Value { value },
            SubReply::Entries { entries, more },
        ] = results
        else {
            return self.lose(dir, frag);
        };
        let head = match page.head.map_or_else(|| Head::from_bytes(value), Ok) {
            Ok(head) => head,
            Err(_) => return self.lose(dir, frag),
        };
        for (key, value) in entries {
            match (entry_name(&Name::copy(key)), Entry::from_bytes(value)) {
                (Some(name), Ok(entry)) => page.entries.push((name, entry)),
                _ => return self.lose(dir, frag),
            }
        }
        // The last hash may have more names.
        let to = if *more {
            page.entries
                .last()
                .map_or(first, |(name, _)| name_hash(name))
        } else {
            last + 1
        };
        if to <= first {
            page.head = Some(head);
            self.read_page(page);
        } else if dir.is_hidden() || self.tree.inode(dir).is_some() {
            let to = last.min(to - 1);
            page.entries.retain(|(name, _)| name_hash(name) <= to);
            self.load(dir, frag, head, (first, to), page.entries);
        } else {
            // It is added to memory with all directories above it: one of those is gone now.
            self.loading.remove(&(dir, frag));
            self.try_again = true;
        }
    }

    pub(super) fn lose(&mut self, dir: Ino, frag: Frag) {
        self.loading.remove(&(dir, frag));
        self.lost.insert((dir, frag));
        self.try_again = true;
    }

    /// Reads everything that the journal changed; returns whether all of it is in memory.
    pub(super) fn load_overlay(&mut self) -> bool {
        for (dir, frag) in self.overlay.parts() {
            // A step may already have loaded, on its way up, what another one needs.
            while !self.lost.contains(&(dir, frag))
                && !self.loading.contains(&(dir, frag))
                && let Some(hash) = self.unread(dir, frag)
            {
                // A fragment that no entry refers to stays in the journal: `fs check` reports it.
                if self.seek(Missing::Page(dir, frag, hash)).is_err() {
                    self.lost.insert((dir, frag));
                }
                if self.unread(dir, frag) == Some(hash) {
                    break;
                }
            }
            if self.loading.len() >= LOADS_AT_ONCE {
                break;
            }
        }
        self.overlay
            .parts()
            .iter()
            .all(|part| self.lost.contains(part))
    }
    /// The first hash of a fragment for which only the journal has something.
    fn unread(&self, dir: Ino, frag: Frag) -> Option<u64> {
        if self.overlay.is_all(dir, frag) {
            let known_to = self.tree.known_to(dir, frag, frag.first());
            return Some(known_to.map_or(frag.first(), |known| known + 1))
                .filter(|next| *next <= frag.last());
        }
        self.overlay
            .has(dir, frag)
            .then(|| self.overlay.first(dir, frag).unwrap_or(frag.first()))
    }
    /// Reads through directories that no request needs.
    pub(super) fn look_through(&mut self) {
        for (dir, mut next) in std::mem::take(&mut self.wanted) {
            let frag = Frag::WHOLE;
            // What was loaded was examined then.
            while next <= frag.last()
                && let Some(known) = self.tree.known_to(dir, frag, next)
            {
                next = known + 1;
            }
            if next <= frag.last() && self.seek(Missing::Page(dir, frag, next)).is_ok() {
                self.wanted.insert(dir, next);
            }
        }
    }

    /// Slices needed by waiting requests and by parts of other ranks' transactions, or about to be
    /// used: otherwise requests that need two slices could wait for one after the other, for ever.
    fn needed(&self) -> BTreeSet<SliceId> {
        let rank = self.config.rank;
        let (mut names, mut inos): (Vec<(Ino, &Name)>, Vec<Ino>) = (Vec::new(), Vec::new());
        let mut needed = BTreeSet::new();
        for (_, request) in &self.waiting {
            names.extend(request.call.names());
            inos.extend(request.call.inos());
            if let FsCall::List { dir, after, .. } = request.call {
                needed.extend(self.tree.slice_of(
                    dir,
                    self.tree.frag_at(dir, after + 1),
                    after + 1,
                ));
            }
        }
        self.across
            .wanted(&self.transactions, &mut names, &mut inos);
        for (dir, name) in &names {
            inos.push(*dir);
            if let Found::Entry(entry) = self.tree.find(*dir, name) {
                inos.push(entry.ino());
            }
        }
        inos.extend(self.removing.all());
        // Their places decide what quotas allow.
        inos.extend(
            self.caps
                .bounded()
                .iter()
                .copied()
                .chain(self.quotas.sought()),
        );
        // What is being read is added to memory with all directories above it.
        inos.extend(self.loading.iter().map(|(dir, _)| *dir));
        for ino in &inos {
            let hint = self.places.hints.get(ino).map(|(dir, name)| (*dir, name));
            names.extend(self.tree.place(*ino).into_iter().chain(hint));
        }
        needed.extend(
            names
                .into_iter()
                .filter_map(|(dir, name)| self.tree.slice_of_name(dir, name)),
        );
        for ino in inos {
            let hidden = [Ino::links(rank), Ino::strays(rank)];
            needed.extend(
                hidden
                    .into_iter()
                    .filter_map(|dir| self.tree.slice_of_name(dir, &stray_name(ino))),
            );
        }
        needed
    }
    /// Whether a fragment's head must stay even if all of its entries could be evicted.
    fn stays(&self, dir: Ino, frag: Frag) -> bool {
        dir.is_hidden()
            || self.dirty.get(dir, frag).is_some()
            || self.writing.parts.contains_key(&(dir, frag))
            || self.loading.contains(&(dir, frag))
    }

    /// Evicts what was not used for long, if memory is full.
    pub(super) fn make_room(&mut self) {
        let max = self.config.limits.entries_max;
        if self.tree.len() <= max.max(self.room_at) {
            return;
        }
        let needed = self.needed();
        loop {
            let pinned = self.tree.slices_above();
            let mut old: Vec<(u64, SliceId)> = self
                .tree
                .slices()
                .filter(|(slice, last, used)| {
                    let SliceId { dir, frag, first } = *slice;
                    let has =
                        |part: Option<&Part>| part.is_some_and(|part| part.has_in((first, *last)));
                    let stays = *used == self.turns
                        || pinned.contains(slice)
                        || needed.contains(slice)
                        || has(self.dirty.get(dir, frag))
                        || has(self.writing.parts.get(&(dir, frag)));
                    !stays
                })
                .map(|(slice, _, used)| (used, slice))
                .collect();
            old.sort_unstable();
            let before = self.tree.len();
            for (_, slice) in old {
                if self.tree.len() <= max - max / 10 {
                    break;
                }
                if self.tree.slices_of(slice.dir, slice.frag) > 1
                    || !self.stays(slice.dir, slice.frag)
                {
                    self.tree.evict(slice);
                }
            }
            if self.tree.len() <= max - max / 10 || self.tree.len() == before {
                break;
            }
        }
        if self.tree.len() > max {
            // The rest is dirty or in use: retried after a round, or when memory has grown.
            self.wants_room = true;
            self.room_at = self.tree.len() + self.tree.len() / 16 + 1;
        } else {
            self.room_at = 0;
        }
    }
}
