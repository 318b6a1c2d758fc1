//! `nacre object cp`: a copy of an object within its pool, made by the OSDs.
//!
//! ```text
//!  SOURCE ──CopyFrom──▶ a temporary object ── striped? pieces copied, the manifest names them ──▶ CopyFrom ──▶ NEW
//! ```
//! The temporary object holds the source's data, attributes and map as of one time; its name is
//! that of a possible piece of NEW, so no other object has it. The old content of NEW is replaced
//! by one operation, guarded by its pieces; these are removed afterwards. A crash in between leaves
//! unreferenced pieces, never a torn object.

use super::stripe::{self, MANIFEST, Manifest, PIECES_MAX, REPLACED, TRIES};
use super::{found, missing};
use crate::objects::{Failed, Objects, Window, call, head_of, operation, read_head};
use anyhow::{Result, bail};
use nacre_types::{Name, ObjectId, PoolId};
use nacre_wire::Payload;
use nacre_wire::msg::client::{OpFailure, SubOp};

/// Temporary objects of the copy.
struct Way {
    /// Piece 0 exists from the beginning.
    pieces: Manifest,
    /// Whether the content is striped.
    striped: bool,
    /// Whether NEW references them, or may.
    used: bool,
}

/// Makes `new` a copy of `source`. Returns the bytes of its content.
///
/// # Errors
/// When there is no source, it is replaced meanwhile, or the cluster refuses; then `new` is
/// unchanged.
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
        // The cleanup must not see operations in flight.
        while cluster.next()?.is_some() {}
    }
    let remove = operation(pool, temporary, vec![SubOp::Delete {}], Payload::new());
    match call(cluster, remove)? {
        Ok(_) | Err(Failed::Refused(OpFailure::NotFound {})) => {}
        // Report the first error.
        Err(why) => copied.as_ref().map_or(Ok(()), |_| Err(why))?,
    }
    if !(way.used && way.striped) {
        stripe::remove_pieces(cluster, pool, new, &way.pieces)?;
    }
    copied
}

/// Creates the temporary object, and the pieces that it references.
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

/// Makes `new` a copy of the temporary object. `used`: it is, or may be.
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
