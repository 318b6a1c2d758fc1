//! The Mantle instance of one balancing daemon (Malacology §5.1 "Mantle: Programmable Load
//! Balancer"; MAL-50 to MAL-58).
//!
//! ```text
//!   map says: version v of P ─▶ ReadPolicy(v, until) ─▶ Source ─▶ compiled ─▶ every tick: ask ─▶ judge, plan ─▶ Decided
//!                                   │ half a tick, nothing came                   │ fails
//!                                   ▼                                             ▼
//!                        log "Connection Timeout", hold,               log once, hold; the last good source is
//!                        read again at the next tick                   kept for a rollback, never run in its place
//! ```
//! Invariants:
//! 1. A tick runs the version that the newest map names, or none. Within one epoch a daemon never
//!    runs two versions, and since all daemons follow the map, neither do two daemons (MAL-53). An
//!    older version never replaces a failing one (MAL-57).
//! 2. A tick that fails moves nothing and leaves the saved state unchanged.
//! 3. One cause gives one line in the cluster's log (§5.1.3: "messages are logged sparingly").
//! 4. Memory is bounded: two sources, a bounded series, one state of at most [`STATE_BYTES_MAX`], a
//!    bounded list of reported causes.

use crate::decision::{Decision, Held};
use crate::metrics::{Facts, Rank, Series};
use crate::options::Options;
use crate::plan::{Circumstances, plan};
use crate::script::{Question, Runner, Said, target_lines};
use crate::state::{self, STATE_BYTES_MAX};
use bytes::Bytes;
use nacre_policy::{Chunk, Severity, Value};
use nacre_types::{Epoch, Time};
use std::collections::BTreeSet;

/// A version of a policy, as the map names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramRef {
    /// The policy's name.
    pub name: String,
    /// Version of its source.
    pub version: u32,
    /// Number of the activation: it only grows.
    pub activation: u64,
    /// Digest of the source. The host verifies what it reads against it; the engine only uses it to
    /// distinguish sources.
    pub digest: [u8; 32],
}

/// Input from the host.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A map. None: no policy is active.
    Map {
        /// Its epoch; maps older than the last one are ignored.
        epoch: Epoch,
        /// The active version.
        program: Option<ProgramRef>,
    },
    /// The answer to [`Output::ReadPolicy`]: the verified source, or why there is none.
    Source {
        /// Digest of the source that was read.
        digest: [u8; 32],
        /// The source, or the error.
        text: Result<Bytes, String>,
    },
    /// Time has passed: [`Engine::next_deadline`] has been reached.
    Timer,
    /// Time to balance.
    Tick {
        /// Tick counter of the service; moves are dated with it.
        number: u64,
        /// Measurements.
        facts: Facts,
    },
    /// The bytes of the last [`Output::Save`], given after a restart, before the first tick.
    Restore(Bytes),
}

/// What the host must do, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Read the policy's source from its object, and answer with [`Input::Source`]. An answer later
    /// than `until` is ignored.
    ReadPolicy {
        /// The version to read.
        program: ProgramRef,
        /// Half a tick from now.
        until: Time,
    },
    /// A line for the cluster's log.
    Log(Severity, String),
    /// The tick's outcome.
    Decided(Box<Decision>),
    /// The saved state changed: keep these bytes across restarts.
    Save(Bytes),
}

/// Maximum number of causes reported per activation.
const CAUSES_MAX: usize = 16;

#[derive(Clone, Debug)]
struct Source {
    program: ProgramRef,
    chunk: Chunk,
}

/// The state machine.
#[derive(Debug)]
pub struct Engine {
    whoami: Rank,
    options: Options,
    runner: Runner,
    patience: Option<std::sync::Arc<dyn nacre_policy::Patience>>,
    epoch: Epoch,
    wanted: Option<ProgramRef>,
    source: Option<Source>,
    /// The version that last made a decision: kept so that a rollback needs no read.
    good: Option<Source>,
    /// A read is in flight until this time.
    reading: Option<Time>,
    unread: Option<String>,
    series: Series,
    state: Option<(String, Value)>,
    /// Fraction of the load that may move now.
    allowance: f64,
    reported: BTreeSet<String>,
}

