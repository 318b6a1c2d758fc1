//! Classes that the map names: fetched, checked, kept (MAL-02, MAL-06, MAL-22, MAL-70).
//!
//! ```text
//!  map: class zlog, version 2, activation 17 ──▶ Fetching ──source of that digest──▶ Ready: methods and their flags
//!                                                   │ repeated until it is here          └─ Broken: it does not compile
//! ```
//! A source is a replicated object like any other: this daemon reads it from that object's primary,
//! as a client would, as soon as the map names it. Until it is here, calls of the class wait. A
//! call never runs an older version than the one in the daemon's map: a later primary of the object
//! has a later map, so versions never go back for an object. Nothing is restarted, and no cached
//! object state is touched.
//!
//! Errors of classes are written to the cluster log once per activation, method and line.

use bytes::Bytes;
use nacre_object::methods::{Complaint, Facts, Runtime};
use nacre_policy::{
    Chunk, ClassRef, Classes, Context, Kind, MethodFlags, NativeClass, Request, Stop,
};
use nacre_types::{ClientId, Instance, Name, ObjectId, OsdId, PgId, PoolId, Time};
use nacre_wire::map::programs::{PROGRAM_POOL, SOURCE_READ_MAX, source_object};
use nacre_wire::map::{ProgramKind, SourceDigest};
use nacre_wire::msg::client::{OpFailure, OpReply, OpRequest, RequestId, SubOp, SubReply};
use nacre_wire::{ClusterMap, Payload};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "mutants")]
#[path = "mutants/programs.rs"]
mod planted;

/// An invalid class.
const EIO: u32 = 5;
/// Versions kept that are not active any more, for fast rollbacks.
const KEPT_MAX: usize = 32;
/// The maximum number of reported errors that are remembered.
const SAID_MAX: usize = 4096;

/// The state of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Its source is being fetched.
    Fetching,
    /// Its methods can be called.
    Ready(BTreeMap<String, MethodFlags>),
    /// It is invalid; the reason.
    Broken(String),
}

#[derive(Debug)]
struct Known {
    activation: u64,
    digest: SourceDigest,
    state: State,
    /// When its source was last requested, and the number of the request.
    asked: Option<(Time, u64)>,
    /// The number of checks ended by the clock.
    late: u32,
}

/// The maximum number of checks ended by the clock: if a daemon gets too little CPU time that
/// often, it does not run the class.
const LATE_MAX: u32 = 4;

/// A source that is requested from another OSD, or from this one.
#[derive(Debug)]
pub struct Ask {
    /// Its object's primary.
    pub to: OsdId,
    /// The request.
    pub request: OpRequest,
}

/// Counts since start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramCounters {
    /// Operations with calls that were evaluated on the daemon's own thread.
    pub inline: u64,
    /// Operations that were evaluated on other threads.
    pub jobs: u64,
    /// Sources fetched.
    pub fetched: u64,
}

/// The classes of a daemon; see the module head.
#[derive(Debug)]
pub struct Programs {
    /// Runs methods on the daemon's own thread.
    pub runtime: Runtime,
    /// Counts.
    pub counters: ProgramCounters,
    classes: Arc<Classes>,
    known: BTreeMap<Name, Known>,
    kept: VecDeque<(Name, SourceDigest, ClassRef, BTreeMap<String, MethodFlags>)>,
    next: u64,
    said: BTreeSet<String>,
    moment: u64,
}

/// Whether an operation leaves the sources of classes alone. They are named by their digest, so
/// only the matching bytes can be stored under a name, by any client, any number of times; and no
/// client can remove or change them: the monitors' map may refer to them for ever.
///
/// # Errors
/// It would.
pub fn keeps_sources(pool: &Name, request: &OpRequest, payload: &Payload) -> Result<(), OpFailure> {
    if pool.as_bytes() != PROGRAM_POOL.as_bytes() || !request.ops.iter().any(SubOp::is_write) {
        return Ok(());
    }
    let Some(digest) = digest_of(request.object.name.as_bytes()) else {
        return Ok(());
    };
    let refused = |why: &str| {
        Err(OpFailure::Denied {
            why: why.to_owned(),
        })
    };
    let [SubOp::WriteFull { .. }] = request.ops[..] else {
        return refused(
            "the source of a program stays as it is: `class rm` or `program rm` makes it unused",
        );
    };
    let mut hasher = blake3::Hasher::new();
    for piece in payload {
        hasher.update(piece);
    }
    if *hasher.finalize().as_bytes() != digest.0 {
        return refused(
            "what is stored as the source of a program must have the digest that its name says",
        );
    }
    Ok(())
}

