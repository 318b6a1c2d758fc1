//! `nacre fs …`: file systems.

mod check;
mod claim;
mod clients;
mod popular;
mod quota;
mod ranks;
mod remove;
mod takeover;

use crate::cluster::{Metadata, Place, Session, host};
use crate::object::stripe::random;
use crate::object::{pool_id, pools};
use crate::out::Out;
use crate::table::{Column, table};
use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Subcommand;
use nacre_command::{Command as MonCommand, PoolCreate};
use nacre_types::{Name, PoolId, Rank};
use nacre_wire::Wire as _;
use nacre_wire::fs::registry::{PREFIX, STANDBYS, name_fault};
use nacre_wire::fs::{FsHolder, FsKey, FsSettings, Layout};
use nacre_wire::msg::fs::FsFigures;
use nacre_wire::msg::meta::{MetaOp, MetaPair, MetaSpan, MetaTarget};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

/// Default size of a data object.
const OBJECT_BYTES: u64 = 4 << 20;
/// Replicas of a file system's own pools, if there are enough OSDs.
const COPIES: u64 = 3;

#[derive(Subcommand)]
pub enum Command {
    /// Make a file system. It is served by `nacre up`, or `nacre mds run`; `nacre mount` mounts it.
    Create {
        /// Its name.
        name: String,
        /// The pool of directories and journals [default: NAME.meta, which is made].
        #[arg(long, value_name = "POOL")]
        metadata_pool: Option<String>,
        /// The pool of files' data [default: NAME.data, which is made].
        #[arg(long, value_name = "POOL")]
        data_pool: Option<String>,
        /// Bytes of an object with data, such as 4MiB.
        #[arg(long, value_parser = crate::cluster::members::size, default_value_t = OBJECT_BYTES, hide_default_value = true)]
        object_size: u64,
        /// Bytes that lie together [default: all of an object].
        #[arg(long, value_parser = crate::cluster::members::size)]
        stripe_unit: Option<u64>,
        /// Objects that take turns.
        #[arg(long, default_value_t = 1)]
        stripe_count: u32,
        /// How many servers share it at a time: `nacre fs subtree pin` gives a directory to one.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=ranks::MAX))]
        ranks: u16,
    },
    /// Have more servers share a file system, each a part of its tree. There are never fewer again.
    Ranks {
        /// Which.
        name: String,
        /// How many, all in all.
        #[arg(value_parser = clap::value_parser!(u16).range(1..=ranks::MAX))]
        ranks: u16,
    },
    /// Parts of the tree, and the ranks that have them.
    Subtree {
        #[command(subcommand)]
        command: Subtree,
    },
    /// Bound what may be below a directory.
    Quota {
        #[command(subcommand)]
        command: quota::Quota,
    },
    /// List them.
    Ls,
    /// Prove that all of a file system's objects fit together. While a server has it, it writes its
    /// journal first, and only what is found again counts; on a stopped cluster its daemons run
    /// for as long. Exit code 0: nothing is wrong, or all is repaired; 1: something is; 2: it
    /// could not be checked.
    Check {
        /// Which.
        name: String,
        /// Repair what is wrong. Servers give the file system back for that, and mounts wait: at
        /// least 5 s, and as long as it takes to look at everything once or twice.
        #[arg(long)]
        repair: bool,
        /// Look at the names of data objects only, not at their lengths.
        #[arg(long)]
        quick: bool,
    },
    /// Make a namespace again when directories are lost: a repair that puts what no name leads to
    /// where its objects say that it was, and the rest into /lost+found. It says what is
    /// missing; exit codes as of `check`.
    Rebuild {
        /// Which.
        name: String,
        /// The new pool of directories and journals, if the old one is lost.
        #[arg(long, value_name = "POOL")]
        metadata_pool: Option<String>,
    },
    /// Which directories were asked for of late, with all that is below them: requests a second
    /// that came to the servers. What mounts answer themselves is not in it.
    Popular {
        /// Which file system.
        name: String,
    },
    /// Print every entry of a file system, one JSON object a line.
    Dump {
        /// Which.
        name: String,
    },
    /// Who has it in use: mounts, and programs with the library.
    Clients {
        /// Which.
        name: String,
    },
    /// End a client's session, so that others need not wait for it. What it has not written is
    /// lost; a mount that still runs goes on in a new session, with errors for what was lost.
    Evict {
        /// Of which file system.
        name: String,
        /// Which, as `nacre fs clients` shows it.
        client: String,
    },
    /// Remove a file system with everything in it, and pools called NAME.meta and NAME.data if
    /// nothing else is in them. Nothing may have it in use; its servers wait for others then.
    Rm {
        /// Which.
        name: String,
        /// Confirms that everything in it will be gone.
        #[arg(long)]
        yes_i_really_mean_it: bool,
    },
    /// Which server has which rank, how long a takeover would take, and what is free.
    Status {
        /// Of this file system only.
        name: Option<String>,
    },
}

