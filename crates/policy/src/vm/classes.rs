//! Calls of object classes, and of one class by another (MAL-20, MAL-22, MAL-26).
//!
//! ```text
//!  call ─▶ Lua class:    slot ◀─ object, rules │ prelude: chunk, method(input, output) │ slot ─▶ object
//!      └─▶ native class: under the same guard, without a VM
//!  objclass.call in Lua:  enter ─▶ push rules ─▶ callee (Lua: same VM, same budget; native: at once) ─▶ leave: pop rules
//! ```
//! There are no savepoints: a callee that fails after it wrote ends the whole call, even if the
//! error is caught. A partial execution must not be kept.

use super::buffer::Buffer;
use super::cache::Cache;
use super::convert::{name_of, number, text};
use super::meter::Meter;
use super::objclass::{Caller, Fault, Slot, error_value, install};
use super::{Engine, VmStats, errno_message};
use crate::budget::API_COST;
use crate::class::{Call, CallEnd, CallOutcome, ClassRef, Context, MethodFlags, Target};
use crate::guard::{Guard, Rules, run_native};
use crate::{
    Budget, Chunk, Classes, Kind, Object, Profile, Request, ScriptError, Severity, Stop, errno,
};
use bytes::Bytes;
use mlua::{AnyUserData, Function, IntoLuaMulti, Lua, MultiValue, Table, Value};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A VM for object classes, generic over the host's type of object. It runs one call at a time.
pub struct ClassVm<O> {
    engine: Engine,
    /// Input and output of every call. No reference from one call survives until the next one
    /// begins.
    input: AnyUserData,
    output: AnyUserData,
    object: std::marker::PhantomData<fn(O) -> O>,
}

impl<O> fmt::Debug for ClassVm<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClassVm")
            .field("stats", &self.engine.stats())
            .finish_non_exhaustive()
    }
}

