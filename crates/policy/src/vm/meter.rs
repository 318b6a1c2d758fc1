//! The resources that a call has used, and whether it must end. Shared by the interrupt, the
//! natives and the bufferlists.
//!
//! ```text
//!                  start                       floor: after the last collection        now
//!  Luau's heap ──────┼───────────── live ────────────┼────────── garbage and live ───────┤
//!                    └── held: bounded by memory ────────────────────────────────────────┘
//!                                                    └ at memory/4: collect; the sum of these is the churn, bounded
//! ```
//! Luau's own collector is stopped during a call: it would fall behind on large strings, and the
//! memory limit would depend on its state when the call began. Instructions never depend on memory.

use super::Trouble;
use crate::budget::Budget;
use crate::text::Text;
use crate::{Kind, ScriptError};
use mlua::Lua;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// Counters of the running call. Atomic only because Luau requires `Send`; one thread uses them at
/// a time.
#[derive(Debug, Default)]
pub(super) struct Meter {
    used: AtomicU64,
    limit: AtomicU64,
    /// Additional instructions per safepoint, while a long string is searched.
    weight: AtomicU64,
    /// The call must end: every further safepoint raises.
    ending: AtomicU64,
    memory: AtomicUsize,
    start: AtomicUsize,
    floor: AtomicUsize,
    churn: AtomicUsize,
    churn_max: AtomicUsize,
    operator_bytes: AtomicUsize,
    text_max: AtomicUsize,
    /// The maximum number of operators and the longest constant of the texts that take part.
    operators: AtomicUsize,
    stretch: AtomicUsize,
    peak: AtomicUsize,
    /// Bytes of bufferlists, which Luau does not see.
    external: AtomicUsize,
    /// Set by the host, on any thread, when its time limit is reached.
    stop: Arc<AtomicBool>,
    /// A call is running. Outside a call nothing is charged and the switch is ignored: the cleanup
    /// after a call must not fail.
    running: AtomicBool,
    /// The host's clock, and the number of charges until it is read again.
    patience: OnceLock<Arc<dyn Patience>>,
    asks_in: AtomicU64,
}

/// The time limit of a host for a call, by a clock that this crate does not have. A call stopped by
/// it has no effects, and is restarted elsewhere or refused.
pub trait Patience: Send + Sync {
    /// A unit of work begins, of one or several calls. The caller that has the work reports it: a
    /// VM cannot know.
    fn begin(&self);
    /// Whether the current work has exceeded the host's limit. Asked every few steps.
    fn is_over(&self) -> bool;
    /// The same, for work whose limit is `times` times as long.
    fn is_over_by(&self, times: u32) -> bool {
        let _ = times;
        self.is_over()
    }
}
impl std::fmt::Debug for dyn Patience {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Patience")
    }
}

/// Number of charges between two reads of the host's clock: a read takes as long as a few steps. A
/// step counts once more for each [`PACE_BYTES`] that its operators could read, so that the limit
/// is exceeded by about fifty milliseconds, at worst two hundred, plus at most one step.
const ASK_EVERY: u64 = 32;
/// Two to seven milliseconds of parsing strings as numbers.
const PACE_BYTES: usize = 4 << 20;

/// Raised to unwind Lua; the reason is in [`Trouble`].
#[derive(Debug)]
pub(super) struct Ending;
impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the call is over its budget")
    }
}
impl std::error::Error for Ending {}

impl Ending {
    pub(super) fn raise<T>() -> mlua::Result<T> {
        Err(mlua::Error::external(Self))
    }
}

/// Counters change only within one thread: a plain read and write, without a locked instruction.
fn add(counter: &AtomicU64, by: u64) -> u64 {
    let sum = counter.load(Relaxed).saturating_add(by);
    counter.store(sum, Relaxed);
    sum
}

impl Meter {
    /// Before a call. `start` is what the VM holds without garbage: the leftovers of earlier calls
    /// do not count for this call.
    pub(super) fn begin(&self, lua: &Lua, budget: &Budget, text: Text, start: usize) {
        self.stop.store(false, Relaxed);
        self.running.store(true, Relaxed);
        self.asks_in.store(ASK_EVERY, Relaxed);
        self.used.store(0, Relaxed);
        self.limit.store(budget.instructions, Relaxed);
        self.weight.store(0, Relaxed);
        self.ending.store(0, Relaxed);
        self.memory.store(budget.memory, Relaxed);
        self.start.store(start, Relaxed);
        self.floor.store(start, Relaxed);
        self.churn.store(0, Relaxed);
        self.churn_max.store(budget.churn, Relaxed);
        self.operator_bytes.store(budget.operator_bytes, Relaxed);
        self.text_max.store(budget.text, Relaxed);
        self.operators.store(text.operators, Relaxed);
        self.stretch.store(text.stretch, Relaxed);
        self.peak.store(start, Relaxed);
        lua.gc_stop();
        self.limit_memory(lua);
    }

