//! Luau behind our own types: nothing outside this module names mlua.
//!
//! ```text
//!   Vm, ClassVm<O> ── Engine: one Luau state, one call at a time
//!                       │ begin: meter ── prelude: fresh environment ── chunk ── method ── end: collect if much is left
//!                       ├ cache   compiled chunks, least recently used goes
//!                       ├ meter   instructions and memory; ends the call
//!                       ├ place   lines and stacks
//!                       └ natives, objclass   what the prelude calls
//! ```
//! The state of a call (errors, the object, the cache) is stored in Luau's app data for its
//! duration; the host's object is moved in and out.

mod buffer;
mod cache;
mod classes;
mod convert;
mod meter;
mod natives;
mod objclass;
mod place;
mod policy;
mod regimes;

pub use classes::ClassVm;
pub use meter::Patience;
pub use policy::{Ran, Run, Vm};

use crate::text::Text;
use crate::{Budget, Chunk, Kind, ScriptError, Severity, errno};
use cache::Cache;
use meter::Meter;
use mlua::{Function, Lua, LuaOptions, MultiValue, StdLib, Table, Thread};
use nacre_types::SplitMix64;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Counters of a VM since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VmStats {
    /// Chunks that were already compiled and loaded when a call needed them.
    pub cache_hits: u64,
    /// Chunks that had to be compiled.
    pub cache_misses: u64,
    /// Bytes that the VM holds now.
    pub memory: usize,
}

/// Garbage that may stay between calls: a call is cheap mainly because the collection does not run
/// after every one.
const GARBAGE_MAX: usize = 1 << 20;

type Panic = Box<dyn std::any::Any + Send + 'static>;

/// Errors and output of a call.
#[derive(Default)]
pub(super) struct Trouble {
    /// Why the call must end, regardless of how the script handles it.
    end: Option<ScriptError>,
    /// The host must fetch something: nothing else counts.
    wait: bool,
    /// The host panicked in one of its functions: the panic is resumed outside Luau.
    panic: Option<Panic>,
    /// The uncaught error.
    failed: Option<ScriptError>,
    /// Kind of the last message raised by our own functions.
    hint: Option<(Kind, String)>,
    log: Vec<(Severity, String)>,
    log_bytes: usize,
    output_max: usize,
    random: SplitMix64,
}

/// One sandboxed Luau state.
#[derive(Debug)]
struct Engine {
    lua: Lua,
    meter: Arc<Meter>,
    /// Functions returned by the prelude, by name.
    prelude: BTreeMap<String, Function>,
    /// Every call runs in this thread; it is reset in between.
    thread: Thread,
    /// Bytes held after the last collection.
    resting: usize,
}

impl Engine {
    /// `objects` adds the natives of an object interface before the environment is sealed.
    fn new(
        cache: usize,
        objects: impl FnOnce(&Lua, &Arc<Meter>, &Table) -> mlua::Result<()>,
    ) -> Self {
        Self::build(cache, objects).expect("an empty Luau state takes our prelude")
    }

    fn build(
        cache: usize,
        objects: impl FnOnce(&Lua, &Arc<Meter>, &Table) -> mlua::Result<()>,
    ) -> mlua::Result<Self> {
        let libraries = StdLib::COROUTINE
            | StdLib::TABLE
            | StdLib::STRING
            | StdLib::MATH
            | StdLib::UTF8
            | StdLib::BIT
            | StdLib::BUFFER;
        // Luau's own pcall: it allows yielding through it, which the wrapped one of mlua does not.
        // The script still cannot catch a panic of the host: see `unless_panicked`.
        let lua = Lua::new_with(libraries, LuaOptions::new().catch_rust_panics(true))?;
        let meter = Arc::new(Meter::default());
        meter.end(&lua);
        lua.set_app_data(meter.clone());
        lua.set_app_data(Trouble::default());
        lua.set_app_data(Cache::new(cache));
        let table = natives::table(&lua, &meter)?;
        objects(&lua, &meter, &table)?;
        let prelude: Table = lua
            .load(include_str!("vm/prelude.luau"))
            .set_name(format!("={}", place::PRELUDE))
            .call(table)?;
        // The libraries and the metatable of strings become read-only; the prelude's base is only
        // copied, never handed out.
        lua.sandbox(true)?;
        meter::install(&lua, &meter);
        let prelude = prelude
            .pairs()
            .collect::<mlua::Result<BTreeMap<String, Function>>>()?;
        let thread = lua.create_thread(prelude["clear"].clone())?;
        lua.gc_collect()?;
        lua.gc_stop();
        let resting = lua.used_memory();
        Ok(Self {
            lua,
            meter,
            prelude,
            thread,
            resting,
        })
    }

    /// The compiled form of a chunk, ready for one call.
    fn load(&mut self, chunk: &Chunk) -> Result<Function, ScriptError> {
        let before = self.lua.used_memory();
        let function = Cache::load(&self.lua, chunk);
        // A compiled chunk stays in the cache and does not count for the call. If it evicted
        // another one, only a collection can tell what is held.
        self.resting += self.lua.used_memory().saturating_sub(before);
        let mut cache = self
            .lua
            .app_data_mut::<Cache>()
            .expect("every VM has a cache");
        if std::mem::take(&mut cache.evicted) {
            drop(cache);
            self.collect();
        }
        function
    }

