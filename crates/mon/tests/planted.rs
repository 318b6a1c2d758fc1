//! Effects of planted bugs of monitors ([`nacre_mon::Mutant`]): each story must pass, and fail with
//! its bug (`mutants.rs`).

use crate::harness::{CLUSTER, World, ms};
use crate::meta::{Clients, client, prefix, put, range, reply_to, told, transact};
use nacre_mon::state::meta::record::{MetaAct, MetaEntry, MetaTerms};
use nacre_mon::state::{CommandDone, Proposal, State};
use nacre_types::{ClientId, Entity, Epoch, Instance, MonId};
use nacre_wire::codec::Wire;
use nacre_wire::map::{Change, ClusterMap, CrushSection};
use nacre_wire::msg::Message;
use nacre_wire::msg::meta::{MetaCall, MetaResult, MetaWatch};
use std::time::Duration;

/// A lease number is used once: the holder of a revoked lease must not keep its successor alive, or
/// attach keys to it.
pub fn numbers_of_leases_never_come_again() {
    let mut world = World::found(3, 81);
    let leader = world.elect();
    let mut clients = Clients::default();
    let mut ask = |world: &mut World, call| clients.ask(world, client(1), leader, call).result;
    let grant =
        |world: &mut World, ask: &mut dyn FnMut(&mut World, MetaCall) -> MetaResult| match ask(
            world,
            MetaCall::Grant { ttl_ms: 60_000 },
        ) {
            MetaResult::Granted { lease, .. } => lease,
            other => panic!("{other:?}"),
        };
    let (first, second) = (grant(&mut world, &mut ask), grant(&mut world, &mut ask));
    assert!(second > first);
    let revoked = ask(&mut world, MetaCall::Revoke { lease: second });
    assert!(matches!(revoked, MetaResult::Revoked { .. }), "{revoked:?}");
    let MetaResult::Granted { lease: third, .. } =
        ask(&mut world, MetaCall::Grant { ttl_ms: 60_000 })
    else {
        panic!("granted")
    };
    assert!(third > second, "lease {third} after {second} was revoked");
}

/// A monitor that is far behind gets the complete state.
pub fn a_snapshot_has_everything() {
    let mut state = State::new(ClusterMap::empty(
        CLUSTER,
        CrushSection::parse("").expect("empty text"),
    ));
    let done = CommandDone {
        via: MonId(1),
        token: 77,
        reply: "{}".to_owned(),
    };
    let act = MetaAct::Grant { ttl_ms: 5_000 };
    let proposal = Proposal {
        base: Epoch::NONE,
        changes: vec![Change::Fence {
            entity: Entity::Client(ClientId(9)),
            instance: Instance(3),
        }],
        lines: Vec::new(),
        clean_to: Epoch::NONE,
        commands: vec![done],
        unix_ms: 1,
        meta: vec![MetaEntry {
            who: None,
            act,
            terms: MetaTerms::default(),
        }],
    };
    state.apply(&proposal.to_bytes()).expect("it fits");
    let other = State::from_image(&state.to_image()).expect("an image");
    // Digests do not cover what an image leaves out: compare whole maps.
    assert_eq!(
        (other.map(), other.map().digest),
        (state.map(), state.map().digest)
    );
    assert!(
        other
            .map()
            .is_fenced(Entity::Client(ClientId(9)), Instance(3))
    );
    assert_eq!(
        other.meta().leases().collect::<Vec<_>>(),
        state.meta().leases().collect::<Vec<_>>()
    );
    assert_eq!(other.meta().leases().count(), 1);
    assert!(
        other.command_done(MonId(1), 77).is_some(),
        "or it would be carried out twice"
    );
}

/// A leader that was deposed while it hung returns no old values.
pub fn no_read_is_stale() {
    let mut world = World::found(3, 71);
    let old = world.elect();
    let mut clients = Clients::default();
    clients.ask(
        &mut world,
        client(1),
        old,
        transact(vec![put("a/k", "old")]),
    );
    world.isolate(old);
    world.pause(old);
    world.until("a successor", Duration::from_secs(10), |world| {
        world.leader().is_some_and(|leader| leader != old)
    });
    let successor = world.elect();
    clients.ask(
        &mut world,
        client(1),
        successor,
        transact(vec![put("a/k", "new")]),
    );
    world.resume(old);
    let read = clients.send(&mut world, client(2), old, range("a/"));
    world.run(ms(100));
    assert!(
        reply_to(&world, client(2), read).is_none(),
        "cut off, it can prove nothing"
    );
}

/// A watch gets every revision.
pub fn watches_have_no_gaps() {
    let mut world = World::found(3, 82);
    let leader = world.elect();
    let mut clients = Clients::default();
    let watch = MetaWatch {
        watch: 7,
        span: prefix("a/"),
        from: 0,
    };
    world.say(client(9), leader, Epoch::NONE, Message::MetaWatch(watch));
    world.run(ms(50));
    // Most of them together in one proposal.
    for who in 1..=8 {
        clients.send(
            &mut world,
            client(who),
            leader,
            transact(vec![put(&format!("a/k{who}"), "x")]),
        );
    }
    world.run(Duration::from_secs(2));
    let revisions: Vec<u64> = told(&world, client(9), 7)
        .iter()
        .map(|event| event.revision())
        .collect();
    assert_eq!(revisions, (1..=8).collect::<Vec<_>>());
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_of_leases_never_come_again() {
        super::numbers_of_leases_never_come_again();
    }
    #[test]
    fn a_snapshot_has_everything() {
        super::a_snapshot_has_everything();
    }
    #[test]
    fn no_read_is_stale() {
        super::no_read_is_stale();
    }
    #[test]
    fn watches_have_no_gaps() {
        super::watches_have_no_gaps();
    }
}
