//! Answers of Ceph 16.2.15 (`golden/`): maps, mappings, whole placements, object hashes.
//!
//! Every file of the directory is read by exactly one of these tests, according to its extension,
//! and the head of every file describes its contents. No test names a file.

use nacre_crush::map::{CrushMap, RuleKind};
use nacre_crush::place::{PoolPlacement, place};
use nacre_crush::upmap::Upmaps;
use nacre_crush::{ItemId, Reweights, Scratch, Weight, object, text};
use nacre_types::{OsdId, PgId, PoolId};
use std::fs;
use std::path::{Path, PathBuf};

/// Minimum number of files of each kind: an empty directory must not pass.
const LEAST: [(&str, usize); 4] = [("crush", 22), ("map", 107), ("pgs", 4), ("tsv", 1)];

fn files(ending: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let entries = fs::read_dir(&folder).expect("the golden folder is there");
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("readable folder").path())
        .collect();
    files.retain(|file| file.file_name().is_some_and(|name| name != "README.md"));
    for file in &files {
        let known = file
            .extension()
            .is_some_and(|found| LEAST.iter().any(|(ending, _)| found == *ending));
        assert!(known, "no test reads {}", file.display());
    }
    files.retain(|file| file.extension().is_some_and(|found| found == ending));
    files.sort();
    let least = LEAST
        .iter()
        .find(|(known, _)| *known == ending)
        .expect("a known ending")
        .1;
    assert!(
        files.len() >= least,
        "{} .{ending} files, of at least {least}",
        files.len()
    );
    files
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The map of a vector file: the part of its name before the first dot.
fn map_of(file: &Path) -> CrushMap {
    let name = file
        .file_name()
        .and_then(|name| name.to_str())
        .expect("readable name");
    let map = file.with_file_name(format!(
        "{}.crush",
        name.split('.').next().expect("split gives one part")
    ));
    text::parse(&read(&map)).unwrap_or_else(|error| panic!("{}: {error}", map.display()))
}

/// The value after a word in a header line.
fn after<'t>(header: &'t str, word: &str) -> &'t str {
    let mut words = header.split_whitespace();
    words
        .find(|found| *found == word)
        .unwrap_or_else(|| panic!("`{header}` has no `{word}`"));
    words
        .next()
        .unwrap_or_else(|| panic!("`{header}` ends after `{word}`"))
}

fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse()
        .unwrap_or_else(|_| panic!("`{text}` is not a number"))
}

/// `none`, or `OSD:WEIGHT …` up to the end of the line.
fn reweights(header: &str, map: &CrushMap) -> Reweights {
    let mut reweights = Reweights::all_in(map);
    let (_, list) = header
        .split_once("reweight")
        .expect("the header gives reweights");
    for pair in list.split_whitespace().filter(|word| *word != "none") {
        let (osd, weight) = pair.split_once(':').expect("OSD:WEIGHT");
        reweights.set(OsdId(number(osd)), Weight::parse(weight).expect("a weight"));
    }
    reweights
}

#[test]
fn mappings_are_those_of_crushtool() {
    for file in files("map") {
        let (map, text) = (map_of(&file), read(&file));
        let header = text
            .lines()
            .find(|line| line.starts_with("# rule "))
            .expect("a header with the rule");
        let rule = map
            .rule(number(after(header, "rule")))
            .expect("the rule is in the map");
        assert!(
            header.contains(&format!(" {} ", rule.name)) || rule.name.is_empty(),
            "{}: {header}",
            file.display()
        );
        let replicas = number(after(header, "num_rep"));
        let (first, last) = after(header, "x").split_once("..").expect("a range");
        let (first, last): (u32, u32) = (number(first), number(last));
        let reweights = reweights(header, &map);
        let rows: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(rows.len() as u32, last - first + 1, "{}", file.display());
        let args = map.choose_args_of_pool(0).cloned();
        let mut scratch = Scratch::default();
        for (x, row) in (first..=last).zip(rows) {
            let found = map.map_with(
                rule.id,
                x,
                replicas,
                &reweights,
                args.as_ref(),
                &mut scratch,
            );
            let found: Vec<String> = found
                .expect("a legal call")
                .iter()
                .map(ItemId::to_string)
                .collect();
            assert_eq!(found.join(" "), row.trim(), "{}, x {x}", file.display());
        }
    }
}

