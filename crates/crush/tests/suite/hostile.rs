//! Texts that are not maps: errors with a line, never a panic, never disproportionate memory.

use nacre_crush::{Reweights, Scratch, text};
use std::fs;

/// Enough of a map for one more line to be read.
const HEAD: &str = "device 0 osd.0\ndevice 1 osd.1\ntype 0 osd\ntype 1 host\ntype 2 root\n";

#[test]
fn each_mistake_is_named_with_its_line() {
    let bucket = |lines: &str| format!("{HEAD}host a {{\nalg straw2\n{lines}\n}}\n");
    let rule = |step: &str| {
        let rule =
            format!("rule r {{\nid 0\ntype replicated\nmin_size 1\nmax_size 3\nstep {step}\n}}\n");
        format!("{}{rule}", bucket("item osd.0"))
    };
    let deep: String = (1..=70)
        .map(|n| format!("root d{n} {{ alg straw2 item d{} }}\n", n - 1))
        .collect();
    for (text, line, says) in [
        ("nonsense".to_owned(), 1, "ends"),
        ("{".to_owned(), 1, "`{`"),
        ("tunable speed 3".to_owned(), 1, "no tunable `speed`"),
        (
            "tunable choose_total_tries 4000000000".to_owned(),
            1,
            "from 0 to 100000",
        ),
        ("device -1 osd.x".to_owned(), 1, "device number"),
        (
            "device 99999999999999999999 osd.x".to_owned(),
            1,
            "device number",
        ),
        (format!("{HEAD}device 1 osd.7"), 6, "twice"),
        (format!("{HEAD}device 7 osd.1"), 6, "twice"),
        (format!("{HEAD}type 1 rack"), 6, "twice"),
        (bucket("item osd.9"), 8, "neither a device nor a bucket"),
        (bucket("item osd.0 weight -1"), 8, "not a weight"),
        (bucket("item osd.0 weight nan"), 8, "not a weight"),
        (bucket("item osd.0 weight 101"), 8, "at most 100.0"),
        (bucket("item osd.0 pos 5"), 8, "position 5"),
        (
            bucket("item osd.0 pos 0 item osd.1 pos 0"),
            8,
            "another item",
        ),
        (bucket("item osd.0\nitem osd.0"), 9, "twice"),
        (bucket("id -2000000000"), 8, "bucket id"),
        (bucket("id 5"), 8, "bucket id"),
        (bucket("alg straw3"), 8, "no bucket algorithm"),
        (bucket("hash 7"), 8, "no hash"),
        (bucket("item a"), 8, "contains itself"),
        (
            format!("{HEAD}host a {{ alg straw2 item b }}\nhost b {{ alg straw2 item a }}"),
            7,
            "contains itself",
        ),
        (format!("{HEAD}osd a {{ alg straw2 }}"), 6, "type 0"),
        (
            format!("{HEAD}shelf a {{ alg straw2 }}"),
            6,
            "no type `shelf`",
        ),
        (format!("{HEAD}host a {{ id -1 }}"), 6, "no algorithm"),
        (
            format!("{HEAD}host a {{ id -1 alg list }}\nhost b {{ id -1 alg list }}"),
            7,
            "twice",
        ),
        (
            format!("{HEAD}host a {{ alg uniform item osd.0 weight 1 item osd.1 weight 2 }}"),
            6,
            "uniform",
        ),
        (
            format!("{HEAD}root d0 {{ alg straw2 }}\n{deep}"),
            70,
            "more than 64 levels",
        ),
        (
            format!("{HEAD}{}", "host a { alg straw2 item osd.0"),
            6,
            "ends",
        ),
        (rule("take nowhere"), 15, "rule r"),
        (rule("take a class ssd"), 15, "class `ssd`"),
        (rule("choose firstn 0 type shelf"), 15, "no type `shelf`"),
        (
            rule("choose firstn 99999999 type host"),
            15,
            "from -100000 to 100000",
        ),
        (rule("jump"), 15, "`jump`"),
        (
            format!(
                "{}choose_args 0 {{ {{ bucket_id -9 }} }}",
                bucket("item osd.0")
            ),
            10,
            "no bucket with id -9",
        ),
        (
            format!(
                "{}choose_args 0 {{ {{ bucket_id -1 weight_set [ [ 1 2 ] ] }} }}",
                bucket("item osd.0")
            ),
            10,
            "2 weights for a bucket of 1",
        ),
    ] {
        let error = text::parse(&text).map(|_| ()).expect_err(&text);
        assert_eq!(error.line, line, "{error}\n{text}");
        assert!(
            error.to_string().contains(says),
            "`{error}` does not say `{says}`"
        );
    }
    let heavy: String = (0..40)
        .map(|n| format!("item h{n} weight 60000\n"))
        .collect();
    let hosts: String = (0..40)
        .map(|n| format!("host h{n} {{ alg straw2 }}\n"))
        .collect();
    let error = text::parse(&format!("{HEAD}{hosts}root big {{ alg straw2 {heavy} }}"))
        .expect_err("too heavy");
    assert!(error.to_string().contains("more than 65535"), "{error}");
}

