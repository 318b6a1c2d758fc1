//! Commands for the monitors, from their caller to their answer.
//!
//! A read-only command is resent over a new session with the monitors. A command that may have
//! written is answered "unknown" when its session breaks, and never resent.

use super::call::Reply;
use super::{NO_MAP, timed_out};
use crate::error::Error;
use nacre_role::Output;
use nacre_types::Time;
use nacre_wire::msg::check::CLIENT_BYTES_MAX;
use nacre_wire::msg::monitor::{Command, CommandReply};
use nacre_wire::{Measure, Message};
use std::collections::BTreeMap;
use std::time::Duration;

/// Number of the first command. The client role numbers its own commands from 1, in the same
/// session.
const TOKEN_FIRST: u64 = 1 << 63;

/// Time to wait for the list of pools before it is requested again.
const POOLS_MAX: Duration = Duration::from_secs(10);

struct Asked {
    request: String,
    writes: bool,
    begun: Time,
    deadline: Time,
    sent: bool,
    /// `None`: this client itself asks for the pools and their epoch.
    reply: Option<Reply<String>>,
}

impl Asked {
    fn answer(self, answer: Result<String, Error>) {
        if let Some(reply) = self.reply {
            reply.send(answer);
        }
    }
}

/// See the module head.
pub struct Commands {
    asked: BTreeMap<u64, Asked>,
    next: u64,
    session: bool,
    outputs: Vec<Output>,
}

impl Commands {
    pub const fn new() -> Self {
        Self {
            asked: BTreeMap::new(),
            next: TOKEN_FIRST,
            session: false,
            outputs: Vec::new(),
        }
    }

    pub fn begin(
        &mut self,
        (begun, deadline): (Time, Time),
        request: String,
        writes: bool,
        reply: Reply<String>,
    ) {
        // A longer command is never sent, and its caller would wait for the answer.
        if let Err(why) = Measure::of("the command", &request).fits("the command", CLIENT_BYTES_MAX)
        {
            return reply.send(Err(Error::Command(why.to_string())));
        }
        self.ask(Asked {
            request,
            writes,
            begun,
            deadline,
            sent: false,
            reply: Some(reply),
        });
    }

    /// Asks the monitors for the pools: one request for all waiting operations.
    pub fn ask_for_pools(&mut self, now: Time) {
        if self.asked.values().any(|asked| asked.reply.is_none()) {
            return;
        }
        self.ask(Asked {
            request: nacre_command::Command::PoolLs {}.to_json().to_string(),
            writes: false,
            begun: now,
            // Waiting operations have deadlines; without a leader the answer comes sooner.
            deadline: now + POOLS_MAX,
            sent: false,
            reply: None,
        });
    }

    fn ask(&mut self, asked: Asked) {
        self.asked.insert(self.next, asked);
        self.next += 1;
        self.send();
    }

    fn send(&mut self) {
        if !self.session {
            return;
        }
        for (token, asked) in self.asked.iter_mut().filter(|(_, asked)| !asked.sent) {
            asked.sent = true;
            let command = Command {
                token: *token,
                request: asked.request.clone(),
            };
            self.outputs.push(Output::SendMon {
                message: Message::Command(command),
            });
        }
    }

    /// Whether an answer is for a command from here.
    pub const fn is_ours(reply: &CommandReply) -> bool {
        reply.token >= TOKEN_FIRST
    }

    /// Passes an answer on. Returns the answer about the pools, and when they were asked for.
    pub fn on_reply(&mut self, reply: CommandReply) -> Option<(Time, String)> {
        let asked = self.asked.remove(&reply.token)?;
        match reply.error {
            Some(why) => asked.answer(Err(Error::Command(why))),
            None if asked.reply.is_none() => return Some((asked.begun, reply.reply)),
            None => asked.answer(Ok(reply.reply)),
        }
        None
    }

    pub fn on_session(&mut self) {
        self.session = true;
        self.send();
    }

    pub fn on_session_lost(&mut self) {
        self.session = false;
        for (_, asked) in self.asked.extract_if(.., |_, a| a.sent && a.writes) {
            let why = "the monitor was lost while it worked on this: it may or may not have happened. Look, then repeat it";
            asked.answer(Err(Error::Command(why.to_owned())));
        }
        for asked in self.asked.values_mut() {
            asked.sent = false;
        }
    }

    /// Ends commands whose time is over.
    pub fn expire(&mut self, now: Time) {
        for (_, asked) in self.asked.extract_if(.., |_, a| a.deadline <= now) {
            let waits_for = if asked.sent {
                "the monitors have not answered the command"
            } else {
                NO_MAP
            };
            let why = timed_out(waits_for, now.since(asked.begun));
            asked.answer(Err(why));
        }
    }

    /// Whether a command was sent and is unanswered.
    pub fn awaits_answers(&self) -> bool {
        self.asked.values().any(|asked| asked.sent)
    }
    pub fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }
    pub fn take_outputs(&mut self, into: &mut Vec<Output>) {
        into.append(&mut self.outputs);
    }

    /// Answers all callers with this error.
    pub fn stop(&mut self, stopped: impl Fn() -> Error) {
        for asked in std::mem::take(&mut self.asked).into_values() {
            asked.answer(Err(stopped()));
        }
    }
}
