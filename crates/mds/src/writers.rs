//! Which client has which file open for writing, as recorded in the journal (CEPH-03, -23).
//!
//! ```text
//!  first open for writing ─▶ Writer here ──┐
//!  it reports that it has written ─▶ wrote ┼─▶ journal ─▶ the rank's next holder
//!  last such close ─▶ Writer gone ─────────┘
//! ```
//! Data that a client has written and not reported is within [`Layout::reach`] of what the server
//! knows. If the client dies, and the server too, the next holder of the rank finds here where to
//! look for it (`mds/probing.rs`): so a client may report a file as synchronized when its data is
//! in objects.
//!
//! Invariants: what is in the journal is in the table, and what is not recorded as gone in the
//! journal is in its head; a file's place is where its inode is now.
//!
//! [`Layout::reach`]: nacre_wire::fs::Layout::reach

use crate::change::Change;
use crate::journal::Batch;
use nacre_types::{ClientId, Ino, Name};
use nacre_wire::fs::Entry;
use nacre_wire::msg::fs::FsPlace;
use nacre_wire::wire_fields;
use std::collections::{BTreeMap, BTreeSet};

/// A journal record: a client opened a file for writing, has written it, or has closed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    /// The client.
    pub client: ClientId,
    /// The file.
    pub ino: Ino,
    /// The place of its inode, if known.
    pub place: Option<FsPlace>,
    /// It has reported that it has written, with delayed writes, alone: what is in objects counts,
    /// reported or not. Otherwise everything that it has synchronized is reported, and an
    /// unreported part of an append is an incomplete record.
    pub wrote: bool,
    /// Whether it has the file open; otherwise it no longer has.
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
    /// The batch that records the opening, and the last one with a record.
    batch: u64,
    last: u64,
}

/// See the module head.
#[derive(Debug, Default)]
pub struct Writers {
    files: BTreeMap<Ino, BTreeMap<ClientId, Known>>,
    clients: BTreeMap<ClientId, BTreeSet<Ino>>,
    /// Closed ones whose record is in a batch that is not safe yet.
    leaving: Vec<(u64, Writer)>,
}

impl Writers {
    /// Whether a client is recorded as having a file open for writing.
    #[must_use]
    pub fn has(&self, client: ClientId, ino: Ino) -> bool {
        self.known(client, ino).is_some()
    }
    fn known(&self, client: ClientId, ino: Ino) -> Option<&Known> {
        self.files.get(&ino)?.get(&client)
    }
    /// Whether any client has a file open for writing.
    #[must_use]
    pub fn is_written(&self, ino: Ino) -> bool {
        self.files.contains_key(&ino)
    }
    /// The clients that have it open for writing.
    pub fn who(&self, ino: Ino) -> impl Iterator<Item = ClientId> {
        self.files
            .get(&ino)
            .into_iter()
            .flat_map(BTreeMap::keys)
            .copied()
    }
    /// The batch that records that.
    #[must_use]
    pub fn batch(&self, client: ClientId, ino: Ino) -> Option<u64> {
        Some(self.known(client, ino)?.batch)
    }
    /// The files that a client has open for writing.
    #[must_use]
    pub fn of(&self, client: ClientId) -> Vec<Ino> {
        self.clients
            .get(&client)
            .into_iter()
            .flatten()
            .copied()
            .collect()
    }
    /// The record of one file.
    #[must_use]
    pub fn get(&self, client: ClientId, ino: Ino) -> Option<Writer> {
        Some(record(client, ino, self.known(client, ino)?, true))
    }
    /// The place of a file that a client has open for writing.
    #[must_use]
    pub fn place(&self, ino: Ino) -> Option<&(Ino, Name)> {
        self.files
            .get(&ino)?
            .values()
            .find_map(|known| known.place.as_ref())
    }

    /// Takes over the records of a batch: clients that came or left have nothing open from there
    /// on, and changes contain the places of files at its end.
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
    /// Takes over one record of a batch or of the journal's head.
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
    /// A client has newly opened a file for writing; returns the record for this batch.
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
    /// It reports that it has written with delayed writes, or that those have ended; returns the
    /// record for this batch, if that is new, and the batch of the opening.
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
    /// The last batch with a record of it.
    #[must_use]
    pub fn last(&self, client: ClientId, ino: Ino) -> Option<u64> {
        Some(self.known(client, ino)?.last)
    }
    /// It no longer has it open for writing; returns the record for this batch, and the batch of
    /// the opening.
    pub fn close(&mut self, client: ClientId, ino: Ino, batch: u64) -> Option<(Writer, u64)> {
        let known = self.leave(client, ino, batch)?;
        Some((record(client, ino, &known, false), known.batch))
    }
    /// Clients with files open for writing.
    pub fn clients(&self) -> impl Iterator<Item = ClientId> {
        self.clients.keys().copied()
    }
    /// A client's session ends with this batch: none of its open files counts any more.
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

    /// Examines a change that was made or read: it may contain a file's new place.
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
    /// All lower batches are safe.
    pub fn on_safe(&mut self, safe: u64) {
        self.leaving.retain(|(batch, _)| *batch >= safe);
    }
    /// The records for the journal's head.
    #[must_use]
    pub fn all(&self) -> Vec<Writer> {
        let here = self.files.iter().flat_map(|(ino, all)| {
            all.iter()
                .map(|(client, known)| record(*client, *ino, known, true))
        });
        let leaving = self.leaving.iter().map(|(_, writer)| writer.clone());
        // A file that was closed and reopened has its current record.
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

    /// A file that was renamed while open is looked for at its new place.
    #[test]
    fn a_file_is_where_the_last_change_put_it() {
        let mut writers = opened(1);
        writers.see(&moved("b"));
        assert_eq!(writers.place(INO), Some(&(Ino::ROOT, Name::from("b"))));
        assert_eq!(writers.all()[0].place, Some(place("b")));
    }

    /// A closed file whose record may still be lost stays in the journal's head.
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
        // One that was never in the journal is not included.
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
