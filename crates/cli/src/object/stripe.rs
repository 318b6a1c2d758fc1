//! One object for its users, many for the cluster: striping of large files
//! (`docs/formats/striping.md`; OSDI 2006 §2, "file data striped onto objects").
//!
//! ```text
//!  NAME                     no data; attribute nacre.stripes = "1 size=… unit=… series=S"
//!   ├─ NAME.S……00000000     the first `unit` bytes, in the namespace of pieces
//!   ├─ NAME.S……00000001     …
//! ```
//! Replacing is atomic, striped or not: the pieces of a new series are complete before NAME
//! references them, in one operation that is guarded by NAME's previous reference; only then are
//! the old pieces removed. A crash in between leaves unreferenced pieces, never a torn object.
//!
//! Invariants (tests below): a reader sees the old content or the new one; two writers never share
//! a series; after a successful replacement or removal no piece of the old content is left.

use crate::objects::{Failed, Head, Objects, Window, call, head_of, operation, read_head};
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use nacre_client::Operation;
use nacre_types::{Name, ObjectId, PoolId, SnapId};
use nacre_wire::Payload;
use nacre_wire::msg::client::{OP_BYTES_MAX, OpFailure, SubOp};
use std::cell::RefCell;
use std::io::{Read, Write};

/// Prefix of this program's own attributes; users cannot set them.
pub const RESERVED: &str = "nacre.";
/// The attribute that marks a striped object.
pub(super) const MANIFEST: &str = "nacre.stripes";
/// Larger content is striped: up to this size, content is replaced by a single operation.
pub const WHOLE_MAX: u64 = OP_BYTES_MAX;
/// Bytes of a piece: large enough for a disk to stream, small enough to spread.
const UNIT: u64 = 8 << 20;
/// Pieces in flight.
pub(super) const PIECES_MAX: usize = 6;
/// After this many lost races a writer gives up.
pub(super) const TRIES: usize = 16;

/// Describes the pieces of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Total size in bytes.
    pub size: u64,
    /// Bytes of every piece except the last.
    pub unit: u64,
    /// Number of the series of pieces: drawn at random for every content.
    pub series: u32,
}

impl Manifest {
    /// The attribute.
    pub(super) fn encode(&self) -> Bytes {
        let Self { size, unit, series } = self;
        Bytes::from(format!("1 size={size} unit={unit} series={series:08x}"))
    }

    /// Parses the attribute.
    ///
    /// # Errors
    /// When another version of this program wrote it, or it is damaged.
    fn decode(value: &[u8]) -> Result<Self> {
        let parse = || {
            let mut words = std::str::from_utf8(value).ok()?.split(' ');
            let mut field = |name: &str| words.next()?.strip_prefix(name);
            field("1")?;
            let (size, unit) = (field("size=")?.parse().ok()?, field("unit=")?.parse().ok()?);
            let series = u32::from_str_radix(field("series=")?, 16).ok()?;
            let known = words.next().is_none()
                && unit > 0
                && unit <= OP_BYTES_MAX
                && size / unit < u64::from(u32::MAX);
            known.then_some(Self { size, unit, series })
        };
        parse().with_context(|| {
            format!(
                "its stripes are described in a way this version does not know: {}",
                value.escape_ascii()
            )
        })
    }

    /// The manifest among an object's attributes, if it is striped.
    ///
    /// # Errors
    /// As [`Self::decode`].
    pub fn of(head: &Head) -> Result<Option<Self>> {
        head.attrs
            .get(&Name::from(MANIFEST))
            .map(|value| Self::decode(value))
            .transpose()
    }

    /// Number of pieces.
    #[must_use]
    pub fn pieces(&self) -> u32 {
        u32::try_from(self.size.div_ceil(self.unit)).expect("bounded when it was made")
    }

