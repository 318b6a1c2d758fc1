//! Repairs a file system in use (`fs check --repair`): its servers give their ranks back, faults
//! found are repaired, and clients continue with the next servers.
//!
//! ```text
//!  key put, renewed every 2 s ─▶ no rank has a holder ─▶ checked: journals are empty, no faults
//!                                                      └▶ damaged ─▶ found ─▶ repaired ─▶ key deleted
//! ```
//! If a server died meanwhile, or was too slow, the command reports that and changes nothing; so
//! does this one.

use super::checked::{config, faults_of, look};
use super::registry::Registry;
use super::world::METADATA;
use crate::plan::{MS, SECOND};
use crate::rng::Rng;
use bytes::Bytes;
use nacre_conformance::memory::{Memory, Object};
use nacre_mds::check::{Check, CheckConfig};
use nacre_mds::mds::{HEAD_ATTR, PARENT_ATTR};
use nacre_types::{Name, ObjectId, PoolId};
use nacre_wire::Wire as _;
use nacre_wire::fs::{FsKey, Head};
use nacre_wire::msg::client::SubOp;
use nacre_wire::msg::meta::{MetaCall, MetaOp, MetaResult, MetaSpan};

const TTL_MS: u64 = 30_000;
const SAY_AGAIN: u64 = 2 * SECOND;
/// How long servers have to give their ranks back.
const GIVEN_BACK_MAX: u64 = 40 * SECOND;
/// Most steps of a repair.
const STEPS_MAX: usize = 12;

/// The result of a step.
pub enum Step {
    /// Continue at that time.
    Again(u64),
    /// Abandoned, or the number of faults repaired.
    Over(u64),
}

struct Asking {
    lease: u64,
    since: u64,
    said: u64,
}

/// See the module head.
pub struct Repairs {
    rng: Rng,
    file_system: Name,
    ranks: u16,
    asking: Option<Asking>,
}

impl Repairs {
    pub fn new(seed: u64, file_system: &str, ranks: u16) -> Self {
        Self {
            rng: Rng::new(seed ^ 0x5e7),
            file_system: file_system.into(),
            ranks,
            asking: None,
        }
    }
    /// When the next repair begins.
    pub fn next(&mut self, now: u64) -> u64 {
        now + self.rng.between(SECOND, 15 * SECOND)
    }

    /// Performs the next step; the registry has a quorum.
    pub fn step(&mut self, now: u64, registry: &mut Registry, memory: &mut Memory) -> Step {
        let mut ask = |call| registry.ask(now, call);
        let asking = self.asking.get_or_insert_with(|| {
            let Ok(MetaResult::Granted { lease, .. }) = ask(MetaCall::Grant { ttl_ms: TTL_MS })
            else {
                unreachable!("it always grants one")
            };
            Asking {
                lease,
                since: now,
                said: 0,
            }
        });
        let lease = asking.lease;
        if asking.said == 0 || now - asking.said >= SAY_AGAIN {
            asking.said = now;
            let key = FsKey::Repair.of(&self.file_system);
            let then = vec![MetaOp::Put {
                key,
                value: Bytes::from_static(b"a repair"),
                lease,
            }];
            let put = MetaCall::Transact {
                compares: Vec::new(),
                then,
                otherwise: Vec::new(),
            };
            if ask(MetaCall::KeepAlive { lease }).is_err() || ask(put).is_err() {
                // There was no quorum for too long.
                self.asking = None;
                return Step::Over(0);
            }
        }
        let since = asking.since;
        let span = MetaSpan::Prefix {
            prefix: FsKey::Settings.of(&self.file_system),
        };
        let all = MetaCall::Range {
            span,
            limit: 0,
            keys_only: false,
            serializable: false,
        };
        let Ok(MetaResult::Ranged { pairs, .. }) = ask(all) else {
            unreachable!("it always answers")
        };
        let has = |of: fn(&FsKey) -> bool| {
            pairs
                .iter()
                .any(|pair| FsKey::parse(&pair.key).is_some_and(|(_, key)| of(&key)))
        };
        if has(|key| matches!(key, FsKey::Rank(_))) && now - since < GIVEN_BACK_MAX {
            return Step::Again(now + 50 * MS);
        }
        let is_clean = !has(|key| matches!(key, FsKey::Rank(_) | FsKey::Last(_)));
        let mended = if is_clean { self.repair(memory) } else { 0 };
        self.asking = None;
        let _ = registry.ask(now, MetaCall::Revoke { lease });
        Step::Over(mended)
    }

    fn repair(&mut self, memory: &mut Memory) -> u64 {
        let config = config(self.ranks);
        let first = look(memory, Check::new(config.clone()));
        assert_eq!(
            first.counts.batches, 0,
            "servers that gave their ranks back have written all"
        );
        assert_eq!(
            faults_of(&first),
            [""; 0],
            "what servers gave back fits together"
        );
        self.damage(memory, &config);
        let mut report = look(memory, Check::new(config.clone()));
        let found = report.faults().count() as u64;
        for _ in 0..STEPS_MAX {
            let Some(plan) = report.plan() else { break };
            for operation in plan.steps.iter().flatten() {
                let is_guarded = matches!(operation.ops.first(), Some(SubOp::AssertExists { .. }));
                let done = memory.perform(operation);
                assert!(done.is_ok() || is_guarded, "{done:?}");
            }
            report = look(memory, Check::after(config.clone(), &report));
        }
        assert_eq!(faults_of(&report), [""; 0], "what was found is repaired");
        found
    }

    /// Damages a directory's object: a wrong count, or a missing backpointer to its entry.
    fn damage(&mut self, memory: &mut Memory, config: &CheckConfig) {
        let has_head = |(key, object): (&(PoolId, ObjectId), &Object)| {
            let is_directory = key.0 == METADATA && object.attrs.contains_key(HEAD_ATTR.as_bytes());
            (is_directory && key.1.namespace == config.namespace).then(|| key.clone())
        };
        let all: Vec<(PoolId, ObjectId)> = memory.all.iter().filter_map(has_head).collect();
        let object = memory.all.get_mut(self.rng.pick(&all)).expect("just seen");
        if self.rng.one_in(2) {
            object.attrs.remove(PARENT_ATTR.as_bytes());
        } else {
            let head = object
                .attrs
                .get_mut(HEAD_ATTR.as_bytes())
                .expect("just seen");
            let mut wrong = Head::from_bytes(head).expect("servers write whole ones");
            wrong.entries += 1;
            wrong.files_below += 3;
            *head = wrong.to_bytes().into();
        }
    }
}
