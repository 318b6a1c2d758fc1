//! An index of the clones in a pool, so that trimming reads only clones and not every name (F52).
//!
//! ```text
//!  a transaction of a PG           and with it, in the daemon's collection
//!    Clone … to a:7   ───────────▶  object "clones" of the pool:  omap  position of a:7
//!    Remove a:3       ───────────▶                                −     position of a:3
//! ```
//! Every transaction of a PG passes through [`note`], so no code that makes or removes a clone can
//! forget the index. The key is the clone's position: a PG's clones are one range, and a split
//! moves nothing. A PG from before the index existed ([`crate::pg::local::PgMeta::clones_known`])
//! is listed name by name.
//!
//! Invariant: a clone in a pool's collection, of a PG that knows its clones, is in the index. An
//! entry of the index may name a clone that no longer exists.

use crate::key;
use bytes::Bytes;
use nacre_store::{ObjectKey, Op};
use nacre_types::SnapId;
use std::collections::BTreeMap;

/// Ranges of snapshot ids, ascending: first and last of each.
pub type Ranges = Vec<(SnapId, SnapId)>;

/// Adds to a transaction its changes of the index.
pub fn note(ops: &mut Vec<Op>) {
    let mut changed: BTreeMap<ObjectKey, bool> = BTreeMap::new();
    for op in ops.iter() {
        let (object, there) = match op {
            Op::Remove(object) => (Some(object), false),
            Op::Rename { to, .. } | Op::Clone { to, .. } | Op::CloneRange { to, .. } => {
                (Some(to), true)
            }
            op => (op.objects().next(), true),
        };
        if let Some(object) = object.filter(|object| key::is_clone(object)) {
            changed.insert(object.clone(), there);
        }
    }
    for (clone, there) in changed {
        let object = key::clones_key(clone.collection);
        ops.push(match there {
            true => Op::OmapSet {
                object,
                entries: vec![(clone.key, Bytes::new())],
            },
            false => Op::OmapRemove {
                object,
                keys: vec![clone.key],
            },
        });
    }
}

/// The ids in `all` that are not in `old`.
#[must_use]
pub fn without(all: &Ranges, old: &Ranges) -> Ranges {
    let (mut out, mut old) = (Ranges::new(), &old[..]);
    for (first, last) in all {
        let mut from = first.0;
        while let [(a, b), rest @ ..] = old
            && a <= last
        {
            if a.0 > from {
                out.push((SnapId(from), SnapId(a.0 - 1)));
            }
            from = from.max(b.0 + 1);
            // It may reach into the next range.
            if b > last {
                break;
            }
            old = rest;
        }
        if from <= last.0 {
            out.push((SnapId(from), *last));
        }
    }
    out
}

/// Whether a range has an id after `before`, up to `clone`: the ids that a clone may preserve if
/// the previous one of the same name is `before`.
#[must_use]
pub fn touches(ranges: &Ranges, before: SnapId, clone: SnapId) -> bool {
    let next = ranges.partition_point(|(_, last)| *last <= before);
    ranges.get(next).is_some_and(|(first, _)| *first <= clone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::{ObjectId, PgId, PoolId};

    fn ranges(of: &[(u64, u64)]) -> Ranges {
        of.iter()
            .map(|(first, last)| (SnapId(*first), SnapId(*last)))
            .collect()
    }

    #[test]
    fn the_index_has_what_the_transaction_leaves() {
        let pg = PgId::replicated(PoolId(3), 0);
        let at = |snapshot: u64| {
            key::store_key(
                pg,
                &ObjectId {
                    snapshot: SnapId(snapshot),
                    ..ObjectId::named("a")
                },
            )
        };
        let live = key::store_key(pg, &ObjectId::named("a"));
        let incoming = key::incoming_key(
            pg,
            &ObjectId {
                snapshot: SnapId(9),
                ..ObjectId::named("a")
            },
        );
        let mut plain = vec![
            Op::Remove(live.clone()),
            Op::Touch(live.clone()),
            Op::Touch(incoming.clone()),
        ];
        note(&mut plain);
        assert_eq!(plain.len(), 3, "no clones");
        let mut ops = vec![
            Op::Clone {
                from: live,
                to: at(5),
            },
            Op::Remove(at(6)),
            Op::Touch(at(6)),
            Op::Touch(at(7)),
            Op::Remove(at(7)),
            Op::Rename {
                from: incoming,
                to: at(9),
            },
        ];
        note(&mut ops);
        let index = key::clones_key(at(5).collection);
        let set = |snapshot| Op::OmapSet {
            object: index.clone(),
            entries: vec![(at(snapshot).key, Bytes::new())],
        };
        let gone = Op::OmapRemove {
            object: index.clone(),
            keys: vec![at(7).key],
        };
        assert_eq!(ops[6..], [set(5), set(6), gone, set(9)]);
    }

    #[test]
    fn what_is_newly_removed_is_told_from_what_was() {
        let all = ranges(&[(2, 9), (12, 12), (20, 30)]);
        assert_eq!(without(&all, &ranges(&[])), all);
        assert_eq!(without(&all, &all), ranges(&[]));
        assert_eq!(
            without(&all, &ranges(&[(1, 1), (9, 25), (31, 40)])),
            ranges(&[(2, 8), (26, 30)])
        );
        assert_eq!(
            without(&all, &ranges(&[(3, 3), (5, 7), (20, 29)])),
            ranges(&[(2, 2), (4, 4), (8, 9), (12, 12), (30, 30)])
        );
        for (before, clone, expected) in [
            (0, 1, false),
            (0, 2, true),
            (9, 11, false),
            (9, 12, true),
            (12, 19, false),
            (25, 40, true),
        ] {
            assert_eq!(
                touches(&all, SnapId(before), SnapId(clone)),
                expected,
                "({before}, {clone}]"
            );
        }
    }
}
