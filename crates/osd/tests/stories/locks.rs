//! Stories of locks on several daemons: which state survives which failures, who may take over, and
//! how a late request of an old holder is handled.

use super::company::Company;
use nacre_types::{ClientId, Entity, Epoch, Instance, Version};
use nacre_wire::map::Change;
use nacre_wire::msg::client::{OpFailure, SubOp, SubReply};

const ANNA: ClientId = ClientId(21);

const BERT: ClientId = ClientId(22);

impl Company {
    fn act(
        &mut self,
        client: ClientId,
        ops: Vec<SubOp>,
        data: &[u8],
        fence: Epoch,
    ) -> Result<Vec<SubReply>, OpFailure> {
        let mut request = self.request(client, "a", ops, 0);
        request.fence = fence;
        self.resend(&request, data);
        self.await_answer(&request)?;
        Ok(self.results(&request))
    }
    fn lock(&mut self, client: ClientId, lease_ms: u32) -> Result<(Version, Epoch), OpFailure> {
        let op = SubOp::Lock {
            name: "n".into(),
            cookie: 1,
            shared: false,
            lease_ms,
            description: "d".to_owned(),
        };
        match self.act(client, vec![op], &[], Epoch::NONE)?[..] {
            [SubReply::Locked { token, fence }] => Ok((token, fence)),
            ref other => panic!("{other:?}"),
        }
    }
    fn write_as(&mut self, client: ClientId, data: &[u8]) -> Result<(), OpFailure> {
        let guard = SubOp::AssertLock {
            name: "n".into(),
            cookie: 1,
            shared_ok: false,
        };
        let ops = vec![
            guard,
            SubOp::WriteFull {
                length: data.len() as u64,
            },
        ];
        self.act(client, ops, data, Epoch::NONE).map(|_| ())
    }
}

#[test]
fn a_lock_survives_the_primary_and_its_holder_alone_writes_under_it() {
    let mut company = Company::new(3, 2, 3);
    let (token, _) = company.lock(ANNA, 0).expect("free");
    company.write_as(ANNA, b"anna").expect("hers");
    assert_eq!(
        company.write_as(BERT, b"bert"),
        Err(OpFailure::Guard { index: 0 })
    );
    let _dead = company.kill(company.acting()[0]);
    company.wait(2000);
    assert!(
        matches!(company.lock(BERT, 0), Err(OpFailure::LockHeld { owner, .. }) if owner.client == ANNA)
    );
    company.write_as(ANNA, b"again").expect("still hers");
    company
        .act(
            ANNA,
            vec![SubOp::Unlock {
                name: "n".into(),
                cookie: 1,
            }],
            &[],
            Epoch::NONE,
        )
        .expect("hers");
    let (later, _) = company.lock(BERT, 0).expect("free");
    assert!(later > token);
    assert_eq!(
        company.write_as(ANNA, b"late"),
        Err(OpFailure::Guard { index: 0 })
    );
    company.write_as(BERT, b"bert").expect("his");
    assert_eq!(company.read("a").expect("read"), b"bert");
}

#[test]
fn a_fenced_holders_lock_is_free_and_the_grant_says_the_fence() {
    let mut company = Company::new(3, 2, 3);
    let (token, before) = company.lock(ANNA, 0).expect("free");
    company.commit(vec![Change::Fence {
        entity: Entity::Client(ANNA),
        instance: Instance(1),
    }]);
    let (later, fence) = company.lock(BERT, 0).expect("taken over");
    assert!(later > token);
    assert!(
        fence > before && fence >= company.monitors.map.epoch,
        "{fence}"
    );
    assert_eq!(company.write_as(ANNA, b"late"), Err(OpFailure::Fenced {}));
    company.write_as(BERT, b"bert").expect("his");
}

/// Another OSD may not know the fence when the new holder writes there: the old holder's writes
/// would still be executed after it.
#[test]
fn a_request_that_carries_a_fence_waits_for_the_map_that_has_it() {
    let mut company = Company::new(1, 1, 1);
    company.write("a", b"old").expect("written");
    let fence = company.monitors.map.epoch.next();
    let mut request = company.request(BERT, "a", vec![SubOp::WriteFull { length: 3 }], 0);
    request.fence = fence;
    company.resend(&request, b"new");
    company.wait(500);
    assert!(
        company.answer(&request).is_none(),
        "it does not know the fence yet"
    );
    assert_eq!(company.read("a").expect("read"), b"old");
    company.commit(vec![Change::Fence {
        entity: Entity::Client(ANNA),
        instance: Instance(1),
    }]);
    assert_eq!(company.monitors.map.epoch, fence);
    company.wait(100);
    assert!(matches!(company.answer(&request), Some(Ok(_))));
    assert_eq!(
        company.act(
            ANNA,
            vec![SubOp::WriteFull { length: 3 }],
            b"bad",
            Epoch::NONE
        ),
        Err(OpFailure::Fenced {})
    );
}