impl Engine {
    /// The balancer of rank `whoami`.
    #[must_use]
    pub fn new(whoami: Rank, options: Options) -> Self {
        let options = options.clamped();
        Self {
            whoami,
            runner: Runner::default(),
            patience: None,
            epoch: Epoch::default(),
            wanted: None,
            source: None,
            good: None,
            reading: None,
            unread: None,
            series: Series::new(options.series),
            state: None,
            allowance: 0.0,
            reported: BTreeSet::new(),
            options,
        }
    }

    /// Sets a time limit for a tick, by the host's clock: a policy that takes longer fails that
    /// tick and moves nothing. Budgets are counted, and the time per counted unit varies. Call it
    /// once, before the first tick.
    pub fn set_patience(&mut self, patience: std::sync::Arc<dyn nacre_policy::Patience>) {
        self.runner.set_patience(patience.clone());
        self.patience = Some(patience);
    }

    /// When [`Input::Timer`] is due.
    #[must_use]
    pub const fn next_deadline(&self) -> Option<Time> {
        self.reading
    }

    /// The version that last made a decision, for status displays.
    #[must_use]
    pub fn last_good(&self) -> Option<&ProgramRef> {
        self.good.as_ref().map(|source| &source.program)
    }

    /// Executes one step.
    pub fn handle(&mut self, now: Time, input: Input, out: &mut Vec<Output>) {
        self.expire(now, out);
        match input {
            Input::Map { epoch, program } if epoch >= self.epoch => {
                self.epoch = epoch;
                self.follow(now, program, out);
            }
            Input::Map { .. } | Input::Timer => {}
            Input::Source { digest, text } => self.take_source(digest, text, out),
            Input::Restore(bytes) => match state::decode(&bytes) {
                Some(state) => self.state = Some(state),
                None => self.report(
                    "restore",
                    Severity::Warn,
                    "the saved state of the policy is unreadable; it starts without".into(),
                    out,
                ),
            },
            Input::Tick { number, facts } => self.tick(now, number, &facts, out),
        }
    }

    /// Changes to another version, or to none, as the map says.
    fn follow(&mut self, now: Time, program: Option<ProgramRef>, out: &mut Vec<Output>) {
        if self.wanted == program {
            return;
        }
        self.reported.clear();
        (self.reading, self.unread) = (None, None);
        let Some(program) = program else {
            let name = self
                .wanted
                .take()
                .map(|program| program.name)
                .unwrap_or_default();
            self.source = None;
            self.log(
                Severity::Info,
                format!("policy {name} is cleared: nothing is balanced"),
                out,
            );
            return;
        };
        // A different policy does not see this policy's saved state.
        if self
            .state
            .as_ref()
            .is_some_and(|(name, _)| *name != program.name)
        {
            self.state = None;
        }
        self.wanted = Some(program.clone());
        let known = [self.source.take(), self.good.clone()]
            .into_iter()
            .flatten();
        let known = known.into_iter().find(|source| {
            source.program.digest == program.digest && source.program.name == program.name
        });
        match known {
            Some(source) => {
                self.announce(&program, out);
                self.source = Some(Source { program, ..source });
            }
            None => self.read(now, out),
        }
    }

    fn announce(&self, program: &ProgramRef, out: &mut Vec<Output>) {
        let text = format!(
            "policy {} version {} is in force (activation {})",
            program.name, program.version, program.activation
        );
        self.log(Severity::Info, text, out);
    }

    fn read(&mut self, now: Time, out: &mut Vec<Output>) {
        if let Some(program) = self.wanted.clone() {
            let until = now + self.options.tick / 2;
            self.reading = Some(until);
            out.push(Output::ReadPolicy { program, until });
        }
    }

    /// A read that takes longer than half a tick has failed (MAL-55): balancing never waits.
    fn expire(&mut self, now: Time, out: &mut Vec<Output>) {
        if self.reading.is_some_and(|until| now >= until) {
            self.reading = None;
            self.unreadable(
                "Connection Timeout: it did not come within half a tick".into(),
                out,
            );
        }
    }

