//! `lock`: the holders, and for how long.

use super::*;

const EBUSY: i32 = 16;

impl Desk {
    /// The same, called by another client at another time.
    fn by(&mut self, client: &str, second: u64) -> &mut Self {
        self.at.request.client = client.into();
        self.at.request.now_ns = 1_000_000_000_000 + second * 1_000_000_000;
        self
    }
}

#[test]
fn an_exclusive_lock_has_one_holder_and_a_shared_one_has_many() {
    let mut desk = Desk::new("lock");
    desk.by("a", 0).ok("lock", "l exclusive c 0 -");
    for kind in ["exclusive", "shared"] {
        assert_eq!(
            desk.by("b", 0).say("lock", &format!("l {kind} c 0 -")),
            Err(EBUSY)
        );
        assert_eq!(
            desk.by("a", 0).say("lock", &format!("l {kind} d 0 -")),
            Err(EBUSY),
            "another cookie is another holder"
        );
    }
    assert_eq!(
        desk.by("b", 0).say("unlock", "l c"),
        Err(errno::ENOENT),
        "not b's"
    );
    desk.by("a", 0).ok("unlock", "l c");
    desk.by("b", 0).ok("lock", "l shared c 0 t");
    desk.by("a", 0).ok("lock", "l shared c 0 t for reading");
    assert_eq!(
        desk.by("a", 0).say("lock", "l shared d 0 other"),
        Err(EBUSY),
        "holders share a tag"
    );
    assert_eq!(desk.by("a", 0).say("lock", "l exclusive d 0 t"), Err(EBUSY));
    assert_eq!(
        desk.by("a", 0).say("renew", "l exclusive c 0 t"),
        Err(EBUSY),
        "while another shares it"
    );
    assert_eq!(
        desk.ok("info", "l"),
        "shared t\nb c 0 \na c 0 for reading\n"
    );
    desk.by("b", 0).ok("unlock", "l c");
    desk.by("a", 0).ok("renew", "l exclusive c 0 t");
    assert_eq!(desk.ok("check", "l exclusive c t"), "");
    desk.by("a", 0).ok("unlock", "l c");
    assert!(
        desk.object.attributes.is_empty(),
        "nothing is left of a lock that nobody holds"
    );
}

#[test]
fn locks_expire_at_the_time_of_the_operation() {
    let mut desk = Desk::new("lock");
    desk.by("a", 0).ok("lock", "l exclusive c 10000 -");
    assert_eq!(
        desk.by("b", 9).say("lock", "l exclusive c 10000 -"),
        Err(EBUSY)
    );
    assert_eq!(
        desk.by("a", 9).say("check", "l exclusive c -"),
        Ok(String::new())
    );
    desk.by("a", 9).ok("renew", "l exclusive c 10000 -");
    assert_eq!(
        desk.by("b", 18).say("lock", "l exclusive c 10000 -"),
        Err(EBUSY)
    );
    assert_eq!(
        desk.by("a", 19).say("check", "l exclusive c -"),
        Err(EBUSY),
        "at its end it is over"
    );
    assert_eq!(
        desk.by("a", 19).say("renew", "l exclusive c 10000 -"),
        Err(errno::ENOENT)
    );
    assert_eq!(
        (desk.ok("info", "l"), desk.ok("list", "")),
        (String::new(), String::new())
    );
    desk.by("b", 19).ok("lock", "l exclusive c 0 -");
    assert_eq!(
        desk.by("a", 999_999).say("lock", "l exclusive c 10000 -"),
        Err(EBUSY),
        "0 is for ever"
    );
}

#[test]
fn a_holder_is_broken_by_name_and_locks_are_listed() {
    let mut desk = Desk::new("lock");
    desk.by("a", 0).ok("lock", "z shared 1 0 -");
    desk.by("a", 0).ok("lock", "z shared 2 0 -");
    desk.by("odd name%", 0).ok("lock", "y exclusive 1 0 -");
    assert_eq!(desk.ok("list", ""), "y\nz\n");
    assert_eq!(desk.ok("info", "y"), "exclusive -\nodd%20name%25 1 0 \n");
    assert_eq!(
        desk.by("b", 0).say("break_lock", "z a 3"),
        Err(errno::ENOENT)
    );
    desk.by("b", 0).ok("break_lock", "z a 1");
    desk.by("b", 0).ok("break_lock", "y odd%20name%25 1");
    assert_eq!(
        (desk.ok("list", ""), desk.ok("info", "z")),
        ("z\n".into(), "shared -\na 2 0 \n".into())
    );
}

#[test]
fn a_description_cannot_make_a_holder() {
    let mut desk = Desk::new("lock");
    desk.by("a", 0)
        .ok("lock", "l shared c 0 - mine\nb c 0 not b's");
    assert_eq!(desk.ok("info", "l"), "shared -\na c 0 mine b c 0 not b's\n");
    assert_eq!(desk.by("b", 0).say("check", "l shared c -"), Err(EBUSY));
    for input in [
        "",
        "l",
        "l exclusive c 0",
        "l maybe c 0 -",
        "l shared c -1 -",
        "l shared c x -",
        "l shared c 9007199254740991 -",
    ] {
        assert_eq!(desk.say("lock", input), Err(errno::EINVAL), "{input}");
    }
}
