//! Executes class methods on objects: the bridge between an operation's view of its object and the
//! Lua runtime (MAL-20 to MAL-24, MAL-26, MAL-29).
//!
//! ```text
//!  operation ─Call─▶ Runtime ──View moves in──▶ ClassVm (Luau or Rust) ──View moves out──▶ effects of the operation
//!                      │ within INLINE: done on the daemon's own thread
//!                      └ beyond it: Stop::Heavy; another thread evaluates the whole operation again, with the full budget
//! ```
//! A hostile or merely long method costs the daemon's thread [`INLINE`] once, for all calls of its
//! operation together; after that its operations go straight to another thread while the daemon
//! keeps serving. Steps that no instruction count limits are bounded by the host's clock
//! ([`Patience`]), with the same outcome. A client whose longer calls exceed their share has all
//! its calls evaluated there for a while (`allowance.rs`).

use crate::allowance::Allowances;
use crate::attributes::HEADER_ATTR;
use crate::context::Context;
use crate::evaluate::{Called, Methods};
use crate::hints::Hints;
use crate::view::{Stop, View};
use bytes::Bytes;
use nacre_policy::{
    Budget, Call, CallEnd, Chunk, ClassVm, Classes, Kind, Object, Page, Patience, Request,
    ScriptError, Stat, Target, errno,
};
use nacre_types::{ClientId, Name, SnapId, Time};
use nacre_wire::msg::client::{OpFailure, WHY_BYTES_MAX};
use nacre_wire::msg::replication::Effect;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What an operation's methods may use on the daemon's own thread: about a millisecond. Allocating
/// one MiB takes some 0.2 ms.
const INLINE: Budget = Budget {
    instructions: 20_000,
    memory: 1 << 20,
    churn: 8 << 20,
    operator_bytes: 64 << 20,
    text: 16 << 10,
    ..Budget::CLASS
};
/// Longest script that is compiled on the daemon's own thread, in bytes: usually 60 ns per byte.
const INLINE_TEXT_MAX: usize = 4 << 10;
/// Extra charge for a call that ended late or was ended by the host's clock. It is less than the
/// client's whole allowance, because the clock also runs out when the daemon itself was not
/// scheduled.
const OVERDUE: u64 = 4 * INLINE.instructions;
/// Multiple of an operation's time allowed for checking a class: a second, more than twice the time
/// of a monitor's check.
const CHECK_TIMES: u32 = 256;
/// Compiled scripts kept by one runtime.
const CHUNKS: usize = 256;
/// An object or a part of it would be too large.
const EFBIG: i32 = 27;
/// Snapshots that one operation may try to roll back to: a method may catch the error for one that
/// does not exist and try another.
const ROLLBACKS_TRIED_MAX: usize = 4;
/// Methods remembered as heavy.
const HEAVY_MAX: usize = 4096;

/// A program's error to be reported to operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// The class; empty for a script sent with its call.
    pub class: String,
    /// The activation that ran.
    pub activation: u64,
    /// The method.
    pub method: String,
    /// The error.
    pub error: ScriptError,
}

/// The circumstances of an evaluation, besides the object.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// All classes known at the moment.
    pub classes: Arc<Classes>,
    /// The request.
    pub request: Request,
    /// Identifies the state of the classes: counts changes to them.
    pub moment: u64,
}

/// Runs methods. One per evaluating thread.
pub struct Runtime {
    vm: Option<ClassVm<View>>,
    /// Whether to give up beyond [`INLINE`].
    inline: bool,
    heavy: BTreeSet<(u64, String)>,
    hints: Hints,
    patience: Option<Arc<dyn Patience>>,
    allowances: Allowances,
    /// The client of the current operation, its start, and the instructions that its calls have
    /// used.
    asker: ClientId,
    begun: Time,
    spent: u64,
    /// Circumstances of the current operation.
    pub facts: Facts,
    /// For the cluster log.
    pub complaints: Vec<Complaint>,
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Runtime(inline: {})", self.inline)
    }
}

