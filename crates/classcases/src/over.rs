//! A cluster as a host, through the trait for services.

use crate::{Change, Host, State};
use bytes::Bytes;
use nacre_client::{Done, Driven, Failure, Operation};
use nacre_policy::library;
use nacre_types::{ObjectId, PoolId, Version};
use nacre_wire::Payload;
use nacre_wire::msg::client::{OP_BYTES_MAX, OpFailure, SubOp, SubReply};
use std::time::Duration;

/// A case fails if there is no answer for this time.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// Objects of a pool, one after the other.
pub struct OnCluster<'c> {
    cluster: &'c mut dyn Driven,
    pool: PoolId,
    name: String,
    count: u32,
    /// One of this many random cases of a sandbox is tried here.
    rarer: u32,
    /// For each call of the host, the activation that ran.
    pub activations: Vec<u64>,
}

impl<'c> OnCluster<'c> {
    /// Objects called `name` followed by a number.
    pub fn new(cluster: &'c mut dyn Driven, pool: PoolId, name: &str, rarer: u32) -> Self {
        Self {
            cluster,
            pool,
            name: name.to_owned(),
            count: 0,
            rarer,
            activations: Vec::new(),
        }
    }

    /// Runs an operation on the object.
    ///
    /// # Errors
    /// The cluster's error.
    pub fn run(&mut self, ops: Vec<SubOp>, payload: Payload) -> Result<Done, Failure> {
        let object = ObjectId::named(&format!("{}.{}", self.name, self.count));
        let operation = Operation {
            pool: self.pool,
            object,
            ops,
            payload,
            ..Operation::default()
        };
        let now = self.cluster.now();
        let id = self
            .cluster
            .objects()
            .submit(now, operation)
            .expect("nothing else is in flight");
        let mut ended = Vec::new();
        // A turn ends early when there is an event, so the number of turns does not measure time.
        while self.cluster.now().since(now) < ANSWER_MAX {
            // A turn of our own client waits first and sends last.
            self.cluster.turn(Duration::ZERO);
            self.cluster.turn(Duration::from_secs(1));
            self.cluster.completions(&mut ended);
            if let Some(at) = ended.iter().position(|completion| completion.id == id) {
                return ended.swap_remove(at).result;
            }
        }
        panic!("no answer in {ANSWER_MAX:?}: {:?}", self.cluster.waits());
    }

    /// The object's version; `None` if there is none.
    fn version(&mut self) -> Option<Version> {
        match self.run(vec![SubOp::Stat {}], Payload::new()) {
            Ok(done) => Some(done.version),
            Err(Failure::Refused(OpFailure::NotFound {})) => None,
            Err(failure) => panic!("the object cannot be asked: {failure}"),
        }
    }

    /// A call, with its full result.
    ///
    /// # Errors
    /// The cluster's error.
    pub fn try_call(
        &mut self,
        class: &str,
        method: &str,
        input: &[u8],
    ) -> Result<(u64, u32, Bytes), Failure> {
        let op = SubOp::Call {
            class: class.into(),
            method: method.into(),
            length: input.len() as u64,
        };
        let payload = if input.is_empty() {
            Payload::new()
        } else {
            vec![Bytes::copy_from_slice(input)]
        };
        let done = self.run(vec![op], payload)?;
        match done.results.into_iter().next() {
            Some(SubReply::Called {
                activation,
                status,
                output,
            }) => Ok((activation, status, output)),
            other => panic!("a call returned {other:?}"),
        }
    }
}

impl Host for OnCluster<'_> {
    fn fresh(&mut self) {
        self.count += 1;
    }

    fn call(&mut self, class: &str, method: &str, input: &[u8]) -> Result<Vec<u8>, i32> {
        let before = self.version();
        match self.try_call(class, method, input) {
            Ok((activation, _, output)) => {
                self.activations.push(activation);
                Ok(output.to_vec())
            }
            Err(Failure::Refused(OpFailure::Method {
                errno,
                why,
                activation,
                ..
            })) if why.is_empty() => {
                assert_eq!(self.version(), before, "a failed call leaves nothing");
                self.activations.push(activation);
                Err(i32::try_from(errno).expect("a small number"))
            }
            Err(failure) => panic!(
                "{class}.{method} {:?}: {failure}",
                String::from_utf8_lossy(input)
            ),
        }
    }

    fn state(&mut self) -> Option<State> {
        let mut state = State::default();
        loop {
            let after = state.map.keys().next_back().cloned().unwrap_or_default();
            let ops = vec![
                SubOp::ListAttrs {},
                SubOp::OmapList { after, limit: 1000 },
                SubOp::Read {
                    offset: 0,
                    length: OP_BYTES_MAX,
                },
            ];
            let done = match self.run(ops, Payload::new()) {
                Ok(done) => done,
                Err(Failure::Refused(OpFailure::NotFound {})) => return None,
                Err(failure) => panic!("the object cannot be read: {failure}"),
            };
            state.data = done.payload.concat();
            let [
                SubReply::Entries {
                    entries: attributes,
                    ..
                },
                SubReply::Entries { entries, more },
                _,
            ] = &done.results[..]
            else {
                panic!("a state is {:?}", done.results)
            };
            state.attributes = attributes.iter().cloned().collect();
            state.map.extend(entries.iter().cloned());
            if !more {
                return Some(state);
            }
        }
    }

    fn change(&mut self, change: Change) {
        let long = |data: &Vec<u8>| data.len() as u64;
        let (op, data) = match change {
            Change::WriteFull(data) => (
                SubOp::WriteFull {
                    length: long(&data),
                },
                data,
            ),
            Change::Write(offset, data) => (
                SubOp::Write {
                    offset,
                    length: long(&data),
                },
                data,
            ),
            Change::Append(data) => (
                SubOp::Append {
                    length: long(&data),
                },
                data,
            ),
            Change::Truncate(size) => (SubOp::Truncate { size }, Vec::new()),
            Change::Zero(offset, length) => (SubOp::Zero { offset, length }, Vec::new()),
            Change::SetAttr(name, value) => (
                SubOp::SetAttr {
                    name: name.into(),
                    value: value.into(),
                },
                Vec::new(),
            ),
            Change::SetKey(key, value) => (
                SubOp::OmapSet {
                    entries: vec![(key.into(), value.into())],
                },
                Vec::new(),
            ),
            Change::RemoveKey(key) => (SubOp::OmapRemove { keys: vec![key] }, Vec::new()),
        };
        let payload = if data.is_empty() {
            Payload::new()
        } else {
            vec![data.into()]
        };
        self.run(vec![op], payload).expect("a plain change");
    }

    fn checksum(&mut self, offset: u64, length: u64) -> u32 {
        // In the interface of classes, length 0 means up to the end.
        let length = if length == 0 { OP_BYTES_MAX } else { length };
        let done = self
            .run(vec![SubOp::Checksum { offset, length }], Payload::new())
            .expect("there");
        match done.results[0] {
            SubReply::Checksum { crc, .. } => crc,
            ref other => panic!("a checksum is {other:?}"),
        }
    }

    fn has(&self, class: &str) -> bool {
        library::class(class).is_some()
    }
    fn cases(&self, wanted: u32) -> u32 {
        wanted.div_ceil(self.rarer)
    }
    fn is_cluster(&self) -> bool {
        true
    }
}
