//! The mechanism: checks what a policy asked for and chooses the units that move (MAL-07, MAL-57;
//! USERS: why Mantle failed upstream, 1).
//!
//! ```text
//!   said ─▶ judge: all of it makes sense, or nothing is done ─▶ for each target, largest first:
//!             receiver lighter? ─▶ units that may go ─▶ strategies ─▶ the choice nearest to the target, within the budget
//! ```
//! Invariants (tests/adversary.rs runs them against any policy):
//! 1. A unit moves at most once per tick, to a rank that is up and is not this one; a pinned unit
//!    never moves.
//! 2. The load that moves is at most the budget, and the number of units is at most
//!    [`Options::units_max`].
//! 3. A refused answer moves nothing: no part of it is applied.

use crate::decision::{Mode, Move};
use crate::metrics::{Metrics, Rank, Unit};
use crate::options::Options;
use crate::script::{Said, Selector};
use std::collections::BTreeMap;

/// The plan of a tick.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The moves.
    pub moves: Vec<Move>,
    /// The loads asked for, after checking.
    pub targets: BTreeMap<Rank, f64>,
    /// Which server clients talk to.
    pub mode: Mode,
    /// Why no more was moved.
    pub notes: Vec<String>,
    /// Load that moves, in the units of [`Unit::load`](crate::Unit::load).
    pub load: f64,
}

/// Tolerance: sums of shares may differ from the whole by rounding.
const ROUNDING: f64 = 1e-9;

/// The mechanism's other inputs.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances<'a> {
    /// The rank whose plan it is.
    pub whoami: Rank,
    /// The tick.
    pub tick: u64,
    /// Measurements, checked.
    pub metrics: &'a Metrics,
    /// Bounds.
    pub options: &'a Options,
    /// Fraction of this rank's load that may move now.
    pub allowance: f64,
}

/// Plans a tick.
///
/// # Errors
/// Which part of the answer is invalid: none of it may be applied.
pub fn plan(said: &Said, at: &Circumstances<'_>) -> Result<Plan, String> {
    let mut plan = Plan {
        mode: judge_mode(said.mode.as_deref())?,
        ..Plan::default()
    };
    judge_loads(said, at)?;
    plan.targets = judge_targets(said, at)?;
    let placed = judge_places(said, at)?;
    let strategies = judge_selectors(said.howmuch.as_deref())?;

    let weights = weights(said, at.metrics)?;
    let whole: f64 = weights.iter().sum();
    let mut left: Vec<(usize, f64)> = weights.into_iter().enumerate().collect();
    let mut budget = Budget {
        load: at.allowance * whole,
        units: at.options.units_max,
    };
    place(&placed, &mut left, &mut budget, at, &mut plan);
    let own = said.loads.get(&at.whoami).copied().unwrap_or(0.0);
    let mut order: Vec<(Rank, f64)> = plan
        .targets
        .iter()
        .map(|(rank, amount)| (*rank, *amount))
        .collect();
    order.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    for (to, amount) in order {
        let receiver = said.loads.get(&to).copied().unwrap_or(0.0);
        let mut wanted = amount;
        if plan.mode == Mode::Client {
            if receiver > own * (1.0 - at.options.min_imbalance) {
                plan.notes
                    .push(format!("rank {to} gets nothing: its load {receiver} is not below ours, {own}, by enough"));
                continue;
            }
            // More would only reverse the imbalance.
            wanted = wanted.min(own - receiver);
        }
        // The policy's loads may have any unit (processor use, for example): a share of its load is
        // the same share of the units' weight.
        let share = wanted / own * whole;
        spill(
            to,
            amount,
            share,
            &strategies,
            &mut left,
            &mut budget,
            at,
            &mut plan,
        );
    }
    plan.load = plan.moves.iter().map(|step| step.load).sum();
    Ok(plan)
}

/// The rest of the tick's budget.
struct Budget {
    load: f64,
    units: usize,
}

