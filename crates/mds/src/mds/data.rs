//! Removes data that no name refers to, or that is beyond a file's end.

use super::*;

impl Mds {
    /// Begins to remove data that no name refers to, or that is beyond a file's end.
    pub(super) fn remove_data(&mut self) {
        // Clients that had files open under the last holder must report them first, and changes
        // that it answered must be executed again: a file without a name may be given one.
        if self.is_quiet() || self.has_again() || self.flushing.retiring {
            return;
        }
        loop {
            let is_ready = |ino: Ino| {
                let inode = self.tree.inode(ino);
                // An open file without a name keeps its data, except what was truncated: it may
                // grow again when that is removed.
                let is_due = |inode: &Inode| {
                    inode.links > 0 || !self.caps.is_open(ino) || inode.stale_to() > inode.size
                };
                // Its data stays while the removal of its last name, or its truncation, could still
                // be lost; also if it is about to be given a name.
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

    /// Changes some more objects of a file; none are left when all have been handled.
    pub(super) fn remove_parts(&mut self, ino: Ino) {
        // The next holder removes the rest.
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

    /// Everything to be removed of a file is removed.
    fn removed(&mut self, ino: Ino) {
        let Some(removed) = self.removing.end(ino) else {
            return;
        };
        let Some(changes) = crate::removing::conclude(&self.tree, ino, removed, self.config.rank)
        else {
            return;
        };
        // A client that was told too early would write where the next holder of the rank removes
        // data once more.
        let batch = self.change_unasked(changes, &[]);
        self.settling.insert(ino, batch);
    }
}
