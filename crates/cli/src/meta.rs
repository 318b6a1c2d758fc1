//! `nacre meta …`: small keys replicated by the monitors, with revisions, watches and leases.

use crate::cluster::{Metadata, Place};
use crate::out::Out;
use crate::table::table;
use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::{Args, Subcommand};
use nacre_client::WatchNews;
use nacre_types::Name;
use nacre_wire::msg::meta::{
    META_SETTINGS, MetaAnswer, MetaCall, MetaCompare, MetaEvent, MetaOp, MetaPair, MetaRelation,
    MetaResult, MetaSpan, MetaTarget,
};
use serde_json::{Map, Value, json};
use std::io::Read;
use std::path::PathBuf;

/// Arguments of `meta`.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print a key's value.
    Get {
        /// NAMESPACE/NAME.
        key: String,
    },
    /// Set a key.
    Put {
        /// NAMESPACE/NAME.
        key: String,
        /// Its value; standard input when left out. One that begins with a `-` and is no number
        /// stands last, after `--`.
        #[arg(allow_negative_numbers = true)]
        value: Option<String>,
        /// Only if the revision that changed it last is this; 0: only if it does not exist.
        #[arg(long, value_name = "REVISION")]
        if_revision: Option<u64>,
        /// The key goes when this lease ends.
        #[arg(long, default_value_t = 0)]
        lease: u64,
    },
    /// Delete a key, or with --prefix all that begin so.
    Rm {
        /// NAMESPACE/NAME.
        key: String,
        /// All keys that begin so.
        #[arg(long)]
        prefix: bool,
    },
    /// List keys.
    Ls {
        /// Those that begin so; all when left out.
        #[arg(default_value = "")]
        prefix: String,
    },
    /// Print changes as they come, until interrupted.
    Watch {
        /// Of keys that begin so.
        #[arg(default_value = "")]
        prefix: String,
        /// From this revision on; 0: from now on.
        #[arg(long, default_value_t = 0)]
        from: u64,
        /// End after so many changes.
        #[arg(long, value_name = "N")]
        count: Option<u64>,
    },
    /// Carry out a transaction: JSON from standard input.
    ///
    /// {"if": [{"key": "a/x", "version": 0}], "then": [{"put": "a/x", "value": "1"}, {"get":
    /// "a/"}], "else": [{"delete": "a/y"}]}. What is compared is value, version, created, modified
    /// or lease, by "is": "=", "!=", "<" or ">". A name that ends in "/" is all below it.
    Txn,
    /// Leases: keys that go when their owner does.
    #[command(subcommand)]
    Lease(Lease),
    /// Print a namespace's settings, or set them: a JSON object.
    Namespace {
        /// Which.
        name: String,
        /// Readers, writers, validator, triggers, quota_bytes, keys_max, value_bytes_max.
        settings: Option<String>,
    },
    /// Programs in Lua that judge changes and follow them: namespaces' settings name them as
    /// validator and in triggers.
    #[command(subcommand)]
    Program(Program),
}

#[derive(Subcommand)]
enum Program {
    /// Store a program, or a new version of it. One that does not compile is refused.
    Install {
        /// Its name.
        name: String,
        /// Its source; `-` is standard input.
        file: PathBuf,
    },
    /// List them.
    Ls,
    /// Print a program's source.
    Show {
        /// Its name.
        name: String,
    },
    /// Remove a program that no namespace uses.
    Rm {
        /// Its name.
        name: String,
    },
}

#[derive(Subcommand)]
enum Lease {
    /// Take one.
    Grant {
        /// Seconds until it expires unless it is renewed.
        seconds: f64,
    },
    /// Renew it.
    KeepAlive {
        /// Which.
        lease: u64,
    },
    /// End it; its keys go.
    Revoke {
        /// Which.
        lease: u64,
    },
    /// List them.
    Ls,
}

