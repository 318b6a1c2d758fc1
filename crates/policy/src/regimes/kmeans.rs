//! K-means after Lloyd, started by k-means++ (Arthur, Vassilvitskii, SODA 2007), the best of a few
//! starts.
//!
//! Every dimension is scaled to 0 to 1 first: "we weight the timestamp and ops/second equally".
//! Clusters are numbered by the first coordinate of their centres, so that with time as the first
//! coordinate cluster 3 is the third regime.

use nacre_types::SplitMix64;
use std::fmt;

/// Maximum number of points per call.
pub const POINTS_MAX: usize = 8192;
/// Maximum number of clusters per call.
pub const CLUSTERS_MAX: usize = 16;
/// Maximum number of coordinates of a point.
pub const DIMENSIONS_MAX: usize = 8;
/// Number of starts. A bad start is unlikely, several in a row much less likely.
const STARTS: u64 = 32;
/// Maximum number of rounds of one start. Lloyd's rounds never worsen the result, so stopping early
/// is safe.
const ROUNDS_MAX: u32 = 100;

/// Why points cannot be clustered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The arguments are invalid: the reason.
    Argument(String),
    /// The budget does not cover the work.
    Unpaid,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Argument(why) => f.write_str(why),
            Self::Unpaid => f.write_str("the budget does not allow that much work"),
        }
    }
}

/// The result of K-means.
#[derive(Clone, Debug, PartialEq)]
pub struct Clusters {
    /// Index of each point's cluster, from 0.
    pub assigned: Vec<usize>,
    /// Centres, in the units of the points.
    pub centres: Vec<Vec<f64>>,
    /// Sum of squared distances to the centres, in the scaled space.
    pub inertia: f64,
}

/// A regime of a workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Regime {
    /// Index of its first point.
    pub first: usize,
    /// Its first point's time.
    pub start: f64,
    /// Mean rate of its points.
    pub rate: f64,
}

/// Groups points into `k` clusters.
///
/// `spend` is called with the work before it is done, in units of about 16 multiplications; it
/// refuses by returning false.
///
/// # Errors
/// No points, fewer points than clusters, too many of either, unequal dimensions, a coordinate that
/// is not finite; or `spend` refused.
pub fn kmeans(
    points: &[Vec<f64>],
    k: usize,
    seed: u64,
    spend: &mut dyn FnMut(u64) -> bool,
) -> Result<Clusters, Refused> {
    let dimensions = check(points, k)?;
    let (scaled, scale) = scale(points, dimensions);
    let round = 1 + (points.len() * k * dimensions) as u64 / 16;
    let mut best: Option<(f64, Vec<usize>, Vec<Vec<f64>>)> = None;
    for start in 0..STARTS {
        let mut random = SplitMix64(seed ^ start.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        if !spend(round) {
            return Err(Refused::Unpaid);
        }
        let mut centres = first_centres(&scaled, k, &mut random);
        let mut assigned = vec![usize::MAX; scaled.len()];
        for _ in 0..ROUNDS_MAX {
            if !spend(round) {
                return Err(Refused::Unpaid);
            }
            if !assign(&scaled, &centres, &mut assigned) {
                break;
            }
            move_centres(&scaled, &assigned, &mut centres);
        }
        let inertia = scaled
            .iter()
            .zip(&assigned)
            .map(|(point, at)| distance(point, &centres[*at]))
            .sum();
        if best.as_ref().is_none_or(|(least, ..)| inertia < *least) {
            best = Some((inertia, assigned, centres));
        }
    }
    let (inertia, assigned, centres) = best.expect("there is at least one start");
    Ok(number(inertia, &assigned, centres, &scale))
}

/// The regimes of a workload given as (time, rate) points in order of time.
///
/// A regime starts where the longest unbroken run of its points starts: isolated points of another
/// regime do not move its boundary.
///
/// # Errors
/// As [`kmeans`].
pub fn regimes(
    points: &[(f64, f64)],
    k: usize,
    seed: u64,
    spend: &mut dyn FnMut(u64) -> bool,
) -> Result<Vec<Regime>, Refused> {
    if points.windows(2).any(|pair| pair[0].0 > pair[1].0) {
        return Err(Refused::Argument(
            "the points must be in order of time".into(),
        ));
    }
    let vectors: Vec<Vec<f64>> = points
        .iter()
        .map(|(time, rate)| vec![*time, *rate])
        .collect();
    let clusters = kmeans(&vectors, k, seed, spend)?;
    let mut runs: Vec<(usize, usize)> = vec![(0, 0); k]; // (length, first point)
    let mut first = 0;
    for at in 1..=points.len() {
        if at == points.len() || clusters.assigned[at] != clusters.assigned[first] {
            let run = &mut runs[clusters.assigned[first]];
            if at - first > run.0 {
                *run = (at - first, first);
            }
            first = at;
        }
    }
    let mut regimes: Vec<Regime> = runs
        .iter()
        .zip(&clusters.centres)
        .filter(|((length, _), _)| *length > 0)
        .map(|((_, first), centre)| Regime {
            first: *first,
            start: points[*first].0,
            rate: centre[1],
        })
        .collect();
    regimes.sort_by_key(|regime| regime.first);
    Ok(regimes)
}

fn check(points: &[Vec<f64>], k: usize) -> Result<usize, Refused> {
    let refuse = |why: String| Err(Refused::Argument(why));
    if k == 0 || k > CLUSTERS_MAX {
        return refuse(format!("{k} clusters: 1 to {CLUSTERS_MAX} are possible"));
    }
    if points.len() < k || points.len() > POINTS_MAX {
        return refuse(format!(
            "{} points for {k} clusters: {k} to {POINTS_MAX} are possible",
            points.len()
        ));
    }
    let dimensions = points[0].len();
    if dimensions == 0 || dimensions > DIMENSIONS_MAX {
        return refuse(format!(
            "points of {dimensions} coordinates: 1 to {DIMENSIONS_MAX} are possible"
        ));
    }
    for (at, point) in points.iter().enumerate() {
        if point.len() != dimensions {
            return refuse(format!(
                "point {} has {} coordinates, the first has {dimensions}",
                at + 1,
                point.len()
            ));
        }
        // Squares of larger values would overflow.
        if let Some(bad) = point.iter().find(|x| !x.is_finite() || x.abs() > 1e150) {
            return refuse(format!("point {} has the coordinate {bad}", at + 1));
        }
    }
    Ok(dimensions)
}

/// Minimum and width of every dimension.
type Scale = Vec<(f64, f64)>;

fn scale(points: &[Vec<f64>], dimensions: usize) -> (Vec<Vec<f64>>, Scale) {
    let scale: Scale = (0..dimensions)
        .map(|d| {
            let (low, high) = points
                .iter()
                .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), point| {
                    (low.min(point[d]), high.max(point[d]))
                });
            // A dimension in which all points are equal does not distinguish any.
            (low, if high > low { high - low } else { 1.0 })
        })
        .collect();
    let scaled = points
        .iter()
        .map(|point| {
            point
                .iter()
                .zip(&scale)
                .map(|(x, (low, width))| (x - low) / width)
                .collect()
        })
        .collect();
    (scaled, scale)
}