// ─── judging ────────────────────────────────────────────────────────────────────────────

fn judge_mode(mode: Option<&str>) -> Result<Mode, String> {
    match mode {
        None | Some("client") => Ok(Mode::Client),
        Some("proxy") => Ok(Mode::Proxy),
        Some(other) => Err(format!(
            "nacre.mode takes \"client\" or \"proxy\", not {other}"
        )),
    }
}

fn judge_loads(said: &Said, at: &Circumstances<'_>) -> Result<(), String> {
    for rank in at.metrics.ranks.keys() {
        let load = said.loads.get(rank).copied().unwrap_or(f64::NAN);
        if !load.is_finite() || load < 0.0 {
            return Err(format!(
                "the load of rank {rank} is {load}: it must be a number that is not negative"
            ));
        }
    }
    Ok(())
}

fn rank_of(number: &Result<f64, String>, at: &Circumstances<'_>) -> Result<Rank, String> {
    let number = number
        .as_ref()
        .map_err(|what| format!("a target's rank is {what}"))?;
    let rank = Rank(*number as u32);
    if f64::from(rank.0) == *number && at.metrics.ranks.contains_key(&rank) {
        return Ok(rank);
    }
    Err(format!(
        "a target is rank {number}, which is not up; there are {}",
        list(at.metrics)
    ))
}

fn list(metrics: &Metrics) -> String {
    let ranks: Vec<String> = metrics
        .ranks
        .keys()
        .take(16)
        .map(ToString::to_string)
        .collect();
    ranks.join(", ")
        + if metrics.ranks.len() > 16 {
            ", …"
        } else {
            ""
        }
}

fn judge_targets(said: &Said, at: &Circumstances<'_>) -> Result<BTreeMap<Rank, f64>, String> {
    let own = said.loads.get(&at.whoami).copied().unwrap_or(0.0);
    let mut targets = BTreeMap::new();
    for (rank, amount) in &said.asked {
        let shown = rank.as_ref().map_or_else(Clone::clone, ToString::to_string);
        let amount = amount
            .as_ref()
            .map_err(|what| format!("the target of rank {shown} is {what}"))?;
        if !amount.is_finite() || *amount < 0.0 {
            return Err(format!(
                "the target of rank {shown} is {amount}: a load is a finite number that is not negative"
            ));
        }
        // Policies initialise their tables with zeros.
        if *amount == 0.0 {
            continue;
        }
        let rank = rank_of(rank, at)?;
        if rank == at.whoami {
            return Err(format!(
                "the target of rank {rank} is {amount}, and rank {rank} is this one"
            ));
        }
        targets.insert(rank, *amount);
    }
    let sum: f64 = targets.values().sum();
    // The sum is infinite if finite amounts overflow.
    if sum > own * (1.0 + ROUNDING) {
        return Err(format!(
            "the targets ask for {sum} of a load of {own}: more than there is"
        ));
    }
    Ok(targets)
}

fn judge_places(said: &Said, at: &Circumstances<'_>) -> Result<BTreeMap<String, Rank>, String> {
    let mut placed = BTreeMap::new();
    for (name, rank) in &said.placed {
        if !at.metrics.units.iter().any(|unit| unit.name == *name) {
            return Err(format!("nacre.place: there is no unit `{name}` here"));
        }
        // The last placement counts.
        placed.insert(name.clone(), rank_of(rank, at)?);
    }
    Ok(placed)
}

/// A strategy for choosing units.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Strategy {
    /// Heaviest first, up to this fraction of the load asked for.
    Big(f64),
    /// Lightest first.
    Small,
    /// Alternately the heaviest and the lightest.
    BigSmall,
    /// The first half by name.
    Half,
}