impl<O: Object + Send + 'static> ClassVm<O> {
    /// A VM that keeps up to `cache` compiled chunks: those of installed classes and of scripts
    /// that come with calls together.
    #[must_use]
    pub fn new(cache: usize) -> Self {
        let engine = Engine::new(cache, |lua, meter, natives| {
            install::<O>(lua, meter, natives)?;
            compose::<O>(lua, meter, natives)
        });
        let empty = || {
            engine
                .lua
                .create_userdata(Buffer::new(&engine.meter, Bytes::new()))
                .expect("there is memory")
        };
        let (input, output) = (empty(), empty());
        Self {
            engine,
            input,
            output,
            object: std::marker::PhantomData,
        }
    }

    /// Runs a method on an object, and returns the object. If the result is [`CallEnd::Wait`] or
    /// the status is negative, the host drops the call's changes.
    pub fn call(&mut self, object: O, call: &Call<'_>) -> (O, CallEnd) {
        self.engine.meter.forget_used();
        let (chunk, activation) = match call.target {
            Target::Eval(chunk) => (chunk, 0),
            Target::Class(name) => match call.classes.get(name) {
                None => {
                    return (
                        object,
                        failed(
                            0,
                            ScriptError::plain(
                                Kind::Missing,
                                name,
                                format!("there is no class `{name}`"),
                            ),
                        ),
                    );
                }
                Some(class) => match &class.code {
                    ClassRef::Lua(chunk) => (chunk, class.activation),
                    ClassRef::Native(_) => return self.call_native(object, name, call),
                },
            },
        };
        let main = match self.engine.load(chunk) {
            Ok(main) => main,
            Err(error) => return (object, failed(activation, error)),
        };
        self.put(Slot {
            object: Some(object),
            rules: Rules {
                portable: chunk.profile() == Profile::Portable,
                ..Rules::default()
            },
            classes: call.classes.clone(),
            request: call.request.clone(),
            callers: Vec::new(),
            depth_max: call.budget.depth,
        });
        let result = self.run(main, chunk, call);
        let slot = self.take();
        let wait = self.engine.with_trouble(|trouble| trouble.wait);
        let (log, instructions, memory_peak, _) = self.engine.finish(None);
        let object = slot
            .object
            .expect("moved in above, and natives only borrow it");
        if wait {
            return (object, CallEnd::Wait);
        }
        let wrote = slot.rules.writes > 0;
        let portable = chunk.profile() == Profile::Portable;
        let result = result.and_then(|(status, output)| {
            if portable && wrote && !output.is_empty() {
                let message = "the class says it is portable, but a call that wrote has output: Ceph drops it; use --!profile luau";
                return Err(ScriptError::plain(Kind::Profile, chunk.name(), message.into()));
            }
            Ok((status, output))
        });
        let facts = CallOutcome {
            log,
            instructions,
            memory_peak,
            wrote,
            activation,
            ..CallOutcome::default()
        };
        (object, CallEnd::Done(finished(facts, result)))
    }

    /// Runs the method of a class in Lua.
    fn run(
        &mut self,
        main: Function,
        chunk: &Chunk,
        call: &Call<'_>,
    ) -> Result<(i32, Bytes), ScriptError> {
        let (input, output) = (&self.input, &self.output);
        let of = |data: &AnyUserData, bytes: Bytes| {
            data.borrow_mut::<Buffer>()
                .expect("a bufferlist of ours, not borrowed now")
                .replace(bytes)
        };
        of(input, call.input.clone());
        let result = self
            .engine
            .call(chunk, "class", call.request.seed, call.budget, |lua| {
                (main, call.method, input, output).into_lua_multi(lua)
            });
        of(input, Bytes::new());
        let output = of(output, Bytes::new());
        let status = result?
            .front()
            .and_then(number)
            .expect("the prelude gives a checked status") as i32;
        bounded(chunk.name(), call.budget, status, output)
    }

    fn call_native(&mut self, mut object: O, name: &str, call: &Call<'_>) -> (O, CallEnd) {
        let mut log = Vec::new();
        let mut rules = Rules::default();
        let Some(class) = call.classes.get(name) else {
            unreachable!("looked up by the caller")
        };
        let ClassRef::Native(native) = &class.code else {
            unreachable!("looked up by the caller")
        };
        let result = match native.method(call.method) {
            None => Err(missing(name, call.method)),
            Some(flags) => {
                let mut guard = Guard {
                    object: &mut object,
                    rules: &mut rules,
                };
                let mut context = Context {
                    object: &mut guard,
                    request: call.request,
                    log: &mut log,
                    classes: call.classes,
                    depth_left: call.budget.depth.saturating_sub(1),
                };
                match run_native(
                    &**native,
                    flags,
                    call.method,
                    call.input.clone(),
                    &mut context,
                ) {
                    _ if rules.waited => return (object, CallEnd::Wait),
                    Ok((status, output)) => bounded(name, call.budget, status, output),
                    Err(Stop::Errno(number)) => Err(ScriptError::plain(
                        Kind::Errno(number),
                        name,
                        errno_message(number),
                    )),
                    Err(Stop::Wait) => return (object, CallEnd::Wait),
                }
            }
        };
        let facts = CallOutcome {
            log,
            wrote: rules.writes > 0,
            activation: class.activation,
            ..CallOutcome::default()
        };
        (object, CallEnd::Done(finished(facts, result)))
    }

    /// Checks that a class compiles and runs from top to bottom, and returns the methods it
    /// registers: the first check of an installation. There is no object: a class that uses one
    /// outside its methods fails.
    ///
    /// # Errors
    /// The reason why it is not a class.
    pub fn check(
        &mut self,
        chunk: &Chunk,
        budget: &Budget,
    ) -> Result<Vec<(String, MethodFlags)>, ScriptError> {
        let main = self.engine.load(chunk)?;
        self.put(Slot::default());
        let result = self
            .engine
            .call(chunk, "methods", 0, budget, |lua| main.into_lua_multi(lua));
        let methods = result.map(|values| match values.front() {
            Some(Value::Table(table)) => {
                let mut methods: Vec<_> = table
                    .pairs::<String, bool>()
                    .filter_map(Result::ok)
                    .map(|(name, read_only)| (name, MethodFlags { read_only }))
                    .collect();
                methods.sort_by(|a, b| a.0.cmp(&b.0));
                methods
            }
            _ => Vec::new(),
        });
        self.engine.finish(None);
        methods
    }

    /// A switch that any thread can set: the running call ends at its next safepoint
    /// ([`Kind::Clock`]). A call begins with it cleared. For hosts with a clock: the semantics of a
    /// program must not depend on one.
    #[must_use]
    pub fn stop_switch(&self) -> Arc<AtomicBool> {
        self.engine.meter.stop().clone()
    }

    /// Sets a clock for all further calls: one that takes longer ends with [`Kind::Clock`]. Once
    /// per VM.
    pub fn set_patience(&self, patience: Arc<dyn super::Patience>) {
        self.engine.meter.set_patience(patience);
    }

    /// Instructions that the last call used, however it ended.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.engine.meter.used()
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> VmStats {
        self.engine.stats()
    }

    fn put(&self, slot: Slot<O>) {
        *self
            .engine
            .lua
            .app_data_mut::<Slot<O>>()
            .expect("set as the VM was made") = slot;
    }
    fn take(&self) -> Slot<O> {
        std::mem::take(
            &mut *self
                .engine
                .lua
                .app_data_mut::<Slot<O>>()
                .expect("set as the VM was made"),
        )
    }
}