/// The digest in the name of a source ([`source_object`]).
fn digest_of(name: &[u8]) -> Option<SourceDigest> {
    let text = std::str::from_utf8(name).ok()?;
    let (_, hex) = text.rsplit_once('/')?;
    let mut bytes = [0; 32];
    if hex.len() != 2 * bytes.len() || !hex.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(SourceDigest(bytes))
}

/// Represents a class whose source is being fetched: a method of another class that calls it waits,
/// as clients do. Its previous version would be older than the one that calls may have run
/// elsewhere; reporting that there is no such class would be wrong.
struct Coming;

impl NativeClass for Coming {
    fn method(&self, _: &str) -> Option<MethodFlags> {
        Some(MethodFlags::default())
    }
    fn call(&self, _: &str, _: Bytes, _: &mut Context<'_>) -> Result<(i32, Bytes), Stop> {
        Err(Stop::Wait)
    }
}

impl Programs {
    /// The native classes.
    #[must_use]
    pub fn new() -> Self {
        Self {
            runtime: Runtime::inline(),
            counters: ProgramCounters::default(),
            classes: Arc::new(crate::builtin::classes()),
            known: BTreeMap::new(),
            kept: VecDeque::new(),
            next: 0,
            said: BTreeSet::new(),
            moment: 0,
        }
    }

    /// All classes that can be called.
    #[must_use]
    pub const fn classes(&self) -> &Arc<Classes> {
        &self.classes
    }

    /// Counts the changes of [`Self::classes`].
    #[must_use]
    pub const fn moment(&self) -> u64 {
        self.moment
    }

    /// The inputs of an operation's evaluation besides the object.
    #[must_use]
    pub fn facts(&self, name: &Name, op: &OpRequest) -> Facts {
        let RequestId {
            client,
            instance,
            sequence,
        } = op.request;
        let request = Request {
            // A client without a name is still distinguished from other clients without a name.
            client: if name.as_bytes().is_empty() {
                format!("client.{}", client.0)
            } else {
                text(name)
            }
            .into(),
            object: Bytes::copy_from_slice(op.object.name.as_bytes()),
            now_ns: op.unix_ms.saturating_mul(1_000_000),
            subop: 0,
            // The same for every attempt at the same operation.
            seed: client.0
                ^ instance.0.rotate_left(32)
                ^ sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        };
        Facts {
            classes: self.classes.clone(),
            request,
            moment: self.moment,
        }
    }

    /// Prepares the evaluation of the operation.
    pub fn prepare(&mut self, name: &Name, op: &OpRequest, now: Time) {
        if op.ops.iter().any(SubOp::is_call) {
            self.counters.inline += 1;
            let facts = self.facts(name, op);
            self.runtime.begin(op.request.client, now, facts);
        }
    }

    /// The state of a class; `None`: the map has none of that name.
    #[must_use]
    pub fn state(&self, class: &Name) -> Option<&State> {
        self.known.get(class).map(|known| &known.state)
    }

    /// Activations of callable classes.
    pub fn live(&self) -> impl Iterator<Item = (&Name, u64)> {
        let ready = |known: &Known| matches!(known.state, State::Ready(_));
        self.known
            .iter()
            .filter(move |(_, known)| ready(known))
            .map(|(name, known)| (name, known.activation))
    }

    /// Whether the method is declared read-only.
    #[must_use]
    pub fn is_read_only(&self, class: &Name, method: &Name) -> bool {
        let Ok(method) = std::str::from_utf8(method.as_bytes()) else {
            return false;
        };
        if let Some(State::Ready(methods)) = self.state(class) {
            return methods.get(method).is_some_and(|flags| flags.read_only);
        }
        let class = std::str::from_utf8(class.as_bytes())
            .ok()
            .and_then(|name| self.classes.get(name));
        match class.map(|class| &class.code) {
            Some(ClassRef::Native(class)) => {
                class.method(method).is_some_and(|flags| flags.read_only)
            }
            _ => false,
        }
    }

    /// Whether calls of the class must wait for its source.
    #[must_use]
    #[nacre_types::planted]
    pub fn is_fetching(&self, class: &Name) -> bool {
        self.state(class) == Some(&State::Fetching)
    }

