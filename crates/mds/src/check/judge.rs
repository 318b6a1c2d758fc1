//! Evaluates all entries together: the hierarchy, duplicate numbers, and the correct values of
//! heads.

use super::entries::{is_links, is_strays};
use super::*;
use crate::journal;
use nacre_wire::fs::{Inode, data_name};

/// Reachable directories and where they were reached from.
#[derive(Default)]
struct Reached {
    /// In the order in which they were reached: parents before children.
    order: Vec<Ino>,
    above: BTreeMap<Ino, Ino>,
}

impl Reached {
    fn has(&self, ino: Ino) -> bool {
        self.above.contains_key(&ino)
    }
    fn is_below(&self, mut below: Ino, above: Ino) -> bool {
        while below != above {
            match self.above.get(&below) {
                Some(next) if *next != below => below = *next,
                _ => return false,
            }
        }
        true
    }
}

impl Check {
    /// Directories that every file system has.
    fn roots(&self) -> Vec<Ino> {
        let ranks = (0..self.config.ranks).map(Rank);
        let hidden = ranks.flat_map(|rank| [Ino::links(rank), Ino::strays(rank)]);
        std::iter::once(Ino::TOP).chain(hidden).collect()
    }
    fn places_of(&self, ino: Ino) -> impl Iterator<Item = &(Ino, Name)> {
        let first = self.dirs.get(&ino).and_then(|dir| dir.place.as_ref());
        first
            .into_iter()
            .chain(self.more_places.get(&ino).into_iter().flatten())
    }
    /// Everything reachable. For a directory with several entries, the one named by its object
    /// counts if it is reachable.
    fn reach(&self, roots: &[Ino]) -> Reached {
        let (mut first, mut all) = (Vec::new(), Vec::new());
        for (ino, dir) in &self.dirs {
            let is_one = !self.more_places.contains_key(ino);
            for (above, name) in self.places_of(*ino) {
                all.push((*above, *ino));
                let said = dir.backpointer.as_ref();
                if is_one || said.is_some_and(|at| at.dir == *above && at.name == *name) {
                    first.push((*above, *ino));
                }
            }
        }
        let mut reached = Reached::default();
        for root in roots {
            if reached.above.insert(*root, *root).is_none() {
                reached.order.push(*root);
            }
        }
        for mut children in [first, all] {
            children.sort_unstable();
            let mut at = 0;
            while let Some(above) = reached.order.get(at).copied() {
                at += 1;
                let from = children.partition_point(|(dir, _)| *dir < above);
                for (_, below) in children[from..].iter().take_while(|(dir, _)| *dir == above) {
                    if !reached.has(*below) {
                        reached.above.insert(*below, above);
                        reached.order.push(*below);
                    }
                }
            }
        }
        reached
    }

    /// A directory's path, or a substitute name.
    fn path(&self, dir: Ino) -> String {
        let (mut names, mut at, mut steps) = (Vec::new(), dir, 0);
        loop {
            match at {
                Ino::ROOT => break,
                Ino::TOP => return "(above the root)".to_owned(),
                _ if is_links(at) => return format!("links.{:x}", at.0 - Ino::links(Rank(0)).0),
                _ if is_strays(at) => return format!("strays.{:x}", at.0 - Ino::strays(Rank(0)).0),
                _ => {}
            }
            let place = self.dirs.get(&at).and_then(|dir| dir.place.as_ref());
            // For a directory whose name another rank has, that name.
            let place = place.map(|place| {
                self.tops
                    .get(&at)
                    .filter(|_| is_links(place.0))
                    .unwrap_or(place)
            });
            let Some((above, name)) = place.filter(|_| steps < 4096) else {
                names.push(format!("(directory {at})"));
                names.reverse();
                return names.join("/");
            };
            names.push(name.to_string());
            (at, steps) = (*above, steps + 1);
        }
        names.reverse();
        format!("/{}", names.join("/"))
    }
    fn path_of(&self, dir: Ino, name: &Name) -> String {
        let above = self.path(dir);
        format!("{}/{name}", above.trim_end_matches('/'))
    }