#[test]
fn after_a_silent_lease_a_contender_takes_over_and_not_before() {
    let mut company = Company::new(3, 2, 3);
    company.lock(ANNA, 1000).expect("free");
    for _ in 0..4 {
        company.wait(700);
        company
            .write_as(ANNA, b"anna")
            .expect("hers, and she is heard");
        assert!(company.lock(BERT, 1000).is_err());
    }
    company.wait(1200);
    company
        .write_as(ANNA, b"late")
        .expect("nobody wanted it: it is still hers");
    company.wait(1200);
    company.lock(BERT, 1000).expect("she was silent");
    assert_eq!(
        company.write_as(ANNA, b"too late"),
        Err(OpFailure::Guard { index: 0 })
    );
}

#[test]
fn a_new_primary_gives_a_full_lease() {
    let mut company = Company::new(3, 2, 3);
    company.lock(ANNA, 5000).expect("free");
    company.wait(4000);
    let _dead = company.kill(company.acting()[0]);
    company.wait(2000);
    assert!(
        company.lock(BERT, 0).is_err(),
        "six seconds, but nobody who is here has listened so long"
    );
    company.wait(4000);
    assert!(company.lock(BERT, 0).is_err());
    company.wait(1500);
    company.lock(BERT, 0).expect("silent for a lease");
}

#[test]
fn locks_are_listed_and_broken_and_go_with_the_object() {
    let mut company = Company::new(2, 2, 2);
    company.lock(ANNA, 0).expect("free");
    let [SubReply::Locks { locks }] = &company
        .act(BERT, vec![SubOp::ListLocks {}], &[], Epoch::NONE)
        .expect("there")[..]
    else {
        panic!("a list was asked for")
    };
    let holder = locks[0].record.holders[0].clone();
    assert_eq!(
        (holder.owner.client, holder.description.as_str()),
        (ANNA, "d")
    );
    let breaks = SubOp::BreakLock {
        name: "n".into(),
        owner: holder.owner,
    };
    company
        .act(BERT, vec![breaks], &[], Epoch::NONE)
        .expect("broken");
    assert_eq!(
        company.write_as(ANNA, b"x"),
        Err(OpFailure::Guard { index: 0 })
    );
    company.lock(BERT, 0).expect("free");
    company
        .op("a", vec![SubOp::Delete {}], &[])
        .expect("deleted");
    company
        .lock(ANNA, 0)
        .expect("went with the object, and makes it again");
}

/// A stalled primary heard no clients meanwhile: a live holder keeps its lock, and no other client
/// writes beside it.
#[test]
fn what_the_primary_slept_through_ends_no_lease() {
    let mut company = Company::new(2, 2, 2);
    company.lock(ANNA, 1000).expect("free");
    for host in company.hosts.values_mut() {
        host.now = host.now + std::time::Duration::from_secs(30);
    }
    company.wait(100);
    assert!(company.lock(BERT, 1000).is_err(), "she could not be heard");
    company.write_as(ANNA, b"anna").expect("still hers");
    company.wait(1500);
    company.lock(BERT, 1000).expect("now she was silent");
}

/// (Review.) A client that holds two locks of an object, one with an expired lease, lost both: the
/// check was whether the owner had been silent, not for which lock.
#[test]
fn a_lease_that_is_over_frees_no_other_lock_of_its_owner() {
    let mut company = Company::new(3, 2, 3);
    let lock = |name: &str, lease_ms| SubOp::Lock {
        name: name.into(),
        cookie: 1,
        shared: false,
        lease_ms,
        description: String::new(),
    };
    for (name, lease_ms) in [("long", 0), ("middle", 60_000), ("short", 1000)] {
        company
            .act(ANNA, vec![lock(name, lease_ms)], &[], Epoch::NONE)
            .expect("free");
    }
    company.wait(1500);
    for (name, over) in [("long", false), ("middle", false), ("short", true)] {
        let taken = company.act(BERT, vec![lock(name, 1000)], &[], Epoch::NONE);
        assert_eq!(taken.is_ok(), over, "{name}: {taken:?}");
    }
    company.commit(vec![Change::Fence {
        entity: Entity::Client(ANNA),
        instance: Instance(1),
    }]);
    company
        .act(BERT, vec![lock("long", 1000)], &[], Epoch::NONE)
        .expect("a fence frees all");
}

/// (Planted by a reviewer: the stored state contained the holder that had just left.)
#[test]
fn one_of_several_holders_gives_a_shared_lock_back_for_good() {
    let mut company = Company::new(3, 2, 3);
    let lock = SubOp::Lock {
        name: "n".into(),
        cookie: 1,
        shared: true,
        lease_ms: 0,
        description: String::new(),
    };
    for client in [ANNA, BERT] {
        company
            .act(client, vec![lock.clone()], &[], Epoch::NONE)
            .expect("shared");
    }
    company
        .act(
            ANNA,
            vec![SubOp::Unlock {
                name: "n".into(),
                cookie: 1,
            }],
            &[],
            Epoch::NONE,
        )
        .expect("hers");
    company.kill(company.acting()[0]);
    company.wait(2000);
    let listed = company
        .act(BERT, vec![SubOp::ListLocks {}], &[], Epoch::NONE)
        .expect("listed");
    let [SubReply::Locks { locks }] = &listed[..] else {
        panic!("{listed:?}")
    };
    let holders: Vec<ClientId> = locks[0]
        .record
        .holders
        .iter()
        .map(|holder| holder.owner.client)
        .collect();
    assert_eq!(holders, [BERT]);
}
