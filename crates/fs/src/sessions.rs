//! One session with the server of each rank that this client uses, and what they share.
//!
//! ```text
//!  request ─▶ the next number over all ranks ─▶ Session of its rank ─▶ that rank's server
//!  answer  ─▶ the next position in the order of all answers
//!  Moment  ─▶ is everything requested and answered by then, at any rank, safe?
//!  evicted by one ─▶ the next instance begins at all ranks
//! ```
//! The first rank has a session from the beginning, others as soon as they are asked something.
//!
//! Invariants: no number is assigned twice over all ranks; each server holds one rank, so at most
//! one session is with it; all sessions have the same instance.

use crate::routes::FIRST;
use crate::session::{Answered, Asked, Ended, Holds, Moment, Session};
use nacre_role::Output;
use nacre_types::{ClientId, Entity, Ino, Instance, Name, Rank, Time};
use nacre_wire::fs::FsHolder;
use nacre_wire::map::Address;
use nacre_wire::msg::fs::{FsCall, FsReply};
use std::collections::BTreeMap;

/// See the module head.
#[derive(Debug)]
pub(crate) struct Sessions {
    file_system: Name,
    instance: Instance,
    next: u64,
    /// Number of answers so far that were not safe at once.
    answers: u64,
    ranks: BTreeMap<Rank, Session>,
    /// The number of unanswered requests that name an inode, not counting foretold ones.
    busy: BTreeMap<Ino, u32>,
}

impl Sessions {
    pub fn new(file_system: Name, instance: Instance) -> Self {
        let (ranks, busy) = (BTreeMap::new(), BTreeMap::new());
        let mut sessions = Self {
            file_system,
            instance,
            next: 1,
            answers: 0,
            ranks,
            busy,
        };
        sessions.of(FIRST);
        sessions
    }
    pub const fn instance(&self) -> Instance {
        self.instance
    }
    /// The number of the next request, to any rank.
    pub const fn next(&self) -> u64 {
        self.next
    }
    /// The session with a rank, created if there was none.
    pub fn of(&mut self, rank: Rank) -> &mut Session {
        let new = || Session::new(self.file_system.clone(), rank, self.instance);
        self.ranks.entry(rank).or_insert_with(new)
    }
    /// Whether there is a session with a rank.
    pub fn has(&self, rank: Rank) -> bool {
        self.ranks.contains_key(&rank)
    }
    /// The first rank after this one with a session.
    pub fn following(&self, rank: Option<Rank>) -> Option<Rank> {
        let from = rank.map_or(Some(Rank(0)), |rank| rank.0.checked_add(1).map(Rank))?;
        self.ranks.range(from..).next().map(|(rank, _)| *rank)
    }
    /// Whether this is the only rank with a session.
    pub fn is_only(&self, rank: Rank) -> bool {
        self.ranks.len() == 1 && self.ranks.contains_key(&rank)
    }
    /// The rank of a server, as far as there is a session with it.
    pub fn with(&self, server: ClientId) -> Option<Rank> {
        self.ranks
            .iter()
            .find(|(_, session)| session.is_with(server))
            .map(|(rank, _)| *rank)
    }
    pub fn is_open(&self, rank: Rank) -> bool {
        self.ranks.get(&rank).is_some_and(Session::is_open)
    }
    /// Whether a rank can be asked something for a caller.
    pub fn is_free(&self, rank: Rank) -> bool {
        self.ranks
            .get(&rank)
            .is_some_and(|session| session.is_open() && session.has_room())
    }
    pub fn is_any_open(&self) -> bool {
        self.ranks.values().any(Session::is_open)
    }
    /// Whether each has a server.
    pub fn is_settled(&self) -> bool {
        self.ranks.values().all(|session| !session.is_away())
    }
    /// Whether the cache under shares of a rank may be used.
    pub fn has_lease(&self, rank: Rank, now: Time) -> bool {
        self.ranks
            .get(&rank)
            .is_some_and(|session| session.has_lease(now))
    }
    /// Until when.
    pub fn lease(&self, rank: Rank) -> Time {
        self.ranks.get(&rank).map_or(Time::ZERO, Session::lease)
    }
    pub fn next_deadline(&self) -> Time {
        self.ranks
            .values()
            .map(Session::next_deadline)
            .min()
            .unwrap_or(Time::MAX)
    }
    /// For each rank, which requests are safe; informational.
    pub fn safe_below(&self) -> impl Iterator<Item = (Rank, u64)> {
        self.ranks
            .iter()
            .map(|(rank, session)| (*rank, session.safe_below()))
    }