    /// Inodes whose entries must all be read again: it is unclear which one is right, or the inode
    /// must be changed.
    pub(super) fn suspect(&mut self) {
        self.wanted.extend(self.twice.iter().copied());
        self.wanted.extend(self.more_places.keys().copied());
        for (ino, linked) in &self.linked {
            let right = |links| u64::from(linked.references) == u64::from(links) && links > 0;
            if !linked.inode.is_some_and(|(_, _, links)| right(links)) || linked.other_kind {
                self.wanted.insert(*ino);
            }
        }
        let roots = self.roots();
        let reached = self.reach(&roots);
        let loops = self.dirs.keys().filter(|ino| !reached.has(**ino)).copied();
        let sums = self.sums(&reached);
        let wrong = self.dirs.iter().filter(|(ino, dir)| {
            let right = sums
                .get(ino)
                .is_some_and(|sum| same(sum, dir.head.as_ref()) && dir.copy == dir.head);
            dir.place.is_some() && !right
        });
        let wanted: Vec<Ino> = loops.chain(wrong.map(|(ino, _)| *ino)).collect();
        self.wanted.extend(wanted);
    }

    /// The contents of each reachable directory, with everything below it.
    fn sums(&self, reached: &Reached) -> BTreeMap<Ino, Head> {
        let mut sums: BTreeMap<Ino, Head> = BTreeMap::new();
        for ino in reached.order.iter().rev() {
            let own = self.dirs.get(ino).map(|dir| dir.own).unwrap_or_default();
            let sum = sums.entry(*ino).or_default();
            sum.entries = own.entries;
            sum.directories = own.directories;
            sum.bytes_below += own.bytes_below;
            sum.files_below += own.files_below;
            sum.directories_below += own.directories_below;
            let sum = *sum;
            let above = reached.above[ino];
            if above != *ino {
                let above = sums.entry(above).or_default();
                above.bytes_below += sum.bytes_below;
                above.files_below += sum.files_below;
                above.directories_below += sum.directories_below + 1;
            }
        }
        sums
    }

    /// Whether names in backpointers must be looked up.
    pub(super) fn want_names(&mut self) -> bool {
        if !self.config.rebuild {
            return false;
        }
        let dirs = self
            .dirs
            .iter()
            .filter(|(ino, dir)| dir.place.is_none() && !ino.is_hidden());
        let dirs = dirs.filter_map(|(_, dir)| dir.backpointer.as_ref());
        let files = self
            .orphans
            .values()
            .filter_map(|orphan| orphan.at.as_ref());
        let names = dirs
            .chain(files)
            .map(|at| ((at.dir, at.name.clone()), false))
            .collect();
        self.names = names;
        self.cursor = None;
        !self.names.is_empty()
    }
    /// The new name of an unreferenced entry, and the changes that create it.
    fn name_for(&mut self, entry: Entry, at: Option<&Backpointer>) -> (String, Vec<Edit>) {
        let ino = entry.ino();
        let entry = Box::new(entry);
        if let Some(Backpointer { dir, name }) = at
            && dir.rank() == ino.rank()
            && self
                .names
                .get_mut(&(*dir, name.clone()))
                .is_some_and(|taken| !std::mem::replace(taken, true))
        {
            let set = Edit::Set {
                dir: *dir,
                name: name.clone(),
                entry,
            };
            if self.dirs.get(dir).is_some_and(|dir| dir.is_there) {
                return (
                    format!("it becomes {}", self.path_of(*dir, name)),
                    vec![set],
                );
            }
            if dir.0 & (Ino::SERIAL_END - 1) >= Ino::SERIAL_MIN {
                // Its directory is lost, but its number is known.
                let mut edits = Vec::new();
                if self.remade.insert(*dir) {
                    let above = self.adopted(*dir, FileKind::Directory {}, 0);
                    edits.push(Edit::Begin {
                        dir: *dir,
                        at: None,
                    });
                    edits.push(Edit::Adopt {
                        entry: Box::new(above),
                    });
                }
                edits.push(set);
                return (format!("it becomes /lost+found/{dir}/{name}"), edits);
            }
            let Edit::Set { entry, .. } = set else {
                unreachable!("just made")
            };
            return (
                format!("it becomes /lost+found/{ino}"),
                vec![Edit::Adopt { entry }],
            );
        }
        (
            format!("it becomes /lost+found/{ino}"),
            vec![Edit::Adopt { entry }],
        )
    }