#[test]
fn texts_are_printed_as_they_were_read() {
    for file in files("crush") {
        let text = read(&file);
        let map = text::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        map.check();
        let printed = text::print(&map);
        for (line, (found, expected)) in printed.lines().zip(text.lines()).enumerate() {
            assert_eq!(found, expected, "{}:{}", file.display(), line + 1);
        }
        assert_eq!(printed, text, "{}", file.display());
        assert!(
            text::parse(&printed).as_ref() == Ok(&map),
            "{}",
            file.display()
        );
    }
}

#[test]
fn object_hashes_are_those_of_ceph() {
    for file in files("tsv") {
        for row in read(&file).lines().filter(|row| !row.starts_with('#')) {
            let columns: Vec<&str> = row.split('\t').collect();
            let [pg_num, namespace, name, hash, seed] = columns[..] else {
                panic!("{row}")
            };
            let found = object::object_hash(&json_string(namespace), b"", &json_string(name));
            let wanted = u32::from_str_radix(hash, 16).expect("a hexadecimal hash");
            assert_eq!(found, wanted, "{row}");
            let seed = u32::from_str_radix(seed, 16).expect("a hexadecimal seed");
            assert_eq!(object::pg_seed(found, number(pg_num)), seed, "{row}");
        }
    }
}

/// The bytes of a JSON string.
fn json_string(text: &str) -> Vec<u8> {
    let inner = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'))
        .expect("a quoted string");
    let (mut units, mut out, mut chars) = (Vec::new(), String::new(), inner.chars());
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push_str(
                &String::from_utf16(&std::mem::take(&mut units)).expect("whole surrogate pairs"),
            );
            out.push(c);
            continue;
        }
        let unit = match chars.next().expect("an escape") {
            'n' => u16::from(b'\n'),
            't' => u16::from(b'\t'),
            'r' => u16::from(b'\r'),
            'b' => 8,
            'f' => 12,
            'u' => u16::from_str_radix(&chars.by_ref().take(4).collect::<String>(), 16)
                .expect("four digits"),
            other => u16::try_from(u32::from(other)).expect("a plain escape"),
        };
        units.push(unit);
    }
    out.push_str(&String::from_utf16(&units).expect("whole surrogate pairs"));
    out.into_bytes()
}

#[test]
fn whole_placements_are_those_of_osdmaptool() {
    for file in files("pgs") {
        let (map, text) = (map_of(&file), read(&file));
        let mut headers = text.lines().filter(|line| line.starts_with('#'));
        let (command, header) = (
            headers.next().expect("the command"),
            headers.next().expect("the pool"),
        );
        let header = header.replace(['(', ')', ','], " ").replace(':', " ");
        let pool = PoolPlacement {
            pool: PoolId(number(after(&header, "pool"))),
            pg_num: number(after(&header, "pg_num")),
            pgp_num: number(after(&header, "pgp_num")),
            rule: number(after(&header, "rule")),
            size: number(after(&header, "size")),
            kind: if header.contains(" replicated ") {
                RuleKind::Replicated
            } else {
                RuleKind::Erasure
            },
        };
        let mut reweights = Reweights::all_in(&map);
        if command.contains("--mark-out") {
            reweights.set(OsdId(number(after(command, "--mark-out"))), Weight::ZERO);
        }
        let rows: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        // A file may end before the pool's last PG.
        assert!(
            !rows.is_empty() && rows.len() as u32 <= pool.pg_num,
            "{}",
            file.display()
        );
        let mut scratch = Scratch::default();
        for row in rows {
            let (pg, wanted) = row.split_once(' ').expect("PG and up set");
            let pg: PgId = pg.parse().expect("a PG id");
            let found = place(
                &map,
                &pool,
                pg.seed,
                &reweights,
                &Upmaps::default(),
                |_| true,
                &mut scratch,
            );
            let found: Vec<String> = found
                .expect("a legal call")
                .iter()
                .map(|osd| osd.map_or("-".into(), |osd| osd.0.to_string()))
                .collect();
            assert_eq!(found.join(" "), wanted.trim(), "{}, {pg}", file.display());
        }
    }
}