fn failed(activation: u64, error: ScriptError) -> CallEnd {
    CallEnd::Done(finished(
        CallOutcome {
            activation,
            ..CallOutcome::default()
        },
        Err(error),
    ))
}

fn finished(facts: CallOutcome, result: Result<(i32, Bytes), ScriptError>) -> CallOutcome {
    match result {
        Ok((status, output)) => CallOutcome {
            status,
            output,
            ..facts
        },
        Err(error) => CallOutcome {
            status: error.kind.status(),
            error: Some(error),
            ..facts
        },
    }
}

fn bounded(
    script: &str,
    budget: &Budget,
    status: i32,
    output: Bytes,
) -> Result<(i32, Bytes), ScriptError> {
    if output.len() > budget.output {
        let message = format!(
            "the output has {} bytes, more than {}; give it in pieces",
            output.len(),
            budget.output
        );
        return Err(ScriptError::plain(Kind::Output, script, message));
    }
    Ok((status, output))
}

fn missing(class: &str, method: &str) -> ScriptError {
    ScriptError::plain(
        Kind::Missing,
        class,
        format!("class `{class}` has no method `{method}`"),
    )
}

/// Adds `N.enter` and `N.leave`, with which one class calls another.
fn compose<O: Object + Send + 'static>(
    lua: &Lua,
    meter: &Arc<Meter>,
    natives: &Table,
) -> mlua::Result<()> {
    let shared = meter.clone();
    natives.set(
        "enter",
        lua.create_function(move |lua, (class, method, input): (Value, Value, Value)| {
            shared.charge(lua, API_COST)?;
            enter::<O>(lua, &shared, &class, &method, &input)
        })?,
    )?;
    let shared = meter.clone();
    natives.set(
        "leave",
        lua.create_function(move |lua, error: Value| {
            let mut slot = lua
                .app_data_mut::<Slot<O>>()
                .expect("set as the VM was made");
            let Some(Caller {
                rules,
                callee,
                bounds,
            }) = slot.callers.pop()
            else {
                unreachable!("the prelude leaves what it entered")
            };
            let writes = slot.rules.writes;
            let wrote = writes > rules.writes;
            slot.rules = Rules { writes, ..rules };
            drop(slot);
            // When there is an error, the caller may have received a function of the callee.
            let harmless = matches!(
                error,
                Value::Nil | Value::String(_) | Value::Number(_) | Value::Integer(_)
            );
            if harmless && !shared.is_ending() {
                shared.widen(lua, bounds);
            }
            if wrote && !error.is_nil() {
                return half_done(lua, &shared, &callee, &error);
            }
            Ok(())
        })?,
    )
}

/// Maximum length of a class or method name that is looked up.
const NAME_MAX: usize = 4096;