    /// Collects all findings.
    pub(super) fn judge(&mut self) {
        for (dir, name, finding) in std::mem::take(&mut self.early) {
            let place = match &name {
                Some(name) => self.path_of(dir, name),
                None => self.path(dir),
            };
            self.findings.push(Finding { place, ..finding });
        }
        self.judge_transactions();
        let roots = self.roots();
        let reached = self.reach(&roots);
        self.judge_roots(&roots);
        self.judge_directories(&reached);
        self.judge_heads(&reached);
        self.judge_links();
        self.judge_numbers();
        self.judge_data();
        let is_unfinished = self
            .findings
            .iter()
            .any(|finding| finding.kind == Kind::Unfinished);
        if is_unfinished || self.dirs.values().any(|dir| dir.is_unreadable) {
            // Their contents would be taken for lost.
            self.findings.retain(|finding| finding.kind.is_local());
        }
        self.findings
            .sort_by(|a, b| (a.kind, &a.place).cmp(&(b.kind, &b.place)));
    }

    /// Changes that one rank has in its journal, and another does not have yet.
    fn judge_transactions(&mut self) {
        // With running servers, journals are read at different times.
        if !self.config.journals {
            return;
        }
        for (rank, journal) in &self.journals {
            let is_decided = |leader: &Rank, transaction| {
                self.journals
                    .get(leader)
                    .is_some_and(|leader| leader.transactions.has_committed(transaction))
            };
            let decided = journal
                .transactions
                .undecided()
                .filter(|(transaction, leader)| is_decided(leader, *transaction));
            for (transaction, leader) in decided {
                let what =
                    format!("{leader} has decided it ({transaction}), and {rank} has not done it");
                let place = journal::head_name(*rank);
                self.findings
                    .push(Finding::new(Kind::Unfinished, place, what));
            }
        }
    }

    fn judge_roots(&mut self, roots: &[Ino]) {
        for root in roots {
            let known = self.dirs.get(root);
            if known.is_some_and(|dir| dir.is_there || dir.is_unreadable) {
                continue;
            }
            let place = fragment_name(*root, Frag::WHOLE);
            let finding = Finding::new(
                Kind::Missing,
                place,
                "a file system has this object".to_owned(),
            );
            let edits = vec![Edit::Begin {
                dir: *root,
                at: None,
            }];
            self.findings
                .push(finding.repaired("it is made, with nothing in it", edits));
        }
        let top = self.dirs.get(&Ino::TOP);
        let is_readable = top.is_some_and(|top| !top.is_unreadable);
        if is_readable && self.places_of(Ino::ROOT).next().is_none() {
            let finding = Finding::new(
                Kind::Missing,
                "/".to_owned(),
                "the root has no entry".to_owned(),
            );
            let head = self
                .dirs
                .get(&Ino::ROOT)
                .and_then(|root| root.head)
                .or(Some(Head::default()));
            let entry = Box::new(Entry::Inode {
                inode: Inode::root(self.config.now),
                head: head.map(Box::new),
            });
            let edits = vec![Edit::Set {
                dir: Ino::TOP,
                name: Name::from("root"),
                entry,
            }];
            self.findings
                .push(finding.repaired("it gets one: owner root, mode 755", edits));
        }
    }

