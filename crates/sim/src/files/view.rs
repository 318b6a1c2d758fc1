//! Objects and metadata as one node has them: what it began waits to be sent, what ended waits to be taken.

use nacre_client::{
    Capabilities, Completion, MetaDone, MetaId, MetaWatchId, Metadata, ObjectCluster, OpId, Operation, Refused,
    WatchNews,
};
use nacre_types::{ClientId, Instance, Time};
use nacre_wire::msg::meta::{MetaCall, MetaSpan};

/// What an object cluster is asked.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "nearly all are operations")]
pub enum Asked {
    Operation(Operation),
    Fence(ClientId),
}

/// See the module head.
#[derive(Debug, Default)]
pub struct Objects {
    next: u64,
    pub open: usize,
    pub begun: Vec<(OpId, Asked)>,
    pub ended: Vec<Completion>,
}

/// Operations of a node at a time.
const OPEN_MAX: usize = 12;

impl Objects {
    fn begin(&mut self, asked: Asked) -> Result<OpId, Refused> {
        if self.open >= OPEN_MAX {
            return Err(Refused::Busy);
        }
        self.next += 1;
        self.open += 1;
        self.begun.push((OpId(self.next), asked));
        Ok(OpId(self.next))
    }
}

impl ObjectCluster for Objects {
    fn capabilities(&self) -> Capabilities {
        Capabilities { fence: true, ..Capabilities::default() }
    }
    fn submit(&mut self, _: Time, operation: Operation) -> Result<OpId, Refused> {
        self.begin(Asked::Operation(operation))
    }
    fn completions(&mut self, into: &mut Vec<Completion>) {
        into.append(&mut self.ended);
    }
    fn fence(&mut self, _: Time, client: ClientId, _: Instance) -> Result<OpId, Refused> {
        self.begin(Asked::Fence(client))
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