    /// Runs a function of the prelude as one call: the values it returned after its `true`, or the
    /// error.
    fn call(
        &mut self,
        chunk: &Chunk,
        function: &str,
        seed: u64,
        budget: &Budget,
        arguments: impl FnOnce(&Lua) -> mlua::Result<MultiValue>,
    ) -> Result<MultiValue, ScriptError> {
        // The thread's stack is released while no limit is set: releasing it allocates memory
        // first, and nothing would catch the exception thrown when none is available.
        self.meter.end(&self.lua);
        let memory = budget.memory_for(chunk.counts());
        let budget = &Budget {
            memory: *memory.as_ref().unwrap_or(&budget.memory),
            ..*budget
        };
        let ready = self.thread.reset(self.prelude[function].clone());
        self.meter
            .begin(&self.lua, budget, chunk.counts(), self.resting);
        self.with_trouble(|trouble| {
            *trouble = Trouble {
                output_max: budget.output,
                random: SplitMix64(seed),
                ..Trouble::default()
            }
        });
        memory.map_err(|why| ScriptError::plain(Kind::Instructions, chunk.name(), why))?;
        // In a thread: a call that must wait for its object yields, which costs nothing, whereas
        // unwinding costs more than the call.
        let result = ready.and_then(|()| self.thread.resume::<MultiValue>(arguments(&self.lua)?));
        let (end, failed) =
            self.with_trouble(|trouble| (trouble.end.take(), trouble.failed.take()));
        if let Some(panic) = self.with_trouble(|trouble| trouble.panic.take()) {
            std::panic::resume_unwind(panic);
        }
        let full = self.meter.is_full(&self.lua);
        // The error handler could not run: it had no memory or no stack.
        let unknown = || match full {
            true => ScriptError::plain(Kind::Memory, "", "not enough memory".into()),
            false => ScriptError::plain(
                Kind::Runtime,
                "",
                "failed, and then its error handling did".into(),
            ),
        };
        let ended = match (end, result) {
            // Regardless of how the script handled it.
            (Some(error), _) => Err(error),
            (None, Ok(mut values)) => match values.pop_front() {
                Some(mlua::Value::Boolean(true)) => Ok(values),
                _ => Err(failed.unwrap_or_else(unknown)),
            },
            (None, Err(error)) => Err(failed.unwrap_or_else(|| {
                let message = place::shorten(&place::root(&error));
                let kind = if full || message.contains("not enough memory") {
                    Kind::Memory
                } else {
                    place::kind_of(&message)
                };
                ScriptError::plain(kind, "", message)
            })),
        };
        ended.map_err(|mut error| {
            if error.message == "not enough memory" {
                error.kind = Kind::Memory;
                error.message = format!(
                    "out of memory: the call may hold {} bytes; work in smaller pieces",
                    budget.memory
                );
            }
            if error.script.is_empty() {
                error.script = chunk.name().to_owned();
            }
            error
        })
    }

    /// Must run before anything of a call that may fail before the call begins: otherwise its
    /// counters would be those of the last call.
    fn reset(&self) {
        self.meter.begin(
            &self.lua,
            &Budget {
                memory: usize::MAX / 4,
                churn: usize::MAX,
                ..Budget::POLICY
            },
            Text::default(),
            self.resting,
        );
        self.with_trouble(|trouble| *trouble = Trouble::default());
    }

    fn with_trouble<T>(&self, f: impl FnOnce(&mut Trouble) -> T) -> T {
        f(&mut self
            .lua
            .app_data_mut::<Trouble>()
            .expect("set at the start of every call"))
    }

    /// Runs after a call and after its results were taken: releases everything that it created.
    /// Returns the global function named in `entry`, if there was one.
    fn finish(
        &mut self,
        entry: Option<&str>,
    ) -> (Vec<(Severity, String)>, u64, usize, Option<Function>) {
        let (used, peak) = (self.meter.used(), self.meter.peak(&self.lua));
        self.meter.end(&self.lua);
        // If it is requested, it is looked up and the rest released at once; otherwise the next
        // call releases what this one created.
        let entry = entry.and_then(|name| {
            self.prelude["clear"]
                .call::<Option<Function>>(name)
                .expect("it reads one variable and sets three")
        });
        let log = self.with_trouble(|trouble| std::mem::take(&mut trouble.log));
        if self.lua.used_memory() > self.resting + GARBAGE_MAX {
            self.collect();
        }
        (log, used, peak, entry)
    }

    /// Collects garbage between calls.
    fn collect(&mut self) {
        self.prelude["clear"]
            .call::<()>(())
            .expect("it sets three variables");
        self.thread
            .reset(self.prelude["clear"].clone())
            .expect("it does not run");
        self.lua
            .gc_collect()
            .expect("collecting runs no code of scripts");
        self.lua.gc_stop();
        self.resting = self.lua.used_memory();
    }

    fn stats(&self) -> VmStats {
        let cache = self
            .lua
            .app_data_ref::<Cache>()
            .expect("every VM has a cache");
        VmStats {
            cache_hits: cache.hits,
            cache_misses: cache.misses,
            memory: self.lua.used_memory(),
        }
    }
}

/// The result of the host's code. If it panicked, the call ends, and the panic is resumed where the
/// call was made.
fn unless_panicked<T>(lua: &Lua, meter: &Meter, result: Result<T, Panic>) -> mlua::Result<T> {
    result.or_else(|panic| {
        lua.app_data_mut::<Trouble>()
            .expect("set at the start of every call")
            .panic = Some(panic);
        meter.kill(lua, Kind::Runtime, "the host failed".to_owned())
    })
}

impl ScriptError {
    /// An error in a chunk, without a line.
    fn plain(kind: Kind, script: &str, message: String) -> Self {
        Self {
            kind,
            script: script.to_owned(),
            line: None,
            message,
            raised: false,
            stack: Vec::new(),
        }
    }
}

/// The message for an errno.
fn errno_message(number: i32) -> String {
    match errno::name(number) {
        Some(name) => format!("failed with {name}"),
        None => format!("failed with errno {number}"),
    }
}
