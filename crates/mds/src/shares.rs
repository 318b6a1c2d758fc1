//! Which clients keep what they were told of a directory: its names, and the attributes of what
//! they stand for (CEPH-12, -17, -30).
//!
//! ```text
//!  answer about dir ─▶ the client has a share of dir
//!  another client changes a name or attributes in dir ─▶ FsForget to all who have a share ─▶ FsForgot: met
//!                                                                                     └ silent: its lease ends: met
//! ```
//! A share is of a directory, not of each inode: a listing of 10,000 files costs one entry here,
//! and what changes is forgotten one by one. A client that asks for nothing while it is told to
//! forget again and again loses the share.
//!
//! Invariant: the change is answered, and shown to others, when each [`Wait`] is met: nothing old
//! is shown by a cache after something new was shown to anyone.

use crate::change::Change;
use crate::mutants::{Mutant, mutant};
use crate::tree::{Found, Tree};
use nacre_types::{ClientId, Ino};
use nacre_wire::msg::fs::{FsForget, FsStale};
use std::collections::{BTreeMap, BTreeSet};

/// Directories that a client may have shares of. Some 100 bytes each.
const SHARES_MAX: usize = 20_000;
/// A client that was told so often to forget something of a directory, and has not asked since, has
/// its share no more.
const UNUSED_MAX: u32 = 16;

/// A client has to say that it has forgotten what it was told with this number.
pub(crate) type Wait = (ClientId, u64);

#[derive(Clone, Debug, Default)]
struct Told {
    dirs: BTreeSet<Ino>,
    /// For its next message.
    pending: Vec<FsStale>,
    /// The number that message will have, if it has one.
    number: u64,
    /// All up to this is forgotten.
    forgot: u64,
}

/// See the module head.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shares {
    /// Who has a share of a directory, and what each was told since it asked last.
    holders: BTreeMap<Ino, BTreeMap<ClientId, u32>>,
    clients: BTreeMap<ClientId, Told>,
    /// Those that have something to forget, and have not said that it is done.
    owing: BTreeSet<ClientId>,
    /// Those of them that were not told yet.
    untold: BTreeSet<ClientId>,
    /// The last number that was given: numbers of all clients grow together, so that one that
    /// comes back waits for nothing of what it was told before.
    last: u64,
}

impl Shares {
    /// The client is shown something of a directory; whether its share is new.
    pub fn grant(&mut self, client: ClientId, dir: Ino) -> bool {
        let last = self.last;
        let told = self.clients.entry(client).or_insert_with(|| Told {
            forgot: last,
            ..Told::default()
        });
        if told.dirs.len() >= SHARES_MAX && !told.dirs.contains(&dir) {
            return false;
        }
        // What it is told of it now comes after what it is to forget.
        let ends = told
            .pending
            .iter()
            .any(|item| matches!(item, FsStale::Share { dir: of } if *of == dir));
        if ends {
            return false;
        }
        let is_new = told.dirs.insert(dir);
        self.holders.entry(dir).or_default().insert(client, 0);
        is_new
    }

    /// Whether no other client keeps anything of a directory.
    pub fn is_alone(&self, client: ClientId, dir: Ino) -> bool {
        self.holders
            .get(&dir)
            .is_some_and(|of_dir| of_dir.len() == 1 && of_dir.contains_key(&client))
    }

    /// A change is about to be made by a client, or by the server itself: what others have to
    /// forget.
    pub fn on_change(
        &mut self,
        by: Option<ClientId>,
        change: &Change,
        tree: &Tree,
        waits: &mut Vec<Wait>,
    ) {
        let (dir, name, new) = match change {
            Change::Set {
                dir, name, entry, ..
            } => (*dir, name, Some(entry.ino())),
            Change::Remove { dir, name, .. } => (*dir, name, None),
            Change::End { dir } => return self.end(by, *dir, waits),
            // Sums are shown as they are; a head changes with a name.
            Change::Head { .. } | Change::Begin { .. } => return,
        };
        if !self.holders.contains_key(&dir) {
            return;
        }
        let old = match tree.find(dir, name) {
            Found::Entry(entry) => Some(entry.ino()),
            Found::Nothing | Found::Unknown(..) => None,
        };
        if new.is_none() || new != old {
            self.tell(
                by,
                dir,
                &FsStale::Name {
                    dir,
                    name: name.clone(),
                },
                waits,
            );
        }
        // One may keep the attributes of what it knows no name of.
        if let Some(ino) = old {
            self.tell(by, dir, &FsStale::Node { ino }, waits);
        }
    }

