//! Which clients cache what they were told about a directory: its names, and the attributes of
//! their inodes (CEPH-12, -17, -30).
//!
//! ```text
//!  answer about dir ─▶ the client has a share of dir
//!  another client changes a name or attributes in dir ─▶ FsForget to all who have a share ─▶ FsForgot: met
//!                                                                                     └ silent: its lease ends: met
//! ```
//! A share covers a directory, not each inode: a listing of 10,000 files costs one entry here, and
//! changes are invalidated one by one. A client that requests nothing while it gets repeated
//! invalidations loses the share.
//!
//! Invariant: a change is answered, and shown to others, when each [`Wait`] is met: no cache shows
//! an old state after any client was shown the new one.

use crate::change::Change;
use crate::tree::{Found, Tree};
use nacre_types::{ClientId, Ino};
use nacre_wire::msg::fs::{FsForget, FsStale};
use std::collections::{BTreeMap, BTreeSet};

#[cfg(feature = "mutants")]
#[path = "mutants/shares.rs"]
mod planted;

/// Most directories that a client may have shares of. Some 100 bytes each.
const SHARES_MAX: usize = 20_000;
/// A client that got this many invalidations of a directory without a request in between loses its
/// share.
const UNUSED_MAX: u32 = 16;

/// A client has to confirm this number of its invalidations.
pub(crate) type Wait = (ClientId, u64);

#[derive(Clone, Debug, Default)]
struct Told {
    dirs: BTreeSet<Ino>,
    /// Items for its next message.
    pending: Vec<FsStale>,
    /// The number of that message, if there is one.
    number: u64,
    /// Everything up to this number is dropped.
    forgot: u64,
}

/// See the module head.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shares {
    /// Clients with a share of a directory, and the number of invalidations since their last
    /// request.
    holders: BTreeMap<Ino, BTreeMap<ClientId, u32>>,
    clients: BTreeMap<ClientId, Told>,
    /// Clients with unconfirmed invalidations.
    owing: BTreeSet<ClientId>,
    /// Those of them with unsent ones.
    untold: BTreeSet<ClientId>,
    /// The last number used. All clients share one sequence, so that a client that comes back is
    /// not waited for because of earlier messages.
    last: u64,
}

impl Shares {
    /// The client is shown something of a directory; returns whether its share is new.
    pub fn grant(&mut self, client: ClientId, dir: Ino) -> bool {
        let last = self.last;
        let told = self.clients.entry(client).or_insert_with(|| Told {
            forgot: last,
            ..Told::default()
        });
        if told.dirs.len() >= SHARES_MAX && !told.dirs.contains(&dir) {
            return false;
        }
        // What it is told now comes after the invalidation.
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

    /// Whether no other client caches anything of a directory.
    pub fn is_alone(&self, client: ClientId, dir: Ino) -> bool {
        self.holders
            .get(&dir)
            .is_some_and(|of_dir| of_dir.len() == 1 && of_dir.contains_key(&client))
    }

    /// A change is about to be made by a client, or by the server itself: invalidates other
    /// clients' caches.
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
        // A client may cache the attributes of an inode without knowing a name of it.
        if let Some(ino) = old {
            self.tell(by, dir, &FsStale::Node { ino }, waits);
        }
    }

    /// Invalidates an item for all clients with a share of a directory, except one.
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

    /// A directory is removed: a client that knows all its names would report it as empty. The
    /// client that removed it is told, too, because it may not know which directory it was, but is
    /// not waited for.
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

    /// Adds an item to a client's next message; returns the message's number.
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

    /// Takes the messages for clients.
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
    /// A client has dropped everything up to that number.
    pub fn on_forgot(&mut self, client: ClientId, number: u64) {
        if let Some(told) = self.clients.get_mut(&client) {
            told.forgot = told.forgot.max(number);
            if told.forgot >= told.number {
                self.owing.remove(&client);
            }
        }
    }
    /// A client no longer caches anything: it is gone, has said so, or its lease has ended.
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

    /// Whether that was confirmed.
    #[nacre_types::planted]
    pub fn is_met(&self, wait: &Wait) -> bool {
        let (client, number) = wait;
        self.clients
            .get(client)
            .is_none_or(|told| told.forgot >= *number)
    }
    /// Clients with unconfirmed invalidations.
    pub fn owing(&self) -> impl Iterator<Item = ClientId> {
        self.owing.iter().copied()
    }

    /// Asserts that both directions of the relation agree.
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

    /// A client had requested a file by its number without knowing a name of it. Another client
    /// moved the file away, and only the name was invalidated for the first: it continued with old
    /// attributes. (Simulated seed 108.)
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

    /// Otherwise it would answer from its cache that the directory is empty, when there is no such
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

    /// A client that left and came back owes nothing for earlier messages, and its new shares count
    /// from there.
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
        // An answer given before the invalidation does not renew the share.
        assert!(shares.grant(BERT, DIR));
    }
}
