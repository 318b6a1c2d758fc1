//! `checksum`: never of other data than there is (MAL-27).

use super::*;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn what_is_kept_is_of_the_data_that_is_there(steps in proptest::collection::vec((0..9_u8, 0..20_u64, 0..20_u64, any::<u8>()), 1..40)) {
        let mut desk = Desk::new("checksum");
        desk.object = Model::with("0123456789abcdef");
        for (what, offset, length, byte) in steps {
            let data = Bytes::from(vec![byte; length as usize]);
            match what {
                0 => desk.object.write(offset, data),
                1 => desk.object.write_full(data),
                2 => desk.object.append(data),
                3 => desk.object.truncate(length),
                4 => desk.object.zero(offset, length),
                5 => desk.object.setxattr(b"other", data),
                _ => Ok(()),
            }.expect("the model takes it");
            let sum = desk.object.checksum(offset, length).expect("there");
            let said = desk.ok("get", &format!("{offset} {length}"));
            prop_assert_eq!(said.split_once(' ').expect("two words").0, format!("{sum:08x}"));
            prop_assert_eq!(desk.ok("get", &format!("{offset} {length}")), format!("{sum:08x} kept"));
            prop_assert_eq!(desk.ok("peek", &format!("{offset} {length}")), format!("{sum:08x}"));
            prop_assert_eq!(desk.say("check", &format!("{offset} {length} {sum:08X}")), Ok(String::new()));
            prop_assert_eq!(desk.say("check", &format!("{offset} {length} {:08x}", sum ^ 1)), Err(errno::ECANCELED));
        }
    }
}

#[test]
fn the_second_who_asks_does_not_read_the_data() {
    let mut desk = Desk::new("checksum");
    desk.object = Model::with("123456789");
    assert_eq!(desk.ok("get", "0 9"), "e3069283 computed");
    assert_eq!(desk.object.attributes[&b"~checksum.0.9"[..]], "e3069283 3.196", "with the version it was computed at");
    desk.object.absent = vec!["read"];
    assert_eq!(desk.ok("get", "0 9"), "e3069283 kept");
    assert_eq!(desk.at.end(&mut desk.object, Target::Class("checksum"), "get", b"0 8"), CallEnd::Wait);
}

#[test]
fn no_more_are_kept_than_an_object_can_bear() {
    let mut desk = Desk::new("checksum");
    desk.object = Model::with(&"x".repeat(100));
    for offset in 0..80 {
        assert!(desk.ok("get", &format!("{offset} 1")).ends_with(" computed"));
    }
    assert_eq!(desk.object.attributes.len(), 64);
    for input in ["", "0", "x 1", "0 1 2", "-1 1", "9007199254740992 1"] {
        assert_eq!(desk.say("get", input), Err(errno::EINVAL), "{input}");
    }
    assert_eq!(desk.say("check", "0 1 12345"), Err(errno::EINVAL));
}
