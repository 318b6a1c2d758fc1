//! Operators who enter commands.
//!
//! * [`Operator`] has conditions to bring about (a pool exists, all OSDs are in) and repeats the
//!   command while a condition is not met: an earlier order may arrive late. Commands that faults
//!   need are sent once, without a check.
//! * [`Registrar`] treats one option of the configuration database as a register and records what
//!   it saw: the same judge as for objects then decides whether an acknowledged command is ever
//!   lost, and whether reads see every earlier answer.

use crate::plan::MS;
use crate::rng::Rng;
use nacre_history::record::Outcome;
use nacre_history::{Kind, Record};
use nacre_types::{ClientId, Entity};
use nacre_wire::ClusterMap;
use nacre_wire::msg::monitor::{Command, CommandReply};
use serde_json::{Value, json};

/// The option used as a register: it only matters when a pool is created without a number of PGs.
const OPTION: &str = "mon.pg_per_osd_target";
/// The register's name in histories.
const KEY: &str = "option";

/// A condition that the operator brings about.
pub struct Wish {
    /// The command, sent while the condition is not met.
    pub request: Value,
    /// Whether it is met.
    pub met: Box<dyn Fn(&ClusterMap) -> bool>,
}

/// See the module head.
#[derive(Default)]
pub struct Operator {
    wishes: Vec<Wish>,
    token: u64,
}

impl Operator {
    /// The entity that gives these orders.
    pub const WHO: Entity = Entity::Client(ClientId(1));

    /// Adds a condition; earlier ones take precedence.
    pub fn wish(&mut self, request: Value, met: impl Fn(&ClusterMap) -> bool + 'static) {
        self.wishes.push(Wish {
            request,
            met: Box::new(met),
        });
    }
    /// Removes a condition.
    pub fn recant(&mut self, request: &Value) {
        self.wishes.retain(|wish| wish.request != *request);
    }
    /// Whether all conditions are met.
    #[must_use]
    pub fn is_content(&self, map: &ClusterMap) -> bool {
        self.wishes.iter().all(|wish| (wish.met)(map))
    }
    /// The unmet conditions, human-readable.
    #[must_use]
    pub fn unmet(&self, map: &ClusterMap) -> Vec<String> {
        self.wishes
            .iter()
            .filter(|wish| !(wish.met)(map))
            .map(|wish| wish.request.to_string())
            .collect()
    }
    /// Makes a command.
    pub fn order(&mut self, request: &Value) -> Command {
        self.token += 1;
        Command {
            token: self.token,
            request: request.to_string(),
        }
    }
    /// The next command.
    pub fn next(&mut self, map: Option<&ClusterMap>) -> Option<Command> {
        let unmet = |wish: &&Wish| map.is_none_or(|map| !(wish.met)(map));
        let request = self.wishes.iter().find(unmet)?.request.clone();
        Some(self.order(&request))
    }
}

/// See the module head.
pub struct Registrar {
    id: ClientId,
    /// Name in histories: a new one after each operation whose outcome is unknown.
    name: u64,
    token: u64,
    current: Option<(u64, Record, u64)>,
    next_at: u64,
    /// Whether to start no new operations.
    pub finished: bool,
}

impl Registrar {
    /// The registrar with this index. Names in histories begin at 1,000,000 times that.
    #[must_use]
    pub const fn new(index: u64) -> Self {
        let name = (index + 1) * 1_000_000;
        Self {
            id: ClientId(10 + index),
            name,
            token: 0,
            current: None,
            next_at: 0,
            finished: false,
        }
    }
    /// Its identity.
    #[must_use]
    pub const fn entity(&self) -> Entity {
        Entity::Client(self.id)
    }
    /// Whether an answer is pending.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        self.current.is_some()
    }
    /// When it next has something to do.
    #[must_use]
    pub fn next_at(&self) -> u64 {
        match &self.current {
            Some((.., give_up)) => *give_up,
            None if self.finished => u64::MAX,
            None => self.next_at,
        }
    }

    /// Gives up, or begins something new: `value` is what it would write. Returns whether it used
    /// the value, and the command.
    pub fn advance(
        &mut self,
        now: u64,
        value: u64,
        rng: &mut Rng,
        history: &mut Vec<Record>,
    ) -> Option<(bool, Command)> {
        if self
            .current
            .as_ref()
            .is_some_and(|(.., give_up)| *give_up <= now)
        {
            self.end_unknown(history);
        }
        if self.current.is_some() || self.finished || self.next_at > now {
            return None;
        }
        self.token += 1;
        let writes = rng.one_in(2);
        let record = Record {
            client: self.name,
            op: if writes { Kind::Write } else { Kind::Read },
            key: KEY.to_owned(),
            value: writes.then_some(value),
            expect: None,
            invoke_ns: now,
            return_ns: None,
            result: None,
            unknown: false,
            fail: false,
        };
        let request = if writes {
            json!({"command": "config set", "key": OPTION, "value": value})
        } else {
            json!({"command": "config get", "key": OPTION})
        };
        self.current = Some((self.token, record, now + rng.between(1000 * MS, 7000 * MS)));
        Some((
            writes,
            Command {
                token: self.token,
                request: request.to_string(),
            },
        ))
    }

    /// The connection broke: the answer will not come.
    pub fn on_gone(&mut self, now: u64, history: &mut Vec<Record>) {
        if self.current.is_some() {
            self.end_unknown(history);
        }
        self.next_at = self.next_at.max(now);
    }

    fn end_unknown(&mut self, history: &mut Vec<Record>) {
        let (_, mut record, _) = self
            .current
            .take()
            .expect("called with an operation under way");
        record.unknown = true;
        history.push(record);
        self.name += 1;
    }

    /// Handles an answer.
    pub fn on_reply(
        &mut self,
        now: u64,
        reply: &CommandReply,
        rng: &mut Rng,
        history: &mut Vec<Record>,
    ) {
        let Some((_, mut record, _)) = self.current.take_if(|(token, ..)| *token == reply.token)
        else {
            return;
        };
        self.next_at = now + rng.between(10 * MS, 500 * MS);
        record.return_ns = Some(now);
        match &reply.error {
            // A failed read proves nothing; a failed write may have been executed, as its answer
            // says.
            Some(_) if record.op == Kind::Read => record.fail = true,
            Some(_) => {
                (record.return_ns, record.unknown) = (None, true);
                self.name += 1;
            }
            None if record.op == Kind::Read => {
                let reply: Value = serde_json::from_str(&reply.reply).expect("replies are JSON");
                let set = reply["set"] == Value::Bool(true);
                let value = reply["value"].as_str().and_then(|text| text.parse().ok());
                record.result = Some(Outcome::Value(value.filter(|_| set)));
            }
            None => {}
        }
        history.push(record);
    }
}
