//! The remaining space of pools, MAX AVAIL in `ceph df`. A worker asks for it, since commands to
//! monitors block.

use super::{Ceph, Event};
use crate::handle::{Rados, To};
use nacre_client::{Room, Rooms};
use nacre_types::{PoolId, Time};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What is known, and whether a worker is asking.
#[derive(Debug, Default)]
pub(super) struct Asked {
    rooms: Rooms,
    asking: bool,
}

impl Ceph {
    pub(super) fn look_at_room(&mut self, now: Time, pool: PoolId) -> Room {
        let (room, asks) = self.rooms.rooms.look(now, pool);
        // If the monitors do not answer, only one worker waits for them.
        if asks && !std::mem::replace(&mut self.rooms.asking, true) {
            let (rados, queue) = (self.rados.clone(), self.queue.clone());
            self.workers
                .run(Box::new(move || queue.push(Event::Rooms(ask(&rados)))));
        }
        room
    }
    pub(super) fn rooms_said(&mut self, said: Option<BTreeMap<PoolId, u64>>) {
        self.rooms.asking = false;
        self.rooms.rooms.on_said(said);
        self.ended += 1;
    }
}

fn ask(rados: &Rados) -> Option<BTreeMap<PoolId, u64>> {
    rados
        .ask(To::Mon, json!({ "prefix": "df" }))
        .ok()
        .as_ref()
        .and_then(of_pools)
}

/// From the monitors' answer to `df`.
fn of_pools(answer: &Value) -> Option<BTreeMap<PoolId, u64>> {
    let of_pool = |pool: &Value| {
        Some((
            PoolId(pool["id"].as_u64()?),
            pool["stats"]["max_avail"].as_u64()?,
        ))
    };
    Some(
        answer["pools"]
            .as_array()?
            .iter()
            .filter_map(of_pool)
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In the form of Ceph 16.
    #[test]
    fn the_monitors_answer_has_max_avail_of_each_pool() {
        let stats = json!({ "stored": 5, "objects": 1, "kb_used": 8, "bytes_used": 15, "percent_used": 0.1, "max_avail": 77 });
        let answer = json!({
            "stats": { "total_bytes": 300, "total_avail_bytes": 280, "total_used_bytes": 20 },
            "pools": [{ "name": "data", "id": 3, "stats": stats }, { "name": "odd", "id": 4, "stats": {} }],
        });
        assert_eq!(of_pools(&answer), Some(BTreeMap::from([(PoolId(3), 77)])));
        assert_eq!(of_pools(&json!({})), None);
    }
}
