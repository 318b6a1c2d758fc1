//! `checksum`: never of other data than the current data (MAL-27).

use super::Promise;
use crate::{Change, Desk, Host, property};
use nacre_policy::errno;
use proptest::prelude::*;

pub const CASES: &[Promise] = &[
    (
        "what is kept is of the data that is there",
        what_is_kept_is_of_the_data_that_is_there,
    ),
    (
        "no more are kept than an object can bear",
        no_more_are_kept_than_an_object_can_bear,
    ),
];

fn what_is_kept_is_of_the_data_that_is_there(host: &mut dyn Host) {
    let steps = proptest::collection::vec((0..9_u8, 0..20_u64, 0..20_u64, any::<u8>()), 1..40);
    property(host, 64, steps, |host, steps| {
        let mut desk = Desk::new(host, "checksum");
        desk.with("0123456789abcdef");
        for (what, offset, length, byte) in steps {
            let data = vec![byte; length as usize];
            match what {
                0 => desk.host.change(Change::Write(offset, data)),
                1 => desk.host.change(Change::WriteFull(data)),
                2 => desk.host.change(Change::Append(data)),
                3 => desk.host.change(Change::Truncate(length)),
                4 => desk.host.change(Change::Zero(offset, length)),
                5 => desk.host.change(Change::SetAttr("other", data)),
                _ => {}
            }
            let sum = desk.host.checksum(offset, length);
            let said = desk.ok("get", &format!("{offset} {length}"));
            prop_assert_eq!(
                said.split_once(' ').expect("two words").0,
                format!("{sum:08x}")
            );
            prop_assert_eq!(
                desk.ok("get", &format!("{offset} {length}")),
                format!("{sum:08x} kept")
            );
            prop_assert_eq!(
                desk.ok("peek", &format!("{offset} {length}")),
                format!("{sum:08x}")
            );
            prop_assert_eq!(
                desk.say("check", &format!("{offset} {length} {sum:08X}")),
                Ok(String::new())
            );
            prop_assert_eq!(
                desk.say("check", &format!("{offset} {length} {:08x}", sum ^ 1)),
                Err(errno::ECANCELED)
            );
        }
        Ok(())
    });
}

fn no_more_are_kept_than_an_object_can_bear(host: &mut dyn Host) {
    let mut desk = Desk::new(host, "checksum");
    desk.with(&"x".repeat(100));
    for offset in 0..80 {
        assert!(
            desk.ok("get", &format!("{offset} 1"))
                .ends_with(" computed")
        );
    }
    assert_eq!(desk.object().attributes.len(), 64);
    for input in ["", "0", "x 1", "0 1 2", "-1 1", "9007199254740992 1"] {
        assert_eq!(desk.say("get", input), Err(errno::EINVAL), "{input}");
    }
    assert_eq!(desk.say("check", "0 1 12345"), Err(errno::EINVAL));
}
