//! `checksum`: its calls of the store (MAL-27).

use super::*;

#[test]
fn the_second_who_asks_does_not_read_the_data() {
    let mut desk = Desk::new("checksum");
    desk.object = Model::with("123456789");
    assert_eq!(desk.ok("get", "0 9"), "e3069283 computed");
    assert_eq!(
        desk.object.attributes[&b"~checksum.0.9"[..]],
        "e3069283 3.196",
        "with the version it was computed at"
    );
    desk.object.absent = vec!["read"];
    assert_eq!(desk.ok("get", "0 9"), "e3069283 kept");
    assert_eq!(
        desk.at
            .end(&mut desk.object, Target::Class("checksum"), "get", b"0 8"),
        CallEnd::Wait
    );
}
