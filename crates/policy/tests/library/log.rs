//! `log`: the names of its entries.

use super::*;

#[test]
fn entries_without_an_id_do_not_meet() {
    let mut desk = Desk::new("log");
    desk.object = Model::with("");
    for (subop, text) in [(0, "a"), (1, "b")] {
        desk.at.request.subop = subop;
        desk.ok("add", &format!("5\n{text}"));
    }
    let found: Vec<(&[u8], &[u8])> = desk
        .object
        .map
        .iter()
        .map(|(key, value)| (&key[..], &value[..]))
        .collect();
    let expected: [(&[u8], &[u8]); 2] = [
        (b"0000000000000005_0000000000000196.0", b"a"),
        (b"0000000000000005_0000000000000196.1", b"b"),
    ];
    assert_eq!(
        found, expected,
        "the object's version, and the place in the operation"
    );
}
