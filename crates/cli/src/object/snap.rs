//! `nacre object snaps|rollback`: the states of an object that a pool's snapshots preserve.
//!
//! A striped object at a snapshot consists of its manifest at that snapshot and the pieces that the
//! manifest names. Pieces never change; they are removed when the content is replaced. So a
//! rollback restores the missing pieces, then the manifest, guarded by its current value, and
//! removes the pieces of the replaced content: a concurrent reader sees the old content or the new
//! one.

use super::stripe::{self, MANIFEST, Manifest, TRIES};
use super::{Target, found, missing, one, pool_id};
use crate::cluster::{Session, snap};
use crate::objects::{Failed, Head, Objects, Window, call, head_of, operation, read_head};
use crate::out::Out;
use crate::table::table;
use anyhow::{Result, bail};
use bytes::Bytes;
use nacre_types::{Name, ObjectId, PoolId, SnapId};
use nacre_wire::Payload;
use nacre_wire::msg::client::{OpFailure, SubOp, SubReply};
use serde_json::{Value, json};

/// The object as it is at a snapshot, by the snapshot's name or number.
///
/// # Errors
/// When the pool has no such snapshot.
pub fn at(target: &Target, what: &str, cluster: &mut dyn Session) -> Result<ObjectId> {
    let (snapshot, _) = snap::find(cluster, target.pool(), what)?;
    Ok(ObjectId {
        snapshot,
        ..target.object()?
    })
}

/// Lists the preserved states of an object.
///
/// # Errors
/// When there is no such object, now or at any snapshot.
pub fn snaps(target: &Target, cluster: &mut dyn Session, out: &mut Out) -> Result<()> {
    let pool = pool_id(cluster, target.pool())?;
    let object = target.object()?;
    let listed = cluster.capabilities().list_snaps;
    let (sequence, exists, clones) = if listed {
        match one(target, SubOp::ListSnaps {}, cluster)? {
            SubReply::Snaps {
                sequence,
                exists,
                clones,
            } => (sequence, exists, clones),
            _ => bail!("the answer is no list of snapshots: is a daemon of another version?"),
        }
    } else {
        // Every snapshot of the pool is queried for it.
        (
            0,
            head_of(call(cluster, read_head(pool, &object, 0))?)?.is_some(),
            Vec::new(),
        )
    };
    let names = snap::names(cluster, target.pool())?;
    let mut snaps: Vec<SnapId> = clones
        .iter()
        .flat_map(|clone| clone.snaps.iter().copied())
        .collect();
    // Without a write since the snapshot, its state is the current one.
    snaps.extend(
        names
            .iter()
            .map(|(snap, _)| *snap)
            .filter(|snap| !listed || (snap.0 > sequence && exists)),
    );
    snaps.sort();
    snaps.dedup();
    let mut rows: Vec<Value> = Vec::new();
    for snap in snaps {
        let then = ObjectId {
            snapshot: snap,
            ..object.clone()
        };
        // A snapshot that is removed meanwhile has no state.
        let ended = call(cluster, read_head(pool, &then, 0))?;
        if matches!(ended, Err(Failed::Refused(OpFailure::Invalid { .. }))) {
            continue;
        }
        let Some(head) = head_of(ended)? else {
            continue;
        };
        let size = Manifest::of(&head)?.map_or(head.size, |manifest| manifest.size);
        let clone = clones
            .iter()
            .find(|clone| clone.snaps.contains(&snap))
            .map(|clone| clone.id.0);
        let name = names
            .iter()
            .find(|(known, _)| *known == snap)
            .map(|(_, name)| name);
        rows.push(json!({
            "id": snap.0, "name": name, "size_bytes": size, "version": head.version.to_string(), "clone": clone,
        }));
    }
    if out.json() {
        return out
            .value(&json!({ "object": object.to_string(), "exists": exists, "snaps": rows }));
    }
    let columns = [
        ("ID", "id"),
        ("NAME", "name"),
        ("SIZE", "size_bytes"),
        ("VERSION", "version"),
        ("CLONE", "clone"),
    ];
    out.bytes(table(&columns, &rows).as_bytes())
}

