//! Names that clients create and remove themselves in directories delegated to them (see
//! [`crate::delegations`]).
//!
//! ```text
//!  Make, Unlink, no other client has a share of the directory, no quota above ─▶ delegated
//!  Numbers ─▶ a range of them is recorded in the journal as assigned ─▶ answered
//!  another client's request, before and after evaluation: concerns something delegated? ─▶ recalled; the request waits
//!  a quota is set, the cluster is full ─▶ all are recalled
//! ```
//! Foretold requests of one client are executed in the order in which it performed them, and its
//! later requests after them: each may depend on earlier ones.

use super::*;
use crate::evaluate::errno::EIO;
use nacre_wire::fs::quota::PREFIX;

/// Numbers that a client gets at a time.
const NUMBERS: u32 = 1024;
/// How often that happens in one batch, at most: see [`EARLY_MAX`].
const TIMES_MAX: u32 = 128;

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Delegating {
    /// How often numbers were assigned in a batch.
    given: (u64, u32),
    /// Requests that wait until nothing is delegated.
    ending: BTreeSet<(ClientId, u64)>,
    /// Changes that clients made themselves under an earlier holder: executed before anything else.
    first: BTreeSet<(ClientId, u64)>,
}

impl Mds {
    /// Whether a client creates names itself where it may; not before it says so.
    pub fn on_delegable(&mut self, client: ClientId, delegable: bool) {
        if let Some(session) = self.sessions.get_mut(&client) {
            session.delegable = delegable;
        }
    }
    /// All clients have come: changes that they made themselves are executed now.
    pub(super) fn put_foretold_first(&mut self) {
        let foretold = self
            .waiting
            .iter()
            .filter(|(_, request)| request.foretold.is_some());
        self.delegating.first = foretold
            .map(|(client, request)| (*client, request.number))
            .collect();
    }
    /// Whether some of those are still to be executed, and this request is none of them. Attribute
    /// changes that a client made itself do not wait: otherwise its later requests would be
    /// executed first, as soon as the last name is.
    pub(super) fn waits_for_foretold(&self, client: ClientId, request: &FsRequest) -> bool {
        let first = &self.delegating.first;
        let is_done = request.again.is_some() || request.call.is_foretold();
        !is_done && !first.is_empty() && !first.contains(&(client, request.number))
    }

    /// Gives a client numbers, or does so with a later batch: they are assigned once that batch is
    /// safe.
    pub(super) fn give_numbers(&mut self) -> Option<Outcome> {
        let batch = self.journal.announce();
        let (last, times) = self.delegating.given;
        let times = if last == batch { times + 1 } else { 1 };
        self.hurry();
        if times > TIMES_MAX {
            return None;
        }
        self.delegating.given = (batch, times);
        let first = Ino::given(self.config.rank, self.journal.serial());
        self.journal.take_serials(u64::from(NUMBERS));
        let answer = FsAnswer::Numbers {
            first,
            count: NUMBERS,
        };
        Some(Outcome {
            when_safe: true,
            ..Outcome::only(answer)
        })
    }
    /// Whether a number that a client has assigned itself is one of its own; otherwise its request
    /// fails.
    pub(super) fn refuse_wrong_number(&self, request: &FsRequest) -> Option<Outcome> {
        let made = request
            .foretold
            .filter(|_| request.again.is_none())
            .map(|foretold| foretold.made)?;
        let is_given = made.rank() == self.config.rank
            && made < Ino::given(self.config.rank, self.journal.serial())
            && self.tree.place(made).is_none();
        (made != Ino::TOP && !is_given).then(|| Outcome::only(FsAnswer::Failed { errno: EIO }))
    }

    /// Delegates the directories that an answer's client may have exclusively from now on, if the
    /// answer can say so.
    pub(super) fn delegate(&mut self, client: ClientId, call: &FsCall, reply: &mut FsReply) {
        let made = match &reply.answer {
            FsAnswer::Failed { .. } => return,
            FsAnswer::Node { node, made: true } => {
                Some(node).filter(|node| node.inode.is_directory())
            }
            _ => None,
        };
        let dir = match call {
            FsCall::Make { dir, .. } | FsCall::Unlink { dir, .. } => *dir,
            _ => return,
        };
        for dir in [Some(dir), made.map(|node| node.inode.ino)]
            .into_iter()
            .flatten()
        {
            if self.may_delegate(client, dir) {
                self.delegations.delegate(client, dir);
            }
            if self.delegations.has(client, dir) {
                reply.delegated.push(dir);
            }
        }
    }
    fn may_delegate(&self, client: ClientId, dir: Ino) -> bool {
        let is_own = dir.rank() == self.config.rank && !dir.is_hidden();
        let is_free = self.delegations.is_free(self.now, dir) && self.delegating.ending.is_empty();
        self.sessions
            .get(&client)
            .is_some_and(|session| session.delegable)
            && is_own
            && is_free
            && self.shares.is_alone(client, dir)
            && self.transactions.locks_nothing()
            && !self.evicting.has(client)
            && !self.is_full()
            && !self.is_bounded(dir)
    }
    /// Whether quotas limit the number of names that are added to a directory, or the size of files
    /// there.
    fn is_bounded(&self, dir: Ino) -> bool {
        self.is_below_one(dir, |rare| {
            rare.bytes_max.is_some() || rare.files_max.is_some()
        })
    }

