//! Examples of service metadata's messages.

use super::sample::{Sample, value};
use bytes::Bytes;
use nacre_types::{Epoch, Instance, Name};
use nacre_wire::Message;
use nacre_wire::msg::meta::{
    MetaAnswer, MetaCall, MetaCancel, MetaCompare, MetaError, MetaEvent, MetaEvents, MetaLease,
    MetaOp, MetaPair, MetaRelation, MetaReply, MetaRequest, MetaResult, MetaSpan, MetaTarget,
    MetaWatch, MetaWatchEnded,
};

/// Names and tags of the enums here.
pub const ENUMS: [(&str, &[(u8, &str)]); 9] = [
    ("MetaAnswer", MetaAnswer::VARIANTS),
    ("MetaCall", MetaCall::VARIANTS),
    ("MetaError", MetaError::VARIANTS),
    ("MetaEvent", MetaEvent::VARIANTS),
    ("MetaOp", MetaOp::VARIANTS),
    ("MetaRelation", MetaRelation::VARIANTS),
    ("MetaResult", MetaResult::VARIANTS),
    ("MetaSpan", MetaSpan::VARIANTS),
    ("MetaTarget", MetaTarget::VARIANTS),
];

fn key() -> Name {
    Name::copy(b"classes/caf\xc3\xa9 \xff")
}
fn bytes() -> Bytes {
    Bytes::from_static(b"value")
}
fn pair() -> MetaPair {
    MetaPair {
        key: key(),
        value: bytes(),
        created: 2,
        modified: 5,
        version: 3,
        lease: 7,
        epoch: Epoch(9),
    }
}
fn span() -> MetaSpan {
    MetaSpan::Between {
        from: "a/1".into(),
        to: "a/9".into(),
    }
}
fn compare() -> MetaCompare {
    MetaCompare {
        key: key(),
        target: MetaTarget::Version { number: 3 },
        relation: MetaRelation::Less {},
    }
}
fn get() -> MetaOp {
    MetaOp::Get {
        span: span(),
        limit: 4,
        keys_only: true,
    }
}
fn put() -> MetaOp {
    MetaOp::Put {
        key: key(),
        value: bytes(),
        lease: 7,
    }
}
fn delete() -> MetaOp {
    MetaOp::Delete {
        span: MetaSpan::Key { key: key() },
    }
}
fn transact() -> MetaCall {
    MetaCall::Transact {
        compares: vec![compare()],
        then: vec![get(), put()],
        otherwise: vec![delete()],
    }
}
fn request() -> MetaRequest {
    MetaRequest {
        instance: Instance(3),
        sequence: 8,
        answered_below: 6,
        known: 5,
        again: true,
        call: transact(),
    }
}
fn lease() -> MetaLease {
    MetaLease {
        lease: 7,
        ttl_ms: 5_000,
        owner: "alice".into(),
        keys: 2,
    }
}
fn compacted() -> MetaError {
    MetaError::Compacted { oldest: 40 }
}
fn reply() -> MetaReply {
    let answers = vec![
        MetaAnswer::Put { before: 4 },
        MetaAnswer::Deleted { keys: 2 },
    ];
    MetaReply {
        instance: Instance(3),
        sequence: 8,
        revision: 5,
        result: MetaResult::Transacted {
            succeeded: true,
            answers,
        },
    }
}
fn watch() -> MetaWatch {
    MetaWatch {
        watch: 2,
        span: span(),
        from: 5,
    }
}
fn cancel() -> MetaCancel {
    MetaCancel { watch: 2 }
}
fn told() -> MetaEvents {
    MetaEvents {
        watch: 2,
        after: 4,
        through: 5,
    }
}
fn ended() -> MetaWatchEnded {
    MetaWatchEnded {
        watch: 2,
        error: compacted(),
    }
}
fn event() -> MetaEvent {
    MetaEvent::Put { pair: pair() }
}

/// The messages, for frames.
pub fn messages() -> Vec<Message> {
    let payload = MetaEvents::encode(&[
        event(),
        MetaEvent::Delete {
            key: key(),
            revision: 5,
        },
    ]);
    vec![
        Message::MetaRequest(request()),
        Message::MetaReply(reply()),
        Message::MetaWatch(watch()),
        Message::MetaCancel(cancel()),
        Message::MetaEvents(told(), vec![payload]),
        Message::MetaWatchEnded(ended()),
    ]
}

