//! The metadata's state machine against a naive one: random transactions, leases and repeats;
//! images in between.

use crate::harness::Dice;
use nacre_mon::state::meta::record::{
    MetaAct, MetaEntry, MetaGuard, MetaImage, MetaLimit, MetaTerms, MetaTrigger, MetaWho,
};
use nacre_mon::state::meta::{DEPTH_MAX, Meta, Outcome, history};
use nacre_types::{ClientId, Entity, Epoch, Instance, Name};
use nacre_wire::Wire;
use nacre_wire::msg::meta::{
    MetaAnswer, MetaCompare, MetaError, MetaEvent, MetaOp, MetaRelation, MetaResult, MetaSpan,
    MetaTarget,
};
use std::collections::BTreeMap;

/// Key ─▶ (value, version, lease): the obvious implementation.
type Model = BTreeMap<String, (u64, u64, u64)>;

fn name(text: &str) -> Name {
    text.into()
}
fn who(sequence: u64) -> MetaWho {
    let client = Entity::Client(ClientId(7));
    let (instance, name) = (Instance(1), Name::default());
    MetaWho {
        client,
        instance,
        sequence,
        answered_below: sequence.saturating_sub(9),
        known: 0,
        again: false,
        name,
    }
}
fn entry(who: Option<MetaWho>, act: MetaAct) -> MetaEntry {
    MetaEntry {
        who,
        act,
        terms: MetaTerms::default(),
    }
}
fn put(key: &str, value: u64, lease: u64) -> MetaOp {
    MetaOp::Put {
        key: name(key),
        value: value.to_string().into(),
        lease,
    }
}
fn transact(then: Vec<MetaOp>) -> MetaAct {
    MetaAct::Transact {
        compares: vec![],
        then,
        otherwise: vec![],
    }
}
fn apply(meta: &mut Meta, entry: MetaEntry) -> (u64, MetaResult) {
    match meta.apply(Epoch(3), entry, &mut Vec::new()) {
        Outcome::Done { revision, result } => (revision, result),
        Outcome::Moved => panic!("nothing guards it"),
    }
}

fn random_ops(dice: &mut Dice, leases: &[u64], value: &mut u64) -> Vec<MetaOp> {
    let mut ops = Vec::new();
    for _ in 0..=dice.below(3) {
        let key = format!("n{}/k{}", dice.below(2), dice.below(6));
        *value += 1;
        ops.push(match dice.below(5) {
            0 => MetaOp::Delete {
                span: MetaSpan::Key { key: name(&key) },
            },
            1 => MetaOp::Delete {
                span: MetaSpan::Between {
                    from: name("n0/k2"),
                    to: name("n0/k4"),
                },
            },
            2 if !leases.is_empty() => put(
                &key,
                *value,
                leases[usize::try_from(dice.below(leases.len() as u64)).expect("few")],
            ),
            _ => put(&key, *value, 0),
        });
    }
    ops
}

/// Executes the operations on a copy, in the obvious way.
fn naive(model: &Model, ops: &[MetaOp], lives: &[u64]) -> Option<Model> {
    let mut after = model.clone();
    for op in ops {
        match op {
            MetaOp::Put { key, value, lease } => {
                if *lease != 0 && !lives.contains(lease) {
                    return None;
                }
                let version = after
                    .get(&key.to_string())
                    .map_or(0, |(_, version, _)| *version)
                    + 1;
                let value = std::str::from_utf8(value)
                    .expect("digits")
                    .parse()
                    .expect("a number");
                after.insert(key.to_string(), (value, version, *lease));
            }
            MetaOp::Delete { span } => after.retain(|key, _| !span.has(&name(key))),
            MetaOp::Get { .. } => {}
        }
    }
    Some(after)
}

fn contents(meta: &Meta) -> Model {
    let all = MetaSpan::Prefix {
        prefix: Name::default(),
    };
    let number = |value: &[u8]| {
        std::str::from_utf8(value)
            .expect("digits")
            .parse()
            .expect("a number")
    };
    meta.within(&all)
        .map(|pair| {
            (
                pair.key.to_string(),
                (number(&pair.value), pair.version, pair.lease),
            )
        })
        .collect()
}