    /// The object that holds a piece.
    #[must_use]
    pub fn piece(&self, of: &ObjectId, index: u32) -> ObjectId {
        let number = u64::from(self.series) << 32 | u64::from(index);
        let mut name = of.name.as_bytes().to_vec();
        name.extend_from_slice(format!(".{number:016x}").as_bytes());
        let mut namespace = b".stripes/".to_vec();
        namespace.extend_from_slice(of.namespace.as_bytes());
        // At the object's snapshot, if it has one.
        let snapshot = of.snapshot;
        ObjectId {
            namespace: Name::copy(&namespace),
            name: Name::copy(&name),
            snapshot,
            ..ObjectId::default()
        }
    }

    fn piece_len(&self, index: u32) -> u64 {
        self.unit.min(self.size - u64::from(index) * self.unit)
    }
}

/// An operation that replaces the content of an object that is not striped; its guard (part 0)
/// fails if it is.
pub fn put_whole(
    pool: PoolId,
    object: &ObjectId,
    data: Bytes,
    attrs: &[(Name, Bytes)],
) -> Operation {
    replace(pool, object, &Bytes::new(), data, None, attrs)
}

/// Replaces content and manifest if the manifest is still `old` (empty: there is none).
fn replace(
    pool: PoolId,
    object: &ObjectId,
    old: &Bytes,
    data: Bytes,
    new: Option<&Manifest>,
    attrs: &[(Name, Bytes)],
) -> Operation {
    let name = || Name::from(MANIFEST);
    let mut ops = vec![SubOp::CompareAttr {
        name: name(),
        value: old.clone(),
    }];
    match new {
        Some(manifest) => ops.push(SubOp::SetAttr {
            name: name(),
            value: manifest.encode(),
        }),
        None if !old.is_empty() => ops.push(SubOp::RemoveAttr { name: name() }),
        None => {}
    }
    ops.extend(attrs.iter().map(|(name, value)| SubOp::SetAttr {
        name: name.clone(),
        value: value.clone(),
    }));
    ops.push(SubOp::WriteFull {
        length: data.len() as u64,
    });
    operation(
        pool,
        object.clone(),
        ops,
        if data.is_empty() {
            Payload::new()
        } else {
            vec![data]
        },
    )
}

/// Reads up to `length` bytes.
fn fill(source: &mut dyn Read, length: u64) -> Result<Bytes> {
    let mut data = Vec::new();
    source
        .take(length)
        .read_to_end(&mut data)
        .context("reading what is to be stored")?;
    Ok(data.into())
}

/// Replaces an object's content, of any length. `progress` gets the bytes as they are stored.
///
/// # Errors
/// When the source cannot be read, or the cluster refuses; then the object is unchanged.
pub fn put(
    cluster: &mut dyn Objects,
    pool: PoolId,
    object: &ObjectId,
    source: &mut dyn Read,
    attrs: &[(Name, Bytes)],
    progress: &mut dyn FnMut(u64),
) -> Result<u64> {
    let mut first = fill(source, WHOLE_MAX + 1)?;
    if first.len() as u64 <= WHOLE_MAX {
        let size = first.len() as u64;
        commit(cluster, pool, object, &first, None, attrs)?;
        progress(size);
        return Ok(size);
    }
    let mut manifest = Manifest {
        size: 0,
        unit: UNIT,
        series: claim(cluster, pool, object)?,
    };
    let mut written = || -> Result<u64> {
        let mut window = Window::new(cluster, PIECES_MAX, PIECES_MAX as u64 * UNIT);
        let mut ended = |length: u64, result: Result<_, Failed>| {
            result?;
            progress(length);
            Ok(())
        };
        for index in 0_u32.. {
            let data = if first.is_empty() {
                fill(source, UNIT)?
            } else {
                first.split_to(first.len().min(UNIT as usize))
            };
            // The data read first may not be a multiple of the unit.
            let data = if (data.len() as u64) < UNIT {
                let rest = fill(source, UNIT - data.len() as u64)?;
                [data, rest].concat().into()
            } else {
                data
            };
            if data.is_empty() {
                break;
            }
            let length = data.len() as u64;
            manifest.size += length;
            let ops = vec![SubOp::WriteFull { length }];
            let write = operation(pool, manifest.piece(object, index), ops, vec![data]);
            window.push(write, length, length, &mut ended)?;
            if length < UNIT {
                break;
            }
        }
        window.drain(&mut ended)?;
        Ok(manifest.size)
    };
    let size = match written() {
        Ok(size) => size,
        Err(error) => {
            // Operations in flight may still create pieces; the pieces removed here need not be
            // complete.
            while cluster.next()?.is_some() {}
            remove_pieces(
                cluster,
                pool,
                object,
                &Manifest {
                    size: manifest.size.max(1),
                    ..manifest
                },
            )?;
            return Err(error);
        }
    };
    match commit(cluster, pool, object, &Bytes::new(), Some(&manifest), attrs) {
        Ok(()) => Ok(size),
        Err(error) => {
            // An operation without an answer may still have succeeded: then the object uses the
            // pieces.
            if error
                .downcast_ref::<Failed>()
                .is_none_or(|failed| matches!(failed, Failed::Refused(_) | Failed::Foreign(_)))
            {
                remove_pieces(cluster, pool, object, &manifest)?;
            }
            Err(error)
        }
    }
}