fn judge_selectors(howmuch: Option<&[Selector]>) -> Result<Vec<Strategy>, String> {
    let Some(howmuch) = howmuch else {
        return Ok(vec![Strategy::Big(1.0), Strategy::Small]);
    };
    howmuch
        .iter()
        .map(|selector| match selector {
            Selector::Named(name) => match name.as_str() {
                "big" | "big_first" => Ok(Strategy::Big(1.0)),
                "small" | "small_first" => Ok(Strategy::Small),
                "big_small" => Ok(Strategy::BigSmall),
                "half" => Ok(Strategy::Half),
                _ => Err(format!("howmuch: there is no strategy `{name}`; there are big, small, big_small, half, and numbers from 0 to 1")),
            },
            Selector::Part(part) if *part > 0.0 && *part <= 1.0 => Ok(Strategy::Big(*part)),
            Selector::Part(part) => Err(format!("howmuch: {part} is no part; it must be above 0 and at most 1")),
        })
        .collect()
}

fn weights(said: &Said, metrics: &Metrics) -> Result<Vec<f64>, String> {
    let Some(weights) = &said.weights else {
        return Ok(metrics.units.iter().map(|unit| unit.load).collect());
    };
    let sum: f64 = weights.iter().sum();
    let bad = weights
        .iter()
        .position(|weight| !weight.is_finite() || *weight < 0.0);
    match bad {
        Some(at) => Err(format!(
            "metaload weighs unit {} as {}: it must give a number that is not negative",
            metrics.units[at].name, weights[at]
        )),
        None if !sum.is_finite() => {
            Err("metaload weighs the units as more than a number can hold".into())
        }
        None => Ok(weights.clone()),
    }
}

// ─── choosing ───────────────────────────────────────────────────────────────────────────

/// Whether a unit must stay, and why.
fn stays(unit: &Unit, to: Rank, at: &Circumstances<'_>) -> Option<&'static str> {
    if unit.pinned {
        return Some("pinned");
    }
    let arrival = unit.arrival?;
    let here = at.tick.saturating_sub(arrival.tick);
    if here < at.options.rest_ticks {
        return Some("moved a short while ago");
    }
    let wait = at
        .options
        .return_ticks
        .saturating_mul(1 << arrival.returns.min(10));
    (arrival.from == to && here < wait).then_some("would go back to where it came from")
}

fn place(
    placed: &BTreeMap<String, Rank>,
    left: &mut Vec<(usize, f64)>,
    budget: &mut Budget,
    at: &Circumstances<'_>,
    plan: &mut Plan,
) {
    let mut moves: BTreeMap<Rank, (f64, Vec<String>)> = BTreeMap::new();
    let mut waiting = 0;
    left.retain(|(index, weight)| {
        let unit = &at.metrics.units[*index];
        let Some(to) = placed.get(&unit.name) else {
            return true;
        };
        if *to == at.whoami {
            // Placed on this rank by name: it is not given away as part of a target.
            return false;
        }
        if let Some(why) = stays(unit, *to, at) {
            plan.notes.push(format!("unit {} stays: {why}", unit.name));
        } else if budget.units == 0 || *weight > budget.load {
            waiting += 1;
        } else {
            budget.units -= 1;
            budget.load -= weight;
            let entry = moves.entry(*to).or_default();
            entry.0 += weight;
            entry.1.push(unit.name.clone());
        }
        false
    });
    if waiting > 0 {
        plan.notes.push(format!(
            "{waiting} placed units wait: the migration budget of this tick is used up"
        ));
    }
    plan.moves
        .extend(moves.into_iter().map(|(to, (load, units))| Move {
            from: at.whoami,
            to,
            asked: 0.0,
            load,
            units,
        }));
}

#[expect(
    clippy::too_many_arguments,
    reason = "one step of `plan`, on its state"
)]
fn spill(
    to: Rank,
    asked: f64,
    share: f64,
    strategies: &[Strategy],
    left: &mut Vec<(usize, f64)>,
    budget: &mut Budget,
    at: &Circumstances<'_>,
    plan: &mut Plan,
) {
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    let mut may: Vec<(usize, f64)> = Vec::new();
    for (index, weight) in left.iter().filter(|(_, weight)| *weight > 0.0) {
        match stays(&at.metrics.units[*index], to, at) {
            Some(why) => *reasons.entry(why).or_default() += 1,
            None => may.push((*index, *weight)),
        }
    }
    let limit = (share * (1.0 + at.options.overshoot)).min(budget.load);
    let best = strategies
        .iter()
        .map(|strategy| choose(*strategy, &may, share, limit, budget.units, at.metrics))
        .filter(|chosen| !chosen.is_empty())
        .map(|chosen| ((share - sum(&chosen)).abs(), chosen))
        // The first of equals, so that the order of `howmuch` decides.
        .reduce(|best, next| if next.0 < best.0 { next } else { best });
    let stay: Vec<String> = reasons
        .iter()
        .map(|(why, count)| format!("{count} {why}"))
        .collect();
    let stay = if stay.is_empty() {
        String::new()
    } else {
        format!("; units that stay: {}", stay.join(", "))
    };
    let Some((_, chosen)) = best else {
        let lightest = may
            .iter()
            .map(|(_, weight)| *weight)
            .fold(f64::INFINITY, f64::min);
        plan.notes.push(if may.is_empty() {
            format!("rank {to} gets nothing: no unit may go{stay}")
        } else {
            format!(
                "rank {to} gets nothing: the lightest unit weighs {lightest}, {limit} are asked for and allowed{stay}"
            )
        });
        return;
    };
    let load = sum(&chosen);
    if load < share * (1.0 - at.options.overshoot) {
        plan.notes.push(format!(
            "rank {to} gets {load} of {share}: no more units fit, {limit} are allowed{stay}"
        ));
    }
    budget.units -= chosen.len();
    budget.load = (budget.load - load).max(0.0);
    left.retain(|(index, _)| !chosen.iter().any(|(taken, _)| taken == index));
    let units = chosen
        .iter()
        .map(|(index, _)| at.metrics.units[*index].name.clone())
        .collect();
    plan.moves.push(Move {
        from: at.whoami,
        to,
        asked,
        load,
        units,
    });
}

