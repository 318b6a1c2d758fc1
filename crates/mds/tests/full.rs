//! A full cluster: files can be removed, or it would stay full.

use crate::rig::make_call;
use crate::sharing::{ANNA, BERT, Two};
use nacre_types::{Ino, Name};
use nacre_wire::fs::FileKind;
use nacre_wire::msg::fs::{FsAnswer, FsCall};
use std::time::Duration;

const ENOSPC: u16 = 28;

fn make(name: &str) -> FsCall {
    make_call(Ino::ROOT, name, FileKind::File {}, 0o644)
}
fn unlink(name: &str) -> FsCall {
    FsCall::Unlink {
        dir: Ino::ROOT,
        name: Name::from(name),
        directory: false,
    }
}
impl Two {
    /// The answer when it is safe, or is reported to be.
    fn answer_of(&mut self, number: u64, call: FsCall) -> FsAnswer {
        self.ask(ANNA, number, call);
        self.settle();
        self.reply(ANNA, number)
            .expect("it is answered")
            .answer
            .clone()
    }
}

/// An append without space ended the server, and the next one, and so on: no file could be removed
/// any more, and a full cluster stayed full.
#[test]
fn files_can_be_removed_and_not_made_while_the_cluster_is_full() {
    let mut two = Two::new();
    assert!(matches!(two.answer_of(1, make("a")), FsAnswer::Node { .. }));
    assert!(matches!(two.answer_of(2, make("b")), FsAnswer::Node { .. }));
    two.objects.full = true;
    assert!(!matches!(
        two.answer_of(3, unlink("a")),
        FsAnswer::Failed { .. }
    ));
    assert_eq!(two.mds.ended(), None);
    assert_eq!(
        two.answer_of(4, make("c")),
        FsAnswer::Failed { errno: ENOSPC }
    );
    let rename = FsCall::Rename {
        dir: Ino::ROOT,
        name: "b".into(),
        to_dir: Ino::ROOT,
        to_name: "d".into(),
        flags: 0,
    };
    assert!(
        !matches!(two.answer_of(5, rename), FsAnswer::Failed { .. }),
        "that takes no room"
    );
    // The next holder, which comes while the cluster is still full, has what was executed.
    two.take_over();
    for client in [ANNA, BERT] {
        two.greet(client, &[], &[]);
        two.mds.on_caught_up(client);
    }
    assert_eq!(two.mds.ended(), None);
    let find = |two: &mut Two, number, name: &str| {
        two.answer_of(
            number,
            FsCall::Lookup {
                dir: Ino::ROOT,
                name: name.into(),
            },
        )
    };
    assert_eq!(find(&mut two, 6, "a"), FsAnswer::Failed { errno: 2 });
    assert!(matches!(find(&mut two, 7, "d"), FsAnswer::Node { .. }));
    // The removal freed space.
    two.objects.full = false;
    two.now = two.now + Duration::from_secs(3);
    assert!(matches!(two.answer_of(8, make("c")), FsAnswer::Node { .. }));
}
