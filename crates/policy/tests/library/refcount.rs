//! `refcount`: an object lives as long as its references.

use super::*;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn it_is_a_set_of_tags(steps in proptest::collection::vec((0..5_u8, 0..4_u8), 1..40)) {
        let mut desk = Desk::new("refcount");
        desk.object = Model::with("data");
        // None: no object. An empty set: an object that nobody has counted.
        let mut model = Some(BTreeSet::new());
        for (what, tag) in steps {
            let tag = format!("t{tag}");
            match what {
                0 | 1 => {
                    let expected = model.as_mut().map(|tags| tags.insert(tag.clone())).map(|_| ()).ok_or(errno::ENOENT);
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
            prop_assert_eq!(desk.object.data.is_some(), model.is_some());
            let listed = model.as_ref().map(|tags| tags.iter().map(|tag| format!("{tag}\n")).collect::<String>());
            prop_assert_eq!(desk.say("read", ""), listed.ok_or(errno::ENOENT));
        }
    }
}

#[test]
fn an_uncounted_object_is_not_removed() {
    let mut desk = Desk::new("refcount");
    desk.object = Model::with("precious");
    assert_eq!(desk.say("put", "any"), Err(errno::ENOENT));
    assert_eq!(desk.object, Model::with("precious"));
    desk.object.map.insert("k".into(), "v".into());
    desk.ok("get", "only");
    desk.ok("put", "only");
    assert_eq!(desk.object, Model::default(), "with all it had");
    for input in ["", "a b", "a\nb"] {
        assert_eq!(desk.say("get", input), Err(errno::EINVAL), "{input}");
        assert_eq!(desk.say("put", input), Err(errno::EINVAL), "{input}");
    }
}