fn text(bytes: &[u8]) -> Value {
    std::str::from_utf8(bytes).map_or_else(
        |_| json!({ "hex": bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>() }),
        |text| json!(text),
    )
}
fn pair_json(pair: &MetaPair) -> Value {
    json!({
        "key": pair.key.to_string(), "value": text(&pair.value), "created": pair.created, "modified": pair.modified,
        "version": pair.version, "lease": pair.lease, "epoch": pair.epoch.0,
    })
}
fn event_json(event: &MetaEvent) -> Value {
    match event {
        MetaEvent::Put { pair } => {
            json!({ "what": "put", "revision": pair.modified, "pair": pair_json(pair) })
        }
        MetaEvent::Delete { key, revision } => {
            json!({ "what": "delete", "revision": revision, "key": key.to_string() })
        }
    }
}
fn event_line(event: &MetaEvent) -> String {
    match event {
        MetaEvent::Put { pair } => {
            format!(
                "{} put {} {}",
                pair.modified,
                pair.key,
                String::from_utf8_lossy(&pair.value)
            )
        }
        MetaEvent::Delete { key, revision } => format!("{revision} delete {key}"),
    }
}
/// A name that ends in `/` stands for all keys below it.
fn span(name: &str) -> MetaSpan {
    if name.is_empty() || name.ends_with('/') {
        MetaSpan::Prefix {
            prefix: name.into(),
        }
    } else {
        MetaSpan::Key { key: name.into() }
    }
}

/// Runs a command.
///
/// # Errors
/// What the monitors refuse, in their words.
pub fn run(arguments: Arguments, place: &Place, out: &mut Out) -> Result<()> {
    let mut connected = place.metadata()?;
    let cluster = connected.as_mut();
    match arguments.command {
        Command::Get { key } => {
            let pair = cluster.get(&key)?;
            let pair = pair
                .with_context(|| format!("there is no key `{key}`; `nacre meta ls` lists them"))?;
            if out.json() {
                out.value(&pair_json(&pair))
            } else {
                out.bytes(&pair.value)?;
                out.bytes(b"\n")
            }
        }
        Command::Put {
            key,
            value,
            if_revision,
            lease,
        } => {
            let value = match value {
                Some(value) => value.into_bytes(),
                None => input()?,
            };
            let name = Name::from(key.as_str());
            let modified = |number| MetaCompare {
                key: name.clone(),
                target: MetaTarget::Modified { number },
                relation: MetaRelation::Equal {},
            };
            let compares = if_revision.map(modified).into_iter().collect();
            let then = vec![MetaOp::Put {
                key: name.clone(),
                value: value.into(),
                lease,
            }];
            let otherwise = vec![MetaOp::Get {
                span: MetaSpan::Key { key: name.clone() },
                limit: 1,
                keys_only: true,
            }];
            let (revision, result) = cluster.meta(MetaCall::Transact {
                compares,
                then,
                otherwise,
            })?;
            match result {
                MetaResult::Transacted {
                    succeeded: true, ..
                } => done(out, revision),
                MetaResult::Transacted { answers, .. } => {
                    let found = answers.first().and_then(|answer| match answer {
                        MetaAnswer::Got { pairs, .. } => pairs.first().map(|pair| pair.modified),
                        _ => None,
                    });
                    bail!(
                        "not set: `{key}` was changed last by revision {}",
                        found.unwrap_or(0)
                    )
                }
                other => bail!(
                    "the answer to a transaction is {other:?}: is the other side of another version?"
                ),
            }
        }
        Command::Rm { key, prefix } => {
            let name = Name::from(key.as_str());
            let span = if prefix {
                MetaSpan::Prefix { prefix: name }
            } else {
                MetaSpan::Key { key: name }
            };
            let then = vec![MetaOp::Delete { span }];
            let (revision, result) = cluster.meta(MetaCall::Transact {
                compares: vec![],
                then,
                otherwise: vec![],
            })?;
            let keys = match result {
                MetaResult::Transacted { answers, .. } => match answers[..] {
                    [MetaAnswer::Deleted { keys }] => keys,
                    _ => 0,
                },
                _ => 0,
            };
            ensure!(keys > 0 || prefix, "there is no key `{key}`");
            if out.json() {
                return out.value(&json!({ "revision": revision, "keys": keys }));
            }
            out.line(&format!("{keys} deleted in revision {revision}"))
        }
        Command::Ls { prefix } => {
            let (pairs, revision) = cluster.list(MetaSpan::Prefix {
                prefix: prefix.as_str().into(),
            })?;
            if out.json() {
                let keys: Vec<Value> = pairs.iter().map(pair_json).collect();
                return out.value(&json!({ "revision": revision, "keys": keys }));
            }
            pairs
                .iter()
                .try_for_each(|pair| out.line(&pair.key.to_string()))
        }
        Command::Watch {
            prefix,
            from,
            count,
        } => watch(cluster, &prefix, from, count.unwrap_or(u64::MAX), out),
        Command::Txn => {
            let request: Value =
                serde_json::from_slice(&input()?).context("the transaction is no JSON")?;
            let (revision, result) = cluster.meta(transaction(&request)?)?;
            let MetaResult::Transacted { succeeded, answers } = result else {
                bail!(
                    "the answer to a transaction is {result:?}: is the other side of another version?"
                )
            };
            let answers: Vec<Value> = answers.iter().map(answer_json).collect();
            out.value(&json!({ "succeeded": succeeded, "revision": revision, "answers": answers }))
        }
        Command::Lease(command) => lease(&command, cluster, out),
        Command::Program(command) => program(&command, cluster, out),
        Command::Namespace { name, settings } => {
            let key = format!("{META_SETTINGS}/namespace/{name}");
            match settings {
                Some(settings) => {
                    let revision = cluster.put(&key, settings.into_bytes())?;
                    done(out, revision)
                }
                None => {
                    let pair = cluster.get(&key)?;
                    let value = pair.map_or_else(|| b"{}".to_vec(), |pair| pair.value.to_vec());
                    out.value(
                        &serde_json::from_slice(&value)
                            .context("the namespace's settings are no JSON")?,
                    )
                }
            }
        }
    }
}

