//! Assigns each rank a standby that follows it, deterministically from the registry, so that all
//! standbys agree.
//!
//! A standby in the process of the rank's holder dies with it, and a standby whose process holds
//! ranks leaves vacant ones to others for a while: those follow only if there is no other. The
//! ranks are dealt to the rest in turn.

use crate::follow::Source;
use nacre_types::{ClientId, Name, Rank};
use nacre_wire::Wire as _;
use nacre_wire::fs::registry::STANDBYS;
use nacre_wire::fs::{FsHolder, FsKey, FsSettings};
use nacre_wire::msg::meta::MetaPair;
use std::collections::{BTreeMap, BTreeSet};

/// What a standby follows, and what it leaves to others.
#[derive(Debug, Default)]
pub(crate) struct Followers {
    /// Journals that it follows.
    pub own: Vec<Source>,
    /// Ranks that another standby follows.
    pub others: BTreeSet<(Name, Rank)>,
}

/// Ranks that had a holder, in order, with that holder's name.
fn sources(pairs: &[MetaPair]) -> Vec<(Source, Name)> {
    let all: BTreeMap<&Name, &MetaPair> = pairs.iter().map(|pair| (&pair.key, pair)).collect();
    let settings = all
        .values()
        .filter_map(|pair| match FsKey::parse(&pair.key)? {
            (name, FsKey::Settings) => Some((name, FsSettings::from_bytes(&pair.value).ok()?)),
            _ => None,
        });
    let mut sources = Vec::new();
    for (
        file_system,
        FsSettings {
            namespace,
            pool,
            ranks,
            ..
        },
    ) in settings
    {
        for rank in (0..ranks).map(Rank) {
            let Some(last) = all.get(&FsKey::Last(rank).of(&file_system)) else {
                continue;
            };
            let Ok(holder) = FsHolder::from_bytes(&last.value) else {
                continue;
            };
            let (file_system, namespace, taken) =
                (file_system.clone(), namespace.clone(), last.modified);
            sources.push((
                Source {
                    file_system,
                    rank,
                    namespace,
                    pool,
                    taken,
                },
                holder.name,
            ));
        }
    }
    sources
}

/// The standby that follows each rank that had a holder, according to the registry (all keys below
/// [`PREFIX`](nacre_wire::fs::registry::PREFIX)); ranks without a follower are left out.
#[must_use]
pub fn followers(pairs: &[MetaPair]) -> BTreeMap<(Name, Rank), FsHolder> {
    let dealt = dealt(pairs).into_iter();
    dealt
        .filter_map(|(source, standby)| Some(((source.file_system, source.rank), standby?)))
        .collect()
}

/// Ranks that had a holder, each with its follower.
fn dealt(pairs: &[MetaPair]) -> Vec<(Source, Option<FsHolder>)> {
    let holder = |pair: &MetaPair| FsHolder::from_bytes(&pair.value).ok();
    let is_standby = |pair: &&MetaPair| pair.key.as_bytes().starts_with(STANDBYS.as_bytes());
    let standbys: BTreeMap<ClientId, FsHolder> = pairs
        .iter()
        .filter(is_standby)
        .filter_map(holder)
        .map(|standby| (standby.client(), standby))
        .collect();
    let mut busy: BTreeMap<Name, u32> = BTreeMap::new();
    let is_rank = |pair: &&MetaPair| matches!(FsKey::parse(&pair.key), Some((_, FsKey::Rank(_))));
    for holder in pairs.iter().filter(is_rank).filter_map(holder) {
        *busy.entry(holder.name).or_default() += 1;
    }
    let deal = |(at, (source, holder)): (usize, (Source, Name))| {
        let burden = |name: &Name| (*name == holder, busy.get(name).copied().unwrap_or(0));
        let least = standbys.values().map(|standby| burden(&standby.name)).min();
        let best: Vec<&FsHolder> = standbys
            .values()
            .filter(|standby| Some(burden(&standby.name)) == least)
            .collect();
        (source, best.get(at % best.len().max(1)).copied().cloned())
    };
    sources(pairs).into_iter().enumerate().map(deal).collect()
}

