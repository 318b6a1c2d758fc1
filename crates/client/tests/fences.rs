//! Fencing another client.

use crate::rig::Rig;
use nacre_client::{Failure, ObjectCluster, OpId, Refused};
use nacre_role::Role;
use nacre_types::{ClientId, Entity, Epoch, Instance, Time};
use nacre_wire::map::Change;
use nacre_wire::msg::client::{OpFailure, SubOp};
use nacre_wire::msg::monitor::Command;
use std::time::Duration;

const OTHER: ClientId = ClientId(3);

fn fence(rig: &mut Rig) -> OpId {
    rig.role
        .fence(rig.now, OTHER, Instance(2))
        .expect("there is room")
}
fn reply(rig: &mut Rig, token: u64, error: Option<&str>) {
    rig.reply(token, error, "{}");
}
fn fenced(instance: u64) -> Change {
    Change::Fence {
        entity: Entity::Client(OTHER),
        instance: Instance(instance),
    }
}

/// The answer says that the monitors know; only with the map do later messages carry the fence.
pub fn a_fence_ends_with_the_map_that_has_it() {
    let mut rig = Rig::new();
    let id = fence(&mut rig);
    let [Command { token, request }] = &rig.commands()[..] else {
        panic!("one command")
    };
    assert_eq!(
        request,
        r#"{"command": "fence add", "entity": "client.3", "instance": 2}"#
    );
    reply(&mut rig, *token, None);
    rig.commit(fenced(1));
    assert_eq!(rig.ended(), [], "an earlier life");
    rig.commit(fenced(2));
    assert_eq!(rig.ended(), [(id, true)]);
    assert_eq!(rig.role.next_deadline(), Time::MAX);
    let (_, request) = rig.submit_to("a", SubOp::Stat {});
    assert_eq!(
        request.fence, rig.map.epoch,
        "its OSD has to know this map first"
    );
    assert_ne!(request.fence, Epoch::NONE);
    // The request of a client that died before it was answered.
    let again = fence(&mut rig);
    assert_eq!(rig.ended(), [(again, true)], "it is there");
}

/// Commands are lost with their session; repeating a fence has no further effect.
pub fn a_fence_is_asked_for_until_it_is_there_or_refused() {
    let mut rig = Rig::new();
    let id = fence(&mut rig);
    let first = rig.commands();
    rig.role.on_mon_session(rig.now);
    assert_eq!(rig.commands(), first);
    let due = rig.role.next_deadline();
    assert!(due < Time::MAX, "its host comes back");
    rig.now = rig.now + Duration::from_millis(500);
    rig.role.on_tick(rig.now);
    assert_eq!(rig.commands(), []);
    rig.now = rig.now + Duration::from_millis(1500);
    rig.role.on_tick(rig.now);
    assert_eq!(rig.commands(), first);
    reply(&mut rig, first[0].token + 1, Some("another's"));
    assert_eq!(rig.ended(), []);
    reply(&mut rig, first[0].token, Some("only admin may"));
    reply(&mut rig, first[0].token, Some("only admin may"));
    let ended = rig.completions();
    let [one] = &ended[..] else {
        panic!("{ended:?}")
    };
    assert_eq!(
        (one.id, &one.result),
        (
            id,
            &Err(Failure::Refused(OpFailure::Denied {
                why: "only admin may".into()
            }))
        )
    );

    let id = fence(&mut rig);
    rig.role.abandon(id);
    assert!(
        matches!(&rig.completions()[..], [one] if one.id == id && one.result == Err(Failure::Unknown))
    );
    rig.commit(fenced(2));
    assert_eq!(rig.ended(), [], "given up");
}

pub fn fences_under_way_are_bounded() {
    let mut rig = Rig::new();
    for n in 0..64 {
        rig.role
            .fence(rig.now, ClientId(n), Instance(1))
            .expect("room");
    }
    assert_eq!(
        rig.role.fence(rig.now, OTHER, Instance(1)),
        Err(Refused::Busy)
    );
}

/// A server sends messages under the map that fences its predecessor.
pub fn what_rests_on_a_map_says_so() {
    let mut rig = Rig::new();
    let later = Epoch(rig.map.epoch.0 + 5);
    rig.role.rest_on(later);
    rig.role.rest_on(rig.map.epoch);
    let (_, request) = rig.submit_to("a", SubOp::Stat {});
    assert_eq!(request.fence, later);
}
