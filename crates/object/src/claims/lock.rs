//! How the lock parts of an operation change an object (DESIGN §3, Fencing; CHECKLIST CEPH-09).
//!
//! ```text
//!          Lock while free ───────────────────▶ held: token = the object's version at the grant
//!  free ◀─ Unlock · BreakLock · Delete ───────  │  Lock by the holder: renewed, same token
//!                                               │  Lock by another: refused, unless every conflicting holder is
//!                                               ▼     fenced by the map, or silent for longer than its lease
//!                                            held by the other: a greater token
//! ```
//! A lock protects what is written under [`SubOp::AssertLock`]: the guard and the write are one
//! operation, so a client that has lost the lock cannot write, however late its request arrives.
//! The fence protects writes to other objects: the grant names an epoch, the holder's requests
//! carry it, and an OSD that knows that epoch refuses clients that were fenced before the lock was
//! taken over.
//!
//! Invariant: the tokens of a lock's grants increase, because they are versions of the object.

use super::{Claiming, Scene, lock_attr};
use crate::context::Context;
use nacre_types::Name;
use nacre_wire::Wire;
use nacre_wire::msg::client::{OpFailure, SubReply};
use nacre_wire::msg::lock::{
    LOCK_HOLDERS_MAX, LOCKS_MAX, LockEntry, LockHolder, LockOwner, LockRecord,
};
use nacre_wire::msg::replication::Effect;

#[cfg(feature = "mutants")]
#[path = "../mutants/lock.rs"]
mod planted;

impl Claiming<'_> {
    fn lock_owner(&self, cookie: u64) -> LockOwner {
        LockOwner {
            client: self.scene.client,
            instance: self.scene.instance,
            cookie,
        }
    }

    /// Grants or renews a lock.
    ///
    /// # Errors
    /// Another client holds it, or a limit is reached.
    pub fn lock(
        &mut self,
        name: &Name,
        cookie: u64,
        shared: bool,
        lease_ms: u32,
        description: &str,
    ) -> Result<SubReply, OpFailure> {
        let holder = LockHolder {
            owner: self.lock_owner(cookie),
            token: self.scene.token,
            granted: self.scene.epoch,
            lease_ms,
            description: description.to_owned(),
        };
        grant(name, shared, holder, self.scene, self.context, self.effects)
    }

    /// Releases a lock; returns whether it was held.
    pub fn unlock(&mut self, name: &Name, cookie: u64) -> bool {
        let owner = self.lock_owner(cookie);
        self.break_lock(name, &owner)
    }

    /// Takes a lock away; returns whether `owner` was its holder.
    pub fn break_lock(&mut self, name: &Name, owner: &LockOwner) -> bool {
        remove(name, owner, self.context, self.effects).is_some()
    }

    /// Whether this client holds the lock, exclusively or, if `shared_ok`, shared.
    #[must_use]
    #[nacre_types::planted]
    pub fn holds(&self, name: &Name, cookie: u64, shared_ok: bool) -> bool {
        let owner = self.lock_owner(cookie);
        let record = self
            .context
            .claims
            .locks
            .get(name)
            .filter(|record| !record.shared || shared_ok);
        record.is_some_and(|record| record.holders.iter().any(|holder| holder.owner == owner))
    }

    /// All locks.
    #[must_use]
    pub fn locks(&self) -> Vec<LockEntry> {
        let entry = |(name, record): (&Name, &LockRecord)| LockEntry {
            name: name.clone(),
            record: record.clone(),
        };
        self.context.claims.locks.iter().map(entry).collect()
    }
}

