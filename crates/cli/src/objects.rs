//! What the commands need of a cluster's data path: operations in flight and their ends.
//!
//! ```text
//!  commands ─▶ call (one at a time) ─┐
//!           ─▶ Window (many, bounded) ├─▶ Objects ─▶ a cluster, or in tests one in memory
//! ```

use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use nacre_client::{Capabilities, Client, Done, OpId, Operation, WatchEvent, WatchId};
use nacre_types::{ClientId, Instance, Name, ObjectId, PoolId};
use nacre_wire::Payload;
use nacre_wire::msg::client::{OpFailure, RequestId, SubOp, SubReply};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Why an operation did not succeed.
#[derive(Clone, Debug, PartialEq)]
pub enum Failed {
    /// It certainly had no effect.
    Refused(OpFailure),
    /// It may have had its effect, or have it yet.
    Unknown(String),
    /// Another engine refused it, in its own words: it had no effect.
    Foreign(String),
}
impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(OpFailure::Method { errno, why, .. }) if why.is_empty() => {
                // What a method chose to say; the protocol knows no names of errors.
                match i32::try_from(*errno).ok().and_then(nacre_policy::errno::name) {
                    Some(name) => write!(f, "the method failed with {name} (error {errno})"),
                    None => write!(f, "the method failed with error {errno}"),
                }
            }
            Self::Refused(why) => why.fmt(f),
            Self::Unknown(why) | Self::Foreign(why) => f.write_str(why),
        }
    }
}
impl std::error::Error for Failed {}

/// How an operation ended.
pub type Ended = Result<Done, Failed>;

/// Operations on objects.
pub trait Objects {
    /// Begins an operation, waiting for room if too much is in flight.
    ///
    /// # Errors
    /// When the cluster cannot be reached at all.
    fn begin(&mut self, operation: Operation) -> Result<OpId>;
    /// Waits for the next operation to end; `None` when nothing is in flight.
    ///
    /// # Errors
    /// When the cluster cannot be reached at all.
    fn next(&mut self) -> Result<Option<(OpId, Ended)>>;
    /// How many placement groups a pool has now.
    ///
    /// # Errors
    /// When there is no such pool.
    fn pg_num(&mut self, pool: PoolId) -> Result<u32>;
    /// Waits until this client's map is of that epoch: what it asks of an OSD then is answered by
    /// one that knows it, too.
    ///
    /// # Errors
    /// When the monitors do not send it.
    fn map_at_least(&mut self, epoch: u64) -> Result<()> {
        let _ = epoch;
        Ok(())
    }
    /// Who this client is for the cluster, where that can be fenced.
    fn identity(&mut self) -> Option<(ClientId, Instance)> {
        None
    }
    /// What the cluster can do.
    fn capabilities(&mut self) -> Capabilities {
        Client::CAPABILITIES
    }
    /// Begins to watch an object; [`Self::next`] says how the registration ended.
    ///
    /// # Errors
    /// When the cluster cannot be reached at all, or cannot watch.
    fn watch(&mut self, pool: PoolId, object: &ObjectId, timeout: Duration) -> Result<WatchId> {
        let _ = (pool, object, timeout);
        Err(anyhow!("this cluster cannot watch objects"))
    }
    /// Waits at most so long for what a watcher hears.
    ///
    /// # Errors
    /// When the cluster cannot be reached at all.
    fn watch_event(&mut self, max: Duration) -> Result<Option<WatchEvent>> {
        let _ = max;
        Ok(None)
    }
    /// Acknowledges a notify; of a watch that is lost, that is the next event.
    ///
    /// # Errors
    /// When the cluster cannot be reached at all.
    fn acknowledge(&mut self, watch: WatchId, notify: RequestId) -> Result<()> {
        let _ = (watch, notify);
        Ok(())
    }
    /// Ends a watch, and waits for that.
    ///
    /// # Errors
    /// When the cluster cannot be reached at all.
    fn unwatch(&mut self, watch: WatchId) -> Result<()> {
        let _ = watch;
        Ok(())
    }
}

/// An operation on an object.
pub fn operation(pool: PoolId, object: ObjectId, ops: Vec<SubOp>, payload: Payload) -> Operation {
    Operation { pool, object, ops, payload, ..Operation::default() }
}

/// Runs one operation, with nothing else in flight.
///
/// # Errors
/// As [`Objects::begin`].
pub fn call(cluster: &mut dyn Objects, operation: Operation) -> Result<Ended> {
    let id = cluster.begin(operation)?;
    let (ended, result) = cluster.next()?.context("the operation that was begun is lost")?;
    assert_eq!(ended, id, "nothing else is in flight");
    Ok(result)
}

/// Many operations in flight, each with something to remember; at most so many and so many bytes.
pub struct Window<'c, T> {
    /// The cluster; the window's owner may not begin operations beside it.
    cluster: &'c mut dyn Objects,
    flying: BTreeMap<OpId, (T, u64)>,
    bytes: u64,
    ops_max: usize,
    bytes_max: u64,
}

