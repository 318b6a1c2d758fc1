//! The environment of a case.

use bytes::Bytes;
use nacre_client::{Capabilities, Completion, Done, Driven, Failure, OpId, Operation, Refused};
use nacre_types::{ObjectId, PoolId, Version};
use nacre_wire::Payload;
use nacre_wire::msg::client::{OpFailure, SubOp, SubReply};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Maximum time to wait for anything.
pub const WAIT_MAX: Duration = Duration::from_secs(60);

/// A cluster, a pool, and object names used by no other case.
pub struct Bench<'m> {
    driven: Box<dyn Driven>,
    make: &'m dyn Fn() -> Box<dyn Driven>,
    /// The pool.
    pub pool: PoolId,
    prefix: String,
    ended: BTreeMap<OpId, Result<Done, Failure>>,
}

impl<'m> Bench<'m> {
    /// Creates it for a case.
    pub fn new(
        driven: Box<dyn Driven>,
        make: &'m dyn Fn() -> Box<dyn Driven>,
        pool: PoolId,
        case: &str,
    ) -> Self {
        let word = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let prefix = format!(
            "{}-{}",
            std::process::id(),
            case.chars().map(word).collect::<String>()
        );
        Self {
            driven,
            make,
            pool,
            prefix,
            ended: BTreeMap::new(),
        }
    }
    /// Another client of the same cluster.
    #[must_use]
    pub fn another(&self) -> Self {
        let driven = (self.make)();
        Bench {
            driven,
            make: self.make,
            pool: self.pool,
            prefix: self.prefix.clone(),
            ended: BTreeMap::new(),
        }
    }
    /// The capabilities that the implementation reports.
    pub fn capabilities(&mut self) -> Capabilities {
        self.driven.objects().capabilities()
    }
    /// The client itself.
    pub fn driven(&mut self) -> &mut dyn Driven {
        &mut *self.driven
    }
    /// Prefix of this case's object names.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }
    /// An object of this case.
    #[must_use]
    pub fn object(&self, name: &str) -> ObjectId {
        ObjectId::named(&format!("{}-{name}", self.prefix))
    }

    /// Begins an operation; waits while the client is at its limits.
    pub fn begin(&mut self, object: &ObjectId, ops: Vec<SubOp>, data: &[u8]) -> OpId {
        let payload = if data.is_empty() {
            Payload::new()
        } else {
            vec![Bytes::copy_from_slice(data)]
        };
        self.begin_operation(Operation {
            pool: self.pool,
            object: object.clone(),
            ops,
            payload,
            ..Operation::default()
        })
    }
    /// The same for any operation.
    pub fn begin_operation(&mut self, operation: Operation) -> OpId {
        let begun = Instant::now();
        loop {
            let now = self.driven.now();
            match self.driven.objects().submit(now, operation.clone()) {
                Ok(id) => return id,
                Err(Refused::Busy | Refused::NotConnected) => self.turn(),
                // The map may be older than the pool.
                Err(Refused::NoSuchPool) if begun.elapsed() < WAIT_MAX => self.turn(),
                Err(other) => panic!("{operation:?} was not taken: {other:?}"),
            }
            assert!(begun.elapsed() < WAIT_MAX, "it was never taken");
        }
    }
    /// Runs one turn of the client.
    pub fn turn(&mut self) {
        self.driven.turn(Duration::from_millis(20));
        self.collect();
    }
    fn collect(&mut self) {
        let mut ended: Vec<Completion> = Vec::new();
        self.driven.completions(&mut ended);
        for Completion { id, result } in ended {
            assert!(
                self.ended.insert(id, result).is_none(),
                "{id:?} ended twice"
            );
        }
    }
    /// Waits for an operation to end.
    pub fn end(&mut self, id: OpId) -> Result<Done, Failure> {
        let begun = Instant::now();
        loop {
            self.collect();
            if let Some(result) = self.ended.remove(&id) {
                return result;
            }
            assert!(begun.elapsed() < WAIT_MAX, "{id:?} never ended");
            self.driven.turn(Duration::from_millis(20));
        }
    }
    /// Waits for the operation that ends next.
    pub fn end_any(&mut self) -> (OpId, Result<Done, Failure>) {
        let begun = Instant::now();
        loop {
            if let Some(ended) = self.ended.pop_first() {
                return ended;
            }
            assert!(begun.elapsed() < WAIT_MAX, "nothing ended");
            self.turn();
        }
    }
    /// Runs an operation to its end.
    ///
    /// # Errors
    /// The failure of the operation.
    pub fn run(
        &mut self,
        object: &ObjectId,
        ops: Vec<SubOp>,
        data: &[u8],
    ) -> Result<Done, Failure> {
        let id = self.begin(object, ops, data);
        self.end(id)
    }
    /// Runs one that must succeed.
    pub fn ok(&mut self, object: &ObjectId, ops: Vec<SubOp>, data: &[u8]) -> Done {
        match self.run(object, ops.clone(), data) {
            Ok(done) => done,
            Err(failed) => panic!("{ops:?} failed: {failed:?}"),
        }
    }
    /// Runs one that must be refused.
    pub fn refused(&mut self, object: &ObjectId, ops: Vec<SubOp>, data: &[u8]) -> OpFailure {
        match self.run(object, ops.clone(), data) {
            Err(Failure::Refused(why)) => why,
            other => panic!("{ops:?} was to be refused: {other:?}"),
        }
    }