    fn judge_directories(&mut self, reached: &Reached) {
        let mut findings = Vec::new();
        // From a loop, one directory is removed from its place: the one with the lowest number.
        let (mut in_loops, mut orphans) = (BTreeSet::new(), Vec::new());
        for (ino, dir) in &self.dirs {
            if reached.has(*ino) || ino.is_hidden() {
                continue;
            }
            let object = fragment_name(*ino, Frag::WHOLE);
            if dir.place.is_none() {
                if *ino == Ino::ROOT {
                    continue;
                }
                let what = format!(
                    "no entry leads to directory {ino}, which has {} entries",
                    dir.own.entries
                );
                orphans.push((*ino, Finding::new(Kind::DirectoryOrphan, object, what)));
            } else if !in_loops.contains(ino)
                && let Some(members) = self.circle(*ino)
            {
                let what = format!(
                    "directory {ino} is below itself: {} directories in a circle",
                    members.len()
                );
                let mut edits: Vec<Edit> = self.places_of(*ino).map(unset).collect();
                let entry = self
                    .sights
                    .get(ino)
                    .and_then(|sights| sights.first())
                    .map(|sight| sight.entry.clone());
                let entry = entry.unwrap_or_else(|| self.adopted(*ino, FileKind::Directory {}, 0));
                edits.push(Edit::Adopt {
                    entry: Box::new(entry),
                });
                let finding = Finding::new(Kind::DirectoryLoop, object, what);
                findings.push(finding.repaired(format!("it becomes /lost+found/{ino}"), edits));
                in_loops.extend(members);
            }
        }
        for (ino, finding) in orphans {
            let entry = self.adopted(ino, FileKind::Directory {}, 0);
            let at = self.dirs.get(&ino).and_then(|dir| dir.backpointer.clone());
            let (repair, edits) = self.name_for(entry, at.as_ref());
            findings.push(finding.repaired(repair, edits));
        }
        for (ino, more) in &self.more_places {
            let backpointer = self.dirs.get(ino).and_then(|dir| dir.backpointer.clone());
            let is_right = |(dir, name): &&(Ino, Name)| {
                backpointer
                    .as_ref()
                    .is_some_and(|at| at.dir == *dir && at.name == *name)
            };
            let may_stay =
                |(dir, _): &&(Ino, Name)| reached.has(*dir) && !reached.is_below(*dir, *ino);
            let found = self.places_of(*ino).filter(may_stay).find(is_right);
            let Some(stays) = found
                .or_else(|| self.places_of(*ino).find(may_stay))
                .cloned()
            else {
                continue;
            };
            for other in self.places_of(*ino).filter(|place| **place != stays) {
                let what = format!("directory {ino} is {} too", self.path_of(stays.0, &stays.1));
                let place = self.path_of(other.0, &other.1);
                let finding = Finding::new(Kind::DirectoryTwice, place, what);
                findings.push(finding.repaired("this entry is removed", vec![unset(other)]));
            }
            debug_assert!(!more.is_empty(), "it has several places");
        }
        for (ino, dir) in &self.dirs {
            let Some((above, name)) = &dir.place else {
                continue;
            };
            let path = || self.path_of(*above, name);
            let at = Backpointer {
                dir: *above,
                name: name.clone(),
            };
            if !dir.is_there && !dir.is_unreadable {
                let copy = dir.copy.unwrap_or_default();
                let object = fragment_name(*ino, Frag::WHOLE);
                let what = format!(
                    "its object {object} is missing; it had {} entries",
                    copy.entries
                );
                let finding = Finding::new(Kind::DirectoryWithoutObject, path(), what);
                let edits = vec![Edit::Begin {
                    dir: *ino,
                    at: Some(at),
                }];
                findings.push(finding.repaired(
                    "it is empty from now on; what was in it is searched for",
                    edits,
                ));
                continue;
            }
            let right = match &dir.backpointer {
                Some(said) => *said == at,
                // The root initially has none.
                None => *ino == Ino::ROOT && !dir.bad_backpointer,
            };
            if !right
                && !dir.is_journaled
                && !self.more_places.contains_key(ino)
                && !dir.is_unreadable
            {
                let said = dir
                    .backpointer
                    .as_ref()
                    .map(|at| self.path_of(at.dir, &at.name));
                let what = match said {
                    Some(said) => format!("its object says that it is {said}"),
                    None => "its object does not say where it is".to_owned(),
                };
                let finding = Finding::new(Kind::Backpointer, path(), what);
                let edits = vec![Edit::Parent { dir: *ino, at }];
                findings.push(finding.repaired("its object says where it is", edits));
            }
        }
        self.findings.append(&mut findings);
    }

    /// The directories of the loop that contains this one.
    fn circle(&self, from: Ino) -> Option<BTreeSet<Ino>> {
        let (mut seen, mut at) = (BTreeSet::from([from]), from);
        loop {
            let (above, _) = self.dirs.get(&at)?.place.as_ref()?;
            if *above == from {
                return Some(seen);
            }
            // It leads to a loop but is not in it.
            if !seen.insert(*above) {
                return None;
            }
            at = *above;
        }
    }

