//! CRUSH texts: one that parses satisfies the map's invariants, survives being printed and read
//! back unchanged, and every rule ends.

use nacre_crush::{Reweights, Scratch, text};

pub fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let map = match text::parse(text) {
        Ok(map) => map,
        Err(why) => {
            assert!(!why.to_string().is_empty(), "an error says what is wrong");
            return;
        }
    };
    map.check();
    let printed = text::print(&map);
    let again = text::parse(&printed).unwrap_or_else(|why| panic!("{why}\n{printed}"));
    assert!(again == map, "{printed}");
    // A map may ask for a hundred thousand attempts per replica: legal, and too slow to fuzz.
    let tunables = map.tunables();
    let tries = [
        tunables.choose_total_tries,
        tunables.choose_local_tries,
        tunables.choose_local_fallback_tries,
    ];
    if tries.iter().any(|tries| *tries > 100)
        || printed.contains("_tries ") && printed.contains("step set_")
    {
        return;
    }
    let (reweights, mut scratch) = (Reweights::all_in(&map), Scratch::default());
    for rule in map.rules().take(8) {
        for x in 0..4 {
            // A rule may find no placement; it must not panic.
            let _ = map.map(rule.id, x, 3, &reweights, &mut scratch);
        }
    }
}