    /// All who have a share of a directory, but one, are to forget something of it.
    pub fn tell(&mut self, by: Option<ClientId>, dir: Ino, item: &FsStale, waits: &mut Vec<Wait>) {
        let Some(of_dir) = self.holders.get_mut(&dir) else {
            return;
        };
        let others = of_dir.iter_mut().filter(|(client, _)| Some(**client) != by);
        let others: Vec<(ClientId, bool)> = others
            .map(|(client, unused)| {
                *unused += 1;
                (*client, *unused > UNUSED_MAX)
            })
            .collect();
        for (client, ends) in others {
            let item = if ends {
                FsStale::Share { dir }
            } else {
                item.clone()
            };
            waits.push((client, self.push(client, item)));
            if ends {
                self.drop_holder(dir, client);
                self.clients
                    .get_mut(&client)
                    .expect("just told")
                    .dirs
                    .remove(&dir);
            }
        }
    }

    /// A directory is gone: who knows all its names would say that it is empty. Its maker is told,
    /// too: it may not know which directory went, and is not waited for.
    fn end(&mut self, by: Option<ClientId>, dir: Ino, waits: &mut Vec<Wait>) {
        for client in self.holders.remove(&dir).unwrap_or_default().into_keys() {
            let number = self.push(client, FsStale::Share { dir });
            self.clients
                .get_mut(&client)
                .expect("just told")
                .dirs
                .remove(&dir);
            if Some(client) != by {
                waits.push((client, number));
            }
        }
    }

    /// A client's next message has this, too; its number.
    fn push(&mut self, client: ClientId, item: FsStale) -> u64 {
        let told = self
            .clients
            .get_mut(&client)
            .expect("who has a share is known");
        if self.untold.insert(client) {
            self.last += 1;
            told.number = self.last;
            self.owing.insert(client);
        }
        if told.pending.last() != Some(&item) {
            told.pending.push(item);
        }
        told.number
    }
    fn drop_holder(&mut self, dir: Ino, client: ClientId) {
        if let Some(of_dir) = self.holders.get_mut(&dir) {
            of_dir.remove(&client);
            if of_dir.is_empty() {
                self.holders.remove(&dir);
            }
        }
    }

    /// What clients are to be told now.
    pub fn take(&mut self, into: &mut Vec<(ClientId, FsForget)>) {
        for client in std::mem::take(&mut self.untold) {
            let told = self
                .clients
                .get_mut(&client)
                .expect("who is to be told is known");
            let items = std::mem::take(&mut told.pending);
            into.push((
                client,
                FsForget {
                    number: told.number,
                    items,
                },
            ));
        }
    }
    /// A client has forgotten all up to that.
    pub fn on_forgot(&mut self, client: ClientId, number: u64) {
        if let Some(told) = self.clients.get_mut(&client) {
            told.forgot = told.forgot.max(number);
            if told.forgot >= told.number {
                self.owing.remove(&client);
            }
        }
    }
    /// A client keeps nothing any more: it is gone, or has said so, or its lease has ended.
    pub fn void(&mut self, client: ClientId) {
        let Some(told) = self.clients.remove(&client) else {
            return;
        };
        self.owing.remove(&client);
        self.untold.remove(&client);
        for dir in told.dirs {
            self.drop_holder(dir, client);
        }
    }

    /// Whether that is forgotten.
    pub fn is_met(&self, (client, number): &Wait) -> bool {
        self.clients
            .get(client)
            .is_none_or(|told| told.forgot >= *number)
            || mutant(Mutant::ForgettingNotAwaited)
    }
    /// Clients that have something to forget, and have not said that it is done.
    pub fn owing(&self) -> impl Iterator<Item = ClientId> {
        self.owing.iter().copied()
    }

    /// Asserts that both ways to a share agree.
    #[cfg(test)]
    fn check(&self) {
        let of_dirs: usize = self.holders.values().map(BTreeMap::len).sum();
        let of_clients: usize = self.clients.values().map(|told| told.dirs.len()).sum();
        assert_eq!(of_dirs, of_clients);
        let owes = self
            .clients
            .iter()
            .filter(|(_, told)| told.forgot < told.number);
        assert!(owes.map(|(client, _)| client).eq(&self.owing));
        let untold = self
            .clients
            .iter()
            .filter(|(_, told)| !told.pending.is_empty());
        assert!(untold.map(|(client, _)| client).eq(&self.untold));
        for (dir, clients) in &self.holders {
            assert!(
                clients
                    .keys()
                    .all(|client| self.clients[client].dirs.contains(dir)),
                "{dir}"
            );
        }
    }
}