    fn unreadable(&mut self, why: String, out: &mut Vec<Output>) {
        let Some(program) = &self.wanted else { return };
        let text = format!(
            "policy {} version {} cannot be read: {why}; position held{}",
            program.name,
            program.version,
            self.advice()
        );
        self.report("read", Severity::Error, text.clone(), out);
        self.unread = Some(text);
    }

    fn take_source(
        &mut self,
        digest: [u8; 32],
        text: Result<Bytes, String>,
        out: &mut Vec<Output>,
    ) {
        // A late answer to a request that is no longer open.
        let Some(program) = self
            .wanted
            .clone()
            .filter(|program| program.digest == digest && self.reading.is_some())
        else {
            return;
        };
        self.reading = None;
        match text {
            Err(why) => self.unreadable(why, out),
            Ok(text) => {
                self.unread = None;
                let chunk = Chunk::new(&program.name, text);
                self.announce(&program, out);
                self.source = Some(Source { program, chunk });
            }
        }
    }

    /// What an operator can do about a failing version.
    fn advice(&self) -> String {
        match (&self.good, &self.wanted) {
            (Some(good), Some(wanted))
                if good.program.name == wanted.name && good.program.digest != wanted.digest =>
            {
                format!(
                    "; version {1} is the last good one: nacre policy rollback {0} --to {1}",
                    wanted.name, good.program.version
                )
            }
            _ => String::new(),
        }
    }

    fn log(&self, severity: Severity, text: String, out: &mut Vec<Output>) {
        out.push(Output::Log(
            severity,
            format!("balancer of rank {}: {text}", self.whoami),
        ));
    }

    /// Logs one line per cause.
    fn report(&mut self, cause: &str, severity: Severity, text: String, out: &mut Vec<Output>) {
        if self.reported.len() < CAUSES_MAX && self.reported.insert(cause.to_owned()) {
            self.log(severity, text, out);
        }
    }

    fn tick(&mut self, now: Time, number: u64, facts: &Facts, out: &mut Vec<Output>) {
        let mut decision = Decision {
            epoch: self.epoch,
            tick: number,
            ..Decision::default()
        };
        self.allowance = (self.allowance + self.options.load_fraction).min(1.0);
        let held = match check(facts, self.whoami) {
            Err(why) => Err(Held::Metrics(why)),
            Ok(()) => {
                self.series.push(facts);
                self.decide(now, facts, &mut decision, out)
            }
        };
        match held {
            Ok(()) => {
                self.good.clone_from(&self.source);
                // It works again: the next failure is logged.
                if self.reported.iter().any(|cause| cause != "restore") {
                    self.reported.clear();
                    self.log(Severity::Info, "the policy works again".into(), out);
                }
            }
            Err(held) => {
                self.complain(&held, out);
                decision.held = Some(held);
            }
        }
        out.push(Output::Decided(Box::new(decision)));
    }

    fn complain(&mut self, held: &Held, out: &mut Vec<Output>) {
        // A script's message may change at every tick; its line distinguishes causes.
        let (cause, text) = match held {
            Held::NoPolicy | Held::Reading | Held::Unread(_) => return,
            Held::Metrics(why) => (
                "metrics".to_owned(),
                format!("measurements make no sense, position held: {why}"),
            ),
            Held::Script(error) => (
                format!("script {:?} {:?}", error.kind, error.line),
                format!("policy failed, position held: {error}"),
            ),
            Held::Refused(why) => (
                "refused".to_owned(),
                format!("policy refused, position held: {why}"),
            ),
        };
        let advice = if matches!(held, Held::Metrics(_)) {
            String::new()
        } else {
            self.advice()
        };
        self.report(&cause, Severity::Error, format!("{text}{advice}"), out);
    }