// Failed when `Sessions::look` returned `New` for resent requests, and when a lease's end left a
// key.
#[test]
fn random_transactions_do_what_a_naive_store_does() {
    for seed in 1..=12 {
        let mut dice = Dice::new(seed);
        let mut meta = Meta::default();
        let (mut model, mut leases, mut gone, mut value) = (Model::new(), Vec::new(), vec![999], 0);
        let mut replayed: BTreeMap<Name, MetaEvent> = BTreeMap::new();
        for sequence in 1..400 {
            let before = meta.revision();
            match dice.below(12) {
                0 => {
                    let (_, result) = apply(
                        &mut meta,
                        entry(Some(who(sequence)), MetaAct::Grant { ttl_ms: 500 }),
                    );
                    let MetaResult::Granted { lease, .. } = result else {
                        panic!("{result:?}")
                    };
                    leases.push(lease);
                }
                1 if !leases.is_empty() => {
                    let lease = leases
                        .remove(usize::try_from(dice.below(leases.len() as u64)).expect("few"));
                    gone.push(lease);
                    apply(&mut meta, entry(None, MetaAct::Revoke { lease }));
                    model.retain(|_, (_, _, held)| *held != lease);
                }
                _ => {
                    let known: Vec<u64> =
                        leases.iter().chain(gone.iter().take(1)).copied().collect();
                    let ops = random_ops(&mut dice, &known, &mut value);
                    let key = format!("n0/k{}", dice.below(6));
                    let version = dice.below(3);
                    let holds = model.get(&key).map_or(0, |(_, version, _)| *version) < version;
                    let target = MetaTarget::Version { number: version };
                    let compares = vec![MetaCompare {
                        key: name(&key),
                        target,
                        relation: MetaRelation::Less {},
                    }];
                    let (then, otherwise) = (ops, random_ops(&mut dice, &known, &mut value));
                    let chosen = if holds { &then } else { &otherwise };
                    let expected = naive(&model, chosen, &leases);
                    let act = MetaAct::Transact {
                        compares,
                        then: then.clone(),
                        otherwise: otherwise.clone(),
                    };
                    let first = apply(&mut meta, entry(Some(who(sequence)), act.clone()));
                    match (&expected, &first.1) {
                        (Some(after), MetaResult::Transacted { succeeded, .. }) => {
                            assert_eq!(*succeeded, holds, "seed {seed}");
                            model.clone_from(after);
                        }
                        (
                            None,
                            MetaResult::Failed {
                                error: MetaError::NoSuchLease { .. },
                            },
                        ) => {}
                        other => panic!("seed {seed}: {other:?}"),
                    }
                    if dice.chance(20) {
                        assert_eq!(
                            apply(&mut meta, entry(Some(who(sequence)), act)),
                            first,
                            "again: the same answer"
                        );
                    }
                }
            }
            assert!(meta.revision() <= before + 1);
            for event in meta
                .history()
                .since(
                    before + 1,
                    &MetaSpan::Prefix {
                        prefix: Name::default(),
                    },
                )
                .expect("kept")
            {
                if matches!(event, MetaEvent::Put { .. }) {
                    replayed.insert(event.key().clone(), event);
                } else {
                    assert!(
                        replayed.remove(event.key()).is_some(),
                        "what is deleted was there"
                    );
                }
            }
            assert_eq!(contents(&meta), model, "seed {seed}, step {sequence}");
            assert!(
                replayed
                    .keys()
                    .map(Name::to_string)
                    .eq(model.keys().cloned()),
                "events tell the whole story"
            );
            meta.check_all();
            if dice.chance(10) {
                let image = meta.to_image();
                meta = Meta::of(MetaImage::from_bytes(&image.to_bytes()).expect("reads"));
                assert_eq!(meta.to_image(), image);
            }
        }
    }
}

// Failed when `Draft::matching` ignored keys that the transaction had deleted.
#[test]
fn a_transactions_later_parts_see_its_earlier_ones() {
    let mut meta = Meta::default();
    let span = || MetaSpan::Prefix { prefix: name("a/") };
    let (get, delete) = (
        MetaOp::Get {
            span: span(),
            limit: 0,
            keys_only: false,
        },
        MetaOp::Delete { span: span() },
    );
    apply(&mut meta, entry(None, transact(vec![put("a/0", 1, 0)])));
    let ops = vec![put("a/1", 1, 0), get.clone(), delete.clone(), get, delete];
    let (revision, result) = apply(&mut meta, entry(None, transact(ops)));
    let MetaResult::Transacted { answers, .. } = result else {
        panic!("{result:?}")
    };
    assert!(
        matches!(&answers[1], MetaAnswer::Got { pairs, .. } if pairs.len() == 2),
        "{answers:?}"
    );
    assert_eq!(answers[2], MetaAnswer::Deleted { keys: 2 });
    assert_eq!(
        answers[3],
        MetaAnswer::Got {
            pairs: vec![],
            more: false
        }
    );
    assert_eq!(answers[4], MetaAnswer::Deleted { keys: 0 });
    assert_eq!(revision, 2);
    let events = meta.history().at(2).expect("kept");
    assert_eq!(
        events.len(),
        1,
        "what was made and deleted at once did not happen: {events:?}"
    );
}