#[derive(Subcommand)]
pub enum Subtree {
    /// Give an empty directory to a rank: its server has all that is made there from then on. What
    /// has the directory open, or is in it, opens it again.
    Pin {
        /// Of which file system.
        name: String,
        /// The directory's path in it.
        path: String,
        /// Which rank, as `nacre fs status` shows them.
        rank: u16,
    },
}

/// Runs the command.
///
/// # Errors
/// The problem, and the recommended action.
pub fn run(command: &Command, place: &Place, out: &mut Out) -> Result<ExitCode> {
    if let Command::Check {
        name,
        repair,
        quick,
    } = command
    {
        let how = check::How {
            repair: *repair,
            quick: *quick,
            ..check::How::default()
        };
        return check::run(name, &how, place, out);
    }
    if let Command::Rebuild {
        name,
        metadata_pool,
    } = command
    {
        let how = check::How {
            repair: true,
            rebuild: true,
            new_pool: metadata_pool.clone(),
            ..check::How::default()
        };
        return check::run(name, &how, place, out);
    }
    answer(command, place, out).map(|()| ExitCode::SUCCESS)
}

fn answer(command: &Command, place: &Place, out: &mut Out) -> Result<()> {
    match command {
        Command::Check { .. } | Command::Rebuild { .. } => {
            unreachable!("they have exit codes of their own")
        }
        Command::Dump { name } => check::dump(name, place, out),
        Command::Clients { name } => clients::list(name, place, out),
        Command::Evict { name, client } => clients::evict(name, client, place, out),
        Command::Rm {
            name,
            yes_i_really_mean_it,
        } => {
            ensure!(
                *yes_i_really_mean_it,
                "this removes {name} with everything in it, for good; say --yes-i-really-mean-it if you do"
            );
            remove::run(name, place, out)
        }
        Command::Ranks { name, ranks } => ranks::grow(name, *ranks, place, out),
        Command::Quota { command } => quota::run(command, place, out),
        Command::Subtree {
            command: Subtree::Pin { name, path, rank },
        } => ranks::pin(name, path, *rank, place, out),
        Command::Create {
            name,
            metadata_pool,
            data_pool,
            object_size,
            stripe_unit,
            stripe_count,
            ranks,
        } => {
            if let Some(fault) = name_fault(name) {
                bail!("{name}: {fault}");
            }
            let bytes = |what: &str, bytes: u64| {
                u32::try_from(bytes).map_err(|_| anyhow!("{what} is too large"))
            };
            let object = bytes("--object-size", *object_size)?;
            let unit = stripe_unit.map_or(Ok(object), |unit| bytes("--stripe-unit", unit))?;
            let layout = Layout {
                pool: PoolId(0),
                unit,
                count: *stripe_count,
                object,
            };
            if let Some(fault) = layout.fault() {
                bail!("{fault}");
            }
            let mut session = place.connect_for_files()?;
            ensure!(
                session.metadata()?.get(&key(name))?.is_none(),
                "there is a file system {name} already; `nacre fs ls` shows it"
            );
            let mut own = |given: &Option<String>, kind: &str| match given {
                Some(pool) => pool_id(&mut *session, pool),
                None => own_pool(&mut *session, &format!("{name}.{kind}")),
            };
            let pool = own(metadata_pool, "meta")?;
            let layout = Layout {
                pool: own(data_pool, "data")?,
                ..layout
            };
            create(&mut *session, name, (pool, layout, *ranks))?;
            if out.json() {
                return out.value(&json!({ "name": name }));
            }
            out.line(&format!(
                "made file system {name}; `nacre mount --fs {name} DIR` mounts it"
            ))
        }
        Command::Ls => {
            let rows: Vec<Value> = all(&mut *place.metadata()?)?
                .iter()
                .map(|(name, one)| one.row(name))
                .collect();
            if out.json() {
                return out.value(&Value::Array(rows));
            }
            out.bytes(table(FILE_SYSTEMS, &rows).as_bytes())
        }
        Command::Popular { name } => {
            let rows = popular::rows(&one(name, &mut *place.metadata()?)?, place)?;
            if out.json() {
                return out.value(&Value::Array(rows));
            }
            out.bytes(table(popular::COLUMNS, &rows).as_bytes())
        }
        Command::Status { name } => {
            let mut session = place.connect()?;
            let mut metadata = session.metadata()?;
            let mut all = all(&mut *metadata)?;
            if let Some(name) = name {
                all = BTreeMap::from([(Name::from(&**name), take(name, &mut all)?)]);
            }
            let standbys = metadata
                .list(MetaSpan::Prefix {
                    prefix: STANDBYS.into(),
                })?
                .0
                .len();
            let rooms = takeover::rooms(&mut *session);
            let mut rows: Vec<Value> = Vec::new();
            for (name, one) in &all {
                let mut ranks = one.ranks(name);
                for row in &mut ranks {
                    row["free_bytes"] = json!(rooms.get(&one.settings.layout.pool));
                }
                takeover::add(&mut ranks, one, standbys, place);
                rows.append(&mut ranks);
            }
            if out.json() {
                return out.value(&Value::Array(rows));
            }
            out.bytes(table(RANKS, &rows).as_bytes())
        }
    }
}