/// Draws a series, and creates its first piece so that no other writer can use it.
pub(super) fn claim(cluster: &mut dyn Objects, pool: PoolId, object: &ObjectId) -> Result<u32> {
    for _ in 0..TRIES {
        let manifest = Manifest {
            size: 1,
            unit: UNIT,
            series: random()?,
        };
        let ops = vec![SubOp::Create { exclusive: true }];
        match call(
            cluster,
            operation(pool, manifest.piece(object, 0), ops, Payload::new()),
        )? {
            Ok(_) => return Ok(manifest.series),
            Err(Failed::Refused(OpFailure::AlreadyExists {})) => {}
            Err(why) => return Err(why.into()),
        }
    }
    bail!("no free series of pieces was found in {TRIES} tries")
}

/// An unpredictable number.
pub fn random() -> Result<u32> {
    let mut bytes = [0; 4];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .context("reading /dev/urandom")?;
    Ok(u32::from_le_bytes(bytes))
}

/// Gives the object this content, whatever its previous one, and removes the previous pieces.
fn commit(
    cluster: &mut dyn Objects,
    pool: PoolId,
    object: &ObjectId,
    data: &Bytes,
    manifest: Option<&Manifest>,
    attrs: &[(Name, Bytes)],
) -> Result<()> {
    let mut old = Bytes::new();
    for _ in 0..TRIES {
        match call(
            cluster,
            replace(pool, object, &old, data.clone(), manifest, attrs),
        )? {
            Ok(_) if old.is_empty() => return Ok(()),
            Ok(_) => return remove_pieces(cluster, pool, object, &Manifest::decode(&old)?),
            Err(Failed::Refused(OpFailure::Guard { index: 0 })) => {}
            Err(why) => return Err(why.into()),
        }
        let head = head_of(call(cluster, read_head(pool, object, 0))?)?.unwrap_or_default();
        old = head
            .attrs
            .get(&Name::from(MANIFEST))
            .cloned()
            .unwrap_or_default();
    }
    bail!("others replace this object all the time; nothing was changed")
}

/// Removes the pieces of a content that is no longer referenced.
pub(super) fn remove_pieces(
    cluster: &mut dyn Objects,
    pool: PoolId,
    object: &ObjectId,
    manifest: &Manifest,
) -> Result<()> {
    let mut window = Window::new(cluster, 64, u64::MAX);
    let mut ended = |(), result| match result {
        Ok(_) | Err(Failed::Refused(OpFailure::NotFound {})) => Ok(()),
        Err(why) => Err(anyhow::Error::from(why).context("removing pieces of what was replaced")),
    };
    for index in 0..manifest.pieces() {
        let remove = operation(
            pool,
            manifest.piece(object, index),
            vec![SubOp::Delete {}],
            Payload::new(),
        );
        window.push(remove, (), 0, &mut ended)?;
    }
    window.drain(&mut ended)
}

