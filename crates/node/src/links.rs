//! Which daemons are connected: one connection per pair, the newest session wins, one session with
//! the monitors.
//!
//! ```text
//!  simultaneous dialing:   A ──c1──▶ B          the connection dialed by the smaller entity stays:
//!                          A ◀──c2── B          B accepts c1 and abandons c2; A refuses c2
//! ```
//! B wrote its Hello on c2 before it answered on c1, so A, which handles unauthenticated peers
//! first, sees c2 while c1 is still in its handshake. When A's c1 is open already, a new connection
//! with B's name is a *new* session of B (it lost c1 or was restarted): it replaces c1.
//!
//! Invariant: `conns` names at most one connection per entity, the one used for sending.

use nacre_types::{ClusterId, Entity, Instance, MonId, Time};
use nacre_wire::map::Address;
use nacre_wire::msg::monitor::Hello;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::conn::State;
use crate::session_watchdog::SessionWatchdog;

const BACKOFF_MIN: Duration = Duration::from_millis(20);
const BACKOFF_MAX: Duration = Duration::from_millis(500);
/// A connection open for this long was not a failed attempt. In the long run, no peer is dialed
/// more often than once in this time.
const SETTLED: Duration = BACKOFF_MAX;

/// A refusal that another instance's connection caused: it is temporary, and no daemon ends for it.
const LATER: &str = "is connected already";

const TIE: &str = "has dialed you already";
const JOINING: &str = "has not been let in by the other monitors yet: ask one of them";

/// Whether a refusal only concerns the loser of two that dialed each other, or is temporary: it
/// needs no report.
pub fn is_passing(why: &str) -> bool {
    why.ends_with(TIE) || why.ends_with(JOINING)
}

/// Refusal that a monitor sends to all peers except monitors until it knows the other monitors: it
/// would answer for a cluster that it does not know.
pub fn joining(me: Entity) -> String {
    format!("{me} {JOINING}")
}

/// Possible addresses of a monitor, the likelier first: from the newest map, then from the
/// directory as of this process's start. A monitor may have been removed and added again at another
/// address since, or this process's map be older than its directory. After each failure the next
/// one is tried.
pub fn address_of_mon<'a>(
    by_map: Option<&'a str>,
    by_folder: Option<&'a str>,
    failures: u32,
) -> Option<&'a str> {
    let mut all: Vec<&str> = [by_map, by_folder]
        .into_iter()
        .flatten()
        .filter(|address| !address.is_empty())
        .collect();
    all.dedup();
    (!all.is_empty()).then(|| all[failures as usize % all.len()])
}

#[derive(Clone, Copy, Debug)]
struct Backoff {
    until: Time,
    delay: Duration,
    failures: u32,
}

/// State, whether we dialed it, and the peer.
type Known = (State, bool, Option<(Entity, Instance)>);

/// See the module head.
#[derive(Debug)]
pub struct Links {
    me: Entity,
    conns: BTreeMap<Entity, usize>,
    backoffs: BTreeMap<Entity, Backoff>,
    /// Addresses of peers that are in no map.
    met: BTreeMap<Entity, Address>,
    pub mon: MonSession,
}