    /// After a call: counts nothing, limits nothing.
    pub(super) fn end(&self, lua: &Lua) {
        self.running.store(false, Relaxed);
        self.limit.store(u64::MAX, Relaxed);
        self.ending.store(0, Relaxed);
        self.weight.store(0, Relaxed);
        self.memory.store(usize::MAX, Relaxed);
        lua.set_memory_limit(0).expect("Luau has our allocator");
    }

    /// Excludes bytes that the VM keeps from the call's memory.
    pub(super) fn forgive(&self, lua: &Lua, bytes: usize) {
        self.start.store(self.start.load(Relaxed) + bytes, Relaxed);
        self.floor.store(self.floor.load(Relaxed) + bytes, Relaxed);
        self.limit_memory(lua);
    }

    /// A further text takes part in the call: the memory limit becomes the one that applies with
    /// this text, until [`Self::widen`].
    pub(super) fn fit(&self, lua: &Lua, text: Text) -> mlua::Result<()> {
        let (operators, stretch) = (self.operators.load(Relaxed), self.stretch.load(Relaxed));
        // A constant may be passed on.
        let text = text.max(Text {
            operators,
            stretch,
            length: 0,
        });
        self.operators.store(text.operators, Relaxed);
        self.stretch.store(text.stretch, Relaxed);
        let (memory, operator_bytes) = (self.memory(), self.operator_bytes.load(Relaxed));
        let budget = Budget {
            memory,
            operator_bytes,
            text: self.text_max.load(Relaxed),
            ..Budget::CLASS
        };
        let memory = match budget.memory_for(text) {
            Ok(memory) => memory,
            Err(why) => return self.kill(lua, Kind::Instructions, why),
        };
        if memory < self.memory() {
            self.memory.store(memory, Relaxed);
            if self.heap(lua).saturating_sub(self.start.load(Relaxed)) > memory / 2 {
                self.collect(lua)?;
            }
            self.limit_memory(lua);
        }
        Ok(())
    }

    /// The argument of [`Self::widen`].
    pub(super) fn bounds(&self) -> (usize, usize) {
        (self.memory(), self.operators.load(Relaxed))
    }

    /// A callee has ended: its caller has its former limits again.
    pub(super) fn widen(&self, lua: &Lua, (memory, operators): (usize, usize)) {
        self.memory.store(memory, Relaxed);
        self.operators.store(operators, Relaxed);
        self.limit_memory(lua);
    }

    fn limit_memory(&self, lua: &Lua) {
        let limit = self.start.load(Relaxed).saturating_add(self.memory());
        lua.set_memory_limit(limit).expect("Luau has our allocator");
    }

    fn heap(&self, lua: &Lua) -> usize {
        lua.used_memory() + self.external.load(Relaxed)
    }

    pub(super) const fn stop(&self) -> &Arc<AtomicBool> {
        &self.stop
    }

