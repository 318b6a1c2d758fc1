//! Reads all entries once; keeps what they add up to, but not the entries.

use super::*;
use crate::mds::{HEAD_ATTR, PARENT_ATTR};
use nacre_wire::Wire as _;
use nacre_wire::fs::Inode;
use nacre_wire::fs::entry::{NAME_MAX, entry_name};
use nacre_wire::msg::client::SubReply;

/// Entries read at a time.
const PAGE: u32 = 1000;

impl Check {
    pub(super) fn read_fragment(&mut self, dir: Ino, frag: Frag) {
        let mut left = BTreeMap::new();
        for change in self.overlay.changes(dir, frag) {
            match change {
                crate::change::Change::Set { name, entry, .. } => {
                    drop(left.insert(name, Some(entry)))
                }
                crate::change::Change::Remove { name, .. } => drop(left.insert(name, None)),
                _ => {}
            }
        }
        if self.overlay.is_all(dir, frag) {
            self.dirs.entry(dir).or_default().is_there = true;
            self.end_fragment(dir, left);
            return;
        }
        self.read_page((dir, frag), Bytes::new(), true, left);
    }
    fn read_page(
        &mut self,
        (dir, frag): (Ino, Frag),
        after: Bytes,
        first: bool,
        left: BTreeMap<Name, Option<Entry>>,
    ) {
        let mut ops = vec![SubOp::OmapList { after, limit: PAGE }];
        if first {
            ops.push(SubOp::ListAttrs {});
        }
        let pool = self.config.pool;
        self.push(
            Purpose::Page {
                dir,
                frag,
                first,
                left,
            },
            pool,
            &fragment_name(dir, frag),
            ops,
        );
    }

    pub(super) fn on_page(
        &mut self,
        (dir, frag): (Ino, Frag),
        first: bool,
        mut left: BTreeMap<Name, Option<Entry>>,
        result: Result<Done, Trouble>,
    ) {
        let (entries, more, attrs) = match result.map(|done| done.results) {
            Ok(results) => match &results[..] {
                [SubReply::Entries { entries, more }] => (entries.clone(), *more, Vec::new()),
                [
                    SubReply::Entries { entries, more },
                    SubReply::Entries { entries: attrs, .. },
                ] => (entries.clone(), *more, attrs.clone()),
                _ => return self.lose(dir, frag, "the answer is of another version"),
            },
            Err(Trouble::NotFound) => return self.end_fragment(dir, left),
            Err(Trouble::Other(why)) => return self.lose(dir, frag, &why),
        };
        if first && self.stage == Stage::Fragments {
            self.on_attributes(dir, frag, &attrs);
        }
        let after = entries
            .last()
            .map(|(key, _)| key.clone())
            .unwrap_or_default();
        for (key, value) in entries {
            self.on_entry(dir, &key, &value, &mut left);
        }
        if more {
            self.read_page((dir, frag), after, false, left);
        } else {
            self.end_fragment(dir, left);
        }
    }
    fn lose(&mut self, dir: Ino, frag: Frag, why: &str) {
        self.dirs.entry(dir).or_default().is_unreadable = true;
        if self.stage == Stage::Fragments {
            self.find(
                Kind::Unreadable,
                fragment_name(dir, frag),
                format!("it cannot be read: {why}"),
            );
        }
    }
    /// Handles the remaining names of the journal.
    fn end_fragment(&mut self, dir: Ino, left: BTreeMap<Name, Option<Entry>>) {
        for (name, entry) in left {
            if let Some(entry) = entry {
                self.see(dir, name, entry, true);
            }
        }
        self.dirs.entry(dir).or_default();
    }

    fn on_attributes(&mut self, dir: Ino, frag: Frag, attrs: &[(Bytes, Bytes)]) {
        let attr = |name: &str| {
            attrs
                .iter()
                .find(|(key, _)| key == name)
                .map(|(_, value)| value)
        };
        let head = attr(HEAD_ATTR).map(|value| Head::from_bytes(value));
        let parent = attr(PARENT_ATTR).map(|value| Backpointer::from_bytes(value));
        if frag != Frag::WHOLE {
            let what = "its directory was never divided";
            self.find(Kind::Fragment, fragment_name(dir, frag), what);
        }
        let known = self.dirs.entry(dir).or_default();
        known.is_there = true;
        known.head = head.and_then(Result::ok);
        known.bad_backpointer = matches!(parent, Some(Err(_)));
        known.backpointer = parent.and_then(Result::ok);
    }