impl<'c, T> Window<'c, T> {
    /// An empty one.
    pub fn new(cluster: &'c mut dyn Objects, ops_max: usize, bytes_max: u64) -> Self {
        Self { cluster, flying: BTreeMap::new(), bytes: 0, ops_max, bytes_max }
    }
    /// Begins an operation that takes `bytes` of memory until it ends. What ends meanwhile is given to `ended`.
    ///
    /// # Errors
    /// As [`Objects::begin`], and what `ended` says.
    pub fn push(
        &mut self,
        operation: Operation,
        remember: T,
        bytes: u64,
        ended: &mut dyn FnMut(T, Ended) -> Result<()>,
    ) -> Result<()> {
        while self.flying.len() >= self.ops_max || (!self.flying.is_empty() && self.bytes + bytes > self.bytes_max) {
            self.take(ended)?;
        }
        let id = self.cluster.begin(operation)?;
        self.flying.insert(id, (remember, bytes));
        self.bytes += bytes;
        Ok(())
    }
    /// Waits until nothing is in flight.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub fn drain(&mut self, ended: &mut dyn FnMut(T, Ended) -> Result<()>) -> Result<()> {
        while !self.flying.is_empty() {
            self.take(ended)?;
        }
        Ok(())
    }
    fn take(&mut self, ended: &mut dyn FnMut(T, Ended) -> Result<()>) -> Result<()> {
        let (id, result) = self.cluster.next()?.context("operations in flight are lost")?;
        let (remembered, bytes) = self.flying.remove(&id).context("an operation ended that nobody began")?;
        self.bytes -= bytes;
        ended(remembered, result)
    }
}

/// Data, attributes and size of an object, as one operation reads them: consistent with each other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Head {
    /// Bytes of the object itself.
    pub size: u64,
    /// Which update it shows.
    pub version: nacre_types::Version,
    /// All attributes.
    pub attrs: BTreeMap<Name, Bytes>,
    /// The first bytes of its data.
    pub data: Payload,
}

/// An operation that [`head_of`] understands.
pub fn read_head(pool: PoolId, object: &ObjectId, length: u64) -> Operation {
    let mut ops = vec![SubOp::Stat {}, SubOp::ListAttrs {}];
    if length > 0 {
        ops.push(SubOp::Read { offset: 0, length });
    }
    operation(pool, object.clone(), ops, Payload::new())
}

/// What [`read_head`] found; `None` if there is no object.
///
/// # Errors
/// When it failed for another reason.
pub fn head_of(ended: Ended) -> Result<Option<Head>> {
    let done = match ended {
        Ok(done) => done,
        Err(Failed::Refused(OpFailure::NotFound {})) => return Ok(None),
        Err(why) => return Err(why.into()),
    };
    let mut head = Head { data: done.payload, ..Head::default() };
    for reply in done.results {
        match reply {
            SubReply::Stat { size, version, .. } => (head.size, head.version) = (size, version),
            SubReply::Entries { entries, .. } => {
                head.attrs = entries.into_iter().map(|(name, value)| (Name::from(name), value)).collect();
            }
            SubReply::Data { .. } => {}
            other => {
                return Err(anyhow!("the answer has an unexpected part {other:?}: is a daemon of another version?"));
            }
        }
    }
    Ok(Some(head))
}

#[cfg(test)]
pub mod memory {
    //! Objects in this process's memory, for tests of what is built on them. It evaluates the parts of an operation as
    //! `crates/osd` does, and ends operations out of order.

    use super::*;

    #[derive(Clone, Debug, Default, PartialEq)]
    struct Object {
        data: Vec<u8>,
        attrs: BTreeMap<Name, Bytes>,
        omap: BTreeMap<Bytes, Bytes>,
        version: u64,
    }

    /// See the module head.
    #[derive(Default)]
    pub struct Memory {
        objects: BTreeMap<(PoolId, ObjectId), Object>,
        ended: Vec<(OpId, Ended)>,
        operations: u64,
        /// Refuses all writes of data after so many.
        pub writes_left: Option<u64>,
        /// So many operations get no answer, and do nothing.
        pub unanswered: u64,
    }

    impl Memory {
        /// All objects there are.
        pub fn names(&self) -> Vec<ObjectId> {
            self.objects.keys().map(|(_, object)| object.clone()).collect()
        }