    /// Whether a request has to wait until another client has reported what it did: to what the
    /// request names, and, as soon as that is known, to what its answer shows or what it changes.
    #[nacre_types::planted]
    pub(super) fn waits_for_delegations(
        &mut self,
        client: ClientId,
        request: &FsRequest,
        outcome: Option<&Outcome>,
    ) -> bool {
        // Requests executed before wait for nothing, and a client's own changes happened where no
        // other client may act.
        let is_done = request.again.is_some() || request.foretold.is_some();
        if self.delegations.is_empty() || is_done {
            return false;
        }
        // What names refer to, before other ranks are asked: inodes locked by them cannot be given
        // back.
        let mut inos: BTreeSet<Ino> = request.call.inos().collect();
        inos.extend(
            request
                .call
                .names()
                .filter_map(|(dir, name)| self.stands_for(dir, name)),
        );
        if let Some(outcome) = outcome {
            inos.extend(outcome.answer.nodes().map(|node| node.inode.ino));
            inos.extend(outcome.changes.iter().filter_map(Change::dir));
            inos.extend(self.inos_of(&outcome.changes));
        }
        let waits = self.take_back(Some(client), &inos);
        waits | self.waits_for_all(client, request)
    }
    pub(super) fn stands_for(&self, dir: Ino, name: &Name) -> Option<Ino> {
        match self.tree.find(dir, name) {
            Found::Entry(entry) => Some(entry.ino()),
            Found::Nothing | Found::Unknown(..) => None,
        }
    }
    /// Recalls these directories, or the ones that contain these files; returns whether another
    /// client has any of them.
    pub(super) fn take_back(&mut self, client: Option<ClientId>, inos: &BTreeSet<Ino>) -> bool {
        // What is done in a directory that contains another's name does not change that other
        // directory.
        let is_directory = |ino: Ino| self.tree.inode(ino).is_some_and(Inode::is_directory);
        let files = inos.iter().filter(|ino| !is_directory(**ino));
        let homes = files
            .filter_map(|ino| self.tree.place(*ino))
            .map(|(dir, _)| dir);
        let dirs: BTreeSet<Ino> = inos.iter().copied().chain(homes).collect();
        let is_others = |dir: &Ino| match client {
            Some(client) => self.delegations.is_anothers(client, *dir),
            None => self.delegations.is_delegated(*dir),
        };
        let others: Vec<Ino> = dirs.into_iter().filter(is_others).collect();
        for dir in &others {
            self.delegations.take_back(self.now, *dir);
        }
        !others.is_empty()
    }
    /// A new quota limits what clients create themselves; so does a quota that a directory is moved
    /// below.
    fn waits_for_all(&mut self, client: ClientId, request: &FsRequest) -> bool {
        let is_directory = |dir: Ino, name: &Name| match self.tree.find(dir, name) {
            Found::Entry(entry) => entry.is_directory(),
            _ => false,
        };
        let bounds = match &request.call {
            FsCall::SetXattr { name, .. } => name.as_bytes().starts_with(PREFIX),
            FsCall::Rename {
                dir,
                name,
                to_dir,
                to_name,
                ..
            } => {
                (is_directory(*dir, name) && self.is_bounded(*to_dir))
                    || (is_directory(*to_dir, to_name) && self.is_bounded(*dir))
            }
            _ => false,
        };
        if bounds {
            self.delegating.ending.insert((client, request.number));
            self.delegations.take_back_all(self.now);
        }
        bounds
    }
    /// A request is complete or abandoned.
    pub(super) fn end_delegating(&mut self, client: ClientId, number: Option<u64>) {
        let stays = |(who, of): &(ClientId, u64)| {
            *who != client || number.is_some_and(|number| *of != number)
        };
        self.delegating.ending.retain(stays);
        if !self.delegating.first.is_empty() {
            self.delegating.first.retain(stays);
            self.try_again |= self.delegating.first.is_empty();
        }
    }

    /// Delegations of clients that greeted again end when everything that they did is executed.
    pub(super) fn end_delegations(&mut self) {
        let is_done = |client: &ClientId| {
            self.sessions
                .get(client)
                .is_none_or(|session| session.foretold == 0)
        };
        let done: Vec<ClientId> = self.delegations.clients().filter(is_done).collect();
        done.into_iter()
            .for_each(|client| self.delegations.end_caught_up(client));
    }
    /// A foretold request is complete.
    pub(super) fn end_foretold(&mut self, client: ClientId) {
        if let Some(session) = self.sessions.get_mut(&client) {
            session.foretold = session.foretold.saturating_sub(1);
            self.try_again |= session.foretold == 0;
        }
    }
}
