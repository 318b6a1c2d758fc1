//! Events of the store: dispatched to the PG that waits for them, or to the loading of all PGs.

use super::{Osd, Phase};
use crate::boot::Progress;
use crate::key;
use crate::pg::Pg;
use crate::purpose::{Purpose, StoreOutcome};
use nacre_role::Output;
use nacre_store::{DeviceError, Event, ObjectKey, StoreFailure, Token};
use nacre_types::{Epoch, PgId};

/// The system's error number for a full file system.
const ENOSPC: i32 = 28;

impl Osd {
    /// A store event.
    pub(super) fn on_store(&mut self, event: Event) {
        if let Phase::Loading(_) = self.phase {
            if let Event::Committed(token) = event {
                self.sh.pending.take(token);
            }
            self.on_loading(event);
            return;
        }
        match event {
            Event::Committed(token) if self.taking == Some(token) => {
                // An entry that is not taken off the list keeps all later ones there
                // (`./x show growth`: 200 B per update, for ever).
                self.sh.pending.take(token);
                self.taking = None;
                self.take_instance();
            }
            Event::Applied(token) => {
                if let Some((pg, interval, version)) = self.sh.pending.update(token)
                    && let Some(group) = self.pgs.get_mut(&pg)
                    && group.interval.since == interval
                {
                    group.on_applied(version, &mut self.sh);
                }
            }
            Event::Lost(token, object) => self.on_lost(token, &object),
            Event::Committed(token) => self.on_token(token, StoreOutcome::Committed),
            Event::Read(token, reply) => self.on_token(token, StoreOutcome::Read(reply)),
            Event::Failed(failure) => {
                // A failed flush is never retried: the disk's contents are not known any more.
                let why = match failure {
                    StoreFailure::Device(DeviceError::Os(ENOSPC)) => format!(
                        "{}: the file system of its store is full: free space there, then start it again. Nothing is lost",
                        self.id()
                    ),
                    failure => format!(
                        "{}: the store failed ({failure}). The other OSDs have its objects: check the disk, then start it again or replace it",
                        self.id()
                    ),
                };
                self.report_itself();
                self.sh.out.push(Output::Halt { why });
            }
        }
    }

    fn on_token(&mut self, token: Token, outcome: StoreOutcome) {
        let Some((pg, interval, purpose)) = self.sh.pending.take(token) else {
            return;
        };
        if let Some(group) = self.pgs.get_mut(&pg)
            && group.interval.since == interval
        {
            group.on_store(purpose, outcome, &mut self.sh);
            group.count(&mut self.busy, &mut self.sh);
        }
    }

    /// The store could not read a block that an update left partly unchanged; after splits, the
    /// object may belong to another PG.
    fn on_lost(&mut self, token: Token, place: &ObjectKey) {
        let Some((pool, shard, object)) = key::object_in(place) else {
            return;
        };
        let hash = key::hash(&object);
        let since = self.sh.pending.version(token);
        let ours = |pg: &&mut Pg| {
            let id = pg.id();
            (id.pool, id.shard) == (pool, shard) && key::seed(hash, pg.local.pg_num) == id.seed
        };
        if let Some(group) = self.pgs.values_mut().find(ours) {
            group.on_lost(&object, since, &mut self.sh);
            group.count(&mut self.busy, &mut self.sh);
        }
    }

    fn on_loading(&mut self, event: Event) {
        let Phase::Loading(loading) = &mut self.phase else {
            return;
        };
        let (mut reads, mut cleanup) = (Vec::new(), Vec::new());
        let before = loading.pages;
        let progress = loading.on_event(self.sh.now, event, &mut reads, &mut cleanup);
        self.sh.counters.borders.boot_pages += loading.pages - before;
        self.sh.out.extend(
            reads
                .into_iter()
                .map(|(read, token)| Output::Read { read, token }),
        );
        if !cleanup.is_empty() {
            self.sh
                .submit(PgId::default(), Epoch::NONE, cleanup, Purpose::Nothing);
        }
        match progress {
            Progress::Reading => {}
            Progress::Broken(why) => self.sh.out.push(Output::Halt { why }),
            Progress::Done(record, locals) => {
                self.sh.record(record);
                self.pgs = locals
                    .into_iter()
                    .map(|local| (local.pg(), Pg::new(local)))
                    .collect();
                self.phase = Phase::Waiting { at: self.sh.now };
                self.subscribe();
                self.announce();
            }
        }
    }
}
