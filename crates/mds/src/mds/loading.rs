//! Slices of fragments come into memory when a request wants them, and go when there is too much.
//!
//! ```text
//!  an inode by number ─▶ its place: what the journal says; what the request says; its directory's backpointer
//!                      └▶ the way up first, then the slice that its entry is in
//!  a slice ─▶ one page of the fragment's object, from a little before the hash that is wanted
//! ```
//! One page of a fragment is read at a time. What it says is of when it was asked for: it is used
//! only where nothing was in memory then, and a fragment of which one is under way keeps its head.
//!
//! Invariants: a directory is in memory only with all above it; what is dirty, what is being
//! written and what a request waits with stays.

use super::*;
use crate::dirty::Part;
use crate::evaluate::stray_name;
use crate::tree::SliceId;
use nacre_wire::fs::Backpointer;

/// The part of a page that is read for one name.
const OF_A_PAGE: u32 = 16;

/// What was asked for of a fragment, and read so far.
#[derive(Debug)]
pub(super) struct Page {
    dir: Ino,
    frag: Frag,
    /// Hashes of which nothing was in memory.
    range: (u64, u64),
    /// Entries at a time.
    count: u32,
    head: Option<Head>,
    entries: Vec<(Name, Entry)>,
}

impl Page {
    /// It cannot be read: of which fragment.
    pub const fn of(&self) -> (Ino, Frag) {
        (self.dir, self.frag)
    }
}

/// Numbers that are known to lead nowhere, at most: they are found out again.
const NOWHERE_MAX: usize = 10_000;

/// Where inodes are said to be that are not in memory.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// By requests that wait.
    hints: BTreeMap<Ino, (Ino, Name)>,
    /// By directories' backpointers; forgotten once they were followed.
    parents: BTreeMap<Ino, (Ino, Name)>,
    /// Backpointers that were wrong when they were followed.
    doubted: BTreeMap<Ino, (Ino, Name)>,
    asked: BTreeSet<Ino>,
    /// There is no directory of this number.
    nowhere: BTreeSet<Ino>,
}

