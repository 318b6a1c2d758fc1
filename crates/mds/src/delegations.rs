//! Directories delegated to clients: their holder creates and removes names there itself, and
//! reports that later (beyond the paper; ADR 0006, "Delegated directories").
//!
//! ```text
//!  created a name in dir, and no other client caches anything of dir ─▶ delegated with the answer
//!  another client's request concerns dir, or something in it ─▶ FsCaps 8 ─▶ Comply 8 ─▶ returned, and the request continues
//!  its client greets over a new connection ─▶ returned when it has caught up
//! ```
//! A client sends what it has done there before it complies, and before it has caught up; so later
//! requests see all of it.
//!
//! Invariant: a directory is delegated to one client at a time, until that client has reported
//! everything it did there, or has no session any more.

use nacre_types::{ClientId, Ino, Time};
use nacre_wire::msg::fs::{FsCap, FsCapNews};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// For this long after others wanted a directory it is not delegated again: they are likely to look
/// again.
const COOLING: Duration = Duration::from_secs(5);
/// Most directories remembered for that.
const COOLING_MAX: usize = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Held,
    /// Its client has greeted: it does nothing there any more, but has not reported everything.
    Greeted,
    /// It has reported everything, and some of it still has to be executed here.
    CaughtUp,
}

#[derive(Clone, Copy, Debug)]
struct Delegation {
    client: ClientId,
    state: State,
    /// If recalled: the number, and since when.
    asked: Option<(u64, Time)>,
}

/// See the module head.
#[derive(Debug, Default)]
pub(crate) struct Delegations {
    dirs: BTreeMap<Ino, Delegation>,
    clients: BTreeMap<ClientId, BTreeSet<Ino>>,
    cooling: BTreeMap<Ino, Time>,
    /// The last number used.
    last: u64,
    /// Messages to send, in order.
    news: Vec<(ClientId, FsCapNews)>,
}

impl Delegations {
    /// Starts numbering after `number`, so that an answer to an earlier holder cannot match a
    /// number of this one.
    pub const fn number_from(&mut self, number: u64) {
        self.last = number;
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.dirs.is_empty()
    }
    /// Whether a directory is delegated to a client, which may continue there.
    pub fn has(&self, client: ClientId, dir: Ino) -> bool {
        let is_held = |has: &Delegation| {
            has.client == client && has.state == State::Held && has.asked.is_none()
        };
        self.dirs.get(&dir).is_some_and(is_held)
    }
    /// Whether another client has it.
    pub fn is_anothers(&self, client: ClientId, dir: Ino) -> bool {
        self.dirs.get(&dir).is_some_and(|has| has.client != client)
    }
    /// Whether any client has it.
    pub fn is_delegated(&self, dir: Ino) -> bool {
        self.dirs.contains_key(&dir)
    }
    /// Whether it may be delegated, considering recent interest of others.
    pub fn is_free(&self, now: Time, dir: Ino) -> bool {
        !self.dirs.contains_key(&dir) && self.cooling.get(&dir).is_none_or(|until| *until <= now)
    }
    /// Delegates a directory to a client.
    pub fn delegate(&mut self, client: ClientId, dir: Ino) {
        let before = self.dirs.insert(
            dir,
            Delegation {
                client,
                state: State::Held,
                asked: None,
            },
        );
        assert!(before.is_none(), "{dir} is delegated twice");
        self.clients.entry(client).or_default().insert(dir);
    }
    /// Recalls it.
    pub fn take_back(&mut self, now: Time, dir: Ino) {
        let Some(has) = self.dirs.get_mut(&dir).filter(|has| has.asked.is_none()) else {
            return;
        };
        self.last += 1;
        has.asked = Some((self.last, now));
        self.news.push((
            has.client,
            FsCapNews {
                ino: dir,
                cap: FsCap::Nothing {},
                number: self.last,
            },
        ));
        if self.cooling.len() >= COOLING_MAX {
            self.cooling.retain(|_, until| now < *until);
        }
        self.cooling.insert(dir, now + COOLING);
    }
    /// Recalls all.
    pub fn take_back_all(&mut self, now: Time) {
        let all: Vec<Ino> = self.dirs.keys().copied().collect();
        all.into_iter().for_each(|dir| self.take_back(now, dir));
    }
    /// A client has returned it, if that is the number of the recall.
    pub fn comply(&mut self, client: ClientId, dir: Ino, number: u64) {
        let is_asked = |has: &&Delegation| {
            has.client == client && has.asked.is_some_and(|(asked, _)| asked <= number)
        };
        if self.dirs.get(&dir).filter(is_asked).is_some() {
            self.remove(dir);
        }
    }
    /// A client greets: over another connection, or after its lease has ended.
    pub fn greet(&mut self, client: ClientId) {
        self.each_of(client, |has| has.state = State::Greeted);
    }
    /// It has sent everything that it did before.
    pub fn caught_up(&mut self, client: ClientId) {
        self.each_of(client, |has| {
            if has.state == State::Greeted {
                has.state = State::CaughtUp;
            }
        });
    }
    /// All of that has been executed.
    pub fn end_caught_up(&mut self, client: ClientId) {
        let all = self.clients.get(&client).into_iter().flatten().copied();
        let over: Vec<Ino> = all
            .filter(|dir| self.dirs[dir].state == State::CaughtUp)
            .collect();
        over.into_iter().for_each(|dir| self.remove(dir));
    }
    /// Clients with delegations.
    pub fn clients(&self) -> impl Iterator<Item = ClientId> {
        self.clients.keys().copied()
    }
    /// A client has no session any more.
    pub fn end(&mut self, client: ClientId) {
        self.news.retain(|(who, _)| *who != client);
        for dir in self.clients.remove(&client).unwrap_or_default() {
            self.dirs.remove(&dir);
        }
    }
    /// A directory was removed.
    pub fn gone(&mut self, dir: Ino) {
        self.remove(dir);
        self.news.retain(|(_, news)| news.ino != dir);
    }
    /// Clients with open recalls, and since when.
    pub fn owing(&self) -> impl Iterator<Item = (ClientId, Time)> {
        self.dirs
            .values()
            .filter_map(|has| has.asked.map(|(_, since)| (has.client, since)))
    }
    /// Takes the messages to send.
    pub fn take(&mut self) -> Vec<(ClientId, FsCapNews)> {
        std::mem::take(&mut self.news)
    }

