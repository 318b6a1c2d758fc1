//! Validators and triggers in Lua (MAL-13; Malacology, Sevilla et al., EuroSys 2017, §4.1 "Service
//! Metadata": "service-specific logic").
//!
//! ```text
//!  validate(key, old, new, who, revision) ─▶ nothing, true: unchanged │ a string: written instead │ error(why), false, why: rejected
//!  trigger(name, revision, events)        ─▶ nothing │ { {put = {key, value}}, {delete = key}, "a line for the log", … }
//! ```
//! A script is run from top to bottom in a separate environment for each call: it keeps no state
//! between calls, and has no access to a clock, files or other keys. It runs in the leader's loop,
//! between two proposals: hence small budgets. A script that exceeds its budget is stopped, and its
//! change refused: a change that cannot be judged is not made. Budgets count instructions; a host
//! adds clocks, for instructions that take longer than expected ([`Clocks`]).

use super::lead::{LOG_LINE_BYTES_MAX, cut};
use super::programs::{
    Fault, Program, Programs, TriggerActions, TriggerOp, TriggerRequest, Uses, ValidateRequest,
    Verdict,
};
use super::settings::VALUE_BYTES_LIMIT;
use bytes::Bytes;
use nacre_policy::{Budget, Chunk, Kind, Patience, Ran, Run, ScriptError, Value, Vm};
use nacre_types::Name;
use nacre_wire::msg::meta::{
    META_OPS_MAX, META_TRANSACTION_BYTES_MAX, MetaEvent, MetaOp, MetaSpan,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Budget of one judgement.
pub const VALIDATOR: Budget = Budget {
    output: VALUE_BYTES_LIMIT as usize + (8 << 10),
    ..Budget::VALIDATOR
};
/// Budget of one trigger run.
pub const TRIGGER: Budget = Budget {
    output: META_TRANSACTION_BYTES_MAX,
    ..Budget::TRIGGER
};
/// Maximum number of lines of one trigger run for the cluster log.
pub const LINES_MAX: usize = 16;

/// Maximum number of compiled programs kept.
const CACHE: usize = 64;

/// Runs a script and returns its possible uses.
const CHECK: &str =
    "local main = ... main() return type(validate) == 'function', type(trigger) == 'function'";

/// A host's clocks: one for a request or trigger run with all its programs, and one for a turn of
/// the leader.
#[derive(Clone, Debug)]
pub struct Clocks {
    /// For one request: when it expires, the running program is stopped.
    pub request: Arc<dyn Patience>,
    /// For one turn: when it expires, no further request is taken.
    pub turn: Arc<dyn Patience>,
}

/// See the module head.
#[derive(Debug, Default)]
pub struct Scripts {
    clocks: Option<Clocks>,
    overruns: u64,
    /// Created on first use: most monitors never lead a cluster with programs.
    vm: Option<Vm>,
    /// By name: comparing a text costs less than hashing it.
    chunks: BTreeMap<String, Chunk>,
    steps: u64,
}

impl Scripts {
    /// With clocks.
    #[must_use]
    pub fn with_clocks(clocks: Clocks) -> Self {
        Self {
            clocks: Some(clocks),
            ..Self::default()
        }
    }

    fn machine(clocks: Option<&Clocks>, cache: usize) -> Vm {
        let vm = Vm::new(cache);
        if let Some(clocks) = clocks {
            vm.set_patience(clocks.request.clone());
        }
        vm
    }

    fn count<T>(&mut self, steps: u64, result: &Result<T, ScriptError>) {
        self.steps += steps;
        self.overruns += u64::from(
            result
                .as_ref()
                .is_err_and(|error| error.kind == Kind::Clock),
        );
    }

    fn chunk(&mut self, program: Program<'_>) -> Chunk {
        if let Some(chunk) = self.chunks.get(program.name)
            && chunk.text() == program.source.as_bytes()
        {
            return chunk.clone();
        }
        if self.chunks.len() >= CACHE {
            self.chunks.clear();
        }
        let chunk = Chunk::new(program.name, program.source);
        self.chunks.insert(program.name.to_owned(), chunk.clone());
        chunk
    }

    fn run(
        &mut self,
        program: Program<'_>,
        entry: &str,
        args: &[Value],
        seed: u64,
        budget: &Budget,
    ) -> Ran {
        let chunk = self.chunk(program);
        let vm = self
            .vm
            .get_or_insert_with(|| Self::machine(self.clocks.as_ref(), CACHE));
        let ran = vm.run(&Run {
            chunk: &chunk,
            entry: Some(entry),
            globals: &[],
            args,
            seed,
            budget,
        });
        self.count(ran.instructions, &ran.result);
        ran
    }
}

fn fault(error: ScriptError) -> Fault {
    Fault {
        line: error.line.unwrap_or(0),
        message: error.message,
    }
}
fn bytes(name: &Name) -> Value {
    Value::Bytes(Bytes::copy_from_slice(name.as_bytes()))
}
/// A number as a Lua value; beyond 2^53 its decimal text.
fn number(number: u64) -> Value {
    i64::try_from(number)
        .ok()
        .filter(|n| *n <= nacre_policy::INTEGER_MAX)
        .map_or_else(|| Value::from(number.to_string().as_str()), Value::Integer)
}
fn map<const N: usize>(fields: [(&'static str, Value); N]) -> Value {
    Value::Map(
        fields
            .into_iter()
            .map(|(name, value)| (Bytes::from_static(name.as_bytes()), value))
            .collect(),
    )
}
fn event(event: &MetaEvent) -> Value {
    match event {
        MetaEvent::Put { pair } => map([
            ("what", "put".into()),
            ("key", bytes(&pair.key)),
            ("value", Value::Bytes(pair.value.clone())),
            ("revision", number(pair.modified)),
            ("version", number(pair.version)),
        ]),
        MetaEvent::Delete { key, revision } => map([
            ("what", "delete".into()),
            ("key", bytes(key)),
            ("revision", number(*revision)),
        ]),
    }
}
/// A value in a message; a long one is truncated.
fn shown(value: &Value) -> String {
    match value {
        Value::Bytes(text) => cut(&String::from_utf8_lossy(text), LOG_LINE_BYTES_MAX).to_owned(),
        Value::Integer(number) => number.to_string(),
        Value::Number(number) => number.to_string(),
        Value::Bool(value) => value.to_string(),
        Value::Nil => "nil".to_owned(),
        Value::List(_) | Value::Map(_) => "a table".to_owned(),
    }
}

const RESULTS: &str =
    "validate returns nothing to accept, a string to be stored instead, or false and why";

impl Programs for Scripts {
    fn check(&mut self, program: Program<'_>) -> Result<Uses, Fault> {
        // A separate virtual machine: rejected texts must not evict programs in use.
        let mut vm = Self::machine(self.clocks.as_ref(), 2);
        let chunk = Chunk::new(program.name, program.source);
        let run = Run {
            chunk: &chunk,
            entry: None,
            globals: &[],
            args: &[],
            seed: 0,
            budget: &VALIDATOR,
        };
        let ran = vm
            .check(&chunk)
            .map(|()| vm.drive(&Chunk::new("[nacre.check]", CHECK), &run))
            .map_err(fault)?;
        self.count(ran.instructions, &ran.result);
        let results = ran.result.map_err(fault)?;
        let has = |at: usize| results.get(at) == Some(&Value::Bool(true));
        let uses = Uses {
            validator: has(0),
            trigger: has(1),
        };
        if uses.validator || uses.trigger {
            return Ok(uses);
        }
        let message = "it has neither a function `validate(key, old, new, who, revision)` nor one `trigger(name, revision, events)`";
        Err(Fault {
            line: 0,
            message: message.to_owned(),
        })
    }

    fn validate(&mut self, program: Program<'_>, request: &ValidateRequest) -> Verdict {
        let old = request
            .old
            .as_ref()
            .map_or(Value::Nil, |pair| Value::Bytes(pair.value.clone()));
        let new = request.new.clone().map_or(Value::Nil, Value::Bytes);
        let args = [
            bytes(&request.key),
            old,
            new,
            bytes(&request.who),
            number(request.revision),
        ];
        let ran = self.run(program, "validate", &args, request.revision, &VALIDATOR);
        let line = ran.entry_line.unwrap_or(0);
        let values = match ran.result {
            Ok(values) => values,
            Err(error) if error.raised => {
                let Fault { line, message } = fault(error);
                return Verdict::Reject { line, message };
            }
            Err(error) => return Verdict::Failed(fault(error)),
        };
        match &values[..] {
            [] | [Value::Nil | Value::Bool(true)] => Verdict::Accept,
            [Value::Bytes(new)] => Verdict::Rewrite(new.clone()),
            [Value::Bool(false)] => Verdict::Reject {
                line,
                message: "it says no, and not why".to_owned(),
            },
            // `return nil, why` is a common idiom of Lua for failures.
            [Value::Bool(false) | Value::Nil, why] => Verdict::Reject {
                line,
                message: shown(why),
            },
            _ => Verdict::Failed(Fault {
                line,
                message: RESULTS.to_owned(),
            }),
        }
    }

    fn trigger(
        &mut self,
        program: Program<'_>,
        request: &TriggerRequest<'_>,
    ) -> Result<TriggerActions, Fault> {
        let events = Value::List(request.events.iter().map(event).collect());
        let args = [bytes(request.trigger), number(request.revision), events];
        let ran = self.run(program, "trigger", &args, request.revision, &TRIGGER);
        let line = ran.entry_line.unwrap_or(0);
        let values = ran.result.map_err(fault)?;
        let wrong = |message: String| Fault { line, message };
        let list = match &values[..] {
            [] | [Value::Nil] => &[],
            [Value::List(list)] => &list[..],
            _ => {
                return Err(wrong(
                    "trigger returns nothing, or one list of changes and lines".to_owned(),
                ));
            }
        };
        let mut actions = TriggerActions::default();
        for (item, at) in list.iter().zip(1..) {
            action(item, &mut actions)
                .map_err(|why| wrong(format!("item {at} of what trigger returns: {why}")))?;
        }
        if actions.ops.len() > META_OPS_MAX || actions.lines.len() > LINES_MAX {
            return Err(wrong(format!(
                "a trigger makes at most {META_OPS_MAX} changes and {LINES_MAX} lines"
            )));
        }
        Ok(actions)
    }

    fn steps(&self) -> u64 {
        self.steps
    }
    fn begin_turn(&mut self) {
        if let Some(clocks) = &self.clocks {
            clocks.turn.begin();
        }
    }
    fn begin_request(&mut self) {
        if let Some(clocks) = &self.clocks {
            clocks.request.begin();
        }
    }
    fn turn_is_over(&self) -> bool {
        self.clocks
            .as_ref()
            .is_some_and(|clocks| clocks.turn.is_over())
    }
    fn overruns(&self) -> u64 {
        self.overruns
    }
    fn clock(&self) -> Option<Arc<dyn Patience>> {
        self.clocks.as_ref().map(|clocks| clocks.request.clone())
    }
}

/// One item of a trigger's output.
fn action(item: &Value, actions: &mut TriggerActions) -> Result<(), String> {
    const FORMS: &str =
        "an item is {put = {key, value}}, {delete = key} or a string, a line for the cluster log";
    let fields = match item {
        Value::Bytes(line) => {
            actions
                .lines
                .push(String::from_utf8_lossy(line).into_owned());
            return Ok(());
        }
        Value::Map(fields) => fields,
        _ => return Err(FORMS.to_owned()),
    };
    if let Some(unknown) = fields
        .keys()
        .find(|key| ![&b"put"[..], b"delete", b"lease", b"if_revision"].contains(&&key[..]))
    {
        return Err(format!(
            "there is no `{}`: {FORMS}, and `if_revision` or `lease` beside it",
            String::from_utf8_lossy(unknown)
        ));
    }
    let whole = |field: &str| match fields.get(field.as_bytes()) {
        None => Ok(None),
        Some(Value::Integer(number)) if *number >= 0 => Ok(Some(number.unsigned_abs())),
        Some(other) => Err(format!("`{field}` is a number, not {}", shown(other))),
    };
    let lease = whole("lease")?;
    let op = match (fields.get(&b"put"[..]), fields.get(&b"delete"[..])) {
        (Some(Value::List(pair)), None) => match &pair[..] {
            [Value::Bytes(key), Value::Bytes(value)] => MetaOp::Put {
                key: Name::copy(key),
                value: value.clone(),
                lease: lease.unwrap_or(0),
            },
            [_, other] => {
                return Err(format!(
                    "a value is a string, not {}: {FORMS}",
                    shown(other)
                ));
            }
            _ => return Err(FORMS.to_owned()),
        },
        (None, Some(Value::Bytes(key))) if lease.is_none() => MetaOp::Delete {
            span: MetaSpan::Key {
                key: Name::copy(key),
            },
        },
        _ => return Err(FORMS.to_owned()),
    };
    actions.ops.push(TriggerOp {
        op,
        if_revision: whole("if_revision")?,
    });
    Ok(())
}