/// Writes an object's content to `sink`; `None` if there is no such object. `progress` gets the
/// bytes as they arrive.
///
/// # Errors
/// When the sink fails, the cluster refuses, or the content is replaced while it is read.
pub fn get(
    cluster: &mut dyn Objects,
    pool: PoolId,
    object: &ObjectId,
    sink: &mut dyn Write,
    progress: &mut dyn FnMut(u64),
) -> Result<Option<Head>> {
    let Some(head) = head_of(call(cluster, read_head(pool, object, WHOLE_MAX))?)? else {
        return Ok(None);
    };
    rest_of(cluster, pool, object, &head, sink, progress)?;
    Ok(Some(head))
}

/// Writes the content whose beginning is in `head`.
///
/// # Errors
/// As [`get`].
pub fn rest_of(
    cluster: &mut dyn Objects,
    pool: PoolId,
    object: &ObjectId,
    head: &Head,
    sink: &mut dyn Write,
    progress: &mut dyn FnMut(u64),
) -> Result<()> {
    let mut write = |data: &Payload| -> Result<()> {
        for part in data {
            sink.write_all(part).context("writing what was read")?;
            progress(part.len() as u64);
        }
        Ok(())
    };
    let Some(manifest) = Manifest::of(head)? else {
        write(&head.data)?;
        let mut offset = nacre_wire::msg::payload_len(&head.data) as u64;
        while offset < head.size {
            // Extended beyond one operation by other programs: every part must be of the same
            // version.
            let ops = vec![
                SubOp::AssertVersion {
                    version: head.version,
                },
                SubOp::Read {
                    offset,
                    length: WHOLE_MAX,
                },
            ];
            let done = match call(
                cluster,
                operation(pool, object.clone(), ops, Payload::new()),
            )? {
                Ok(done) => done,
                Err(Failed::Refused(OpFailure::Guard { .. } | OpFailure::NotFound {})) => {
                    bail!(REPLACED)
                }
                Err(why) => return Err(why.into()),
            };
            ensure!(
                !done.payload.iter().all(Bytes::is_empty),
                "the object ends before its size says"
            );
            offset += nacre_wire::msg::payload_len(&done.payload) as u64;
            write(&done.payload)?;
        }
        return Ok(());
    };
    // Pieces arrive in any order and are written in sequence.
    let (mut arrived, mut next) = (std::collections::BTreeMap::new(), 0_u32);
    let mut window = Window::new(cluster, PIECES_MAX, PIECES_MAX as u64 * manifest.unit);
    // A piece never changes. If its OSD knew of the snapshot before the object's OSD did, the piece
    // is not in the snapshot, and exists here as long as the object does.
    let (past, live) = (object.snapshot != SnapId::HEAD, RefCell::new(Vec::new()));
    let mut ended = |(index, past): (u32, bool), result: crate::objects::Ended| -> Result<()> {
        let data = match result {
            Ok(done) => done.payload,
            Err(Failed::Refused(OpFailure::NotFound {})) if past => {
                live.borrow_mut().push(index);
                return Ok(());
            }
            Err(Failed::Refused(OpFailure::NotFound {})) => bail!(REPLACED),
            Err(why) => return Err(why.into()),
        };
        ensure!(
            nacre_wire::msg::payload_len(&data) as u64 == manifest.piece_len(index),
            "piece {index} is not as long as the object's description says"
        );
        arrived.insert(index, data);
        while let Some(data) = arrived.remove(&next) {
            write(&data)?;
            next += 1;
        }
        Ok(())
    };
    let mut fetch = || -> Result<()> {
        let mut indexes = 0..manifest.pieces();
        loop {
            let again = live.borrow_mut().pop();
            let (piece, index, past) = match again {
                Some(index) => {
                    let piece = ObjectId {
                        snapshot: SnapId::HEAD,
                        ..manifest.piece(object, index)
                    };
                    (piece, index, false)
                }
                None => match indexes.next() {
                    Some(index) => (manifest.piece(object, index), index, past),
                    None => {
                        window.drain(&mut ended)?;
                        if live.borrow().is_empty() {
                            return Ok(());
                        }
                        continue;
                    }
                },
            };
            let ops = vec![SubOp::Read {
                offset: 0,
                length: manifest.unit,
            }];
            let read = operation(pool, piece, ops, Payload::new());
            window.push(read, (index, past), manifest.unit, &mut ended)?;
        }
    };
    let fetched = fetch();
    if fetched.is_err() {
        // The next user of the cluster must not see operations in flight.
        while cluster.next()?.is_some() {}
    }
    fetched
}

