//! Rate limits of metadata changes and reads at the leader (MAL-16): token buckets with a capacity
//! of one second.

use nacre_types::{Name, Time};
use std::collections::BTreeMap;

/// Maximum number of clients' buckets; full ones are dropped first, they hold no information.
const BUCKETS_MAX: usize = 4_096;
/// A token's subdivisions: rates are per second, time is in nanoseconds.
const TOKEN: u128 = 1_000_000_000;

#[derive(Clone, Copy, Debug)]
struct Bucket {
    parts: u128,
    at: Time,
}

impl Bucket {
    fn fill(&mut self, now: Time, rate: u64) {
        let passed = u128::from(now.0.saturating_sub(self.at.0)) * u128::from(rate);
        self.parts = (self.parts + passed).min(u128::from(rate) * TOKEN);
        self.at = now;
    }
    /// Milliseconds until there is a token; 0: now.
    fn wait_ms(&self, rate: u64) -> u64 {
        let missing = TOKEN.saturating_sub(self.parts);
        u64::try_from(missing.div_ceil(u128::from(rate) * 1_000_000)).unwrap_or(u64::MAX)
    }
}

/// See the module head.
#[derive(Clone, Debug, Default)]
pub struct Limiter {
    all: Option<Bucket>,
    by_name: BTreeMap<Name, Bucket>,
}

impl Limiter {
    /// Takes a token from each bucket, or none.
    ///
    /// # Errors
    /// Milliseconds until a token is available.
    pub fn take(
        &mut self,
        now: Time,
        name: &Name,
        rate_each: u64,
        rate_all: u64,
    ) -> Result<(), u64> {
        let full = |rate: u64| Bucket {
            parts: u128::from(rate) * TOKEN,
            at: now,
        };
        if self.by_name.len() >= BUCKETS_MAX && !self.by_name.contains_key(name) {
            self.by_name.retain(|_, bucket| {
                bucket.fill(now, rate_each);
                bucket.parts < u128::from(rate_each) * TOKEN
            });
        }
        let all = self.all.get_or_insert_with(|| full(rate_all));
        let each = self
            .by_name
            .entry(name.clone())
            .or_insert_with(|| full(rate_each));
        all.fill(now, rate_all);
        each.fill(now, rate_each);
        match all.wait_ms(rate_all).max(each.wait_ms(rate_each)) {
            0 => {
                all.parts -= TOKEN;
                each.parts -= TOKEN;
                Ok(())
            }
            wait => Err(wait),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    // Failed when `take` did not subtract, and when `fill` was not limited to one second.
    #[test]
    fn a_second_holds_as_many_as_the_rate_says() {
        let mut limiter = Limiter::default();
        let mut now = Time(5);
        let name: Name = "a".into();
        let taken = |limiter: &mut Limiter, now| {
            (0..1_000)
                .take_while(|_| limiter.take(now, &name, 100, 1_000).is_ok())
                .count()
        };
        assert_eq!(taken(&mut limiter, now), 100);
        assert_eq!(
            limiter.take(now, &name, 100, 1_000),
            Err(10),
            "a hundredth of a second later"
        );
        assert_eq!(
            limiter.take(now, &"b".into(), 100, 1_000),
            Ok(()),
            "others have their own"
        );
        now = now + Duration::from_millis(50);
        assert_eq!(taken(&mut limiter, now), 5);
        now = now + Duration::from_secs(3600);
        assert_eq!(
            taken(&mut limiter, now),
            100,
            "an hour's silence saves nothing up"
        );
    }

    #[test]
    fn all_together_have_a_rate_too() {
        let mut limiter = Limiter::default();
        let names: Vec<Name> = (0..10).map(|n| format!("c{n}").as_str().into()).collect();
        let taken = names
            .iter()
            .cycle()
            .take(100)
            .filter(|name| limiter.take(Time(1), name, 8, 30).is_ok())
            .count();
        assert_eq!(taken, 30);
    }

    /// (Planted by a reviewer: limited clients were forgotten, and the others kept.)
    #[test]
    fn only_buckets_that_are_full_are_forgotten() {
        let mut limiter = Limiter::default();
        for n in 1..BUCKETS_MAX {
            limiter
                .take(Time(1), &format!("idle{n}").as_str().into(), 8, 100_000)
                .expect("its first");
        }
        let (now, busy) = (Time(2_000_000_001), Name::from("busy"));
        while limiter.take(now, &busy, 8, 100_000).is_ok() {}
        limiter
            .take(now, &"new".into(), 8, 100_000)
            .expect("its first");
        assert!(
            limiter.take(now, &busy, 8, 100_000).is_err(),
            "others that come refill nothing"
        );
        assert_eq!(limiter.by_name.len(), 2);
    }
}