impl Links {
    pub fn new(me: Entity) -> Self {
        Self {
            me,
            conns: BTreeMap::new(),
            backoffs: BTreeMap::new(),
            met: BTreeMap::new(),
            mon: MonSession::default(),
        }
    }
    /// The connection for sending to a peer.
    pub fn conn(&self, to: Entity) -> Option<usize> {
        self.conns.get(&to).copied()
    }
    pub fn is_empty(&self) -> bool {
        self.conns.is_empty()
    }
    /// Each peer with its connection.
    pub fn all(&self) -> impl Iterator<Item = (Entity, usize)> + '_ {
        self.conns.iter().map(|(peer, id)| (*peer, *id))
    }
    pub fn dialed(&mut self, to: Entity, id: usize) {
        self.conns.insert(to, id);
    }
    pub fn opened(&mut self, peer: Entity, id: usize) {
        self.conns.insert(peer, id);
        // Its delay is kept until this connection has settled.
        if let Some(backoff) = self.backoffs.get_mut(&peer) {
            (backoff.until, backoff.failures) = (Time::ZERO, 0);
        }
    }
    pub fn dropped(&mut self, peer: Entity, id: usize) {
        if self.conns.get(&peer) == Some(&id) {
            self.conns.remove(&peer);
        }
    }
    /// Adds the address of a peer that is in no map; without an address removes it.
    pub fn meet(&mut self, peer: Entity, address: Address) {
        let was = if address.0.is_empty() {
            self.met.remove(&peer)
        } else {
            self.met.insert(peer, address)
        };
        // A new address is tried at once; repeating the same one does not cause more attempts.
        if was.as_ref() != self.met.get(&peer) {
            self.backoffs.remove(&peer);
        }
    }
    pub fn met(&self, peer: Entity) -> Option<&str> {
        self.met.get(&peer).map(|address| address.0.as_str())
    }
    pub fn may_dial(&self, now: Time, to: Entity) -> bool {
        self.backoffs
            .get(&to)
            .is_none_or(|backoff| backoff.until <= now)
    }
    /// A connection ended. `open_for`: how long it was open, if it ever was.
    ///
    /// After the end of a settled connection, redial at once: a client resends then, and the next
    /// time only seconds later. A connection to a peer that repeatedly accepts and closes never
    /// settles.
    pub fn ended(&mut self, now: Time, who: Entity, open_for: Option<Duration>) {
        // Other clients are not dialed; every client that ever connected would be remembered until
        // this daemon ends.
        if matches!(who, Entity::Client(_)) && !self.met.contains_key(&who) {
            return;
        }
        if open_for.is_some_and(|open_for| open_for >= SETTLED) {
            self.backoffs.remove(&who);
            return;
        }
        let last = self
            .backoffs
            .get(&who)
            .map_or(BACKOFF_MIN / 2, |backoff| backoff.delay);
        let delay = (last * 2).min(BACKOFF_MAX);
        let failures = if open_for.is_none() {
            self.failures(who) + 1
        } else {
            0
        };
        self.backoffs.insert(
            who,
            Backoff {
                until: now + delay,
                delay,
                failures,
            },
        );
    }
    /// Number of consecutive connections that ended before they were open.
    pub fn failures(&self, who: Entity) -> u32 {
        self.backoffs
            .get(&who)
            .map_or(0, |backoff| backoff.failures)
    }

    /// Whether an unauthenticated peer may have the identity that it claims; returns the connection
    /// that it replaces. `takes_sessions`: also from peers other than monitors.
    ///
    /// # Errors
    /// The refusal to send.
    pub fn judge(
        &self,
        hello: &Hello,
        cluster: ClusterId,
        supported: u64,
        takes_sessions: bool,
        known: impl Fn(usize) -> Option<Known>,
    ) -> Result<Option<usize>, String> {
        let asks_for_cluster =
            hello.cluster == ClusterId(0) && matches!(hello.from, Entity::Client(_));
        if hello.cluster != cluster && !asks_for_cluster {
            return Err(format!(
                "{} belongs to cluster {cluster}, you to cluster {}: one of you has a wrong directory or address",
                self.me, hello.cluster
            ));
        }
        if let Some(to) = hello.to
            && to != self.me
        {
            return Err(format!(
                "this is {}, not {to}: the address is out of date",
                self.me
            ));
        }
        if hello.required & !supported != 0 {
            return Err(format!(
                "you need features {:#x} that {} lacks: upgrade it",
                hello.required & !supported,
                self.me
            ));
        }
        if hello.from == self.me {
            return Err(format!(
                "somebody else says it is {}: is a copy of the directory in use?",
                self.me
            ));
        }
        let replaced = self.judge_known(hello, known)?;
        if takes_sessions || matches!(hello.from, Entity::Mon(_)) {
            Ok(replaced)
        } else {
            Err(joining(self.me))
        }
    }

    /// The decision for a peer to which there is a connection already.
    fn judge_known(
        &self,
        hello: &Hello,
        known: impl Fn(usize) -> Option<Known>,
    ) -> Result<Option<usize>, String> {
        let Some(old) = self.conn(hello.from) else {
            return Ok(None);
        };
        match known(old) {
            // Both dialed; see the module head.
            Some((State::Connecting | State::Greeting, true, _)) if self.me < hello.from => {
                Err(format!("{} {TIE}", self.me))
            }
            Some((_, _, Some((_, instance)))) if instance > hello.instance => {
                Err(format!("a later instance of {} {LATER}", hello.from))
            }
            _ => Ok(Some(old)),
        }
    }
}

