//! Shrinks a failing plan to a smaller one that still fails and is easier to analyse.
//!
//! Each step removes something (a workload, a kind of fault, half of the time) and is kept if the
//! plan still fails, whatever the failure: a smaller plan has other random numbers, so it may hit
//! the same bug elsewhere. The result is a list of settings in addition to the seed, for `sim
//! --seed N --set …`.

use crate::plan::{Disks, Plan, SECOND};

/// One setting of a plan: a name and a value, as for `--set`.
pub type Setting = (&'static str, u64);

/// Number of kinds of faults.
const KINDS: u64 = 34;

/// Names of settings.
const NAMES: &[&str] = &[
    "claims",
    "programs",
    "randoms",
    "library",
    "spans",
    "snaps",
    "depth",
    "client_ops",
    "rot",
    "index_rot",
    "small_disks",
    "returns_full",
    "hangs",
    "flags",
    "pairs",
    "bad_network",
    "splits",
    "split_filling",
    "clients",
    "keys",
    "mons",
    "ram",
    "faults_s",
    "without",
    "small_pages",
    "forgetful",
    "recur",
    "capacity_mb",
    "contend",
    "early",
    "fences",
    "lifts",
    "replace",
    "moves",
    "gather_us",
    "plain",
];

impl Plan {
    /// Changes one setting.
    ///
    /// # Errors
    /// The list of valid names.
    pub fn set(&mut self, name: &str, value: u64) -> Result<(), String> {
        let yes = value != 0;
        match name {
            "claims" => self.claims = yes,
            "programs" => self.programs = yes,
            "randoms" => self.randoms = yes,
            "library" => self.library = yes,
            "spans" => self.spans = yes,
            "snaps" => self.snaps = yes,
            "depth" => self.depth = value as usize,
            "client_ops" => self.client_ops = value as usize,
            "rot" => self.rot = yes,
            "small_disks" if yes => *self = self.clone().really_small(),
            "small_disks" => self.small_disks = false,
            "returns_full" => self.returns_full = yes,
            "hangs" => self.hangs = yes,
            "flags" => self.flags = yes,
            "pairs" if yes => *self = self.clone().parts(),
            "pairs" => self.pairs = false,
            "index_rot" if yes => *self = self.clone().index_rots(),
            "index_rot" => self.index_rot = false,
            "bad_network" => self.bad_network = yes,
            "splits" => self.splits = value as u32,
            "split_filling" => self.split_filling = yes,
            "clients" => self.clients = value,
            "keys" => self.keys = value,
            "mons" => self.mons = value as u32,
            "ram" => self.disks = if yes { Disks::Ram } else { Disks::Real },
            "faults_s" => self.faults_ns = value * SECOND,
            "without" => self.without = value,
            "recur" => self.recur = yes,
            "capacity_mb" => self.capacity = value << 20,
            "contend" if yes => *self = self.clone().contended(),
            "contend" => self.contend = false,
            "early" if yes => *self = self.clone().answered_early(),
            "early" => self.early = false,
            "fences" => (self.fences, self.lifts) = (yes, self.lifts && yes),
            "lifts" => (self.fences, self.lifts) = (self.fences || yes, yes),
            "replace" => self.replace = yes,
            "moves" => self.moves = yes,
            "gather_us" => self.gather_ns = value * 1000,
            "plain" => self.plain = yes,
            "forgetful" if yes => *self = self.clone().forgetful(),
            "small_pages" if !yes => self.pages = crate::plan::Pages(nacre_osd::Limits::default()),
            _ => {
                return Err(format!(
                    "there is no setting `{name}`; there are {}",
                    NAMES.join(", ")
                ));
            }
        }
        Ok(())
    }
}

/// What may be removed from a plan, most helpful first.
fn steps(plan: &Plan) -> Vec<Setting> {
    let mut steps: Vec<Setting> = Vec::new();
    for (name, on) in [
        ("claims", plan.claims),
        ("programs", plan.programs),
        ("randoms", plan.randoms),
        ("library", plan.library),
        ("spans", plan.spans),
        ("snaps", plan.snaps),
        ("depth", plan.depth > 0),
        ("rot", plan.rot),
        ("index_rot", plan.index_rot),
        ("small_disks", plan.small_disks),
        ("returns_full", plan.returns_full),
        ("hangs", plan.hangs),
        ("flags", plan.flags),
        ("pairs", plan.pairs),
        ("contend", plan.contend),
        ("early", plan.early),
        ("lifts", plan.lifts),
        ("fences", plan.fences),
        ("replace", plan.replace),
        ("moves", plan.moves),
        ("bad_network", plan.bad_network),
        ("gather_us", plan.gather_ns > 0),
        ("split_filling", plan.split_filling),
        ("splits", plan.splits > 0),
        ("capacity_mb", plan.capacity < 1 << 40),
        ("small_pages", plan.pages.0 != nacre_osd::Limits::default()),
    ] {
        if on {
            let value = if name == "capacity_mb" { 1 << 20 } else { 0 };
            steps.push((name, value));
        }
    }
    if plan.disks == Disks::Real {
        steps.push(("ram", 1));
    }
    if plan.mons > 1 {
        steps.push(("mons", 1));
    }
    if plan.clients > 2 {
        steps.push(("clients", 2));
    }
    if plan.client_ops < 1024 {
        steps.push(("client_ops", 1024));
    }
    let seconds = plan.faults_ns / SECOND;
    if seconds > 2 {
        steps.push(("faults_s", seconds / 2));
        steps.push(("faults_s", seconds * 3 / 4));
    }
    for kind in (0..KINDS).filter(|kind| plan.without & (1 << kind) == 0) {
        steps.push(("without", plan.without | 1 << kind));
    }
    steps
}

/// Removes what it can in at most this many runs. `fails` runs a plan and returns why it failed, if
/// it did.
pub fn shrink(
    plan: &Plan,
    why: String,
    runs: usize,
    mut fails: impl FnMut(&Plan) -> Option<String>,
) -> (Vec<Setting>, String) {
    let (mut best, mut last, mut kept): (Plan, String, Vec<Setting>) =
        (plan.clone(), why, Vec::new());
    let mut left = runs;
    let mut progress = true;
    while progress && left > 0 {
        progress = false;
        for (name, value) in steps(&best) {
            // An accepted step makes others pointless.
            if left == 0 || !steps(&best).iter().any(|(other, _)| *other == name) {
                continue;
            }
            let value = if name == "without" {
                value | best.without
            } else {
                value
            };
            let mut smaller = best.clone();
            smaller.set(name, value).expect("its own name");
            left -= 1;
            if let Some(why) = fails(&smaller) {
                (best, last, progress) = (smaller, why, true);
                kept.retain(|(other, _)| *other != name);
                kept.push((name, value));
            }
        }
    }
    (kept, last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_what_the_failure_needs() {
        let plan = Plan {
            claims: true,
            snaps: true,
            depth: 4,
            mons: 3,
            bad_network: true,
            ..Plan::of(8)
        };
        let needs =
            |plan: &Plan| (plan.snaps && plan.without & (1 << 4) == 0).then(|| "found".to_owned());
        let (kept, why) = shrink(&plan, "at first".into(), 500, needs);
        let mut smaller = plan;
        kept.iter()
            .for_each(|(name, value)| smaller.set(name, *value).expect("a name"));
        assert_eq!(why, "found");
        assert!(smaller.snaps && !smaller.claims && smaller.depth == 0 && smaller.mons == 1);
        assert_eq!(smaller.without, (1 << KINDS) - 1 - (1 << 4));
    }
}