fn sum(chosen: &[(usize, f64)]) -> f64 {
    chosen.iter().map(|(_, weight)| weight).sum()
}

fn choose(
    strategy: Strategy,
    may: &[(usize, f64)],
    share: f64,
    limit: f64,
    most: usize,
    metrics: &Metrics,
) -> Vec<(usize, f64)> {
    let name = |index: usize| &metrics.units[index].name;
    let mut order = may.to_vec();
    order.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| name(a.0).cmp(name(b.0))));
    let mut wanted = share;
    match strategy {
        Strategy::Big(part) => wanted = share * part,
        Strategy::Small => order.reverse(),
        Strategy::BigSmall => {
            let middle = order.len().div_ceil(2);
            let (big, small) = order.split_at(middle);
            let turns = big
                .iter()
                .zip(small.iter().rev().map(Some).chain(std::iter::repeat(None)));
            order = turns
                .flat_map(|(big, small)| std::iter::once(*big).chain(small.copied()))
                .collect();
        }
        Strategy::Half => {
            order.sort_by(|a, b| name(a.0).cmp(name(b.0)));
            order.truncate(order.len().div_ceil(2));
            wanted = f64::INFINITY;
        }
    }
    let (mut chosen, mut load) = (Vec::new(), 0.0);
    for (index, weight) in order {
        if load >= wanted || chosen.len() == most {
            break;
        }
        // A unit stays if moving it would increase the deviation; `half` has no target.
        let nearer = wanted.is_infinite() || load + weight - wanted < wanted - load;
        if nearer && load + weight <= limit {
            load += weight;
            chosen.push((index, weight));
        }
    }
    chosen
}