/// Why the answer to our dialing is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Another daemon listens there.
    Wrong(String),
    /// The right daemon, but it requires features that we lack.
    Lacking(String),
}

/// Checks that the first frame of a connection that we dialed comes from the expected peer.
///
/// # Errors
/// [`Answer`].
pub fn judge_answer(hello: &Hello, expected: Entity, cluster: ClusterId) -> Result<(), Answer> {
    if hello.from != expected || hello.cluster != cluster {
        let why = format!(
            "{} of cluster {} answers in place of {expected}",
            hello.from, hello.cluster
        );
        return Err(Answer::Wrong(why));
    }
    if hello.required != 0 {
        let why = format!(
            "{expected} needs features {:#x} that this version lacks: upgrade it",
            hello.required
        );
        return Err(Answer::Lacking(why));
    }
    Ok(())
}

/// State of the session with the monitors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Session {
    /// To be dialed after a delay.
    #[default]
    None,
    /// Handshake in progress.
    Dialing(MonId),
    /// Established.
    Up(MonId),
}

/// One session with any monitor: kept until it ends, then the next one is tried.
#[derive(Debug, Default)]
pub struct MonSession {
    pub session: Session,
    pub retry_at: Time,
    last: Option<MonId>,
    failures: u32,
    /// Monitors that have refused us since one last accepted.
    refused: BTreeSet<MonId>,
    candidates: usize,
    /// Monitors the session that is up.
    pub watchdog: SessionWatchdog,
}