impl Runtime {
    /// A runtime for the daemon's own thread.
    #[must_use]
    pub fn inline() -> Self {
        Self::new(true)
    }
    /// A runtime for a worker thread.
    #[must_use]
    pub fn patient() -> Self {
        Self::new(false)
    }
    fn new(inline: bool) -> Self {
        // The interpreter is created at the first call: most daemons of most clusters never need
        // one.
        Self {
            vm: None,
            inline,
            heavy: BTreeSet::new(),
            hints: Hints::default(),
            patience: None,
            allowances: Allowances::default(),
            asker: ClientId(0),
            begun: Time::ZERO,
            spent: 0,
            facts: Facts::default(),
            complaints: Vec::new(),
        }
    }

    /// Number of compiled scripts found in the cache, and number compiled.
    #[must_use]
    pub fn cache(&self) -> (u64, u64) {
        self.vm.as_ref().map_or((0, 0), |vm| {
            (vm.stats().cache_hits, vm.stats().cache_misses)
        })
    }

    /// A flag that ends the running method when set, from any thread: for hosts that bound calls by
    /// their clock. The operation fails without effects and may be retried.
    pub fn stop_switch(&mut self) -> Arc<std::sync::atomic::AtomicBool> {
        self.vm
            .get_or_insert_with(|| ClassVm::new(CHUNKS))
            .stop_switch()
    }

    /// Bounds the time of all calls of an operation by a clock. On the daemon's own thread, an
    /// operation that takes longer is evaluated on another thread; elsewhere it fails without
    /// effects and may be retried. To be set once, before the first call.
    pub fn set_patience(&mut self, patience: Arc<dyn Patience>) {
        self.patience = Some(patience.clone());
        self.vm
            .get_or_insert_with(|| ClassVm::new(CHUNKS))
            .set_patience(patience);
    }

    /// Begins the evaluation of an operation with calls.
    pub fn begin(&mut self, asker: ClientId, now: Time, facts: Facts) {
        (self.asker, self.begun, self.spent, self.facts) = (asker, now, 0, facts);
        if let Some(patience) = &self.patience {
            patience.begin();
        }
    }

    /// Compiles a class and lists its methods.
    ///
    /// # Errors
    /// Why it is not a valid class.
    pub fn check(
        &self,
        chunk: &Chunk,
    ) -> Result<Vec<(String, nacre_policy::MethodFlags)>, ScriptError> {
        // The monitors have accepted it within their time limit: if it takes much longer here, the
        // class is not the cause.
        nacre_policy::check_class_within(chunk, self.patience.clone(), CHECK_TIMES)
    }

