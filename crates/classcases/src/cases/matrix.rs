//! `matrix`: data and index are changed together, or not at all (MAL-21).

use super::Promise;
use crate::examples::number_of;
use crate::{Change, Desk, Host, property};
use bytes::Bytes;
use nacre_policy::{INTEGER_MAX, errno};
use proptest::prelude::*;

pub const CASES: &[Promise] = &[
    (
        "data and index never disagree",
        data_and_index_never_disagree,
    ),
    (
        "`verify` sees every way to disagree",
        verify_sees_every_way_to_disagree,
    ),
    (
        "the largest matrix is within the budget",
        the_largest_matrix_is_within_the_budget,
    ),
];

fn data_and_index_never_disagree(host: &mut dyn Host) {
    let step = (
        any::<bool>(),
        0..6_usize,
        0..6_usize,
        proptest::collection::vec(-2..3_i64, 6),
    );
    let steps = proptest::collection::vec(step, 1..30);
    property(
        host,
        48,
        (1..5_usize, 1..5_usize, steps),
        |host, (rows, columns, steps)| {
            let mut desk = Desk::new(host, "matrix");
            desk.ok("create", &format!("{rows} {columns}"));
            let mut model = vec![vec![0_i64; columns]; rows];
            for (whole, row, column, values) in steps {
                // Some values are at the limits of their range.
                let values: Vec<i64> = values
                    .iter()
                    .map(|v| if *v == 2 { INTEGER_MAX } else { *v })
                    .collect();
                let (input, method) = if whole {
                    let words: Vec<String> = values[..columns].iter().map(i64::to_string).collect();
                    (format!("{row} {}", words.join(" ")), "set_row")
                } else {
                    (format!("{row} {column} {}", values[0]), "set")
                };
                let fits = row < rows && (whole || column < columns);
                prop_assert_eq!(
                    desk.say(method, &input),
                    if fits {
                        Ok(String::new())
                    } else {
                        Err(errno::ERANGE)
                    }
                );
                if fits && whole {
                    model[row].copy_from_slice(&values[..columns]);
                } else if fits {
                    model[row][column] = values[0];
                }
                let some = model.iter().flatten().filter(|v| **v != 0).count();
                prop_assert_eq!(desk.ok("verify", ""), some.to_string());
            }
            for (r, line) in model.iter().enumerate() {
                let words: Vec<String> = line.iter().map(i64::to_string).collect();
                prop_assert_eq!(desk.ok("get_row", &r.to_string()), words.join(" "));
                for (c, value) in line.iter().enumerate() {
                    prop_assert_eq!(desk.ok("get", &format!("{r} {c}")), value.to_string());
                }
            }
            for value in [-2, -1, 1, INTEGER_MAX] {
                let cells = model
                    .iter()
                    .enumerate()
                    .flat_map(|(r, line)| line.iter().enumerate().map(move |(c, v)| (r, c, *v)));
                let expected: String = cells
                    .filter(|(_, _, v)| *v == value)
                    .map(|(r, c, _)| format!("{r} {c}\n"))
                    .collect();
                prop_assert_eq!(desk.ok("find", &value.to_string()), expected);
            }
            Ok(())
        },
    );
}

/// The change made to a matrix with these keys.
type Damage<'a> = &'a dyn Fn(Vec<Bytes>) -> Change;

fn verify_sees_every_way_to_disagree(host: &mut dyn Host) {
    let mut desk = Desk::new(host, "matrix");
    let missing = |keys: Vec<Bytes>| Change::RemoveKey(keys.into_iter().next().expect("two keys"));
    let broken: [(&str, Damage<'_>); 4] = [
        ("a key is missing", &missing),
        ("a key too many", &|_| {
            Change::SetKey("+0000000000000003/00000/00000", Vec::new())
        }),
        ("another cell", &|_| Change::Write(0, vec![1])),
        ("a cell short", &|_| Change::Truncate(40)),
    ];
    for (what, damage) in broken {
        desk.host.fresh();
        desk.ok("create", "2 3");
        desk.ok("set_row", "1 7 0 -7");
        assert_eq!(desk.ok("verify", ""), "2");
        let keys = desk.object().map.into_keys().collect();
        desk.host.change(damage(keys));
        assert_eq!(desk.say("verify", ""), Err(errno::EIO), "{what}");
    }
}

fn the_largest_matrix_is_within_the_budget(host: &mut dyn Host) {
    let mut desk = Desk::new(host, "matrix");
    for (input, errno) in [
        ("129 128", number_of("EFBIG")),
        ("16385 1", number_of("EFBIG")),
        ("1 4097", number_of("EFBIG")),
        ("0 1", errno::EINVAL),
        ("1", errno::EINVAL),
        ("9007199254740991 9007199254740991", number_of("EFBIG")),
    ] {
        assert_eq!(desk.say("create", input), Err(errno), "{input}");
    }
    assert_eq!(desk.say("get", "0 0"), Err(errno::ENOENT));
    desk.ok("create", "128 128");
    for row in 0..128 {
        let values: Vec<String> = (1..=128)
            .map(|column| (row * 1000 + column).to_string())
            .collect();
        desk.ok("set_row", &format!("{row} {}", values.join(" ")));
    }
    assert_eq!(desk.ok("verify", ""), "16384");
    desk.host.fresh();
    desk.ok("create", "4 4096");
    for fill in ["1", "2", "0"] {
        desk.ok("set_row", &format!("0{}", format!(" {fill}").repeat(4_096)));
        assert_eq!(
            desk.ok("verify", ""),
            if fill == "0" { "0" } else { "4096" }
        );
    }
}