    fn each_of(&mut self, client: ClientId, change: impl Fn(&mut Delegation)) {
        for dir in self.clients.get(&client).into_iter().flatten() {
            change(self.dirs.get_mut(dir).expect("both say who has it"));
        }
    }
    fn remove(&mut self, dir: Ino) {
        let Some(Delegation { client, .. }) = self.dirs.remove(&dir) else {
            return;
        };
        if let Some(of_client) = self.clients.get_mut(&client) {
            of_client.remove(&dir);
            if of_client.is_empty() {
                self.clients.remove(&client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANNA: ClientId = ClientId(1);
    const BERT: ClientId = ClientId(2);
    const DIR: Ino = Ino(50);
    const NOW: Time = Time(1);

    fn held() -> Delegations {
        let mut all = Delegations::default();
        all.delegate(ANNA, DIR);
        assert!(all.has(ANNA, DIR) && all.is_anothers(BERT, DIR) && !all.is_anothers(ANNA, DIR));
        all
    }

    #[test]
    fn what_is_taken_back_is_asked_for_once_and_returned_by_its_answer() {
        let mut all = held();
        all.take_back(NOW, DIR);
        all.take_back(NOW, DIR);
        let news = all.take();
        let [
            (
                ANNA,
                FsCapNews {
                    ino: DIR, number, ..
                },
            ),
        ] = news[..]
        else {
            panic!("{news:?}")
        };
        assert!(!all.has(ANNA, DIR) && all.owing().eq([(ANNA, NOW)]));
        all.comply(ANNA, DIR, number - 1);
        all.comply(BERT, DIR, number);
        assert!(
            all.is_anothers(BERT, DIR),
            "that is an answer to something else"
        );
        all.comply(ANNA, DIR, number);
        assert!(all.is_empty() && all.owing().next().is_none());
        assert!(
            !all.is_free(NOW, DIR) && all.is_free(NOW + COOLING, DIR),
            "others will look again"
        );
    }

    /// Over a new connection the client first sends what it had done before: until that is
    /// executed, the directory is not shown to others.
    #[test]
    fn what_a_client_had_when_it_greets_is_returned_when_it_has_caught_up() {
        let mut all = held();
        all.delegate(ANNA, Ino(60));
        all.caught_up(ANNA);
        all.greet(ANNA);
        all.end_caught_up(ANNA);
        assert!(!all.has(ANNA, DIR) && all.is_anothers(BERT, DIR));
        all.caught_up(ANNA);
        assert!(all.is_anothers(BERT, DIR) && all.clients().eq([ANNA]));
        all.end_caught_up(ANNA);
        assert!(all.is_empty() && all.is_free(NOW, DIR));
    }

    #[test]
    fn nothing_is_left_of_a_client_or_a_directory_that_goes() {
        let mut all = held();
        all.take_back_all(NOW);
        all.gone(DIR);
        assert!(all.is_empty() && all.take().is_empty());
        let mut all = held();
        all.take_back(NOW, DIR);
        all.end(ANNA);
        assert!(all.is_empty() && all.take().is_empty() && all.clients().next().is_none());
    }
}
