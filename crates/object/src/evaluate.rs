//! Evaluates an operation on an object: conditions in, effects out. No state, no I/O.
//!
//! Parts are evaluated in order, each on the object as the previous parts left it (`view.rs`). The
//! first part that fails ends the operation without effects. If something must be read first, the
//! outcome names it, and the operation is later evaluated again from its beginning.

use crate::attributes::{VERSION_ATTR, version_value};
use crate::claims::{Claiming, Scene};
use crate::context::{Context, Source};
use crate::fetched::{Fetched, Want};
use crate::plain;
use crate::snaps::Then;
use crate::view::{Stop, View};
use bytes::Bytes;
use nacre_types::{Name, SnapId, Version};
use nacre_wire::msg::check::{READ_OF_WRITE, check_operation};
use nacre_wire::msg::client::{
    ATTR_BYTES_MAX, CALL_OUTPUT_BYTES_MAX, OP_BYTES_MAX, OUTPUT_BYTES_MAX, OpFailure, OpRequest,
    RESULT_BYTES_MAX, SubOp, SubReply,
};
use nacre_wire::msg::part::Looks;
use nacre_wire::msg::replication::Effect;
use nacre_wire::msg::{PayloadCursor, payload_len};
use nacre_wire::{Payload, Wire};
use std::sync::Arc;

#[cfg(feature = "mutants")]
#[path = "mutants/evaluate.rs"]
mod planted;

/// The outcome of an evaluation.
#[derive(Debug)]
pub enum Outcome {
    /// It changes the object.
    Update(Update),
    /// It changes nothing: it failed, or only reads.
    Answer {
        /// Why it failed, if it did.
        failure: Option<OpFailure>,
        /// One result for each part.
        results: Vec<SubReply>,
        /// Data that the parts read.
        payload: Payload,
    },
    /// Data must be read before the operation can be evaluated.
    Read {
        /// What to read; at least one.
        wants: Vec<Want>,
        /// What has been read so far.
        fetched: Fetched,
    },
    /// A method rolls the object back to a snapshot: the state at that snapshot must be looked up
    /// first.
    Back {
        /// The snapshot.
        snap: SnapId,
    },
    /// A method takes longer than is allowed on this thread.
    Heavy {
        /// What has been read so far.
        fetched: Fetched,
    },
    /// A class called by a method has not been fetched yet.
    Program {
        /// The state of the classes in this evaluation: a counter of changes to them.
        moment: u64,
    },
}

impl Outcome {
    /// A failed operation.
    pub const fn failed(failure: OpFailure) -> Self {
        Self::Answer {
            failure: Some(failure),
            results: Vec::new(),
            payload: Payload::new(),
        }
    }
}

/// A change of an object.
#[derive(Debug)]
pub struct Update {
    /// In order; the version attribute is added when the version is known.
    pub effects: Vec<Effect>,
    /// Payload of the effects.
    pub payload: Payload,
    /// The object's state afterwards, except for its version.
    pub context: Context,
    /// One result for each part.
    pub results: Vec<SubReply>,
}

/// Executes class methods during an evaluation. The view of the object is passed to the call and
/// returned.
pub trait Methods {
    /// Calls a method. `index` is the part's.
    fn call(
        &mut self,
        index: u32,
        class: &Name,
        method: &Name,
        input: Bytes,
        view: View,
    ) -> (View, Result<Called, Stop>);
    /// Runs a script sent with the operation.
    fn eval(
        &mut self,
        index: u32,
        script: &[u8],
        handler: &Name,
        input: Bytes,
        view: View,
    ) -> (View, Result<Called, Stop>);
}

/// For engines without classes.
#[derive(Clone, Copy, Debug)]
pub struct NoMethods;

