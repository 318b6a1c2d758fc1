//! `nacre object …`: objects, and directory trees as objects.
//!
//! * [`stripe`]: content of any length behind one name;
//! * [`list`]: the contents of a pool;
//! * [`tree`]: import, export, and verification;
//! * [`claims`]: watches and locks;
//! * [`snap`]: the preserved states of an object, and rollback;
//! * [`copy`]: copies made by the OSDs.

pub mod claims;
pub mod copy;
pub mod list;
pub mod snap;
pub mod stripe;
pub mod tree;

use crate::cluster::{Commands, Session};
use crate::objects::{Ended, Failed, call, head_of, operation, read_head};
use crate::out::Out;
use crate::progress;
use crate::table::bytes as shown_bytes;
use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use clap::Args;
use nacre_command::{Command as MonCommand, PgMap};
use nacre_types::{Name, ObjectId, PoolId};
use nacre_wire::Payload;
use nacre_wire::msg::client::{OpFailure, SubOp, SubReply};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Which object.
#[derive(Args)]
pub struct Target {
    /// The pool.
    pool: String,
    /// The object; any bytes.
    name: OsString,
    /// Its namespace: a part of the pool with its own names.
    #[arg(long, default_value = "")]
    namespace: OsString,
}

impl Target {
    /// The pool's name.
    #[must_use]
    pub fn pool(&self) -> &str {
        &self.pool
    }
    /// The object.
    ///
    /// # Errors
    /// Its name is too long, empty, or reserved for pieces of large objects.
    pub fn object(&self) -> Result<ObjectId> {
        object(self.name.as_bytes(), self.namespace.as_bytes())
    }
}

fn object(name: &[u8], namespace: &[u8]) -> Result<ObjectId> {
    // Names of pieces are longer by a dot and sixteen digits, their namespaces by a word.
    let max = Name::LEN_MAX - 17;
    if name.is_empty() || name.len() > max || namespace.len() > max {
        bail!("an object's name has 1 to {max} bytes, its namespace at most {max}");
    }
    if namespace.starts_with(b".stripes/") {
        bail!("the namespace .stripes/ holds pieces of large objects; use the objects' own names");
    }
    Ok(ObjectId {
        namespace: Name::copy(namespace),
        name: Name::copy(name),
        ..ObjectId::default()
    })
}

/// Objects.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Store a file as an object, replacing what was there; `-` is standard input.
    Put {
        #[command(flatten)]
        target: Target,
        /// The file.
        file: PathBuf,
    },
    /// Write an object's content to a file; `-` is standard output.
    Get {
        #[command(flatten)]
        target: Target,
        /// The file.
        file: PathBuf,
        /// As it is at this snapshot of the pool, by its name or number.
        #[arg(long)]
        snap: Option<String>,
    },
    /// Copy an object within its pool, with attributes and map, replacing what was there; no data
    /// comes by this machine.
    Cp {
        #[command(flatten)]
        target: Target,
        /// The copy's name, in the same namespace.
        new: OsString,
    },
    /// Snapshots that have an object, and how large it is there.
    Snaps(Target),
    /// Make an object what it was at a snapshot; watches and locks stay.
    Rollback {
        #[command(flatten)]
        target: Target,
        /// The snapshot's name or number.
        snap: String,
    },
    /// Names of the objects of a pool, sorted.
    Ls {
        /// The pool.
        pool: String,
        /// Of this namespace.
        #[arg(long, default_value = "")]
        namespace: OsString,
        /// Only names that begin so.
        #[arg(long, default_value = "")]
        prefix: OsString,
    },
    /// Size, version and attributes.
    Stat(Target),
    /// Remove objects.
    Rm {
        /// The pool.
        pool: String,
        /// The objects.
        #[arg(required = true)]
        names: Vec<OsString>,
        /// Their namespace.
        #[arg(long, default_value = "")]
        namespace: OsString,
    },
    /// Which OSDs hold an object.
    Where(Target),
    /// Store a directory tree; names are paths below it.
    Import {
        /// The pool.
        pool: String,
        /// The folder.
        dir: PathBuf,
    },
    /// Write a pool's objects as a directory tree into a new folder.
    Export {
        /// The pool.
        pool: String,
        /// The folder.
        dir: PathBuf,
    },
    /// Attributes of an object.
    #[command(subcommand)]
    Xattr(Xattr),
    /// The ordered key-value map of an object.
    #[command(subcommand)]
    Omap(Omap),
    /// Print what is notified of an object, until the watch is lost.
    Watch(claims::Watch),
    /// Tell everyone who watches an object, and print who has it and who missed it.
    Notify(claims::Notify),
    /// Who watches an object.
    Watchers(Target),
    /// Take a lock on an object; it makes the object if it is not there.
    Lock(claims::Lock),
    /// Give a lock back for its owner.
    Unlock(claims::Unlock),
    /// Locks of an object, and who holds them.
    Locks(Target),
    /// Take a lock away from its holders.
    BreakLock(claims::BreakLock),
}

