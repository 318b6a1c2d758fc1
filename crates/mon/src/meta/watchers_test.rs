//! Costs of watches of many groups.

use super::*;
use crate::state::meta::record::{MetaAct, MetaEntry, MetaTerms};
use crate::subscribers::Outgoing;
use nacre_types::{ClientId, Epoch};
use nacre_wire::msg::meta::{META_ADMIN, MetaOp};

fn name(text: &str) -> Name {
    text.into()
}
fn transact(meta: &mut Meta, then: Vec<MetaOp>) {
    let act = MetaAct::Transact {
        compares: vec![],
        then,
        otherwise: vec![],
    };
    meta.apply(
        Epoch(1),
        MetaEntry {
            who: None,
            act,
            terms: MetaTerms::default(),
        },
        &mut Vec::new(),
    );
}
fn put(key: &str, bytes: usize) -> MetaOp {
    MetaOp::Put {
        key: name(key),
        value: vec![7; bytes].into(),
        lease: 0,
    }
}

struct Rig {
    meta: Meta,
    watchers: Watchers,
    outgoing: Outgoing,
}

impl Rig {
    fn new() -> Self {
        Self {
            meta: Meta::default(),
            watchers: Watchers::default(),
            outgoing: Outgoing::default(),
        }
    }
    fn watch(&mut self, watch: u64, span: MetaSpan) {
        let ask = MetaWatch {
            watch,
            span,
            from: 0,
        };
        self.watchers.watch(
            &self.meta,
            Entity::Client(ClientId(1)),
            &name(META_ADMIN),
            ask,
            &mut self.outgoing,
        );
    }
    /// Executes operations in one revision; returns each watch's keys in order, or that it ended.
    fn hears(&mut self, then: Vec<MetaOp>) -> BTreeMap<u64, Result<Vec<String>, MetaError>> {
        let before = self.meta.revision();
        self.outgoing.clear();
        transact(&mut self.meta, then);
        self.watchers
            .publish(&self.meta, before, &mut self.outgoing);
        self.watchers.check(&self.meta);
        let heard = self.outgoing.drain(..).map(|(_, message)| match message {
            Message::MetaEvents(told, payload) => {
                let events = MetaEvents::decode(&payload).expect("a monitor encoded it");
                let keys = events
                    .iter()
                    .map(|event| String::from_utf8_lossy(event.key().as_bytes()).into_owned());
                (told.watch, Ok(keys.collect()))
            }
            Message::MetaWatchEnded(ended) => (ended.watch, Err(ended.error)),
            other => panic!("{other:?}"),
        });
        heard.collect()
    }
}

#[test]
fn each_group_hears_of_its_keys_and_of_no_others() {
    let mut rig = Rig::new();
    let between = |from, to| MetaSpan::Between {
        from: name(from),
        to: name(to),
    };
    rig.watch(1, MetaSpan::Key { key: name("a/2") });
    rig.watch(2, MetaSpan::Prefix { prefix: name("a/") });
    rig.watch(3, MetaSpan::Prefix { prefix: name("") });
    rig.watch(4, between("a/2", "a/4"));
    rig.watch(5, between("a/9", "b/1"));
    rig.watch(6, between("c", "d"));
    let heard = rig.hears(
        ["b/0", "a/4", "a/2", "a/1", "a/3"]
            .map(|key| put(key, 1))
            .into(),
    );
    let keys = |keys: &[&str]| Ok(keys.iter().map(|key| (*key).to_owned()).collect());
    let expected = [
        (1, keys(&["a/2"])),
        (2, keys(&["a/1", "a/2", "a/3", "a/4"])),
        (3, keys(&["a/1", "a/2", "a/3", "a/4", "b/0"])),
        (4, keys(&["a/2", "a/3"])),
        (5, keys(&["b/0"])),
    ];
    assert_eq!(heard, expected.into());
}

/// Each group's events are encoded separately: twenty thousand groups with all keys, and one
/// deletion, were some hundred GiB in one turn of a monitor. Watchers beyond the limit read their
/// keys again.
#[test]
fn what_is_told_at_once_is_bounded() {
    let mut rig = Rig::new();
    for n in 0..2_000 {
        rig.watch(
            n,
            MetaSpan::Between {
                from: name(""),
                to: name(&format!("b{n:04}")),
            },
        );
    }
    let values = (0..7).map(|n| put(&format!("a{n}"), 60 << 10)).collect();
    let heard = rig.hears(values);
    assert_eq!(heard.len(), 2_000, "each watch hears something");
    let (told, ended): (Vec<_>, Vec<_>) = heard.into_values().partition(Result::is_ok);
    assert!(
        told.len() * 7 * (60 << 10) <= TOLD_BYTES_MAX && told.len() > 100,
        "{} groups",
        told.len()
    );
    assert!(ended.iter().all(|ended| *ended
        == Err(MetaError::Compacted {
            oldest: rig.meta.revision() + 1
        })));
    // Groups within the limit continue.
    assert_eq!(rig.hears(vec![put("a", 1)]).len(), told.len());
}
