//! Objects in memory, as simple as they can be: what services are tried on where objects are not the question.

use bytes::Bytes;
use nacre_client::{Done, Failure, Operation};
use nacre_types::{ObjectId, PoolId, Version};
use nacre_wire::msg::client::{OpFailure, SubOp, SubReply};
use std::collections::BTreeMap;

/// An object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Object {
    /// Its bytes.
    pub data: Vec<u8>,
    /// Its attributes.
    pub attrs: BTreeMap<Vec<u8>, Bytes>,
    /// Its map.
    pub omap: BTreeMap<Bytes, Bytes>,
}

/// All objects of all pools.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// By pool and name.
    pub all: BTreeMap<(PoolId, ObjectId), Object>,
}

impl Memory {
    /// Does all parts of an operation, or none.
    ///
    /// # Errors
    /// As the cluster would refuse it.
    ///
    /// # Panics
    /// If it has parts that no service has a use for yet.
    pub fn perform(&mut self, operation: &Operation) -> Result<Done, Failure> {
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
                SubOp::Zero { offset, length } => {
                    let data = &mut object.get_or_insert_default().data;
                    let from = data.len().min(*offset as usize);
                    let to = data.len().min(offset.saturating_add(*length) as usize);
                    data[from..to].fill(0);
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
                SubOp::CopyFrom { source } => {
                    let source = self.all.get(&(operation.pool, source.clone()));
                    let Some(source) = source else { return refused(OpFailure::NotFound {}) };
                    object = Some(source.clone());
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
                SubOp::OmapClear {} => {
                    let Some(object) = &mut object else { return refused(OpFailure::NotFound {}) };
                    object.omap.clear();
                    SubReply::Done {}
                }
                SubOp::Read { .. }
                | SubOp::Checksum { .. }
                | SubOp::GetAttr { .. }
                | SubOp::OmapList { .. }
                | SubOp::Stat {}
                | SubOp::ListAttrs {} => {
                    let Some(object) = &object else { return refused(OpFailure::NotFound {}) };
                    match op {
                        SubOp::Read { offset, length } => {
                            let from = object.data.len().min(*offset as usize);
                            let to = object.data.len().min(from + *length as usize);
                            payload.push(Bytes::copy_from_slice(&object.data[from..to]));
                            SubReply::Data { length: (to - from) as u64 }
                        }
                        SubOp::Checksum { offset, length } => {
                            let from = object.data.len().min(*offset as usize);
                            let to = object.data.len().min(from + *length as usize);
                            let crc = nacre_wire::frame::crc32c(&object.data[from..to]);
                            SubReply::Checksum { crc, length: (to - from) as u64 }
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
                        SubOp::Stat {} => {
                            let size = object.data.len() as u64;
                            SubReply::Stat { size, version: Version::NONE, modified_ms: 0 }
                        }
                        SubOp::ListAttrs {} => {
                            let of = |(name, value): (&Vec<u8>, &Bytes)| (Bytes::from(name.clone()), value.clone());
                            SubReply::Entries { entries: object.attrs.iter().map(of).collect(), more: false }
                        }
                        _ => unreachable!("one of the five"),
                    }
                }
                other => panic!("no service has a use for {other:?}"),
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
