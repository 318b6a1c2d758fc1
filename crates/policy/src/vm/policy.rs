//! Scripts that are not classes: policies, validators, balancers (MAL-07, MAL-13, UNI-01).

use super::{Engine, VmStats, convert};
use crate::{Budget, Chunk, Kind, ScriptError, Severity, Value};
use mlua::{Function, IntoLuaMulti};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// One run of a script.
#[derive(Clone, Debug)]
pub struct Run<'a> {
    /// The script. It is run from top to bottom in a fresh environment.
    pub chunk: &'a Chunk,
    /// Global function to call afterwards. `None`: the chunk itself receives the arguments (`...`),
    /// and its results count.
    pub entry: Option<&'a str>,
    /// Set before it runs. Tables are copied for the script.
    pub globals: &'a [(&'a str, Value)],
    /// Arguments.
    pub args: &'a [Value],
    /// Seed of `math.random`.
    pub seed: u64,
    /// Limits.
    pub budget: &'a Budget,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Ran {
    /// Results, or why there are none.
    pub result: Result<Vec<Value>, ScriptError>,
    /// The line at which [`Run::entry`] begins, if the function existed when the run ended.
    pub entry_line: Option<u32>,
    /// Lines of `print`.
    pub log: Vec<(Severity, String)>,
    /// Instructions used.
    pub instructions: u64,
    /// Peak of bytes held: a measurement, not a result.
    pub memory_peak: usize,
}

/// A VM for policies. It runs one script at a time.
#[derive(Debug)]
pub struct Vm {
    engine: Engine,
}

impl Vm {
    /// A VM that keeps up to `cache` compiled chunks.
    #[must_use]
    pub fn new(cache: usize) -> Self {
        Self {
            engine: Engine::new(cache, |_, _, _| Ok(())),
        }
    }

    /// Runs a script.
    pub fn run(&mut self, run: &Run<'_>) -> Ran {
        self.run_with(None, run)
    }

    /// Runs a script under a driver: Luau code of ours that receives the script as a function, then
    /// [`Run::args`], and calls it as needed. Both see the same fresh environment; the driver's
    /// results count, [`Run::entry`] is ignored. A driver's chunk is called `[nacre.NAME]`: its
    /// frames are left out of positions, so that errors refer to the script's lines.
    pub fn drive(&mut self, driver: &Chunk, run: &Run<'_>) -> Ran {
        self.run_with(Some(driver), run)
    }

    fn run_with(&mut self, driver: Option<&Chunk>, run: &Run<'_>) -> Ran {
        let driver = driver.map(|driver| {
            self.engine
                .load(driver)
                .expect("drivers are ours, and compile")
        });
        let main = match self.engine.load(run.chunk) {
            Ok(main) => main,
            Err(error) => {
                return Ran {
                    result: Err(error),
                    entry_line: None,
                    log: Vec::new(),
                    instructions: 0,
                    memory_peak: 0,
                };
            }
        };
        let result = self.results(main, driver, run);
        let (log, instructions, memory_peak, entry) = self.engine.finish(run.entry);
        let entry_line = entry
            .and_then(|entry| entry.info().line_defined)
            .and_then(|line| u32::try_from(line).ok());
        Ran {
            result,
            entry_line,
            log,
            instructions,
            memory_peak,
        }
    }

    fn results(
        &mut self,
        main: Function,
        driver: Option<Function>,
        run: &Run<'_>,
    ) -> Result<Vec<Value>, ScriptError> {
        let refused = |(kind, message)| ScriptError::plain(kind, run.chunk.name(), message);
        self.engine.reset();
        let lua = self.engine.lua.clone();
        // They count against the call's memory, as does what the call derives from them.
        let globals = lua
            .create_table()
            .map_err(|error| refused((Kind::Memory, error.to_string())))?;
        for (name, value) in run.globals {
            let value = convert::to_lua(&lua, value, 0)
                .map_err(|(kind, why)| refused((kind, format!("global {name}: {why}"))))?;
            globals
                .raw_set(*name, value)
                .map_err(|error| refused((Kind::Memory, error.to_string())))?;
        }
        let mut args = Vec::with_capacity(run.args.len());
        for value in run.args {
            args.push(convert::to_lua(&lua, value, 0).map_err(refused)?);
        }
        let args = mlua::Variadic::from_iter(args);
        let values = match driver {
            Some(driver) => self
                .engine
                .call(run.chunk, "drive", run.seed, run.budget, |lua| {
                    (main, driver, globals, args).into_lua_multi(lua)
                })?,
            None => self
                .engine
                .call(run.chunk, "run", run.seed, run.budget, |lua| {
                    (main, run.entry, globals, args).into_lua_multi(lua)
                })?,
        };
        let mut room = convert::Room::new(run.budget.output);
        values
            .iter()
            .map(|value| convert::from_lua(value, 0, &mut room))
            .collect::<Result<_, _>>()
            .map_err(refused)
    }

    /// Checks whether a script compiles: the first check of an installation.
    ///
    /// # Errors
    /// The place of the error.
    pub fn check(&mut self, chunk: &Chunk) -> Result<(), ScriptError> {
        self.engine.load(chunk).map(drop)
    }

    /// A switch that another thread can set: the current run ends with [`Kind::Clock`]. A run
    /// begins with it cleared.
    #[must_use]
    pub fn stop_switch(&self) -> Arc<AtomicBool> {
        self.engine.meter.stop().clone()
    }

    /// Sets a clock for all further runs: one that takes longer ends with [`Kind::Clock`]. Once per
    /// VM.
    pub fn set_patience(&self, patience: Arc<dyn super::Patience>) {
        self.engine.meter.set_patience(patience);
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> VmStats {
        self.engine.stats()
    }
}
