//! `matrix`: data and index are changed together, or not at all (MAL-21).

use super::*;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn data_and_index_never_disagree(
        rows in 1..5_usize,
        columns in 1..5_usize,
        steps in proptest::collection::vec((any::<bool>(), 0..6_usize, 0..6_usize, proptest::collection::vec(-2..3_i64, 6)), 1..30),
    ) {
        let mut desk = Desk::new("matrix");
        desk.ok("create", &format!("{rows} {columns}"));
        let mut model = vec![vec![0_i64; columns]; rows];
        for (whole, row, column, values) in steps {
            // Some values at the ends of their range.
            let values: Vec<i64> = values.iter().map(|v| if *v == 2 { INTEGER_MAX } else { *v }).collect();
            let (input, method) = if whole {
                let words: Vec<String> = values[..columns].iter().map(i64::to_string).collect();
                (format!("{row} {}", words.join(" ")), "set_row")
            } else {
                (format!("{row} {column} {}", values[0]), "set")
            };
            let fits = row < rows && (whole || column < columns);
            prop_assert_eq!(desk.say(method, &input), if fits { Ok(String::new()) } else { Err(errno::ERANGE) });
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
            let cells = model.iter().enumerate().flat_map(|(r, line)| line.iter().enumerate().map(move |(c, v)| (r, c, *v)));
            let expected: String = cells.filter(|(_, _, v)| *v == value).map(|(r, c, _)| format!("{r} {c}\n")).collect();
            prop_assert_eq!(desk.ok("find", &value.to_string()), expected);
        }
    }
}

type Damage<'a> = &'a dyn Fn(&mut Model);

#[test]
fn verify_sees_every_way_to_disagree() {
    let mut good = Desk::new("matrix");
    good.ok("create", "2 3");
    good.ok("set_row", "1 7 0 -7");
    assert_eq!(good.ok("verify", ""), "2");
    let key = good.object.map.keys().next().expect("two keys").clone();
    let mut desk = Desk::new("matrix");
    let broken: [(&str, Damage<'_>); 4] = [
        ("a key is missing", &|object| drop(object.map.remove(&key))),
        ("a key too many", &|object| drop(object.map.insert("+0000000000000003/00000/00000".into(), Bytes::new()))),
        ("another cell", &|object| object.data.as_mut().expect("there")[0] = 1),
        ("a cell short", &|object| object.data.as_mut().expect("there").truncate(40)),
    ];
    for (what, damage) in broken {
        desk.object = good.object.clone();
        damage(&mut desk.object);
        assert_eq!(desk.say("verify", ""), Err(errno::EIO), "{what}");
    }
}

#[test]
fn the_largest_matrix_is_within_the_budget() {
    let mut desk = Desk::new("matrix");
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
        let values: Vec<String> = (1..=128).map(|column| (row * 1000 + column).to_string()).collect();
        desk.ok("set_row", &format!("{row} {}", values.join(" ")));
    }
    assert_eq!(desk.ok("verify", ""), "16384");
    desk = Desk::new("matrix");
    desk.ok("create", "4 4096");
    for fill in ["1", "2", "0"] {
        desk.ok("set_row", &format!("0{}", format!(" {fill}").repeat(4_096)));
        assert_eq!(desk.ok("verify", ""), if fill == "0" { "0" } else { "4096" });
    }
}