    fn decide(
        &mut self,
        now: Time,
        facts: &Facts,
        decision: &mut Decision,
        out: &mut Vec<Output>,
    ) -> Result<(), Held> {
        let Some(program) = &self.wanted else {
            return Err(Held::NoPolicy);
        };
        (decision.activation, decision.version) = (program.activation, program.version);
        let Some(source) = self.source.clone() else {
            if self.reading.is_none() {
                self.read(now, out);
            }
            return Err(self.unread.clone().map_or(Held::Reading, Held::Unread));
        };
        self.runner.check(&source.chunk).map_err(Held::Script)?;
        let question = Question {
            whoami: self.whoami,
            tick: decision.tick,
            seconds: now.0 as f64 / 1e9,
            facts,
            series: &self.series,
            state: self.state.as_ref().map(|(_, state)| state),
            budget: &self.options.budget,
        };
        if let Some(patience) = &self.patience {
            patience.begin();
        }
        let answer = self.runner.ask(&source.chunk, &question);
        (decision.log, decision.instructions) = (answer.log, answer.instructions);
        let said = answer.said.map_err(Held::Script)?;
        let save = self.judge_state(&said, &source)?;
        match facts {
            Facts::Cache(_) => decision.keep = judge_keep(&said)?,
            Facts::Cluster(metrics) => {
                decision.loads.clone_from(&said.loads);
                decision.meta_load = said.meta_load;
                let at = Circumstances {
                    whoami: self.whoami,
                    tick: decision.tick,
                    metrics,
                    options: &self.options,
                    allowance: self.allowance,
                };
                let plan = plan(&said, &at).map_err(|why| Held::Refused(located(&source, &why)))?;
                let whole: f64 = said.weights.as_ref().map_or_else(
                    || metrics.units.iter().map(|unit| unit.load).sum(),
                    |w| w.iter().sum(),
                );
                if whole > 0.0 {
                    self.allowance = (self.allowance - plan.load / whole).max(0.0);
                }
                (
                    decision.moves,
                    decision.targets,
                    decision.mode,
                    decision.notes,
                ) = (plan.moves, plan.targets, plan.mode, plan.notes);
            }
        }
        if let Some(bytes) = save {
            self.state = said.state.map(|state| (source.program.name.clone(), state));
            out.push(Output::Save(bytes));
        }
        Ok(())
    }

    /// The state's bytes, if it changed.
    fn judge_state(&self, said: &Said, source: &Source) -> Result<Option<Bytes>, Held> {
        if said.state.as_ref() == self.state.as_ref().map(|(_, state)| state) {
            return Ok(None);
        }
        let bytes = state::encode(
            &source.program.name,
            said.state.as_ref().unwrap_or(&Value::Nil),
        );
        if bytes.len() > STATE_BYTES_MAX {
            let why = format!(
                "the saved state has {} bytes; {STATE_BYTES_MAX} are allowed",
                bytes.len()
            );
            return Err(Held::Refused(format!("{}: {why}", source.program.name)));
        }
        Ok(Some(bytes.into()))
    }
}

fn check(facts: &Facts, whoami: Rank) -> Result<(), String> {
    match facts {
        Facts::Cluster(metrics) => metrics.check(whoami),
        Facts::Cache(metrics) => match metrics
            .fields()
            .iter()
            .find(|value| !value.is_finite() || **value < 0.0)
        {
            Some(value) => Err(format!("the cache measured {value}")),
            None => Ok(()),
        },
    }
}

fn judge_keep(said: &Said) -> Result<Option<u64>, Held> {
    match &said.keep {
        None => Ok(None),
        Some(Ok(keep)) if *keep >= 0.0 && *keep <= 9e15 => Ok(Some(*keep as u64)),
        Some(Ok(keep)) => Err(Held::Refused(format!("a cache cannot keep {keep} keys"))),
        Some(Err(what)) => Err(Held::Refused(format!("a cache cannot keep {what} of keys"))),
    }
}

/// A refusal with the script, the version and the lines that assign targets.
fn located(source: &Source, why: &str) -> String {
    let lines: Vec<String> = target_lines(source.chunk.text())
        .iter()
        .map(ToString::to_string)
        .collect();
    let place = match lines.len() {
        0 => String::new(),
        1 => format!(" (targets are set at line {})", lines[0]),
        _ => format!(" (targets are set at lines {})", lines.join(", ")),
    };
    format!(
        "{} version {}: {why}{place}",
        source.program.name, source.program.version
    )
}
