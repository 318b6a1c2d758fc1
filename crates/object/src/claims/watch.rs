//! How the watch parts of an operation change an object. Notifies change nothing: see
//! `osd/src/pg/watch.rs`.

use super::{Claiming, watch_attr};
use nacre_wire::Wire;
use nacre_wire::msg::client::OpFailure;
use nacre_wire::msg::replication::Effect;
use nacre_wire::msg::watch::{WATCHERS_MAX, WatchRecord, Watcher, WatcherId};

impl Claiming<'_> {
    fn watcher(&self, cookie: u64) -> WatcherId {
        WatcherId {
            client: self.scene.client,
            instance: self.scene.instance,
            cookie,
        }
    }

    /// Registers a watch, or sets its timeout.
    ///
    /// # Errors
    /// The object has too many watches.
    pub fn watch(&mut self, cookie: u64, timeout_ms: u32) -> Result<(), OpFailure> {
        let id = self.watcher(cookie);
        let watches = &mut self.context.claims.watches;
        let known = watches.get(&id);
        if known.is_none() && watches.len() >= WATCHERS_MAX {
            return Err(OpFailure::TooMany {
                what: format!("the object has {WATCHERS_MAX} watches already"),
            });
        }
        let since = known.map_or(self.scene.token, |record| record.since);
        let record = WatchRecord { timeout_ms, since };
        watches.insert(id, record);
        self.effects.push(Effect::SetAttr {
            name: watch_attr(&id),
            value: record.to_bytes().into(),
        });
        Ok(())
    }

    /// Ends a watch.
    ///
    /// # Errors
    /// There is no such watch.
    pub fn unwatch(&mut self, cookie: u64) -> Result<(), OpFailure> {
        let id = self.watcher(cookie);
        self.context
            .claims
            .watches
            .remove(&id)
            .ok_or(OpFailure::NotFound {})?;
        self.effects.push(Effect::RemoveAttr {
            name: watch_attr(&id),
        });
        Ok(())
    }

    /// The object's watches.
    #[must_use]
    pub fn watchers(&self) -> Vec<Watcher> {
        let watches = self.context.claims.watches.iter();
        watches
            .map(|(id, record)| Watcher {
                id: *id,
                record: *record,
            })
            .collect()
    }
}