#[cfg(test)]
#[path = "shares_explored.rs"]
mod explored;
#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::{Frag, Name};
    use nacre_wire::fs::{Entry, FileKind, Head, Inode, Stamp};

    const ANNA: ClientId = ClientId(1);
    const BERT: ClientId = ClientId(2);
    const DIR: Ino = Ino::ROOT;

    fn inode_entry(ino: u64) -> Entry {
        Entry::Inode {
            inode: Inode::new(Ino(ino), FileKind::File {}, 0o644, (0, 0), Stamp(1)),
            head: None,
        }
    }
    fn tree() -> Tree {
        let mut tree = Tree::default();
        tree.load(
            DIR,
            Frag::WHOLE,
            Head::default(),
            vec![("a".into(), inode_entry(50))],
        );
        tree
    }
    fn set(name: &str, ino: u64) -> Change {
        Change::Set {
            dir: DIR,
            frag: Frag::WHOLE,
            name: Name::from(name),
            entry: inode_entry(ino),
        }
    }
    fn told(shares: &mut Shares) -> Vec<(ClientId, FsForget)> {
        let mut all = Vec::new();
        shares.take(&mut all);
        shares.check();
        all
    }

    /// A client had asked for a file by its number, and knew no name of it. Another one moved the
    /// file away, and the first was told the name only: it went on with old attributes.
    /// (Simulated seed 108.)
    #[test]
    fn what_had_the_name_is_forgotten_with_it() {
        let (mut shares, tree, mut waits) = (Shares::default(), tree(), Vec::new());
        assert!(shares.grant(BERT, DIR));
        let remove = Change::Remove {
            dir: DIR,
            frag: Frag::WHOLE,
            name: "a".into(),
        };
        shares.on_change(Some(ANNA), &remove, &tree, &mut waits);
        shares.on_change(Some(ANNA), &set("a", 51), &tree, &mut waits);
        let [(BERT, forget)] = &told(&mut shares)[..] else {
            panic!("one of them")
        };
        let (name, node) = (
            FsStale::Name {
                dir: DIR,
                name: "a".into(),
            },
            FsStale::Node { ino: Ino(50) },
        );
        assert_eq!(forget.items, [name.clone(), node.clone(), name, node]);
    }

    #[test]
    fn others_forget_what_changes_and_are_waited_for() {
        let (mut shares, tree, mut waits) = (Shares::default(), tree(), Vec::new());
        assert!(shares.grant(ANNA, DIR) && shares.grant(BERT, DIR) && !shares.grant(BERT, DIR));
        shares.on_change(Some(ANNA), &set("a", 50), &tree, &mut waits);
        shares.on_change(Some(ANNA), &set("b", 51), &tree, &mut waits);
        let [(BERT, forget)] = &told(&mut shares)[..] else {
            panic!("one of them")
        };
        assert_eq!(
            forget.items,
            [
                FsStale::Node { ino: Ino(50) },
                FsStale::Name {
                    dir: DIR,
                    name: "b".into()
                }
            ]
        );
        assert!(waits.iter().all(|wait| !shares.is_met(wait)) && shares.owing().eq([BERT]));
        shares.on_forgot(BERT, forget.number);
        assert!(waits.iter().all(|wait| shares.is_met(wait)) && shares.owing().next().is_none());
    }

    /// Else it would answer from what it knows that there is nothing in it, where there is no such
    /// directory.
    #[test]
    fn the_share_of_a_directory_that_is_gone_ends() {
        let (mut shares, tree, mut waits) = (Shares::default(), tree(), Vec::new());
        assert!(shares.grant(ANNA, DIR) && shares.grant(BERT, DIR));
        shares.on_change(Some(ANNA), &Change::End { dir: DIR }, &tree, &mut waits);
        let all = told(&mut shares);
        assert!(
            all.len() == 2
                && all
                    .iter()
                    .all(|(_, forget)| forget.items == [FsStale::Share { dir: DIR }])
        );
        assert!(waits.iter().map(|(client, _)| *client).eq([BERT]) && !shares.is_met(&waits[0]));
    }

    /// One that went and came back owes nothing of what it was told before, and its new shares
    /// count from there.
    #[test]
    fn one_that_goes_is_not_waited_for() {
        let (mut shares, tree, mut waits) = (Shares::default(), tree(), Vec::new());
        shares.grant(BERT, DIR);
        shares.on_change(Some(ANNA), &set("a", 50), &tree, &mut waits);
        told(&mut shares);
        shares.void(BERT);
        assert!(shares.is_met(&waits[0]));
        shares.grant(BERT, DIR);
        assert!(shares.is_met(&waits[0]));
        waits.clear();
        shares.on_change(None, &set("a", 50), &tree, &mut waits);
        assert!(!shares.is_met(&waits[0]));
        shares.void(BERT);
        shares.check();
    }

    #[test]
    fn a_share_that_is_only_told_to_forget_ends() {
        let (mut shares, tree, mut waits) = (Shares::default(), tree(), Vec::new());
        shares.grant(BERT, DIR);
        for n in 0..UNUSED_MAX {
            shares.on_change(Some(ANNA), &set(&format!("n{n}"), 60), &tree, &mut waits);
        }
        shares.grant(BERT, DIR);
        for n in 0..=UNUSED_MAX {
            shares.on_change(Some(ANNA), &set(&format!("m{n}"), 60), &tree, &mut waits);
        }
        let [(_, forget)] = &told(&mut shares)[..] else {
            panic!("one message")
        };
        assert_eq!(forget.items.last(), Some(&FsStale::Share { dir: DIR }));
        waits.clear();
        shares.on_change(Some(ANNA), &set("z", 60), &tree, &mut waits);
        assert!(waits.is_empty());
        // It is not had again with an answer that comes before it is told.
        assert!(shares.grant(BERT, DIR));
    }
}
