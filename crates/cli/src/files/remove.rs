//! `nacre fs rm`: removes a file system with its contents.
//!
//! ```text
//!  not in use? ─▶ its settings are deleted: no server takes a rank any more
//!  ─▶ former holders are fenced ─▶ the rest of its keys ─▶ its pools, or its objects in others' pools
//! ```
//! If it is interrupted, objects without a file system remain: their namespace is never given to
//! another one.

use super::claim::{fence, is};
use super::{Shown, all, clients, take};
use crate::cluster::{Metadata, Place, Session};
use crate::object::{list, pools};
use crate::objects::{Failed, Window, operation};
use crate::out::Out;
use anyhow::{Context, Result, ensure};
use nacre_command::Command;
use nacre_types::{Name, ObjectId, PoolId, Rank};
use nacre_wire::Payload;
use nacre_wire::Wire as _;
use nacre_wire::fs::{FsHolder, FsKey};
use nacre_wire::msg::client::{OpFailure, SubOp};
use nacre_wire::msg::meta::{MetaOp, MetaSpan, MetaTarget};
use serde_json::json;

/// Number of objects removed in parallel.
const AT_ONCE: usize = 64;

/// Removes it.
///
/// # Errors
/// It is in use; the cluster refuses.
pub fn run(name: &str, place: &Place, out: &mut Out) -> Result<()> {
    let mut session = place.connect_for_files()?;
    let mut metadata = session.metadata()?;
    let mut others = all(&mut *metadata)?;
    let shown = take(name, &mut others)?;
    if !shown.holders.is_empty() {
        let users = clients::others(name, place)?;
        ensure!(
            users.is_empty(),
            "file system {name} is in use by {}: unmount it, or `nacre fs evict {name} CLIENT`",
            users.join(", ")
        );
    }
    forget(&mut *metadata, &mut *session, &Name::from(name), &shown)?;
    let removed = remove_objects(&mut *session, name, &shown, others.values())?;
    if out.json() {
        return out
            .value(&json!({ "name": name, "pools": removed.pools, "objects": removed.objects }));
    }
    out.line(&match removed.pools.as_slice() {
        [] => format!(
            "removed file system {name}, and its {} objects",
            removed.objects
        ),
        pools => format!(
            "removed file system {name}, and its pools {}",
            pools.join(" and ")
        ),
    })
}

/// Removes its metadata; its servers end.
fn forget(
    metadata: &mut dyn Metadata,
    session: &mut dyn Session,
    name: &Name,
    shown: &Shown,
) -> Result<()> {
    let delete = |key: &Name| MetaOp::Delete {
        span: MetaSpan::Key { key: key.clone() },
    };
    let settings = FsKey::Settings.of(name);
    let target = MetaTarget::Value {
        value: shown.settings.to_bytes().into(),
    };
    let (compares, then) = (vec![is(settings.clone(), target)], vec![delete(&settings)]);
    ensure!(
        metadata.transact(compares, then)?,
        "another command has just changed file system {name}; `nacre fs ls` shows it"
    );
    for rank in (0..shown.settings.ranks).map(Rank) {
        let (key, last) = (FsKey::Rank(rank).of(name), FsKey::Last(rank).of(name));
        let Some(pair) = metadata.get(&last.to_string())? else {
            continue;
        };
        if let Ok(holder) = FsHolder::from_bytes(&pair.value) {
            fence(session, &holder)?;
        }
        // A new file system of this name has other keys by now.
        let compares = vec![is(
            last.clone(),
            MetaTarget::Modified {
                number: pair.modified,
            },
        )];
        metadata.transact(compares, vec![delete(&key), delete(&last)])?;
    }
    Ok(())
}

#[derive(Default)]
struct Removed {
    pools: Vec<String>,
    objects: u64,
}

/// Removes pools named after it, if they hold no other objects; from other pools only its own
/// objects.
fn remove_objects<'a>(
    session: &mut dyn Session,
    name: &str,
    shown: &Shown,
    others: impl Iterator<Item = &'a Shown>,
) -> Result<Removed> {
    let both = |shown: &Shown| [shown.settings.pool, shown.settings.layout.pool];
    let taken: Vec<PoolId> = others.flat_map(both).collect();
    let known = pools(session)?;
    let mut removed = Removed::default();
    let mut own = both(shown).to_vec();
    own.dedup();
    for pool in own {
        let called = known
            .iter()
            .find(|(_, id)| *id == pool)
            .map(|(called, _)| called.clone());
        let Some(called) = called else { continue };
        let is_own = [format!("{name}.meta"), format!("{name}.data")].contains(&called)
            && !taken.contains(&pool);
        // A pool of that name may have existed before, and any client may have written to it since.
        if is_own && !has_others(session, pool, name)? {
            let gone = Command::PoolRm {
                name: called.clone(),
                yes_i_really_mean_it: true,
            };
            session
                .command(&gone)
                .with_context(|| format!("removing pool {called}"))?;
            removed.pools.push(called);
        } else {
            removed.objects += remove_from(session, pool, &shown.settings.namespace)?;
        }
    }
    Ok(removed)
}

/// Whether a pool has objects that belong to no file system of this name, past or present.
fn has_others(session: &mut dyn Session, pool: PoolId, name: &str) -> Result<bool> {
    let (prefix, mut found) = (format!("{name}."), false);
    // As named by `create`.
    let is_own = |namespace: &[u8]| {
        let number = namespace.strip_prefix(prefix.as_bytes());
        number.is_some_and(|digits| digits.len() == 8 && digits.iter().all(u8::is_ascii_hexdigit))
    };
    let listed = list::objects(session, pool, &mut |object| {
        found |= !is_own(object.namespace.as_bytes());
        ensure!(!found, "the list ends here");
        Ok(())
    });
    if found {
        Ok(true)
    } else {
        listed.map(|_| false)
    }
}

/// Removes all objects of a namespace; returns their number.
fn remove_from(session: &mut dyn Session, pool: PoolId, namespace: &Name) -> Result<u64> {
    let mut found: Vec<ObjectId> = Vec::new();
    list::objects(session, pool, &mut |object| {
        if object.namespace == *namespace {
            found.push(object);
        }
        Ok(())
    })?;
    let count = found.len() as u64;
    let mut ended = |object: ObjectId, ended: Result<_, Failed>| match ended {
        Ok(_) | Err(Failed::Refused(OpFailure::NotFound {})) => Ok(()),
        Err(why) => Err(anyhow::Error::from(why).context(format!("removing {object}"))),
    };
    let mut window = Window::new(session, AT_ONCE, u64::MAX);
    for object in found {
        let remove = operation(pool, object.clone(), vec![SubOp::Delete {}], Payload::new());
        window.push(remove, object, 0, &mut ended)?;
    }
    window.drain(&mut ended)?;
    Ok(count)
}
