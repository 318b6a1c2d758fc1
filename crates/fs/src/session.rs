//! Requests to the server of a rank: numbered, resent until they are answered, kept until they are
//! safe.
//!
//! ```text
//!  Away ── a holder is known ──▶ Greeting ──FsWelcome──▶ Open ── gone, away ──▶ Away
//!                                                         │ first: requests answered and not safe, in the order of the
//!                                                         │ answers; reports about data, files
//!                                                         │ without a name, and what came before; FsCaughtUp; the rest
//!  request ─▶ sent ─▶ answered early ─▶ safe: dropped
//!                └──── answered, changed nothing: dropped
//! ```
//! Numbers are assigned over all ranks together ([`crate::sessions`]): between two of this rank
//! there may be numbers of others.
//!
//! Invariants: numbers increase; each request is answered to its maker once; a numbered request is
//! kept until its answer is safe; none is sent beyond the server's window.

use nacre_role::Output;
use nacre_types::{ClientId, Entity, Ino, Instance, Name, Rank, Time};
use nacre_wire::Message;
use nacre_wire::fs::{FsLock, FsLockWait};
use nacre_wire::map::Address;
use nacre_wire::msg::fs::{
    FS_LEASE_MS, FS_WINDOW, FsAgain, FsAnswer, FsCall, FsCaughtUp, FsForgot, FsGrant, FsLeave,
    FsOpens, FsPing, FsPlace, FsReply, FsRequest, FsSession, FsSync,
};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

#[cfg(feature = "mutants")]
#[path = "mutants/session.rs"]
mod planted;

/// Requests without an answer, or not safe yet, are resent after this.
const AGAIN: Duration = Duration::from_secs(5);
/// The same for a greeting, with increasing delays: only the answer to the last one counts.
const GREET_AGAIN: Duration = Duration::from_millis(500);
/// How long the cache may be used after a ping; also determines the ping interval.
const LEASE: Duration = Duration::from_millis(FS_LEASE_MS);
const PING: Duration = Duration::from_millis(FS_LEASE_MS / 3);

/// What a client reports to a server.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    /// Human-readable description.
    pub about: Name,
    /// Whether it caches names, and may create them itself.
    pub delegable: bool,
    /// Open files.
    pub opens: Vec<FsOpens>,
    /// Held locks.
    pub locks: Vec<FsLock>,
    /// Waiting lock requests.
    pub waits: Vec<FsLockWait>,
}

#[derive(Debug)]
struct Sent {
    call: FsCall,
    /// When it was last sent; `None`: never.
    at: Option<Time>,
    /// The answer, if there is one, and its position in the order of answers: servers answer in the
    /// order of execution.
    told: Option<(u64, FsAgain)>,
    /// Where its file was when the request was made: everything before has happened when it is
    /// executed again.
    place: Option<FsPlace>,
    /// This client has answered its caller.
    foretold: Option<FsAgain>,
}

/// A request as it is made.
#[derive(Debug)]
pub(crate) struct Asked {
    pub call: FsCall,
    /// Where its file was last seen.
    pub place: Option<FsPlace>,
    /// When this client answered it, and what was created, if it did.
    pub foretold: Option<FsAgain>,
}

/// A request that ended with an instance of this client.
#[derive(Debug)]
pub(crate) struct Ended {
    pub number: u64,
    pub call: FsCall,
    /// The answer, if there was one.
    pub told: Option<FsAgain>,
    /// This client had answered its caller.
    pub foretold: bool,
}

/// The moment when a caller began to wait until everything done is safe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// For this file, or for all.
    pub ino: Option<Ino>,
    /// The next request number and the number of answers at that moment.
    pub below: u64,
    pub answers: u64,
}

/// The first answer to a request.
pub(crate) struct Answered {
    pub number: u64,
    pub call: FsCall,
    pub answer: FsAnswer,
    /// Whether it may be cached.
    pub keep: bool,
    /// Directories that this client has a share of now.
    pub shares: Vec<Ino>,
    /// Inodes that the request changed.
    pub changed: Vec<Ino>,
    /// Capabilities for what it opened.
    pub caps: Vec<FsGrant>,
    /// Directories in which this client may create names itself.
    pub delegated: Vec<Ino>,
    /// This client had answered it before.
    pub foretold: bool,
    /// It is in the journal, or need not be.
    pub safe: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Away,
    /// The server, since when, and how often it was greeted before.
    Greeting(ClientId, Time, u32),
    Open(ClientId),
}

