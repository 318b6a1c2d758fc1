//! The holders of the file system's other ranks, for messages between ranks.
//!
//! ```text
//!  a message for rank 3 ─▶ its holder is known: sent
//!                       └▶ not known: the registry is read; the message will be repeated by then
//! ```
//! While ranks have nothing to do with each other, nothing is known, nothing is read, and there is
//! no connection.

use nacre_client::{MetaDone, MetaId, Metadata};
use nacre_role::Output;
use nacre_types::{ClientId, Entity, Name, Rank, Time};
use nacre_wire::Message;
use nacre_wire::Wire as _;
use nacre_wire::fs::{FsHolder, FsKey, FsSettings};
use nacre_wire::map::Address;
use nacre_wire::msg::meta::{MetaCall, MetaPair, MetaResult, MetaSpan};
use nacre_wire::msg::transaction::FsTransaction;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long until the registry is read again without an answer, or while a holder is missing.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// See the module head.
#[derive(Debug)]
pub(crate) struct Peers {
    file_system: Name,
    holders: BTreeMap<Rank, FsHolder>,
    /// Holders for which a connection was requested.
    met: BTreeMap<Rank, (ClientId, Address)>,
    /// Number of ranks according to the registry.
    ranks: Option<u16>,
    question: Option<MetaId>,
    /// There is a message for a rank whose holder is not known.
    wanted: bool,
    look_at: Time,
}

impl Peers {
    pub const fn new(file_system: Name) -> Self {
        Self {
            file_system,
            holders: BTreeMap::new(),
            met: BTreeMap::new(),
            ranks: None,
            question: None,
            wanted: false,
            look_at: Time::ZERO,
        }
    }
    /// The registry of file systems has changed. `waits`: there is a message to send.
    pub fn on_news(&mut self, waits: bool) {
        self.holders.clear();
        // There may be more of them.
        self.ranks = None;
        // A pending answer may be older.
        self.wanted |= waits || self.question.take().is_some();
        self.look_at = Time::ZERO;
    }
    /// A connection broke or cannot be made: reads the rank's holder again.
    pub fn on_gone(&mut self, client: ClientId) {
        self.holders.retain(|_, holder| holder.client() != client);
    }
    /// Whether this client is the holder of a rank, as far as is known; if unknown, reads the
    /// registry.
    pub fn is_holder(&mut self, rank: Rank, client: ClientId) -> bool {
        let is_known = self
            .holders
            .get(&rank)
            .is_some_and(|holder| holder.client() == client);
        self.wanted |= !is_known;
        is_known
    }
    /// Whether the rank exists; `None`: not known yet.
    pub fn has(&self, rank: Rank) -> Option<bool> {
        self.ranks.map(|ranks| rank.0 < ranks)
    }
    pub const fn next_deadline(&self) -> Time {
        if self.wanted && self.question.is_none() {
            self.look_at
        } else {
            Time::MAX
        }
    }

    /// Sends a message if the receiver is known. Otherwise it is dropped: messages are repeated
    /// until they are answered.
    pub fn say(&mut self, message: FsTransaction, before: Time, out: &mut Vec<Output>) {
        let rank = Rank(message.to);
        let Some(holder) = self.holders.get(&rank) else {
            self.wanted = true;
            return;
        };
        let (peer, place) = (holder.client(), (holder.client(), holder.address.clone()));
        if self.met.get(&rank) != Some(&place) {
            if let Some((before, _)) = self.met.insert(rank, place.clone()) {
                out.push(Output::Meet {
                    peer: Entity::Client(before),
                    address: Address::default(),
                });
            }
            out.push(Output::Meet {
                peer: Entity::Client(peer),
                address: place.1,
            });
        }
        let (to, message) = (Entity::Client(peer), Message::FsTransaction(message));
        out.push(Output::Send {
            to,
            message,
            before: Some(before),
        });
    }

    /// Handles an answer; returns whether it was for this and contains the holders.
    pub fn on_done(&mut self, done: &MetaDone) -> bool {
        if self
            .question
            .take_if(|question| *question == done.id)
            .is_none()
        {
            return false;
        }
        let Ok(MetaResult::Ranged { pairs, .. }) = &done.result else {
            return false;
        };
        self.wanted = false;
        self.read(pairs);
        true
    }
    fn read(&mut self, pairs: &[MetaPair]) {
        self.holders.clear();
        for pair in pairs {
            match FsKey::parse(&pair.key).filter(|(name, _)| *name == self.file_system) {
                Some((_, FsKey::Settings)) => {
                    self.ranks = FsSettings::from_bytes(&pair.value)
                        .ok()
                        .map(|settings| settings.ranks);
                }
                Some((_, FsKey::Rank(rank))) => {
                    self.holders.extend(
                        FsHolder::from_bytes(&pair.value)
                            .ok()
                            .map(|holder| (rank, holder)),
                    );
                }
                _ => {}
            }
        }
    }
    /// Reads the registry if that is due.
    pub fn on_turn(&mut self, now: Time, metadata: &mut dyn Metadata) {
        if self.wanted && self.question.is_none() && self.look_at <= now {
            let span = MetaSpan::Prefix {
                prefix: FsKey::Settings.of(&self.file_system),
            };
            let all = MetaCall::Range {
                span,
                limit: 0,
                keys_only: false,
                serializable: false,
            };
            self.question = metadata.submit(now, all);
            self.look_at = now + LOOK_AGAIN;
        }
    }
}