// Failed when `push` did not trim.
#[test]
fn history_is_bounded_by_count_and_bytes_and_says_when_it_is_compacted() {
    let all = MetaSpan::Prefix {
        prefix: Name::default(),
    };
    let mut meta = Meta::default();
    for n in 0..history::REVISIONS_MAX as u64 + 50 {
        apply(&mut meta, entry(None, transact(vec![put("a/k", n, 0)])));
    }
    assert_eq!(meta.history().oldest(), 51);
    assert!(meta.history().since(50, &all).is_none() && meta.history().since(51, &all).is_some());
    let large = MetaOp::Put {
        key: name("a/k"),
        value: vec![0; 60_000].into(),
        lease: 0,
    };
    for _ in 0..100 {
        apply(&mut meta, entry(None, transact(vec![large.clone()])));
    }
    let kept = meta.revision() + 1 - meta.history().oldest();
    assert!(
        (60..70).contains(&kept),
        "{kept} revisions of 60 kB in 4 MiB"
    );
    meta.check_all();
}

// Failed when guards were not checked.
#[test]
fn what_rests_on_a_key_that_moved_does_nothing_and_is_not_remembered() {
    let mut meta = Meta::default();
    apply(&mut meta, entry(None, transact(vec![put("a/k", 1, 0)])));
    let guarded = |modified| {
        let guards = vec![MetaGuard {
            key: name("a/k"),
            modified,
        }];
        let terms = MetaTerms {
            guards,
            ..MetaTerms::default()
        };
        MetaEntry {
            who: Some(who(1)),
            act: transact(vec![put("a/k", 2, 0)]),
            terms,
        }
    };
    assert_eq!(
        meta.apply(Epoch(3), guarded(0), &mut Vec::new()),
        Outcome::Moved
    );
    assert_eq!(meta.revision(), 1);
    assert!(matches!(
        meta.apply(Epoch(3), guarded(1), &mut Vec::new()),
        Outcome::Done { revision: 2, .. }
    ));
    // Now it was executed: whatever its guards, it is answered.
    assert!(matches!(
        meta.apply(Epoch(3), guarded(0), &mut Vec::new()),
        Outcome::Done { revision: 2, .. }
    ));
}

#[test]
fn limits_hold_for_the_transaction_as_a_whole_and_shrinking_is_always_allowed() {
    let mut meta = Meta::default();
    let limited = |act, keys| {
        let limits = vec![MetaLimit {
            namespace: name("a"),
            bytes: 1_000,
            keys,
        }];
        MetaEntry {
            who: None,
            act,
            terms: MetaTerms {
                limits,
                ..MetaTerms::default()
            },
        }
    };
    let three = transact(vec![put("a/1", 1, 0), put("a/2", 1, 0), put("b/1", 1, 0)]);
    assert!(matches!(
        apply(&mut meta, limited(three.clone(), 1)).1,
        MetaResult::Failed { .. }
    ));
    assert_eq!(meta.revision(), 0);
    assert!(matches!(
        apply(&mut meta, limited(three, 2)).1,
        MetaResult::Transacted { .. }
    ));
    let less = transact(vec![MetaOp::Delete {
        span: MetaSpan::Key { key: name("a/1") },
    }]);
    assert!(matches!(
        apply(&mut meta, limited(less, 0)).1,
        MetaResult::Transacted { .. }
    ));
}

// Failed when `Fired` did not look for its pending event, and when the depth was not checked.
#[test]
fn a_triggers_work_is_done_once_and_chains_of_triggers_end() {
    let mut meta = Meta::default();
    let terms = |depth| {
        let triggers = vec![MetaTrigger {
            name: name("a/t"),
            prefix: name("a/"),
        }];
        MetaTerms {
            triggers,
            depth,
            ..MetaTerms::default()
        }
    };
    let set = |depth| MetaEntry {
        who: None,
        act: transact(vec![put("a/k", 1, 0)]),
        terms: terms(depth),
    };
    apply(&mut meta, set(0));
    apply(&mut meta, entry(None, transact(vec![put("b/k", 1, 0)])));
    assert_eq!(meta.pending().len(), 1);
    let fired = |revision, depth| {
        let (trigger, ops, lines) = (name("a/t"), vec![put("a/k", 2, 0)], vec!["told".to_owned()]);
        MetaEntry {
            who: None,
            act: MetaAct::Fired {
                trigger,
                revision,
                ops,
                lines,
            },
            terms: terms(depth),
        }
    };
    let mut said = Vec::new();
    for _ in 0..2 {
        meta.apply(Epoch(3), fired(1, 1), &mut said);
    }
    assert_eq!(
        (meta.revision(), said.len()),
        (3, 1),
        "the second leader's is too late"
    );
    while let Some(pending) = meta.pending().first() {
        let (revision, depth) = (pending.revision, pending.depth);
        assert!(depth <= DEPTH_MAX);
        meta.apply(Epoch(3), fired(revision, depth), &mut said);
    }
    assert_eq!(
        said.iter()
            .filter(|line| line.text.contains("is not run"))
            .count(),
        1,
        "{said:?}"
    );
}