    /// A new inode for what has lost its own.
    fn adopted(&self, ino: Ino, kind: FileKind, size: u64) -> Entry {
        let now = self.config.now;
        let mode = if matches!(kind, FileKind::Directory {}) {
            0o700
        } else {
            0o600
        };
        let head = match kind {
            FileKind::Directory {} => Some(
                self.dirs
                    .get(&ino)
                    .and_then(|dir| dir.head)
                    .unwrap_or_default(),
            ),
            _ => None,
        };
        Entry::Inode {
            inode: Inode {
                size,
                ..Inode::new(ino, kind, mode, (0, 0), now)
            },
            head: head.map(Box::new),
        }
    }

    fn judge_heads(&mut self, reached: &Reached) {
        let sums = self.sums(reached);
        let mut findings = Vec::new();
        for (ino, sum) in &sums {
            let Some(dir) = self
                .dirs
                .get(ino)
                .filter(|dir| dir.is_there && !dir.is_unreadable)
            else {
                continue;
            };
            let known = dir.head;
            let base = known.or(dir.copy).unwrap_or_default();
            let right = Head {
                mtime: base.mtime,
                change: base.change + u64::from(!same(sum, known.as_ref())),
                ..*sum
            };
            let path = self.path(*ino);
            let edit = vec![Edit::Head {
                dir: *ino,
                head: right,
            }];
            match known {
                None => {
                    // A directory that was just created has its head in its entry.
                    if self.overlay.is_all(*ino, Frag::WHOLE) && sum.entries == 0 {
                        continue;
                    }
                    let what = "what is in it is not written down, or cannot be decoded".to_owned();
                    let finding = Finding::new(Kind::BadHead, path, what);
                    findings.push(finding.repaired("it is counted again", edit));
                }
                Some(head) => {
                    let counts = |head: &Head| (head.entries, head.directories);
                    if counts(&head) != counts(sum) {
                        let (entries, directories) = counts(&head);
                        let what = format!(
                            "it counts {entries} entries, {directories} of them directories, and has {} and {}",
                            sum.entries, sum.directories
                        );
                        let mut finding = Finding::new(Kind::Count, path.clone(), what);
                        finding.same = (
                            0,
                            delta(entries, sum.entries),
                            delta(directories, sum.directories),
                        );
                        findings.push(finding.repaired("it is counted again", edit.clone()));
                    }
                    let below =
                        |head: &Head| (head.bytes_below, head.files_below, head.directories_below);
                    if below(&head) != below(sum) {
                        let (bytes, files, directories) = below(&head);
                        let what = format!(
                            "it sums up {bytes} bytes in {files} files and {directories} directories below it, and has {} in {} and {}",
                            sum.bytes_below, sum.files_below, sum.directories_below
                        );
                        let mut finding = Finding::new(Kind::Sum, path.clone(), what);
                        let bytes = delta(bytes, sum.bytes_below) as u64;
                        let deltas = (
                            delta(files, sum.files_below),
                            delta(directories, sum.directories_below),
                        );
                        finding.same = (bytes, deltas.0, deltas.1);
                        findings.push(finding.repaired("it is summed up again", edit));
                    }
                }
            }
            self.judge_copy(
                (*ino, dir),
                right,
                !same(sum, known.as_ref()),
                &mut findings,
            );
        }
        self.findings.append(&mut findings);
    }

    /// Checks an entry's copy of its directory's head.
    fn judge_copy(
        &self,
        (ino, dir): (Ino, &Dir),
        right: Head,
        follows: bool,
        findings: &mut Vec<Finding>,
    ) {
        if ino.is_hidden() || dir.copy == Some(right) {
            return;
        }
        let Some(Sight {
            dir: above,
            name,
            entry: Entry::Inode { inode, .. },
        }) = self.sights.get(&ino).and_then(|sights| sights.first())
        else {
            return;
        };
        let what = "what its entry says to be in it is not what its head says".to_owned();
        let mut finding = Finding::new(Kind::Copy, self.path_of(*above, name), what);
        // Faults of the head itself have been reported.
        let (said, known) = (dir.copy.unwrap_or_default(), dir.head.unwrap_or_default());
        let bytes = delta(said.bytes_below, known.bytes_below);
        finding.same = (
            said.change.wrapping_sub(known.change),
            bytes,
            delta(said.files_below, known.files_below),
        );
        finding.quiet = self.quiet.contains(&ino) || follows;
        let entry = Box::new(Entry::Inode {
            inode: inode.clone(),
            head: Some(Box::new(right)),
        });
        let edits = vec![Edit::Set {
            dir: *above,
            name: name.clone(),
            entry,
        }];
        findings.push(finding.repaired("it is copied again", edits));
    }