/// Attributes.
#[derive(clap::Subcommand)]
pub enum Xattr {
    /// Names and values.
    Ls(Target),
    /// One value, as it is.
    Get {
        #[command(flatten)]
        target: Target,
        /// Which attribute.
        attr: OsString,
    },
    /// Set one.
    Set {
        #[command(flatten)]
        target: Target,
        /// Which attribute.
        attr: OsString,
        /// To what.
        value: OsString,
    },
    /// Remove one.
    Rm {
        #[command(flatten)]
        target: Target,
        /// Which attribute.
        attr: OsString,
    },
}

/// The key-value map.
#[derive(clap::Subcommand)]
pub enum Omap {
    /// Keys and values, in order of the keys.
    Ls(Target),
    /// One value, as it is.
    Get {
        #[command(flatten)]
        target: Target,
        /// Which key.
        key: OsString,
    },
    /// Set a key.
    Set {
        #[command(flatten)]
        target: Target,
        /// Which key.
        key: OsString,
        /// To what.
        value: OsString,
    },
    /// Remove a key.
    Rm {
        #[command(flatten)]
        target: Target,
        /// Which key.
        key: OsString,
    },
    /// Remove all keys.
    Clear(Target),
}

/// Looks up the number of a pool.
///
/// # Errors
/// When there is none of that name; then it lists the existing ones.
pub fn pool_id(cluster: &mut dyn Commands, name: &str) -> Result<PoolId> {
    let pools = pools(cluster)?;
    if let Some((_, id)) = pools.iter().find(|(known, _)| known == name) {
        return Ok(*id);
    }
    let known: Vec<&str> = pools.iter().map(|(name, _)| name.as_str()).collect();
    let known = if known.is_empty() {
        "there is none yet".to_owned()
    } else {
        format!("there are {}", known.join(", "))
    };
    bail!("there is no pool {name} ({known}); `nacre pool create {name}` makes it")
}