/// The result for the prelude: an error; or nothing and the callee's function; or nothing, nothing,
/// status and output of a native callee.
fn enter<O: Object + Send + 'static>(
    lua: &Lua,
    meter: &Arc<Meter>,
    class: &Value,
    method: &Value,
    input: &Value,
) -> mlua::Result<MultiValue> {
    let name = |value: &Value, what: &str| match value {
        Value::String(text) if text.as_bytes().len() > NAME_MAX => {
            Err(Fault::Stop(Stop::Errno(errno::EOPNOTSUPP)))
        }
        Value::String(text) => Ok(text.to_string_lossy()),
        other => Err(Fault::Refused((
            Kind::Runtime,
            format!("{what}: a string is needed, not {}", name_of(other)),
        ))),
    };
    let (class, method) = match (name(class, "class"), name(method, "method")) {
        (Ok(class), Ok(method)) => (class, method),
        (Err(fault), _) | (_, Err(fault)) => return refused(lua, fault),
    };
    let length = |value: &Value| {
        value
            .as_string()
            .map_or(0, |text| text.as_bytes().len() as u64)
    };
    meter.charge(lua, length(input) / 1024)?;
    let input = if input.is_nil() {
        Ok(Bytes::new())
    } else {
        text(input, "input")
    };
    let input = match input {
        Ok(input) => input,
        Err(refused) => return self::refused(lua, refused.into()),
    };
    let mut slot = lua
        .app_data_mut::<Slot<O>>()
        .expect("set as the VM was made");
    if slot.rules.portable {
        drop(slot);
        return meter.kill(
            lua,
            Kind::Profile,
            "the class says it is portable, but it calls another class: Ceph has no such call"
                .into(),
        );
    }
    let Some(code) = slot.classes.get(&class).map(|class| class.code.clone()) else {
        drop(slot);
        return refused(lua, Fault::Stop(Stop::Errno(errno::EOPNOTSUPP)));
    };
    let depth = slot.callers.len() as u32 + 2;
    if depth > slot.depth_max {
        let message = format!("classes call each other more than {} deep", slot.depth_max);
        drop(slot);
        return meter.kill(lua, Kind::Depth, message);
    }
    match code {
        ClassRef::Lua(chunk) => {
            let caller = Caller {
                rules: slot.rules.clone(),
                callee: class.clone(),
                bounds: meter.bounds(),
            };
            slot.callers.push(caller);
            slot.rules.portable = chunk.profile() == Profile::Portable;
            drop(slot);
            let before = lua.used_memory();
            match Cache::load(lua, &chunk) {
                Ok(main) => {
                    // Compiled code belongs to the VM, not to the call: whether it was cached must
                    // not matter.
                    meter.forgive(lua, lua.used_memory().saturating_sub(before));
                    meter.fit(lua, chunk.counts())?;
                    (Value::Nil, main).into_lua_multi(lua)
                }
                Err(error) => meter.kill(lua, error.kind, format!("class `{class}`: {error}")),
            }
        }
        ClassRef::Native(native) => {
            let Some(flags) = native.method(&method) else {
                drop(slot);
                return refused(lua, Fault::Stop(Stop::Errno(errno::EOPNOTSUPP)));
            };
            let depth_left = slot.depth_max - depth;
            let slot_now = &mut *slot;
            let mut log: Vec<(Severity, String)> = Vec::new();
            let writes = slot_now.rules.writes;
            let result = match &mut slot_now.object {
                Some(object) => {
                    let mut guard = Guard {
                        object,
                        rules: &mut slot_now.rules,
                    };
                    let request: &Request = &slot_now.request;
                    let classes: &Arc<Classes> = &slot_now.classes;
                    let mut context = Context {
                        object: &mut guard,
                        request,
                        log: &mut log,
                        classes,
                        depth_left,
                    };
                    let run = || run_native(&*native, flags, &method, input, &mut context);
                    std::panic::catch_unwind(std::panic::AssertUnwindSafe(run))
                }
                None => Ok(Err(Stop::Errno(errno::EOPNOTSUPP))),
            };
            let wrote = slot_now.rules.writes > writes;
            let waited = slot_now.rules.waited;
            drop(slot);
            let result = super::unless_panicked(lua, meter, result)?;
            let result = if waited { Err(Stop::Wait) } else { result };
            for (severity, line) in log {
                super::natives::log_line(lua, meter, severity, line)?;
            }
            match result {
                Err(Stop::Errno(number)) if wrote => {
                    half_done(lua, meter, &class, &Value::Number(-f64::from(number)))?;
                    unreachable!("half_done ends the call")
                }
                Err(stop) => refused(lua, stop.into()),
                Ok((status, output)) => {
                    meter.charge(lua, output.len() as u64 / 1024)?;
                    meter.watch_memory(lua)?;
                    (Value::Nil, Value::Nil, status, Buffer::new(meter, output)).into_lua_multi(lua)
                }
            }
        }
    }
}

fn refused(lua: &Lua, fault: Fault) -> mlua::Result<MultiValue> {
    error_value(lua, fault)?.into_lua_multi(lua)
}

/// Ends the call because a callee failed after it wrote.
fn half_done(lua: &Lua, meter: &Meter, class: &str, error: &Value) -> mlua::Result<()> {
    let (kind, why) = match number(error) {
        Some(number) if number < 0.0 && number > f64::from(i32::MIN) => {
            let errno = -(number as i32);
            (Kind::Errno(errno), errno_message(errno))
        }
        _ => (
            Kind::Runtime,
            error
                .as_string()
                .map_or_else(|| "failed".to_owned(), |text| text.to_string_lossy()),
        ),
    };
    meter.kill(
        lua,
        kind,
        super::place::shorten(&format!("class `{class}` failed after it wrote: {why}")),
    )
}
