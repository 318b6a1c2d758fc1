//! Taking a rank that has no holder.
//!
//! ```text
//!  look ─▶ all have holders: wait for news
//!     └──▶ one has none ─▶ fence its last holder ─▶ a lease ─▶ compare and set ─▶ Claimed
//!                                                                 └── another was faster: look again
//! ```
//! A standby has a connection to each holder. If a holder's address refuses connections, its
//! process is gone: the standby ends its lease, and the rank is free at once.
//!
//! Fencing comes before claiming: whichever server takes over, the former holder can change nothing
//! any more. Unnecessary fencing is harmless, since no server serves a rank without a holder's key.
//!
//! Invariants: a rank is claimed only if `last` is still the holder that was fenced; and never
//! while a repair claims its file system.

use crate::follow::Source;
use crate::followers::Followers;
use crate::lease::{Lease, TTL};
use nacre_client::{Completion, MetaDone, MetaId, Metadata, ObjectCluster, OpId, Refused};
use nacre_types::{ClientId, Name, Rank, Time};
use nacre_wire::Wire as _;
use nacre_wire::fs::registry::PREFIX;
use nacre_wire::fs::{FsHolder, FsKey, FsSettings};
use nacre_wire::msg::meta::{
    MetaCall, MetaCompare, MetaOp, MetaPair, MetaRelation, MetaResult, MetaSpan, MetaTarget,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Without news, it looks again after this.
const LOOK: Duration = Duration::from_secs(5);
/// Delay after a failure.
const RETRY: Duration = Duration::from_millis(200);
/// A rank that another standby follows is left to that one for this long: it has less to read.
const HEAD_START: Duration = Duration::from_millis(100);

/// A rank without a holder.
#[derive(Clone, Debug)]
pub(crate) struct Vacancy {
    pub file_system: Name,
    pub rank: Rank,
    pub settings: FsSettings,
    /// The revision that wrote the settings.
    written: u64,
    /// Its last holder, and the revision of that key; 0: it is new.
    last: Option<FsHolder>,
    last_written: u64,
}

#[derive(Debug)]
enum Stage {
    /// Waiting until then.
    Waiting(Time),
    Looking(MetaId),
    /// It has been vacant since then; left to less loaded servers for now.
    Seen(Time),
    Fencing(Vacancy, Option<OpId>),
    Granting(Vacancy, Option<(MetaId, Time)>),
    Taking(Vacancy, Lease, Option<MetaId>),
}

/// See the module head.
#[derive(Debug)]
pub(crate) struct Claim {
    me: FsHolder,
    /// How long vacancies are left to others.
    delay: Duration,
    seen: Option<Time>,
    stage: Stage,
    /// Holders of ranks, and their leases.
    holders: BTreeMap<ClientId, (FsHolder, u64)>,
    /// Holders without a process, whose leases are to be ended.
    absent: BTreeSet<ClientId>,
    /// Whether there is a file system at all.
    has_file_systems: bool,
    followers: Followers,
}

impl Claim {
    pub fn new(me: FsHolder, delay: Duration) -> Self {
        let (holders, absent) = (BTreeMap::new(), BTreeSet::new());
        let stage = Stage::Waiting(Time::ZERO);
        let followers = Followers::default();
        Self {
            me,
            delay,
            seen: None,
            stage,
            holders,
            absent,
            has_file_systems: false,
            followers,
        }
    }
    pub fn next_deadline(&self) -> Time {
        match &self.stage {
            Stage::Waiting(until) | Stage::Seen(until) => *until,
            _ => Time::MAX,
        }
    }
    /// Something in the registry of file systems has changed.
    pub fn on_news(&mut self) {
        if matches!(self.stage, Stage::Waiting(_)) {
            self.stage = Stage::Waiting(Time::ZERO);
        }
    }

    /// Whether there are file systems, as far as is known.
    pub const fn has_file_systems(&self) -> bool {
        self.has_file_systems
    }
    /// Holders that this standby may have to replace.
    pub fn holders(&self) -> impl Iterator<Item = &FsHolder> {
        self.holders.values().map(|(holder, _)| holder)
    }
    /// The journals that this standby follows.
    pub fn to_follow(&self) -> &[Source] {
        &self.followers.own
    }
    /// Nothing listens at that holder's address: its process is gone.
    pub fn on_absent(&mut self, holder: ClientId) {
        if self.holders.contains_key(&holder) {
            self.absent.insert(holder);
        }
    }

    pub fn on_completion(&mut self, now: Time, completion: &Completion) {
        if let Stage::Fencing(vacancy, Some(operation)) = &self.stage
            && *operation == completion.id
        {
            self.stage = match &completion.result {
                Ok(_) => Stage::Granting(vacancy.clone(), None),
                Err(_) => Stage::Waiting(now + RETRY),
            };
        }
    }

    /// Handles an answer; returns the rank if it is claimed now.
    pub fn on_done(
        &mut self,
        now: Time,
        done: MetaDone,
        metadata: &mut dyn Metadata,
    ) -> Option<(Vacancy, Lease)> {
        match &self.stage {
            Stage::Looking(question) if *question == done.id => {
                self.stage = match done.result {
                    Ok(MetaResult::Ranged { pairs, .. }) => self.look(now, &pairs),
                    _ => Stage::Waiting(now + RETRY),
                };
            }
            Stage::Granting(vacancy, Some((question, asked))) if *question == done.id => {
                self.stage = match done.result {
                    Ok(MetaResult::Granted { lease, .. }) => {
                        Stage::Taking(vacancy.clone(), Lease::granted(lease, *asked, TTL), None)
                    }
                    _ => Stage::Waiting(now + RETRY),
                };
            }
            Stage::Taking(_, _, Some(question)) if *question == done.id => {
                let stage = std::mem::replace(&mut self.stage, Stage::Waiting(now + RETRY));
                let Stage::Taking(vacancy, lease, _) = stage else {
                    unreachable!("just seen")
                };
                if let Ok(MetaResult::Transacted {
                    succeeded: true, ..
                }) = done.result
                {
                    return Some((vacancy, lease));
                }
                lease.revoke(now, metadata);
            }
            _ => {}
        }
        None
    }

    /// Performs the next step.
    pub fn on_turn(
        &mut self,
        now: Time,
        objects: &mut dyn ObjectCluster,
        metadata: &mut dyn Metadata,
    ) {
        while let Some(holder) = self.absent.first().copied() {
            // The holder's key goes with the lease; every watcher is notified of that.
            if let Some((_, lease)) = self.holders.get(&holder)
                && metadata
                    .submit(now, MetaCall::Revoke { lease: *lease })
                    .is_none()
            {
                break;
            }
            self.absent.remove(&holder);
        }
        match &mut self.stage {
            Stage::Waiting(until) | Stage::Seen(until) if *until <= now => {
                let span = MetaSpan::Prefix {
                    prefix: PREFIX.into(),
                };
                let all = MetaCall::Range {
                    span,
                    limit: 0,
                    keys_only: false,
                    serializable: false,
                };
                if let Some(question) = metadata.submit(now, all) {
                    self.stage = Stage::Looking(question);
                }
            }
            Stage::Fencing(vacancy, operation @ None) => {
                // A rank that never had a holder needs no fencing.
                let fenced = match &vacancy.last {
                    Some(last) if last.client != self.me.client => {
                        objects.fence(now, last.client(), last.instance)
                    }
                    _ => Err(Refused::Unsupported),
                };
                match fenced {
                    Ok(begun) => *operation = Some(begun),
                    Err(Refused::Unsupported) => {
                        self.stage = Stage::Granting(vacancy.clone(), None)
                    }
                    // Retried in the next turn.
                    Err(Refused::Busy | Refused::NotConnected | Refused::NoSuchPool) => {}
                }
            }
            _ => {}
        }
        if let Stage::Granting(_, question @ None) = &mut self.stage {
            let ttl_ms = u64::try_from(TTL.as_millis()).expect("seconds");
            *question = metadata
                .submit(now, MetaCall::Grant { ttl_ms })
                .map(|question| (question, now));
        }
        if let Stage::Taking(vacancy, lease, question @ None) = &mut self.stage {
            *question = metadata.submit(now, take(&self.me, vacancy, lease));
        }
    }

    /// The next step for the registry's contents.
    fn look(&mut self, now: Time, pairs: &[MetaPair]) -> Stage {
        let holder = |pair: &MetaPair| match FsKey::parse(&pair.key)? {
            (_, FsKey::Rank(_)) => {
                let holder = FsHolder::from_bytes(&pair.value).ok()?;
                Some((holder.client(), (holder, pair.lease)))
            }
            _ => None,
        };
        self.holders = pairs.iter().filter_map(holder).collect();
        let is_settings =
            |pair: &MetaPair| matches!(FsKey::parse(&pair.key), Some((_, FsKey::Settings)));
        self.has_file_systems = pairs.iter().any(is_settings);
        self.followers = Followers::of(self.me.client(), pairs);
        let Some(vacancy) = vacancy(pairs) else {
            self.seen = None;
            return Stage::Waiting(now + LOOK);
        };
        let since = *self.seen.get_or_insert(now);
        let is_others = self
            .followers
            .others
            .contains(&(vacancy.file_system.clone(), vacancy.rank));
        let delay = self.delay
            + if is_others {
                HEAD_START
            } else {
                Duration::ZERO
            };
        if now.since(since) < delay {
            return Stage::Seen(since + delay);
        }
        self.seen = None;
        Stage::Fencing(vacancy, None)
    }
}

impl Vacancy {
    /// The source that a standby has followed until it claimed this rank. A rank that never had a
    /// holder is followed by none: 0 is no revision.
    pub fn source(&self) -> Source {
        let (file_system, namespace) = (self.file_system.clone(), self.settings.namespace.clone());
        Source {
            file_system,
            rank: self.rank,
            namespace,
            pool: self.settings.pool,
            taken: self.last_written,
        }
    }
}

/// The first rank without a holder.
fn vacancy(pairs: &[MetaPair]) -> Option<Vacancy> {
    let all: BTreeMap<&Name, &MetaPair> = pairs.iter().map(|pair| (&pair.key, pair)).collect();
    let settings = pairs
        .iter()
        .filter_map(|pair| match FsKey::parse(&pair.key)? {
            (name, FsKey::Settings) => Some((
                name,
                FsSettings::from_bytes(&pair.value).ok()?,
                pair.modified,
            )),
            _ => None,
        });
    for (file_system, settings, written) in settings {
        if all.contains_key(&FsKey::Repair.of(&file_system)) {
            continue;
        }
        for rank in (0..settings.ranks).map(Rank) {
            if all.contains_key(&FsKey::Rank(rank).of(&file_system)) {
                continue;
            }
            let last = all.get(&FsKey::Last(rank).of(&file_system));
            // What cannot be read must not be skipped: its writer may be alive.
            let (last, last_written) =
                match last.map(|pair| (FsHolder::from_bytes(&pair.value), pair.modified)) {
                    Some((Ok(holder), revision)) => (Some(holder), revision),
                    Some((Err(_), _)) => continue,
                    None => (None, 0),
                };
            return Some(Vacancy {
                file_system,
                rank,
                settings,
                written,
                last,
                last_written,
            });
        }
    }
    None
}

fn take(me: &FsHolder, vacancy: &Vacancy, lease: &Lease) -> MetaCall {
    let Vacancy {
        file_system,
        rank,
        written,
        last_written,
        ..
    } = vacancy;
    let (rank, last) = (
        FsKey::Rank(*rank).of(file_system),
        FsKey::Last(*rank).of(file_system),
    );
    let value = bytes::Bytes::from(me.to_bytes());
    let is = |key: Name, target| MetaCompare {
        key,
        target,
        relation: MetaRelation::Equal {},
    };
    MetaCall::Transact {
        compares: vec![
            is(
                FsKey::Settings.of(file_system),
                MetaTarget::Modified { number: *written },
            ),
            is(rank.clone(), MetaTarget::Version { number: 0 }),
            is(
                last.clone(),
                MetaTarget::Modified {
                    number: *last_written,
                },
            ),
            is(
                FsKey::Repair.of(file_system),
                MetaTarget::Version { number: 0 },
            ),
        ],
        then: vec![
            MetaOp::Put {
                key: rank,
                value: value.clone(),
                lease: lease.id(),
            },
            MetaOp::Put {
                key: last,
                value,
                lease: 0,
            },
        ],
        otherwise: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Asked;
    use nacre_client::{Capabilities, Operation};
    use nacre_types::{Epoch, Instance, PoolId};
    use nacre_wire::fs::Layout;
    use nacre_wire::map::Address;

    struct NoObjects;
    impl ObjectCluster for NoObjects {
        fn capabilities(&self) -> Capabilities {
            Capabilities::default()
        }
        fn submit(&mut self, _: Time, _: Operation) -> Result<OpId, Refused> {
            Err(Refused::Busy)
        }
        fn completions(&mut self, _: &mut Vec<Completion>) {}
    }
    fn holder(client: u64) -> FsHolder {
        let address = Address(format!("127.0.0.1:{client}"));
        FsHolder {
            client,
            instance: Instance(1),
            address,
            name: Name::from("mds.0"),
        }
    }
    fn pair(key: FsKey, value: Vec<u8>, lease: u64) -> MetaPair {
        let (key, value) = (key.of(&"home".into()), value.into());
        MetaPair {
            key,
            value,
            created: 1,
            modified: 1,
            version: 1,
            lease,
            epoch: Epoch::default(),
        }
    }

    /// A holder whose process is gone keeps its rank until its lease ends; the lease of a live
    /// holder, or of a stranger, is not touched.
    #[test]
    fn the_lease_of_a_holder_that_is_gone_is_ended() {
        let layout = Layout {
            pool: PoolId(1),
            unit: 4096,
            count: 1,
            object: 4096,
        };
        let settings = FsSettings {
            namespace: "home.1".into(),
            pool: PoolId(1),
            layout,
            ranks: 1,
        };
        let pairs = [
            pair(FsKey::Settings, settings.to_bytes(), 0),
            pair(FsKey::Rank(Rank(0)), holder(7).to_bytes(), 77),
            pair(FsKey::Last(Rank(0)), holder(7).to_bytes(), 0),
        ];
        let mut claim = Claim::new(holder(8), Duration::ZERO);
        let mut metadata = Asked(Vec::new(), 1);
        claim.on_turn(Time(1), &mut NoObjects, &mut metadata);
        let listed = MetaResult::Ranged {
            pairs: pairs.to_vec(),
            more: false,
        };
        claim.on_done(
            Time(2),
            MetaDone {
                id: MetaId(1),
                revision: 1,
                result: Ok(listed),
            },
            &mut metadata,
        );
        assert!(claim.holders().eq([&holder(7)]));
        claim.on_absent(ClientId(9));
        claim.on_absent(ClientId(7));
        claim.on_turn(Time(3), &mut NoObjects, &mut metadata);
        assert_eq!(metadata.0.len(), 1, "there is no room");
        metadata.1 = 9;
        claim.on_turn(Time(4), &mut NoObjects, &mut metadata);
        claim.on_turn(Time(5), &mut NoObjects, &mut metadata);
        assert_eq!(metadata.0[1..], [MetaCall::Revoke { lease: 77 }], "once");
    }

    /// A standby that followed a rank claims it at once; others wait for a moment and then claim it
    /// anyway.
    #[test]
    fn a_rank_is_left_for_a_moment_to_the_standby_that_follows_it() {
        let layout = Layout {
            pool: PoolId(1),
            unit: 4096,
            count: 1,
            object: 4096,
        };
        let settings = FsSettings {
            namespace: "home.1".into(),
            pool: PoolId(1),
            layout,
            ranks: 1,
        };
        let standby = |client: u64| {
            let key = nacre_wire::fs::registry::standby_key(ClientId(client));
            let value = FsHolder {
                name: "mds.1".into(),
                ..holder(client)
            }
            .to_bytes();
            MetaPair {
                key,
                ..pair(FsKey::Settings, value, 1)
            }
        };
        let pairs = [
            pair(FsKey::Settings, settings.to_bytes(), 0),
            pair(FsKey::Last(Rank(0)), holder(7).to_bytes(), 0),
            standby(8),
            standby(9),
        ];
        let at = |ms| Time::ZERO + Duration::from_millis(ms);
        for (me, follows) in [(8, true), (9, false)] {
            let mut claim = Claim::new(holder(me), Duration::ZERO);
            let mut metadata = Asked(Vec::new(), 99);
            let look = |claim: &mut Claim, now, metadata: &mut Asked| {
                claim.on_turn(now, &mut NoObjects, metadata);
                let listed = MetaResult::Ranged {
                    pairs: pairs.to_vec(),
                    more: false,
                };
                let id = MetaId(metadata.0.len() as u64);
                claim.on_done(
                    now,
                    MetaDone {
                        id,
                        revision: 1,
                        result: Ok(listed),
                    },
                    metadata,
                );
            };
            look(&mut claim, at(1), &mut metadata);
            assert_eq!(
                (claim.to_follow().len(), claim.next_deadline()),
                if follows {
                    (1, Time::MAX)
                } else {
                    (0, at(101))
                }
            );
            if follows {
                assert!(
                    matches!(&claim.stage, Stage::Fencing(vacancy, _) if vacancy.source() == claim.to_follow()[0])
                );
            } else {
                look(&mut claim, at(101), &mut metadata);
                assert!(matches!(claim.stage, Stage::Fencing(..)), "{claim:?}");
            }
        }
    }
}
