//! Execution of each [`Command`] by the monitors: it returns a JSON object or one sentence.
//!
//! ```text
//!  Command::OsdOut ─▶ run(view, command) ─▶ Done { reply, changes, lines } or a sentence
//! ```
//! A read-only command runs once this monitor has proven that it leads. A command that writes is
//! checked as the first request of its batch, so on the latest map.

mod balance;
mod cluster;
mod config;
mod mons;
mod osd;
mod pg;
mod pool;
mod program;
mod snap;

use nacre_command::{Command, Osd};
use nacre_policy::Patience;
use nacre_types::{MonId, OsdId, PoolId, Time};
use nacre_wire::map::{Change, ClusterMap, Pool};
use nacre_wire::msg::monitor::Severity;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::failure::Parted;
use crate::meta::overruns::Overruns;
use crate::ranks::Ranks;
use crate::state::State;
use crate::stats::Stats;

/// Members of consensus, as the leader sees them.
#[derive(Clone, Debug, Default)]
pub struct Quorum {
    /// The leader.
    pub leader: Option<MonId>,
    /// Its term.
    pub term: u64,
    /// Voters.
    pub voters: Vec<MonId>,
    /// Learners.
    pub learners: Vec<MonId>,
    /// Voters heard from recently, including this monitor.
    pub reachable: Vec<MonId>,
}

impl Quorum {
    /// Whether a monitor of that number is a voter or a learner.
    pub fn takes_part(&self, mon: MonId) -> bool {
        self.voters.contains(&mon) || self.learners.contains(&mon)
    }
}

/// The state that a command reads.
pub struct View<'a> {
    /// Now.
    pub now: Time,
    /// How long this monitor has been awake: the clock of beacons.
    pub awake: Time,
    /// The monitor that answers.
    pub me: MonId,
    /// Its term.
    pub term: u64,
    /// The replicated state.
    pub state: &'a State,
    /// Statistics reported by OSDs.
    pub stats: &'a Stats,
    /// Reporters that are ignored as cut off.
    pub suspects: &'a BTreeSet<OsdId>,
    /// Pairs of OSDs of which one does not hear the other, though others do.
    pub parted: &'a BTreeSet<Parted>,
    /// OSDs that were marked down for that, with the time until they may come up.
    pub held: Vec<(OsdId, Duration)>,
    /// OSDs that count as up but have been silent, with the duration.
    pub silent: Vec<(OsdId, Duration)>,
    /// Refusals by reason.
    pub rejects: &'a BTreeMap<&'static str, u64>,
    /// Since when OSDs have been down, on this monitor's clock.
    pub outages: &'a BTreeMap<OsdId, crate::osds::Outage>,
    /// Metadata programs stopped by the clock.
    pub overruns: &'a Overruns,
    /// Since when ranks of file systems have had no server.
    pub ranks: &'a Ranks,
    /// The monitors.
    pub quorum: Quorum,
    /// The host's clock for the time limit of one request.
    pub clock: Option<Arc<dyn Patience>>,
}
impl View<'_> {
    /// The committed map.
    #[must_use]
    pub fn map(&self) -> &ClusterMap {
        self.state.map()
    }
}

/// The result of a command.
#[derive(Clone, Debug, Default)]
pub struct Done {
    /// For its sender, with the epoch of its changes added.
    pub reply: Value,
    /// To be proposed.
    pub changes: Vec<Change>,
    /// For the cluster log.
    pub lines: Vec<(Severity, String)>,
}

fn read(reply: Value) -> Result<Done, String> {
    Ok(Done {
        reply,
        ..Done::default()
    })
}
fn change(reply: Value, changes: Vec<Change>, said: String) -> Result<Done, String> {
    Ok(Done {
        reply,
        changes,
        lines: vec![(Severity::Info {}, said)],
    })
}