    // ── requests and answers ────────────────────────────────────────────────────────────

    /// Sends a request to a rank; returns its number.
    pub fn request(&mut self, now: Time, rank: Rank, asked: Asked, out: &mut Vec<Output>) -> u64 {
        let number = self.next;
        self.next += 1;
        if asked.foretold.is_none() {
            asked
                .call
                .inos()
                .for_each(|ino| *self.busy.entry(ino).or_default() += 1);
        }
        self.of(rank).request(now, number, asked, out);
        number
    }
    /// Whether a server still has to answer something about an inode.
    pub fn is_busy(&self, ino: Ino) -> bool {
        self.busy.contains_key(&ino)
    }
    fn end_busy(&mut self, call: &FsCall) {
        for ino in call.inos() {
            if let Some(count) = self.busy.get_mut(&ino) {
                *count -= 1;
                if *count == 0 {
                    self.busy.remove(&ino);
                }
            }
        }
    }
    /// Handles a rank's answer; returns it if it is the first one to its request.
    pub fn on_reply(
        &mut self,
        now: Time,
        rank: Rank,
        reply: FsReply,
        out: &mut Vec<Output>,
    ) -> Option<Answered> {
        let order = self.answers + 1;
        let answered = self.of(rank).on_reply(now, reply, order, out)?;
        if !answered.foretold {
            self.end_busy(&answered.call);
        }
        self.answers += u64::from(!answered.safe);
        Some(answered)
    }
    /// This rank's answer changed something at others: see [`Session::doubt`].
    pub fn doubt_others(&mut self, rank: Rank) {
        self.ranks
            .iter_mut()
            .filter(|(other, _)| **other != rank)
            .for_each(|(_, session)| session.doubt());
    }

    /// What a caller waits for that synchronizes a file, or all, now.
    pub const fn moment(&self, ino: Option<Ino>) -> Moment {
        Moment {
            ino,
            below: self.next,
            answers: self.answers,
        }
    }
    /// See [`Session::is_safe_at`], over all ranks.
    pub fn is_safe_at(&self, moment: &Moment, but_written: bool) -> bool {
        self.ranks
            .values()
            .all(|session| session.is_safe_at(moment, but_written))
    }
    /// Callers wait until all requests so far are safe.
    pub fn sync(&self, out: &mut Vec<Output>) {
        self.ranks.values().for_each(|session| session.sync(out));
    }

    // ── servers ─────────────────────────────────────────────────────────────────────────

