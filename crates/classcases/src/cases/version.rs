//! `version`: compare and set.

use super::Promise;
use crate::{Change, Desk, Host};
use nacre_policy::errno;

pub const CASES: &[Promise] = &[
    (
        "conditions compare numbers and tags",
        conditions_compare_numbers_and_tags,
    ),
    (
        "a version is raised by one of many",
        a_version_is_raised_by_one_of_many,
    ),
];

fn conditions_compare_numbers_and_tags(host: &mut dyn Host) {
    let mut desk = Desk::new(host, "version");
    desk.ok("set", "10 blue");
    for (conditions, holds) in [
        ("eq 10", true),
        ("eq 9", false),
        ("ne 9", true),
        ("ne 10", false),
        ("lt 11", true),
        ("lt 10", false),
        ("le 10", true),
        ("le 9", false),
        ("gt 9", true),
        ("gt 10", false),
        ("ge 10", true),
        ("ge 11", false),
        ("tag_eq blue", true),
        ("tag_eq red", false),
        ("tag_ne red", true),
        ("tag_ne blue", false),
        ("eq 10 tag_eq red", false),
        ("eq 9 tag_eq blue", false),
        ("ge 3 le 30 tag_eq blue", true),
    ] {
        let expected = if holds {
            Ok(String::new())
        } else {
            Err(errno::ECANCELED)
        };
        assert_eq!(desk.say("check", conditions), expected, "{conditions}");
    }
    for input in [
        "",
        "eq",
        "eq x",
        "like 10",
        "eq 10 tag_eq",
        "eq -1",
        "eq 9007199254740992",
    ] {
        assert_eq!(desk.say("check", input), Err(errno::EINVAL), "{input}");
        assert_eq!(desk.say("inc_if", input), Err(errno::EINVAL), "{input}");
    }
}

/// Of two callers that read the same version, one wins.
fn a_version_is_raised_by_one_of_many(host: &mut dyn Host) {
    let mut desk = Desk::new(host, "version");
    assert_eq!(desk.ok("read", ""), "0 -");
    desk.ok("inc_if", "eq 0");
    assert_eq!(desk.say("inc_if", "eq 0"), Err(errno::ECANCELED));
    assert_eq!(desk.ok("read", ""), "1 -");
    desk.ok("set", "9007199254740991");
    for method in ["inc", "inc_if"] {
        assert_eq!(desk.say(method, "ge 0"), Err(errno::ERANGE));
    }
    assert_eq!(desk.ok("read", ""), "9007199254740991 -");
    for input in ["", "x", "-1", "1 a b", "9007199254740992"] {
        assert_eq!(desk.say("set", input), Err(errno::EINVAL), "{input}");
    }
    desk.host
        .change(Change::SetAttr("version", b"nonsense".to_vec()));
    assert_eq!(desk.say("inc", ""), Err(errno::EIO));
}
