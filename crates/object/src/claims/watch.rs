//! What the parts of an operation that are about watches do to an object. Notifies change nothing:
//! see `osd/src/pg/watch.rs`.

use super::{Scene, watch_attr};
use crate::context::Context;
use nacre_wire::Wire;
use nacre_wire::msg::client::{OpFailure, SubOp, SubReply};
use nacre_wire::msg::replication::Effect;
use nacre_wire::msg::watch::{
    NOTIFY_BYTES_MAX, NOTIFY_TIMEOUT_MS, WATCH_TIMEOUT_MS, WATCHERS_MAX, WatchRecord, Watcher, WatcherId,
};

fn within(what: &str, ms: u32, (min, max): (u32, u32)) -> Result<(), OpFailure> {
    if (min..=max).contains(&ms) {
        return Ok(());
    }
    Err(OpFailure::Invalid {
        why: format!("the timeout of a {what} is between {min} and {max} milliseconds, not {ms}"),
    })
}

/// Whether the part is one at all.
///
/// # Errors
/// What every OSD would answer, whatever the object.
pub fn validate(op: &SubOp, alone: bool) -> Result<(), OpFailure> {
    match op {
        SubOp::Watch { timeout_ms, .. } => within("watch", *timeout_ms, WATCH_TIMEOUT_MS),
        SubOp::Notify { .. } if !alone => {
            Err(OpFailure::Invalid { why: "a notify stands alone in its operation".to_owned() })
        }
        SubOp::Notify { length, .. } if *length > NOTIFY_BYTES_MAX => {
            Err(OpFailure::Invalid { why: format!("a notify carries at most {NOTIFY_BYTES_MAX} bytes, not {length}") })
        }
        SubOp::Notify { timeout_ms, .. } => within("notify", *timeout_ms, NOTIFY_TIMEOUT_MS),
        _ => Ok(()),
    }
}

/// Does the part.
///
/// # Errors
/// Why it cannot be done.
pub fn part(
    op: &SubOp,
    scene: &Scene,
    context: &mut Context,
    effects: &mut Vec<Effect>,
) -> Result<SubReply, OpFailure> {
    if !context.exists {
        return Err(OpFailure::NotFound {});
    }
    let own = |cookie: u64| WatcherId { client: scene.client, instance: scene.instance, cookie };
    let watches = &mut context.claims.watches;
    match op {
        SubOp::Watch { cookie, timeout_ms } => {
            let id = own(*cookie);
            let known = watches.get(&id);
            if known.is_none() && watches.len() >= WATCHERS_MAX {
                return Err(OpFailure::TooMany { what: format!("the object has {WATCHERS_MAX} watches already") });
            }
            let since = known.map_or(scene.token, |record| record.since);
            let record = WatchRecord { timeout_ms: *timeout_ms, since };
            watches.insert(id, record);
            effects.push(Effect::SetAttr { name: watch_attr(&id), value: record.to_bytes().into() });
            Ok(SubReply::Done {})
        }
        SubOp::Unwatch { cookie } => {
            let id = own(*cookie);
            watches.remove(&id).ok_or(OpFailure::NotFound {})?;
            effects.push(Effect::RemoveAttr { name: watch_attr(&id) });
            Ok(SubReply::Done {})
        }
        SubOp::ListWatchers {} => {
            let watchers = watches.iter().map(|(id, record)| Watcher { id: *id, record: *record }).collect();
            Ok(SubReply::Watchers { watchers })
        }
        other => unreachable!("{other:?} is not about watches"),
    }
}