    /// The failure of an operation that calls an invalid class.
    #[must_use]
    pub fn broken(&self, request: &OpRequest) -> Option<OpFailure> {
        let mut calls = (0..).zip(&request.ops);
        calls.find_map(|(index, part)| {
            let SubOp::Call { class, .. } = part else {
                return None;
            };
            let Known {
                activation,
                state: State::Broken(why),
                ..
            } = self.known.get(class)?
            else {
                return None;
            };
            Some(OpFailure::Method {
                index,
                activation: *activation,
                errno: EIO,
                why: why.clone(),
            })
        })
    }

    /// The map may name other classes than before.
    pub fn on_map(&mut self, map: &ClusterMap) {
        let class = ProgramKind::Class {};
        let named = |name: &Name| {
            let program = map.programs.get(&(class, name.clone()))?;
            Some((program.activation, program.current()?.digest))
        };
        let gone: Vec<Name> = self
            .known
            .keys()
            .filter(|name| named(name).is_none())
            .cloned()
            .collect();
        for name in gone {
            self.known.remove(&name);
            changed(&mut self.classes, &mut self.moment).remove(&text(&name));
        }
        for ((kind, name), program) in &map.programs {
            let Some(version) = program.current().filter(|_| *kind == class) else {
                continue;
            };
            match self.known.get_mut(name) {
                Some(known) if known.activation == program.activation => {}
                // The same source under a new number: it is here already.
                Some(known)
                    if known.digest == version.digest && matches!(known.state, State::Ready(_)) =>
                {
                    known.activation = program.activation;
                    if let Some(code) = self
                        .classes
                        .get(&text(name))
                        .map(|class| class.code.clone())
                    {
                        changed(&mut self.classes, &mut self.moment).insert(
                            &text(name),
                            program.activation,
                            code,
                        );
                    }
                }
                _ => {
                    let (activation, digest) = (program.activation, version.digest);
                    let known = Known {
                        activation,
                        digest,
                        state: State::Fetching,
                        asked: None,
                        late: 0,
                    };
                    let old = self.known.insert(name.clone(), known);
                    self.keep(name, old);
                    self.await_source(name, activation);
                    self.take_kept(name);
                }
            }
        }
    }

    /// The loaded version is not called any more: calls wait for the source of the active one.
    #[nacre_types::planted]
    fn await_source(&mut self, name: &Name, activation: u64) {
        let coming = ClassRef::Native(Arc::new(Coming));
        changed(&mut self.classes, &mut self.moment).insert(&text(name), activation, coming);
    }

    /// A version is not active any more.
    fn keep(&mut self, name: &Name, old: Option<Known>) {
        let code = self
            .classes
            .get(&text(name))
            .map(|class| class.code.clone());
        if let (
            Some(Known {
                digest,
                state: State::Ready(methods),
                ..
            }),
            Some(code),
        ) = (old, code)
        {
            self.kept.push_back((name.clone(), digest, code, methods));
            if self.kept.len() > KEPT_MAX {
                self.kept.pop_front();
            }
        }
    }

    /// The version that is active now may have been kept.
    fn take_kept(&mut self, name: &Name) {
        let known = self
            .known
            .get_mut(name)
            .expect("the caller has put it there");
        let at = self
            .kept
            .iter()
            .position(|(kept, digest, ..)| kept == name && *digest == known.digest);
        if let Some((_, _, code, methods)) = at.and_then(|at| self.kept.remove(at)) {
            known.state = State::Ready(methods);
            let activation = known.activation;
            changed(&mut self.classes, &mut self.moment).insert(&text(name), activation, code);
        }
    }

    /// Whether a source is missing.
    #[must_use]
    pub fn wants_sources(&self) -> bool {
        self.known
            .values()
            .any(|known| known.state == State::Fetching)
    }

    /// Requests the sources that are missing and were not requested within `again`.
    pub fn asks(
        &mut self,
        me: OsdId,
        instance: Instance,
        map: &ClusterMap,
        now: Time,
        again: Duration,
    ) -> Vec<Ask> {
        let mut out = Vec::new();
        for (name, known) in &mut self.known {
            let due = known.asked.is_none_or(|(at, _)| now.since(at) >= again);
            if known.state != State::Fetching || !due {
                continue;
            }
            let object = source_object(ProgramKind::Class {}, name, &known.digest);
            let Some((pg, to)) = locate(map, &object) else {
                continue;
            };
            self.next += 1;
            known.asked = Some((now, self.next));
            out.push(Ask {
                to,
                request: question(me, instance, self.next, pg, object),
            });
        }
        out
    }