    fn judge_links(&mut self) {
        let mut findings = Vec::new();
        for (ino, linked) in &self.linked {
            let sights = self.sights.get(ino).map(Vec::as_slice).unwrap_or_default();
            let references = || {
                sights
                    .iter()
                    .filter(|sight| matches!(sight.entry, Entry::Reference { .. }))
            };
            let Some((home, kind, links)) = linked.inode else {
                // One that has an inode in a directory is reported with its number.
                if self.inodes.contains(*ino) {
                    findings.extend(self.embedded(*ino, sights));
                } else {
                    findings.extend(self.dangling(*ino, sights));
                }
                continue;
            };
            let inode = sights.iter().find_map(|sight| match &sight.entry {
                Entry::Inode { inode, .. } if sight.dir == home => Some((inode, &sight.name)),
                _ => None,
            });
            if linked.references == 0 {
                let is_directory = matches!(kind, FileKind::Directory {});
                let what = format!(
                    "no name leads to {} {ino}",
                    if is_directory { "directory" } else { "file" }
                );
                let finding = Finding::new(
                    Kind::Unreferenced,
                    self.path_of(home, &ino.to_string()[..].into()),
                    what,
                );
                let Some((inode, name)) = inode else { continue };
                let head = self
                    .dirs
                    .get(ino)
                    .filter(|_| is_directory)
                    .map(|dir| dir.head.unwrap_or_default());
                let entry = Entry::Inode {
                    inode: Inode {
                        links: 1,
                        ..inode.clone()
                    },
                    head: head.map(Box::new),
                };
                let mut edits = vec![Edit::Adopt {
                    entry: Box::new(entry),
                }];
                if home.rank() == Ino::ROOT.rank() {
                    edits.push(Edit::Unset {
                        dir: home,
                        key: key_of(name),
                    });
                }
                findings.push(finding.repaired(format!("it becomes /lost+found/{ino}"), edits));
                continue;
            }
            if linked.other_kind {
                for sight in references().filter(|sight| sight.entry.kind() != kind) {
                    let place = self.path_of(sight.dir, &sight.name);
                    let what = format!(
                        "it says to be {:?}, and stands for {kind:?}",
                        sight.entry.kind()
                    );
                    let Entry::Reference { home, .. } = sight.entry else {
                        continue;
                    };
                    let entry = Box::new(Entry::Reference {
                        ino: *ino,
                        kind,
                        home,
                    });
                    let edits = vec![Edit::Set {
                        dir: sight.dir,
                        name: sight.name.clone(),
                        entry,
                    }];
                    let finding = Finding::new(Kind::ReferenceKind, place, what);
                    findings.push(finding.repaired("it says what its inode says", edits));
                }
            }
            if matches!(kind, FileKind::Directory {}) {
                let first = references()
                    .next()
                    .map(|sight| self.path_of(sight.dir, &sight.name));
                for sight in references().skip(1) {
                    let place = self.path_of(sight.dir, &sight.name);
                    let what = format!(
                        "directory {ino} is {} too",
                        first.as_deref().unwrap_or_default()
                    );
                    let edits = vec![unset(&(sight.dir, sight.name.clone()))];
                    let finding = Finding::new(Kind::DirectoryTwice, place, what);
                    findings.push(finding.repaired("this entry is removed", edits));
                }
                continue;
            }
            if links != linked.references
                && let Some((inode, name)) = inode
            {
                let what = format!(
                    "its link count is {links}, and it has {} names",
                    linked.references
                );
                let mut finding = Finding::new(Kind::Links, self.path_of(home, name), what);
                finding.same = (0, i64::from(links) - i64::from(linked.references), 0);
                let entry = Entry::Inode {
                    inode: Inode {
                        links: linked.references,
                        ..inode.clone()
                    },
                    head: None,
                };
                let edits = vec![Edit::Set {
                    dir: home,
                    name: name.clone(),
                    entry: Box::new(entry),
                }];
                findings.push(finding.repaired("it is set right", edits));
            }
        }
        for ino in &self.twice {
            findings.extend(self.number_twice(*ino));
        }
        self.findings.append(&mut findings);
    }

