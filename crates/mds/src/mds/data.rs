//! Data that no name leads to, or that is beyond a file's end, is removed.

use super::*;

impl Mds {
    /// Begins to remove data that no name leads to, or that is beyond a file's end.
    pub(super) fn remove_data(&mut self) {
        // Clients that had files open under the last holder have to say so first, and what it
        // answered has to be done again: a file without a name may be given one.
        if self.is_quiet() || self.has_again() || self.flushing.retiring {
            return;
        }
        loop {
            let is_ready = |ino: Ino| {
                let inode = self.tree.inode(ino);
                // One without a name that is open has all its data but what was cut off: it may
                // grow again when that is gone.
                let is_due = |inode: &Inode| {
                    inode.links > 0 || !self.caps.is_open(ino) || inode.stale_to() > inode.size
                };
                // As long as that it has no name, or was cut off, could be lost, its data stays.
                // Of one that is about to be given a name, too.
                let is_in_use = self.probing.has(ino) || self.transactions.has_ino(ino, None);
                inode.is_some_and(is_due) && !self.fresh.contains_key(&ino) && !is_in_use
            };
            let Some(ino) = self.removing.next(is_ready) else {
                return;
            };
            let Some(inode) = self.tree.inode(ino) else {
                continue;
            };
            let Some(layout) = inode.layout else { continue };
            let is_over = inode.links == 0 && !self.caps.is_open(ino);
            let keep = (!is_over).then_some(inode.size);
            self.removing
                .begin(ino, layout, keep, inode.stale_to().max(inode.data_to()));
            self.remove_parts(ino);
        }
    }

    /// Some objects more of a file; all are gone when there are none left.
    pub(super) fn remove_parts(&mut self, ino: Ino) {
        // What is left the next holder removes.
        while !self.flushing.retiring
            && let Some((pool, number, op)) = self.removing.next_part(ino)
        {
            let operation = self.of_data(pool, ino, number, op);
            self.queue.push_back((operation, Purpose::Remove(ino)));
        }
        if self.removing.is_done(ino) {
            self.removed(ino);
        }
    }

    /// All that was to be removed of a file is gone.
    fn removed(&mut self, ino: Ino) {
        let Some(removed) = self.removing.end(ino) else {
            return;
        };
        let Some(changes) = crate::removing::conclude(&self.tree, ino, removed, self.config.rank)
        else {
            return;
        };
        // A client that was told too early would write where the next holder of the rank removes
        // once more.
        let batch = self.change_unasked(changes, &[]);
        self.settling.insert(ino, batch);
    }
}
