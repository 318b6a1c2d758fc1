//! What still fits into pools.

use crate::rig::Rig;
use nacre_client::{ObjectCluster, ROOM_AGE, Room};
use nacre_role::Output;
use nacre_types::{Entity, MonId, PoolId};
use nacre_wire::Message;
use nacre_wire::msg::monitor::{Command, CommandReply};

fn commands(rig: &mut Rig) -> Vec<Command> {
    let mut out = Vec::new();
    rig.role.take_outputs(&mut out);
    let command = |output| match output {
        Output::SendMon { message: Message::Command(command) } => Some(command),
        _ => None,
    };
    out.into_iter().filter_map(command).collect()
}
fn reply(rig: &mut Rig, token: u64, error: Option<&str>, reply: &str) {
    let reply = CommandReply { token, error: error.map(str::to_owned), reply: reply.to_owned() };
    rig.role.on_message(rig.now, Entity::Mon(MonId(0)), rig.map.epoch, Message::CommandReply(reply));
}

pub fn what_still_fits_is_what_the_monitors_said_last() {
    let mut rig = Rig::new();
    commands(&mut rig);
    let pool = PoolId(1);
    let look = |rig: &mut Rig| {
        let room = rig.role.room(rig.now, pool);
        (room, commands(rig))
    };
    let (room, asked) = look(&mut rig);
    let [Command { token, request }] = &asked[..] else { panic!("one question: {asked:?}") };
    assert_eq!((room.is_new, request.as_str()), (false, r#"{"command": "df"}"#));
    assert_eq!(look(&mut rig).1, [], "once");
    let pools = r#"{"pools": [{"id": 1, "max_available_bytes": 4096}, {"id": 2, "max_available_bytes": 9}]}"#;
    reply(&mut rig, token + 1, None, r#"{"pools": [{"id": 1, "max_available_bytes": 1}]}"#);
    assert!(!look(&mut rig).0.is_new, "the answer to another command");
    reply(&mut rig, *token, None, pools);
    let known = Room { free: Some(4096), is_new: true };
    assert_eq!(look(&mut rig), (known, vec![]));
    rig.now = rig.now + ROOM_AGE;
    let (old, asked) = look(&mut rig);
    assert_eq!((old.free, old.is_new, asked.len()), (Some(4096), false, 1));
    reply(&mut rig, asked[0].token, Some("only admin may"), "{}");
    assert_eq!(look(&mut rig), (known, vec![]), "no newer one is to be had");
    for nonsense in ["", "[]", r#"{"pools": 3}"#, r#"{"pools": [{"id": -1}]}"#] {
        rig.now = rig.now + ROOM_AGE;
        let (_, asked) = look(&mut rig);
        reply(&mut rig, asked[0].token, None, nonsense);
        assert!(look(&mut rig).0.is_new, "{nonsense}");
    }
}
