//! What operators are told of the next takeover.

use crate::objects::config;
use crate::rig::{and_open, make_call};
use crate::sharing::{ANNA, BERT, Two};
use nacre_client::Operation;
use nacre_mds::journal::object_name;
use nacre_types::{Ino, Name, ObjectId};
use nacre_wire::fs::FileKind;
use nacre_wire::msg::client::{SubOp, SubReply};
use nacre_wire::msg::fs::FsFigures;

/// Objects and bytes of the journal, as they lie there from this object on.
fn stored(two: &mut Two, first: u64) -> (u32, u64) {
    let config = config();
    let mut sizes = Vec::new();
    for number in first..first + 100 {
        let name = Name::from(&*object_name(config.rank, number));
        let object = ObjectId { name, namespace: config.namespace.clone(), ..ObjectId::default() };
        let ops = vec![SubOp::Stat {}];
        let stat = Operation { pool: config.pool, object, ops, ..Operation::default() };
        match two.objects.memory.perform(&stat).map(|done| done.results) {
            Ok(results) => match results[..] {
                [SubReply::Stat { size, .. }] => sizes.push(size),
                ref other => panic!("{other:?}"),
            },
            Err(_) => break,
        }
    }
    (sizes.len() as u32, sizes.iter().sum())
}

#[test]
fn an_operator_is_told_how_long_the_journal_is_and_who_has_sessions() {
    let mut two = Two::new();
    let told = |two: &Two| {
        let FsFigures { objects, bytes, sessions, opens } = two.mds.figures();
        ((objects, bytes), sessions, opens)
    };
    let first = (1..9).find(|first| stored(&mut two, *first).0 > 0);
    for n in 0..20_u64 {
        let call = make_call(Ino::ROOT, &format!("{n}"), FileKind::File {}, 0o644);
        let call = if n < 3 { and_open(call) } else { call };
        assert!(two.answer(ANNA, n + 1, call).is_some());
    }
    two.mds.hurry();
    two.settle();
    let there = stored(&mut two, first.unwrap_or(0));
    assert!(there.1 > 1_000, "{there:?}");
    assert_eq!(told(&two), (there, 2, 3));
    // The next holder has read it, and says so before it has written anything.
    two.take_over();
    two.greet(ANNA, &[], &[]);
    two.greet(BERT, &[], &[]);
    let (read, sessions, _) = told(&two);
    assert!(read.0 >= there.0 && read.1 >= there.1 && sessions == 2, "{read:?} after {there:?}");
}
