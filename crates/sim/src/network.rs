//! Which messages arrive, and when.
//!
//! Between daemons of one kind messages are delayed, lost, duplicated and reordered. On the
//! connection of a client, or of an OSD with its monitor, they are delayed, lost and duplicated,
//! but not reordered. Between a client and an OSD nothing arrives after a loss until the client has
//! noticed that the connection is gone: as with TCP, a prefix of what was sent arrives. Across a
//! cut nothing arrives; through a narrow path only short messages do (a path with too small a
//! maximum packet size loses every long message and no short one).

use crate::plan::{MS, SECOND};
use crate::rng::Rng;
use nacre_types::Entity;
use std::collections::{BTreeMap, BTreeSet};

/// The longest message, in bytes, that passes a narrow path: acknowledgements are shorter, map
/// changes are longer.
const SHORT: usize = 60;

/// Identifies a cut or narrow path, to end it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CutId(u64);

/// See the module head.
#[derive(Debug)]
pub struct Network {
    cuts: BTreeMap<CutId, BTreeSet<(Entity, Entity)>>,
    narrow: BTreeMap<CutId, BTreeSet<(Entity, Entity)>>,
    next_cut: u64,
    /// Clients and OSDs whose connection has lost something.
    lost: BTreeSet<(Entity, Entity)>,
    /// When the last message of a pair arrives.
    fifo: BTreeMap<(Entity, Entity), u64>,
    /// How often clients' requests are duplicated.
    requests: Doubled,
}

/// How often messages are duplicated.
#[derive(Clone, Copy, Debug)]
pub struct Doubled {
    /// One in this many is.
    pub one_in: u64,
    /// The duplicate's maximum delay, in nanoseconds.
    pub within: u64,
}

impl Doubled {
    /// The default.
    pub const SOME: Self = Self {
        one_in: 100,
        within: 3 * SECOND,
    };
    /// Every second message, with the duplicate usually before its client's next message.
    pub const MANY: Self = Self {
        one_in: 2,
        within: 150 * MS,
    };
}

impl Default for Network {
    fn default() -> Self {
        Self::new(Doubled::SOME)
    }
}

impl Network {
    /// Sets how often clients' requests are duplicated.
    #[must_use]
    pub const fn new(requests: Doubled) -> Self {
        Self {
            cuts: BTreeMap::new(),
            narrow: BTreeMap::new(),
            next_cut: 0,
            lost: BTreeSet::new(),
            fifo: BTreeMap::new(),
            requests,
        }
    }
    /// Whether messages from the first to the second are cut off.
    #[must_use]
    pub fn is_cut(&self, from: Entity, to: Entity) -> bool {
        self.cuts.values().any(|cut| cut.contains(&(from, to)))
    }
    /// Whether two do not hear each other, in at least one direction.
    #[must_use]
    pub fn is_broken(&self, a: Entity, b: Entity) -> bool {
        self.is_cut(a, b) || self.is_cut(b, a)
    }

    /// From now on the first of each pair cannot reach the second.
    pub fn cut(&mut self, pairs: BTreeSet<(Entity, Entity)>) -> CutId {
        let id = CutId(self.next_cut);
        self.next_cut += 1;
        self.cuts.insert(id, pairs);
        id
    }
    /// From now on only short messages of the first of each pair reach the second.
    pub fn squeeze(&mut self, pairs: BTreeSet<(Entity, Entity)>) -> CutId {
        let id = CutId(self.next_cut);
        self.next_cut += 1;
        self.narrow.insert(id, pairs);
        id
    }
    /// Ends a cut or narrow path.
    pub fn heal(&mut self, cut: CutId) {
        self.cuts.remove(&cut);
        self.narrow.remove(&cut);
    }
    /// Ends all of them.
    pub fn heal_all(&mut self) {
        self.cuts.clear();
        self.narrow.clear();
    }

    /// The connection of a client with an OSD loses something. Returns whether it is the first
    /// loss.
    pub fn lose(&mut self, client: Entity, osd: Entity) -> bool {
        self.lost.insert((client, osd))
    }
    /// They have a new connection.
    pub fn connect(&mut self, client: Entity, osd: Entity) {
        self.lost.remove(&(client, osd));
    }

    /// When a message of this length sent now arrives: never, once or twice.
    pub fn route(
        &mut self,
        rng: &mut Rng,
        bad: bool,
        now: u64,
        (from, to): (Entity, Entity),
        bytes: usize,
    ) -> (Option<u64>, Option<u64>) {
        let lost = bytes > SHORT && self.narrow.values().any(|path| path.contains(&(from, to)));
        let over = self.lost.contains(&(from, to)) || self.lost.contains(&(to, from));
        if lost || over || self.is_cut(from, to) {
            return (None, None);
        }
        let peers = matches!(
            (from, to),
            (Entity::Osd(_), Entity::Osd(_)) | (Entity::Mon(_), Entity::Mon(_))
        );
        if bad && rng.one_in(if peers { 60 } else { 300 }) {
            return (None, None);
        }
        let mut delay = rng.between(20_000, 200_000);
        if bad && rng.one_in(50) {
            let most = if rng.one_in(4) { 2 * SECOND } else { 50 * MS };
            delay += rng.below(most);
        }
        let mut at = now + delay;
        if !(bad && peers && rng.one_in(20)) {
            let last = self.fifo.entry((from, to)).or_insert(0);
            at = at.max(*last + 1);
            *last = at;
        }
        let request = matches!((from, to), (Entity::Client(_), Entity::Osd(_)));
        let doubled = if request {
            self.requests
        } else {
            Doubled::SOME
        };
        let again = (bad && rng.one_in(doubled.one_in)).then(|| at + rng.below(doubled.within));
        (Some(at), again)
    }

    /// All pairs from one side to the other; with `both`, also in the other direction.
    #[must_use]
    pub fn between(left: &[Entity], right: &[Entity], both: bool) -> BTreeSet<(Entity, Entity)> {
        let pairs = left.iter().flat_map(|a| right.iter().map(|b| (*a, *b)));
        let back =
            |(a, b): (Entity, Entity)| [Some((a, b)), both.then_some((b, a))].into_iter().flatten();
        pairs.flat_map(back).collect()
    }
}