/// The names of all file systems.
///
/// # Errors
/// The cluster does not answer.
pub fn names(place: &Place) -> Result<Vec<String>> {
    Ok(all(&mut *place.metadata()?)?
        .keys()
        .map(Name::to_string)
        .collect())
}

/// Makes a file system as `nacre fs create NAME` does.
///
/// # Errors
/// There is one of that name; problems of the cluster.
pub fn make_plain(place: &Place, name: &str) -> Result<()> {
    let mut session = place.connect_for_files()?;
    let pool = own_pool(&mut *session, &format!("{name}.meta"))?;
    let data = own_pool(&mut *session, &format!("{name}.data"))?;
    let object = u32::try_from(OBJECT_BYTES).expect("4 MiB");
    let layout = Layout {
        pool: data,
        unit: object,
        count: 1,
        object,
    };
    create(&mut *session, name, (pool, layout, 1))
}

/// The name of the only file system.
///
/// # Errors
/// There is none, or there are several.
pub fn only_one(place: &Place) -> Result<String> {
    match &names(place)?[..] {
        [one] => Ok(one.clone()),
        [] => bail!("there is no file system yet; `nacre fs create NAME` makes one"),
        several => bail!(
            "which file system? --fs says it; there are {}",
            several.join(", ")
        ),
    }
}

const FILE_SYSTEMS: &[Column] = &[
    ("NAME", "name"),
    ("METADATA POOL", "metadata_pool"),
    ("DATA POOL", "data_pool"),
    ("RANKS", "ranks"),
    ("SERVED", "served"),
];
const RANKS: &[Column] = &[
    ("NAME", "name"),
    ("RANK", "rank"),
    ("STATE", "state"),
    ("SERVER", "server"),
    ("ADDRESS", "address"),
    ("STANDBY", "standby"),
    ("CLIENTS", "clients"),
    ("JOURNAL", "journal_bytes"),
    ("TAKEOVER", "takeover"),
    ("FREE", "free_bytes"),
];

fn key(name: &str) -> String {
    FsKey::Settings.of(&name.into()).to_string()
}

/// The description of this command in `nacre fs clients`.
fn about() -> String {
    format!("process {}", std::process::id())
}

/// A pool of the file system, created if it does not exist.
fn own_pool(session: &mut dyn Session, name: &str) -> Result<PoolId> {
    if let Some((_, id)) = pools(session)?.into_iter().find(|(known, _)| known == name) {
        return Ok(id);
    }
    let status = session.command(&MonCommand::Status {})?;
    let size = status["osds"]["up"]
        .as_u64()
        .unwrap_or(COPIES)
        .clamp(1, COPIES);
    let made = PoolCreate::replicated(name, size, size.min(2));
    let reply = session
        .command(&MonCommand::PoolCreate(made))
        .with_context(|| format!("making pool {name}"))?;
    if let Some(epoch) = reply["epoch"].as_u64() {
        session.map_at_least(epoch)?;
    }
    pool_id(session, name)
}