fn grant(
    name: &Name,
    shared: bool,
    mut holder: LockHolder,
    scene: &Scene,
    context: &mut Context,
    effects: &mut Vec<Effect>,
) -> Result<SubReply, OpFailure> {
    let locks = &context.claims.locks;
    if !locks.contains_key(name) && locks.len() >= LOCKS_MAX {
        return Err(OpFailure::TooMany {
            what: format!("the object has {LOCKS_MAX} locks already"),
        });
    }
    let mut record = locks.get(name).cloned().unwrap_or_default();
    let before = record
        .holders
        .iter()
        .find(|other| other.owner == holder.owner)
        .cloned();
    let others: Vec<&LockHolder> = record
        .holders
        .iter()
        .filter(|other| other.owner != holder.owner)
        .collect();
    let compatible = shared && record.shared;
    let is_free = |other: &LockHolder| scene.free.contains(&(name.clone(), other.owner));
    if let Some(other) = others.iter().find(|other| !compatible && !is_free(other)) {
        return Err(OpFailure::LockHeld {
            owner: other.owner,
            description: other.description.clone(),
        });
    }
    // A renewal keeps the grant. Changing from shared to exclusive is a new grant: the new lock did
    // not guard what the shared one guarded.
    if let Some(before) = before.filter(|_| record.shared == shared) {
        (holder.token, holder.granted) = (before.token, before.granted);
    }
    record
        .holders
        .retain(|other| other.owner != holder.owner && !is_free(other));
    if record.holders.len() >= LOCK_HOLDERS_MAX {
        return Err(OpFailure::TooMany {
            what: format!("{LOCK_HOLDERS_MAX} clients hold the lock already"),
        });
    }
    record.shared = shared;
    let token = holder.token;
    record.holders.push(holder);
    if !context.exists {
        effects.push(Effect::Touch {});
        context.exists = true;
    }
    effects.push(Effect::SetAttr {
        name: lock_attr(name),
        value: record.to_bytes().into(),
    });
    context.claims.locks.insert(name.clone(), record);
    // Our epoch, not that of the fence: ours is at least as new, and the epoch of each fence need
    // not be stored.
    Ok(SubReply::Locked {
        token,
        fence: scene.epoch,
    })
}

