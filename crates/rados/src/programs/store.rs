//! The registry and its sources on the cluster, one operation after another: for callers that may
//! wait, each time no longer than an operation may take.

use crate::programs::registry::{Outcome, REGISTRY, Registry};
use bytes::Bytes;
use nacre_client::{Done, Driven, Failure, Operation};
use nacre_command::Command;
use nacre_types::{Name, ObjectId, PoolId, Version};
use nacre_wire::map::programs::{SOURCE_READ_MAX, source_object};
use nacre_wire::map::{ProgramKind, SourceDigest};
use nacre_wire::msg::client::{OpFailure, SubOp, SubReply};
use nacre_wire::{Payload, map::ProgramVersion};
use serde_json::Value;
use std::time::Duration;

/// Most attempts of a change after lost races.
const ATTEMPTS_MAX: u32 = 32;
/// Entries read at a time.
const PAGE: u32 = 500;
/// How long one turn waits at most.
const TURN: Duration = Duration::from_secs(1);

/// Why there is no answer.
#[derive(Debug)]
pub enum Trouble {
    /// The request is invalid; human-readable.
    Refused(String),
    /// The cluster's failure.
    Cluster(Failure),
}
impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::Cluster(failure)
    }
}

/// See the module head.
pub struct Store<'c> {
    cluster: &'c mut dyn Driven,
    pool: PoolId,
}

impl<'c> Store<'c> {
    /// In the pool with that id, using a client with nothing else in flight.
    pub fn new(cluster: &'c mut dyn Driven, pool: PoolId) -> Self {
        Self { cluster, pool }
    }

    fn run(&mut self, object: ObjectId, ops: Vec<SubOp>) -> Result<Done, Failure> {
        self.run_here(object, ops, Payload::new())
    }

    /// Runs an operation to its end.
    ///
    /// # Errors
    /// The cluster's error.
    pub fn run_here(
        &mut self,
        object: ObjectId,
        ops: Vec<SubOp>,
        payload: Payload,
    ) -> Result<Done, Failure> {
        let now = self.cluster.now();
        let operation = Operation {
            pool: self.pool,
            object,
            ops,
            payload,
            ..Operation::default()
        };
        let id = self
            .cluster
            .objects()
            .submit(now, operation)
            .expect("nothing else is in flight");
        let mut ended = Vec::new();
        loop {
            // It ends: librados abandons unanswered operations.
            self.cluster.turn(TURN);
            self.cluster.completions(&mut ended);
            if let Some(at) = ended.iter().position(|completion| completion.id == id) {
                return ended.swap_remove(at).result;
            }
        }
    }

    /// The registry's version; `None` if it does not exist.
    ///
    /// # Errors
    /// The cluster's error.
    pub fn version(&mut self) -> Result<Option<Version>, Failure> {
        match self.run(ObjectId::named(REGISTRY), vec![SubOp::Stat {}]) {
            Ok(done) => Ok(Some(done.version)),
            Err(Failure::Refused(OpFailure::NotFound {})) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// The whole registry, at one version.
    ///
    /// # Errors
    /// The cluster's error; also when the registry is invalid.
    pub fn registry(&mut self) -> Result<(Registry, Option<Version>), Failure> {
        'anew: for _ in 0..ATTEMPTS_MAX {
            let (mut all, mut of) = (Vec::<(Bytes, Bytes)>::new(), None);
            loop {
                let after = all.last().map(|(key, _)| key.clone()).unwrap_or_default();
                let ops = vec![SubOp::Stat {}, SubOp::OmapList { after, limit: PAGE }];
                let done = match self.run(ObjectId::named(REGISTRY), ops) {
                    Ok(done) => done,
                    Err(Failure::Refused(OpFailure::NotFound {})) => {
                        return Ok((Registry::empty(), None));
                    }
                    Err(failure) => return Err(failure),
                };
                if of.is_some_and(|of| of != done.version) {
                    continue 'anew;
                }
                of = Some(done.version);
                let Some(SubReply::Entries { entries, more }) = done.results.into_iter().nth(1)
                else {
                    unreachable!("a list of entries was asked for")
                };
                all.extend(entries);
                if !more {
                    let registry = Registry::read(&all, done.version);
                    let registry =
                        registry.map_err(|why| Failure::Refused(OpFailure::Invalid { why }))?;
                    return Ok((registry, of));
                }
            }
        }
        Err(Failure::Refused(OpFailure::Expired {}))
    }

    /// The source of a version, verified against its digest.
    ///
    /// # Errors
    /// The cluster's error; the source is missing, or does not match.
    pub fn source(
        &mut self,
        kind: ProgramKind,
        name: &Name,
        version: &ProgramVersion,
    ) -> Result<Bytes, Failure> {
        let object = source_object(kind, name, &version.digest);
        let done = self.run(
            object,
            vec![SubOp::Read {
                offset: 0,
                length: SOURCE_READ_MAX,
            }],
        )?;
        let source = Bytes::from(done.payload.concat());
        if SourceDigest(*blake3::hash(&source).as_bytes()) != version.digest {
            return Err(Failure::Refused(OpFailure::Corrupt { offset: 0 }));
        }
        Ok(source)
    }

    /// Runs a command on the newest registry. `check` may refuse a change; it is called once,
    /// before the first attempt.
    ///
    /// # Errors
    /// [`Trouble`].
    pub fn change(
        &mut self,
        command: &Command,
        check: &mut dyn FnMut(&mut Self) -> Result<(), Trouble>,
    ) -> Result<Value, Trouble> {
        for attempt in 0..ATTEMPTS_MAX {
            let (registry, _) = self.registry()?;
            let Outcome { reply, ops } = registry.run(command).map_err(Trouble::Refused)?;
            if ops.is_empty() {
                return Ok(reply);
            }
            if attempt == 0 {
                check(self)?;
            }
            match self.run(ObjectId::named(REGISTRY), ops) {
                Ok(_) => return Ok(reply),
                // Another client has changed it: on the new state, the command may mean something
                // else.
                Err(Failure::Refused(
                    OpFailure::Guard { .. } | OpFailure::AlreadyExists {} | OpFailure::NotFound {},
                )) => {}
                Err(failure) => return Err(failure.into()),
            }
        }
        Err(Trouble::Refused(format!(
            "the registry of programs was changed by others {ATTEMPTS_MAX} times meanwhile; try again"
        )))
    }
}
