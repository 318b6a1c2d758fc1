//! `nacre bench ledger`: records the acknowledged content of objects, and reads them back from the
//! remaining OSDs.
//!
//! ```text
//!  write:  clients × own objects ─▶ FILE (possible contents of each) · FILE.waiting (clients waiting for an answer, and how long)
//!  verify: FILE ─▶ every object read and listed, in all PGs or in those of one OSD
//!  probe:  an object in every PG ─▶ written, called, read, deleted, each within a bound
//! ```
//! An object belongs to one client, which has one operation in flight, so its expected content is
//! known. If the result of an operation is unknown the object may have either content, and is not
//! changed any more.

mod model;
mod verify;

use super::histories::Run;
use crate::cluster::{Place, Session};
use crate::objects::{Failed, call, operation};
use crate::out::Out;
use anyhow::{Context, Result, bail};
use model::{State, change, digest, read, state_of};
use nacre_types::{ObjectId, PoolId};
use nacre_wire::msg::client::{OpFailure, SubReply};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Arguments of `bench ledger`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Change objects until the time is up or FILE.stop exists; then write what each must be.
    Write {
        /// The ledger, written in the end.
        file: PathBuf,
        /// Clients, each with a connection and one operation in flight.
        #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
        clients: u32,
        /// Objects that each client has at a time.
        #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=100_000))]
        objects: u64,
        /// For how long.
        #[arg(long, default_value_t = 10.0)]
        seconds: f64,
        /// Milliseconds between two operations of a client.
        #[arg(long, default_value_t = 0)]
        pause_ms: u64,
        /// The pool; it is made if it does not exist.
        #[arg(long, default_value = "bench")]
        pool: String,
    },
    /// Read everything back, and list it.
    Verify(verify::Verify),
    /// Write, call, read and delete an object in every placement group.
    Probe(verify::Probe),
}

impl Command {
    /// The pool to use.
    pub fn pool(&self) -> &str {
        match self {
            Self::Write { pool, .. } => pool,
            Self::Verify(verify) => &verify.pool,
            Self::Probe(probe) => &probe.pool,
        }
    }
}

/// Runs the benchmark.
///
/// # Errors
/// When the cluster cannot be reached, or an object does not have the expected content.
pub fn run(
    command: &Command,
    place: &Place,
    session: &mut dyn Session,
    pool: PoolId,
    out: &mut Out,
) -> Result<()> {
    match command {
        Command::Verify(arguments) => verify::verify(arguments, session, pool, out),
        Command::Probe(arguments) => verify::probe(arguments, session, pool, out),
        Command::Write {
            file,
            clients,
            objects,
            seconds,
            pause_ms,
            ..
        } => {
            let shared = Shared {
                pool,
                objects: *objects,
                pause: Duration::from_millis(*pause_ms),
                run: Run::begin(*seconds)?,
                stop: beside(file, "stop"),
                waiting: (0..*clients).map(|_| Mutex::new(None)).collect(),
            };
            write(&shared, place, file, out)
        }
    }
}

/// Maximum number of wrong answers shown.
const SHOWN: usize = 20;

fn beside(file: &Path, ending: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    name.into()
}

/// State shared by all clients.
struct Shared {
    pool: PoolId,
    objects: u64,
    pause: Duration,
    run: Run,
    stop: PathBuf,
    /// By client: the operation in flight, and its start.
    waiting: Vec<Mutex<Option<(Instant, String)>>>,
}

impl Shared {
    fn is_over(&self) -> bool {
        self.run.is_over() || self.stop.exists()
    }

    /// Clients that wait now, the longest first.
    fn waiting(&self) -> Value {
        let now = Instant::now();
        let one = |waiting: &Mutex<Option<(Instant, String)>>| {
            let (since, what) = waiting.lock().expect("nobody panics with it").clone()?;
            Some((
                u64::try_from(now.saturating_duration_since(since).as_millis()).unwrap_or(u64::MAX),
                what,
            ))
        };
        let mut all: Vec<_> = self.waiting.iter().filter_map(one).collect();
        all.sort_by(|a, b| b.cmp(a));
        json!(
            all.iter()
                .map(|(ms, what)| json!({ "ms": ms, "what": what }))
                .collect::<Vec<_>>()
        )
    }
}

/// Result of a client: the possible contents of its objects, and its counters.
#[derive(Default)]
struct Left {
    /// By name: digests, and the last change.
    objects: BTreeMap<String, (Vec<String>, String)>,
    operations: u64,
    unknown: u64,
    refused: BTreeMap<String, u64>,
    wrong: Vec<String>,
    longest: Duration,
}