/// Rolls an object back.
///
/// # Errors
/// When there is no such snapshot, the object exists neither then nor now, or the cluster refuses;
/// then it is unchanged.
pub fn rollback(
    target: &Target,
    what: &str,
    cluster: &mut dyn Session,
    out: &mut Out,
) -> Result<()> {
    let pool = pool_id(cluster, target.pool())?;
    let (snap, name) = snap::find(cluster, target.pool(), what)?;
    let object = target.object()?;
    let existed = roll_back(cluster, pool, &object, snap)?;
    let Some(existed) = existed else {
        bail!("{object} was not there at {name}, and is not now")
    };
    if out.json() {
        return out
            .value(&json!({ "object": object.to_string(), "snap": snap.0, "exists": existed }));
    }
    if existed {
        Ok(())
    } else {
        out.line(&format!("{object} was not there at {name}: it is removed"))
    }
}

fn manifest_attr(head: Option<&Head>) -> Bytes {
    head.and_then(|head| head.attrs.get(&Name::from(MANIFEST)))
        .cloned()
        .unwrap_or_default()
}

/// Whether it exists afterwards; `None` if it did not exist before either.
fn roll_back(
    cluster: &mut dyn Objects,
    pool: PoolId,
    object: &ObjectId,
    snap: SnapId,
) -> Result<Option<bool>> {
    let then = ObjectId {
        snapshot: snap,
        ..object.clone()
    };
    for _ in 0..TRIES {
        let past = head_of(call(cluster, read_head(pool, &then, 0))?)?;
        let now = head_of(call(cluster, read_head(pool, object, 0))?)?;
        if past.is_none() && now.is_none() {
            return Ok(None);
        }
        let (old, new) = (manifest_attr(now.as_ref()), manifest_attr(past.as_ref()));
        if let Some(manifest) = past.as_ref().map(Manifest::of).transpose()?.flatten() {
            restore_pieces(cluster, pool, object, &manifest, snap)?;
        }
        let ops = vec![
            SubOp::CompareAttr {
                name: MANIFEST.into(),
                value: old.clone(),
            },
            SubOp::Rollback { snap },
        ];
        match call(
            cluster,
            operation(pool, object.clone(), ops, Payload::new()),
        )? {
            Ok(_) => {}
            Err(Failed::Refused(OpFailure::Guard { index: 0 } | OpFailure::NotFound {})) => {
                continue;
            }
            Err(why) => return Err(anyhow::Error::from(why).context(object.to_string())),
        }
        if let Some(manifest) = now
            .as_ref()
            .map(Manifest::of)
            .transpose()?
            .flatten()
            .filter(|_| old != new)
        {
            stripe::remove_pieces(cluster, pool, object, &manifest)?;
        }
        return Ok(Some(past.is_some()));
    }
    bail!("others replace this object all the time; nothing was changed")
}

/// Restores the missing pieces of a content.
fn restore_pieces(
    cluster: &mut dyn Objects,
    pool: PoolId,
    object: &ObjectId,
    manifest: &Manifest,
    snap: SnapId,
) -> Result<()> {
    let mut gone = Vec::new();
    let mut look = Window::new(cluster, 64, u64::MAX);
    let mut ended = |index: u32, result: crate::objects::Ended| match result {
        Ok(_) => Ok(()),
        Err(Failed::Refused(OpFailure::NotFound {})) => {
            gone.push(index);
            Ok(())
        }
        Err(why) => Err(why.into()),
    };
    for index in 0..manifest.pieces() {
        let stat = operation(
            pool,
            manifest.piece(object, index),
            vec![SubOp::Stat {}],
            Payload::new(),
        );
        look.push(stat, index, 0, &mut ended)?;
    }
    look.drain(&mut ended)?;
    let mut back = Window::new(cluster, 64, u64::MAX);
    let mut ended = |piece: ObjectId, result| found(result, &piece).map(drop);
    for index in gone {
        let piece = manifest.piece(object, index);
        let roll = operation(
            pool,
            piece.clone(),
            vec![SubOp::Rollback { snap }],
            Payload::new(),
        );
        back.push(roll, piece, 0, &mut ended)?;
    }
    back.drain(&mut ended)
}

/// The error for an object that does not exist at a snapshot.
pub fn missing_at(object: &ObjectId, what: &str) -> anyhow::Error {
    let live = ObjectId {
        snapshot: SnapId::HEAD,
        ..object.clone()
    };
    missing(&live).context(format!("{live} was not there at {what}"))
}
