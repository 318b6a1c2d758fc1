//! A minimal in-memory object for tests and models: it answers the reads of an evaluation and
//! applies the effects.
//!
//! ```text
//!  perform: context ─▶ evaluate ─┬─▶ wants ── read here ──▶ evaluate again
//!                                ├─▶ an answer
//!                                └─▶ effects ── applied here ──▶ results
//! ```
//! The semantics of operations are only in [`evaluate`], for every engine. So this object serves to
//! test code built *on* objects. A test *of* objects states its expectations as literal values, or
//! has a model that uses nothing of this crate.

use crate::attributes::{HEADER_ATTR, user_attr};
use crate::claims::{Claims, Scene};
use crate::context::{Context, Source};
use crate::evaluate::{Brought, NoMethods, Outcome, Setting, Update, evaluate};
use crate::fetched::{Fetched, Want};
use bytes::Bytes;
use nacre_store::ReadReply;
use nacre_types::{Name, Version};
use nacre_wire::Payload;
use nacre_wire::msg::PayloadCursor;
use nacre_wire::msg::check::check_operation;
use nacre_wire::msg::client::{OpFailure, OpRequest, SubOp, SubReply};
use nacre_wire::msg::replication::Effect;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// See the module head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Object {
    /// Its bytes.
    pub data: Vec<u8>,
    /// Clients' attributes.
    pub attrs: BTreeMap<Name, Bytes>,
    /// Its ordered map.
    pub omap: BTreeMap<Bytes, Bytes>,
    /// The version of its last update.
    pub version: Version,
    /// Watches, locks and the methods' header, stored as in a store.
    pub kept: BTreeMap<Bytes, Bytes>,
}

/// An operation's results: the object's version after it, the parts' results, and the data read.
pub type Performed = (Version, Vec<SubReply>, Payload);

impl Object {
    /// Executes all parts of an operation, or none. `full`: there is no space left; `source` is the
    /// source object of a copy.
    ///
    /// # Errors
    /// The failure that every engine would return.
    ///
    /// # Panics
    /// If the operation rolls back, or concerns a placement group or watchers: a single object
    /// cannot execute it.
    pub fn perform(
        object: &mut Option<Self>,
        request: &OpRequest,
        payload: &Payload,
        full: bool,
        source: Option<&Self>,
    ) -> Result<Performed, OpFailure> {
        let ops = &request.ops;
        check_operation(ops, payload)?;
        let before = object.as_ref().map_or(Version::NONE, |there| there.version);
        let after = Version {
            number: before.number + 1,
            ..before
        };
        let scene = Scene {
            token: after,
            ..Scene::default()
        };
        let copies = ops.iter().any(|op| op.source().is_some());
        let source = copies
            .then(|| Self::whole(source))
            .transpose()?
            .map(Arc::new);
        let brought = Brought {
            source,
            ..Brought::default()
        };
        let may_write = ops.iter().any(SubOp::is_write);
        let setting = Setting {
            full,
            may_write,
            scene: &scene,
            brought: &brought,
        };
        let context = object.as_ref().map(Self::context).unwrap_or_default();
        let mut fetched = Fetched::default();
        loop {
            match evaluate(
                request,
                payload,
                &context,
                fetched,
                &setting,
                &mut NoMethods,
            ) {
                Outcome::Read {
                    wants,
                    fetched: so_far,
                } => {
                    fetched = so_far;
                    for want in wants {
                        let found = object.as_ref().map(|there| there.read(&want));
                        fetched.take(want, found);
                    }
                    fetched.end_round();
                }
                Outcome::Answer {
                    failure: Some(failure),
                    ..
                } => return Err(failure),
                Outcome::Answer {
                    failure: None,
                    results,
                    payload,
                } => return Ok((before, results, payload)),
                Outcome::Update(Update {
                    effects,
                    payload,
                    results,
                    ..
                }) => {
                    Self::apply(object, effects, payload);
                    if let Some(there) = object {
                        there.version = after;
                    }
                    return Ok((after, results, Payload::new()));
                }
                Outcome::Back { .. } | Outcome::Heavy { .. } | Outcome::Program { .. } => {
                    unreachable!("only methods say so, and there are none")
                }
            }
        }
    }

    /// The complete object, as the source of a copy.
    fn whole(object: Option<&Self>) -> Result<Source, OpFailure> {
        let request = OpRequest {
            ops: vec![SubOp::ReadWhole {}],
            ..OpRequest::default()
        };
        let (_, results, data) =
            Self::perform(&mut object.cloned(), &request, &Payload::new(), false, None)?;
        match results.into_iter().next() {
            Some(SubReply::Whole { object }) => Ok(Source { object, data }),
            other => unreachable!("all of an object was read as {other:?}"),
        }
    }

    fn context(&self) -> Context {
        Context {
            exists: true,
            version: self.version,
            size: self.data.len() as u64,
            attrs: self.attrs.clone(),
            header: self.kept.get(HEADER_ATTR).cloned().unwrap_or_default(),
            claims: Claims::of(self.kept.iter()),
            ..Context::default()
        }
    }

    /// Answers a read like a store.
    pub(crate) fn read(&self, want: &Want) -> ReadReply {
        let pair = |(key, value): (&Bytes, &Bytes)| (key.clone(), value.clone());
        match want {
            Want::Data { offset, length } => {
                let end = offset.saturating_add(*length).min(self.data.len() as u64) as usize;
                let bytes = self.data.get(*offset as usize..end).unwrap_or_default();
                ReadReply::Data(vec![Bytes::copy_from_slice(bytes)])
            }
            Want::Keys(keys) => {
                let entries = keys
                    .iter()
                    .filter_map(|key| self.omap.get_key_value(key))
                    .map(pair)
                    .collect();
                ReadReply::Omap {
                    entries,
                    more: false,
                }
            }
            Want::Page { after, entries } => {
                let from = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
                let mut all = self.omap.range::<Bytes, _>((from, Bound::Unbounded));
                let entries = all.by_ref().take(*entries).map(pair).collect();
                ReadReply::Omap {
                    entries,
                    more: all.next().is_some(),
                }
            }
            Want::Clone(_) => ReadReply::Weight(0),
        }
    }

