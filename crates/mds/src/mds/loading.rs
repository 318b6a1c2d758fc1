//! Fragments come into memory when a request wants them, and go when there are too many.
//!
//! ```text
//!  an inode by number ─▶ its place: what the journal says; what the request says; its directory's backpointer
//!                      └▶ the way up first, then the fragment that its entry is in
//! ```
//! Invariants: a directory is in memory only with all above it; what is dirty, what is being written and
//! what a request waits with stays.

use super::*;
use nacre_wire::fs::Backpointer;

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
        self.hints.get(&ino).or_else(|| self.parents.get(&ino)).cloned()
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
        let Some(ino) = call.ino().filter(|ino| ino.rank() == self.config.rank) else { return };
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
        // Of one that is open for writing the place is known. What another rank's directories have does not help here.
        if let Some(place) = self.writers.place(ino) {
            self.places.hint(ino, place.clone());
        } else if let Some(place) = place.filter(|place| self.may_be_in(place.dir)) {
            self.places.hint(ino, (place.dir, place.name.clone()));
        }
    }
    /// No request waits.
    pub(super) fn forget_hints(&mut self) {
        self.places.hints.clear();
        // A round that reads what the journal speaks of may be looking for something by its place, too.
        if !matches!(self.writing.round, writing::Round::Loading) {
            self.places.doubted.clear();
        }
    }

    /// Begins to read what is missing.
    pub(super) fn seek(&mut self, missing: Missing) -> Result<(), u16> {
        match missing {
            Missing::Fragment(dir, frag) => self.seek_fragment(dir, frag),
            Missing::Inode(ino) => self.seek_inode(ino),
        }
    }

    fn seek_fragment(&mut self, dir: Ino, frag: Frag) -> Result<(), u16> {
        self.climb(dir, frag, &mut BTreeSet::new())
    }
    fn seek_inode(&mut self, ino: Ino) -> Result<(), u16> {
        self.climb_to(ino, &mut BTreeSet::new())
    }

    /// Reads a fragment, or first what is above it. `seen` is what was passed on the way up: places that lead
    /// in a circle are old, or a client's invention.
    fn climb(&mut self, dir: Ino, frag: Frag, seen: &mut BTreeSet<Ino>) -> Result<(), u16> {
        if self.lost.contains(&(dir, frag)) {
            return Err(EIO);
        }
        if !dir.is_hidden() && self.tree.inode(dir).is_none() {
            return self.climb_to(dir, seen);
        }
        debug_assert!(self.tree.head(dir, frag).is_none(), "{dir} {frag} is in memory");
        if self.overlay.is_all(dir, frag) {
            self.load(dir, frag, Head::default(), Vec::new());
        } else if self.loading.insert((dir, frag)) {
            self.read_page(dir, frag, None, Vec::new());
        }
        Ok(())
    }

    /// Reads the fragment that an inode's entry is in.
    fn climb_to(&mut self, ino: Ino, seen: &mut BTreeSet<Ino>) -> Result<(), u16> {
        if ino == Ino::ROOT {
            return self.climb(Ino::TOP, Frag::WHOLE, seen);
        }
        if !seen.insert(ino) {
            // Places that were read at different times: all are asked for again, this one first.
            let place = self.places.told(ino);
            seen.iter().for_each(|ino| self.places.forget(*ino));
            return self.doubt(ino, place);
        }
        if let Some((dir, frag)) = self.overlay.place(ino) {
            if self.tree.head(dir, frag).is_none() {
                return self.climb(dir, frag, seen);
            }
            // It went from there later in the journal.
            self.overlay.forget_place(ino, (dir, frag));
        }
        let Some((dir, name)) = self.places.told(ino) else { return self.seek_parent(ino) };
        if !dir.is_hidden() && self.tree.inode(dir).is_none() {
            return self.climb_to(dir, seen);
        }
        match self.tree.find(dir, &name) {
            Found::Unknown(frag) => self.climb(dir, frag, seen),
            Found::Entry(Entry::Reference { ino: same, home, .. })
                if *same == ino && self.tree.head(Ino::links(Rank(*home)), Frag::WHOLE).is_none() =>
            {
                self.climb(Ino::links(Rank(*home)), Frag::WHOLE, seen)
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
        if self.places.nowhere.contains(&dir) {
            return Err(ESTALE);
        }
        let links = (Ino::links(self.config.rank), Frag::WHOLE);
        if self.tree.head(links.0, links.1).is_none() && !self.lost.contains(&links) {
            // What has several names, or one in another rank's directory, is there.
            return self.climb(links.0, links.1, &mut BTreeSet::new());
        }
        if self.places.asked.insert(dir) {
            let ops = vec![SubOp::GetAttr { name: PARENT_ATTR.into() }];
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
            Some(Backpointer { dir: parent, name }) => drop(self.places.parents.insert(dir, (parent, name))),
            None => {
                if self.places.nowhere.len() >= NOWHERE_MAX {
                    self.places.nowhere.clear();
                }
                self.places.nowhere.insert(dir);
            }
        }
    }

    fn read_page(&mut self, dir: Ino, frag: Frag, head: Option<Head>, entries: Vec<(Name, Entry)>) {
        let after =
            entries.last().map_or_else(Bytes::new, |(name, _)| Bytes::copy_from_slice(entry_key(name).as_bytes()));
        let ops = vec![SubOp::GetAttr { name: HEAD_ATTR.into() }, SubOp::OmapList { after, limit: PAGE }];
        let operation = self.operation(&fragment_name(dir, frag), ops, Vec::new());
        self.queue.push_back((operation, Purpose::Page { dir, frag, head, entries }));
    }

    /// A fragment is here, with what the journal said of it since it was written.
    fn load(&mut self, dir: Ino, frag: Frag, head: Head, entries: Vec<(Name, Entry)>) {
        // What only the journal says is to be written.
        for change in self.overlay.changes(dir, frag) {
            self.dirty.note(&change);
        }
        let (head, mut entries) = self.overlay.merge(dir, frag, head, entries);
        for (name, entry) in &mut entries {
            // What is in a directory is in its entry's copy only when it is written.
            if let Entry::Inode { inode, head: Some(copy) } = entry
                && let Some(newer) = self.overlay.head(inode.ino)
            {
                *copy = newer;
                self.dirty.part(dir, frag).names.insert(name.clone());
            }
            self.removing.see_entry(dir, entry, self.config.rank);
            self.places.parents.remove(&entry.ino());
            self.places.doubted.remove(&entry.ino());
        }
        self.tree.load(dir, frag, head, entries);
        self.tree.touch(dir, self.turns);
        self.loading.remove(&(dir, frag));
        self.try_again = true;
    }

    pub(super) fn on_page(
        &mut self,
        (dir, frag): (Ino, Frag),
        head: Option<Head>,
        mut entries: Vec<(Name, Entry)>,
        results: &[SubReply],
    ) {
        // It is put into memory with all above it: that may have gone meanwhile.
        let [SubReply::Value { value }, SubReply::Entries { entries: page, more }] = results else {
            return self.lose(dir, frag);
        };
        let head = match head.map_or_else(|| Head::from_bytes(value), Ok) {
            Ok(head) => head,
            Err(_) => return self.lose(dir, frag),
        };
        for (key, value) in page {
            match (entry_name(&Name::copy(key)), Entry::from_bytes(value)) {
                (Some(name), Ok(entry)) => entries.push((name, entry)),
                _ => return self.lose(dir, frag),
            }
        }
        if *more {
            self.read_page(dir, frag, Some(head), entries);
        } else if dir.is_hidden() || self.tree.inode(dir).is_some() {
            self.load(dir, frag, head, entries);
        } else {
            self.loading.remove(&(dir, frag));
            self.try_again = true;
        }
    }

    pub(super) fn lose(&mut self, dir: Ino, frag: Frag) {
        self.loading.remove(&(dir, frag));
        self.lost.insert((dir, frag));
        self.try_again = true;
    }

    /// Reads the fragments that the journal said something of; whether all are here.
    pub(super) fn load_overlay(&mut self) -> bool {
        for (dir, frag) in self.overlay.parts() {
            // The one before may have brought this one: it was on its way up.
            if self.lost.contains(&(dir, frag)) || self.tree.head(dir, frag).is_some() {
                continue;
            }
            // One that no entry leads to stays in the journal: `fs check` says so.
            if self.seek_fragment(dir, frag).is_err() {
                self.lost.insert((dir, frag));
            }
            if self.loading.len() >= LOADS_AT_ONCE {
                break;
            }
        }
        self.overlay.parts().iter().all(|part| self.lost.contains(part))
    }

    /// Forgets what was not used for long, if there is too much.
    pub(super) fn make_room(&mut self) {
        let max = self.config.limits.entries_max;
        if self.tree.len() <= max.max(self.room_at) {
            return;
        }
        let mut needed: BTreeSet<Ino> = BTreeSet::new();
        for (_, request) in &self.waiting {
            for ino in request.call.inos() {
                needed.insert(ino);
                needed.extend(self.tree.place(ino).map(|(dir, _)| dir));
                needed.extend(self.places.hints.get(&ino).map(|(dir, _)| *dir));
            }
        }
        needed.extend(self.removing.all().filter_map(|ino| self.tree.place(ino)).map(|(dir, _)| dir));
        // What is being read is put into memory with all above it.
        needed.extend(self.loading.iter().filter_map(|(dir, _)| self.tree.place(*dir)).map(|(dir, _)| dir));
        loop {
            let pinned = self.tree.directories_above();
            let mut old: Vec<(u64, Ino, Frag)> = self
                .tree
                .fragments()
                .filter(|(dir, frag, used)| {
                    let stays = dir.is_hidden()
                        || *used == self.turns
                        || pinned.contains(dir)
                        || needed.contains(dir)
                        || self.dirty.has(*dir, *frag)
                        || self.writing.parts.contains(&(*dir, *frag));
                    !stays
                })
                .map(|(dir, frag, used)| (used, dir, frag))
                .collect();
            old.sort_unstable();
            let before = self.tree.len();
            for (_, dir, frag) in old {
                if self.tree.len() <= max - max / 10 {
                    break;
                }
                self.tree.evict(dir, frag);
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