fn write(shared: &Shared, place: &Place, file: &Path, out: &mut Out) -> Result<()> {
    let done = std::sync::atomic::AtomicBool::new(false);
    let ended: Vec<Result<Left>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..shared.waiting.len())
            .map(|number| scope.spawn(move || client(shared, number, place.connect()?)))
            .collect();
        let tell = scope.spawn(|| {
            let (path, new) = (beside(file, "waiting"), beside(file, "waiting.new"));
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                // Others read it while it is written: replace it atomically.
                let _ = std::fs::write(&new, shared.waiting().to_string())
                    .and_then(|()| std::fs::rename(&new, &path));
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        let ended = threads
            .into_iter()
            .map(|thread| thread.join().expect("a client's panic is a bug"))
            .collect();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        tell.join().expect("it only writes a file");
        ended
    });
    let (mut all, mut text) = (Left::default(), String::new());
    let mut failed = None;
    for left in ended {
        let left = match left {
            Ok(left) => left,
            Err(why) => {
                failed = Some(why);
                continue;
            }
        };
        for (name, (may_be, last)) in &left.objects {
            let _ = writeln!(
                text,
                "{}",
                json!({ "name": name, "may_be": may_be, "last": last })
            );
        }
        all.operations += left.operations;
        all.unknown += left.unknown;
        all.longest = all.longest.max(left.longest);
        for (why, count) in left.refused {
            *all.refused.entry(why).or_default() += count;
        }
        all.wrong.extend(left.wrong);
    }
    std::fs::write(file, text).with_context(|| format!("writing {}", file.display()))?;
    if let Some(why) = failed {
        return Err(why.context("a client could not go on; the ledger is not complete"));
    }
    out.value(&json!({
        "operations": all.operations, "unknown": all.unknown, "refused": all.refused,
        "wrong": all.wrong.len(), "first": all.wrong.iter().take(SHOWN).collect::<Vec<_>>(),
        "longest_ms": u64::try_from(all.longest.as_millis()).unwrap_or(u64::MAX),
    }))?;
    match all.wrong.first() {
        Some(first) => bail!("{} answers were wrong; the first: {first}", all.wrong.len()),
        None => Ok(()),
    }
}

/// Runs one client until the time is up.
fn client(shared: &Shared, number: usize, mut cluster: Box<dyn Session>) -> Result<Left> {
    let run = &shared.run;
    let mut draw = run.dice(number as u64 + 1);
    let mut left = Left::default();
    let mut states: BTreeMap<String, State> = BTreeMap::new();
    let mut named = 0_u64;
    while !shared.is_over() {
        let slot = draw(shared.objects);
        if states.len() as u64 <= slot {
            named += 1;
            states.insert(format!("ledger-{:016x}-{number}-{named}", run.id), None);
        }
        let slot = usize::try_from(slot).expect("small").min(states.len() - 1);
        let name = states.keys().nth(slot).expect("below the number").clone();
        let state = states[&name].clone();
        let object = ObjectId::named(&name);
        let changed = (draw(3) > 0).then(|| change(&state, &mut draw));
        let (what, request) = match &changed {
            Some(change) => (
                change.what.clone(),
                operation(
                    shared.pool,
                    object,
                    change.ops.clone(),
                    change.payload.clone(),
                ),
            ),
            None => ("read".to_owned(), read(shared.pool, object)),
        };
        let begun = Instant::now();
        *shared.waiting[number]
            .lock()
            .expect("nobody panics with it") = Some((begun, format!("{what} of {name}")));
        let ended = call(&mut *cluster, request)?;
        *shared.waiting[number]
            .lock()
            .expect("nobody panics with it") = None;
        left.operations += 1;
        left.longest = left.longest.max(begun.elapsed());
        let at = run.now_ns() / 1_000_000;
        match (changed, ended) {
            (None, ended) => match state_of(ended)? {
                Ok(found) if found == state => {}
                Ok(found) => {
                    let (must, is) = (shown(&state), shown(&found));
                    let last = left.objects.get(&name).map_or("nothing", |(_, last)| last);
                    left.wrong.push(format!(
                        "at {at} ms {name} is {is} and must be {must}; last {last}"
                    ));
                    states.remove(&name);
                }
                Err(Failed::Unknown(_)) => left.unknown += 1,
                Err(why) => *left.refused.entry(format!("read: {why}")).or_default() += 1,
            },
            (Some(change), Ok(done)) => {
                let output = done.results.iter().find_map(|reply| match reply {
                    SubReply::Called { output, .. } => Some(output.to_vec()),
                    _ => None,
                });
                let output = output.unwrap_or_default();
                if change.output.as_ref().is_some_and(|must| *must != output) {
                    let (must, is) = (
                        change.output.unwrap_or_default(),
                        output.escape_ascii().to_string(),
                    );
                    let must = must.escape_ascii().to_string();
                    left.wrong.push(format!(
                        "at {at} ms {} of {name} answered {is} and must answer {must}",
                        change.what
                    ));
                }
                left.objects.insert(
                    name.clone(),
                    (
                        vec![digest(&change.after)],
                        format!("{} at {at} ms", change.what),
                    ),
                );
                states.insert(name, change.after);
            }
            (Some(change), Err(Failed::Unknown(_))) => {
                left.unknown += 1;
                let either = vec![digest(&state), digest(&change.after)];
                left.objects.insert(
                    name.clone(),
                    (either, format!("unknown {} at {at} ms", change.what)),
                );
                states.remove(&name);
            }
            // It was not executed. A missing object is a valid answer, and here a wrong one.
            (Some(change), Err(why)) => {
                if matches!(why, Failed::Refused(OpFailure::NotFound {})) && state.is_some() {
                    left.wrong.push(format!(
                        "at {at} ms {} of {name}: there is no object, and there must be",
                        change.what
                    ));
                    states.remove(&name);
                }
                let what = change.what.split(' ').next().unwrap_or_default();
                *left.refused.entry(format!("{what}: {why}")).or_default() += 1;
            }
        }
        if !shared.pause.is_zero() {
            std::thread::sleep(shared.pause);
        }
    }
    Ok(left)
}

fn shown(state: &State) -> String {
    match state {
        None => "absent".to_owned(),
        Some(content) => {
            let (size, keys) = (content.data.len(), content.omap.len());
            let counter = content
                .omap
                .get(&b"counter"[..])
                .map(|text| text.escape_ascii().to_string());
            format!(
                "{} ({size} bytes, {keys} keys, counter {counter:?})",
                digest(state)
            )
        }
    }
}