    /// Applies an update's effects.
    pub(crate) fn apply(object: &mut Option<Self>, effects: Vec<Effect>, payload: Payload) {
        let mut written = PayloadCursor::new(payload);
        for effect in effects {
            if effect == (Effect::Remove {}) {
                *object = None;
                continue;
            }
            let there = object.get_or_insert_default();
            match effect {
                Effect::Touch {} => {}
                Effect::Write { offset, length } => {
                    let bytes = written
                        .take(length as usize)
                        .expect("the payload is as long as its effects")
                        .concat();
                    let (from, end) = (offset as usize, (offset + length) as usize);
                    there.data.resize(there.data.len().max(end), 0);
                    there.data[from..end].copy_from_slice(&bytes);
                }
                Effect::Zero { offset, length } => {
                    there.data[offset as usize..(offset + length) as usize].fill(0)
                }
                Effect::Truncate { size } => there.data.resize(size as usize, 0),
                Effect::Remove {} => unreachable!("seen to above"),
                Effect::SetAttr { name, value } => match user_attr(name.as_bytes()) {
                    Some(name) => drop(there.attrs.insert(name, value)),
                    None => drop(
                        there
                            .kept
                            .insert(Bytes::copy_from_slice(name.as_bytes()), value),
                    ),
                },
                Effect::RemoveAttr { name } => match user_attr(name.as_bytes()) {
                    Some(name) => drop(there.attrs.remove(&name)),
                    None => drop(there.kept.remove(name.as_bytes())),
                },
                Effect::OmapSet { entries } => there.omap.extend(entries),
                Effect::OmapRemove { keys } => {
                    keys.iter().for_each(|key| drop(there.omap.remove(key)))
                }
                Effect::OmapClear {} => there.omap.clear(),
                Effect::CloneFrom { .. } => unreachable!("it has no clones"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(
        object: &mut Option<Object>,
        ops: &[SubOp],
        data: &'static [u8],
        source: Option<&Object>,
    ) -> Result<Performed, OpFailure> {
        let request = OpRequest {
            ops: ops.to_vec(),
            ..OpRequest::default()
        };
        Object::perform(
            object,
            &request,
            &vec![Bytes::from_static(data)],
            false,
            source,
        )
    }
    fn perform(
        object: &mut Option<Object>,
        ops: &[SubOp],
        data: &'static [u8],
    ) -> Result<Performed, OpFailure> {
        copy(object, ops, data, None)
    }

    /// Expected values are literal, because the evaluator is under test here too.
    #[test]
    fn operations_do_all_or_nothing() {
        let mut object = None;
        let ops = [
            SubOp::Append { length: 5 },
            SubOp::Zero {
                offset: 1,
                length: 2,
            },
            SubOp::Write {
                offset: 6,
                length: 1,
            },
            SubOp::SetAttr {
                name: "a".into(),
                value: Bytes::from_static(b"1"),
            },
            SubOp::OmapSet {
                entries: vec![(Bytes::from_static(b"k"), Bytes::from_static(b"v"))],
            },
        ];
        assert_eq!(
            perform(&mut object, &ops, b"hello!")
                .expect("possible")
                .0
                .number,
            1
        );
        let there = object.clone().expect("made");
        assert_eq!(
            (&there.data[..], there.attrs.len(), there.omap.len()),
            (&b"h\0\0lo\0!"[..], 1, 1)
        );
        let failed = [
            SubOp::Truncate { size: 1 },
            SubOp::AssertExists { exists: false },
        ];
        assert_eq!(
            perform(&mut object, &failed, b""),
            Err(OpFailure::Guard { index: 1 })
        );
        assert_eq!(object.as_ref(), Some(&there));
        let read = perform(
            &mut object,
            &[SubOp::Read {
                offset: 3,
                length: 99,
            }],
            b"",
        )
        .expect("there");
        assert_eq!(read.2.concat(), b"lo\0!");
        perform(&mut object, &[SubOp::Delete {}], b"").expect("there");
        assert_eq!(
            (object.clone(), perform(&mut object, &[SubOp::Stat {}], b"")),
            (None, Err(OpFailure::NotFound {}))
        );
    }

    #[test]
    fn a_copy_is_data_attributes_and_map_and_not_locks() {
        let lock = SubOp::Lock {
            name: "l".into(),
            cookie: 1,
            shared: false,
            lease_ms: 0,
            description: String::new(),
        };
        let (mut one, mut other) = (None, None);
        perform(
            &mut one,
            &[lock.clone(), SubOp::WriteFull { length: 2 }],
            b"ab",
        )
        .expect("possible");
        perform(
            &mut other,
            &[SubOp::SetAttr {
                name: "a".into(),
                value: Bytes::new(),
            }],
            b"",
        )
        .expect("possible");
        let ops = [SubOp::CopyFrom {
            source: Default::default(),
        }];
        copy(&mut other, &ops, b"", one.as_ref()).expect("possible");
        let other = other.expect("there");
        assert_eq!(
            (&other.data[..], other.attrs.len(), other.kept.len()),
            (&b"ab"[..], 0, 0)
        );
        assert_eq!(one.expect("there").kept.len(), 1);
        assert_eq!(
            copy(&mut None, &ops, b"", None),
            Err(OpFailure::NotFound {})
        );
    }
}