/// A message beyond the server's window.
#[derive(Clone, Copy, Debug)]
enum Held {
    Request(u64),
    CaughtUp,
}

/// See the module head.
#[derive(Debug)]
pub(crate) struct Session {
    file_system: Name,
    rank: Rank,
    /// Its instance.
    instance: Instance,
    /// This instance has been welcomed.
    known: bool,
    stage: Stage,
    /// The peer's reported address.
    pub met: Option<(ClientId, Address)>,
    /// The number after its last one.
    next: u64,
    sent: BTreeMap<u64, Sent>,
    /// The numbers assigned from the lowest one in `sent` on: an upper bound of what the server has
    /// from this client.
    given: VecDeque<u64>,
    /// In order; all of them are beyond the window.
    held: VecDeque<Held>,
    /// Answers to lower requests are not cached: see [`Self::doubt`].
    doubtful: u64,
    /// Up to which request the server knows that something waits for it.
    hurried: u64,
    /// When to check what must be resent.
    again_at: Time,
    /// The number of the last greeting.
    greeting: u64,
    /// The last ping: its number, and when it was sent.
    ping: (u64, Time),
    /// Whether it was answered.
    ponged: bool,
    /// Until when the cache may be used.
    lease: Time,
}

impl Session {
    pub fn new(file_system: Name, rank: Rank, instance: Instance) -> Self {
        Self {
            file_system,
            rank,
            instance,
            known: false,
            stage: Stage::Away,
            met: None,
            next: 1,
            sent: BTreeMap::new(),
            given: VecDeque::new(),
            held: VecDeque::new(),
            doubtful: 0,
            hurried: 0,
            again_at: Time::MAX,
            greeting: 0,
            ping: (0, Time::ZERO),
            ponged: true,
            lease: Time::ZERO,
        }
    }
    pub const fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open(_))
    }
    pub const fn is_away(&self) -> bool {
        matches!(self.stage, Stage::Away)
    }
    /// Whether it communicates with this server.
    pub fn is_with(&self, server: ClientId) -> bool {
        matches!(self.stage, Stage::Greeting(with, ..) | Stage::Open(with) if with == server)
    }
    /// Whether another request may be made: the limit is half of the server's window, so that
    /// callers never reach its end.
    pub fn has_room(&self) -> bool {
        let first = self.safe_below();
        let over = self.given.partition_point(|number| *number < first);
        ((self.given.len() - over) as u64) < FS_WINDOW / 2
    }
    /// All lower requests are safe.
    pub fn safe_below(&self) -> u64 {
        self.sent
            .first_key_value()
            .map_or(self.next, |(number, _)| *number)
    }
    /// Whether everything done by then is safe: answered requests, and reports about data. Requests
    /// that other callers still wait for are not included. `but_written`: reports of written data
    /// need only be accepted, not safe.
    pub fn is_safe_at(&self, moment: &Moment, but_written: bool) -> bool {
        let Moment {
            ino,
            below,
            answers,
        } = *moment;
        let is_safe = |sent: &Sent| {
            let was_answered = sent.told.is_some_and(|(order, _)| order <= answers);
            let says = says_written(&sent.call) || is_foretold(&sent.call);
            let was_answered = was_answered || sent.foretold.is_some();
            let is_wanted = was_answered || (says && (ino.is_none() || sent.call.ino() == ino));
            let is_taken =
                but_written && sent.told.is_some() && matches!(sent.call, FsCall::Wrote { .. });
            !is_wanted || is_taken
        };
        self.sent.range(..below).all(|(_, sent)| is_safe(sent))
    }
    pub fn next_deadline(&self) -> Time {
        match self.stage {
            Stage::Away => Time::MAX,
            Stage::Greeting(_, since, before) => since + greet_again(before),
            Stage::Open(_) => self.again_at.min(if self.ponged {
                self.ping.1 + PING
            } else {
                self.lease
            }),
        }
    }
    /// Until when the cache under shares may be used, if nothing more arrives.
    pub const fn lease(&self) -> Time {
        self.lease
    }
    /// Whether the cache under shares may be used.
    pub fn has_lease(&self, now: Time) -> bool {
        self.is_open() && now < self.lease
    }

    /// Makes a request with this number, which is larger than earlier ones.
    pub fn request(&mut self, now: Time, number: u64, asked: Asked, out: &mut Vec<Output>) {
        let Asked {
            call,
            place,
            foretold,
        } = asked;
        self.next = number + 1;
        let first = self
            .sent
            .first_key_value()
            .map_or(number, |(first, _)| *first);
        while self.given.pop_front_if(|given| *given < first).is_some() {}
        self.given.push_back(number);
        self.sent.insert(
            number,
            Sent {
                call,
                at: None,
                told: None,
                place,
                foretold,
            },
        );
        if let Stage::Open(server) = self.stage {
            self.send_or_hold(now, server, Held::Request(number), out);
        }
    }

    /// Greets the server that holds the rank.
    pub fn greet(&mut self, now: Time, server: ClientId, holds: Holds, out: &mut Vec<Output>) {
        let before = match self.stage {
            Stage::Greeting(_, _, before) => before + 1,
            Stage::Away | Stage::Open(_) => 0,
        };
        self.stage = Stage::Greeting(server, now, before);
        self.greeting += 1;
        self.held.clear();
        let Self {
            file_system,
            rank,
            instance,
            known,
            greeting,
            ..
        } = self;
        let (file_system, rank, instance, known) = (file_system.clone(), rank.0, *instance, *known);
        let Holds {
            about,
            delegable,
            opens,
            locks,
            waits,
        } = holds;
        let greeting = *greeting;
        let session = FsSession {
            file_system,
            rank,
            instance,
            known,
            greeting,
            about,
            delegable,
            opens,
            locks,
            waits,
        };
        out.push(Output::send(
            Entity::Client(server),
            Message::FsSession(session),
        ));
    }
    /// It has no session with that server any more.
    pub fn on_away(&mut self) {
        self.stage = Stage::Away;
        self.held.clear();
    }

    /// The server has welcomed the session.
    pub fn on_welcome(&mut self, now: Time, greeting: u64, out: &mut Vec<Output>) {
        let Stage::Greeting(server, greeted, _) = self.stage else {
            return;
        };
        if greeting != self.greeting {
            // A greeting in flight will give back shares granted after this.
            return;
        }
        self.stage = Stage::Open(server);
        self.known = true;
        (self.ping.1, self.ponged, self.lease) = (greeted, true, greeted + LEASE);
        let told = |(number, sent): (&u64, &Sent)| sent.told.map(|(order, _)| (order, *number));
        let mut told: Vec<(u64, u64)> = self.sent.iter().filter_map(told).collect();
        told.sort_unstable();
        for (_, number) in told {
            self.send(now, server, number, out);
        }
        let rest = self.sent.iter().filter(|(_, sent)| sent.told.is_none());
        let mut rest: Vec<u64> = rest.map(|(number, _)| *number).collect();
        // A file that was created without a name would be removed if it were not known to be open.
        let comes_first =
            |sent: &Sent| sent.call.tells() || sent.call.is_unnamed() || sent.is_foretold();
        let last = rest
            .iter()
            .rposition(|number| comes_first(&self.sent[number]));
        let later = rest.split_off(last.map_or(0, |last| last + 1));
        for number in rest {
            self.send_or_hold(now, server, Held::Request(number), out);
        }
        self.send_or_hold(now, server, Held::CaughtUp, out);
        for number in later {
            self.send_or_hold(now, server, Held::Request(number), out);
        }
    }

    /// Whether the server accepts a request with this number now. It accepted answered ones before.
    fn reaches(&self, number: u64) -> bool {
        number < self.window_end()
    }
    /// The first request number that it does not accept.
    fn window_end(&self) -> u64 {
        let first = self.safe_below();
        let over = self.given.partition_point(|given| *given < first);
        self.given
            .get(over + FS_WINDOW as usize)
            .copied()
            .unwrap_or(u64::MAX)
    }
    fn send_or_hold(&mut self, now: Time, server: ClientId, what: Held, out: &mut Vec<Output>) {
        let fits = self.held.is_empty() && self.fits(what);
        if fits {
            self.send_held(now, server, what, out)
        } else {
            self.held.push_back(what)
        }
    }
    fn fits(&self, what: Held) -> bool {
        match what {
            Held::Request(number) => self.reaches(number),
            Held::CaughtUp => true,
        }
    }
    fn send_held(&mut self, now: Time, server: ClientId, what: Held, out: &mut Vec<Output>) {
        match what {
            // A request that was answered in the meantime is done.
            Held::Request(number) if !self.sent.contains_key(&number) => {}
            Held::Request(number) => self.send(now, server, number, out),
            Held::CaughtUp => {
                let caught_up = FsCaughtUp { next: self.next };
                out.push(Output::send(
                    Entity::Client(server),
                    Message::FsCaughtUp(caught_up),
                ));
            }
        }
    }
    /// Sends what is within the window now.
    fn let_go(&mut self, now: Time, out: &mut Vec<Output>) {
        let Stage::Open(server) = self.stage else {
            return;
        };
        while let Some(what) = self.held.front().copied()
            && self.fits(what)
        {
            self.held.pop_front();
            self.send_held(now, server, what, out);
        }
    }

    fn send(&mut self, now: Time, server: ClientId, number: u64, out: &mut Vec<Output>) {
        let safe_below = self.safe_below();
        let sent = self
            .sent
            .get_mut(&number)
            .expect("it is kept until it is safe");
        let again = sent.told.map(|(_, again)| again);
        sent.at = Some(now);
        self.again_at = self.again_at.min(now + AGAIN);
        let (place, call) = (sent.place.clone(), sent.call.clone());
        let foretold = sent.foretold.filter(|_| again.is_none());
        let request = FsRequest {
            number,
            safe_below,
            again,
            foretold,
            place,
            call,
        };
        out.push(Output::send(
            Entity::Client(server),
            Message::FsRequest(request),
        ));
    }

    /// Handles an answer; returns it, with the request, if it is the first one. `order`: its
    /// position among all answers that are not safe.
    pub fn on_reply(
        &mut self,
        now: Time,
        reply: FsReply,
        order: u64,
        out: &mut Vec<Output>,
    ) -> Option<Answered> {
        let FsReply {
            number,
            safe,
            stamp,
            place,
            mut keep,
            mut shares,
            mut delegated,
            changed,
            mut caps,
            answer,
        } = reply;
        if !self.is_open() {
            // It was sent before the greeting, which gave all shares back.
            keep = false;
            shares.clear();
            delegated.clear();
            caps.clear();
        }
        let sent = self.sent.get_mut(&number)?;
        let (is_first, foretold) = (sent.told.is_none(), sent.foretold.is_some());
        let call = sent.call.clone();
        keep &= number >= self.doubtful;
        if !is_kept(safe) {
            self.sent.remove(&number);
            self.let_go(now, out);
        } else {
            let made = match &answer {
                FsAnswer::Node { node, made: true } => node.inode.ino,
                _ => Ino::TOP,
            };
            if is_first {
                sent.place = place.or(sent.place.take());
                sent.told = Some((order, FsAgain { stamp, made }));
            }
        }
        let answered = Answered {
            number,
            call,
            answer,
            keep,
            shares,
            delegated,
            changed,
            caps,
            foretold,
            safe,
        };
        is_first.then_some(answered)
    }
    /// Another rank's answer changed something here, too: answers in flight may be older, and are
    /// not cached.
    pub const fn doubt(&mut self) {
        self.doubtful = self.next;
    }
    /// These requests are safe.
    pub fn on_safe(&mut self, now: Time, numbers: &[u64], out: &mut Vec<Output>) {
        for number in numbers {
            // A request without an answer yet gets both together.
            if self
                .sent
                .get(number)
                .is_some_and(|sent| sent.told.is_some())
            {
                self.sent.remove(number);
            }
        }
        self.let_go(now, out);
    }

    /// The server has received the last ping.
    pub fn on_pong(&mut self, number: u64) {
        if number == self.ping.0 && !self.ponged {
            (self.ponged, self.lease) = (true, self.ping.1 + LEASE);
        }
    }
    /// Callers wait until all requests so far are safe.
    pub fn sync(&self, out: &mut Vec<Output>) {
        if let Stage::Open(server) = self.stage
            && self.safe_below() < self.next
        {
            out.push(Output::send(
                Entity::Client(server),
                Message::FsSync(FsSync { below: self.next }),
            ));
        }
    }
    /// Something waits until the request with this number is safe.
    pub fn hurry(&mut self, number: u64, out: &mut Vec<Output>) {
        if self.hurried < number {
            self.hurried = number;
            self.sync(out);
        }
    }
    /// Confirms an invalidation.
    pub fn forgot(&self, number: u64, out: &mut Vec<Output>) {
        if let Stage::Open(server) = self.stage {
            out.push(Output::send(
                Entity::Client(server),
                Message::FsForgot(FsForgot { number }),
            ));
        }
    }

    /// Whether a greeting is due: a resend, or because the lease has ended although the connection
    /// exists. It gives all shares back.
    pub fn greets_again(&self, now: Time) -> bool {
        match self.stage {
            Stage::Greeting(_, since, before) => now.since(since) >= greet_again(before),
            Stage::Open(_) => now >= self.lease,
            Stage::Away => false,
        }
    }
    /// Resends what is due, including a greeting if that [is](Self::greets_again); and pings.
    pub fn on_tick(&mut self, now: Time, holds: Option<Holds>, out: &mut Vec<Output>) {
        if let Stage::Open(server) = self.stage
            && self.ponged
            && now.since(self.ping.1) >= PING
        {
            (self.ping, self.ponged) = ((self.ping.0 + 1, now), false);
            let ping = FsPing {
                number: self.ping.0,
            };
            out.push(Output::send(Entity::Client(server), Message::FsPing(ping)));
        }
        match (self.stage, holds) {
            (Stage::Greeting(server, ..) | Stage::Open(server), Some(holds)) => {
                self.greet(now, server, holds, out);
            }
            (Stage::Open(server), None) if self.again_at <= now => {
                let end = self.window_end();
                let due = |sent: &Sent| sent.at.is_some_and(|at| now.since(at) >= AGAIN);
                let late = self
                    .sent
                    .range(..end)
                    .filter(|(_, sent)| due(sent))
                    .map(|(number, _)| *number);
                let late: Vec<u64> = late.collect();
                self.again_at = Time::MAX;
                for number in late {
                    self.send(now, server, number, out);
                }
                let next = self.sent.range(..end).filter_map(|(_, sent)| sent.at).min();
                let next = next.map_or(Time::MAX, |at| at + AGAIN);
                self.again_at = self.again_at.min(next);
            }
            _ => {}
        }
    }
    /// An instance has ended, and this one begins: what was not safe is lost, and what was not
    /// answered may have been executed. Those requests end, changes with what was known about them.
    /// All others are sent in the next instance, except for reports of written data or of changes
    /// made here: their basis may be gone, because others continued from the old state.
    pub fn on_evicted(&mut self, next: Instance) -> impl Iterator<Item = Ended> {
        self.on_away();
        (self.instance, self.known, self.hurried) = (next, false, 0);
        let ends = |_: &u64, sent: &mut Sent| {
            let may_have_happened = sent.at.is_some() && sent.call.is_change();
            sent.told.is_some()
                || may_have_happened
                || says_written(&sent.call)
                || sent.is_foretold()
        };
        let ended = self.sent.extract_if(.., ends);
        ended.map(|(number, sent)| Ended {
            number,
            call: sent.call,
            told: sent.told.map(|(_, again)| again),
            foretold: sent.foretold.is_some(),
        })
    }

    /// Whether a request that changes journaled state is unanswered, or not safe.
    pub fn owes_changes(&self) -> bool {
        self.sent.values().any(|sent| sent.call.is_change())
    }
    /// It leaves for good.
    pub fn leave(&mut self, out: &mut Vec<Output>) {
        if let Stage::Greeting(server, ..) | Stage::Open(server) = self.stage {
            out.push(Output::send(
                Entity::Client(server),
                Message::FsLeave(FsLeave { next: self.next }),
            ));
            self.on_away();
        }
    }
}

impl Sent {
    /// Whether this client has already answered its caller.
    fn is_foretold(&self) -> bool {
        self.foretold.is_some() || is_foretold(&self.call)
    }
}
/// Whether an answered request is kept: a change that is not safe is sent again to the next server.
#[nacre_types::planted]
fn is_kept(safe: bool) -> bool {
    !safe
}

fn is_foretold(call: &FsCall) -> bool {
    matches!(call, FsCall::Set { changes, .. } if changes.foretold.is_some())
}

/// Whether a request reports what this client has written.
fn says_written(call: &FsCall) -> bool {
    matches!(call, FsCall::Wrote { .. }) || call.tells()
}

fn greet_again(before: u32) -> Duration {
    GREET_AGAIN * 2_u32.pow(before.min(4))
}