    /// Replaces an object's data.
    pub fn put(&mut self, object: &ObjectId, data: &[u8]) -> Version {
        self.ok(
            object,
            vec![SubOp::WriteFull {
                length: data.len() as u64,
            }],
            data,
        )
        .version
    }
    /// An object's data; `None` if there is no object.
    pub fn get(&mut self, object: &ObjectId) -> Option<Vec<u8>> {
        match self.run(
            object,
            vec![SubOp::Read {
                offset: 0,
                length: 32 << 20,
            }],
            b"",
        ) {
            Ok(done) => Some(done.payload.concat()),
            Err(Failure::Refused(OpFailure::NotFound {})) => None,
            Err(other) => panic!("reading failed: {other:?}"),
        }
    }
    /// Size and version.
    pub fn stat(&mut self, object: &ObjectId) -> Option<(u64, Version)> {
        match self.run(object, vec![SubOp::Stat {}], b"") {
            Ok(done) => match done.results[..] {
                [SubReply::Stat { size, version, .. }] => Some((size, version)),
                ref other => panic!("{other:?} is no answer to a stat"),
            },
            Err(Failure::Refused(OpFailure::NotFound {})) => None,
            Err(other) => panic!("stat failed: {other:?}"),
        }
    }
    /// All attributes.
    pub fn attrs(&mut self, object: &ObjectId) -> BTreeMap<Bytes, Bytes> {
        match &self.ok(object, vec![SubOp::ListAttrs {}], b"").results[..] {
            [SubReply::Entries { entries, .. }] => entries.iter().cloned().collect(),
            other => panic!("{other:?} is no list of attributes"),
        }
    }
    /// The whole omap, in pages of `limit`.
    pub fn omap(&mut self, object: &ObjectId, limit: u32) -> Vec<(Bytes, Bytes)> {
        let (mut all, mut after) = (Vec::new(), Bytes::new());
        loop {
            let done = self.ok(
                object,
                vec![SubOp::OmapList {
                    after: after.clone(),
                    limit,
                }],
                b"",
            );
            let [SubReply::Entries { entries, more }] = &done.results[..] else {
                panic!("{done:?} is no list of entries")
            };
            assert!(entries.len() <= limit as usize, "more than were asked for");
            all.extend(entries.iter().cloned());
            if !more {
                return all;
            }
            after = all
                .last()
                .expect("a page of which more follows is not empty")
                .0
                .clone();
        }
    }
}

/// Bytes that differ by position and seed.
#[must_use]
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut data: Vec<u8> = (0..length.div_ceil(8))
        .flat_map(|_| next().to_le_bytes())
        .collect();
    data.truncate(length);
    data
}