    /// A reply to one of the requests. Returns a message for the log, if any.
    pub fn on_answer(&mut self, reply: &OpReply, payload: &[Bytes]) -> Option<String> {
        let number = reply.request.sequence;
        let (name, known) = self.known.iter_mut().find(|(_, known)| {
            known.state == State::Fetching && known.asked.is_some_and(|(_, n)| n == number)
        })?;
        let found = matches!(
            (&reply.failure, &reply.results[..]),
            (None, [SubReply::Data { .. }])
        );
        if !found {
            // Wrong target, or not stored yet: requested again soon.
            let why = reply
                .failure
                .as_ref()
                .filter(|why| !matches!(why, OpFailure::WrongTarget {}))?;
            return Some(format!(
                "class {name}: its source {} cannot be read: {why}",
                known.digest
            ));
        }
        let source = payload.concat();
        if *blake3::hash(&source).as_bytes() != known.digest.0 {
            return Some(format!(
                "class {name}: what is stored as its source {} is something else",
                known.digest
            ));
        }
        self.counters.fetched += 1;
        let (class, activation) = (text(name), known.activation);
        let chunk = Chunk::new(&class, &source);
        match self.runtime.check(&chunk) {
            Ok(methods) => {
                known.state = State::Ready(methods.into_iter().collect());
                changed(&mut self.classes, &mut self.moment).insert(
                    &class,
                    activation,
                    ClassRef::Lua(chunk),
                );
                None
            }
            // This daemon got too little CPU time: the source is requested again soon.
            Err(error) if error.kind == Kind::Clock && known.late < LATE_MAX => {
                known.late += 1;
                Some(format!(
                    "class {class}, activation {activation}: its check took too long, and is done again"
                ))
            }
            Err(error) => {
                // An older version must not run instead.
                known.state = State::Broken(error.to_string());
                changed(&mut self.classes, &mut self.moment).remove(&class);
                Some(format!(
                    "class {class}, activation {activation}, cannot be loaded: {error}"
                ))
            }
        }
    }

    /// Complaints as log lines with their keys, each once. A script's message may depend on the
    /// object: it is not part of the key.
    pub fn lines(&mut self, complaints: Vec<Complaint>) -> Vec<(String, String)> {
        let mut out = Vec::new();
        for Complaint {
            class,
            activation,
            method,
            error,
        } in complaints
        {
            let what = match class.is_empty() {
                true => format!("a script that came with a call, function {method}"),
                false => format!("class {class}, activation {activation}, method {method}"),
            };
            let text = format!("{what}: {error}");
            let key = match class.is_empty() {
                // Scripts sent with their calls are unbounded in number: only equal texts have one
                // key.
                true => text.clone(),
                false => format!(
                    "{what}: {}:{} {:?}",
                    error.script,
                    error.line.unwrap_or(0),
                    error.kind
                ),
            };
            if self.said.len() >= SAID_MAX {
                self.said.clear();
            }
            if self.said.insert(key.clone()) {
                out.push((key, text));
            }
        }
        out
    }
}

impl Default for Programs {
    fn default() -> Self {
        Self::new()
    }
}

/// The classes, for modification.
fn changed<'a>(classes: &'a mut Arc<Classes>, moment: &mut u64) -> &'a mut Classes {
    *moment += 1;
    Arc::make_mut(classes)
}

fn text(name: &Name) -> String {
    String::from_utf8_lossy(name.as_bytes()).into_owned()
}

fn locate(map: &ClusterMap, object: &ObjectId) -> Option<(PgId, OsdId)> {
    let (pool, settings): (PoolId, _) = map.pool_named(&PROGRAM_POOL.into())?;
    let seed = crate::key::seed(crate::key::hash(object), settings.pg_num);
    let pg = PgId::replicated(pool, seed);
    Some((pg, map.pgs.get(&pg)?.primary()?))
}

fn question(me: OsdId, instance: Instance, sequence: u64, pg: PgId, object: ObjectId) -> OpRequest {
    OpRequest {
        request: RequestId {
            client: ClientId(u64::MAX - u64::from(me.0)),
            instance,
            sequence,
        },
        answered_below: sequence,
        pg,
        object,
        ops: vec![SubOp::Read {
            offset: 0,
            length: SOURCE_READ_MAX,
        }],
        attempt: 1,
        ..OpRequest::default()
    }
}
