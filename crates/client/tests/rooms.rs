//! The remaining space of pools.

use crate::rig::Rig;
use nacre_client::{ObjectCluster, ROOM_AGE, Room};
use nacre_types::PoolId;
use nacre_wire::msg::monitor::Command;

pub fn what_still_fits_is_what_the_monitors_said_last() {
    let mut rig = Rig::new();
    rig.commands();
    let pool = PoolId(1);
    let look = |rig: &mut Rig| {
        let room = rig.role.room(rig.now, pool);
        (room, rig.commands())
    };
    let (room, asked) = look(&mut rig);
    let [Command { token, request }] = &asked[..] else {
        panic!("one question: {asked:?}")
    };
    assert_eq!(
        (room.is_new, request.as_str()),
        (false, r#"{"command": "df"}"#)
    );
    assert_eq!(look(&mut rig).1, [], "once");
    let pools = r#"{"pools": [{"id": 1, "max_available_bytes": 4096}, {"id": 2, "max_available_bytes": 9}]}"#;
    rig.reply(
        token + 1,
        None,
        r#"{"pools": [{"id": 1, "max_available_bytes": 1}]}"#,
    );
    assert!(!look(&mut rig).0.is_new, "the answer to another command");
    rig.reply(*token, None, pools);
    let known = Room {
        free: Some(4096),
        is_new: true,
    };
    assert_eq!(look(&mut rig), (known, vec![]));
    rig.now = rig.now + ROOM_AGE;
    let (old, asked) = look(&mut rig);
    assert_eq!((old.free, old.is_new, asked.len()), (Some(4096), false, 1));
    rig.reply(asked[0].token, Some("only admin may"), "{}");
    assert_eq!(look(&mut rig), (known, vec![]), "no newer one is to be had");
    for nonsense in ["", "[]", r#"{"pools": 3}"#, r#"{"pools": [{"id": -1}]}"#] {
        rig.now = rig.now + ROOM_AGE;
        let (_, asked) = look(&mut rig);
        rig.reply(asked[0].token, None, nonsense);
        assert!(look(&mut rig).0.is_new, "{nonsense}");
    }
}
