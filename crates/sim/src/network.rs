//! Which messages arrive, and when.
//!
//! Between daemons of one kind messages are delayed, lost, doubled and overtake each other; on the
//! connection of a client, or of an OSD with its monitor, they are delayed, lost and doubled, and
//! overtake nothing. Between a client and an OSD nothing arrives any more after a loss, until the
//! client has noticed that the connection is gone: as TCP has it, what arrives is the beginning of
//! what was sent. Across a cut nothing arrives; through a narrow path only what is short (a path
//! whose largest packet somebody has set too small loses every long message, and no short one).

use crate::plan::{MS, SECOND};
use crate::rng::Rng;
use nacre_types::Entity;
use std::collections::{BTreeMap, BTreeSet};

/// The longest message, in bytes, that a narrow path lets through: an acknowledgement is shorter, a
/// map's change is longer.
const SHORT: usize = 60;

/// Names a cut or narrow path, to end it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CutId(u64);

/// See the module head.
#[derive(Debug)]
pub struct Network {
    cuts: BTreeMap<CutId, BTreeSet<(Entity, Entity)>>,
    narrow: BTreeMap<CutId, BTreeSet<(Entity, Entity)>>,
    next_cut: u64,
    /// Clients and OSDs whose connections have lost something.
    lost: BTreeSet<(Entity, Entity)>,
    /// When the last message of a pair arrives.
    fifo: BTreeMap<(Entity, Entity), u64>,
    /// How often requests of clients come twice.
    requests: Doubled,
}

/// How often messages come twice.
#[derive(Clone, Copy, Debug)]
pub struct Doubled {
    /// One in so many does.
    pub one_in: u64,
    /// The copy comes so much later, in nanoseconds, at most.
    pub within: u64,
}

impl Doubled {
    /// Where nothing else is said.
    pub const SOME: Self = Self {
        one_in: 100,
        within: 3 * SECOND,
    };
    /// Every other one, and its copy mostly before its client has sent anything else.
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
    /// Clients' requests come twice as often as that.
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
    /// Whether what the first says does not reach the second.
    #[must_use]
    pub fn is_cut(&self, from: Entity, to: Entity) -> bool {
        self.cuts.values().any(|cut| cut.contains(&(from, to)))
    }
    /// Whether two do not hear each other, in one direction at least.
    #[must_use]
    pub fn is_broken(&self, a: Entity, b: Entity) -> bool {
        self.is_cut(a, b) || self.is_cut(b, a)
    }

    /// From now on the first of each pair does not reach the second.
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
    /// A cut or narrow path ends.
    pub fn heal(&mut self, cut: CutId) {
        self.cuts.remove(&cut);
        self.narrow.remove(&cut);
    }
    /// All of them end.
    pub fn heal_all(&mut self) {
        self.cuts.clear();
        self.narrow.clear();
    }

    /// The connection of a client with an OSD loses something. Whether it is the first loss.
    pub fn lose(&mut self, client: Entity, osd: Entity) -> bool {
        self.lost.insert((client, osd))
    }
    /// They have a new one.
    pub fn connect(&mut self, client: Entity, osd: Entity) {
        self.lost.remove(&(client, osd));
    }

    /// When a message of so many bytes sent now arrives: not at all, once or twice.
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

    /// Everybody of one side no longer reaches anybody of the other; nor the other way round, if
    /// `both`.
    #[must_use]
    pub fn between(left: &[Entity], right: &[Entity], both: bool) -> BTreeSet<(Entity, Entity)> {
        let pairs = left.iter().flat_map(|a| right.iter().map(|b| (*a, *b)));
        let back =
            |(a, b): (Entity, Entity)| [Some((a, b)), both.then_some((b, a))].into_iter().flatten();
        pairs.flat_map(back).collect()
    }
}