fn input() -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::io::stdin()
        .read_to_end(&mut bytes)
        .context("reading standard input")?;
    Ok(bytes)
}
fn done(out: &mut Out, revision: u64) -> Result<()> {
    if out.json() {
        out.value(&json!({ "revision": revision }))
    } else {
        out.line(&format!("revision {revision}"))
    }
}
fn answer_json(answer: &MetaAnswer) -> Value {
    match answer {
        MetaAnswer::Got { pairs, more } => {
            json!({ "keys": pairs.iter().map(pair_json).collect::<Vec<_>>(), "more": more })
        }
        MetaAnswer::Put { before } => json!({ "put": true, "before": before }),
        MetaAnswer::Deleted { keys } => json!({ "deleted": keys }),
    }
}

fn watch(
    cluster: &mut dyn Metadata,
    prefix: &str,
    from: u64,
    count: u64,
    out: &mut Out,
) -> Result<()> {
    let mut left = count;
    cluster.watch(
        MetaSpan::Prefix {
            prefix: prefix.into(),
        },
        from,
        &mut |news| {
            let events = match news {
                WatchNews::Events { events, .. } => events,
                WatchNews::Ended(error) => bail!("the watch ended: {error}"),
            };
            for event in &events {
                if left == 0 {
                    break;
                }
                left -= 1;
                if out.json() {
                    out.line(&event_json(event).to_string())?;
                } else {
                    out.line(&event_line(event))?;
                }
            }
            out.finish()?;
            Ok(left == 0)
        },
    )
}

fn lease(command: &Lease, cluster: &mut dyn Metadata, out: &mut Out) -> Result<()> {
    let call = match command {
        Lease::Grant { seconds } => {
            ensure!(
                (0.5..=86_400.0).contains(seconds),
                "a lease lasts between 0.5 and 86400 seconds"
            );
            MetaCall::Grant {
                ttl_ms: (seconds * 1000.0) as u64,
            }
        }
        Lease::KeepAlive { lease } => MetaCall::KeepAlive { lease: *lease },
        Lease::Revoke { lease } => MetaCall::Revoke { lease: *lease },
        Lease::Ls => MetaCall::Leases {},
    };
    let (revision, result) = cluster.meta(call)?;
    let (value, line) = match result {
        MetaResult::Granted { lease, ttl_ms } | MetaResult::Alive { lease, ttl_ms } => (
            json!({ "lease": lease, "ttl_ms": ttl_ms }),
            format!("lease {lease}, {} s", ttl_ms as f64 / 1000.0),
        ),
        MetaResult::Revoked { keys } => (
            json!({ "keys": keys, "revision": revision }),
            format!("ended; {keys} keys went with it"),
        ),
        MetaResult::Leases { leases } => {
            let one = |lease: &nacre_wire::msg::meta::MetaLease| json!({ "lease": lease.lease, "ttl_ms": lease.ttl_ms, "owner": lease.owner.to_string(), "keys": lease.keys });
            let line = |lease: &nacre_wire::msg::meta::MetaLease| {
                format!(
                    "{} {} s {} {} keys",
                    lease.lease,
                    lease.ttl_ms as f64 / 1000.0,
                    lease.owner,
                    lease.keys
                )
            };
            let lines: Vec<String> = leases.iter().map(line).collect();
            (
                json!({ "leases": leases.iter().map(one).collect::<Vec<_>>() }),
                lines.join("\n"),
            )
        }
        other => {
            bail!("the answer about a lease is {other:?}: is the other side of another version?")
        }
    };
    if out.json() {
        return out.value(&value);
    }
    if line.is_empty() {
        Ok(())
    } else {
        out.line(&line)
    }
}