    /// Memory limit of the call, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.memory.load(Relaxed)
    }

    /// Resets the counters for a call that runs nothing here, so that they are not those of the
    /// last call.
    pub(super) fn forget_used(&self) {
        self.used.store(0, Relaxed);
    }

    pub(super) fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// Peak of bytes held above the start.
    pub(super) fn peak(&self, lua: &Lua) -> usize {
        self.peak
            .load(Relaxed)
            .max(self.heap(lua))
            .saturating_sub(self.start.load(Relaxed))
    }

    /// Whether so little of the memory budget is left that even an error could not be handled.
    pub(super) fn is_full(&self, lua: &Lua) -> bool {
        self.heap(lua).saturating_sub(self.start.load(Relaxed)) + (64 << 10)
            > self.memory.load(Relaxed)
    }

    pub(super) fn is_ending(&self) -> bool {
        self.ending.load(Relaxed) != 0
    }

    pub(super) fn set_weight(&self, weight: u64) {
        self.weight.store(weight, Relaxed);
    }

    /// One safepoint.
    pub(super) fn safepoint(&self, lua: &Lua) -> mlua::Result<()> {
        let heap = self.heap(lua);
        let held = heap.saturating_sub(self.start.load(Relaxed)) + self.stretch.load(Relaxed);
        let pace = (self.operators.load(Relaxed) + 1).saturating_mul(held) / PACE_BYTES;
        self.charge_at(
            lua,
            self.weight.load(Relaxed).saturating_add(1),
            pace as u64 + 1,
        )?;
        self.watch(lua, heap)
    }

    /// Charges instructions.
    pub(super) fn charge(&self, lua: &Lua, units: u64) -> mlua::Result<()> {
        self.charge_at(lua, units, 1)
    }

    fn charge_at(&self, lua: &Lua, units: u64, pace: u64) -> mlua::Result<()> {
        if self.is_ending() {
            return Ending::raise();
        }
        if !self.running.load(Relaxed) {
            return Ok(());
        }
        if self.stop.load(Relaxed) || self.is_impatient(pace) {
            return self.kill(
                lua,
                Kind::Clock,
                "it took longer than the daemon has; nothing happened, it may be tried again"
                    .to_owned(),
            );
        }
        if add(&self.used, units) > self.limit.load(Relaxed) {
            let limit = self.limit.load(Relaxed);
            return self.kill(
                lua,
                Kind::Instructions,
                format!("out of instructions: {limit} used; do less in one call, or in several"),
            );
        }
        Ok(())
    }

    fn is_impatient(&self, pace: u64) -> bool {
        let Some(patience) = self.patience.get() else {
            return false;
        };
        let left = self.asks_in.load(Relaxed).saturating_sub(pace);
        self.asks_in
            .store(if left == 0 { ASK_EVERY } else { left }, Relaxed);
        left == 0 && patience.is_over()
    }

    /// Sets the clock for all calls, permanently.
    pub(super) fn set_patience(&self, patience: Arc<dyn Patience>) {
        assert!(self.patience.set(patience).is_ok(), "a VM has one clock");
    }

    /// Whether this many further units end the call: a native that would do the work in one step
    /// need not begin.
    pub(super) fn is_beyond(&self, units: u64) -> bool {
        self.running.load(Relaxed)
            && self.used.load(Relaxed).saturating_add(units) > self.limit.load(Relaxed)
    }

    /// Collects garbage when a quarter of the budget has been allocated since the last collection,
    /// and ends the call if that does not free enough.
    pub(super) fn watch_memory(&self, lua: &Lua) -> mlua::Result<()> {
        self.watch(lua, self.heap(lua))
    }

    fn watch(&self, lua: &Lua, heap: usize) -> mlua::Result<()> {
        let grown = heap.saturating_sub(self.floor.load(Relaxed));
        if grown <= self.memory() / 4 {
            Ok(())
        } else {
            self.collect(lua)
        }
    }

    fn collect(&self, lua: &Lua) -> mlua::Result<()> {
        let (heap, memory) = (self.heap(lua), self.memory());
        let grown = heap.saturating_sub(self.floor.load(Relaxed));
        self.peak.store(self.peak.load(Relaxed).max(heap), Relaxed);
        let churn = self.churn.load(Relaxed).saturating_add(grown);
        self.churn.store(churn, Relaxed);
        let collected = lua.gc_collect();
        lua.gc_stop();
        // A collection takes time proportional to the live memory: the next step reads the clock.
        self.asks_in.store(1, Relaxed);
        collected?;
        let live = self.heap(lua);
        self.floor.store(live, Relaxed);
        if live.saturating_sub(self.start.load(Relaxed)) > memory {
            return self.out_of_memory(lua);
        }
        let churn_max = self.churn_max.load(Relaxed);
        if churn > churn_max {
            let message = format!(
                "out of memory: the call may allocate {churn_max} bytes in total; make fewer long strings and tables"
            );
            return self.kill(lua, Kind::Memory, message);
        }
        Ok(())
    }

    /// A bufferlist grew.
    pub(super) fn external_grew(&self, by: usize) {
        self.external
            .store(self.external.load(Relaxed).saturating_add(by), Relaxed);
    }

    /// A bufferlist was dropped.
    pub(super) fn external_went(&self, by: usize) {
        self.external
            .store(self.external.load(Relaxed).saturating_sub(by), Relaxed);
    }

    pub(super) fn out_of_memory<T>(&self, lua: &Lua) -> mlua::Result<T> {
        let memory = self.memory.load(Relaxed);
        self.kill(
            lua,
            Kind::Memory,
            format!("out of memory: the call may hold {memory} bytes; work in smaller pieces"),
        )
    }

    /// The call is over, whatever it held: unwinding, and reporting where it was, need a little
    /// memory themselves.
    pub(super) fn make_room(&self, lua: &Lua) {
        lua.set_memory_limit(lua.used_memory() + (256 << 10))
            .expect("Luau has our allocator");
    }

    /// Ends the call: the first reason is kept.
    pub(super) fn kill<T>(&self, lua: &Lua, kind: Kind, message: String) -> mlua::Result<T> {
        if self.ending.swap(1, Relaxed) == 0 {
            self.make_room(lua);
            let (script, line, stack) = super::place::here(lua);
            if let Some(mut trouble) = lua.app_data_mut::<Trouble>() {
                trouble.end = Some(ScriptError {
                    kind,
                    script,
                    line,
                    message,
                    raised: false,
                    stack,
                });
            }
        }
        Ending::raise()
    }
}

/// The interrupt of a VM.
pub(super) fn install(lua: &Lua, meter: &Arc<Meter>) {
    let meter = meter.clone();
    lua.set_interrupt(move |lua| meter.safepoint(lua).map(|()| mlua::VmState::Continue));
}
