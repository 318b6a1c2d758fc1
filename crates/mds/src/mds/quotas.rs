//! Files that clients write below quotas of bytes (ADR 0006, "Quotas"): how large each may become.
//!
//! ```text
//!  opened for writing, below a quota ─▶ Bounded, or Asks with others ─▶ Grow: is there room? ─▶ its allowed size
//!  a quota is set, or a subtree is moved below one ─▶ unlimited writers there are recalled ─▶ done
//!  too little is left, except for what others may still write ─▶ they give it back ─▶ decided
//! ```
//! Clients report what they have been given to the next holder of the rank, with their
//! capabilities; what an evicted client had written is found before anything else is decided.
//!
//! Invariant: a client that may make a file larger without asking stays within the quota.

use super::*;
use nacre_wire::fs::quota::{DirAttr, PREFIX, parse_bound};
use nacre_wire::fs::{QuotaKind, Rare};
use nacre_wire::msg::fs::{FsCap, rename_flag};

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Quotas {
    /// Files that requests will move below quotas, and that wait for their writers.
    coming: BTreeMap<(ClientId, u64), BTreeSet<Ino>>,
    /// Files whose places are needed to decide whether they move these: they stay in memory.
    sought: BTreeMap<(ClientId, u64), Vec<Ino>>,
    /// Files whose parent directories are not known yet.
    unsure: BTreeSet<Ino>,
}

impl Quotas {
    /// Files whose places are needed.
    pub fn sought(&self) -> impl Iterator<Item = Ino> {
        self.sought.values().flatten().copied()
    }
}

impl Mds {
    fn is_below_quota(&self, ino: Ino) -> bool {
        self.is_below_one(ino, |rare| rare.bytes_max.is_some())
    }
    /// Whether a condition holds for an inode or a directory above it.
    pub(super) fn is_below_one(&self, ino: Ino, is_so: impl Fn(&Rare) -> bool) -> bool {
        self.tree.upwards(ino).any(|ino| {
            self.tree
                .inode(ino)
                .and_then(|inode| inode.rare.as_deref())
                .is_some_and(&is_so)
        })
    }
    /// Records whether a file open for writing is below a quota.
    fn note_bound(&mut self, ino: Ino) {
        if self.tree.place(ino).is_some() {
            let is_coming = self.quotas.coming.values().any(|inos| inos.contains(&ino));
            self.caps.bound(ino, is_coming || self.is_below_quota(ino));
        } else if !self.caps.is_boundless(ino) {
            self.caps.bound(ino, true);
            self.quotas.unsure.insert(ino);
        }
    }
    /// A client opens a file for writing.
    pub(super) fn bound_before_opening(&mut self, ino: Ino) {
        self.note_bound(ino);
    }
    /// A client reports its open files. If it may write a file without limit, an earlier holder has
    /// found that no quota applies.
    pub(super) fn bound_before_greeting(&mut self, opens: &[FsOpens]) {
        for open in opens.iter().filter(|open| open.writes > 0) {
            let was_boundless = matches!(open.cap, FsCap::Sync {} | FsCap::Buffer {});
            if self.tree.place(open.ino).is_some() || !was_boundless {
                self.note_bound(open.ino);
            }
        }
    }
    /// Continues to find files' places.
    pub(super) fn look_for_unsure(&mut self) {
        for ino in self.quotas.unsure.clone() {
            let is_here = self.tree.place(ino).is_some();
            if is_here || !self.find(ino) {
                // A file that cannot be found stays limited: its writer asks, and is told what is
                // wrong.
                self.quotas.unsure.remove(&ino);
            }
            if is_here && self.caps.bounded().contains(&ino) {
                self.note_bound(ino);
            }
        }
    }
    /// Begins to find the place of a file open for writing; returns whether that is possible.
    fn find(&mut self, ino: Ino) -> bool {
        if let Some(place) = self.writers.place(ino) {
            self.places.hint(ino, place.clone());
        }
        self.seek(Missing::Inode(ino)).is_ok()
    }