impl MonSession {
    /// Whether there is more than one monitor to choose from.
    pub fn has_choice(&self) -> bool {
        self.candidates > 1
    }
    pub fn current(&self) -> Option<MonId> {
        match self.session {
            Session::Up(mon) => Some(mon),
            Session::None | Session::Dialing(_) => None,
        }
    }
    /// Time of the next attempt.
    pub fn wake_at(&self) -> Time {
        if self.session == Session::None {
            self.retry_at
        } else {
            Time::MAX
        }
    }
    /// The next monitor to try: the one after the last, in a circle.
    pub fn pick(&mut self, now: Time, candidates: &[MonId]) -> Option<MonId> {
        self.candidates = candidates.len();
        let next = candidates
            .iter()
            .find(|mon| self.last.is_none_or(|last| **mon > last))
            .or(candidates.first());
        match next {
            Some(mon) => {
                self.last = Some(*mon);
                self.session = Session::Dialing(*mon);
            }
            None => self.retry_at = now + BACKOFF_MAX,
        }
        next.copied()
    }
    /// A connection to a monitor is open. True: it is the session.
    pub fn on_open(&mut self, mon: MonId) -> bool {
        let ours = self.session == Session::Dialing(mon);
        self.refused.remove(&mon);
        if ours {
            self.session = Session::Up(mon);
            self.watchdog = SessionWatchdog::default();
            self.failures = 0;
            self.refused.clear();
        }
        ours
    }
    pub fn on_lost(&mut self, now: Time, mon: MonId) {
        if self.session == Session::Up(mon) || self.session == Session::Dialing(mon) {
            self.session = Session::None;
            // At once to another one; with a delay once all have failed.
            let circles = self.failures as usize / self.candidates.max(1);
            self.failures += 1;
            let delay = if circles == 0 && self.candidates > 1 {
                Duration::ZERO
            } else {
                (BACKOFF_MIN * 2_u32.pow(circles.min(6) as u32)).min(BACKOFF_MAX)
            };
            self.retry_at = now + delay;
        }
    }
    /// A monitor refused us. True: all monitors have, and continuing is pointless. A monitor, which
    /// chooses no session, has `others` others.
    pub fn on_refused(&mut self, by: Entity, why: &str, others: usize) -> bool {
        // A peer that claims to be a later instance of ours does not end this daemon: only the
        // monitors' map does. Nor does a temporary refusal.
        if why.ends_with(LATER) || is_passing(why) {
            return false;
        }
        if let Entity::Mon(mon) = by {
            self.refused.insert(mon);
        }
        matches!(by, Entity::Mon(_))
            && self.refused.len()
                >= if self.candidates > 0 {
                    self.candidates
                } else {
                    others.max(1)
                }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session_watchdog::Look;
    use nacre_types::{Name, OsdId};

    const CLUSTER: ClusterId = ClusterId(7);

    fn osd(id: u32) -> Entity {
        Entity::Osd(OsdId(id))
    }
    fn hello(from: Entity, to: Entity) -> Hello {
        let (supported, required) = (0, 0);
        let auth = bytes::Bytes::new();
        Hello {
            cluster: CLUSTER,
            from,
            instance: Instance(3),
            to: Some(to),
            supported,
            required,
            address: None,
            auth,
            name: Name::default(),
        }
    }
    fn judge(links: &Links, hello: &Hello, known: Known) -> Result<Option<usize>, String> {
        links.judge(hello, CLUSTER, 0, true, |_| Some(known))
    }

    /// A service reports its peer's address as often as it likes: repeating the same address made
    /// this dial an absent server without a pause.
    #[test]
    fn a_peer_is_dialed_at_once_where_it_was_not_before_and_no_more_often_where_it_was() {
        let peer = Entity::Client(nacre_types::ClientId(3));
        let (mut links, now, at) = (Links::new(osd(1)), Time(5), |text: &str| {
            Address(text.to_owned())
        });
        links.ended(now, peer, None);
        assert!(
            links.may_dial(now, peer) && links.backoffs.is_empty(),
            "a client that no one is told of"
        );
        links.meet(peer, at("a:1"));
        links.ended(now, peer, None);
        links.meet(peer, at("a:1"));
        assert_eq!(
            (links.may_dial(now, peer), links.met(peer)),
            (false, Some("a:1"))
        );
        links.meet(peer, at("b:2"));
        assert_eq!(
            (links.may_dial(now, peer), links.met(peer)),
            (true, Some("b:2"))
        );
        links.ended(now, peer, None);
        links.meet(peer, at(""));
        assert_eq!(
            (links.met(peer), links.backoffs.len(), links.met.len()),
            (None, 0, 0),
            "nothing is left of it"
        );
    }

    #[test]
    fn of_two_that_dial_each_other_exactly_one_gives_way() {
        let dialing: Known = (State::Greeting, true, None);
        let (mut small, mut large) = (Links::new(osd(1)), Links::new(osd(2)));
        small.dialed(osd(2), 10);
        large.dialed(osd(1), 20);
        assert!(
            judge(&small, &hello(osd(2), osd(1)), dialing).is_err(),
            "the smaller one's connection stays"
        );
        assert_eq!(
            judge(&large, &hello(osd(1), osd(2)), dialing),
            Ok(Some(20)),
            "the larger one gives up its own"
        );
    }

    #[test]
    fn a_new_session_replaces_the_old_but_an_old_instance_does_not() {
        let mut links = Links::new(osd(1));
        links.opened(osd(2), 10);
        let open = |life| (State::Open, false, Some((osd(2), Instance(life))));
        assert_eq!(judge(&links, &hello(osd(2), osd(1)), open(3)), Ok(Some(10)));
        assert_eq!(judge(&links, &hello(osd(2), osd(1)), open(2)), Ok(Some(10)));
        assert!(judge(&links, &hello(osd(2), osd(1)), open(4)).is_err());
    }

    /// F61: one Hello with a larger instance, from any peer, ended the real daemon's process: it
    /// was refused by all monitors.
    #[test]
    fn a_strangers_hello_ends_nobody() {
        let mut links = Links::new(Entity::Mon(MonId(0)));
        links.opened(osd(2), 10);
        let stranger: Known = (State::Open, false, Some((osd(2), Instance(1000))));
        let why = judge(&links, &hello(osd(2), Entity::Mon(MonId(0))), stranger)
            .expect_err("an older instance");
        let mut session = MonSession::default();
        session.pick(Time(0), &[MonId(0)]);
        assert!(
            !session.on_refused(Entity::Mon(MonId(0)), &why, 0),
            "it tries again"
        );
        assert!(
            session.on_refused(Entity::Mon(MonId(0)), "belongs to cluster 9", 0),
            "the monitors' own word"
        );
    }

    /// A stopped and continued monitor dialed another one whose own attempt was lost in a cut
    /// network. Both had dialed, so it was refused; since a monitor has no session with monitors,
    /// the one refusal counted as that of all of them, and it ended.
    #[test]
    fn of_two_that_dialed_each_other_none_ends() {
        let (mon, other) = (Entity::Mon(MonId(0)), Entity::Mon(MonId(1)));
        let mut links = Links::new(mon);
        links.dialed(other, 10);
        let why = judge(&links, &hello(other, mon), (State::Connecting, true, None))
            .expect_err("both have dialed");
        assert!(!MonSession::default().on_refused(mon, &why, 1), "{why}");
    }

    /// One wrong address was enough to end a monitor, though the others knew it: the process now at
    /// that address refused it.
    #[test]
    fn a_monitor_ends_when_all_others_refuse_it() {
        let (why, mut session) = (
            "this is osd.5, not mon.2: the address is out of date",
            MonSession::default(),
        );
        assert!(!session.on_refused(Entity::Mon(MonId(2)), why, 2));
        assert!(
            !session.on_refused(Entity::Mon(MonId(2)), why, 2),
            "it is still one"
        );
        session.on_open(MonId(2));
        assert!(
            !session.on_refused(Entity::Mon(MonId(1)), why, 2),
            "the other one has taken it since"
        );
        assert!(session.on_refused(Entity::Mon(MonId(2)), why, 2));
    }

    #[test]
    fn strangers_of_another_cluster_or_for_another_daemon_are_told_so() {
        let links = Links::new(osd(1));
        let free = |hello: &Hello| links.judge(hello, CLUSTER, 1, true, |_| None);
        let good = hello(osd(2), osd(1));
        assert_eq!(free(&good), Ok(None));
        let other = Hello {
            cluster: ClusterId(8),
            ..good.clone()
        };
        assert!(free(&other).is_err_and(|why| why.contains("belongs to cluster")));
        let wrong = Hello {
            to: Some(osd(5)),
            ..good.clone()
        };
        assert!(free(&wrong).is_err_and(|why| why.contains("this is osd.1")));
        let new = Hello {
            required: 3,
            ..good.clone()
        };
        assert!(free(&new).is_err_and(|why| why.contains("0x2")));
        // Only a client may not know its cluster yet.
        assert!(
            free(&Hello {
                cluster: ClusterId(0),
                ..good
            })
            .is_err()
        );
    }

    // F26: a monitor that was added again at another port was dialed at its old one for ever.
    #[test]
    fn a_monitor_is_looked_for_where_the_map_says_and_where_the_folder_said() {
        let at = |failures| address_of_mon(Some("new:1"), Some("old:1"), failures);
        assert_eq!(
            [at(0), at(1), at(2)],
            [Some("new:1"), Some("old:1"), Some("new:1")]
        );
        assert_eq!(address_of_mon(None, Some("old:1"), 3), Some("old:1"));
        assert_eq!(
            address_of_mon(Some(""), Some("old:1"), 0),
            Some("old:1"),
            "it has no port by the map"
        );
        assert_eq!(address_of_mon(None, None, 0), None);
        let mut links = Links::new(osd(1));
        let mon = Entity::Mon(MonId(2));
        links.ended(Time(0), mon, None);
        links.ended(Time(1), mon, None);
        assert_eq!(links.failures(mon), 2);
        links.ended(Time(2), mon, Some(Duration::ZERO));
        assert_eq!(links.failures(mon), 0, "it was there");
    }

    // F26: clients asked the lowest monitor, which had not joined, and took its "no majority, 0 of
    // 0" for the cluster's state.
    #[test]
    fn a_monitor_that_has_not_joined_is_passed_over_and_is_no_verdict() {
        let mut session = MonSession::default();
        session.pick(Time(0), &[MonId(0)]);
        assert!(!session.on_refused(Entity::Mon(MonId(0)), &joining(Entity::Mon(MonId(0))), 0));
        assert!(session.on_refused(Entity::Mon(MonId(0)), "you belong to another cluster", 0));
    }

    #[test]
    fn the_session_goes_round_the_monitors_and_slows_down() {
        let mons = [MonId(0), MonId(1), MonId(2)];
        let (mut session, mut now, mut seen) = (MonSession::default(), Time(0), Vec::new());
        for _ in 0..6 {
            let mon = session.pick(now, &mons).expect("there are some");
            seen.push(mon.0);
            session.on_lost(now, mon);
            now = session.retry_at;
        }
        assert_eq!(seen, [0, 1, 2, 0, 1, 2]);
        assert!(now > Time(0), "waits after a whole circle");
        let mon = session.pick(now, &mons).expect("there are some");
        assert!(session.on_open(mon) && session.current() == Some(mon));
        assert!(
            !session.on_open(MonId(2)),
            "another connection is not the session"
        );
    }

    /// A session given up for its silence was followed by one that inherited the silence, and was
    /// given up at the first check, through all monitors in a circle.
    #[test]
    fn a_new_session_has_not_been_silent_yet() {
        let (mons, now) = ([MonId(0), MonId(1)], Time(0));
        let mut session = MonSession::default();
        let looks: Vec<usize> = (0..4)
            .map(|_| {
                let mon = session.pick(now, &mons).expect("two");
                assert!(session.on_open(mon));
                let looks = (1..100)
                    .find(|_| matches!(session.watchdog.look(true, false), Look::GiveUp(_)));
                session.on_lost(now, mon);
                looks.expect("it never answers")
            })
            .collect();
        assert!(
            looks[0] > 1 && looks.iter().all(|count| *count == looks[0]),
            "looks until each was given up: {looks:?}"
        );
    }

    /// Each client that ever connected was remembered by each daemon until that one ended. (Found
    /// by reading the code.)
    #[test]
    fn clients_that_are_gone_leave_nothing() {
        let mut links = Links::new(osd(1));
        for n in 0..1000 {
            let client = Entity::Client(nacre_types::ClientId(n));
            links.ended(Time(n), client, n.is_multiple_of(2).then_some(SETTLED));
        }
        assert!(links.backoffs.is_empty());
    }

    /// Dials until the largest delay is reached; returns it. The connection ends in this way each
    /// time.
    fn slowest(
        links: &mut Links,
        peer: Entity,
        mut now: Time,
        open_for: Option<Duration>,
    ) -> Duration {
        let mut waited = Duration::ZERO;
        for _ in 0..20 {
            assert!(links.may_dial(now, peer));
            if open_for.is_some() {
                links.opened(peer, 7);
            }
            links.ended(now, peer, open_for);
            assert!(!links.may_dial(now, peer));
            let wait = (1..1000)
                .map(Duration::from_millis)
                .find(|wait| links.may_dial(now + *wait, peer))
                .expect("it is");
            assert!(
                wait >= waited && (BACKOFF_MIN..=BACKOFF_MAX).contains(&wait),
                "{wait:?} after {waited:?}"
            );
            (now, waited) = (now + wait, wait);
        }
        waited
    }

    /// An absent peer is redialed for as long as it takes, less and less often.
    #[test]
    fn a_peer_that_is_away_is_dialed_again_less_and_less_often() {
        let (mut links, peer) = (Links::new(osd(1)), osd(2));
        assert_eq!(slowest(&mut links, peer, Time(0), None), BACKOFF_MAX);
        links.opened(peer, 7);
        assert!(
            links.may_dial(Time(0), peer) && links.failures(peer) == 0,
            "it is there"
        );
    }

    /// A connection broke, and the messages that its client resent at once were dropped, since no
    /// peer may be dialed just after the end of a connection: everything in flight there stalled
    /// for 2 s.
    #[test]
    fn a_peer_that_was_there_for_a_while_is_dialed_at_once() {
        let (mut links, peer, now) = (Links::new(osd(1)), osd(2), Time(1 << 40));
        for _ in 0..3 {
            links.opened(peer, 7);
            links.ended(now, peer, Some(SETTLED));
            assert!(links.may_dial(now, peer));
        }
        links.ended(now, peer, None);
        assert!(!links.may_dial(now, peer), "that attempt failed");
        assert!(
            links.may_dial(now + BACKOFF_MIN, peer),
            "the first one that did"
        );
    }

    /// A peer that accepts connections and closes them at once was dialed every 20 ms for as long
    /// as it did.
    #[test]
    fn a_peer_that_closes_what_it_accepts_is_dialed_less_and_less_often() {
        let (mut links, peer) = (Links::new(osd(1)), osd(2));
        let open_for = SETTLED - Duration::from_millis(1);
        assert_eq!(
            slowest(&mut links, peer, Time(0), Some(open_for)),
            BACKOFF_MAX
        );
        links.ended(Time(0), peer, Some(SETTLED));
        assert!(links.may_dial(Time(0), peer), "it has changed its ways");
    }

    /// The end of a replaced connection was handled after its successor was open, and removed the
    /// successor, too.
    #[test]
    fn a_connection_that_was_replaced_does_not_take_its_successor_along() {
        let (mut links, peer) = (Links::new(osd(1)), osd(2));
        links.opened(peer, 10);
        links.opened(peer, 11);
        links.dropped(peer, 10);
        assert_eq!(links.conn(peer), Some(11));
        links.dropped(peer, 11);
        assert_eq!((links.conn(peer), links.is_empty()), (None, true));
    }

    /// At a dialed address another daemon may listen now.
    #[test]
    fn who_answers_in_place_of_another_is_not_taken() {
        let answer = hello(osd(2), osd(1));
        assert_eq!(judge_answer(&answer, osd(2), CLUSTER), Ok(()));
        let another = judge_answer(&answer, osd(3), CLUSTER);
        assert!(
            matches!(&another, Err(Answer::Wrong(why)) if why.contains("in place of osd.3")),
            "{another:?}"
        );
        let foreign = judge_answer(&answer, osd(2), ClusterId(8));
        assert!(matches!(&foreign, Err(Answer::Wrong(_))), "{foreign:?}");
        let newer = judge_answer(
            &Hello {
                required: 4,
                ..answer
            },
            osd(2),
            CLUSTER,
        );
        assert!(
            matches!(&newer, Err(Answer::Lacking(why)) if why.contains("0x4")),
            "{newer:?}"
        );
    }

    #[test]
    fn a_monitor_without_the_others_takes_only_monitors() {
        let (me, links) = (Entity::Mon(MonId(0)), Links::new(Entity::Mon(MonId(0))));
        let judge = |from| links.judge(&hello(from, me), CLUSTER, 0, false, |_| None);
        assert_eq!(judge(Entity::Mon(MonId(1))), Ok(None));
        assert_eq!(judge(osd(1)), Err(joining(me)));
    }
}