pub(super) const REPLACED: &str =
    "the object was replaced or removed while it was read; read it again";

/// Removes an object with all its pieces; false if there is none.
///
/// # Errors
/// When the cluster refuses.
pub fn remove(cluster: &mut dyn Objects, pool: PoolId, object: &ObjectId) -> Result<bool> {
    let mut old = Bytes::new();
    for _ in 0..TRIES {
        let ops = vec![
            SubOp::CompareAttr {
                name: MANIFEST.into(),
                value: old.clone(),
            },
            SubOp::Delete {},
        ];
        match call(
            cluster,
            operation(pool, object.clone(), ops, Payload::new()),
        )? {
            Ok(_) if old.is_empty() => return Ok(true),
            Ok(_) => {
                return remove_pieces(cluster, pool, object, &Manifest::decode(&old)?)
                    .map(|()| true);
            }
            Err(Failed::Refused(OpFailure::NotFound {})) => return Ok(false),
            Err(Failed::Refused(OpFailure::Guard { index: 0 })) => {}
            Err(why) => return Err(why.into()),
        }
        let Some(head) = head_of(call(cluster, read_head(pool, object, 0))?)? else {
            return Ok(false);
        };
        old = head
            .attrs
            .get(&Name::from(MANIFEST))
            .cloned()
            .unwrap_or_default();
    }
    bail!("others replace this object all the time; nothing was changed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::memory::Memory;

    const POOL: PoolId = PoolId(1);
    /// Three pieces and a bit, not a multiple of the unit.
    const LARGE: usize = WHOLE_MAX as usize + 3 * UNIT as usize + 17;

    fn object() -> ObjectId {
        ObjectId {
            namespace: "ns".into(),
            ..ObjectId::named("a/b")
        }
    }
    fn content(length: usize, salt: u8) -> Vec<u8> {
        (0..length)
            .map(|i| (i as u8).wrapping_mul(31).wrapping_add((i >> 12) as u8) ^ salt)
            .collect()
    }
    fn store(cluster: &mut Memory, data: &[u8]) -> Result<u64> {
        put(cluster, POOL, &object(), &mut &data[..], &[], &mut |_| {})
    }
    fn load(cluster: &mut Memory) -> Option<Vec<u8>> {
        let mut data = Vec::new();
        get(cluster, POOL, &object(), &mut data, &mut |_| {})
            .expect("readable")
            .map(|_| data)
    }

    #[test]
    fn content_of_any_length_comes_back_and_replaces_what_was_there_without_trace() {
        let mut cluster = Memory::default();
        assert_eq!(load(&mut cluster), None);
        for (round, length) in [
            3,
            LARGE,
            LARGE - 17,
            0,
            LARGE,
            WHOLE_MAX as usize,
            WHOLE_MAX as usize + 1,
        ]
        .into_iter()
        .enumerate()
        {
            let data = content(length, round as u8);
            assert_eq!(store(&mut cluster, &data).expect("stored"), length as u64);
            assert!(load(&mut cluster).expect("there") == data, "round {round}");
            let pieces = if length as u64 > WHOLE_MAX {
                length.div_ceil(UNIT as usize)
            } else {
                0
            };
            assert_eq!(cluster.names().len(), 1 + pieces, "round {round}");
        }
        assert!(remove(&mut cluster, POOL, &object()).expect("removed"));
        assert_eq!(cluster.names(), []);
        assert!(!remove(&mut cluster, POOL, &object()).expect("nothing there"));
    }

    #[test]
    fn a_write_that_fails_half_way_leaves_the_old_content_and_no_pieces() {
        let mut cluster = Memory::default();
        let old = content(LARGE, 1);
        store(&mut cluster, &old).expect("stored");
        let before = cluster.names();
        for writes in 0..4 {
            cluster.writes_left = Some(writes);
            let error = store(&mut cluster, &content(LARGE, 2)).expect_err("full");
            assert!(error.to_string().contains("no space"), "{error}");
            cluster.writes_left = None;
            assert_eq!(cluster.names(), before);
            assert!(load(&mut cluster).expect("there") == old);
        }
    }

    /// Its OSD knew of the snapshot before the piece was written, the object's OSD did not before
    /// it referenced the piece.
    #[test]
    fn a_piece_that_a_snapshot_has_not_is_read_as_it_is_now() {
        let mut cluster = Memory::default();
        let data = content(LARGE, 1);
        store(&mut cluster, &data).expect("stored");
        let head = head_of(call(&mut cluster, read_head(POOL, &object(), 0)).expect("there"))
            .expect("read")
            .expect("is");
        let manifest = Manifest::of(&head).expect("ours").expect("in pieces");
        let then = ObjectId {
            snapshot: SnapId(3),
            ..object()
        };
        let describe = replace(
            POOL,
            &then,
            &Bytes::new(),
            Bytes::new(),
            Some(&manifest),
            &[],
        );
        call(&mut cluster, describe)
            .expect("there")
            .expect("described");
        let read = |cluster: &mut Memory| {
            let mut found = Vec::new();
            get(cluster, POOL, &then, &mut found, &mut |_| {}).map(|_| found)
        };
        assert!(
            read(&mut cluster).expect("read") == data,
            "none is in the snapshot"
        );
        // One piece is missing; another one is missing everywhere.
        let mut other = data.clone();
        other[..UNIT as usize].fill(7);
        let piece = operation(
            POOL,
            manifest.piece(&then, 0),
            vec![SubOp::WriteFull { length: UNIT }],
            vec![other[..UNIT as usize].to_vec().into()],
        );
        call(&mut cluster, piece).expect("there").expect("written");
        assert!(read(&mut cluster).expect("read") == other);
        let gone = operation(
            POOL,
            manifest.piece(&object(), 2),
            vec![SubOp::Delete {}],
            Payload::new(),
        );
        call(&mut cluster, gone).expect("there").expect("removed");
        assert!(
            read(&mut cluster)
                .expect_err("a hole")
                .to_string()
                .contains("read it again")
        );
    }

    #[test]
    fn pieces_are_named_by_series_and_index_in_sixteen_digits() {
        let manifest = Manifest {
            size: 100,
            unit: 10,
            series: 0xab,
        };
        assert_eq!((manifest.pieces(), manifest.piece_len(9)), (10, 10));
        let piece = manifest.piece(&object(), 3);
        assert_eq!(
            (piece.name.to_string(), piece.namespace.to_string()),
            ("a/b.000000ab00000003".into(), ".stripes/ns".into())
        );
    }

    #[test]
    fn manifests_that_are_not_understood_are_refused() {
        let manifest = Manifest {
            size: 1 << 40,
            unit: UNIT,
            series: 7,
        };
        assert_eq!(
            Manifest::decode(&manifest.encode()).expect("our own"),
            manifest
        );
        let huge = format!("1 size={} unit=1 series=00000007", u64::MAX);
        for bad in [
            "",
            "2 size=1 unit=1 series=1",
            "1 size=1 unit=0 series=1",
            "1 size=1 unit=1 series=1 more=1",
            "1 size=x unit=1 series=1",
            &huge,
        ] {
            assert!(Manifest::decode(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