/// A small generator, sufficient for mutations.
struct Dice(u64);
impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end.max(1)
    }
}

/// Maps with one to eight mutations each: every one that still parses must print, parse again,
/// check and map.
#[test]
fn mutated_maps_never_panic() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
    let mut texts: Vec<(String, String)> = Vec::new();
    for entry in fs::read_dir(folder).expect("the golden folder is there") {
        let path = entry.expect("readable folder").path();
        if path.extension().is_some_and(|ending| ending == "crush") {
            texts.push((
                path.display().to_string(),
                fs::read_to_string(&path).expect("readable file"),
            ));
        }
    }
    texts.sort();
    let words = [
        "{",
        "}",
        "[",
        "]",
        "-1",
        "0",
        "4294967296",
        "-2147483648",
        "weight",
        "item",
        "id",
        "class",
        "osd.0",
        "default",
        "host",
        "step",
        "take",
        "emit",
        "choose_args",
        "alg",
        "straw",
        "uniform",
        "tree",
        "list",
        "#",
        "\u{0}",
        "é",
    ];
    let mut dice = Dice(42);
    let (mut legal, mut scratch) = (0, Scratch::default());
    for round in 0..1500 {
        let text = &texts[round % texts.len()].1;
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        for _ in 0..=dice.below(8) {
            let at = dice.below(lines.len());
            let from = dice.below(lines.len());
            match dice.below(6) {
                0 => drop(lines.remove(at)),
                1 => lines.insert(at, lines[from].clone()),
                2 => lines.swap(at, from),
                3 => {
                    let mut parts: Vec<&str> = lines[at].split(' ').collect();
                    let part = dice.below(parts.len());
                    parts[part] = words[dice.below(words.len())];
                    lines[at] = parts.join(" ");
                }
                4 => lines.truncate(at.max(1)),
                _ => {
                    let digit = char::from(b'0' + dice.below(10) as u8);
                    lines[at] = lines[at]
                        .chars()
                        .map(|c| if c.is_ascii_digit() { digit } else { c })
                        .collect();
                }
            }
            if lines.is_empty() {
                lines.push(String::new());
            }
        }
        let Ok(map) = text::parse(&lines.join("\n")) else {
            continue;
        };
        legal += 1;
        map.check();
        assert!(
            text::parse(&text::print(&map)).as_ref() == Ok(&map),
            "{}",
            lines.join("\n")
        );
        let reweights = Reweights::all_in(&map);
        for rule in map.rules() {
            for x in 0..4 {
                let _ = map.map(rule.id, x, 5, &reweights, &mut scratch);
            }
        }
    }
    assert!(
        legal > 100,
        "only {legal} mutations were legal: the test no longer tests mapping"
    );
}
