//! `nacre bench keys`: what many clients and watchers see of a few keys of metadata, and whether it
//! is consistent (MAL-10, -11, -16).
//!
//! ```text
//!  client ─ one request at a time ─▶ get, put, compare-and-set, two keys at once, a pair always written together
//!     └─▶ its records: the history, for `nacre history check` (`docs/formats/history.md`)
//!     └─▶ a revision older than one reported to any client before the request: stale, an error
//!  watcher ─▶ every change of the keys: includes all that clients were told of, once and in order; the same for all watchers
//! ```
//! Each client and each watcher has its own connection. A request unanswered in time is `unknown`,
//! and its client continues under a new number. A watcher that was away for too many changes is
//! told so (`compacted`), and starts again: it is checked from there on.

use super::histories::{self, Run};
use crate::cluster::{Place, host};
use crate::out::Out;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use nacre_client::WatchNews;
use nacre_history::Record;
use nacre_history::record::{Kind, Outcome};
use nacre_node::{Cluster, Error};
use nacre_types::Name;
use nacre_wire::msg::meta::{
    MetaAnswer, MetaCall, MetaCompare, MetaError, MetaEvent, MetaOp, MetaPair, MetaRelation,
    MetaResult, MetaSpan, MetaTarget,
};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Arguments of `bench keys`.
#[derive(Args)]
pub struct Arguments {
    /// Clients, each with a connection and one request in flight.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    clients: u32,
    /// Watchers of all keys.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=256))]
    watchers: u32,
    /// Keys, besides the pair.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    keys: u32,
    /// For how long.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Where the history is written.
    #[arg(long, value_name = "FILE")]
    history: PathBuf,
}

/// Time limit of a request: longer than any fault that is survived.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time limit for watchers to catch up once there are no more changes.
const CATCH_UP: Duration = Duration::from_secs(60);

/// A change, as reported to a client or a watcher.
type Change = (u64, Name, u64);

struct All {
    run: Run,
    keys: u64,
    prefix: String,
    /// The newest revision reported to any client.
    told: AtomicU64,
}

impl All {
    fn key(&self, n: u64) -> Name {
        format!("{}k{n}", self.prefix).as_str().into()
    }
    /// The key that is changed last.
    fn end(&self) -> Name {
        format!("{}end", self.prefix).as_str().into()
    }
    /// A key of the pair: both always have the same value.
    fn pair(&self, half: char) -> Name {
        format!("{}pair/{half}", self.prefix).as_str().into()
    }
}

