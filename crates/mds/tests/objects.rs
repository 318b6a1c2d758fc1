//! A cluster of objects in memory whose operations end late, and of which a crash leaves a part.

use bytes::Bytes;
use nacre_client::{Capabilities, Completion, Done, Failure, ObjectCluster, OpId, Operation, Refused};
use nacre_mds::mds::{MdsConfig, MdsLimits};
use nacre_types::{Name, ObjectId, PoolId, Rank, Time, Version};
use nacre_wire::fs::Layout;
use nacre_wire::msg::client::{OpFailure, SubOp, SubReply};
use std::collections::{BTreeMap, VecDeque};

/// Everything so small that it is full all the time.
pub fn small(seed: u64) -> MdsConfig {
    let limits = MdsLimits {
        journal_object_bytes: [300, 3_000, 20_000][seed as usize % 3],
        journal_objects_max: 4 + seed % 5,
        write_after: std::time::Duration::from_millis([5, 40, 1_000][(seed / 3) as usize % 3]),
        entries_max: [5, 20, 60][(seed / 9) as usize % 3],
    };
    MdsConfig { limits, ..config() }
}

pub fn config() -> MdsConfig {
    let layout = Layout { pool: PoolId(2), unit: 4096, count: 1, object: 4096 };
    MdsConfig {
        rank: Rank(0),
        namespace: Name::from("fs"),
        pool: PoolId(1),
        layout,
        unix_ms_at_zero: 1_000,
        limits: MdsLimits::default(),
    }
}

#[derive(Clone, Debug, Default)]
pub struct Object {
    pub data: Vec<u8>,
    pub attrs: BTreeMap<Vec<u8>, Bytes>,
    pub omap: BTreeMap<Bytes, Bytes>,
}

#[derive(Default)]
pub struct Objects {
    pub all: BTreeMap<(PoolId, ObjectId), Object>,
    queue: VecDeque<(OpId, Operation)>,
    next: u64,
    /// Operations at a time.
    pub room: usize,
    done: Vec<Completion>,
    /// Operations that were done.
    pub count: u64,
}

impl Objects {
    pub fn new() -> Self {
        Self { room: 8, ..Self::default() }
    }
    /// The first `n` operations under way are done.
    pub fn work(&mut self, n: usize) {
        for _ in 0..n.min(self.queue.len()) {
            let (id, operation) = self.queue.pop_front().expect("counted");
            let result = self.perform(&operation);
            self.done.push(Completion { id, result });
        }
    }
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.done.is_empty()
    }
    /// The server that used it is gone: of what was under way the first `n` operations were done, and no answer arrives.
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
        let key = (operation.pool, operation.object.clone());
        let refused = |why| Err(Failure::Refused(why));
        let mut object = self.all.get(&key).cloned();
        let (mut results, mut payload, mut given) = (Vec::new(), Vec::new(), operation.payload.concat().into_iter());
        for op in &operation.ops {
            let there = object.is_some();
            let result = match op {
                SubOp::AssertExists { exists } if *exists != there => return refused(OpFailure::NotFound {}),
                SubOp::AssertExists { .. } => SubReply::Done {},
                SubOp::Create { exclusive } => {
                    if *exclusive && there {
                        return refused(OpFailure::AlreadyExists {});
                    }
                    object.get_or_insert_default();
                    SubReply::Done {}
                }
                SubOp::Append { length } => {
                    let bytes: Vec<u8> = given.by_ref().take(*length as usize).collect();
                    object.get_or_insert_default().data.extend(bytes);
                    SubReply::Done {}
                }
                SubOp::Write { offset, length } => {
                    let bytes: Vec<u8> = given.by_ref().take(*length as usize).collect();
                    let data = &mut object.get_or_insert_default().data;
                    let end = *offset as usize + bytes.len();
                    data.resize(data.len().max(end), 0);
                    data[*offset as usize..end].copy_from_slice(&bytes);
                    SubReply::Done {}
                }
                SubOp::Truncate { size } => {
                    object.get_or_insert_default().data.resize(*size as usize, 0);
                    SubReply::Done {}
                }
                SubOp::Delete {} => {
                    if object.take().is_none() {
                        return refused(OpFailure::NotFound {});
                    }
                    SubReply::Done {}
                }
                SubOp::SetAttr { name, value } => {
                    object.get_or_insert_default().attrs.insert(name.as_bytes().to_vec(), value.clone());
                    SubReply::Done {}
                }
                SubOp::WriteFull { length } => {
                    let bytes: Vec<u8> = given.by_ref().take(*length as usize).collect();
                    object.get_or_insert_default().data = bytes;
                    SubReply::Done {}
                }
                SubOp::OmapRemove { keys } => {
                    let Some(object) = &mut object else { return refused(OpFailure::NotFound {}) };
                    object.omap.retain(|key, _| !keys.contains(key));
                    SubReply::Done {}
                }
                SubOp::OmapSet { entries } => {
                    object.get_or_insert_default().omap.extend(entries.iter().cloned());
                    SubReply::Done {}
                }
                SubOp::Read { .. } | SubOp::GetAttr { .. } | SubOp::OmapList { .. } => {
                    let Some(object) = &object else { return refused(OpFailure::NotFound {}) };
                    match op {
                        SubOp::Read { offset, length } => {
                            let from = object.data.len().min(*offset as usize);
                            let to = object.data.len().min(from + *length as usize);
                            payload.push(Bytes::copy_from_slice(&object.data[from..to]));
                            SubReply::Data { length: (to - from) as u64 }
                        }
                        SubOp::GetAttr { name } => match object.attrs.get(name.as_bytes()) {
                            Some(value) => SubReply::Value { value: value.clone() },
                            None => return refused(OpFailure::NotFound {}),
                        },
                        SubOp::OmapList { after, limit } => {
                            let behind = object.omap.iter().filter(|(key, _)| *key > after);
                            let mut entries: Vec<_> = behind
                                .take(*limit as usize + 1)
                                .map(|(key, value)| (key.clone(), value.clone()))
                                .collect();
                            let more = entries.len() > *limit as usize;
                            entries.truncate(*limit as usize);
                            SubReply::Entries { entries, more }
                        }
                        _ => unreachable!("one of the three"),
                    }
                }
                other => panic!("the server has no use for {other:?}"),
            };
            results.push(result);
        }
        match object {
            Some(object) => drop(self.all.insert(key, object)),
            None => drop(self.all.remove(&key)),
        }
        Ok(Done { version: Version::NONE, results, payload })
    }
}

impl ObjectCluster for Objects {
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
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
}
