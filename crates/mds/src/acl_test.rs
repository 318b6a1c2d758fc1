use super::*;

const TAGS: [u16; 6] = [1, 2, 4, 8, 16, 32];

/// An attribute's bytes, written by hand.
fn bytes(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0];
    for (tag, rights, id) in entries {
        bytes.extend([tag.to_le_bytes(), rights.to_le_bytes()].concat());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}
fn parse(entries: &[(u16, u16, u32)]) -> Acl {
    Acl::parse(&bytes(entries))
        .expect("a list")
        .expect("not empty")
}
const NO: u32 = u32::MAX;

/// The rules of Linux' `posix_acl_valid`, step by step.
fn valid(tags: &[u16]) -> bool {
    let (mut state, mut needs_mask) = (1, false);
    for tag in tags {
        state = match (tag, state) {
            (1, 1) => 2,
            (2, 2) => {
                needs_mask = true;
                2
            }
            (4, 2) => 8,
            (8, 8) => {
                needs_mask = true;
                8
            }
            (16, 8) => 32,
            (32, 32) => 0,
            (32, 8) if !needs_mask => 0,
            _ => return false,
        };
    }
    state == 0
}

/// All orders of up to seven entries.
#[test]
fn lists_are_those_that_linux_takes() {
    let mut good = 0;
    for length in 1..=7_u32 {
        for n in 0..6_usize.pow(length) {
            let tags: Vec<u16> = (0..length)
                .map(|at| TAGS[n / 6_usize.pow(at) % 6])
                .collect();
            let entries: Vec<_> = tags
                .iter()
                .zip(5..)
                .map(|(tag, id)| (*tag, 5, id))
                .collect();
            let parsed = Acl::parse(&bytes(&entries));
            assert_eq!(parsed.is_ok(), valid(&tags), "{tags:?}");
            good += u32::from(parsed.is_ok());
        }
    }
    assert!(good > 10, "{good}");
}

#[test]
fn what_is_no_list_is_refused_and_an_empty_one_is_none() {
    let plain = [(1, 7, NO), (4, 5, NO), (32, 0, NO)];
    assert_eq!(
        (Acl::parse(&[]), Acl::parse(&[2, 0, 0, 0])),
        (Ok(None), Ok(None))
    );
    let whole = bytes(&plain);
    for cut in 1..whole.len() {
        let is_none = cut == HEAD;
        assert_eq!(Acl::parse(&whole[..cut]).is_err(), !is_none, "{cut}");
    }
    for version in [0, 1, 3, 255] {
        let mut other = whole.clone();
        other[0] = version;
        assert_eq!(Acl::parse(&other), Err(Malformed));
    }
    for at in 0..3 {
        let mut entries = plain;
        entries[at].1 = 8;
        assert_eq!(
            Acl::parse(&bytes(&entries)),
            Err(Malformed),
            "there are three rights"
        );
        entries[at] = (64, 0, NO);
        assert_eq!(
            Acl::parse(&bytes(&entries)),
            Err(Malformed),
            "there is no such tag"
        );
    }
    let no_one = [(1, 7, NO), (2, 7, NO), (4, 5, NO), (16, 7, NO), (32, 0, NO)];
    assert_eq!(
        Acl::parse(&bytes(&no_one)),
        Err(Malformed),
        "no user has that id"
    );
}

#[test]
fn a_list_goes_out_as_it_came() {
    let named = [
        (1, 7, NO),
        (2, 6, 9),
        (2, 1, 70_000),
        (4, 5, NO),
        (8, 3, 0),
        (16, 7, NO),
        (32, 4, NO),
    ];
    assert_eq!(parse(&named).to_bytes(), bytes(&named));
    // Ids of entries without a name are ignored.
    let odd = [(1, 7, 3), (4, 5, 4), (32, 0, 0)];
    assert_eq!(
        parse(&odd).to_bytes(),
        bytes(&[(1, 7, NO), (4, 5, NO), (32, 0, NO)])
    );
}

/// All permissions of owner, group, mask and others, with and without a mask.
fn all() -> impl Iterator<Item = (Acl, [u16; 3], Option<u16>)> {
    (0..8_u16.pow(3))
        .flat_map(|n| (0..=8).map(move |mask| (n, mask)))
        .map(|(n, mask)| {
            let [owner, group, others] = [n >> 6, n >> 3 & 7, n & 7];
            let mask = (mask < 8).then_some(mask);
            let mut entries = vec![(1, owner, NO), (4, group, NO)];
            if let Some(mask) = mask {
                entries.insert(1, (2, 5, 9));
                entries.push((16, mask, NO));
            }
            entries.push((32, others, NO));
            (parse(&entries), [owner, group, others], mask)
        })
}
fn rights(acl: &Acl, tag: Tag) -> Option<u16> {
    acl.0
        .iter()
        .find(|entry| entry.tag == tag)
        .map(|entry| entry.rights)
}

/// The mode's group bits are the mask's; setting a mode leaves the permissions of groups and users
/// unchanged if there is a mask.
#[test]
fn a_mode_and_a_list_say_the_same() {
    for (acl, [owner, group, others], mask) in all() {
        assert_eq!(acl.mode(), owner << 6 | mask.unwrap_or(group) << 3 | others);
        assert_eq!(acl.is_mode(), mask.is_none());
        assert_eq!(acl.given_to(0o6000), 0o6000 | acl.mode());
        for mode in (0..0o1000).step_by(5) {
            let mut set = acl.clone();
            set.set_mode(0o7000 | mode);
            assert_eq!(set.mode(), mode);
            let expected = mask.map_or(mode >> 3 & 7, |_| group);
            assert_eq!(rights(&set, Tag::OwningGroup), Some(expected));
            assert_eq!(rights(&set, Tag::User), mask.map(|_| 5));
            assert_eq!(Acl::parse(&set.to_bytes()), Ok(Some(set)));
        }
    }
}

/// Like Linux' `posix_acl_create_masq`: a new inode has no permission that was not requested, and
/// none that the directory does not give.
#[test]
fn what_is_made_has_what_is_wanted_of_what_is_given() {
    for (acl, [_, group, _], mask) in all() {
        for wanted in (0..0o1000).step_by(7).chain([0o666, 0o777, 0o600]) {
            let (mode, own) = acl.inherited(0o2000 | wanted);
            assert_eq!(mode, 0o2000 | (wanted & acl.mode()));
            assert_eq!(own.is_some(), mask.is_some());
            if let Some(own) = own {
                assert_eq!(
                    (own.mode(), rights(&own, Tag::OwningGroup)),
                    (mode & 0o777, Some(group))
                );
                assert_eq!(rights(&own, Tag::User), Some(5));
            }
        }
    }
}