fn program(command: &Program, cluster: &mut dyn Metadata, out: &mut Out) -> Result<()> {
    let key = |name: &str| format!("{META_SETTINGS}/program/{name}");
    let missing =
        |name: &str| format!("there is no program `{name}`; `nacre meta program ls` lists them");
    match command {
        Program::Install { name, file } => {
            let source = if file.as_os_str() == "-" {
                input()?
            } else {
                std::fs::read(file).with_context(|| format!("reading {}", file.display()))?
            };
            // The monitors check as well, and more strictly; this finds mistakes without them.
            let checked = nacre_policy::check_script(&nacre_policy::Chunk::new(name, &source));
            checked.map_err(|error| anyhow!("program {name} is refused: {error}"))?;
            let revision = cluster.put(&key(name), source)?;
            if out.json() {
                return out.value(&json!({ "program": name, "revision": revision }));
            }
            out.line(&format!("program {name}: revision {revision}"))
        }
        Program::Ls => {
            let prefix = key("");
            let (programs, _) = cluster.list(MetaSpan::Prefix {
                prefix: prefix.as_str().into(),
            })?;
            let namespaces = MetaSpan::Prefix {
                prefix: format!("{META_SETTINGS}/namespace/").as_str().into(),
            };
            let (namespaces, _) = cluster.list(namespaces)?;
            let row = |program: &MetaPair| {
                let name = program
                    .key
                    .to_string()
                    .trim_start_matches(&prefix)
                    .to_owned();
                let used: Vec<String> = namespaces
                    .iter()
                    .flat_map(|settings| uses(settings, &name))
                    .collect();
                json!({ "name": name, "revision": program.modified, "bytes": program.value.len(), "used": used.join(", ") })
            };
            let rows: Vec<Value> = programs.iter().map(row).collect();
            if out.json() {
                return out.value(&json!({ "programs": rows }));
            }
            let columns = [
                ("NAME", "name"),
                ("REVISION", "revision"),
                ("SIZE", "bytes"),
                ("USED AS", "used"),
            ];
            out.bytes(table(&columns, &rows).as_bytes())
        }
        Program::Show { name } => {
            let pair = cluster.get(&key(name))?.with_context(|| missing(name))?;
            if out.json() {
                return out.value(&json!({ "name": name, "revision": pair.modified, "source": text(&pair.value) }));
            }
            out.bytes(&pair.value)
        }
        Program::Rm { name } => {
            let span = MetaSpan::Key {
                key: key(name).as_str().into(),
            };
            let call = MetaCall::Transact {
                compares: vec![],
                then: vec![MetaOp::Delete { span }],
                otherwise: vec![],
            };
            let (revision, result) = cluster.meta(call)?;
            let is_gone = matches!(&result, MetaResult::Transacted { answers, .. } if answers[..] == [MetaAnswer::Deleted { keys: 1 }]);
            ensure!(is_gone, missing(name));
            done(out, revision)
        }
    }
}

/// The uses of a program in a namespace. Settings that this version cannot read contain no use that
/// it could name.
fn uses(settings: &MetaPair, program: &str) -> Vec<String> {
    let key = settings.key.to_string();
    let namespace = key.rsplit('/').next().unwrap_or_default();
    let Ok(value) = serde_json::from_slice::<Value>(&settings.value) else {
        return Vec::new();
    };
    let validator = value["validator"].as_str().filter(|name| *name == program);
    let validator = validator.map(|_| format!("validator of {namespace}"));
    let triggers = value["triggers"].as_array().into_iter().flatten();
    let triggers = triggers.filter(|trigger| trigger["program"].as_str() == Some(program));
    let triggers = triggers.map(|trigger| {
        format!(
            "trigger {namespace}/{}",
            trigger["name"].as_str().unwrap_or("?")
        )
    });
    validator.into_iter().chain(triggers).collect()
}