/// Creates the first objects, then the settings: a file system with settings is complete.
fn create(
    session: &mut dyn Session,
    name: &str,
    (pool, layout, ranks): (PoolId, Layout, u16),
) -> Result<()> {
    // Namespaces are never shared, not even with a removed file system that has left objects.
    let namespace = Name::from(&*format!("{name}.{:08x}", random()?));
    let settings = FsSettings {
        namespace,
        pool,
        layout,
        ranks,
    };
    ranks::make(session, &settings, 0)?;
    let key = FsKey::Settings.of(&name.into());
    let compares = vec![claim::is(key.clone(), MetaTarget::Version { number: 0 })];
    let then = vec![MetaOp::Put {
        key,
        value: settings.to_bytes().into(),
        lease: 0,
    }];
    ensure!(
        session.metadata()?.transact(compares, then)?,
        "another command has just made a file system {name}; `nacre fs ls` shows it"
    );
    Ok(())
}

/// A file system according to the metadata.
struct Shown {
    settings: FsSettings,
    holders: BTreeMap<u16, FsHolder>,
    /// The standby that follows each rank's journal.
    followers: BTreeMap<u16, FsHolder>,
}

/// A server that does not answer within that time may be about to be replaced: the other figures
/// are shown.
const WAIT: Duration = Duration::from_secs(2);

impl Shown {
    /// Figures of the servers of its ranks that answer.
    fn figures(&self, place: &Place) -> Result<BTreeMap<Rank, FsFigures>> {
        let holders = self
            .holders
            .iter()
            .map(|(rank, holder)| (Rank(*rank), holder.clone()))
            .collect();
        host::figures(place, holders, WAIT)
    }
    fn row(&self, name: &Name) -> Value {
        let Self {
            settings, holders, ..
        } = self;
        let FsSettings {
            pool,
            layout,
            ranks,
            ..
        } = settings;
        let served = format!("{} of {ranks}", holders.len());
        json!({
            "name": name.to_string(), "metadata_pool": pool.0, "data_pool": layout.pool.0, "ranks": ranks, "served": served,
            "object_bytes": layout.object, "stripe_unit_bytes": layout.unit, "stripe_count": layout.count,
        })
    }
    fn ranks(&self, name: &Name) -> Vec<Value> {
        let row = |rank: u16| match self.holders.get(&rank) {
            Some(holder) => json!({
                "name": name.to_string(), "rank": rank, "state": "served", "server": holder.name.to_string(),
                "address": holder.address.0, "client": holder.client().to_string(),
            }),
            None => json!({ "name": name.to_string(), "rank": rank, "state": "no server" }),
        };
        let mut rows: Vec<Value> = (0..self.settings.ranks).map(row).collect();
        for (rank, standby) in &self.followers {
            if let Some(row) = rows.get_mut(usize::from(*rank)) {
                row["standby"] = json!(standby.name.to_string());
            }
        }
        rows
    }
}

/// The file system of that name.
fn one(name: &str, metadata: &mut dyn Metadata) -> Result<Shown> {
    take(name, &mut all(metadata)?)
}
/// Takes it from the list of all.
fn take(name: &str, all: &mut BTreeMap<Name, Shown>) -> Result<Shown> {
    let known = all.remove(&Name::from(name));
    known.with_context(|| {
        format!("there is no file system {name}; `nacre fs ls` shows which there are")
    })
}

/// All file systems.
fn all(metadata: &mut dyn Metadata) -> Result<BTreeMap<Name, Shown>> {
    let (pairs, _) = metadata.list(MetaSpan::Prefix {
        prefix: PREFIX.into(),
    })?;
    let mut all = BTreeMap::new();
    let read = |pair: &MetaPair| -> Result<()> {
        let what = |_| {
            anyhow!(
                "{} has a value of another version: is this program older than the servers?",
                pair.key
            )
        };
        match FsKey::parse(&pair.key) {
            Some((name, FsKey::Settings)) => {
                let settings = FsSettings::from_bytes(&pair.value).map_err(what)?;
                all.insert(
                    name,
                    Shown {
                        settings,
                        holders: BTreeMap::new(),
                        followers: BTreeMap::new(),
                    },
                );
            }
            Some((name, FsKey::Rank(rank))) => {
                let holder = FsHolder::from_bytes(&pair.value).map_err(what)?;
                // Keys are in order: the settings come first.
                if let Some(shown) = all.get_mut(&name) {
                    shown.holders.insert(rank.0, holder);
                }
            }
            _ => {}
        }
        Ok(())
    };
    pairs.iter().try_for_each(read)?;
    for ((name, rank), standby) in nacre_mds::followers(&pairs) {
        if let Some(shown) = all.get_mut(&name) {
            shown.followers.insert(rank.0, standby);
        }
    }
    Ok(all)
}