impl Followers {
    /// Determines the assignment from the registry.
    pub fn of(me: ClientId, pairs: &[MetaPair]) -> Self {
        let mut followers = Self::default();
        for (source, standby) in dealt(pairs) {
            match standby {
                Some(standby) if standby.client() == me => followers.own.push(source),
                Some(_) => drop(followers.others.insert((source.file_system, source.rank))),
                None => {}
            }
        }
        followers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::{Epoch, Instance, PoolId};
    use nacre_wire::fs::Layout;
    use nacre_wire::fs::registry::standby_key;
    use nacre_wire::map::Address;

    fn pair(key: Name, value: Vec<u8>, modified: u64) -> MetaPair {
        let value = value.into();
        MetaPair {
            key,
            value,
            created: 1,
            modified,
            version: 1,
            lease: 0,
            epoch: Epoch::default(),
        }
    }
    fn holder(client: u64, name: &str) -> FsHolder {
        FsHolder {
            client,
            instance: Instance(1),
            address: Address::default(),
            name: name.into(),
        }
    }
    /// The followers of the ranks of a file system with these holders, each of which claimed its
    /// rank at 100 + rank.
    fn who_follows(holders: &[&str], standbys: &[(u64, &str)]) -> Vec<(u64, Vec<u16>)> {
        let home = Name::from("home");
        let layout = Layout {
            pool: PoolId(1),
            unit: 4096,
            count: 1,
            object: 4096,
        };
        let ranks = holders.len() as u16 + 1;
        let settings = FsSettings {
            namespace: "home.1".into(),
            pool: PoolId(3),
            layout,
            ranks,
        };
        let mut pairs = vec![pair(FsKey::Settings.of(&home), settings.to_bytes(), 5)];
        for (rank, name) in (0..).map(Rank).zip(holders) {
            let (value, taken) = (
                holder(1_000 + u64::from(rank.0), name).to_bytes(),
                100 + u64::from(rank.0),
            );
            pairs.push(pair(FsKey::Rank(rank).of(&home), value.clone(), taken));
            pairs.push(pair(FsKey::Last(rank).of(&home), value, taken));
        }
        for (client, name) in standbys {
            pairs.push(pair(
                standby_key(ClientId(*client)),
                holder(*client, name).to_bytes(),
                9,
            ));
        }
        let mut dealt = Vec::new();
        for (client, _) in standbys {
            let Followers { own, others } = Followers::of(ClientId(*client), &pairs);
            for source in &own {
                assert_eq!(
                    (&*source.namespace.to_string(), source.pool),
                    ("home.1", PoolId(3))
                );
                assert_eq!(source.taken, 100 + u64::from(source.rank.0));
            }
            assert_eq!(
                own.len() + others.len(),
                holders.len(),
                "each rank that had a holder, by one"
            );
            dealt.push((
                *client,
                own.into_iter().map(|source| source.rank.0).collect(),
            ));
        }
        let none = Followers::of(ClientId(77), &pairs);
        assert!(none.own.is_empty(), "it is not known as a standby");
        dealt
    }

    #[test]
    fn each_rank_is_followed_by_one() {
        assert_eq!(who_follows(&["a"], &[]), []);
        assert_eq!(
            who_follows(&["a"], &[(1, "a")]),
            [(1, vec![0])],
            "there is no other"
        );
        assert_eq!(
            who_follows(&["a"], &[(1, "a"), (2, "b")]),
            [(1, vec![]), (2, vec![0])]
        );
        assert_eq!(
            who_follows(&["a"], &[(1, "b"), (2, "c")]),
            [(1, vec![0]), (2, vec![])]
        );
        assert_eq!(
            who_follows(&["a", "b"], &[(1, "a"), (2, "b")]),
            [(1, vec![1]), (2, vec![0])]
        );
        assert_eq!(
            who_follows(&["a", "a", "b"], &[(1, "c"), (2, "d"), (3, "b")]),
            [(1, vec![0, 2]), (2, vec![1]), (3, vec![])]
        );
        assert_eq!(who_follows(&["a", "b"], &[(1, "c")]), [(1, vec![0, 1])]);
    }
}
