//! `zlog` in Lua and in Rust: the calls of both to the store.

use super::*;

#[test]
fn an_append_asks_the_store_for_nothing() {
    for mut desk in ["zlog", "zlog_native"].map(Desk::new) {
        desk.ok("write", "1 0\na");
        desk.object.absent = vec!["map", "read"];
        desk.ok("write", "1 1\nb");
        desk.ok("max_position", "1");
        desk.ok("seal", "2");
        let end = desk.at.end(
            &mut desk.object,
            Target::Class(desk.class),
            "write",
            b"2 0\nx",
        );
        assert_eq!(end, CallEnd::Wait, "an old position must be looked at");
    }
}