/// Runs the clients and watchers.
///
/// # Errors
/// When a client fails, or was told something inconsistent.
pub fn run(arguments: &Arguments, place: &Place, out: &mut Out) -> Result<()> {
    let run = Run::begin(arguments.seconds)?;
    // Before anything runs: detect now that a file cannot be written.
    histories::write(&arguments.history, &[])?;
    let prefix = format!("bench-keys/{:016x}/", run.id);
    let all = All {
        run,
        keys: u64::from(arguments.keys),
        prefix,
        told: AtomicU64::new(0),
    };
    let connect = || -> Result<Cluster> {
        Ok(host::client(place, nacre_node::ADMIN)?.with_timeout(PATIENCE))
    };
    let first = connect()?;
    let begin = first
        .meta_put(format!("{}begin", all.prefix).as_str(), "0")
        .wait()?;
    let watching = AtomicU64::new(u64::from(arguments.watchers));
    let watching_on: Vec<Cluster> = (0..arguments.watchers)
        .map(|_| connect())
        .collect::<Result<_>>()?;
    let (clients, watchers) = std::thread::scope(|scope| {
        let (all, connect, watching) = (&all, &connect, &watching);
        let watcher = |cluster| {
            scope.spawn(move || {
                let watched = watcher(all, cluster, begin);
                watching.fetch_sub(1, Ordering::SeqCst);
                watched
            })
        };
        let watchers: Vec<_> = watching_on.iter().map(watcher).collect();
        let client = |seed| scope.spawn(move || client(all, seed, &connect()?));
        let clients: Vec<_> = (1..=u64::from(arguments.clients)).map(client).collect();
        let clients: Vec<_> = clients
            .into_iter()
            .map(|one| one.join().expect("a client's panic is a bug"))
            .collect();
        // Watchers wait for this change, and end.
        let last = first.meta_put(all.end(), "0").wait();
        let since = Instant::now();
        while watching.load(Ordering::SeqCst) > 0 && since.elapsed() < CATCH_UP {
            std::thread::sleep(Duration::from_millis(20));
        }
        // Watchers that still wait are told that no more changes follow.
        for one in &watching_on {
            one.stop()
                .expect("only an embedded cluster can fail to stop");
        }
        let watchers: Vec<_> = watchers
            .into_iter()
            .map(|one| one.join().expect("a watcher's panic is a bug"))
            .collect();
        (clients, last.map(|_| watchers))
    });
    let (mut history, mut changes) = (Vec::new(), Vec::new());
    let mut failed = None;
    for client in clients {
        match client {
            Ok((records, told)) => {
                history.extend(records);
                changes.extend(told);
            }
            Err(error) => failed = Some(error),
        }
    }
    let (count, unknown) = histories::write(&arguments.history, &history)?;
    if let Some(error) = failed {
        return Err(error.context("a client could not go on; the history is not complete"));
    }
    let watchers = watchers?.into_iter().collect::<Result<Vec<Watched>>>()?;
    let compacted: u64 = watchers.iter().map(|watched| watched.compacted).sum();
    changes.sort_unstable();
    judge(&changes, &watchers)?;
    let events: usize = watchers.iter().map(|watched| watched.told.len()).sum();
    let file = arguments.history.display();
    if out.json() {
        return out.value(&json!({
            "operations": count, "unknown": unknown, "history": file.to_string(), "changes": changes.len(),
            "watchers": watchers.len(), "events": events, "compacted": compacted,
        }));
    }
    out.line(&format!(
        "{count} operations ({unknown} without an answer) in {file}; `nacre history check {file}` judges them"
    ))?;
    out.line(&format!(
        "{} watchers were told of {events} changes, once and in order; {compacted} had to begin again",
        watchers.len()
    ))
}

/// Changes reported to a watcher.
struct Watched {
    /// All changes since it started, or started again.
    told: Vec<Change>,
    /// It is checked from this revision on.
    after: u64,
    /// How often it was told that it had been away for too long.
    compacted: u64,
}

fn watcher(all: &All, cluster: &Cluster, begin: u64) -> Result<Watched> {
    let span = MetaSpan::Prefix {
        prefix: all.prefix.as_str().into(),
    };
    let mut watched = Watched {
        told: Vec::new(),
        after: begin,
        compacted: 0,
    };
    let mut watcher = cluster.meta_watch(span.clone(), begin + 1)?;
    loop {
        match watcher.next().wait()? {
            WatchNews::Events { events, .. } => {
                for event in events {
                    let MetaEvent::Put { pair } = event else {
                        bail!("a watcher was told of a deletion: there was none")
                    };
                    watched.told.push((
                        pair.modified,
                        pair.key.clone(),
                        number(&pair).unwrap_or(0),
                    ));
                }
                if watched
                    .told
                    .last()
                    .is_some_and(|(_, key, _)| *key == all.end())
                {
                    return Ok(watched);
                }
            }
            WatchNews::Ended(MetaError::Compacted { oldest }) => {
                watched = Watched {
                    told: Vec::new(),
                    after: oldest - 1,
                    compacted: watched.compacted + 1,
                };
                watcher = cluster.meta_watch(span.clone(), oldest)?;
            }
            WatchNews::Ended(error) => bail!("a watch ended: {error}"),
        }
    }
}

