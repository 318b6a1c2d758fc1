//! Lists a directory ahead for callers that look up many of its names one by one.
//!
//! ```text
//!  look-ups answered by the server ──▶ as many as a page costs ──▶ a page ──▶ … ──▶ its end: done
//! ```
//! A look-up at the server costs a request, a round trip, and waking up two threads; for that cost,
//! some [entries](LookAhead::per_lookup) can be listed. So as many entries are listed as look-ups
//! have paid for: the total costs at most twice that of the better alternative, whether one name of
//! a million is wanted or all of them.
//!
//! In a directory with more names than the cache holds, the first ones are evicted before they are
//! looked up: listing continues until as many were listed as the cache holds, and no further. (It
//! used to continue for good, at 32 entries per look-up in a directory of a million: each look-up
//! cost 15 times what was necessary.)
//!
//! Invariant: never more is listed than look-ups answered by the server have paid for, nor than the
//! cache holds.

/// Parameters of listing ahead.
#[derive(Clone, Copy, Debug)]
pub struct LookAhead {
    /// How many entries one look-up pays for.
    pub per_lookup: u32,
    /// Smallest page in entries: a smaller one is not worth a request.
    pub page_min: u32,
}

/// 32: measured with 3 µs per entry and 100 µs per look-up.
impl Default for LookAhead {
    fn default() -> Self {
        Self {
            per_lookup: 32,
            page_min: 128,
        }
    }
}

/// Largest page in entries, because it delays others at the server.
const PAGE_MAX: u64 = 1024;
/// Bytes requested per entry: its attributes and a name of average length.
const ENTRY_BYTES: u64 = 160;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The next page begins after this hash.
    Waits(u64),
    /// The page in flight begins after this hash.
    UnderWay(u64),
    Over,
}

/// The progress of listing one directory ahead. See the module head.
#[derive(Debug)]
pub(crate) struct Ahead {
    /// Entries that were paid for and not listed yet.
    paid: u64,
    /// Entries that were listed.
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
    /// The server has answered a look-up. Returns the page to request now: the hash to start after,
    /// and the size in bytes. `kept`: most names in the cache.
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
    /// The directory does not fit into the cache.
    pub const fn end(&mut self) {
        self.step = Step::Over;
    }
    /// Whether the page after this hash was requested.
    pub fn is_under_way(&self, after: u64) -> bool {
        self.step == Step::UnderWay(after)
    }
    /// The result: the last hash of the page if more pages follow, otherwise `None`. After an error
    /// none follows.
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

    /// A caller that looks up a few names of a large directory must not cause it to be read.
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

    /// Listing more names than the cache holds evicts those listed before.
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

    /// A slow page is not requested twice, and look-ups meanwhile make the next one larger.
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