/// All pools, according to a majority of the monitors.
///
/// # Errors
/// When there is no majority: then the pools are unknown.
pub fn pools(cluster: &mut dyn Commands) -> Result<Vec<(String, PoolId)>> {
    let reply = cluster.command(&MonCommand::PoolLs {})?;
    let pools = reply["pools"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
        .iter();
    let entry = |pool: &Value| {
        Some((
            pool["name"].as_str()?.to_owned(),
            PoolId(pool["id"].as_u64()?),
        ))
    };
    pools
        .map(entry)
        .collect::<Option<_>>()
        .context("the answer to `pool ls` has no names or ids")
}

fn missing(object: &ObjectId) -> anyhow::Error {
    anyhow!("there is no object {object}; `nacre object ls` lists what there is")
}

/// Adds the object's name to a "not found" error.
fn found(ended: Ended, object: &ObjectId) -> Result<nacre_client::Done> {
    ended.map_err(|why| match why {
        Failed::Refused(OpFailure::NotFound {}) => missing(object),
        why => anyhow::Error::from(why).context(object.to_string()),
    })
}

fn text(bytes: &[u8]) -> String {
    Name::copy(bytes).to_string()
}

/// Runs a command.
///
/// # Errors
/// When a named item does not exist, or the cluster refuses.
pub fn run(command: Command, cluster: &mut dyn Session, out: &mut Out) -> Result<()> {
    match command {
        Command::Put { target, file } => put(&target, &file, cluster, out),
        Command::Get { target, file, snap } => get(&target, snap.as_deref(), &file, cluster, out),
        Command::Cp { target, new } => cp(&target, &new, cluster, out),
        Command::Snaps(target) => snap::snaps(&target, cluster, out),
        Command::Rollback { target, snap } => snap::rollback(&target, &snap, cluster, out),
        Command::Ls {
            pool,
            namespace,
            prefix,
        } => ls(&pool, namespace.as_bytes(), prefix.as_bytes(), cluster, out),
        Command::Stat(target) => stat(&target, cluster, out),
        Command::Rm {
            pool,
            names,
            namespace,
        } => {
            let pool = pool_id(cluster, &pool)?;
            for name in &names {
                let object = object(name.as_bytes(), namespace.as_bytes())?;
                if !stripe::remove(cluster, pool, &object)? {
                    return Err(missing(&object));
                }
            }
            if out.json() {
                out.value(&json!({ "removed": names.len() }))
            } else {
                Ok(())
            }
        }
        Command::Where(target) => whereabouts(&target, cluster, out),
        Command::Import { pool, dir } => import(&pool, &dir, cluster, out),
        Command::Export { pool, dir } => export(&pool, &dir, cluster, out),
        Command::Xattr(command) => xattr(command, cluster, out),
        Command::Omap(command) => omap(command, cluster, out),
        Command::Watch(args) => claims::watch(&args, cluster, out),
        Command::Notify(args) => claims::notify(&args, cluster, out),
        Command::Watchers(target) => claims::watchers(&target, cluster, out),
        Command::Lock(args) => claims::lock(&args, cluster, out),
        Command::Unlock(args) => claims::unlock(&args, cluster, out),
        Command::Locks(target) => claims::locks(&target, cluster, out),
        Command::BreakLock(args) => claims::break_lock(&args, cluster, out),
    }
}

fn put(target: &Target, file: &Path, cluster: &mut dyn Session, out: &mut Out) -> Result<()> {
    let pool = pool_id(cluster, &target.pool)?;
    let object = target.object()?;
    let (mut source, size): (Box<dyn Read>, u64) = if file == Path::new("-") {
        (Box::new(io::stdin()), 0)
    } else {
        let opened = File::open(file).with_context(|| format!("reading {}", file.display()))?;
        let meta = opened
            .metadata()
            .with_context(|| format!("reading {}", file.display()))?;
        if meta.is_dir() {
            bail!(
                "{} is a folder; `nacre object import` stores folders",
                file.display()
            );
        }
        (Box::new(opened), meta.len())
    };
    let bar = progress::bytes("storing", size);
    let stored = stripe::put(cluster, pool, &object, &mut *source, &[], &mut |bytes| {
        bar.inc(bytes)
    });
    bar.finish_and_clear();
    let stored = stored.with_context(|| format!("storing {object}"))?;
    if out.json() {
        out.value(&json!({ "object": object.to_string(), "bytes": stored }))
    } else {
        Ok(())
    }
}

fn cp(target: &Target, new: &OsString, cluster: &mut dyn Session, out: &mut Out) -> Result<()> {
    let pool = pool_id(cluster, &target.pool)?;
    let (source, new) = (
        target.object()?,
        object(new.as_bytes(), target.namespace.as_bytes())?,
    );
    if source == new {
        bail!("{source} and its copy have the same name");
    }
    let bytes = copy::copy(cluster, pool, &source, &new)
        .with_context(|| format!("copying {source} to {new}"))?;
    if out.json() {
        out.value(&json!({ "object": new.to_string(), "bytes": bytes }))
    } else {
        Ok(())
    }
}

fn get(
    target: &Target,
    snap: Option<&str>,
    file: &Path,
    cluster: &mut dyn Session,
    out: &mut Out,
) -> Result<()> {
    let pool = pool_id(cluster, &target.pool)?;
    let object = match snap {
        Some(snap) => snap::at(target, snap, cluster)?,
        None => target.object()?,
    };
    let head = head_of(call(cluster, read_head(pool, &object, stripe::WHOLE_MAX))?)?;
    let head = head.ok_or_else(|| {
        snap.map_or_else(|| missing(&object), |snap| snap::missing_at(&object, snap))
    })?;
    let size = stripe::Manifest::of(&head)?.map_or(head.size, |manifest| manifest.size);
    let bar = progress::bytes("reading", size);
    let result = if file == Path::new("-") {
        let mut sink = io::stdout().lock();
        let result = stripe::rest_of(cluster, pool, &object, &head, &mut sink, &mut |bytes| {
            bar.inc(bytes)
        });
        result.and_then(|()| sink.flush().context("writing what was read"))
    } else {
        into_file(file, |sink| {
            stripe::rest_of(cluster, pool, &object, &head, sink, &mut |bytes| {
                bar.inc(bytes)
            })
        })
    };
    bar.finish_and_clear();
    result.with_context(|| format!("reading {object}"))?;
    let quiet = file == Path::new("-") || !out.json();
    if quiet {
        Ok(())
    } else {
        out.value(&json!({ "object": object.to_string(), "bytes": size }))
    }
}

/// Fills a file that appears under its name only when it is complete: a failed read does not
/// destroy an existing file.
fn into_file(file: &Path, fill: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    if file
        .symlink_metadata()
        .is_ok_and(|meta| !meta.is_file() && !meta.is_symlink())
    {
        // A pipe or a device cannot be renamed later.
        let mut sink = BufWriter::new(
            File::create(file).with_context(|| format!("writing {}", file.display()))?,
        );
        fill(&mut sink)?;
        return sink
            .flush()
            .with_context(|| format!("writing {}", file.display()));
    }
    let mut part = file.as_os_str().to_owned();
    part.push(format!(".{}.part", std::process::id()));
    let part = PathBuf::from(part);
    let write = || -> Result<()> {
        let mut sink = BufWriter::new(
            File::create(&part).with_context(|| format!("writing {}", part.display()))?,
        );
        fill(&mut sink)?;
        sink.flush()
            .with_context(|| format!("writing {}", part.display()))?;
        std::fs::rename(&part, file).with_context(|| format!("writing {}", file.display()))
    };
    write().inspect_err(|_| {
        // It may never have been created; report the first error.
        let _ = std::fs::remove_file(&part);
    })
}

fn ls(
    pool: &str,
    namespace: &[u8],
    prefix: &[u8],
    cluster: &mut dyn Session,
    out: &mut Out,
) -> Result<()> {
    let pool = pool_id(cluster, pool)?;
    let mut names = BTreeSet::new();
    list::objects(cluster, pool, &mut |object| {
        if object.namespace.as_bytes() == namespace && object.name.as_bytes().starts_with(prefix) {
            names.insert(object.name);
        }
        Ok(())
    })?;
    if out.json() {
        return out.value(&names.iter().map(Name::to_string).collect());
    }
    names
        .iter()
        .try_for_each(|name| out.line(&name.to_string()))
}

fn stat(target: &Target, cluster: &mut dyn Session, out: &mut Out) -> Result<()> {
    let pool = pool_id(cluster, &target.pool)?;
    let object = target.object()?;
    let head =
        head_of(call(cluster, read_head(pool, &object, 0))?)?.ok_or_else(|| missing(&object))?;
    let manifest = stripe::Manifest::of(&head)?;
    let size = manifest.map_or(head.size, |manifest| manifest.size);
    let pieces = manifest.map_or(1, |manifest| manifest.pieces());
    let attrs: Vec<&Name> = head.attrs.keys().collect();
    if out.json() {
        let attrs: Vec<String> = attrs.iter().map(ToString::to_string).collect();
        return out.value(&json!({
            "object": object.to_string(), "size": size, "pieces": pieces, "version": head.version.to_string(), "attrs": attrs,
        }));
    }
    out.line(&format!(
        "{object}: {size} bytes ({}), version {}",
        shown_bytes(size),
        head.version
    ))?;
    if let Some(manifest) = manifest {
        out.line(&format!(
            "  in {pieces} pieces of {}",
            shown_bytes(manifest.unit)
        ))?;
    }
    attrs
        .iter()
        .try_for_each(|name| out.line(&format!("  attribute {name}")))
}

/// The location of an object, according to the monitors.
///
/// # Errors
/// When the pool does not exist.
pub fn locate(cluster: &mut dyn Commands, pool: &str, object: &ObjectId) -> Result<Value> {
    let plain = |name: &Name| {
        let text = std::str::from_utf8(name.as_bytes()).map(str::to_owned);
        text.with_context(|| format!("{name} is not UTF-8, and the monitors are asked in JSON"))
    };
    cluster.command(&MonCommand::PgMap(PgMap {
        pool: pool.to_owned(),
        object: plain(&object.name)?,
        namespace: Some(plain(&object.namespace)?),
        key: None,
    }))
}

fn whereabouts(target: &Target, cluster: &mut dyn Session, out: &mut Out) -> Result<()> {
    let pool = pool_id(cluster, &target.pool)?;
    let object = target.object()?;
    let head = head_of(call(cluster, read_head(pool, &object, 0))?)?;
    let manifest = head
        .as_ref()
        .map(stripe::Manifest::of)
        .transpose()?
        .flatten();
    let mut objects = vec![object.clone()];
    objects.extend(
        manifest.iter().flat_map(|manifest| {
            (0..manifest.pieces()).map(|index| manifest.piece(&object, index))
        }),
    );
    let mut places = Vec::new();
    for part in &objects {
        let mut place = locate(cluster, &target.pool, part)?;
        place["object"] = json!(part.to_string());
        places.push(place);
    }
    if out.json() {
        return out.value(&json!({ "exists": head.is_some(), "places": places }));
    }
    if head.is_none() {
        out.line(&format!(
            "{object} does not exist; this is where it would be"
        ))?;
    }
    let columns = [
        ("OBJECT", "object"),
        ("PG", "pg"),
        ("ACTING", "acting"),
        ("PRIMARY", "primary"),
    ];
    out.bytes(crate::table::table(&columns, &places).as_bytes())
}

fn import(pool: &str, dir: &Path, cluster: &mut dyn Session, out: &mut Out) -> Result<()> {
    let id = pool_id(cluster, pool)?;
    let paths = tree::walk(dir)?;
    let sizes = paths
        .iter()
        .filter_map(|path| dir.join(path).symlink_metadata().ok())
        .filter(std::fs::Metadata::is_file);
    let bar = progress::bytes("importing", sizes.map(|meta| meta.len()).sum());
    let begun = std::time::Instant::now();
    let result = tree::import(cluster, id, dir, &paths, &mut |bytes| bar.inc(bytes));
    bar.finish_and_clear();
    let (moved, _) = result?;
    say_moved(&moved, "imported", begun.elapsed(), out)
}

fn export(pool: &str, dir: &Path, cluster: &mut dyn Session, out: &mut Out) -> Result<()> {
    let id = pool_id(cluster, pool)?;
    let bar = progress::bytes("exporting", 0);
    let begun = std::time::Instant::now();
    let result = tree::export(cluster, id, dir, &mut |bytes| {
        bar.inc_length(bytes);
        bar.inc(bytes);
    });
    bar.finish_and_clear();
    say_moved(&result?, "exported", begun.elapsed(), out)
}

fn say_moved(
    moved: &tree::Moved,
    verb: &str,
    took: std::time::Duration,
    out: &mut Out,
) -> Result<()> {
    let seconds = took.as_secs_f64();
    if out.json() {
        let tree::Moved {
            objects,
            bytes,
            failed,
        } = moved;
        out.value(
            &json!({ "objects": objects, "bytes": bytes, "seconds": seconds, "failed": failed }),
        )?;
    } else {
        let (objects, bytes) = (moved.objects, shown_bytes(moved.bytes));
        out.line(&format!(
            "{verb} {objects} objects, {bytes} in {seconds:.1} s"
        ))?;
    }
    out.finish()?;
    moved.complete(verb)
}

fn xattr(command: Xattr, cluster: &mut dyn Session, out: &mut Out) -> Result<()> {
    let named = |attr: &OsString| -> Result<Name> {
        if attr.as_bytes().starts_with(stripe::RESERVED.as_bytes()) {
            bail!(
                "attributes that begin with `{}` are Nacre's own",
                stripe::RESERVED
            );
        }
        Ok(Name::copy(attr.as_bytes()))
    };
    let (target, op) = match &command {
        Xattr::Ls(target) => (target, SubOp::ListAttrs {}),
        Xattr::Get { target, attr } => (
            target,
            SubOp::GetAttr {
                name: Name::copy(attr.as_bytes()),
            },
        ),
        Xattr::Set {
            target,
            attr,
            value,
        } => (
            target,
            SubOp::SetAttr {
                name: named(attr)?,
                value: Bytes::copy_from_slice(value.as_bytes()),
            },
        ),
        Xattr::Rm { target, attr } => (target, SubOp::RemoveAttr { name: named(attr)? }),
    };
    let changes = op.is_write();
    let reply = one(target, op, cluster)?;
    show_entries(reply, changes, out)
}

fn omap(command: Omap, cluster: &mut dyn Session, out: &mut Out) -> Result<()> {
    let bytes = |text: &OsString| Bytes::copy_from_slice(text.as_bytes());
    let (target, op) = match &command {
        Omap::Ls(target) => return omap_ls(target, cluster, out),
        Omap::Get { target, key } => {
            let reply = one(
                target,
                SubOp::OmapGet {
                    keys: vec![bytes(key)],
                },
                cluster,
            )?;
            let SubReply::Entries { entries, .. } = reply else {
                bail!("the answer is no list of entries")
            };
            let Some((_, value)) = entries.into_iter().next() else {
                bail!(
                    "there is no key {}; `nacre object omap ls` lists them",
                    text(key.as_bytes())
                );
            };
            return show_entries(SubReply::Value { value }, false, out);
        }
        Omap::Set { target, key, value } => (
            target,
            SubOp::OmapSet {
                entries: vec![(bytes(key), bytes(value))],
            },
        ),
        Omap::Rm { target, key } => (
            target,
            SubOp::OmapRemove {
                keys: vec![bytes(key)],
            },
        ),
        Omap::Clear(target) => (target, SubOp::OmapClear {}),
    };
    let reply = one(target, op, cluster)?;
    show_entries(reply, true, out)
}

fn omap_ls(target: &Target, cluster: &mut dyn Session, out: &mut Out) -> Result<()> {
    let (mut after, mut all) = (Bytes::new(), Vec::new());
    loop {
        let SubReply::Entries { entries, more } =
            one(target, SubOp::OmapList { after, limit: 1000 }, cluster)?
        else {
            bail!("the answer is no list of entries");
        };
        after = entries
            .last()
            .map(|(key, _)| key.clone())
            .unwrap_or_default();
        let ends = !more || entries.is_empty();
        all.extend(entries);
        if ends {
            return show_entries(
                SubReply::Entries {
                    entries: all,
                    more: false,
                },
                false,
                out,
            );
        }
    }
}

/// Runs an operation of one part.
fn one(target: &Target, op: SubOp, cluster: &mut dyn Session) -> Result<SubReply> {
    let pool = pool_id(cluster, &target.pool)?;
    let object = target.object()?;
    let done = found(
        call(
            cluster,
            operation(pool, object.clone(), vec![op], Payload::new()),
        )?,
        &object,
    )?;
    done.results
        .into_iter()
        .next()
        .context("the answer has no part: is a daemon of another version?")
}

fn show_entries(reply: SubReply, changed: bool, out: &mut Out) -> Result<()> {
    match reply {
        _ if changed => {
            if out.json() {
                out.value(&json!({ "done": true }))
            } else {
                Ok(())
            }
        }
        SubReply::Value { value } if out.json() => out.value(&json!({ "value": text(&value) })),
        SubReply::Value { value } => out.bytes(&value),
        SubReply::Entries { entries, .. } if out.json() => {
            let entry =
                |(key, value): &(Bytes, Bytes)| json!({ "name": text(key), "value": text(value) });
            out.value(&entries.iter().map(entry).collect())
        }
        SubReply::Entries { entries, .. } => entries
            .iter()
            .try_for_each(|(key, value)| out.line(&format!("{} = {}", text(key), text(value)))),
        other => {
            bail!("the answer has an unexpected part {other:?}: is a daemon of another version?")
        }
    }
}