    fn run(
        &mut self,
        index: u32,
        target: Target<'_>,
        activation: u64,
        method: &Name,
        input: Bytes,
        view: View,
    ) -> (View, Result<Called, Stop>) {
        let Ok(method) = std::str::from_utf8(method.as_bytes()) else {
            let why = "the name of a method is text".to_owned();
            return (view, Err(Stop::Fail(OpFailure::NoSuchMethod { why })));
        };
        // A script sent with its call is identified by its text.
        let heavy = || match target {
            Target::Class(_) => (activation, method.to_owned()),
            Target::Eval(chunk) => (chunk.fingerprint(), String::new()),
        };
        let known_heavy = !self.heavy.is_empty() && self.heavy.contains(&heavy());
        if self.inline
            && (known_heavy
                || input.len() > INLINE.memory / 4
                || self.spent >= INLINE.instructions
                || self.allowances.is_spent(self.asker, self.begun))
        {
            return (view, Err(Stop::Heavy));
        }
        let first = view.fetched.rounds() == 0 && view.context.exists && activation > 0;
        if first {
            let wants = self.hints.wants(activation, method, &input);
            if !wants.is_empty() {
                let mut view = view;
                view.wanted.extend(wants);
                return (view, Err(Stop::Wait));
            }
        }
        let asked = input.clone();
        let left = Budget {
            instructions: INLINE.instructions.saturating_sub(self.spent),
            ..INLINE
        };
        let budget = if self.inline { &left } else { &Budget::CLASS };
        self.facts.request.subop = index;
        let call = Call {
            classes: &self.facts.classes,
            target,
            method,
            input,
            request: &self.facts.request,
            budget,
        };
        let vm = self.vm.get_or_insert_with(|| ClassVm::new(CHUNKS));
        let (view, end) = vm.call(view, &call);
        let used = vm.used();
        self.spent += used;
        if self.inline {
            // Some steps take long for their instruction count: operators on long strings.
            let late = self
                .patience
                .as_ref()
                .is_some_and(|patience| patience.is_over());
            self.allowances.charge(
                self.asker,
                used + if late { OVERDUE } else { 0 },
                self.begun,
            );
        }
        let outcome = match end {
            // It waits for nothing of the object: it has called a class that is being fetched.
            CallEnd::Wait if view.wanted.is_empty() && view.back.is_none() => {
                return (view, Err(Stop::Program(self.facts.moment)));
            }
            CallEnd::Wait => {
                if first && view.back.is_none() {
                    self.hints.learn(activation, method, &asked, &view.wanted);
                }
                return (view, Err(Stop::Wait));
            }
            CallEnd::Done(outcome) => outcome,
        };
        let Some(error) = outcome.error.filter(|_| outcome.status < 0) else {
            let status = u32::try_from(outcome.status).unwrap_or_default();
            return (
                view,
                Ok(Called {
                    activation,
                    status,
                    output: outcome.output,
                }),
            );
        };
        if self.inline && error.kind == Kind::Clock {
            // It may succeed next time: the daemon may not have been scheduled for a moment.
            return (view, Err(Stop::Heavy));
        }
        // Only with the whole budget available is the method itself the cause.
        if self.inline && matches!(error.kind, Kind::Instructions | Kind::Memory) {
            if left.instructions == INLINE.instructions {
                if self.heavy.len() >= HEAVY_MAX {
                    self.heavy.clear();
                }
                self.heavy.insert(heavy());
            }
            return (view, Err(Stop::Heavy));
        }
        let failure = match error.kind {
            Kind::Missing => OpFailure::NoSuchMethod { why: error.message },
            kind => {
                let chosen = matches!(kind, Kind::Errno(_));
                let why = if chosen {
                    String::new()
                } else {
                    bounded(error.to_string())
                };
                if !chosen {
                    let class = match target {
                        Target::Class(name) => name.to_owned(),
                        Target::Eval(_) => String::new(),
                    };
                    self.complaints.push(Complaint {
                        class,
                        activation,
                        method: method.to_owned(),
                        error,
                    });
                }
                OpFailure::Method {
                    index,
                    activation,
                    errno: outcome.status.unsigned_abs(),
                    why,
                }
            }
        };
        (view, Err(Stop::Fail(failure)))
    }
}

