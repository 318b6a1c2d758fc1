//! One node's view of objects and metadata: operations that it began wait to be sent, results wait
//! to be taken.

use nacre_client::{
    Capabilities, Completion, Failure, MetaDone, MetaId, MetaWatchId, Metadata, ObjectCluster,
    OpId, Operation, Refused, WatchNews,
};
use nacre_types::{ClientId, Instance, Time};
use nacre_wire::msg::meta::{MetaCall, MetaSpan};
use std::collections::BTreeSet;

/// A request to the object cluster.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "nearly all are operations")]
pub enum Asked {
    Operation(Operation),
    Fence(ClientId, Instance),
}

/// See the module head.
#[derive(Debug)]
pub struct Objects {
    /// The instance that begins operations.
    pub instance: Instance,
    next: u64,
    open: BTreeSet<OpId>,
    pub begun: Vec<(OpId, Asked)>,
    pub ended: Vec<Completion>,
}

/// Concurrent operations of a node.
const OPEN_MAX: usize = 12;

impl Objects {
    pub fn new(instance: Instance) -> Self {
        Self {
            instance,
            next: 0,
            open: BTreeSet::new(),
            begun: Vec::new(),
            ended: Vec::new(),
        }
    }
    /// Handles the end of an operation, if it is this instance's.
    pub fn end(&mut self, completion: Completion) {
        if self.open.remove(&completion.id) {
            self.ended.push(completion);
        }
    }
    /// Like [`nacre_client::Served`]: operations in flight of the former instance may be executed
    /// or not.
    pub fn begin_again(&mut self, instance: Instance) {
        self.instance = instance;
        self.begun.clear();
        let unknown = |id| Completion {
            id,
            result: Err(Failure::Unknown),
        };
        self.ended
            .extend(std::mem::take(&mut self.open).into_iter().map(unknown));
    }
    fn begin(&mut self, asked: Asked) -> Result<OpId, Refused> {
        if self.open.len() >= OPEN_MAX {
            return Err(Refused::Busy);
        }
        self.next += 1;
        self.open.insert(OpId(self.next));
        self.begun.push((OpId(self.next), asked));
        Ok(OpId(self.next))
    }
}

impl ObjectCluster for Objects {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            fence: true,
            ..Capabilities::default()
        }
    }
    fn submit(&mut self, _: Time, operation: Operation) -> Result<OpId, Refused> {
        self.begin(Asked::Operation(operation))
    }
    fn completions(&mut self, into: &mut Vec<Completion>) {
        into.append(&mut self.ended);
    }
    fn fence(&mut self, _: Time, client: ClientId, instance: Instance) -> Result<OpId, Refused> {
        self.begin(Asked::Fence(client, instance))
    }
}

/// See the module head.
#[derive(Debug, Default)]
pub struct Keys {
    next: u64,
    pub begun: Vec<(MetaId, MetaCall)>,
    pub ended: Vec<MetaDone>,
    pub watches: Vec<(MetaWatchId, MetaSpan)>,
    pub news: Vec<(MetaWatchId, WatchNews)>,
}

impl Metadata for Keys {
    fn submit(&mut self, _: Time, call: MetaCall) -> Option<MetaId> {
        self.next += 1;
        self.begun.push((MetaId(self.next), call));
        Some(MetaId(self.next))
    }
    fn abandon(&mut self, _: MetaId) {
        unreachable!("services of file systems wait");
    }
    fn done(&mut self, into: &mut Vec<MetaDone>) {
        into.append(&mut self.ended);
    }
    fn watch(&mut self, span: MetaSpan, _: u64) -> MetaWatchId {
        self.next += 1;
        self.watches.push((MetaWatchId(self.next), span));
        MetaWatchId(self.next)
    }
    fn cancel(&mut self, watch: MetaWatchId) {
        self.watches.retain(|(other, _)| *other != watch);
    }
    fn news(&mut self, into: &mut Vec<(MetaWatchId, WatchNews)>) {
        into.append(&mut self.news);
    }
}
