//! `mon …`: the members of consensus. The map holds the desired members; [`crate::live`] adjusts
//! consensus, one member at a time.

use nacre_command::Store;
use nacre_types::MonId;
use nacre_wire::map::{Address, Change, MonInfo};
use serde_json::{Value, json};

use crate::raft::member::STORES;

use super::{Done, View, change, read};

/// Raft stays cheap with few members, and more add no noticeable safety.
const MONS_MAX: usize = 7;

/// Numbers of monitors' stores are smaller than those of OSDs.
fn checked_store(store: Store) -> Result<u64, String> {
    let fits = u64::try_from(store.0).ok().filter(|store| *store < STORES);
    fits.ok_or_else(|| {
        format!(
            "`store` is a number in hexadecimal, smaller than {STORES:x}, not `{:x}`",
            store.0
        )
    })
}

pub fn stat(view: &View<'_>) -> Result<Done, String> {
    let quorum = &view.quorum;
    let one = |(mon, info): (&MonId, &MonInfo)| {
        let role = if info.leaving {
            "leaving"
        } else if quorum.voters.contains(mon) {
            if quorum.leader == Some(*mon) {
                "leader"
            } else {
                "follower"
            }
        } else if quorum.learners.contains(mon) {
            "catching up"
        } else {
            "joining"
        };
        let reachable = *mon == view.me || quorum.reachable.contains(mon);
        let store = format!("{:x}", info.store);
        json!({ "id": mon.0, "address": info.address.0, "store": store, "role": role, "reachable": reachable })
    };
    let mons: Vec<Value> = view.map().mons.iter().map(one).collect();
    let majority = quorum.voters.len() / 2 + 1;
    read(json!({
        "mons": mons,
        "leader": quorum.leader.map(|mon| mon.0),
        "term": quorum.term,
        "reachable": quorum.reachable.len(),
        "majority": majority,
    }))
}

pub fn add(view: &View<'_>, mon: MonId, address: &str, store: Store) -> Result<Done, String> {
    let store = checked_store(store)?;
    if !address.contains(':') {
        return Err(format!("`address` is HOST:PORT, not {address}"));
    }
    let info = MonInfo {
        address: Address(address.to_owned()),
        store,
        leaving: false,
    };
    let map = view.map();
    let reply = json!({
        "id": mon.0,
        "note": "it votes as soon as it runs and has caught up; `mon stat` shows it",
    });
    if map.mons.get(&mon) == Some(&info) {
        return read(reply);
    }
    let another = map.mons.get(&mon).filter(|known| known.store != store);
    if another.is_some_and(|known| !known.leaving) {
        return Err(format!(
            "there is a {mon} already, and it has another store: remove it first (`mon rm`)"
        ));
    }
    // One store at a time: the next one would be taken for its predecessor, which has a vote.
    if another.is_some() || !map.mons.contains_key(&mon) && view.quorum.takes_part(mon) {
        return Err(format!(
            "the former {mon} is still on its way out; try again in a moment, or take another number"
        ));
    }
    if let Some((other, _)) = map
        .mons
        .iter()
        .find(|(id, known)| **id != mon && known.address == info.address)
    {
        return Err(format!("{other} has this address already"));
    }
    if !map.mons.contains_key(&mon) && map.mons.len() >= MONS_MAX {
        return Err(format!(
            "{MONS_MAX} monitors are enough: more make every change slower and nothing safer"
        ));
    }
    change(
        reply,
        vec![Change::MonSet { mon, info }],
        format!("{mon} is let in at {address}"),
    )
}

pub fn rm(view: &View<'_>, mon: MonId, store: Option<Store>) -> Result<Done, String> {
    let Some(info) = view.map().mons.get(&mon) else {
        return Err(format!("there is no {mon}; `mon stat` lists them"));
    };
    if store
        .map(checked_store)
        .transpose()?
        .is_some_and(|store| store != info.store)
    {
        return Err(format!(
            "{mon} has another store by now, and that is not the one to be removed"
        ));
    }
    let map = view.map();
    let staying = |id: &MonId| *id != mon && map.mons.get(id).is_some_and(|info| !info.leaving);
    let left = map.mons.keys().filter(|id| staying(id)).count();
    let reply = json!({
        "id": mon.0,
        "left": left,
        "note": "its vote may be needed until `mon stat` no longer lists it: keep it running so long, if it runs",
    });
    if info.leaving {
        return read(reply);
    }
    let quorum = &view.quorum;
    let rest: Vec<MonId> = quorum
        .voters
        .iter()
        .filter(|voter| staying(voter))
        .copied()
        .collect();
    if rest.is_empty() {
        return Err(format!(
            "{mon} is the only monitor that votes: add another first"
        ));
    }
    let alive = rest
        .iter()
        .filter(|voter| quorum.reachable.contains(voter))
        .count();
    let majority = rest.len() / 2 + 1;
    if alive < majority {
        return Err(format!(
            "without {mon}, {alive} of {} monitors would be reachable, and {majority} are needed: start the others first",
            rest.len()
        ));
    }
    let info = MonInfo {
        leaving: true,
        ..info.clone()
    };
    change(
        reply,
        vec![Change::MonSet { mon, info }],
        format!("{mon} is to leave"),
    )
}
