//! When a directory is listed for those who look up one name of it after the other.
//!
//! ```text
//!  look-ups that the server had to answer ──▶ as many as a page costs ──▶ a page ──▶ … ──▶ its end: over
//! ```
//! A look-up that goes to the server costs a request, its way there and back, and two threads that
//! wake up for it; for that, some [entries](LookAhead::per_lookup) can be listed. So as many
//! entries are listed as were paid for in look-ups: all of it costs twice what the better of both
//! ways would have, at most, whether one name of a million is wanted or each of them.
//!
//! Of a directory with more names than are kept, the first ones are forgotten before they are
//! looked up: listing goes on until as many were listed as are kept, and no further. (It went on
//! for good, at 32 entries for each look-up of a million: each cost 15 times what it had to.)
//!
//! Invariant: no more is listed than was paid for in look-ups that the server answered, nor than is
//! kept.

/// How much is listed ahead.
#[derive(Clone, Copy, Debug)]
pub struct LookAhead {
    /// For so many entries one look-up pays.
    pub per_lookup: u32,
    /// Entries of a page at least: fewer are not worth a request.
    pub page_min: u32,
}

/// 32: as measured, where an entry took 3 µs and a look-up 100.
impl Default for LookAhead {
    fn default() -> Self {
        Self {
            per_lookup: 32,
            page_min: 128,
        }
    }
}

/// Entries of a page at most, since it keeps the server from others.
const PAGE_MAX: u64 = 1024;
/// What is asked for per entry, in bytes: its attributes and a name of usual length.
const ENTRY_BYTES: u64 = 160;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The next page begins after this hash.
    Waits(u64),
    /// So does the one that was asked for.
    UnderWay(u64),
    Over,
}

/// How far one directory is listed so. See the module head.
#[derive(Debug)]
pub(crate) struct Ahead {
    /// Entries that were paid for, and not listed.
    paid: u64,
    /// Those that were.
    listed: u64,
    step: Step,
}

impl Default for Ahead {
    fn default() -> Self {
        Self {
            paid: 0,
            listed: 0,
            step: Step::Waits(0),
        }
    }
}

impl Ahead {
    /// The server has answered a look-up. A page to ask for now: after which hash, and how many
    /// bytes of it. `kept`: names that are, at most.
    pub fn looked_up(&mut self, how: LookAhead, kept: u64) -> Option<(u64, u32)> {
        self.paid += u64::from(how.per_lookup);
        let Step::Waits(after) = self.step else {
            return None;
        };
        if self.paid < u64::from(how.page_min) || self.listed >= kept {
            return None;
        }
        let entries = self.paid.min(PAGE_MAX);
        self.paid -= entries;
        self.listed += entries;
        self.step = Step::UnderWay(after);
        Some((
            after,
            u32::try_from(entries * ENTRY_BYTES).expect("a page is small"),
        ))
    }
    /// It does not fit into what is kept.
    pub const fn end(&mut self) {
        self.step = Step::Over;
    }
    /// Whether the page after this hash was asked for.
    pub fn is_under_way(&self, after: u64) -> bool {
        self.step == Step::UnderWay(after)
    }
    /// What came of it: the last hash of a page that others follow, or that no page follows. After
    /// an error none does.
    pub fn listed(&mut self, last: Option<u64>) {
        if let Step::UnderWay(_) = self.step {
            self.step = last.map_or(Step::Over, Step::Waits);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOW: LookAhead = LookAhead {
        per_lookup: 32,
        page_min: 128,
    };

    /// Who looks up a few names of a large directory must not be made to read it.
    #[test]
    fn no_more_is_listed_than_was_paid_for() {
        let (mut ahead, mut listed, each) = (Ahead::default(), 0, u64::from(HOW.per_lookup));
        for lookups in 1..10_000_u64 {
            if let Some((after, bytes)) = ahead.looked_up(HOW, u64::MAX) {
                assert_eq!(after, listed, "page follows page");
                assert!(ahead.is_under_way(after));
                listed += u64::from(bytes) / ENTRY_BYTES;
                ahead.listed(Some(listed));
            }
            assert!(
                listed <= lookups * each,
                "{listed} entries for {lookups} look-ups"
            );
            assert!(
                listed + u64::from(HOW.page_min) > lookups * each,
                "what was paid for is listed"
            );
        }
    }

    /// Names listed beyond what is kept push out those that were listed before.
    #[test]
    fn no_more_is_listed_than_is_kept() {
        let (mut ahead, mut pages) = (Ahead::default(), 0);
        for _ in 0..10_000 {
            if ahead.looked_up(HOW, 1000).is_some() {
                pages += 1;
                ahead.listed(Some(pages));
            }
        }
        assert_eq!(pages, 8, "of 128 each");
    }

    /// A page that takes long is not asked for twice, and what was paid meanwhile makes the next
    /// one larger.
    #[test]
    fn one_page_is_under_way_at_a_time() {
        let mut ahead = Ahead::default();
        assert_eq!(
            [(); 4].map(|()| ahead.looked_up(HOW, u64::MAX).is_some()),
            [false, false, false, true]
        );
        for _ in 0..100 {
            assert_eq!(ahead.looked_up(HOW, u64::MAX), None);
        }
        ahead.listed(Some(77));
        let most = u32::try_from(PAGE_MAX * ENTRY_BYTES).expect("small");
        assert_eq!(ahead.looked_up(HOW, u64::MAX), Some((77, most)));
        ahead.listed(None);
        ahead.listed(Some(5));
        assert_eq!(
            [(); 9].map(|()| ahead.looked_up(HOW, u64::MAX)),
            [None; 9],
            "it is over"
        );
    }
}
