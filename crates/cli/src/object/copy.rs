//! `nacre object cp`: a copy of an object within its pool, made by the OSDs.
//!
//! ```text
//!  SOURCE ──CopyFrom──▶ a temporary object ── in pieces? pieces copied, the description says which ──▶ CopyFrom ──▶ NEW
//! ```
//! The temporary object is all of the source's own data, attributes and map at one time; its name
//! is one that a piece of NEW could have, so nobody else has it. What NEW was is replaced by one
//! operation, guarded by which pieces it had; those go afterwards. A crash in between leaves pieces
//! that nothing points at, never a torn object.

use super::stripe::{self, MANIFEST, Manifest, PIECES_MAX, REPLACED, TRIES};
use super::{found, missing};
use crate::objects::{Failed, Objects, Window, call, head_of, operation, read_head};
use anyhow::{Result, bail};
use nacre_types::{Name, ObjectId, PoolId};
use nacre_wire::Payload;
use nacre_wire::msg::client::{OpFailure, SubOp};

/// What is made on the way.
struct Way {
    /// Piece 0 is there from the beginning.
    pieces: Manifest,
    /// The content is in pieces.
    striped: bool,
    /// NEW points at them, or may.
    used: bool,
}

/// Makes `new` what `source` is. Returns the bytes of its content.
///
/// # Errors
/// When there is no source, it is replaced meanwhile, or the cluster refuses; then `new` is what it
/// was.
pub fn copy(
    cluster: &mut dyn Objects,
    pool: PoolId,
    source: &ObjectId,
    new: &ObjectId,
) -> Result<u64> {
    let series = stripe::claim(cluster, pool, new)?;
    let mut way = Way {
        pieces: Manifest {
            size: 1,
            unit: 1,
            series,
        },
        striped: false,
        used: false,
    };
    let temporary = way.pieces.piece(new, u32::MAX);
    let copied = stage(cluster, pool, source, new, &temporary, &mut way)
        .and_then(|size| commit(cluster, pool, &temporary, new, &mut way.used).map(|()| size));
    if copied.is_err() {
        // Leave nothing in flight to what cleans up.
        while cluster.next()?.is_some() {}
    }
    let remove = operation(pool, temporary, vec![SubOp::Delete {}], Payload::new());
    match call(cluster, remove)? {
        Ok(_) | Err(Failed::Refused(OpFailure::NotFound {})) => {}
        // What went wrong first is what matters.
        Err(why) => copied.as_ref().map_or(Ok(()), |_| Err(why))?,
    }
    if !(way.used && way.striped) {
        stripe::remove_pieces(cluster, pool, new, &way.pieces)?;
    }
    copied
}

/// Makes the temporary object, and the pieces that it points at.
fn stage(
    cluster: &mut dyn Objects,
    pool: PoolId,
    source: &ObjectId,
    new: &ObjectId,
    temporary: &ObjectId,
    way: &mut Way,
) -> Result<u64> {
    let ops = vec![SubOp::CopyFrom {
        source: source.clone(),
    }];
    found(
        call(
            cluster,
            operation(pool, temporary.clone(), ops, Payload::new()),
        )?,
        source,
    )?;
    let head = head_of(call(cluster, read_head(pool, temporary, 0))?)?
        .ok_or_else(|| missing(temporary))?;
    let Some(theirs) = Manifest::of(&head)? else {
        return Ok(head.size);
    };
    way.striped = true;
    way.pieces = Manifest {
        series: way.pieces.series,
        ..theirs
    };
    let pieces = way.pieces;
    let mut window = Window::new(cluster, PIECES_MAX, u64::MAX);
    let mut ended = |(), result: crate::objects::Ended| match result {
        Ok(_) => Ok(()),
        Err(Failed::Refused(OpFailure::NotFound {})) => bail!(REPLACED),
        Err(why) => Err(why.into()),
    };
    for index in 0..theirs.pieces() {
        let ops = vec![SubOp::CopyFrom {
            source: theirs.piece(source, index),
        }];
        window.push(
            operation(pool, pieces.piece(new, index), ops, Payload::new()),
            (),
            0,
            &mut ended,
        )?;
    }
    window.drain(&mut ended)?;
    let ops = vec![SubOp::SetAttr {
        name: MANIFEST.into(),
        value: pieces.encode(),
    }];
    found(
        call(
            cluster,
            operation(pool, temporary.clone(), ops, Payload::new()),
        )?,
        temporary,
    )?;
    Ok(theirs.size)
}

/// Makes `new` what the temporary object is. `used`: it is, or may be.
fn commit(
    cluster: &mut dyn Objects,
    pool: PoolId,
    temporary: &ObjectId,
    new: &ObjectId,
    used: &mut bool,
) -> Result<()> {
    for _ in 0..TRIES {
        let head = head_of(call(cluster, read_head(pool, new, 0))?)?.unwrap_or_default();
        let old = head
            .attrs
            .get(&Name::from(MANIFEST))
            .cloned()
            .unwrap_or_default();
        let guard = SubOp::CompareAttr {
            name: MANIFEST.into(),
            value: old,
        };
        let ops = vec![
            guard,
            SubOp::CopyFrom {
                source: temporary.clone(),
            },
        ];
        match call(cluster, operation(pool, new.clone(), ops, Payload::new()))? {
            Ok(_) => {
                *used = true;
                return match Manifest::of(&head)? {
                    Some(manifest) => stripe::remove_pieces(cluster, pool, new, &manifest),
                    None => Ok(()),
                };
            }
            Err(Failed::Refused(OpFailure::Guard { index: 0 })) => {}
            Err(why) => {
                *used = !matches!(why, Failed::Refused(_) | Failed::Foreign(_));
                return Err(why.into());
            }
        }
    }
    bail!("others replace {new} all the time; it was not changed")
}