/// Checks that every watcher got every change once, in order; `changes` are those that clients know
/// of, sorted.
fn judge(changes: &[Change], watchers: &[Watched]) -> Result<()> {
    for (n, watched) in watchers.iter().enumerate() {
        let Watched { told, after, .. } = watched;
        if let Some(twice) = told.windows(2).find(|two| two[0] >= two[1]) {
            bail!(
                "watcher {n} was told of {:?} after {:?}",
                twice[1],
                twice[0]
            );
        }
        ensure!(
            told.first().is_none_or(|(revision, ..)| revision > after),
            "watcher {n} was told of what was before"
        );
        if let Some(missing) = changes
            .iter()
            .find(|change| change.0 > *after && told.binary_search(change).is_err())
        {
            bail!("watcher {n} was not told of {missing:?}, which a client made");
        }
        for (m, other) in watchers.iter().enumerate().skip(n + 1) {
            let from = (*after).max(other.after);
            let since = |told: &'_ [Change]| {
                told.iter()
                    .position(|(revision, ..)| *revision > from)
                    .unwrap_or(told.len())
            };
            let same = told[since(told)..] == other.told[since(&other.told)..];
            ensure!(same, "watchers {n} and {m} were told different things");
        }
    }
    Ok(())
}

fn number(pair: &MetaPair) -> Option<u64> {
    std::str::from_utf8(&pair.value).ok()?.parse().ok()
}
fn put(key: &Name, value: u64) -> MetaOp {
    MetaOp::Put {
        key: key.clone(),
        value: value.to_string().into(),
        lease: 0,
    }
}
fn transact(compares: Vec<MetaCompare>, then: Vec<MetaOp>) -> MetaCall {
    MetaCall::Transact {
        compares,
        then,
        otherwise: vec![],
    }
}
fn get(span: MetaSpan) -> MetaCall {
    MetaCall::Range {
        span,
        limit: 0,
        keys_only: false,
        serializable: false,
    }
}
fn compare(key: &Name, expect: Option<u64>) -> MetaCompare {
    let target = match expect {
        Some(value) => MetaTarget::Value {
            value: value.to_string().into(),
        },
        None => MetaTarget::Version { number: 0 },
    };
    MetaCompare {
        key: key.clone(),
        target,
        relation: MetaRelation::Equal {},
    }
}

