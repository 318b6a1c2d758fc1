//! F55: tries multiply to ten thousand million for one hostile map, and every daemon makes them for
//! every PG.

use nacre_crush::{ATTEMPTS_MAX, text};

const MAP: &str = "
device 0 osd.0
device 1 osd.1
type 0 osd
type 1 host
type 2 root
host a {
\tid -1
\talg straw2
\thash 0
\titem osd.0 weight 1.000
\titem osd.1 weight 1.000
}
root default {
\tid -2
\talg straw2
\thash 0
\titem a weight 2.000
}
rule r {
\tid 0
\ttype replicated
\tmin_size 1
\tmax_size 10
SETTINGS
\tstep take default
\tstep chooseleaf firstn 0 type host
\tstep emit
}
";

fn attempts(tunables: &str, settings: &str) -> (u64, bool) {
    const MODERN: &str = "tunable choose_local_tries 0\ntunable choose_local_fallback_tries 0\ntunable choose_total_tries 50\n";
    let text = format!("{MODERN}{tunables}{}", MAP.replace("SETTINGS", settings));
    let map = text::parse(&text).expect("a legal text");
    (map.attempts_max(0), map.check_attempts().is_ok())
}

// Fails when `check_attempts` counts whole descents only.
#[test]
fn a_map_that_tries_for_ever_is_refused() {
    assert_eq!(
        attempts("tunable chooseleaf_descend_once 1\n", ""),
        (51, true)
    );
    assert_eq!(
        attempts("tunable chooseleaf_descend_once 0\n", ""),
        (51 * 51, true)
    );
    let (most, taken) = attempts(
        "",
        "\tstep set_choose_tries 100000\n\tstep set_chooseleaf_tries 100000",
    );
    assert!(most >= 10_000_000_000 && !taken, "{most}");
    let (most, taken) = attempts(
        "",
        "\tstep set_choose_tries 1000\n\tstep set_choose_local_tries 100000",
    );
    assert!(most > ATTEMPTS_MAX && !taken, "{most}");
}

#[test]
fn every_map_that_others_made_is_taken() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut seen = 0;
    for file in std::fs::read_dir(folder).expect("there are golden files") {
        let path = file.expect("it is listed").path();
        if path.extension().is_none_or(|ext| ext != "crush") {
            continue;
        }
        seen += 1;
        let map =
            text::parse(&std::fs::read_to_string(&path).expect("it is text")).expect("it parses");
        for rule in map.rules() {
            assert!(
                map.attempts_max(rule.id) <= ATTEMPTS_MAX / 10,
                "{}: {}",
                path.display(),
                map.attempts_max(rule.id)
            );
        }
    }
    assert!(seen > 10, "{seen} maps");
}