/// Parses a transaction from its JSON form.
fn transaction(request: &Value) -> Result<MetaCall> {
    let Value::Object(fields) = request else {
        bail!("a transaction is a JSON object with `if`, `then` and `else`")
    };
    if let Some(unknown) = fields
        .keys()
        .find(|field| !["if", "then", "else"].contains(&field.as_str()))
    {
        bail!("a transaction has no field `{unknown}`; it has `if`, `then` and `else`");
    }
    let list = |field: &str| -> Result<Vec<Map<String, Value>>> {
        let Some(value) = fields.get(field) else {
            return Ok(Vec::new());
        };
        let objects = value
            .as_array()
            .with_context(|| format!("`{field}` is a list"))?
            .iter();
        objects
            .map(|one| {
                one.as_object()
                    .cloned()
                    .with_context(|| format!("`{field}` is a list of objects"))
            })
            .collect()
    };
    let compares = list("if")?.iter().map(compare).collect::<Result<_>>()?;
    let then = list("then")?.iter().map(operation).collect::<Result<_>>()?;
    let otherwise = list("else")?.iter().map(operation).collect::<Result<_>>()?;
    Ok(MetaCall::Transact {
        compares,
        then,
        otherwise,
    })
}

fn compare(fields: &Map<String, Value>) -> Result<MetaCompare> {
    let key = fields
        .get("key")
        .and_then(Value::as_str)
        .context("a compare has a `key`")?;
    let relation = match fields.get("is").and_then(Value::as_str).unwrap_or("=") {
        "=" => MetaRelation::Equal {},
        "!=" => MetaRelation::NotEqual {},
        "<" => MetaRelation::Less {},
        ">" => MetaRelation::Greater {},
        other => bail!("`is` is =, !=, < or >, not {other}"),
    };
    let number = |field: &str| fields.get(field).and_then(Value::as_u64);
    let target = if let Some(value) = fields.get("value").and_then(Value::as_str) {
        MetaTarget::Value {
            value: value.to_owned().into(),
        }
    } else if let Some(number) = number("version") {
        MetaTarget::Version { number }
    } else if let Some(number) = number("created") {
        MetaTarget::Created { number }
    } else if let Some(number) = number("modified") {
        MetaTarget::Modified { number }
    } else if let Some(number) = number("lease") {
        MetaTarget::Lease { number }
    } else {
        bail!("a compare has one of value, version, created, modified and lease");
    };
    Ok(MetaCompare {
        key: key.into(),
        target,
        relation,
    })
}

fn operation(fields: &Map<String, Value>) -> Result<MetaOp> {
    let text = |field: &str| fields.get(field).and_then(Value::as_str);
    if let Some(key) = text("put") {
        let value = text("value")
            .context("`put` needs a `value`, a text")?
            .to_owned()
            .into();
        let lease = fields.get("lease").and_then(Value::as_u64).unwrap_or(0);
        return Ok(MetaOp::Put {
            key: key.into(),
            value,
            lease,
        });
    }
    if let Some(name) = text("get") {
        return Ok(MetaOp::Get {
            span: span(name),
            limit: 0,
            keys_only: false,
        });
    }
    let name = text("delete").context("an operation is `put`, `get` or `delete` with a key")?;
    Ok(MetaOp::Delete { span: span(name) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_reads_as_written() {
        let text = r#"{"if": [{"key": "a/x", "version": 0}, {"key": "a/y", "is": "<", "value": "7"}],
                       "then": [{"put": "a/x", "value": "1", "lease": 3}, {"get": "a/"}], "else": [{"delete": "a/y"}]}"#;
        let call = transaction(&serde_json::from_str(text).expect("JSON")).expect("reads");
        let MetaCall::Transact {
            compares,
            then,
            otherwise,
        } = call
        else {
            panic!("a transaction")
        };
        assert_eq!((compares.len(), then.len(), otherwise.len()), (2, 2, 1));
        assert_eq!(
            then[1],
            MetaOp::Get {
                span: MetaSpan::Prefix {
                    prefix: "a/".into()
                },
                limit: 0,
                keys_only: false
            }
        );
        assert_eq!(compares[1].relation, MetaRelation::Less {});
        let wrong = |text: &str| {
            transaction(&serde_json::from_str(text).expect("JSON"))
                .expect_err("refused")
                .to_string()
        };
        assert!(wrong(r#"{"them": []}"#).contains("`them`"));
        assert!(wrong(r#"{"if": [{"key": "a/x"}]}"#).contains("version"));
        assert!(wrong(r#"{"then": [{"set": "a/x"}]}"#).contains("put"));
    }
}
