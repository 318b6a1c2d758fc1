//! Which client has which file open for writing: what the journal knows of it (CEPH-03, -23).
//!
//! ```text
//!  first open for writing ─▶ Writer here ──┐
//!  it says that it has written ─▶ wrote ───┼─▶ journal ─▶ the rank's next holder
//!  last such close ─▶ Writer gone ─────────┘
//! ```
//! What a client has written and not told of lies within [`Layout::reach`] of what the server
//! knows. If the client dies, and the server too, the next holder of the rank finds here where to
//! look for it (`mds/probing.rs`): so a client may call a file synchronized when its data is in
//! objects.
//!
//! Invariants: what is in the journal is in the table, and what the journal does not know as gone
//! is named in its head; a file's place is where its inode is now.
//!
//! [`Layout::reach`]: nacre_wire::fs::Layout::reach

use crate::change::Change;
use crate::journal::Batch;
use nacre_types::{ClientId, Ino, Name};
use nacre_wire::fs::Entry;
use nacre_wire::msg::fs::FsPlace;
use nacre_wire::wire_fields;
use std::collections::{BTreeMap, BTreeSet};

/// A client opened a file for writing, has written it, or has closed it: in the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    /// Who.
    pub client: ClientId,
    /// Which file.
    pub ino: Ino,
    /// Where its inode is, if that is known.
    pub place: Option<FsPlace>,
    /// It has said that it has written it, and writes it later, alone: what it has in objects
    /// counts, told or not. Else all that it has synchronized is told, and what is not told of
    /// an append is half of it.
    pub wrote: bool,
    /// It has it open from here on; else no more.
    pub here: bool,
}
wire_fields!(Writer {
    client,
    ino,
    place,
    wrote,
    here
});

#[derive(Clone, Debug)]
struct Known {
    place: Option<(Ino, Name)>,
    wrote: bool,
    /// The batch that says that it is open, and the last one that says something of it.
    batch: u64,
    last: u64,
}

/// See the module head.
#[derive(Debug, Default)]
pub struct Writers {
    files: BTreeMap<Ino, BTreeMap<ClientId, Known>>,
    clients: BTreeMap<ClientId, BTreeSet<Ino>>,
    /// Those of which a batch that is not safe yet says that they are no more.
    leaving: Vec<(u64, Writer)>,
}

impl Writers {
    /// Whether a client is known to have a file open for writing.
    #[must_use]
    pub fn has(&self, client: ClientId, ino: Ino) -> bool {
        self.known(client, ino).is_some()
    }
    fn known(&self, client: ClientId, ino: Ino) -> Option<&Known> {
        self.files.get(&ino)?.get(&client)
    }
    /// Whether some client has a file open so.
    #[must_use]
    pub fn is_written(&self, ino: Ino) -> bool {
        self.files.contains_key(&ino)
    }
    /// Which clients have it open so.
    pub fn who(&self, ino: Ino) -> impl Iterator<Item = ClientId> {
        self.files
            .get(&ino)
            .into_iter()
            .flat_map(BTreeMap::keys)
            .copied()
    }
    /// The batch that says so.
    #[must_use]
    pub fn batch(&self, client: ClientId, ino: Ino) -> Option<u64> {
        Some(self.known(client, ino)?.batch)
    }
    /// What a client has open so.
    #[must_use]
    pub fn of(&self, client: ClientId) -> Vec<Ino> {
        self.clients
            .get(&client)
            .into_iter()
            .flatten()
            .copied()
            .collect()
    }
    /// All that is known of one.
    #[must_use]
    pub fn get(&self, client: ClientId, ino: Ino) -> Option<Writer> {
        Some(record(client, ino, self.known(client, ino)?, true))
    }
    /// Where the inode of a file is that some client has open so.
    #[must_use]
    pub fn place(&self, ino: Ino) -> Option<&(Ino, Name)> {
        self.files
            .get(&ino)?
            .values()
            .find_map(|known| known.place.as_ref())
    }