/// Cuts a text to the length allowed in a reply.
#[must_use]
pub fn bounded(mut text: String) -> String {
    let mut end = text.len().min(WHY_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

impl Methods for Runtime {
    fn call(
        &mut self,
        index: u32,
        class: &Name,
        method: &Name,
        input: Bytes,
        view: View,
    ) -> (View, Result<Called, Stop>) {
        let name = String::from_utf8_lossy(class.as_bytes());
        let Some(activation) = self.facts.classes.get(&name).map(|class| class.activation) else {
            let why = format!("there is no class {name}; `nacre class ls` shows what is installed");
            return (view, Err(Stop::Fail(OpFailure::NoSuchMethod { why })));
        };
        self.run(index, Target::Class(&name), activation, method, input, view)
    }

    fn eval(
        &mut self,
        index: u32,
        script: &[u8],
        handler: &Name,
        input: Bytes,
        view: View,
    ) -> (View, Result<Called, Stop>) {
        if self.inline && script.len() > INLINE_TEXT_MAX {
            return (view, Err(Stop::Heavy));
        }
        let chunk = Chunk::new("eval", script);
        self.run(index, Target::Eval(&chunk), 0, handler, input, view)
    }
}

// ── the object as a method sees it ──────────────────────────────────────────────────────

type Said<T> = Result<T, nacre_policy::Stop>;

fn said<T>(result: Result<T, Stop>) -> Said<T> {
    result.map_err(|stop| match stop {
        // A method never sees the other variants: they concern methods as a whole.
        Stop::Wait | Stop::Heavy | Stop::Program(_) => nacre_policy::Stop::Wait,
        Stop::Fail(failure) => nacre_policy::Stop::Errno(match failure {
            OpFailure::NotFound {} => errno::ENOENT,
            OpFailure::AlreadyExists {} => errno::EEXIST,
            OpFailure::TooLarge {} => EFBIG,
            OpFailure::Invalid { .. } => errno::EINVAL,
            _ => errno::EIO,
        }),
    })
}

fn whole(pieces: Vec<Bytes>) -> Bytes {
    match <[Bytes; 1]>::try_from(pieces) {
        Ok([one]) => one,
        Err(pieces) => pieces.concat().into(),
    }
}

/// In the interface of classes, length 0 means up to the end.
const fn length_or_all(length: u64) -> u64 {
    if length == 0 {
        nacre_wire::msg::client::OP_BYTES_MAX
    } else {
        length
    }
}

impl Object for View {
    fn exists(&mut self) -> Said<bool> {
        Ok(self.context.exists)
    }
    fn stat(&mut self) -> Said<Stat> {
        said(Self::exists(self))?;
        let Context {
            size,
            version,
            modified_ms,
            ..
        } = self.context;
        Ok(Stat {
            size,
            version,
            modified_ns: modified_ms.saturating_mul(1_000_000),
        })
    }
    fn snapshots(&mut self) -> Said<Vec<u64>> {
        said(Self::exists(self))?;
        let mut all: Vec<u64> = self
            .context
            .snaps
            .clones
            .iter()
            .flat_map(|clone| &clone.snaps)
            .map(|snap| snap.0)
            .collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        Ok(all)
    }
    /// It must be the operation's first change, and so its only rollback: otherwise `EINVAL`.
    fn rollback(&mut self, snapshot: u64) -> Said<()> {
        let snap = SnapId(snapshot);
        if !self.effects.is_empty() {
            return Err(nacre_policy::Stop::Errno(errno::EINVAL));
        }
        if let Some((_, then)) = self.brought.iter().find(|(known, _)| *known == snap) {
            let then = then
                .clone()
                .ok_or(nacre_policy::Stop::Errno(errno::ENOENT))?;
            return said(self.roll_back(&then));
        }
        // Counts in every evaluation of the operation.
        if self.brought.len() >= ROLLBACKS_TRIED_MAX {
            return Err(nacre_policy::Stop::Errno(errno::EINVAL));
        }
        self.back = Some(snap);
        Err(nacre_policy::Stop::Wait)
    }
    fn create(&mut self, exclusive: bool) -> Said<()> {
        said(Self::create(self, exclusive))
    }
    fn remove(&mut self) -> Said<()> {
        said(Self::remove(self))
    }

    fn read(&mut self, offset: u64, length: u64) -> Said<Bytes> {
        said(Self::read(self, offset, length_or_all(length))).map(whole)
    }
    fn write(&mut self, offset: u64, data: Bytes) -> Said<()> {
        said(Self::write(self, offset, vec![data]))
    }
    fn write_full(&mut self, data: Bytes) -> Said<()> {
        said(Self::write_full(self, vec![data]))
    }
    fn append(&mut self, data: Bytes) -> Said<()> {
        let end = self.context.size;
        said(Self::write(self, end, vec![data]))
    }
    fn truncate(&mut self, size: u64) -> Said<()> {
        said(Self::truncate(self, size))
    }
    fn zero(&mut self, offset: u64, length: u64) -> Said<()> {
        said(Self::zero(self, offset, length))
    }
    fn checksum(&mut self, offset: u64, length: u64) -> Said<u32> {
        said(Self::checksum(self, offset, length_or_all(length))).map(|(crc, _)| crc)
    }

    fn getxattr(&mut self, name: &[u8]) -> Said<Bytes> {
        said(Self::exists(self))?;
        said(self.attr(&Name::copy(name))).map_err(|_| nacre_policy::Stop::Errno(errno::ENODATA))
    }
    fn getxattrs(&mut self) -> Said<Vec<(Bytes, Bytes)>> {
        said(Self::exists(self))?;
        let entry = |(name, value): (&Name, &Bytes)| {
            (Bytes::copy_from_slice(name.as_bytes()), value.clone())
        };
        Ok(self.context.attrs.iter().map(entry).collect())
    }
    fn setxattr(&mut self, name: &[u8], value: Bytes) -> Said<()> {
        said(self.set_attr(&Name::copy(name), value))
    }
    fn rmxattr(&mut self, name: &[u8]) -> Said<()> {
        said(Self::exists(self))?;
        said(self.remove_attr(&Name::copy(name)))
            .map_err(|_| nacre_policy::Stop::Errno(errno::ENODATA))
    }

    fn map_get_val(&mut self, key: &[u8]) -> Said<Bytes> {
        said(self.omap_get(&Bytes::copy_from_slice(key)))?
            .ok_or(nacre_policy::Stop::Errno(errno::ENOENT))
    }
    fn map_get_vals(
        &mut self,
        after: &[u8],
        prefix: &[u8],
        max: u64,
    ) -> Said<Page<(Bytes, Bytes)>> {
        let limit = usize::try_from(max).unwrap_or(usize::MAX).min(10_000);
        // The first key with the prefix may be the prefix itself.
        let inclusive = !prefix.is_empty() && after < prefix;
        let mut found = Vec::new();
        if inclusive {
            let key = Bytes::copy_from_slice(prefix);
            if let Some(value) = said(self.omap_get(&key))? {
                if limit == 0 {
                    return Ok((found, true));
                }
                found.push((key, value));
            }
        }
        let from = if inclusive { prefix } else { after };
        let from = (!from.is_empty()).then(|| Bytes::copy_from_slice(from));
        let room = limit - found.len();
        // One more than requested: only the next entry shows whether more keys with the prefix
        // follow.
        let (entries, more) = said(self.omap_list(from.as_ref(), room + 1))?;
        let inside = entries
            .iter()
            .take_while(|(key, _)| key.starts_with(prefix))
            .count();
        let more = inside > room || (more && inside == entries.len());
        found.extend(entries.into_iter().take(inside.min(room)));
        Ok((found, more))
    }
    fn map_get_keys(&mut self, after: &[u8], max: u64) -> Said<Page<Bytes>> {
        let (entries, more) = self.map_get_vals(after, b"", max)?;
        Ok((entries.into_iter().map(|(key, _)| key).collect(), more))
    }
    fn map_set_vals(&mut self, pairs: Vec<(Bytes, Bytes)>) -> Said<()> {
        said(self.omap_set(pairs))
    }
    fn map_remove_key(&mut self, key: &[u8]) -> Said<()> {
        said(self.omap_remove(vec![Bytes::copy_from_slice(key)]))
    }
    fn map_clear(&mut self) -> Said<()> {
        said(self.omap_clear())?;
        said(self.set_header(Bytes::new()))
    }
    fn map_read_header(&mut self) -> Said<Bytes> {
        said(Self::exists(self))?;
        Ok(self.context.header.clone())
    }
    fn map_write_header(&mut self, data: Bytes) -> Said<()> {
        said(self.set_header(data))
    }
}

/// The effect that stores the methods' header.
pub(crate) fn header_effect(header: &Bytes) -> Effect {
    let name = Name::copy(HEADER_ATTR);
    if header.is_empty() {
        Effect::RemoveAttr { name }
    } else {
        Effect::SetAttr {
            name,
            value: header.clone(),
        }
    }
}