impl Methods for NoMethods {
    fn call(
        &mut self,
        _: u32,
        _: &Name,
        _: &Name,
        _: Bytes,
        view: View,
    ) -> (View, Result<Called, Stop>) {
        (
            view,
            Err(Stop::Fail(OpFailure::NoSuchMethod {
                why: "there are no classes here".to_owned(),
            })),
        )
    }
    fn eval(
        &mut self,
        index: u32,
        _: &[u8],
        name: &Name,
        input: Bytes,
        view: View,
    ) -> (View, Result<Called, Stop>) {
        self.call(index, name, name, input, view)
    }
}

/// The result of a method.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Called {
    /// The activation that ran; 0 for a script that came with the call.
    pub activation: u64,
    /// Zero or positive.
    pub status: u32,
    /// Output for the caller.
    pub output: Bytes,
}

/// Whether the operation is valid at all: counts, lengths and names within bounds.
///
/// # Errors
/// What every OSD would answer, independently of the object.
pub fn validate(request: &OpRequest, payload: &[Bytes]) -> Result<(), OpFailure> {
    let invalid = |why: &str| {
        Err(OpFailure::Invalid {
            why: why.to_owned(),
        })
    };
    if request.request.sequence == 0 {
        return invalid("sequence numbers begin at 1");
    }
    check_operation(&request.ops, payload)
}

/// The circumstances of an evaluation, besides the operation and the object.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// Operations that need more space are refused.
    pub full: bool,
    /// Whether the operation was accepted as one that may write.
    pub may_write: bool,
    /// Decides about watches and locks.
    pub scene: &'a Scene,
    /// What was fetched from other objects.
    pub brought: &'a Brought,
}

/// What an operation uses from objects other than its own.
#[derive(Clone, Debug, Default)]
pub struct Brought {
    /// For rollbacks: the object's state at each of these snapshots; `None` if the pool has no such
    /// snapshot.
    pub back: Vec<(SnapId, Option<Then>)>,
    /// The source of a copy.
    pub source: Option<Arc<Source>>,
}

/// Evaluates the operation on the object, with what has been read for it so far.
pub fn evaluate(
    request: &OpRequest,
    payload: &Payload,
    context: &Context,
    fetched: Fetched,
    setting: &Setting<'_>,
    methods: &mut dyn Methods,
) -> Outcome {
    if fetched.is_exhausted() {
        let why = "it reads too many separate places of the object, or too much; read larger pieces at once, or less";
        return Outcome::failed(OpFailure::Invalid {
            why: why.to_owned(),
        });
    }
    let plain = if setting.may_write {
        plain::write(request, payload, context, setting).map(Ok)
    } else {
        plain::read(request, context, &fetched)
    };
    match plain {
        Some(Ok(outcome)) => outcome,
        Some(Err(want)) => Outcome::Read {
            wants: vec![want],
            fetched,
        },
        None => evaluate_parts(request, payload, context, fetched, setting, methods),
    }
}

/// Evaluates any operation, part by part.
pub(crate) fn evaluate_parts(
    request: &OpRequest,
    payload: &Payload,
    context: &Context,
    fetched: Fetched,
    setting: &Setting<'_>,
    methods: &mut dyn Methods,
) -> Outcome {
    let mut run = Run {
        scene: setting.scene,
        brought: setting.brought,
        view: View::new(context.clone(), fetched),
        results: Vec::new(),
        returned: Payload::new(),
        input: PayloadCursor::new(payload.clone()),
    };
    run.view.brought.clone_from(&setting.brought.back);
    match run.parts(&request.ops, methods) {
        Ok(()) => {}
        Err((_, Stop::Fail(failure))) => return Outcome::failed(failure),
        Err((_, Stop::Heavy)) => {
            return Outcome::Heavy {
                fetched: run.view.fetched,
            };
        }
        Err((_, Stop::Program(moment))) => return Outcome::Program { moment },
        Err((index, Stop::Wait)) => {
            if let Some(snap) = run.view.back {
                return Outcome::Back { snap };
            }
            for op in &request.ops[index + 1..] {
                if run.view.wants_enough() {
                    break;
                }
                run.look_ahead(op);
            }
            let View {
                wanted, fetched, ..
            } = run.view;
            assert!(!wanted.is_empty(), "a part waits for nothing");
            return Outcome::Read {
                wants: wanted,
                fetched,
            };
        }
    }
    let Run {
        view,
        results,
        returned,
        ..
    } = run;
    if setting.may_write && !returned.is_empty() {
        return Outcome::failed(OpFailure::Invalid {
            why: READ_OF_WRITE.to_owned(),
        });
    }
    if view.effects.is_empty() {
        return Outcome::Answer {
            failure: None,
            results,
            payload: returned,
        };
    }
    let View {
        effects,
        written,
        context,
        grows,
        ..
    } = view;
    let update = Update {
        effects,
        payload: written,
        context,
        results,
    };
    bounded(update, grows, request, setting)
}