    /// Files that a request moves below a quota.
    fn brought(&self, call: &FsCall) -> Vec<Ino> {
        let quota = |dir: Ino| self.is_below_quota(dir);
        let entry = |dir: Ino, name: &Name| match self.tree.find(dir, name) {
            Found::Entry(Entry::Inode { inode, .. }) => Some(inode.ino),
            _ => None,
        };
        match call {
            FsCall::SetXattr { ino, name, .. } if name.as_bytes().starts_with(PREFIX) => vec![*ino],
            FsCall::Rename {
                dir,
                name,
                to_dir,
                to_name,
                flags,
            } => {
                let there = entry(*dir, name).filter(|_| quota(*to_dir));
                let back = entry(*to_dir, to_name)
                    .filter(|_| flags & rename_flag::EXCHANGE != 0 && quota(*dir));
                there.into_iter().chain(back).collect()
            }
            FsCall::Link { ino, dir, .. } if quota(*dir) => vec![*ino],
            _ => Vec::new(),
        }
    }
    /// Whether a request waits until the files that it moves below a quota are no longer written
    /// without limit.
    pub(super) fn waits_for_boundless(&mut self, client: ClientId, request: &FsRequest) -> bool {
        let key = (client, request.number);
        let tops = self.brought(&request.call);
        if tops.is_empty() {
            return false;
        }
        let is_directory = |ino: &Ino| self.tree.inode(*ino).is_some_and(Inode::is_directory);
        let inos: Vec<Ino> = if tops.iter().any(is_directory) {
            self.caps.written().collect()
        } else {
            tops.clone()
        };
        if inos.iter().any(|ino| self.tree.place(*ino).is_none()) {
            self.quotas.sought.insert(key, inos.clone());
        }
        let mut waits = false;
        let mut coming = BTreeSet::new();
        for ino in inos {
            if self.tree.place(ino).is_none() {
                waits |= self.caps.is_boundless(ino) && self.find(ino);
            } else if tops.iter().any(|top| self.tree.is_below(ino, *top)) {
                coming.insert(ino);
            }
        }
        self.quotas.coming.insert(key, coming.clone());
        for ino in coming {
            if self.caps.is_open(ino) {
                self.caps.bound(ino, true);
            }
            waits |= self.caps.is_boundless(ino);
        }
        waits | self.waits_for_rooms(&request.call)
    }
    /// Whether clients have been given more below a directory than its new quota leaves: they must
    /// give it back.
    fn waits_for_rooms(&mut self, call: &FsCall) -> bool {
        let FsCall::SetXattr {
            ino, name, value, ..
        } = call
        else {
            return false;
        };
        let is_of_bytes =
            DirAttr::parse(name.as_bytes()) == Some(DirAttr::Max(QuotaKind::Bytes {}));
        let Some(max) = parse_bound(value).ok().flatten().filter(|_| is_of_bytes) else {
            return false;
        };
        let spare = self.caps.rooms().spare(&self.tree, *ino, None);
        let is_over = u128::from(self.tree.sum(*ino).bytes_below) + spare > u128::from(max);
        is_over && self.take_back_rooms(*ino, None, None)
    }
    /// Whether a client asks for space for a file while another request changes which quotas apply
    /// to it: that request comes first.
    pub(super) fn waits_for_quota(&self, call: &FsCall) -> bool {
        let FsCall::Grow { ino, .. } = call else {
            return false;
        };
        self.quotas.coming.values().any(|inos| inos.contains(ino))
    }
    /// A request is complete or abandoned.
    pub(super) fn end_coming(&mut self, client: ClientId, number: u64) {
        self.quotas.sought.remove(&(client, number));
        let Some(inos) = self.quotas.coming.remove(&(client, number)) else {
            return;
        };
        // Requests for space for those files.
        self.try_again = true;
        for ino in inos {
            if self.caps.is_open(ino) {
                self.note_bound(ino);
            }
        }
    }
    /// The same for all requests of a client.
    pub(super) fn end_all_coming(&mut self, client: ClientId) {
        // Every request with files to find has an entry there, too.
        let of_client = self.quotas.coming.keys().filter(|(who, _)| *who == client);
        let numbers: Vec<u64> = of_client.map(|(_, number)| *number).collect();
        numbers
            .into_iter()
            .for_each(|number| self.end_coming(client, number));
    }
    /// A request was executed: other quotas may apply now.
    pub(super) fn bound_after(&mut self, call: &FsCall) {
        let top = match call {
            FsCall::SetXattr { ino, name, .. } | FsCall::RemoveXattr { ino, name }
                if name.as_bytes().starts_with(PREFIX) =>
            {
                Some(*ino)
            }
            FsCall::Rename {
                to_dir, to_name, ..
            } => match self.tree.find(*to_dir, to_name) {
                Found::Entry(Entry::Inode { inode, .. }) => Some(inode.ino),
                _ => None,
            },
            _ => None,
        };
        let Some(top) = top else { return };
        if self.tree.inode(top).is_some_and(Inode::is_directory) {
            let written = self
                .caps
                .written()
                .filter(|ino| self.tree.is_below(*ino, top));
            written
                .collect::<Vec<_>>()
                .into_iter()
                .for_each(|ino| self.note_bound(ino));
        } else if self.caps.is_open(top) {
            self.note_bound(top);
        }
    }

    /// Recalls the space that clients may still use below a directory, and of what is to move
    /// there; returns whether any recall is pending.
    pub(super) fn take_back_rooms(
        &mut self,
        dir: Ino,
        moved: Option<Ino>,
        but: Option<Ino>,
    ) -> bool {
        let tops = std::iter::once(dir).chain(moved);
        let rooms = self.caps.rooms();
        let inos: BTreeSet<Ino> = tops
            .flat_map(|top| rooms.below(&self.tree, top))
            .map(|(ino, _)| ino)
            .collect();
        let inos = inos
            .into_iter()
            .filter(|ino| Some(*ino) != but || moved.is_some());
        inos.collect::<Vec<_>>()
            .into_iter()
            .fold(false, |waits, ino| self.caps.take_back_room(ino) | waits)
    }
}
