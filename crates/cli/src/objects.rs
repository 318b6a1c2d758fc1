//! A cluster's data path, as used by the commands: operations in flight and their results.
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
    /// It may have had its effect, or may still have it.
    Unknown(String),
    /// An external engine refused it, with this message: it had no effect.
    Foreign(String),
}
impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(OpFailure::Method { errno, why, .. }) if why.is_empty() => {
                // An error number of a method; the protocol has no names for errors.
                match i32::try_from(*errno)
                    .ok()
                    .and_then(nacre_policy::errno::name)
                {
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

/// The result of an operation.
pub type Ended = Result<Done, Failed>;

/// Operations on objects.
pub trait Objects {
    /// Begins an operation; waits while too many are in flight.
    ///
    /// # Errors
    /// When the cluster cannot be reached at all.
    fn begin(&mut self, operation: Operation) -> Result<OpId>;
    /// Waits for the next operation to end; `None` when nothing is in flight.
    ///
    /// # Errors
    /// When the cluster cannot be reached at all.
    fn next(&mut self) -> Result<Option<(OpId, Ended)>>;
    /// The current number of placement groups of a pool.
    ///
    /// # Errors
    /// When there is no such pool.
    fn pg_num(&mut self, pool: PoolId) -> Result<u32>;
    /// Waits until this client's map has that epoch: OSDs that it contacts afterwards have it, too.
    ///
    /// # Errors
    /// When the monitors do not send it.
    fn map_at_least(&mut self, epoch: u64) -> Result<()> {
        let _ = epoch;
        Ok(())
    }
    /// Identity of this client in the cluster, if it can be fenced.
    fn identity(&mut self) -> Option<(ClientId, Instance)> {
        None
    }
    /// Capabilities of the cluster.
    fn capabilities(&mut self) -> Capabilities {
        Client::CAPABILITIES
    }
    /// Begins to watch an object; [`Self::next`] returns the result of the registration.
    ///
    /// # Errors
    /// When the cluster cannot be reached at all, or does not support watches.
    fn watch(&mut self, pool: PoolId, object: &ObjectId, timeout: Duration) -> Result<WatchId> {
        let _ = (pool, object, timeout);
        Err(anyhow!("this cluster cannot watch objects"))
    }
    /// Waits at most `max` for an event of a watch.
    ///
    /// # Errors
    /// When the cluster cannot be reached at all.
    fn watch_event(&mut self, max: Duration) -> Result<Option<WatchEvent>> {
        let _ = max;
        Ok(None)
    }
    /// Acknowledges a notify; if the watch is lost, the next event says so.
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
    Operation {
        pool,
        object,
        ops,
        payload,
        ..Operation::default()
    }
}

/// Runs one operation, with nothing else in flight.
///
/// # Errors
/// As [`Objects::begin`].
pub fn call(cluster: &mut dyn Objects, operation: Operation) -> Result<Ended> {
    let id = cluster.begin(operation)?;
    let (ended, result) = cluster
        .next()?
        .context("the operation that was begun is lost")?;
    assert_eq!(ended, id, "nothing else is in flight");
    Ok(result)
}

/// Many operations in flight, each with the caller's data; with limits of their number and bytes.
pub struct Window<'c, T> {
    /// The cluster; operations are only begun through the window.
    cluster: &'c mut dyn Objects,
    flying: BTreeMap<OpId, (T, u64)>,
    bytes: u64,
    ops_max: usize,
    bytes_max: u64,
}

impl<'c, T> Window<'c, T> {
    /// An empty one.
    pub fn new(cluster: &'c mut dyn Objects, ops_max: usize, bytes_max: u64) -> Self {
        Self {
            cluster,
            flying: BTreeMap::new(),
            bytes: 0,
            ops_max,
            bytes_max,
        }
    }
    /// Begins an operation that takes `bytes` of memory until it ends. Operations that end
    /// meanwhile are passed to `ended`.
    ///
    /// # Errors
    /// As [`Objects::begin`], and errors of `ended`.
    pub fn push(
        &mut self,
        operation: Operation,
        remember: T,
        bytes: u64,
        ended: &mut dyn FnMut(T, Ended) -> Result<()>,
    ) -> Result<()> {
        while self.flying.len() >= self.ops_max
            || (!self.flying.is_empty() && self.bytes + bytes > self.bytes_max)
        {
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
        let (id, result) = self
            .cluster
            .next()?
            .context("operations in flight are lost")?;
        let (remembered, bytes) = self
            .flying
            .remove(&id)
            .context("an operation ended that nobody began")?;
        self.bytes -= bytes;
        ended(remembered, result)
    }
}

/// Data, attributes and size of an object, read by one operation: consistent with each other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Head {
    /// Bytes of the object itself.
    pub size: u64,
    /// The version that was read.
    pub version: nacre_types::Version,
    /// All attributes.
    pub attrs: BTreeMap<Name, Bytes>,
    /// The first bytes of its data.
    pub data: Payload,
}

/// An operation whose result [`head_of`] parses.
pub fn read_head(pool: PoolId, object: &ObjectId, length: u64) -> Operation {
    let mut ops = vec![SubOp::Stat {}, SubOp::ListAttrs {}];
    if length > 0 {
        ops.push(SubOp::Read { offset: 0, length });
    }
    operation(pool, object.clone(), ops, Payload::new())
}

/// The result of [`read_head`]; `None` if there is no object.
///
/// # Errors
/// When it failed for another reason.
pub fn head_of(ended: Ended) -> Result<Option<Head>> {
    let done = match ended {
        Ok(done) => done,
        Err(Failed::Refused(OpFailure::NotFound {})) => return Ok(None),
        Err(why) => return Err(why.into()),
    };
    let mut head = Head {
        data: done.payload,
        ..Head::default()
    };
    for reply in done.results {
        match reply {
            SubReply::Stat { size, version, .. } => (head.size, head.version) = (size, version),
            SubReply::Entries { entries, .. } => {
                head.attrs = entries
                    .into_iter()
                    .map(|(name, value)| (Name::from(name), value))
                    .collect();
            }
            SubReply::Data { .. } => {}
            other => {
                return Err(anyhow!(
                    "the answer has an unexpected part {other:?}: is a daemon of another version?"
                ));
            }
        }
    }
    Ok(Some(head))
}

#[cfg(test)]
pub mod memory {
    //! Objects in this process's memory, for tests of their users: with listings, completions out
    //! of order, and operations that fail or get no answer.

    use super::*;
    use nacre_client::Failure;

    /// See the module head.
    #[derive(Default)]
    pub struct Memory {
        objects: nacre_conformance::memory::Memory,
        ended: Vec<(OpId, Ended)>,
        operations: u64,
        /// Refuses all further writes of data once this reaches 0.
        pub writes_left: Option<u64>,
        /// This many operations get no answer, and have no effect.
        pub unanswered: u64,
    }

    impl Memory {
        /// All existing objects.
        pub fn names(&self) -> Vec<ObjectId> {
            self.objects
                .all
                .keys()
                .map(|(_, object)| object.clone())
                .collect()
        }

        fn run(&mut self, operation: &Operation) -> Ended {
            if let [SubOp::ListObjects { after, limit }] = &operation.ops[..] {
                return Ok(self.list(operation, after, *limit));
            }
            if let Some(left) = &mut self.writes_left
                && operation
                    .ops
                    .iter()
                    .any(|op| matches!(op, SubOp::WriteFull { .. }))
            {
                *left = left
                    .checked_sub(1)
                    .ok_or(Failed::Refused(OpFailure::Full {}))?;
            }
            self.objects
                .perform(operation)
                .map_err(|failure| match failure {
                    Failure::Refused(why) => Failed::Refused(why),
                    other => panic!("objects in memory refuse or succeed: {other:?}"),
                })
        }

        fn list(&self, operation: &Operation, after: &[u8], limit: u32) -> Done {
            let skip = if after.is_empty() {
                0
            } else {
                String::from_utf8_lossy(after)
                    .parse()
                    .expect("our own cursor")
            };
            let mine = |(pool, object): &&(PoolId, ObjectId)| {
                let seed = object.name.as_bytes().last().copied().unwrap_or_default() % 4;
                *pool == operation.pool && Some(u32::from(seed)) == operation.group
            };
            let mut all = self.objects.all.keys().filter(mine).skip(skip);
            let objects: Vec<ObjectId> = all
                .by_ref()
                .take(limit as usize)
                .map(|(_, id)| id.clone())
                .collect();
            let next = all
                .next()
                .map(|_| Bytes::from((skip + objects.len()).to_string()));
            let results = vec![SubReply::Objects { objects, next }];
            Done {
                version: nacre_types::Version::NONE,
                results,
                payload: Payload::new(),
            }
        }
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
                None => self.run(&operation),
            };
            self.ended.push((id, ended));
            Ok(id)
        }
        fn next(&mut self) -> Result<Option<(OpId, Ended)>> {
            // Not in order of submission: callers must not rely on that across objects.
            Ok(self.ended.pop())
        }
        fn pg_num(&mut self, _: PoolId) -> Result<u32> {
            Ok(4)
        }
    }
}
