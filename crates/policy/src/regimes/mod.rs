//! Where a workload changes its behaviour: regimes, by K-means (Sevilla et al., "Towards Dynamic
//! Load Balancing Policies in Software-Defined Storage", §6 "Using ML for the keyspace"; PAR-11,
//! PAR-15, UNI-06).
//!
//! ```text
//!  ops/s ▲ ··                          offline (kmeans)    all points at once: (timestamp, ops/s), equal weight, K = 4;
//!        │   ·· ·                                          a regime starts where its longest run of points starts
//!        │       · ····                streaming (stream)  one point at a time: a regime ends when points stay away from its mean
//!        │             ········ ····
//!        └──1──┴──2──┴──3──┴──4──▶ t
//! ```
//! Both are pure functions of their input, with the same result in every process. Scripts call them
//! as `nacre.kmeans`, `nacre.regimes` and `nacre.regime`; the work is charged to the script's
//! budget.

mod kmeans;
mod stream;

pub use kmeans::{
    CLUSTERS_MAX, Clusters, DIMENSIONS_MAX, POINTS_MAX, Refused, Regime, kmeans, regimes,
};
pub use stream::{STATE_BYTES, Sensitivity, Stream};