/// The update, if it is within the bounds. `grows`: an effect may need more space.
pub(crate) fn bounded(
    update: Update,
    grows: bool,
    request: &OpRequest,
    setting: &Setting<'_>,
) -> Outcome {
    let Context {
        attrs,
        header,
        claims,
        ..
    } = &update.context;
    let attrs = attrs.iter();
    let attrs: usize = attrs
        .map(|(name, value)| name.as_bytes().len() + value.len())
        .sum();
    let attrs = attrs + header.len() + claims.bytes();
    if setting.full && grows && request.flags & nacre_wire::msg::client::op_flag::FULL_OK == 0 {
        return Outcome::failed(OpFailure::Full {});
    }
    if (payload_len(&update.payload) + small_bytes(&update.effects)) as u64 > OP_BYTES_MAX {
        // A method may write the same bytes repeatedly: more effects than fit into a frame would
        // stop every member.
        return Outcome::failed(OpFailure::TooLarge {});
    }
    if attrs > ATTR_BYTES_MAX {
        return Outcome::failed(OpFailure::TooLarge {});
    }
    // A part without a result takes one byte.
    let silent = |result: &SubReply| matches!(result, SubReply::Done {});
    let results = &update.results;
    if !results.iter().all(silent) && results.to_bytes().len() > OUTPUT_BYTES_MAX {
        let why = format!(
            "an operation that writes may return {OUTPUT_BYTES_MAX} bytes, and this one returns more"
        );
        return Outcome::failed(OpFailure::Invalid { why });
    }
    Outcome::Update(update)
}

/// Bytes of the effects' attributes and omap entries, counted like the store does: with a few extra
/// bytes for each.
#[must_use]
pub fn small_bytes(effects: &[Effect]) -> usize {
    let bytes = |effect: &Effect| match effect {
        Effect::SetAttr { name, value } => name.as_bytes().len() + value.len(),
        Effect::OmapSet { entries } => entries
            .iter()
            .map(|(key, value)| key.len() + value.len() + 8)
            .sum(),
        Effect::OmapRemove { keys } => keys.iter().map(|key| key.len() + 4).sum(),
        Effect::Touch {}
        | Effect::Write { .. }
        | Effect::Zero { .. }
        | Effect::Truncate { .. }
        | Effect::Remove {}
        | Effect::RemoveAttr { .. }
        | Effect::OmapClear {}
        | Effect::CloneFrom { .. } => 0,
    };
    effects.iter().map(bytes).sum()
}

struct Run<'a> {
    scene: &'a Scene,
    brought: &'a Brought,
    view: View,
    results: Vec<SubReply>,
    returned: Payload,
    input: PayloadCursor,
}

