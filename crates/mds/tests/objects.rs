//! In-memory objects whose operations end late, and of which a crash leaves a part executed.

use nacre_client::{
    Capabilities, Completion, Done, Failure, ObjectCluster, OpId, Operation, Refused,
};
use nacre_conformance::memory::Memory;
use nacre_mds::mds::{MdsConfig, MdsLimits};
use nacre_types::{ClientId, Instance, Name, PoolId, Rank, Time, Version};
use nacre_wire::fs::Layout;
use nacre_wire::msg::client::{OpFailure, SubOp, op_flag};
use std::collections::VecDeque;

/// All limits so small that they are reached all the time.
pub fn small(seed: u64) -> MdsConfig {
    let limits = MdsLimits {
        journal_object_bytes: [300, 3_000, 20_000][seed as usize % 3],
        journal_objects_max: 4 + seed % 5,
        write_after: std::time::Duration::from_millis([5, 40, 1_000][(seed / 3) as usize % 3]),
        entries_max: [5, 20, 60][(seed / 9) as usize % 3],
        page: [1, 3, 1000][(seed / 27) as usize % 3],
        linger: std::time::Duration::from_millis([0, 3][(seed / 27) as usize % 2]),
    };
    MdsConfig { limits, ..config() }
}

pub fn config() -> MdsConfig {
    let layout = Layout {
        pool: PoolId(2),
        unit: 4096,
        count: 1,
        object: 4096,
    };
    MdsConfig {
        rank: Rank(0),
        namespace: Name::from("fs"),
        pool: PoolId(1),
        layout,
        unix_ms_at_zero: 1_000,
        limits: MdsLimits {
            linger: std::time::Duration::from_millis(3),
            ..MdsLimits::default()
        },
    }
}

#[derive(Default)]
pub struct Objects {
    pub memory: Memory,
    queue: VecDeque<(OpId, Operation)>,
    next: u64,
    /// Most operations in flight.
    pub room: usize,
    done: Vec<Completion>,
    /// Operations executed, and bytes read.
    pub count: u64,
    pub read: u64,
    /// The server dies after this many operations.
    pub crash_at: Option<u64>,
    /// Fences: accepted, after this many refusals. `None`: fencing is not possible.
    pub fences_refused: Option<usize>,
    pub fences: Vec<(OpId, ClientId, Instance)>,
    /// Only the reserve is left.
    pub full: bool,
}

impl Objects {
    pub fn new() -> Self {
        Self {
            room: 8,
            ..Self::default()
        }
    }
    /// Executes the first `n` operations in flight, but none after the server's death.
    pub fn work(&mut self, n: usize) {
        for _ in 0..n.min(self.queue.len()) {
            if self.crash_at.is_some_and(|at| self.count >= at) {
                return;
            }
            let (id, operation) = self.queue.pop_front().expect("counted");
            let result = self.perform(&operation);
            let payload = result.iter().flat_map(|done| &done.payload);
            self.read += payload.map(|bytes| bytes.len() as u64).sum::<u64>();
            self.done.push(Completion { id, result });
        }
    }
    /// Ends the first requested fence, successfully or not.
    pub fn end_fence(&mut self, well: bool) {
        let (id, ..) = self.fences.remove(0);
        let done = Done {
            version: Version::NONE,
            results: Vec::new(),
            payload: Vec::new(),
        };
        self.done.push(Completion {
            id,
            result: if well {
                Ok(done)
            } else {
                Err(Failure::Unknown)
            },
        });
    }
    /// Whether the server dies now; once.
    pub fn is_crash_due(&mut self) -> bool {
        self.crash_at.take_if(|at| self.count >= *at).is_some()
    }
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.done.is_empty()
    }
    /// The server is gone: the first `n` operations in flight were executed, and no answer arrives.
    pub fn crash(&mut self, n: usize) {
        self.work(n);
        self.queue.clear();
        self.done.clear();
    }
    pub fn run(&mut self, operation: &Operation) {
        self.perform(operation).expect("it can be done");
    }

    fn perform(&mut self, operation: &Operation) -> Result<Done, Failure> {
        self.count += 1;
        let grows = |op: &SubOp| {
            matches!(
                op,
                SubOp::Append { .. } | SubOp::WriteFull { .. } | SubOp::OmapSet { .. }
            )
        };
        if self.full && operation.flags & op_flag::FULL_OK == 0 && operation.ops.iter().any(grows) {
            return Err(Failure::Refused(OpFailure::Full {}));
        }
        self.memory.perform(operation)
    }
}

impl ObjectCluster for Objects {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            fence: self.fences_refused.is_some(),
            ..Capabilities::default()
        }
    }
    fn submit(&mut self, _now: Time, operation: Operation) -> Result<OpId, Refused> {
        if self.queue.len() >= self.room {
            return Err(Refused::Busy);
        }
        self.next += 1;
        self.queue.push_back((OpId(self.next), operation));
        Ok(OpId(self.next))
    }
    fn completions(&mut self, into: &mut Vec<Completion>) {
        into.append(&mut self.done);
    }
    fn fence(&mut self, _: Time, client: ClientId, instance: Instance) -> Result<OpId, Refused> {
        match &mut self.fences_refused {
            None => Err(Refused::Unsupported),
            Some(0) => {
                self.next += 1;
                self.fences.push((OpId(self.next), client, instance));
                Ok(OpId(self.next))
            }
            Some(n) => {
                *n -= 1;
                Err(Refused::Busy)
            }
        }
    }
}