/// An example of each variant.
pub fn variants<T: nacre_wire::Wire + PartialEq + std::fmt::Debug + 'static>(
    name: &str,
    names: &[(u8, &str)],
    values: Vec<T>,
) -> Vec<Sample> {
    assert_eq!(
        names.len(),
        values.len(),
        "an example of each variant of {name}"
    );
    values
        .into_iter()
        .zip(names)
        .map(|(one, (_, variant))| value(&format!("variant {name}.{variant}"), one))
        .collect()
}

/// All examples except frames.
pub fn all() -> Vec<Sample> {
    let text = || "text".to_owned();
    let mut all = vec![
        value("record MetaPair v1", pair()),
        value("record MetaCompare v1", compare()),
        value("record MetaRequest v1", request()),
        value("record MetaLease v1", lease()),
        value("record MetaReply v1", reply()),
        value("record MetaWatch v1", watch()),
        value("record MetaCancel v1", cancel()),
        value("record MetaEvents v1", told()),
        value("record MetaWatchEnded v1", ended()),
    ];
    all.extend(variants(
        "MetaSpan",
        MetaSpan::VARIANTS,
        vec![
            MetaSpan::Key { key: key() },
            MetaSpan::Prefix {
                prefix: "a/".into(),
            },
            span(),
        ],
    ));
    all.extend(variants(
        "MetaRelation",
        MetaRelation::VARIANTS,
        vec![
            MetaRelation::Equal {},
            MetaRelation::NotEqual {},
            MetaRelation::Less {},
            MetaRelation::Greater {},
        ],
    ));
    all.extend(variants(
        "MetaTarget",
        MetaTarget::VARIANTS,
        vec![
            MetaTarget::Value { value: bytes() },
            MetaTarget::Version { number: 3 },
            MetaTarget::Created { number: 4 },
            MetaTarget::Modified { number: 5 },
            MetaTarget::Lease { number: 6 },
        ],
    ));
    all.extend(variants(
        "MetaOp",
        MetaOp::VARIANTS,
        vec![get(), put(), delete()],
    ));
    all.extend(variants(
        "MetaAnswer",
        MetaAnswer::VARIANTS,
        vec![
            MetaAnswer::Got {
                pairs: vec![pair()],
                more: true,
            },
            MetaAnswer::Put { before: 4 },
            MetaAnswer::Deleted { keys: 2 },
        ],
    ));
    all.extend(variants(
        "MetaCall",
        MetaCall::VARIANTS,
        vec![
            transact(),
            MetaCall::Range {
                span: span(),
                limit: 4,
                keys_only: true,
                serializable: true,
            },
            MetaCall::Grant { ttl_ms: 5_000 },
            MetaCall::KeepAlive { lease: 7 },
            MetaCall::Revoke { lease: 8 },
            MetaCall::Leases {},
        ],
    ));
    all.extend(variants(
        "MetaResult",
        MetaResult::VARIANTS,
        vec![
            reply().result,
            MetaResult::Ranged {
                pairs: vec![pair()],
                more: true,
            },
            MetaResult::Granted {
                lease: 7,
                ttl_ms: 5_000,
            },
            MetaResult::Alive {
                lease: 7,
                ttl_ms: 5_000,
            },
            MetaResult::Revoked { keys: 2 },
            MetaResult::Leases {
                leases: vec![lease()],
            },
            MetaResult::Failed { error: compacted() },
        ],
    ));
    all.extend(variants(
        "MetaError",
        MetaError::VARIANTS,
        vec![
            MetaError::Denied {
                who: "bob".into(),
                what: text(),
            },
            MetaError::TooLarge {
                what: text(),
                limit: 65_536,
            },
            MetaError::RateLimited { retry_ms: 20 },
            MetaError::QuotaExceeded {
                namespace: "a".into(),
                what: text(),
                limit: 9,
            },
            MetaError::Rejected {
                validator: text(),
                line: 3,
                message: "no".to_owned(),
            },
            compacted(),
            MetaError::NoSuchLease { lease: 7 },
            MetaError::Invalid { why: text() },
            MetaError::Superseded {},
            MetaError::Unavailable { why: text() },
        ],
    ));
    all.extend(variants(
        "MetaEvent",
        MetaEvent::VARIANTS,
        vec![
            event(),
            MetaEvent::Delete {
                key: key(),
                revision: 5,
            },
        ],
    ));
    all
}