impl Run<'_> {
    fn take(&mut self, length: u64) -> Payload {
        self.input
            .take(length as usize)
            .expect("the payload is as long as its parts say: validated")
    }
    fn take_whole(&mut self, length: u64) -> Bytes {
        match &self.take(length)[..] {
            [] => Bytes::new(),
            [one] => one.clone(),
            many => many.concat().into(),
        }
    }

    /// Each part respects its own bounds, but sixty-four of them together may not fit into a
    /// message.
    fn returns_too_much(&self) -> bool {
        let results: usize = self.results.iter().map(SubReply::carried_bytes).sum();
        payload_len(&self.returned) as u64 > OP_BYTES_MAX || results > RESULT_BYTES_MAX
    }

    /// An earlier part waits for a read: what this part will want, as far as that is known, can be
    /// read at the same time.
    fn look_ahead(&mut self, op: &SubOp) {
        let view = &mut self.view;
        let _ = match op.facts().looks {
            Looks::Data(offset, length) => view.read(offset, length).map(drop),
            Looks::Keys(keys) => view.omap_get_many(keys).map(drop),
            Looks::Entries(after, limit) => list(view, after, limit).map(drop),
            // Attributes are in memory, and a part that reads everything is the only part.
            Looks::Nothing | Looks::Attrs | Looks::All => Ok(()),
        };
    }

    const fn claims(&mut self) -> Claiming<'_> {
        let View {
            context, effects, ..
        } = &mut self.view;
        Claiming {
            scene: self.scene,
            context,
            effects,
        }
    }

    /// Evaluates the parts in order. The first that does not succeed ends the operation.
    #[nacre_types::planted]
    fn parts(&mut self, ops: &[SubOp], methods: &mut dyn Methods) -> Result<(), (usize, Stop)> {
        for (index, op) in ops.iter().enumerate() {
            self.part(index, op, methods)
                .map_err(|stop| (index, stop))?;
            if self.returns_too_much() {
                let why = "it would return more than fits into one answer; ask for less at once";
                let failure = OpFailure::Invalid {
                    why: why.to_owned(),
                };
                return Err((index, Stop::Fail(failure)));
            }
        }
        Ok(())
    }

    fn part(&mut self, index: usize, op: &SubOp, methods: &mut dyn Methods) -> Result<(), Stop> {
        let index = u32::try_from(index).expect("few parts");
        let guard = Stop::Fail(OpFailure::Guard { index });
        let mut result = SubReply::Done {};
        match op {
            SubOp::Read { offset, length } => {
                let pieces = self.view.read(*offset, *length)?;
                result = SubReply::Data {
                    length: nacre_wire::msg::payload_len(&pieces) as u64,
                };
                self.returned.extend(pieces);
            }
            SubOp::Checksum { offset, length } => {
                let (crc, length) = self.view.checksum(*offset, *length)?;
                result = SubReply::Checksum { crc, length };
            }
            SubOp::Stat {} => {
                self.view.exists()?;
                let Context {
                    size,
                    version,
                    modified_ms,
                    ..
                } = self.view.context;
                result = SubReply::Stat {
                    size,
                    version,
                    modified_ms,
                };
            }
            SubOp::Write { offset, length } => {
                let data = self.take(*length);
                self.view.write(*offset, data)?;
            }
            SubOp::WriteFull { length } => {
                let data = self.take(*length);
                self.view.write_full(data)?;
            }
            SubOp::Append { length } => {
                let data = self.take(*length);
                self.view.write(self.view.context.size, data)?;
            }
            SubOp::Zero { offset, length } => self.view.zero(*offset, *length)?,
            SubOp::Truncate { size } => self.view.truncate(*size)?,
            SubOp::Create { exclusive } => self.view.create(*exclusive)?,
            SubOp::Delete {} => self.view.remove()?,
            SubOp::GetAttr { name } => {
                result = SubReply::Value {
                    value: self.view.attr(name)?,
                }
            }
            SubOp::ListAttrs {} => {
                self.view.exists()?;
                let entry = |(name, value): (&Name, &Bytes)| {
                    (Bytes::copy_from_slice(name.as_bytes()), value.clone())
                };
                let entries = self.view.context.attrs.iter().map(entry).collect();
                result = SubReply::Entries {
                    entries,
                    more: false,
                };
            }
            SubOp::SetAttr { name, value } => self.view.set_attr(name, value.clone())?,
            SubOp::RemoveAttr { name } => self.view.remove_attr(name)?,
            SubOp::OmapGet { keys } => {
                result = SubReply::Entries {
                    entries: self.view.omap_get_many(keys)?,
                    more: false,
                };
            }
            SubOp::OmapList { after, limit } => {
                let (entries, more) = list(&mut self.view, after, *limit)?;
                result = SubReply::Entries { entries, more };
            }
            SubOp::OmapSet { entries } => self.view.omap_set(entries.clone())?,
            SubOp::OmapRemove { keys } => self.view.omap_remove(keys.clone())?,
            SubOp::OmapClear {} => self.view.omap_clear()?,
            SubOp::AssertExists { exists } => {
                if self.view.context.exists != *exists {
                    return Err(guard);
                }
            }
            SubOp::AssertVersion { version } => {
                if !self.view.context.exists || self.view.context.version != *version {
                    return Err(guard);
                }
            }
            SubOp::CompareData { offset, length } => {
                let wanted = self.take(*length);
                let found = if self.view.context.exists {
                    self.view.read(*offset, *length)?
                } else {
                    Vec::new()
                };
                if !wanted.iter().flatten().eq(found.iter().flatten()) {
                    return Err(guard);
                }
            }
            SubOp::CompareAttr { name, value } => {
                if self
                    .view
                    .context
                    .attrs
                    .get(name)
                    .map_or(&[][..], |value| &value[..])
                    != &value[..]
                {
                    return Err(guard);
                }
            }
            SubOp::Call {
                class,
                method,
                length,
            } => {
                let input = self.take_whole(*length);
                let view = std::mem::take(&mut self.view);
                result = self.called(methods.call(index, class, method, input, view))?;
            }
            SubOp::Eval {
                script,
                handler,
                input,
            } => {
                let script = self.take_whole(*script);
                let input = self.take_whole(*input);
                let view = std::mem::take(&mut self.view);
                result = self.called(methods.eval(index, &script, handler, input, view))?;
            }
            SubOp::ListObjects { .. } => unreachable!("listings are not evaluated on an object"),
            SubOp::Watch { cookie, timeout_ms } => {
                self.view.exists()?;
                self.claims().watch(*cookie, *timeout_ms)?;
            }
            SubOp::Unwatch { cookie } => {
                self.view.exists()?;
                self.claims().unwatch(*cookie)?;
            }
            SubOp::ListWatchers {} => {
                self.view.exists()?;
                result = SubReply::Watchers {
                    watchers: self.claims().watchers(),
                };
            }
            SubOp::Notify { .. } => {
                unreachable!("a notify is not evaluated: it tells the object's watchers")
            }
            SubOp::Lock {
                name,
                cookie,
                shared,
                lease_ms,
                description,
            } => {
                result = self
                    .claims()
                    .lock(name, *cookie, *shared, *lease_ms, description)?;
            }
            SubOp::Unlock { name, cookie } => {
                if !self.claims().unlock(name, *cookie) {
                    return Err(guard);
                }
            }
            SubOp::BreakLock { name, owner } => {
                if !self.claims().break_lock(name, owner) {
                    return Err(Stop::Fail(OpFailure::NotFound {}));
                }
            }
            SubOp::AssertLock {
                name,
                cookie,
                shared_ok,
            } => {
                if !self.claims().holds(name, *cookie, *shared_ok) {
                    return Err(guard);
                }
            }
            SubOp::ListLocks {} => {
                self.view.exists()?;
                result = SubReply::Locks {
                    locks: self.claims().locks(),
                };
            }
            SubOp::ListSnaps {} => {
                let Context { exists, snaps, .. } = &self.view.context;
                if !self.view.context.is_stored() {
                    return Err(Stop::Fail(OpFailure::NotFound {}));
                }
                let (sequence, clones) = (snaps.sequence, snaps.clones.clone());
                result = SubReply::Snaps {
                    sequence,
                    exists: *exists,
                    clones,
                };
            }
            SubOp::Rollback { snap } => {
                let then = self
                    .brought
                    .back
                    .iter()
                    .find(|(known, _)| known == snap)
                    .and_then(|(_, then)| then.as_ref());
                self.view
                    .roll_back(then.expect("looked at before it is evaluated"))?;
            }
            SubOp::CopyFrom { .. } => {
                let source = self
                    .brought
                    .source
                    .as_ref()
                    .expect("it waits until that is here");
                let Source { object, data } = &**source;
                self.view.copy(object, data.clone())?;
            }
            SubOp::ReadWhole {} => {
                let (object, data) = self.view.whole()?;
                self.returned.extend(data);
                result = SubReply::Whole { object };
            }
        }
        self.results.push(result);
        Ok(())
    }

    fn called(&mut self, (view, called): (View, Result<Called, Stop>)) -> Result<SubReply, Stop> {
        self.view = view;
        let Called {
            activation,
            status,
            output,
        } = called?;
        if output.len() > CALL_OUTPUT_BYTES_MAX {
            let why = format!(
                "the method returned {} bytes; {CALL_OUTPUT_BYTES_MAX} are allowed",
                output.len()
            );
            return Err(Stop::Fail(OpFailure::Invalid { why }));
        }
        Ok(SubReply::Called {
            activation,
            status,
            output,
        })
    }
}

