//! An upper bound on the time of one mapping: the tries of nested steps multiply, and a map can ask
//! for ten thousand million of them.

use crate::CrushMap;
use crate::map::{Setting, Step};

/// Maximum number of attempts for one replica that a cluster accepts: a fraction of a second when
/// nothing fits. The hardest map of the golden files, with the tunables of the first version, stays
/// below a tenth of it.
pub const ATTEMPTS_MAX: u64 = 10_000_000;

impl CrushMap {
    /// Maximum number of attempts that a rule may make for one replica when nothing fits: whole
    /// descents, descents to the leaf below each, and retries within a bucket.
    #[must_use]
    pub fn attempts_max(&self, rule: u8) -> u64 {
        let Some(rule) = self.rule(rule) else {
            return 0;
        };
        let tunables = &self.tunables;
        let widest = self
            .buckets()
            .map(|bucket| bucket.items().len())
            .max()
            .unwrap_or(0) as u64;
        // The tunable counts retries; the setting of the same name counts tries.
        let mut tries = u64::from(tunables.choose_total_tries) + 1;
        let mut leaf_tries = None;
        let mut local = u64::from(tunables.choose_local_tries);
        let mut fallback = u64::from(tunables.choose_local_fallback_tries);
        let mut most = 0_u64;
        for step in &rule.steps {
            match *step {
                Step::Set(Setting::ChooseTries, value) if value > 0 => tries = u64::from(value),
                Step::Set(Setting::ChooseleafTries, value) if value > 0 => {
                    leaf_tries = Some(u64::from(value))
                }
                Step::Set(Setting::ChooseLocalTries, value) => local = u64::from(value),
                Step::Set(Setting::ChooseLocalFallbackTries, value) => fallback = u64::from(value),
                Step::Choose { leaf, .. } => {
                    let once = tunables.chooseleaf_descend_once != 0;
                    let below = if leaf {
                        leaf_tries.unwrap_or(if once { 1 } else { tries })
                    } else {
                        1
                    };
                    let within = 1 + local.max(if fallback > 0 { widest + fallback } else { 0 });
                    most = most.saturating_add(tries.saturating_mul(below).saturating_mul(within));
                }
                Step::Take(_) | Step::Set(..) | Step::Emit => {}
            }
        }
        most
    }

    /// Whether every rule stays within [`ATTEMPTS_MAX`]: a cluster checks this before it accepts a
    /// map, since every daemon maps every PG with it.
    ///
    /// # Errors
    /// The rule that exceeds it, and what to change.
    pub fn check_attempts(&self) -> Result<(), String> {
        for rule in self.rules() {
            let attempts = self.attempts_max(rule.id);
            if attempts > ATTEMPTS_MAX {
                return Err(format!(
                    "rule {} may make {attempts} attempts for one replica, and {ATTEMPTS_MAX} are taken: lower its set_choose_tries and \
                     set_chooseleaf_tries, or the tunables choose_total_tries, choose_local_tries and choose_local_fallback_tries",
                    rule.id
                ));
            }
        }
        Ok(())
    }
}
