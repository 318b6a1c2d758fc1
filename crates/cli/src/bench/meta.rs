//! `nacre bench meta`: the latency of a metadata change, and the time until all watchers have
//! received it.

use crate::cluster::{Place, host};
use crate::out::Out;
use anyhow::{Result, bail};
use clap::Args;
use hdrhistogram::Histogram;
use nacre_client::WatchNews;
use nacre_node::{Cluster, MetaWatcher};
use nacre_wire::msg::meta::{MetaCall, MetaOp, MetaSpan};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Arguments of `bench meta`.
#[derive(Args)]
pub struct Arguments {
    /// Changes, one after the other.
    #[arg(long, default_value_t = 2_000)]
    sets: u32,
    /// Bytes of a value.
    #[arg(long, default_value_t = 100)]
    size: usize,
    /// Watches of one prefix, over the connections.
    #[arg(long, default_value_t = 10_000)]
    watchers: usize,
    /// Connections that watch.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    connections: u16,
    /// Changes while all of them watch.
    #[arg(long, default_value_t = 20)]
    changes: u32,
}

const NAMESPACE: &str = "bench-meta";

fn micros(histogram: &Histogram<u64>) -> Value {
    let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
    json!({ "p50_ms": at(0.5), "p99_ms": at(0.99), "max_ms": histogram.max() as f64 / 1000.0, "mean_ms": histogram.mean() / 1000.0 })
}
/// Up to an hour. With bounds: a histogram without them counts values above 2 ms as 2 µs.
fn times() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("constant bounds")
}
fn record(histogram: &mut Histogram<u64>, took: Duration) {
    histogram.saturating_record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
}

/// Runs the benchmark.
///
/// # Errors
/// When the monitors refuse, or a watch misses or repeats a change.
pub fn run(arguments: &Arguments, place: &Place, out: &mut Out) -> Result<()> {
    if place.ceph().is_some() && arguments.watchers > 0 {
        bail!("watchers of a Ceph cluster poll, each by itself; measure with `--watchers 0`");
    }
    let mut writer = place.metadata()?;
    let value = vec![b'x'; arguments.size];
    let mut sets = times();
    let mut gets = times();
    // The first one waits for the connection, which is not measured.
    let first = format!("{NAMESPACE}/first");
    writer.put(&first, Vec::new())?;
    let begun = Instant::now();
    for n in 0..arguments.sets {
        let key = format!("{NAMESPACE}/set/{}", n % 64);
        let at = Instant::now();
        writer.put(&key, value.clone())?;
        record(&mut sets, at.elapsed());
    }
    let rate = f64::from(arguments.sets) / begun.elapsed().as_secs_f64();
    for n in 0..arguments.sets {
        let key = format!("{NAMESPACE}/set/{}", n % 64);
        let at = Instant::now();
        writer.get(&key)?;
        record(&mut gets, at.elapsed());
    }
    let (all_told, missed) = if arguments.watchers > 0 {
        fan_out(arguments, place)?
    } else {
        (times(), 0)
    };
    let span = MetaSpan::Prefix {
        prefix: format!("{NAMESPACE}/").as_str().into(),
    };
    let then = vec![MetaOp::Delete { span }];
    writer.meta(MetaCall::Transact {
        compares: vec![],
        then,
        otherwise: vec![],
    })?;
    let value = json!({
        "sets": arguments.sets, "set": micros(&sets), "sets_per_s": rate, "get": micros(&gets),
        "watchers": arguments.watchers, "connections": arguments.connections, "changes": arguments.changes,
        "all_watchers_told": micros(&all_told), "missed_or_repeated": missed,
    });
    if missed > 0 {
        bail!("{missed} changes did not reach a watcher exactly once");
    }
    if out.json() {
        return out.value(&value);
    }
    let line = |what: &str, h: &Histogram<u64>| {
        let at = |quantile| h.value_at_quantile(quantile) as f64 / 1000.0;
        format!(
            "{what}: p50 {:.2} ms, p99 {:.2} ms, longest {:.2} ms",
            at(0.5),
            at(0.99),
            h.max() as f64 / 1000.0
        )
    };
    out.line(&format!(
        "{}; {rate:.0} a second, one after the other",
        line("set", &sets)
    ))?;
    out.line(&line("linearizable get", &gets))?;
    if arguments.watchers == 0 {
        return Ok(());
    }
    out.line(&line(
        &format!(
            "until all of {} watchers know of a change",
            arguments.watchers
        ),
        &all_told,
    ))
}

/// The time until every watcher has received a change; and the number of changes that did not reach
/// a watcher exactly once.
fn fan_out(arguments: &Arguments, place: &Place) -> Result<(Histogram<u64>, u64)> {
    let writer = host::client(place, nacre_node::ADMIN)?;
    let mut told = times();
    let connections: Vec<Cluster> = (0..arguments.connections)
        .map(|_| host::client(place, nacre_node::ADMIN))
        .collect::<Result<_>>()?;
    let prefix = format!("{NAMESPACE}/watched/");
    // From a revision that all of them can name: none begins late, whichever monitor it is
    // connected to.
    let mut last = writer
        .meta_put(format!("{prefix}begin").as_str(), "")
        .wait()?;
    let span = || MetaSpan::Prefix {
        prefix: prefix.as_str().into(),
    };
    let watchers: Vec<MetaWatcher> = (0..arguments.watchers)
        .map(|n| Ok(connections[n % connections.len()].meta_watch(span(), last)?))
        .collect::<Result<_>>()?;
    let mut missed = 0;
    for watcher in &watchers {
        missed += u64::from(next_event(watcher)? != last);
    }
    for n in 0..arguments.changes {
        let at = Instant::now();
        last = writer
            .meta_put(format!("{prefix}{n}").as_str(), vec![b'x'; arguments.size])
            .wait()?;
        for watcher in &watchers {
            missed += u64::from(next_event(watcher)? != last);
        }
        record(&mut told, at.elapsed());
    }
    Ok((told, missed))
}

/// The revision of a watch's next change.
fn next_event(watcher: &MetaWatcher) -> Result<u64> {
    loop {
        match watcher.next().wait()? {
            WatchNews::Events { events, .. } => {
                if let [event] = &events[..] {
                    return Ok(event.revision());
                }
                if !events.is_empty() {
                    return Ok(0);
                }
            }
            WatchNews::Ended(error) => bail!("a watch ended: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Failed with a histogram without bounds: everything longer than 2 ms was counted as 2 µs.
    #[test]
    fn what_takes_long_is_counted_as_long() {
        let mut histogram = times();
        for took in [
            Duration::from_micros(900),
            Duration::from_millis(250),
            Duration::from_secs(40),
        ] {
            record(&mut histogram, took);
            let max = Duration::from_micros(histogram.max());
            assert!(
                max >= took && max.as_secs_f64() <= took.as_secs_f64() * 1.01,
                "{took:?} was counted as {max:?}"
            );
        }
    }
}