/// k-means++: each next centre is a point, drawn with probability proportional to the square of its
/// distance to the centres so far.
fn first_centres(points: &[Vec<f64>], k: usize, random: &mut SplitMix64) -> Vec<Vec<f64>> {
    let mut centres = vec![points[(random.unit() * points.len() as f64) as usize].clone()];
    let mut nearest: Vec<f64> = points
        .iter()
        .map(|point| distance(point, &centres[0]))
        .collect();
    while centres.len() < k {
        let total: f64 = nearest.iter().sum();
        let mut left = random.unit() * total;
        // If all remaining points equal centres, any will do.
        let chosen = nearest.iter().position(|d| {
            left -= d;
            left < 0.0
        });
        let centre = points[chosen.unwrap_or(centres.len())].clone();
        for (least, point) in nearest.iter_mut().zip(points) {
            *least = least.min(distance(point, &centre));
        }
        centres.push(centre);
    }
    centres
}

/// Assigns every point to its nearest centre, the first of equals. Returns whether anything
/// changed.
fn assign(points: &[Vec<f64>], centres: &[Vec<f64>], assigned: &mut [usize]) -> bool {
    let mut changed = false;
    for (point, at) in points.iter().zip(assigned) {
        let mut best = (f64::INFINITY, 0);
        for (number, centre) in centres.iter().enumerate() {
            let far = distance(point, centre);
            if far < best.0 {
                best = (far, number);
            }
        }
        changed |= *at != best.1;
        *at = best.1;
    }
    changed
}

/// A cluster without points keeps its centre.
fn move_centres(points: &[Vec<f64>], assigned: &[usize], centres: &mut [Vec<f64>]) {
    for (number, centre) in centres.iter_mut().enumerate() {
        let mine = || {
            points
                .iter()
                .zip(assigned)
                .filter(|(_, at)| **at == number)
                .map(|(point, _)| point)
        };
        let count = mine().count();
        if count > 0 {
            for (d, x) in centre.iter_mut().enumerate() {
                *x = mine().map(|point| point[d]).sum::<f64>() / count as f64;
            }
        }
    }
}

/// Numbers the clusters by their centres and reverses the scaling.
fn number(inertia: f64, assigned: &[usize], centres: Vec<Vec<f64>>, scale: &Scale) -> Clusters {
    let mut order: Vec<usize> = (0..centres.len()).collect();
    order.sort_by(|a, b| centres[*a][0].total_cmp(&centres[*b][0]).then(a.cmp(b)));
    let mut place = vec![0; order.len()];
    for (new, old) in order.iter().enumerate() {
        place[*old] = new;
    }
    let centres = order
        .iter()
        .map(|old| {
            centres[*old]
                .iter()
                .zip(scale)
                .map(|(x, (low, width))| low + x * width)
                .collect()
        })
        .collect();
    Clusters {
        assigned: assigned.iter().map(|old| place[*old]).collect(),
        centres,
        inertia,
    }
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}