        fn run(&mut self, operation: Operation) -> Ended {
            let refuse = |why| Err(Failed::Refused(why));
            if let [SubOp::ListObjects { after, limit }] = &operation.ops[..] {
                let skip =
                    if after.is_empty() { 0 } else { String::from_utf8_lossy(after).parse().expect("our own cursor") };
                let mine = |(_, object): &&(PoolId, ObjectId)| {
                    let seed = object.name.as_bytes().last().copied().unwrap_or_default() % 4;
                    Some(u32::from(seed)) == operation.group
                };
                let mut all = self.objects.keys().filter(|(pool, _)| *pool == operation.pool).filter(mine).skip(skip);
                let objects: Vec<ObjectId> = all.by_ref().take(*limit as usize).map(|(_, id)| id.clone()).collect();
                let next = all.next().map(|_| Bytes::from((skip + objects.len()).to_string()));
                return Ok(done(0, vec![SubReply::Objects { objects, next }], Payload::new()));
            }
            let key = (operation.pool, operation.object.clone());
            let mut object = self.objects.get(&key).cloned();
            let mut payload = Bytes::from(operation.payload.concat());
            let (mut results, mut out, mut writes) = (Vec::new(), Payload::new(), false);
            for (index, op) in operation.ops.iter().enumerate() {
                let guard = OpFailure::Guard { index: index as u32 };
                writes |= op.is_write();
                let mut result = SubReply::Done {};
                match (op, &mut object) {
                    (SubOp::AssertExists { exists }, found) if found.is_some() != *exists => return refuse(guard),
                    (SubOp::AssertExists { .. }, _) => {}
                    (SubOp::AssertVersion { version }, found) => {
                        if found.as_ref().map(|o| o.version) != Some(version.number) {
                            return refuse(guard);
                        }
                    }
                    (SubOp::CompareAttr { name, value }, found) => {
                        let has = found.as_ref().and_then(|o| o.attrs.get(name)).cloned().unwrap_or_default();
                        if has != *value {
                            return refuse(guard);
                        }
                    }
                    (SubOp::Create { exclusive: true }, Some(_)) => return refuse(OpFailure::AlreadyExists {}),
                    (SubOp::Create { .. }, found) => {
                        found.get_or_insert_default();
                    }
                    (SubOp::WriteFull { length }, found) => {
                        if let Some(left) = &mut self.writes_left {
                            match left.checked_sub(1) {
                                Some(fewer) => *left = fewer,
                                None => return refuse(OpFailure::Full {}),
                            }
                        }
                        found.get_or_insert_default().data = payload.split_to(*length as usize).to_vec();
                    }
                    (SubOp::SetAttr { name, value }, found) => {
                        found.get_or_insert_default().attrs.insert(name.clone(), value.clone());
                    }
                    (SubOp::OmapSet { entries }, found) => {
                        found.get_or_insert_default().omap.extend(entries.iter().cloned());
                    }
                    (_, None) => return refuse(OpFailure::NotFound {}),
                    (SubOp::OmapGet { keys }, Some(found)) => {
                        let entries = keys.iter().filter_map(|key| Some((key.clone(), found.omap.get(key)?.clone())));
                        result = SubReply::Entries { entries: entries.collect(), more: false };
                    }
                    (SubOp::RemoveAttr { name }, Some(found)) => {
                        if found.attrs.remove(name).is_none() {
                            return refuse(OpFailure::NotFound {});
                        }
                    }
                    (SubOp::Delete {}, found) => *found = None,
                    (SubOp::Stat {}, Some(found)) => {
                        result = SubReply::Stat {
                            size: found.data.len() as u64,
                            version: version(found.version),
                            modified_ms: 0,
                        };
                    }
                    (SubOp::ListAttrs {}, Some(found)) => {
                        let entry =
                            |(name, value): (&Name, &Bytes)| (Bytes::copy_from_slice(name.as_bytes()), value.clone());
                        result = SubReply::Entries { entries: found.attrs.iter().map(entry).collect(), more: false };
                    }
                    (SubOp::Read { offset, length }, Some(found)) => {
                        let size = found.data.len() as u64;
                        let (from, to) = ((*offset).min(size), offset.saturating_add(*length).min(size));
                        let data = Bytes::copy_from_slice(&found.data[from as usize..to as usize]);
                        result = SubReply::Data { length: data.len() as u64 };
                        out.push(data);
                    }
                    (other, _) => panic!("the memory cluster does not know {other:?}"),
                }
                results.push(result);
            }
            let now = object.as_ref().map_or(0, |object| object.version) + u64::from(writes);
            match object {
                Some(mut object) if writes => {
                    object.version = now;
                    self.objects.insert(key, object);
                }
                None if writes => {
                    self.objects.remove(&key);
                }
                _ => {}
            }
            Ok(done(now, results, out))
        }
    }

    fn version(number: u64) -> nacre_types::Version {
        nacre_types::Version { interval: nacre_types::Epoch(1), number }
    }
    fn done(number: u64, results: Vec<SubReply>, payload: Payload) -> Done {
        Done { version: version(number), results, payload }
    }

    impl Objects for Memory {
        fn begin(&mut self, operation: Operation) -> Result<OpId> {
            self.operations += 1;
            let id = OpId(self.operations);
            let ended = match self.unanswered.checked_sub(1) {
                Some(fewer) => {
                    self.unanswered = fewer;
                    Err(Failed::Unknown("no answer".to_owned()))
                }
                None => self.run(operation),
            };
            self.ended.push((id, ended));
            Ok(id)
        }
        fn next(&mut self) -> Result<Option<(OpId, Ended)>> {
            // Not in order of submission: nobody may rely on that across objects.
            Ok(self.ended.pop())
        }
        fn pg_num(&mut self, _: PoolId) -> Result<u32> {
            Ok(4)
        }
    }
}