    fn on_entry(
        &mut self,
        dir: Ino,
        key: &Bytes,
        value: &Bytes,
        left: &mut BTreeMap<Name, Option<Entry>>,
    ) {
        let again = self.stage != Stage::Fragments;
        let (name, entry) = (entry_name(&Name::copy(key)), Entry::from_bytes(value));
        match (name, entry) {
            (Some(name), entry) => match (left.remove(&name), entry) {
                (Some(Some(entry)), _) => self.see(dir, name, entry, true),
                (Some(None), _) => {}
                (None, Ok(entry)) => self.see(dir, name, entry, false),
                (None, Err(_)) if again => {}
                (None, Err(_)) => {
                    let finding = Finding::new(
                        Kind::BadEntry,
                        String::new(),
                        "its entry cannot be decoded".to_owned(),
                    );
                    let edits = vec![Edit::Unset {
                        dir,
                        key: key.clone(),
                    }];
                    let repair = "the entry is removed; what it led to is searched for";
                    self.early
                        .push((dir, Some(name), finding.repaired(repair, edits)));
                }
            },
            (None, _) if again => {}
            (None, entry) => {
                let what =
                    format!("its directory has it under a key that is not its name's: {key:?}");
                let name = key
                    .get(8..)
                    .filter(|name| !name.is_empty() && name.len() <= NAME_MAX);
                let name = name.map(Name::copy);
                let mut edits = vec![Edit::Unset {
                    dir,
                    key: key.clone(),
                }];
                let mut repair = "the key is removed; what it led to is searched for";
                if let (Some(name), Ok(entry)) = (name.clone(), entry) {
                    edits.push(Edit::Set {
                        dir,
                        name,
                        entry: Box::new(entry),
                    });
                    repair = "it gets the key of its name";
                }
                let finding = Finding::new(Kind::BadKey, String::new(), what);
                self.early
                    .push((dir, name, finding.repaired(repair, edits)));
            }
        }
    }

    /// Handles an entry.
    fn see(&mut self, dir: Ino, name: Name, mut entry: Entry, is_journaled: bool) {
        if let Entry::Inode {
            inode,
            head: Some(copy),
        } = &mut entry
            && let Some(newer) = self.overlay.head(inode.ino)
        {
            **copy = newer;
        }
        let ino = entry.ino();
        if self.config.dump {
            return self.rows.push(Row { dir, name, entry });
        }
        if self.stage == Stage::Names {
            self.names
                .entry((dir, name))
                .and_modify(|taken| *taken = true);
            return;
        }
        if self.stage == Stage::Again {
            if self.wanted.contains(&ino) {
                self.sights
                    .entry(ino)
                    .or_default()
                    .push(Sight { dir, name, entry });
            }
            return;
        }
        let is_root = ino == Ino::ROOT && dir == Ino::TOP;
        if !is_root && (ino.0 & (Ino::SERIAL_END - 1)) < Ino::SERIAL_MIN {
            let what = format!("its number {ino} is none that is given");
            let edits = vec![Edit::Unset {
                dir,
                key: key_of(&name),
            }];
            let finding = Finding::new(Kind::BadEntry, String::new(), what);
            let repair = "the entry is removed";
            return self
                .early
                .push((dir, Some(name), finding.repaired(repair, edits)));
        }
        if is_hidden_home(dir) && *name.as_bytes() != *ino.to_string().as_bytes() {
            let what = format!("its number is {ino}");
            let finding = Finding::new(Kind::HiddenName, String::new(), what);
            let (key, entry) = (key_of(&name), Box::new(entry.clone()));
            let right = Name::from(&*ino.to_string());
            let edits = vec![
                Edit::Unset { dir, key },
                Edit::Set {
                    dir,
                    name: right,
                    entry,
                },
            ];
            self.early.push((
                dir,
                Some(name.clone()),
                finding.repaired("it is named by its number", edits),
            ));
        }
        if matches!(entry, Entry::Inode { .. })
            && ino.rank() != dir.rank()
            && ino.rank().0 < self.config.ranks
        {
            let what = format!(
                "its inode {ino} is of {}, and its directory of {}",
                ino.rank(),
                dir.rank()
            );
            let home = Edit::Set {
                dir: Ino::links(ino.rank()),
                name: Name::from(&*ino.to_string()),
                entry: entry.clone().into(),
            };
            let reference = Entry::Reference {
                ino,
                kind: entry.kind(),
                home: ino.rank().0,
            };
            let edits = vec![
                home,
                Edit::Set {
                    dir,
                    name: name.clone(),
                    entry: reference.into(),
                },
            ];
            let finding = Finding::new(Kind::OtherRank, String::new(), what);
            let repair = "the inode goes to its rank, and this becomes a name of it";
            self.early
                .push((dir, Some(name.clone()), finding.repaired(repair, edits)));
        }
        let own = &mut self.dirs.entry(dir).or_default().own;
        own.entries += 1;
        match entry {
            Entry::Inode { inode, head } if inode.is_directory() => {
                own.directories += 1;
                self.see_directory(dir, name, &inode, head.map(|head| *head), is_journaled);
            }
            Entry::Inode { inode, .. } => {
                own.bytes_below += inode.size;
                own.files_below += 1;
                self.see_file(dir, name, &inode);
            }
            Entry::Reference { ino, kind, .. } => {
                if matches!(kind, FileKind::Directory {}) {
                    // Its contents count at the rank that has it.
                    own.directories += 1;
                    own.directories_below += 1;
                    self.tops.entry(ino).or_insert((dir, name));
                } else {
                    own.files_below += 1;
                }
                let linked = self.linked.entry(ino).or_default();
                linked.references += 1;
                linked.other_kind |= linked.inode.is_some_and(|(_, known, _)| known != kind);
                // The inode may be read later.
                if linked.inode.is_none() {
                    self.kinds.entry(ino).or_insert(kind);
                }
            }
        }
    }