    /// What a batch that is read says: who came and went has nothing open from there on, and
    /// changes say where files are by its end.
    pub fn read(&mut self, batch: &Batch) {
        for known in &batch.clients {
            for ino in self.of(known.client) {
                self.remove(known.client, ino);
            }
        }
        batch
            .writers
            .iter()
            .for_each(|writer| self.apply(writer.clone(), batch.sequence));
        batch.changes.iter().for_each(|change| self.see(change));
    }
    /// One of them, or of the journal's head.
    pub fn apply(&mut self, writer: Writer, batch: u64) {
        let Writer {
            client,
            ino,
            place,
            wrote,
            here,
        } = writer;
        if here {
            let place = place.map(|place| (place.dir, place.name));
            self.files.entry(ino).or_default().insert(
                client,
                Known {
                    place,
                    wrote,
                    batch,
                    last: batch,
                },
            );
            self.clients.entry(client).or_default().insert(ino);
        } else {
            self.remove(client, ino);
        }
    }
    /// A client has opened a file for writing that it had not: what this batch is to say.
    pub fn open(
        &mut self,
        client: ClientId,
        ino: Ino,
        place: Option<(Ino, Name)>,
        batch: u64,
    ) -> Writer {
        let writer = record(
            client,
            ino,
            &Known {
                place,
                wrote: false,
                batch,
                last: batch,
            },
            true,
        );
        self.apply(writer.clone(), batch);
        writer
    }
    /// It says that it has written, and writes later, or does that no more: what this batch is to
    /// say, if that is new, and since which one it has been open.
    pub fn wrote(
        &mut self,
        client: ClientId,
        ino: Ino,
        wrote: bool,
        batch: u64,
    ) -> Option<(Writer, u64)> {
        let known = self.files.get_mut(&ino)?.get_mut(&client)?;
        let is_new = std::mem::replace(&mut known.wrote, wrote) != wrote;
        is_new.then(|| {
            known.last = batch;
            (record(client, ino, known, true), known.batch)
        })
    }
    /// The last batch that says something of it.
    #[must_use]
    pub fn last(&self, client: ClientId, ino: Ino) -> Option<u64> {
        Some(self.known(client, ino)?.last)
    }
    /// It has it open for writing no more: what this batch is to say, and since which one it was.
    pub fn close(&mut self, client: ClientId, ino: Ino, batch: u64) -> Option<(Writer, u64)> {
        let known = self.leave(client, ino, batch)?;
        Some((record(client, ino, &known, false), known.batch))
    }
    /// Clients that have something open so.
    pub fn clients(&self) -> impl Iterator<Item = ClientId> {
        self.clients.keys().copied()
    }
    /// A client's session ends with this batch: nothing it has open counts any more.
    pub fn end(&mut self, client: ClientId, batch: u64) {
        for ino in self.of(client) {
            self.leave(client, ino, batch);
        }
    }
    fn leave(&mut self, client: ClientId, ino: Ino, batch: u64) -> Option<Known> {
        let known = self.remove(client, ino)?;
        if known.batch < batch {
            self.leaving
                .push((batch, record(client, ino, &known, true)));
        }
        Some(known)
    }
    fn remove(&mut self, client: ClientId, ino: Ino) -> Option<Known> {
        let of_file = self.files.get_mut(&ino)?;
        let known = of_file.remove(&client)?;
        if of_file.is_empty() {
            self.files.remove(&ino);
        }
        if let Some(of_client) = self.clients.get_mut(&client) {
            of_client.remove(&ino);
            if of_client.is_empty() {
                self.clients.remove(&client);
            }
        }
        Some(known)
    }