impl Places {
    /// Where an inode is said to be.
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
    /// A request says where its file is.
    pub(super) fn note_hint(&mut self, call: &FsCall, place: Option<&FsPlace>) {
        let Some(ino) = call.ino().filter(|ino| ino.rank() == self.config.rank) else {
            return;
        };
        self.note_place(ino, place);
    }
    /// Whether a file may be in this directory, for all that is known of its number.
    fn may_be_in(&self, dir: Ino) -> bool {
        let rank = self.config.rank;
        let is_hidden_one = [Ino::TOP, Ino::links(rank), Ino::strays(rank)].contains(&dir);
        dir.rank() == rank && (!dir.is_hidden() || is_hidden_one)
    }
    /// Where a file is said to be.
    pub(super) fn note_place(&mut self, ino: Ino, place: Option<&FsPlace>) {
        // Of one that is open for writing the place is known. What another rank's directories have
        // does not help here.
        if let Some(place) = self.writers.place(ino) {
            self.places.hint(ino, place.clone());
        } else if let Some(place) = place.filter(|place| self.may_be_in(place.dir)) {
            self.places.hint(ino, (place.dir, place.name.clone()));
        }
    }
    /// No request waits.
    pub(super) fn forget_hints(&mut self) {
        self.places.hints.clear();
        // A round that reads what the journal speaks of may be looking for something by its place,
        // too.
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

    /// Reads a slice, or first what is above it. `seen` is what was passed on the way up: places
    /// that lead in a circle are old, or a client's invention.
    fn climb(&mut self, place: (Ino, Frag, u64), seen: &mut BTreeSet<Ino>) -> Result<(), u16> {
        let page = self.config.limits.page;
        // Of a directory that is larger than a page one name is wanted, not its neighbours.
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
    /// From where on, and how far, a fragment is read for this hash, if so many entries are read:
    /// some of them before it and some behind, if it is known how many there are, and nothing
    /// that is in memory.
    fn about(&self, dir: Ino, frag: Frag, hash: u64, count: u32) -> (u64, u64) {
        let (first, last) = self.tree.gap(dir, frag, hash);
        let Some(head) = self.tree.head(dir, frag) else {
            return (first, last);
        };
        let pieces = (head.entries / u64::from(count).div_ceil(2)).max(1).ilog2() + 1;
        let of_hash = (1 << u64::from(Frag::HASH_BITS).saturating_sub(pieces.into())) - 1;
        (first.max(hash & !of_hash), last)
    }

    /// Reads the slice that an inode's entry is in.
    fn climb_to(&mut self, ino: Ino, seen: &mut BTreeSet<Ino>) -> Result<(), u16> {
        if ino == Ino::ROOT {
            return self.climb((Ino::TOP, Frag::WHOLE, 0), seen);
        }
        if !seen.insert(ino) {
            // Places that were read at different times: all are asked for again, this one first.
            let place = self.places.told(ino);
            seen.iter().for_each(|ino| self.places.forget(*ino));
            return self.doubt(ino, place);
        }
        if let Some((dir, frag, hash)) = self.overlay.place(ino) {
            if self.tree.slice_of(dir, frag, hash).is_none() {
                return self.climb((dir, frag, hash), seen);
            }
            // It went from there later in the journal.
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
                // It was there, and is no more.
                self.places.forget(ino);
                self.doubt(ino, Some((dir, name)))
            }
        }
    }

    /// A place was wrong: where it is now. If that is said to be the same, it is going.
    fn doubt(&mut self, ino: Ino, place: Option<(Ino, Name)>) -> Result<(), u16> {
        if let Some(place) = place
            && self.places.doubted.insert(ino, place.clone()) == Some(place)
        {
            self.places.doubted.remove(&ino);
            return Err(ESTALE);
        }
        self.seek_parent(ino)
    }

    /// A directory's object says where its entry is.
    fn seek_parent(&mut self, dir: Ino) -> Result<(), u16> {
        // What has several names, or one in another rank's directory, is in one of these, and what
        // has none in the other.
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
    /// What it says; `None`: there is no such directory.
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
        // In the order of keys, a hash alone comes before all names that have it.
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

    /// Some of a fragment is here, with what the journal said of it since it was written.
    fn load(
        &mut self,
        dir: Ino,
        frag: Frag,
        head: Head,
        range: (u64, u64),
        entries: Vec<(Name, Entry)>,
    ) {
        // What only the journal says is to be written.
        for change in self.overlay.changes_in(dir, frag, range) {
            self.dirty.note(&change);
        }
        let (newer, mut entries) = self.overlay.merge(dir, frag, range, entries);
        for (name, entry) in &mut entries {
            // What is in a directory is in its entry's copy only when it is written.
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
        // Of the last hash there may be more.
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
            // It is put into memory with all above it: that has gone meanwhile.
            self.loading.remove(&(dir, frag));
            self.try_again = true;
        }
    }

    pub(super) fn lose(&mut self, dir: Ino, frag: Frag) {
        self.loading.remove(&(dir, frag));
        self.lost.insert((dir, frag));
        self.try_again = true;
    }

    /// Reads what the journal said something of; whether all of that is here.
    pub(super) fn load_overlay(&mut self) -> bool {
        for (dir, frag) in self.overlay.parts() {
            // One step may have brought what another one would: it was on its way up.
            while !self.lost.contains(&(dir, frag))
                && !self.loading.contains(&(dir, frag))
                && let Some(hash) = self.unread(dir, frag)
            {
                // One that no entry leads to stays in the journal: `fs check` says so.
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
    /// Where something of a fragment is that only the journal has.
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
    /// Looks through directories that are to be read though no request wants them.
    pub(super) fn look_through(&mut self) {
        for (dir, mut next) in std::mem::take(&mut self.wanted) {
            let frag = Frag::WHOLE;
            // What came into memory was looked at then.
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

    /// Slices that requests and parts of other ranks' transactions wait with, or that something is
    /// about to be done with: else those that want two would wait for one after the other, for
    /// ever.
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
        // Where they are decides what quotas leave.
        inos.extend(
            self.caps
                .bounded()
                .iter()
                .copied()
                .chain(self.quotas.sought()),
        );
        // What is being read is put into memory with all above it.
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
    /// Whether a fragment's head has to stay though all of its entries might go.
    fn stays(&self, dir: Ino, frag: Frag) -> bool {
        dir.is_hidden()
            || self.dirty.get(dir, frag).is_some()
            || self.writing.parts.contains_key(&(dir, frag))
            || self.loading.contains(&(dir, frag))
    }

    /// Forgets what was not used for long, if there is too much.
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
            // The rest is dirty, or in use: tried again after a round, or when it has grown.
            self.wants_room = true;
            self.room_at = self.tree.len() + self.tree.len() / 16 + 1;
        } else {
            self.room_at = 0;
        }
    }
}