    fn see_number(&mut self, ino: Ino) {
        if ino != Ino::ROOT {
            let (rank, serial) = ((ino.0 >> 48) as u16, ino.0 & (Ino::SERIAL_END - 1));
            let highest = self.highest.entry(rank).or_default();
            *highest = serial.max(*highest);
        }
    }

    fn see_directory(
        &mut self,
        dir: Ino,
        name: Name,
        inode: &Inode,
        copy: Option<Head>,
        is_journaled: bool,
    ) {
        self.counts.directories += 1;
        let ino = inode.ino;
        self.see_number(ino);
        if is_links(dir) {
            let linked = self.linked.entry(ino).or_default();
            linked.inode = Some((dir, inode.kind, 1));
            linked.other_kind |= self.kinds.get(&ino).is_some_and(|kind| *kind != inode.kind);
        }
        if dir == Ino::ROOT && *name.as_bytes() == *b"lost+found" {
            self.lost_found = Some(ino);
        }
        let known = self.dirs.entry(ino).or_default();
        if known.place.is_some() {
            self.more_places.entry(ino).or_default().push((dir, name));
            return;
        }
        known.place = Some((dir, name));
        (known.copy, known.is_journaled) = (copy, is_journaled);
    }

    fn see_file(&mut self, dir: Ino, name: Name, inode: &Inode) {
        self.counts.files += 1;
        let ino = inode.ino;
        self.see_number(ino);
        if !self.inodes.insert(ino) {
            self.twice.insert(ino);
            return;
        }
        let home = is_links(dir);
        if home {
            let linked = self.linked.entry(ino).or_default();
            linked.inode = Some((dir, inode.kind, inode.links));
            linked.other_kind |= self.kinds.get(&ino).is_some_and(|kind| *kind != inode.kind);
        } else {
            let right = u32::from(!is_strays(dir));
            if inode.links != right {
                let what = format!("its link count is {}, and not {right}", inode.links);
                let finding = Finding::new(Kind::Links, String::new(), what);
                let entry = Entry::Inode {
                    inode: Inode {
                        links: right,
                        ..inode.clone()
                    },
                    head: None,
                };
                let edits = vec![Edit::Set {
                    dir,
                    name: name.clone(),
                    entry: Box::new(entry),
                }];
                self.early.push((
                    dir,
                    Some(name.clone()),
                    finding.repaired("it is set right", edits),
                ));
            }
        }
        let Some(layout) = inode.layout else { return };
        self.counts.bytes += inode.size;
        self.data_pools.insert(layout.pool);
        self.files.insert(ino);
        let mut end = inode.size.max(inode.stale_to());
        if self
            .journals
            .values()
            .any(|journal| journal.writers.is_written(ino))
        {
            // Its writer has not reported all of it yet, or the next server will look for it.
            end = end.max(inode.data_to() + layout.reach());
        }
        let objects = layout.objects(end);
        if objects > 0 {
            self.begun.insert(ino);
        }
        if objects > 1 {
            self.large.push((ino, objects));
        }
        if !self.config.quick {
            let at = (!home && !is_strays(dir)).then(|| Backpointer {
                dir,
                name: name.clone(),
            });
            self.read_lengths(ino, layout, end, at, (dir, name));
        }
    }
}

pub(super) fn is_links(dir: Ino) -> bool {
    dir >= Ino::links(Rank(0)) && dir <= Ino::links(Rank(u16::MAX))
}
pub(super) fn is_strays(dir: Ino) -> bool {
    dir >= Ino::strays(Rank(0)) && dir <= Ino::strays(Rank(u16::MAX))
}
fn is_hidden_home(dir: Ino) -> bool {
    is_links(dir) || is_strays(dir)
}