/// Runs one client until the time is up; returns its records, and the changes that it made
/// according to the answers.
fn client(all: &All, seed: u64, cluster: &Cluster) -> Result<(Vec<Record>, Vec<Change>)> {
    let run = &all.run;
    let mut number = run.next_client();
    let mut draw = run.dice(seed);
    let (mut records, mut changes) = (Vec::new(), Vec::new());
    // The last value seen of each key: a compare-and-set that expects it can succeed.
    let mut seen: BTreeMap<Name, Option<u64>> = BTreeMap::new();
    while !run.is_over() {
        let at = draw(all.keys);
        let key = all.key(at);
        let expect = seen.get(&key).copied().flatten();
        let (a, b) = (all.pair('a'), all.pair('b'));
        let value = run.next_value();
        // The next action: kind, call, and the writes.
        let (op, call, writes) = match draw(8) {
            0 | 1 => (
                Kind::Read,
                get(MetaSpan::Key { key: key.clone() }),
                vec![(key.clone(), None)],
            ),
            2 => (
                Kind::Write,
                transact(vec![], vec![put(&key, value)]),
                vec![(key.clone(), Some(value))],
            ),
            3 | 4 => {
                let call = transact(vec![compare(&key, expect)], vec![put(&key, value)]);
                (Kind::Cas, call, vec![(key.clone(), Some(value))])
            }
            5 => {
                let (other, more) = (all.key((at + 1) % all.keys), run.next_value());
                let call = transact(vec![], vec![put(&key, value), put(&other, more)]);
                (
                    Kind::Write,
                    call,
                    vec![(key.clone(), Some(value)), (other, Some(more))],
                )
            }
            6 => {
                let call = transact(vec![], vec![put(&a, value), put(&b, value)]);
                (
                    Kind::Write,
                    call,
                    vec![(a.clone(), Some(value)), (b.clone(), Some(value))],
                )
            }
            _ => {
                let prefix = format!("{}pair/", all.prefix).as_str().into();
                (
                    Kind::Read,
                    get(MetaSpan::Prefix { prefix }),
                    vec![(a.clone(), None), (b.clone(), None)],
                )
            }
        };
        let floor = all.told.load(Ordering::SeqCst);
        let invoke_ns = run.now_ns();
        let ended = cluster.meta(call).wait();
        let return_ns = run.now_ns();
        let record = |n: usize, key: &Name, value: Option<u64>| Record {
            // The second key of a transaction is another register: in its history, another
            // client's.
            client: number + n as u64 * 1_000_000,
            op,
            key: key.to_string(),
            value,
            expect: if op == Kind::Cas { expect } else { None },
            invoke_ns,
            return_ns: Some(return_ns),
            result: None,
            unknown: false,
            fail: false,
        };
        let mut new: Vec<Record> = writes
            .iter()
            .enumerate()
            .map(|(n, (key, value))| record(n, key, *value))
            .collect();
        match ended {
            Ok((revision, result)) => {
                ensure!(
                    revision >= floor,
                    "stale: an answer of revision {revision} to a request that was made after somebody was told of revision {floor}"
                );
                all.told.fetch_max(revision, Ordering::SeqCst);
                match result {
                    MetaResult::Ranged { pairs, .. } => {
                        for (record, (key, _)) in new.iter_mut().zip(&writes) {
                            let found = pairs.iter().find(|pair| pair.key == *key);
                            let found = found.map(|pair| {
                                self::number(pair)
                                    .context("a key holds something else than a number")
                            });
                            let found = found.transpose()?;
                            record.result = Some(Outcome::Value(found));
                            seen.insert(key.clone(), found);
                        }
                        ensure!(
                            new.len() < 2 || new[0].result == new[1].result,
                            "half of a transaction: {new:?}"
                        );
                    }
                    MetaResult::Transacted { succeeded, answers } => {
                        let done = answers
                            .iter()
                            .filter(|answer| matches!(answer, MetaAnswer::Put { .. }))
                            .count();
                        ensure!(
                            done == if succeeded { writes.len() } else { 0 },
                            "answers of another transaction"
                        );
                        for (record, (key, value)) in new.iter_mut().zip(&writes) {
                            if op == Kind::Cas {
                                record.result = Some(Outcome::Swapped(succeeded));
                            }
                            if succeeded {
                                seen.insert(key.clone(), *value);
                                changes.push((revision, key.clone(), value.unwrap_or(0)));
                            } else {
                                seen.remove(key);
                            }
                        }
                    }
                    other => bail!("the answer to a request is {other:?}"),
                }
            }
            // It may have been executed, or may still be.
            Err(Error::TimedOut { .. } | Error::Meta(MetaError::Superseded {})) => {
                for record in &mut new {
                    record.unknown = true;
                    record.return_ns = None;
                }
                number = run.next_client();
            }
            Err(error) => return Err(error).context("a request was refused"),
        }
        records.extend(new);
    }
    Ok((records, changes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(revision: u64) -> Change {
        (revision, "n/k".into(), revision * 10)
    }
    fn watched(revisions: &[u64], after: u64) -> Watched {
        Watched {
            told: revisions.iter().copied().map(change).collect(),
            after,
            compacted: 0,
        }
    }

    #[test]
    fn a_watcher_that_misses_repeats_or_disagrees_is_found() {
        let changes: Vec<Change> = [3, 5].into_iter().map(change).collect();
        let says = |watchers: &[Watched]| {
            judge(&changes, watchers)
                .err()
                .map(|error| error.to_string())
                .unwrap_or_default()
        };
        assert_eq!(
            says(&[
                watched(&[3, 4, 5], 2),
                watched(&[3, 4, 5], 2),
                watched(&[5], 4),
                watched(&[], 5)
            ]),
            ""
        );
        assert!(says(&[watched(&[3, 4], 2)]).contains("was not told of (5"));
        assert!(says(&[watched(&[3, 3, 5], 2)]).contains("after"));
        assert!(says(&[watched(&[5, 3], 2)]).contains("after"));
        assert!(says(&[watched(&[3, 4, 5], 3)]).contains("before"));
        assert!(says(&[watched(&[3, 4, 5], 2), watched(&[3, 5], 2)]).contains("different"));
    }
}