    /// According to the registry, a server holds a rank that has a session.
    pub fn on_holder(
        &mut self,
        now: Time,
        rank: Rank,
        holder: &FsHolder,
        holds: Holds,
        out: &mut Vec<Output>,
    ) {
        let server = holder.client();
        let place = (server, holder.address.clone());
        if self.of(rank).met.as_ref() != Some(&place) {
            if let Some((peer, _)) = self.of(rank).met.replace(place)
                && !self.is_met(peer, rank)
            {
                out.push(Output::Meet {
                    peer: Entity::Client(peer),
                    address: Address::default(),
                });
            }
            out.push(Output::Meet {
                peer: Entity::Client(server),
                address: holder.address.clone(),
            });
        }
        self.of(rank).greet(now, server, holds, out);
    }
    /// Whether a server is known as another rank's, too: it may hold that one now.
    fn is_met(&self, server: ClientId, rank: Rank) -> bool {
        let has = |session: &Session| {
            session
                .met
                .as_ref()
                .is_some_and(|(peer, _)| *peer == server)
        };
        self.ranks
            .iter()
            .any(|(other, session)| *other != rank && has(session))
    }
    /// This instance has ended, and the next one begins at all ranks: returns the requests that
    /// ended with it, in order. See [`Session::on_evicted`].
    pub fn on_evicted(&mut self) -> Vec<Ended> {
        self.instance = Instance(self.instance.0 + 1);
        let next = self.instance;
        let mut ended: Vec<_> = self
            .ranks
            .values_mut()
            .flat_map(|session| session.on_evicted(next))
            .collect();
        ended.sort_unstable_by_key(|ended| ended.number);
        let unanswered = ended
            .iter()
            .filter(|ended| ended.told.is_none() && !ended.foretold);
        unanswered.for_each(|ended| self.end_busy(&ended.call));
        ended
    }
    /// Whether a rank has not answered a change, or does not have it in its journal yet.
    pub fn owe_changes(&self) -> bool {
        self.ranks.values().any(Session::owes_changes)
    }
    /// Something waits until all requests so far are safe: their servers are told once.
    pub fn hurry_all(&mut self, out: &mut Vec<Output>) {
        let last = self.next - 1;
        self.ranks
            .values_mut()
            .filter(|session| session.owes_changes())
            .for_each(|session| session.hurry(last, out));
    }
    /// It leaves for good.
    pub fn leave(&mut self, out: &mut Vec<Output>) {
        self.ranks
            .values_mut()
            .for_each(|session| session.leave(out));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_wire::Message;
    use nacre_wire::fs::Stamp;
    use nacre_wire::msg::fs::{FS_WINDOW, FsAnswer};

    const NOW: Time = Time(1);
    const OTHER: Rank = Rank(1);

    fn holder(rank: Rank) -> FsHolder {
        let address = Address("a".into());
        FsHolder {
            client: 9 + u64::from(rank.0),
            instance: Instance(1),
            address,
            name: "mds".into(),
        }
    }
    /// With a session with each of two ranks.
    fn sessions() -> Sessions {
        let mut sessions = Sessions::new("home".into(), Instance(5));
        open(&mut sessions, FIRST, &mut Vec::new());
        open(&mut sessions, OTHER, &mut Vec::new());
        sessions
    }
    fn open(sessions: &mut Sessions, rank: Rank, out: &mut Vec<Output>) {
        sessions.of(rank).on_away();
        sessions.on_holder(NOW, rank, &holder(rank), Holds::default(), out);
        let greeting = out.iter().rev().find_map(|output| match output {
            Output::Send {
                message: Message::FsSession(session),
                ..
            } => Some(session.greeting),
            _ => None,
        });
        sessions
            .of(rank)
            .on_welcome(NOW, greeting.unwrap_or(1), out);
    }
    /// Makes a request; returns its number, and the requests that were sent: number and
    /// `safe_below`.
    fn ask(sessions: &mut Sessions, rank: Rank) -> (u64, Vec<(u64, u64)>) {
        let mut out = Vec::new();
        let call = FsCall::Comply {
            ino: Ino::ROOT,
            number: 1,
            size: 1,
            mtime: Stamp(1),
            written: true,
        };
        let number = sessions.request(
            NOW,
            rank,
            Asked {
                call,
                place: None,
                foretold: None,
            },
            &mut out,
        );
        (number, sent(&out))
    }
    fn sent(out: &[Output]) -> Vec<(u64, u64)> {
        let request = |output: &Output| match output {
            Output::Send {
                message: Message::FsRequest(request),
                ..
            } => Some((request.number, request.safe_below)),
            Output::Send {
                message: Message::FsCaughtUp(_),
                ..
            } => Some((0, 0)),
            _ => None,
        };
        out.iter().filter_map(request).collect()
    }
    fn answer(sessions: &mut Sessions, rank: Rank, number: u64, safe: bool) -> Vec<(u64, u64)> {
        let reply = FsReply {
            number,
            safe,
            stamp: Stamp(1),
            place: None,
            keep: true,
            shares: Vec::new(),
            delegated: Vec::new(),
            changed: Vec::new(),
            caps: Vec::new(),
            answer: FsAnswer::Done {},
        };
        let mut out = Vec::new();
        assert!(sessions.on_reply(NOW, rank, reply, &mut out).is_some());
        sent(&out)
    }

    /// Numbers are assigned over all ranks together: each server sees gaps, and what is safe of its
    /// own.
    #[test]
    fn a_rank_sees_its_own_requests_of_one_numbering() {
        let mut sessions = sessions();
        assert_eq!(ask(&mut sessions, FIRST), (1, vec![(1, 1)]));
        assert_eq!(ask(&mut sessions, OTHER), (2, vec![(2, 2)]));
        assert_eq!(ask(&mut sessions, FIRST), (3, vec![(3, 1)]));
        answer(&mut sessions, FIRST, 1, true);
        answer(&mut sessions, FIRST, 3, false);
        let moment = sessions.moment(Some(Ino(7)));
        assert_eq!(ask(&mut sessions, FIRST), (4, vec![(4, 3)]));
        assert_eq!(ask(&mut sessions, OTHER), (5, vec![(5, 2)]));
        answer(&mut sessions, OTHER, 2, false);
        assert!(
            !sessions.is_safe_at(&moment, false),
            "3 had been answered by then"
        );
        sessions.of(FIRST).on_safe(NOW, &[3], &mut Vec::new());
        assert!(sessions.is_safe_at(&moment, false), "and 2 had not");
        assert!(!sessions.is_safe_at(&sessions.moment(Some(Ino(7))), false));
        let below: Vec<(Rank, u64)> = sessions.safe_below().collect();
        assert_eq!(below, [(FIRST, 4), (OTHER, 2)]);
    }

    /// One rank answers, the other one does not: its next request has a number beyond its server's
    /// window, which would drop it. So it waits until earlier requests are safe. The same with a
    /// new server, and the client has not caught up before it has sent what must come first.
    #[test]
    fn what_a_servers_window_does_not_reach_waits() {
        let mut sessions = sessions();
        let (old, _) = ask(&mut sessions, OTHER);
        for _ in 0..FS_WINDOW {
            let (number, _) = ask(&mut sessions, FIRST);
            answer(&mut sessions, FIRST, number, true);
        }
        assert!(
            sessions.is_free(OTHER),
            "what another rank is asked is no matter"
        );
        for _ in 1..FS_WINDOW / 2 {
            assert!(sessions.is_free(FIRST) && sessions.is_free(OTHER));
            let (number, _) = ask(&mut sessions, OTHER);
            answer(&mut sessions, OTHER, number, true);
        }
        assert!(sessions.is_free(FIRST) && !sessions.is_free(OTHER));
        for _ in 0..FS_WINDOW / 2 {
            let (number, _) = ask(&mut sessions, OTHER);
            answer(&mut sessions, OTHER, number, true);
        }
        answer(&mut sessions, OTHER, old, false);
        let (far, now) = ask(&mut sessions, OTHER);
        assert!(far >= old + FS_WINDOW && now.is_empty());
        let mut out = Vec::new();
        open(&mut sessions, OTHER, &mut out);
        assert_eq!(sent(&out), [(old, old)], "it has not caught up");
        out.clear();
        sessions.of(OTHER).on_safe(NOW, &[old], &mut out);
        assert_eq!(
            (sent(&out), sessions.is_free(OTHER)),
            (vec![(far, far), (0, 0)], true)
        );
    }

    /// A server died, and its next instance claimed another rank.
    #[test]
    fn a_server_that_has_another_rank_now_stays_where_it_is() {
        let mut sessions = sessions();
        let moved = FsHolder {
            instance: Instance(2),
            ..holder(FIRST)
        };
        sessions.of(OTHER).on_away();
        sessions.of(FIRST).on_away();
        sessions.on_holder(NOW, OTHER, &moved, Holds::default(), &mut Vec::new());
        let third = FsHolder {
            client: 77,
            ..holder(FIRST)
        };
        let mut out = Vec::new();
        sessions.on_holder(NOW, FIRST, &third, Holds::default(), &mut out);
        let met = |output: &Output| match output {
            Output::Meet {
                peer: Entity::Client(peer),
                ..
            } => Some(peer.0),
            _ => None,
        };
        assert_eq!(
            out.iter().filter_map(met).collect::<Vec<_>>(),
            [77],
            "the other session is with the first one's"
        );
        assert_eq!(
            (sessions.with(ClientId(9)), sessions.with(ClientId(77))),
            (Some(OTHER), Some(FIRST))
        );
    }
}