    /// References to an inode that does not exist.
    fn dangling(&self, ino: Ino, sights: &[Sight]) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut is_made = false;
        for sight in sights {
            let Entry::Reference { kind, home, .. } = sight.entry else {
                continue;
            };
            let place = self.path_of(sight.dir, &sight.name);
            let what = format!("it is a reference to inode {ino}, which is not there");
            let finding = Finding::new(Kind::Dangling, place, what);
            if !matches!(kind, FileKind::File {}) {
                let edits = vec![unset(&(sight.dir, sight.name.clone()))];
                findings.push(finding.repaired("it is removed: what it stood for is lost", edits));
                continue;
            }
            let mut edits = Vec::new();
            if !std::mem::replace(&mut is_made, true) {
                let orphan = self.orphans.get(&ino);
                let size = orphan.map_or(0, |orphan| self.orphan_size(orphan));
                let Entry::Inode { mut inode, .. } = self.adopted(ino, kind, size) else {
                    continue;
                };
                inode.links = u32::try_from(sights.len()).unwrap_or(u32::MAX);
                inode.layout = Some(self.layout_of(orphan));
                let (dir, name) = (Ino::links(Rank(home)), Name::from(&*ino.to_string()));
                let entry = Box::new(Entry::Inode { inode, head: None });
                edits.push(Edit::Set { dir, name, entry });
            }
            findings.push(finding.repaired("the inode is made again: owner root, mode 600", edits));
        }
        findings
    }
    /// References to an inode that is in a directory, as if it had one name.
    fn embedded(&self, ino: Ino, sights: &[Sight]) -> Option<Finding> {
        let sight = sights
            .iter()
            .find(|sight| matches!(sight.entry, Entry::Inode { .. }))?;
        let home = sights.iter().find_map(|sight| match sight.entry {
            Entry::Reference { home, .. } => Some(home),
            Entry::Inode { .. } => None,
        })?;
        let Entry::Inode { inode, .. } = &sight.entry else {
            return None;
        };
        let what = format!("file {ino} has other names, and its inode is here");
        let finding = Finding::new(Kind::Dangling, self.path_of(sight.dir, &sight.name), what);
        let name = Name::from(&*ino.to_string());
        let links = u32::try_from(sights.len()).unwrap_or(u32::MAX);
        let inode = Inode {
            links,
            ..inode.clone()
        };
        let reference = Box::new(Entry::Reference {
            ino,
            kind: inode.kind,
            home,
        });
        let entry = Box::new(Entry::Inode { inode, head: None });
        let mut edits = vec![Edit::Set {
            dir: Ino::links(Rank(home)),
            name,
            entry,
        }];
        if is_strays(sight.dir) {
            edits.push(unset(&(sight.dir, sight.name.clone())));
        } else {
            edits.push(Edit::Set {
                dir: sight.dir,
                name: sight.name.clone(),
                entry: reference,
            });
        }
        Some(finding.repaired("the inode moves to where its names say that it is", edits))
    }
    /// A file's inode in several entries.
    fn number_twice(&self, ino: Ino) -> Vec<Finding> {
        let Some(sights) = self.sights.get(&ino) else {
            return Vec::new();
        };
        let inodes: Vec<(&Sight, &Inode)> = sights
            .iter()
            .filter_map(|sight| match &sight.entry {
                Entry::Inode { inode, .. } => Some((sight, inode)),
                Entry::Reference { .. } => None,
            })
            .collect();
        let rank = |sight: &Sight, inode: &Inode| {
            (is_links(sight.dir), !is_strays(sight.dir), inode.change)
        };
        let Some(stays) = inodes
            .iter()
            .max_by_key(|(sight, inode)| rank(sight, inode))
        else {
            return Vec::new();
        };
        let home = is_links(stays.0.dir).then(|| (stays.0.dir.0 - Ino::links(Rank(0)).0) as u16);
        let mut findings = Vec::new();
        for (sight, inode) in &inodes {
            if (sight.dir, &sight.name) == (stays.0.dir, &stays.0.name) {
                continue;
            }
            let other = self.path_of(stays.0.dir, &stays.0.name);
            let what = format!("inode {ino} is {other} too");
            let finding = Finding::new(
                Kind::NumberTwice,
                self.path_of(sight.dir, &sight.name),
                what,
            );
            findings.push(
                match home.filter(|_| !is_strays(sight.dir) && !is_links(sight.dir)) {
                    Some(home) => {
                        let entry = Box::new(Entry::Reference {
                            ino,
                            kind: inode.kind,
                            home,
                        });
                        let edits = vec![Edit::Set {
                            dir: sight.dir,
                            name: sight.name.clone(),
                            entry,
                        }];
                        finding.repaired("it becomes one of its names", edits)
                    }
                    None => {
                        let edits = vec![unset(&(sight.dir, sight.name.clone()))];
                        finding.repaired(
                            "this entry is removed: the other one was changed later",
                            edits,
                        )
                    }
                },
            );
        }
        findings
    }

    fn judge_numbers(&mut self) {
        let mut findings = Vec::new();
        for (rank, highest) in &self.highest {
            let Some(journal) = self.journals.get(&Rank(*rank)) else {
                let what = format!(
                    "inodes have numbers of rank {rank}, which the file system does not have"
                );
                findings.push(Finding::new(
                    Kind::NumberNotGiven,
                    format!("rank {rank}"),
                    what,
                ));
                continue;
            };
            if *highest >= journal.serial && self.config.journals {
                let what = format!(
                    "an inode has serial {highest:x}, and the journal says that {:x} is given next",
                    journal.serial
                );
                let finding = Finding::new(Kind::NumberNotGiven, format!("rank {rank}"), what);
                let edits = vec![Edit::Serial {
                    rank: Rank(*rank),
                    serial: highest + 1,
                }];
                findings.push(finding.repaired("serials go on behind it", edits));
            }
        }
        self.findings.append(&mut findings);
    }

    fn layout_of(&self, orphan: Option<&OrphanData>) -> Layout {
        let layout = self.config.layout;
        Layout {
            pool: orphan.map_or(layout.pool, |orphan| orphan.pool),
            ..layout
        }
    }
    fn judge_data(&mut self) {
        let mut findings = Vec::new();
        let orphans = std::mem::take(&mut self.orphans);
        for (ino, orphan) in &orphans {
            // Its names are reported.
            if self.linked.contains_key(ino) {
                continue;
            }
            let size = self.orphan_size(orphan);
            let said = orphan
                .at
                .as_ref()
                .map(|at| format!("; it was {}", self.path_of(at.dir, &at.name)));
            let said = said.unwrap_or_default();
            let what = format!(
                "no inode has the data of file {ino}: {} objects, {size} bytes{said}",
                orphan.objects
            );
            let Entry::Inode { mut inode, head } = self.adopted(*ino, FileKind::File {}, size)
            else {
                continue;
            };
            inode.layout = Some(self.layout_of(Some(orphan)));
            let finding = Finding::new(Kind::DataOrphan, data_name(*ino, 0), what);
            let (repair, edits) = self.name_for(Entry::Inode { inode, head }, orphan.at.as_ref());
            findings.push(finding.repaired(format!("{repair}: owner root, mode 600"), edits));
        }
        self.orphans = orphans;
        self.findings.append(&mut findings);
    }
}

fn unset((dir, name): &(Ino, Name)) -> Edit {
    Edit::Unset {
        dir: *dir,
        key: key_of(name),
    }
}
fn delta(said: u64, right: u64) -> i64 {
    said.wrapping_sub(right) as i64
}
/// Whether two heads have equal counts and sums.
fn same(sum: &Head, head: Option<&Head>) -> bool {
    let of = |head: &Head| {
        (
            head.entries,
            head.directories,
            head.bytes_below,
            head.files_below,
            head.directories_below,
        )
    };
    head.is_some_and(|head| of(head) == of(sum))
}
