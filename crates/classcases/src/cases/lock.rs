//! `lock` from one caller's view; holders and durations are tested where callers and times can be
//! chosen (`crates/policy`).

use super::Promise;
use crate::{Desk, Host};
use nacre_policy::errno;

const EBUSY: i32 = 16;

pub const CASES: &[Promise] = &[("a cookie is a holder", a_cookie_is_a_holder)];

fn a_cookie_is_a_holder(host: &mut dyn Host) {
    let mut desk = Desk::new(host, "lock");
    desk.ok("lock", "l exclusive c 0 -");
    assert_eq!(desk.say("lock", "l exclusive d 0 -"), Err(EBUSY));
    assert_eq!(desk.say("lock", "l shared d 0 -"), Err(EBUSY));
    assert_eq!(desk.say("lock", "l exclusive c 0 -"), Err(errno::EEXIST));
    assert_eq!(desk.say("unlock", "l d"), Err(errno::ENOENT));
    assert_eq!(
        (desk.ok("check", "l exclusive c -"), desk.ok("list", "")),
        (String::new(), "l\n".into())
    );
    desk.ok("unlock", "l c");
    desk.ok("lock", "l shared c 0 t");
    desk.ok("lock", "l shared d 0 t");
    assert_eq!(desk.say("lock", "l shared e 0 other"), Err(EBUSY));
    for cookie in ["c", "d"] {
        desk.ok("unlock", &format!("l {cookie}"));
    }
    assert!(
        desk.object().attributes.is_empty(),
        "nothing is left of a lock that nobody holds"
    );
}