/// Runs a command. Every command has an arm: the compiler asks for it.
///
/// # Errors
/// One human-readable sentence.
pub fn run(view: &View<'_>, command: &Command) -> Result<Done, String> {
    match command {
        Command::Status {} => cluster::status(view),
        Command::Health {} => cluster::health(view, false),
        Command::HealthDetail {} => cluster::health(view, true),
        Command::Df {} => cluster::df(view),
        Command::Help { about } => cluster::help(about.as_deref().unwrap_or_default()),
        Command::MapDump {} => cluster::map_dump(view),
        Command::FlagSet { flag } => cluster::flag(view, *flag, true),
        Command::FlagUnset { flag } => cluster::flag(view, *flag, false),
        Command::FenceAdd(fence) => cluster::fence_add(view, fence),
        Command::FenceLs {} => cluster::fence_ls(view),
        Command::FenceRm { entity } => cluster::fence_rm(view, entity.0),
        Command::LogLast(last) => cluster::log_last(view, last),
        Command::LogWatch { since, severity } => cluster::log_watch(view, since.0, *severity),
        Command::MonStat {} => mons::stat(view),
        Command::MonAdd { id, address, store } => mons::add(view, id.0, address, *store),
        Command::MonRm { id, store } => mons::rm(view, id.0, *store),
        Command::ProgramPrepare { kind, client } => program::prepare(view, *kind, client),
        Command::ProgramInstall(install) => program::install_stored(view, install),
        Command::ProgramActivate(_)
        | Command::ProgramLs { .. }
        | Command::ProgramShow { .. }
        | Command::ProgramRm { .. } => run_program(view.map(), command),
        Command::ClientSet {
            name,
            capabilities,
            client,
        } => program::client_set(view, name, capabilities, client),
        Command::ClientRm { name, client } => program::client_rm(view, name, client),
        Command::ClientLs {} => program::client_ls(view),
        Command::OsdTree {} => osd::tree(view),
        Command::OsdDf {} => osd::df(view),
        Command::OsdIn(one) => osd::in_(view, one.osd),
        Command::OsdOut(one) => osd::out(view, one.osd),
        Command::OsdDown(one) => osd::down(view, one.osd),
        Command::OsdReweight(weigh) => osd::reweight(view, weigh),
        Command::OsdAdd(wish) => osd::add(view, wish),
        Command::OsdRm { osd, force, store } => osd::rm(view, *osd, *force, *store),
        Command::OsdOkToStop(stop) => osd::ok_to_stop(view, &stop.osds),
        Command::OsdBalance(wish) => balance::balance(view, wish),
        Command::PgLs(only) => pg::ls(view, only),
        Command::PgMap(object) => pg::map(view, object),
        Command::PgExplain { pg } => pg::explain(view, pg),
        Command::PoolLs {} => pool::ls(view),
        Command::PoolCreate(wish) => pool::create(view, wish),
        Command::PoolSet(set) => pool::set(view, set),
        Command::PoolRm {
            name,
            yes_i_really_mean_it,
        } => pool::rm(view, name, *yes_i_really_mean_it),
        Command::PoolSnapCreate { pool, snap } => snap::create(view, pool, snap.as_deref()),
        Command::PoolSnapLs { pool } => snap::ls(view, pool),
        Command::PoolSnapRm { pool, snap } => snap::rm(view, pool, &snap.0),
        Command::ConfigHelp { key } => config::help(key.as_deref()),
        Command::ConfigGet { key } => config::get(view, key),
        Command::ConfigSet(set) => config::set(view, &set.key, &set.value.0),
        Command::ConfigRm { key } => config::rm(view, key),
        Command::ConfigDump {} => config::dump(view),
    }
}

/// Runs `program ls`, `show`, `install`, `activate` or `rm` on a map that no monitor keeps: the
/// registry of an external engine. The engine stores the sources itself.
///
/// # Errors
/// One human-readable sentence, as for [`run`].
pub fn run_program(map: &ClusterMap, command: &Command) -> Result<Done, String> {
    match command {
        Command::ProgramLs { kind } => program::ls(map, *kind),
        Command::ProgramShow { kind, name } => program::show(map, *kind, name),
        Command::ProgramInstall(install) => program::install(map, install, None),
        Command::ProgramActivate(wish) => program::activate(map, wish),
        Command::ProgramRm { kind, name, client } => program::rm(map, *kind, name, client),
        other => Err(format!(
            "`{}` is not a command about programs",
            other.spec().name
        )),
    }
}

fn find_pool<'v>(view: &'v View<'_>, name: &str) -> Result<(PoolId, &'v Pool), String> {
    view.map().pool_named(&name.into()).ok_or_else(|| {
        let names: Vec<String> = view
            .map()
            .pools
            .values()
            .map(|pool| pool.name.to_string())
            .collect();
        let names = if names.is_empty() {
            "there are none".to_owned()
        } else {
            format!("there are {}", names.join(", "))
        };
        format!("there is no pool {name}; {names}")
    })
}

fn find_osd(view: &View<'_>, osd: Osd) -> Result<OsdId, String> {
    match view.map().osds.contains_key(&osd.0) {
        true => Ok(osd.0),
        false => Err(format!("there is no {}; `osd tree` lists them", osd.0)),
    }
}