/// Removes one holder; `None` if it does not hold the lock.
fn remove(
    name: &Name,
    owner: &LockOwner,
    context: &mut Context,
    effects: &mut Vec<Effect>,
) -> Option<()> {
    let record = context.claims.locks.get_mut(name)?;
    let at = record
        .holders
        .iter()
        .position(|holder| holder.owner == *owner)?;
    record.holders.remove(at);
    if record.holders.is_empty() {
        context.claims.locks.remove(name);
        effects.push(Effect::RemoveAttr {
            name: lock_attr(name),
        });
    } else {
        effects.push(Effect::SetAttr {
            name: lock_attr(name),
            value: record.to_bytes().into(),
        });
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::{ClientId, Epoch, Instance, Version};
    use nacre_wire::msg::client::SubOp;

    const GUARD: OpFailure = OpFailure::Guard { index: 0 };

    struct Bench {
        context: Context,
        number: u64,
        free: Vec<LockOwner>,
    }
    impl Bench {
        fn new() -> Self {
            Self {
                context: Context::default(),
                number: 0,
                free: Vec::new(),
            }
        }
        fn run(&mut self, client: u64, op: &SubOp) -> Result<SubReply, OpFailure> {
            self.number += 1;
            let scene = Scene {
                client: ClientId(client),
                instance: Instance(1),
                token: Version {
                    interval: Epoch(1),
                    number: self.number,
                },
                epoch: Epoch(7),
                free: self.free.iter().map(|owner| ("n".into(), *owner)).collect(),
            };
            let effects = &mut Vec::new();
            let mut claiming = Claiming {
                scene: &scene,
                context: &mut self.context,
                effects,
            };
            let done = |held: bool, failure| {
                if held {
                    Ok(SubReply::Done {})
                } else {
                    Err(failure)
                }
            };
            match op {
                SubOp::Lock {
                    name,
                    cookie,
                    shared,
                    lease_ms,
                    description,
                } => claiming.lock(name, *cookie, *shared, *lease_ms, description),
                SubOp::Unlock { name, cookie } => done(claiming.unlock(name, *cookie), GUARD),
                SubOp::BreakLock { name, owner } => {
                    done(claiming.break_lock(name, owner), OpFailure::NotFound {})
                }
                SubOp::AssertLock {
                    name,
                    cookie,
                    shared_ok,
                } => done(claiming.holds(name, *cookie, *shared_ok), GUARD),
                other => panic!("{other:?} is not tried here"),
            }
        }
        fn lock(&mut self, client: u64, shared: bool) -> Result<u64, OpFailure> {
            let op = SubOp::Lock {
                name: "n".into(),
                cookie: 1,
                shared,
                lease_ms: 0,
                description: "why".to_owned(),
            };
            match self.run(client, &op)? {
                SubReply::Locked {
                    token,
                    fence: Epoch(7),
                } => Ok(token.number),
                other => panic!("{other:?}"),
            }
        }
        fn holds(&mut self, client: u64, shared_ok: bool) -> bool {
            self.run(
                client,
                &SubOp::AssertLock {
                    name: "n".into(),
                    cookie: 1,
                    shared_ok,
                },
            )
            .is_ok()
        }
    }
    fn owner(client: u64) -> LockOwner {
        LockOwner {
            client: ClientId(client),
            instance: Instance(1),
            cookie: 1,
        }
    }

    #[test]
    fn an_exclusive_lock_is_one_clients_until_given_back_and_its_token_stays_when_renewed() {
        let mut bench = Bench::new();
        assert_eq!(bench.lock(1, false), Ok(1));
        assert!(bench.context.exists, "locking makes the object");
        assert_eq!(
            bench.lock(2, false),
            Err(OpFailure::LockHeld {
                owner: owner(1),
                description: "why".to_owned()
            })
        );
        assert!(matches!(
            bench.lock(2, true),
            Err(OpFailure::LockHeld { .. })
        ));
        assert_eq!(bench.lock(1, false), Ok(1), "renewed");
        assert!(bench.holds(1, false) && !bench.holds(2, true));
        assert_eq!(
            bench.run(
                2,
                &SubOp::Unlock {
                    name: "n".into(),
                    cookie: 1
                }
            ),
            Err(GUARD)
        );
        assert_eq!(
            bench.run(
                1,
                &SubOp::Unlock {
                    name: "n".into(),
                    cookie: 2
                }
            ),
            Err(GUARD),
            "another cookie"
        );
        assert!(
            bench
                .run(
                    1,
                    &SubOp::Unlock {
                        name: "n".into(),
                        cookie: 1
                    }
                )
                .is_ok()
        );
        assert!(!bench.holds(1, true) && bench.context.claims.is_empty());
        assert!(bench.lock(2, false).expect("free") > 1);
    }

    #[test]
    fn a_shared_lock_is_everybodys_and_becomes_exclusive_only_for_the_last() {
        let mut bench = Bench::new();
        assert_eq!((bench.lock(1, true), bench.lock(2, true)), (Ok(1), Ok(2)));
        assert!(bench.holds(1, true) && bench.holds(2, true) && !bench.holds(1, false));
        assert!(matches!(
            bench.lock(1, false),
            Err(OpFailure::LockHeld { .. })
        ));
        bench
            .run(
                2,
                &SubOp::Unlock {
                    name: "n".into(),
                    cookie: 1,
                },
            )
            .expect("held");
        let token = bench.lock(1, false).expect("alone");
        assert!(token > 2, "a new grant: {token}");
        assert!(bench.holds(1, false));
    }

    #[test]
    fn a_holder_who_is_free_to_be_pushed_out_is_and_only_he() {
        let mut bench = Bench::new();
        bench.lock(1, false).expect("free");
        bench.free = vec![owner(3)];
        assert!(bench.lock(2, false).is_err());
        bench.free = vec![owner(1)];
        let token = bench.lock(2, false).expect("taken over");
        assert!(token > 1 && !bench.holds(1, true) && bench.holds(2, false));
        bench.free.clear();
        assert!(bench.lock(1, false).is_err());
    }

    #[test]
    fn broken_locks_are_free_and_limits_hold() {
        let mut bench = Bench::new();
        bench.lock(1, false).expect("free");
        let break_lock = |client| SubOp::BreakLock {
            name: "n".into(),
            owner: owner(client),
        };
        assert_eq!(bench.run(2, &break_lock(2)), Err(OpFailure::NotFound {}));
        bench.run(2, &break_lock(1)).expect("held");
        assert!(bench.lock(2, true).is_ok());
        for client in 3..2 + LOCK_HOLDERS_MAX as u64 {
            bench.lock(client, true).expect("room");
        }
        assert!(matches!(
            bench.lock(1000, true),
            Err(OpFailure::TooMany { .. })
        ));
        for other in 1..LOCKS_MAX {
            let name = Name::copy(format!("{other}").as_bytes());
            let op = SubOp::Lock {
                name,
                cookie: 1,
                shared: false,
                lease_ms: 0,
                description: String::new(),
            };
            bench.run(1, &op).expect("room");
        }
        let op = SubOp::Lock {
            name: "last".into(),
            cookie: 1,
            shared: false,
            lease_ms: 0,
            description: String::new(),
        };
        assert!(matches!(bench.run(1, &op), Err(OpFailure::TooMany { .. })));
    }
}
