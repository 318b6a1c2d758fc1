//! `nacre bench register`: a history of registers, for `nacre history check`
//! (`docs/formats/history.md`).
//!
//! A register is an object whose content is a number. A write replaces it; a compare-and-set
//! compares the content, or that there is no object, and replaces it in one operation. Every client
//! has its own connection and one operation in flight. An operation without an answer is `unknown`,
//! and its client continues under a new number, since it may still be executed.

use super::histories::{self, Run};
use crate::cluster::Session;
use crate::objects::{Failed, call, operation};
use crate::out::Out;
use anyhow::{Context, Result};
use bytes::Bytes;
use clap::Args;
use nacre_history::Record;
use nacre_history::record::{Kind, Outcome};
use nacre_types::{ObjectId, PoolId};
use nacre_wire::Payload;
use nacre_wire::msg::client::{OpFailure, SubOp};
use serde_json::json;
use std::path::PathBuf;

/// Arguments of `bench register`.
#[derive(Args)]
pub struct Arguments {
    /// Clients, each with a connection and one operation in flight.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub clients: u32,
    /// Registers.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub keys: u32,
    /// For how long.
    #[arg(long, default_value_t = 10.0)]
    pub seconds: f64,
    /// Where the history is written.
    #[arg(long, value_name = "FILE")]
    pub history: PathBuf,
    /// The pool; it is made if it does not exist.
    #[arg(long, default_value = "bench")]
    pub pool: String,
}

/// State shared by all clients.
struct Shared {
    pool: PoolId,
    keys: u64,
    run: Run,
}

/// Runs the clients; `connect` makes a connection for each.
///
/// # Errors
/// When a client cannot connect or the file cannot be written.
pub fn run(
    arguments: &Arguments,
    pool: PoolId,
    connect: &(dyn Fn() -> Result<Box<dyn Session>> + Sync),
    out: &mut Out,
) -> Result<()> {
    let shared = Shared {
        pool,
        keys: u64::from(arguments.keys),
        run: Run::begin(arguments.seconds)?,
    };
    // Before anything runs: detect now that a file cannot be written.
    histories::write(&arguments.history, &[])?;
    let histories: Vec<Result<Vec<Record>>> = std::thread::scope(|scope| {
        let spawn = |seed| {
            scope.spawn({
                let shared = &shared;
                move || client(shared, seed, connect()?)
            })
        };
        let threads: Vec<_> = (1..=u64::from(arguments.clients)).map(spawn).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a client's panic is a bug"))
            .collect()
    });
    let (mut all, mut failed) = (Vec::new(), None);
    for history in histories {
        match history {
            Ok(records) => all.extend(records),
            Err(error) => failed = Some(error),
        }
    }
    let (count, unknown) = histories::write(&arguments.history, &all)?;
    if let Some(error) = failed {
        return Err(error.context("a client could not go on; the history is not complete"));
    }
    if out.json() {
        return out.value(
            &json!({ "operations": count, "unknown": unknown, "history": arguments.history.display().to_string() }),
        );
    }
    let file = arguments.history.display();
    out.line(&format!(
        "{count} operations ({unknown} without an answer) in {file}; `nacre history check {file}` judges them"
    ))
}

/// Runs one client until the time is up.
fn client(shared: &Shared, seed: u64, mut cluster: Box<dyn Session>) -> Result<Vec<Record>> {
    let run = &shared.run;
    let mut number = run.next_client();
    let mut draw = run.dice(seed);
    let mut records = Vec::new();
    // The last value seen of each register: a compare-and-set that expects it can succeed.
    let mut seen = std::collections::BTreeMap::new();
    while !run.is_over() {
        let key = draw(shared.keys);
        let expect: Option<u64> = seen.get(&key).copied().flatten();
        let op =
            [Kind::Read, Kind::Write, Kind::Cas][usize::try_from(draw(3)).expect("three kinds")];
        let value = (op != Kind::Read).then(|| run.next_value());
        let object = ObjectId::named(&format!("register-{:016x}-{key}", run.id));
        let request = operation(
            shared.pool,
            object,
            parts(op, expect),
            payload(op, expect, value),
        );
        let invoke_ns = run.now_ns();
        let ended = call(&mut *cluster, request)?;
        let return_ns = run.now_ns();
        let mut record = Record {
            client: number,
            op,
            key: format!("{key}"),
            value,
            expect: if op == Kind::Cas { expect } else { None },
            invoke_ns,
            return_ns: Some(return_ns),
            result: None,
            unknown: false,
            fail: false,
        };
        match ended {
            Ok(done) => {
                record.result = match op {
                    Kind::Read => {
                        let value = decode(&done.payload)
                            .context("a register holds something else than a number")?;
                        seen.insert(key, Some(value));
                        Some(Outcome::Value(Some(value)))
                    }
                    Kind::Write => None,
                    Kind::Cas => Some(Outcome::Swapped(true)),
                };
                if op != Kind::Read {
                    seen.insert(key, value);
                }
            }
            Err(Failed::Refused(OpFailure::NotFound {})) if op == Kind::Read => {
                seen.insert(key, None);
                record.result = Some(Outcome::Value(None));
            }
            Err(Failed::Refused(OpFailure::Guard { .. })) if op == Kind::Cas => {
                record.result = Some(Outcome::Swapped(false));
                seen.remove(&key);
            }
            // Refused for a reason unrelated to the register: it certainly was not executed.
            Err(Failed::Refused(_) | Failed::Foreign(_)) => {
                record.fail = true;
                record.return_ns = Some(return_ns);
            }
            Err(Failed::Unknown(_)) => {
                record.unknown = true;
                record.return_ns = None;
                number = run.next_client();
            }
        }
        records.push(record);
    }
    Ok(records)
}

fn parts(op: Kind, expect: Option<u64>) -> Vec<SubOp> {
    match (op, expect) {
        (Kind::Read, _) => vec![SubOp::Read {
            offset: 0,
            length: 64,
        }],
        (Kind::Write, _) => vec![SubOp::WriteFull { length: 8 }],
        (Kind::Cas, None) => vec![
            SubOp::AssertExists { exists: false },
            SubOp::WriteFull { length: 8 },
        ],
        (Kind::Cas, Some(_)) => vec![
            SubOp::CompareData {
                offset: 0,
                length: 8,
            },
            SubOp::WriteFull { length: 8 },
        ],
    }
}

fn payload(op: Kind, expect: Option<u64>, value: Option<u64>) -> Payload {
    let compared = expect.filter(|_| op == Kind::Cas);
    compared
        .into_iter()
        .chain(value)
        .map(|number| Bytes::copy_from_slice(&number.to_le_bytes()))
        .collect()
}

fn decode(data: &Payload) -> Option<u64> {
    let bytes: Vec<u8> = data.iter().flatten().copied().collect();
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_their_data_fit_together() {
        for op in [Kind::Read, Kind::Write, Kind::Cas] {
            for expect in [None, Some(7)] {
                let value = (op != Kind::Read).then_some(9);
                let announced: u64 = parts(op, expect).iter().map(SubOp::payload_len).sum();
                let data = payload(op, expect, value);
                assert_eq!(
                    announced,
                    nacre_wire::msg::payload_len(&data) as u64,
                    "{op:?} {expect:?}"
                );
            }
        }
        assert_eq!(decode(&payload(Kind::Write, None, Some(9))), Some(9));
        assert_eq!(decode(&vec![Bytes::from_static(b"short")]), None);
    }
}
