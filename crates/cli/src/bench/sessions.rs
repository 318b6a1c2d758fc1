//! `nacre bench sessions`: clients that connect, put one object and disconnect, one after the
//! other, as a job that runs every second does for months (F18). The state that a PG keeps for each
//! must not accumulate.
//!
//! ```text
//!  thread 0:  connect ─▶ put ─▶ gone ─▶ connect ─▶ put ─▶ gone ─▶ …     each a separate client
//!  thread 1:  connect ─▶ put ─▶ gone ─▶ …
//! ```

use crate::cluster::Place;
use crate::objects::{call, operation};
use crate::out::Out;
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use clap::Args;
use nacre_types::{ObjectId, PoolId};
use nacre_wire::msg::client::SubOp;
use serde_json::json;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Arguments of `bench sessions`.
#[derive(Args)]
pub struct Arguments {
    /// How many clients.
    clients: u64,
    /// How many at the same time.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    at_once: u32,
    /// How many objects they put, again and again.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    objects: u64,
    /// The pool; it is made if it does not exist.
    #[arg(long, default_value = "bench")]
    pub pool: String,
}

/// Runs the clients.
///
/// # Errors
/// When one cannot connect, or its object is refused.
pub fn run(arguments: &Arguments, place: &Place, pool: PoolId, out: &mut Out) -> Result<()> {
    ensure!(arguments.clients > 0, "at least one client");
    let (next, longest) = (AtomicU64::new(0), Mutex::new(Duration::ZERO));
    let begun = Instant::now();
    let work = || -> Result<()> {
        let mut mine = Duration::ZERO;
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= arguments.clients {
                break;
            }
            let begun = Instant::now();
            let mut session = place.connect()?;
            let object = ObjectId::named(&format!("bench-sessions-{}", number % arguments.objects));
            let data = Bytes::from(number.to_string());
            let op = SubOp::WriteFull {
                length: data.len() as u64,
            };
            let ended = call(&mut *session, operation(pool, object, vec![op], vec![data]))?;
            ended.with_context(|| format!("client {number}"))?;
            mine = mine.max(begun.elapsed());
        }
        let mut longest = longest.lock().expect("nobody panics with it");
        *longest = longest.max(mine);
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..arguments.at_once).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("a client's panic is a bug"))
    })?;
    let (seconds, longest_ms) = (
        begun.elapsed().as_secs_f64(),
        longest.into_inner().expect("as above").as_millis(),
    );
    let clients = arguments.clients;
    if out.json() {
        let longest_ms = u64::try_from(longest_ms).unwrap_or(u64::MAX);
        return out
            .value(&json!({ "clients": clients, "seconds": seconds, "longest_ms": longest_ms }));
    }
    out.line(&format!(
        "{clients} clients in {seconds:.1} s; the longest took {longest_ms} ms"
    ))
}
