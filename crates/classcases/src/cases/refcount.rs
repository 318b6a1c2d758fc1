//! `refcount`: an object exists as long as it has references.

use super::Promise;
use crate::{Change, Desk, Host, State, property};
use nacre_policy::errno;
use proptest::prelude::*;
use std::collections::BTreeSet;

pub const CASES: &[Promise] = &[
    ("it is a set of tags", it_is_a_set_of_tags),
    (
        "an uncounted object is not removed",
        an_uncounted_object_is_not_removed,
    ),
];

fn it_is_a_set_of_tags(host: &mut dyn Host) {
    let steps = proptest::collection::vec((0..5_u8, 0..4_u8), 1..40);
    property(host, 64, steps, |host, steps| {
        let mut desk = Desk::new(host, "refcount");
        desk.with("data");
        // None: no object. An empty set: an object without references counted.
        let mut model = Some(BTreeSet::new());
        for (what, tag) in steps {
            let tag = format!("t{tag}");
            match what {
                0 | 1 => {
                    let expected = model
                        .as_mut()
                        .map(|tags| tags.insert(tag.clone()))
                        .map(|_| ())
                        .ok_or(errno::ENOENT);
                    prop_assert_eq!(desk.say("get", &tag).map(drop), expected);
                }
                4 if model.is_none() => {
                    desk.ok("set", &tag);
                    model = Some(BTreeSet::from([tag]));
                }
                _ => {
                    let there = model.as_mut().is_some_and(|tags| tags.remove(&tag));
                    prop_assert_eq!(desk.say("put", &tag).is_ok(), there);
                    if there && model.as_ref().is_some_and(BTreeSet::is_empty) {
                        model = None;
                    }
                }
            }
            prop_assert_eq!(desk.host.state().is_some(), model.is_some());
            let listed = model.as_ref().map(|tags| {
                tags.iter()
                    .map(|tag| format!("{tag}\n"))
                    .collect::<String>()
            });
            prop_assert_eq!(desk.say("read", ""), listed.ok_or(errno::ENOENT));
        }
        Ok(())
    });
}

fn an_uncounted_object_is_not_removed(host: &mut dyn Host) {
    let mut desk = Desk::new(host, "refcount");
    desk.with("precious");
    assert_eq!(desk.say("put", "any"), Err(errno::ENOENT));
    assert_eq!(desk.object(), State::with("precious"));
    desk.host.change(Change::SetKey("k", b"v".to_vec()));
    desk.ok("get", "only");
    desk.ok("put", "only");
    assert_eq!(desk.host.state(), None, "with all it had");
    for input in ["", "a b", "a\nb"] {
        assert_eq!(desk.say("get", input), Err(errno::EINVAL), "{input}");
        assert_eq!(desk.say("put", input), Err(errno::EINVAL), "{input}");
    }
}