fn list(view: &mut View, after: &Bytes, limit: u32) -> Result<(Vec<(Bytes, Bytes)>, bool), Stop> {
    let after = Some(after).filter(|after| !after.is_empty());
    view.omap_list(after, (limit as usize).clamp(1, 10_000))
}

/// The effect that sets the object's version and modification time.
#[must_use]
pub fn version_effect(version: Version, modified_ms: u64) -> Effect {
    Effect::SetAttr {
        name: Name::copy(VERSION_ATTR),
        value: version_value(version, modified_ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::{ObjectId, PgId};
    use nacre_wire::msg::client::RequestId;

    fn request(ops: Vec<SubOp>) -> OpRequest {
        OpRequest {
            request: RequestId {
                sequence: 1,
                ..RequestId::default()
            },
            answered_below: 1,
            pg: PgId::default(),
            object: ObjectId::named("o"),
            ops,
            flags: 0,
            fence: nacre_types::Epoch(0),
            snaps: Default::default(),
            trace: 0,
            tenant: 0,
            deadline_ms: 0,
            attempt: 0,
            unix_ms: 0,
            dated: Default::default(),
        }
    }
    fn setting(full: bool) -> Setting<'static> {
        static SCENE: std::sync::LazyLock<Scene> = std::sync::LazyLock::new(Scene::default);
        static BROUGHT: std::sync::LazyLock<Brought> = std::sync::LazyLock::new(Brought::default);
        Setting {
            full,
            may_write: true,
            scene: &SCENE,
            brought: &BROUGHT,
        }
    }
    fn existing(size: u64) -> Context {
        Context {
            exists: true,
            size,
            ..Context::default()
        }
    }
    fn run(ops: Vec<SubOp>, payload: &[u8], context: &Context) -> Outcome {
        let payload = if payload.is_empty() {
            vec![]
        } else {
            vec![Bytes::copy_from_slice(payload)]
        };
        let request = request(ops);
        validate(&request, &payload).expect("valid");
        evaluate(
            &request,
            &payload,
            context,
            Fetched::default(),
            &setting(false),
            &mut NoMethods,
        )
    }
    fn update(outcome: Outcome) -> Update {
        match outcome {
            Outcome::Update(update) => update,
            other => panic!("{other:?}"),
        }
    }

    /// Performs the reads of an operation with answers from `reply` until it ends; returns the most
    /// bytes wanted at once.
    fn read_through(
        ops: Vec<SubOp>,
        context: &Context,
        reply: impl Fn(&Want) -> nacre_store::ReadReply,
    ) -> (Outcome, u64) {
        let (request, mut fetched, mut most) = (request(ops), Fetched::default(), 0);
        let setting = Setting {
            may_write: false,
            ..setting(false)
        };
        loop {
            match evaluate(
                &request,
                &Payload::new(),
                context,
                fetched,
                &setting,
                &mut NoMethods,
            ) {
                Outcome::Read {
                    wants,
                    fetched: so_far,
                } => {
                    fetched = so_far;
                    let length = |want: &Want| {
                        if let Want::Data { length, .. } = want {
                            *length
                        } else {
                            4 << 20
                        }
                    };
                    most = most.max(wants.iter().map(length).sum());
                    for want in wants {
                        let reply = reply(&want);
                        fetched.take(want, Some(reply));
                    }
                    fetched.end_round();
                }
                over => return (over, most),
            }
        }
    }

    /// Each part respected its bound, but all of them together did not fit into a message: the
    /// daemon crashed when it sent the answer, and so did each daemon that the client asked next.
    #[test]
    fn an_answer_fits_into_a_message() {
        let data = Bytes::from(vec![0; OP_BYTES_MAX as usize]);
        let whole = |_: &Want| nacre_store::ReadReply::Data(vec![data.clone()]);
        let refused = |outcome| {
            matches!(
                outcome,
                Outcome::Answer {
                    failure: Some(OpFailure::Invalid { .. }),
                    ..
                }
            )
        };
        let read = |times| {
            vec![
                SubOp::Read {
                    offset: 0,
                    length: OP_BYTES_MAX
                };
                times
            ]
        };
        assert!(!refused(
            read_through(read(1), &existing(OP_BYTES_MAX), whole).0
        ));
        assert!(refused(
            read_through(read(3), &existing(OP_BYTES_MAX), whole).0
        ));
        let entry = |n: u8| (Bytes::from(vec![n]), Bytes::from(vec![0; 1 << 20]));
        let page = |_: &Want| nacre_store::ReadReply::Omap {
            entries: (0..3).map(entry).collect(),
            more: false,
        };
        let list = |times| {
            vec![
                SubOp::OmapList {
                    after: Bytes::new(),
                    limit: 100
                };
                times
            ]
        };
        assert!(!refused(read_through(list(5), &existing(0), page).0));
        assert!(refused(read_through(list(6), &existing(0), page).0));
    }

    /// Sixty-four parts, each with the largest allowed read, were read ahead together: two GiB for
    /// one operation.
    #[test]
    fn what_is_read_ahead_is_bounded() {
        let size = 64 * OP_BYTES_MAX;
        let sums = (0..64)
            .map(|at| SubOp::Checksum {
                offset: at * OP_BYTES_MAX,
                length: OP_BYTES_MAX,
            })
            .collect();
        let data = Bytes::from(vec![0; OP_BYTES_MAX as usize]);
        let (outcome, most) = read_through(sums, &existing(size), |_| {
            nacre_store::ReadReply::Data(vec![data.clone()])
        });
        assert!(
            matches!(
                outcome,
                Outcome::Answer {
                    failure: Some(OpFailure::Invalid { .. }),
                    ..
                }
            ),
            "{outcome:?}"
        );
        assert!(most <= crate::fetched::FETCHED_BYTES_MAX, "{most}");
    }

    #[test]
    fn replacing_data_with_less_cuts_the_rest_off() {
        let update = update(run(
            vec![SubOp::WriteFull { length: 3 }],
            b"abc",
            &existing(10),
        ));
        assert_eq!(
            update.effects,
            [
                Effect::Write {
                    offset: 0,
                    length: 3
                },
                Effect::Truncate { size: 3 }
            ]
        );
        assert_eq!(update.context.size, 3);
    }

    #[test]
    fn a_failed_guard_leaves_no_effects_of_earlier_parts() {
        let ops = vec![
            SubOp::Append { length: 1 },
            SubOp::CompareAttr {
                name: "a".into(),
                value: Bytes::from_static(b"x"),
            },
        ];
        let outcome = run(ops, b"z", &existing(10));
        assert!(
            matches!(
                outcome,
                Outcome::Answer {
                    failure: Some(OpFailure::Guard { index: 1 }),
                    ..
                }
            ),
            "{outcome:?}"
        );
    }

    #[test]
    fn deleting_forgets_what_the_same_operation_wrote_before() {
        let ops = vec![
            SubOp::Append { length: 1 },
            SubOp::Delete {},
            SubOp::Create { exclusive: true },
        ];
        let update = update(run(ops, b"z", &existing(10)));
        assert_eq!(update.effects, [Effect::Remove {}, Effect::Touch {}]);
        assert!(update.payload.is_empty() && update.context.exists && update.context.size == 0);
    }

    #[test]
    fn nonsense_is_refused_before_it_reaches_an_object() {
        let refused = |ops: Vec<SubOp>, data: &'static [u8]| {
            validate(&request(ops), &[Bytes::from_static(data)]).is_err()
        };
        assert!(refused(vec![], b""));
        assert!(refused(
            vec![SubOp::Write {
                offset: u64::MAX,
                length: 1
            }],
            b"x"
        ));
        assert!(refused(
            vec![
                SubOp::Write {
                    offset: 0,
                    length: u64::MAX
                },
                SubOp::Append { length: 2 }
            ],
            b"x"
        ));
        assert!(refused(
            vec![SubOp::Write {
                offset: 0,
                length: 2
            }],
            b"x"
        ));
        assert!(refused(
            vec![
                SubOp::Append { length: 1 },
                SubOp::Read {
                    offset: 0,
                    length: 1
                }
            ],
            b"x"
        ));
        assert!(refused(
            vec![SubOp::Eval {
                script: u64::MAX,
                handler: "f".into(),
                input: 2
            }],
            b"x"
        ));
        assert!(refused(
            vec![
                SubOp::ListObjects {
                    after: Bytes::new(),
                    limit: 1
                },
                SubOp::Stat {}
            ],
            b""
        ));
    }

    #[test]
    fn a_full_cluster_still_shrinks() {
        let full = |ops: Vec<SubOp>, payload: Payload| {
            evaluate(
                &request(ops),
                &payload,
                &existing(10),
                Fetched::default(),
                &setting(true),
                &mut NoMethods,
            )
        };
        assert!(matches!(
            full(vec![SubOp::Delete {}], vec![]),
            Outcome::Update(_)
        ));
        assert!(matches!(
            full(vec![SubOp::Truncate { size: 1 }], vec![]),
            Outcome::Update(_)
        ));
        let grown = full(
            vec![SubOp::Append { length: 1 }],
            vec![Bytes::from_static(b"x")],
        );
        assert!(matches!(
            grown,
            Outcome::Answer {
                failure: Some(OpFailure::Full {}),
                ..
            }
        ));
    }

    /// The store bounds the sum of all attributes of an object.
    #[test]
    fn claims_count_towards_the_size_of_the_attributes() {
        let mut context = existing(0);
        let value = Bytes::from(vec![0; ATTR_BYTES_MAX - 100]);
        context.attrs.insert("a".into(), value);
        let lock = |description: String| {
            vec![SubOp::Lock {
                name: "n".into(),
                cookie: 1,
                shared: false,
                lease_ms: 0,
                description,
            }]
        };
        assert!(matches!(
            run(lock(String::new()), b"", &context),
            Outcome::Update(_)
        ));
        let outcome = run(lock("x".repeat(40)), b"", &context);
        assert!(
            matches!(
                outcome,
                Outcome::Answer {
                    failure: Some(OpFailure::TooLarge {}),
                    ..
                }
            ),
            "{outcome:?}"
        );
    }
}