    /// A change was made, or read: it may say where a file's inode is now.
    pub fn see(&mut self, change: &Change) {
        if let Change::Set {
            dir,
            name,
            entry: Entry::Inode { inode, .. },
            ..
        } = change
            && let Some(all) = self.files.get_mut(&inode.ino)
        {
            all.values_mut()
                .for_each(|known| known.place = Some((*dir, name.clone())));
        }
    }
    /// All batches below are safe.
    pub fn on_safe(&mut self, safe: u64) {
        self.leaving.retain(|(batch, _)| *batch >= safe);
    }
    /// What the journal's head is to say.
    #[must_use]
    pub fn all(&self) -> Vec<Writer> {
        let here = self.files.iter().flat_map(|(ino, all)| {
            all.iter()
                .map(|(client, known)| record(*client, *ino, known, true))
        });
        let leaving = self.leaving.iter().map(|(_, writer)| writer.clone());
        // One that was closed and opened again is as it is now.
        leaving.chain(here).collect()
    }
}

fn record(client: ClientId, ino: Ino, known: &Known, here: bool) -> Writer {
    let place = known.place.clone().filter(|_| here);
    let place = place.map(|(dir, name)| FsPlace { dir, name });
    Writer {
        client,
        ino,
        place,
        wrote: known.wrote,
        here,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::Frag;
    use nacre_wire::fs::{FileKind, Inode, Stamp};

    const CLIENT: ClientId = ClientId(7);
    const INO: Ino = Ino(1 << 20);

    fn place(name: &str) -> FsPlace {
        FsPlace {
            dir: Ino::ROOT,
            name: Name::from(name),
        }
    }
    fn moved(name: &str) -> Change {
        let inode = Inode::new(INO, FileKind::File {}, 0o644, (0, 0), Stamp(1));
        let entry = Entry::Inode { inode, head: None };
        Change::Set {
            dir: Ino::ROOT,
            frag: Frag::WHOLE,
            name: Name::from(name),
            entry,
        }
    }
    fn opened(batch: u64) -> Writers {
        let mut writers = Writers::default();
        let writer = writers.open(CLIENT, INO, Some((Ino::ROOT, Name::from("a"))), batch);
        assert_eq!(
            (writer.place, writer.wrote, writer.here),
            (Some(place("a")), false, true)
        );
        writers
    }

    /// A file that was renamed while it is open is looked for where it is now.
    #[test]
    fn a_file_is_where_the_last_change_put_it() {
        let mut writers = opened(1);
        writers.see(&moved("b"));
        assert_eq!(writers.place(INO), Some(&(Ino::ROOT, Name::from("b"))));
        assert_eq!(writers.all()[0].place, Some(place("b")));
    }

    /// What a batch that may still be lost says is no more is in the journal's head yet.
    #[test]
    fn what_is_closed_is_named_until_that_is_safe() {
        let mut writers = opened(1);
        let (said, since) = writers.close(CLIENT, INO, 5).expect("it was open");
        assert_eq!((said.here, since), (false, 1));
        assert!(!writers.has(CLIENT, INO));
        writers.on_safe(5);
        assert_eq!(writers.all().len(), 1, "batch 5 is not safe");
        writers.on_safe(6);
        assert!(writers.all().is_empty());
        // The same with a session.
        let mut writers = opened(1);
        writers.end(CLIENT, 5);
        assert_eq!((writers.of(CLIENT).len(), writers.all().len()), (0, 1));
        // One that the journal has never had is not named.
        let mut writers = opened(5);
        writers.close(CLIENT, INO, 5);
        assert!(writers.all().is_empty());
    }

    #[test]
    fn that_it_was_written_is_said_once() {
        let mut writers = opened(1);
        let (said, since) = writers.wrote(CLIENT, INO, true, 3).expect("it is news");
        assert_eq!((said.wrote, said.here, since), (true, true, 1));
        assert!(writers.wrote(CLIENT, INO, true, 4).is_none());
        assert_eq!(writers.last(CLIENT, INO), Some(3));
        assert!(
            writers.wrote(ClientId(8), INO, true, 4).is_none(),
            "it has it not open"
        );
    }
}
