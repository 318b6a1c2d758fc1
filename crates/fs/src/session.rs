//! Requests to the server of a rank: numbered, sent again until they are answered, kept until they are safe.
//!
//! ```text
//!  Away ── a holder is known ──▶ Greeting ──FsWelcome──▶ Open ── gone, away ──▶ Away
//!                                                         │ first, in order: what is not safe; FsCaughtUp; then the rest
//!  request ─▶ sent ─▶ answered early ─▶ safe: forgotten
//!                └──── answered, changed nothing: forgotten
//! ```
//! Invariants: numbers grow by one; each request is answered to its maker once; what has a number is
//! kept until its answer is safe.

use nacre_role::Output;
use nacre_types::{ClientId, Entity, Ino, Instance, Name, Time};
use nacre_wire::Message;
use nacre_wire::fs::FsHolder;
use nacre_wire::map::Address;
use nacre_wire::msg::fs::{
    FS_WINDOW, FsAgain, FsAnswer, FsCall, FsCaughtUp, FsLeave, FsOpens, FsPlace, FsReply, FsRequest, FsSession,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// What was not answered, or is not safe yet, is sent again after so long.
const AGAIN: Duration = Duration::from_secs(5);
/// Of a number that the server knows nothing of, without a place.
const ESTALE: u16 = 116;
/// So is a greeting.
const GREET_AGAIN: Duration = Duration::from_millis(500);

#[derive(Debug)]
struct Sent {
    call: FsCall,
    /// When it was sent last; `None`: never.
    at: Option<Time>,
    /// What it was told, if it was answered.
    told: Option<FsAgain>,
    /// Where its file was when it was made: all that came before has happened when it is done again.
    place: Option<FsPlace>,
    /// The server was told that.
    placed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Away,
    Greeting(ClientId, Time),
    Open(ClientId),
}

/// See the module head.
#[derive(Debug)]
pub(crate) struct Session {
    file_system: Name,
    instance: Instance,
    stage: Stage,
    /// Where its peer was said to be.
    met: Option<(ClientId, Address)>,
    next: u64,
    sent: BTreeMap<u64, Sent>,
    /// When to look for what is to be sent again.
    again_at: Time,
}

impl Session {
    pub fn new(file_system: Name, instance: Instance) -> Self {
        Self {
            file_system,
            instance,
            stage: Stage::Away,
            met: None,
            next: 1,
            sent: BTreeMap::new(),
            again_at: Time::MAX,
        }
    }
    pub const fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open(_))
    }
    pub const fn is_away(&self) -> bool {
        matches!(self.stage, Stage::Away)
    }
    /// Whether this is the server that it talks to.
    pub fn is_with(&self, server: ClientId) -> bool {
        matches!(self.stage, Stage::Greeting(with, _) | Stage::Open(with) if with == server)
    }
    /// Whether another request may be made: half of what a server takes, so that its window is never reached.
    pub fn has_room(&self) -> bool {
        self.next - self.safe_below() < FS_WINDOW / 2
    }
    /// All requests below are safe.
    pub fn safe_below(&self) -> u64 {
        self.sent.first_key_value().map_or(self.next, |(number, _)| *number)
    }
    /// The number of the next request.
    pub const fn next(&self) -> u64 {
        self.next
    }
    pub fn next_deadline(&self) -> Time {
        match self.stage {
            Stage::Away => Time::MAX,
            Stage::Greeting(_, since) => since + GREET_AGAIN,
            Stage::Open(_) => self.again_at,
        }
    }

    /// Makes a request; its number.
    pub fn request(&mut self, now: Time, call: FsCall, place: Option<FsPlace>, out: &mut Vec<Output>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.sent.insert(number, Sent { call, at: None, told: None, place, placed: false });
        if let Stage::Open(server) = self.stage {
            self.send(now, server, number, out);
        }
        number
    }

    /// A server has the rank, says the registry; `opens` is what is open here.
    pub fn on_holder(&mut self, now: Time, holder: &FsHolder, opens: Vec<FsOpens>, out: &mut Vec<Output>) {
        let server = holder.client();
        if self.is_with(server) {
            return;
        }
        let place = (server, holder.address.clone());
        if self.met.as_ref() != Some(&place) {
            if let Some((peer, _)) = self.met.take() {
                out.push(Output::Meet { peer: Entity::Client(peer), address: Address::default() });
            }
            out.push(Output::Meet { peer: Entity::Client(server), address: holder.address.clone() });
            self.met = Some(place);
        }
        self.greet(now, server, opens, out);
    }
    fn greet(&mut self, now: Time, server: ClientId, opens: Vec<FsOpens>, out: &mut Vec<Output>) {
        self.stage = Stage::Greeting(server, now);
        let (file_system, instance) = (self.file_system.clone(), self.instance);
        let session = FsSession { file_system, rank: 0, instance, opens };
        out.push(Output::send(Entity::Client(server), Message::FsSession(session)));
    }
    /// It has no session with that server any more.
    pub const fn on_away(&mut self) {
        self.stage = Stage::Away;
    }

    /// The session is known to the server.
    pub fn on_welcome(&mut self, now: Time, out: &mut Vec<Output>) {
        let Stage::Greeting(server, _) = self.stage else { return };
        self.stage = Stage::Open(server);
        let (before, fresh): (Vec<u64>, Vec<u64>) = self.sent.keys().partition(|number| self.sent[number].at.is_some());
        for number in before {
            self.send(now, server, number, out);
        }
        let caught_up = FsCaughtUp { next: self.next };
        out.push(Output::send(Entity::Client(server), Message::FsCaughtUp(caught_up)));
        for number in fresh {
            self.send(now, server, number, out);
        }
    }

    fn send(&mut self, now: Time, server: ClientId, number: u64, out: &mut Vec<Output>) {
        let safe_below = self.safe_below();
        let sent = self.sent.get_mut(&number).expect("it is kept until it is safe");
        let again = sent.at.map(|_| sent.told.unwrap_or_default());
        sent.at = Some(now);
        self.again_at = self.again_at.min(now + AGAIN);
        // One that has the file in memory needs no place.
        sent.placed |= again.is_some();
        let place = sent.place.clone().filter(|_| sent.placed);
        let request = FsRequest { number, safe_below, again, place, call: sent.call.clone() };
        out.push(Output::send(Entity::Client(server), Message::FsRequest(request)));
    }

    /// An answer; it is given on if it is the first to its request, with what was asked.
    pub fn on_reply(&mut self, now: Time, reply: FsReply, out: &mut Vec<Output>) -> Option<(u64, FsCall, FsAnswer)> {
        let FsReply { number, safe, stamp, answer } = reply;
        let sent = self.sent.get_mut(&number)?;
        if matches!(answer, FsAnswer::Failed { errno: ESTALE })
            && sent.place.is_some()
            && !std::mem::replace(&mut sent.placed, true)
        {
            if let Stage::Open(server) = self.stage {
                self.send(now, server, number, out);
            }
            return None;
        }
        let is_first = sent.told.is_none();
        let call = sent.call.clone();
        if safe {
            self.sent.remove(&number);
        } else {
            let made = match &answer {
                FsAnswer::Node { node, made: true } => node.inode.ino,
                _ => Ino::TOP,
            };
            sent.told = Some(FsAgain { stamp, made });
        }
        is_first.then_some((number, call, answer))
    }
    /// These are safe.
    pub fn on_safe(&mut self, numbers: &[u64]) {
        for number in numbers {
            // One whose answer has not come yet is told that it is safe with it.
            if self.sent.get(number).is_some_and(|sent| sent.told.is_some()) {
                self.sent.remove(number);
            }
        }
    }

    /// Sends again what is due.
    pub fn on_tick(&mut self, now: Time, opens: impl FnOnce() -> Vec<FsOpens>, out: &mut Vec<Output>) {
        match self.stage {
            Stage::Greeting(server, since) if now.since(since) >= GREET_AGAIN => {
                self.greet(now, server, opens(), out);
            }
            Stage::Open(server) if self.again_at <= now => {
                let due = |sent: &Sent| sent.at.is_some_and(|at| now.since(at) >= AGAIN);
                let late: Vec<u64> =
                    self.sent.iter().filter(|(_, sent)| due(sent)).map(|(number, _)| *number).collect();
                self.again_at = Time::MAX;
                for number in late {
                    self.send(now, server, number, out);
                }
                let next = self.sent.values().filter_map(|sent| sent.at).min().map_or(Time::MAX, |at| at + AGAIN);
                self.again_at = self.again_at.min(next);
            }
            _ => {}
        }
    }
    /// It goes for good.
    pub fn leave(&mut self, out: &mut Vec<Output>) {
        if let Stage::Open(server) = self.stage {
            out.push(Output::send(Entity::Client(server), Message::FsLeave(FsLeave { next: self.next })));
            self.stage = Stage::Away;
        }
    }
}
