//! The commands that the monitors answer, as one type: what they match on, what the command line
//! sends, and what `docs/formats/commands.md` is generated from.
//!
//! ```text
//!  {"command": "osd out", "osd": 3} ─▶ Command::parse ─▶ Command::OsdOut ─▶ the monitors' `match`
//!                                  ◀── Command::to_json ── nacre osd out 3
//! ```
//! * this file: the enum, and which commands change something;
//! * `arguments`: fields of commands that have them in common, or with the command line;
//! * `value`: what a field may be;
//! * `spec`: names, fields and sentences, read from the enum's schema; and what is wrong with a
//!   request;
//! * [`nearest`]: suggestions for a name that was misspelt.
//!
//! To add a command: a variant here, a line in [`Kind::writes`] if it only reads, and an arm of the
//! monitors' `match`, for which the compiler asks. `BLESS=1 cargo test -p nacre-command` updates the document.
//!
//! A variant's comment begins with its sentence in `help`; then come its reply and an example.
#![forbid(unsafe_code)]

mod arguments;
mod nearest;
mod spec;
mod value;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{EnumDiscriminants, VariantArray};

pub use arguments::*;
pub use nearest::nearest;
pub use spec::{Refused, Spec, specs};
pub use value::*;

/// A command, as the monitors take it: a JSON object with its name in the field `command`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, EnumDiscriminants)]
#[strum_discriminants(
    name(Kind),
    derive(VariantArray),
    doc = "Which command, without its fields."
)]
#[serde(tag = "command", deny_unknown_fields)]
pub enum Command {
    /// The cluster at a glance.
    ///
    /// Reply: `cluster`, `epoch`, `digest`, `health` (as in `health`), `mons` {leader, count,
    /// reachable, term}, `osds` {count, up, in}, `pools`, `pgs` {count, by_state}, `data` {objects,
    /// bytes, degraded, misplaced}, `space` {total_bytes, used_bytes}, `flags`, `rejected_requests`
    /// (requests that the leader refused since it leads, by reason).
    ///
    /// `{"command": "status"}` → `{"osds": {"count": 3, "in": 3, "reporting": 3, "up": 3}, "pgs":
    /// {"by_state": {"active+clean": 64}, "count": 64}, …}`
    #[serde(rename = "status")]
    Status {},
    /// What is wrong, one line each.
    ///
    /// Reply: `status` (ok, warn, error), `checks` [{code, severity, summary}].
    ///
    /// `{"command": "health"}` → `{"status": "warn", "checks": [{"code": "OSD_DOWN", "severity":
    /// "warn", "summary": "1 of 3 OSDs are down"}]}`
    ///
    /// Codes: `DEVICE_SLOW`, `FLAGS_SET`, `FS_NO_STANDBY`, `FS_RANK_DOWN`,
    /// `META_PROGRAM_SUSPENDED`, `MON_COUNT`, `MON_DOWN`, `MON_JOINING`, `MON_LEAVING`, `NO_MAP`,
    /// `NO_OSD_UP`, `OBJECT_UNFOUND`, `OSD_CUT_OFF`, `OSD_DOWN`, `OSD_FULL`, `OSD_LOSS_NO_ROOM`,
    /// `OSD_MASS_FAILURE`, `OSD_NEARFULL`, `OSD_OUT_NO_ROOM`, `OSD_PARTED`, `OSD_SILENT`,
    /// `PG_DEGRADED`, `PG_DOWN`, `PG_INACTIVE`, `POOL_FULL`, `POOL_NO_REDUNDANCY`,
    /// `RECOVERY_NO_ROOM`, `SLOW_OPS`, `TOO_FEW_OSDS`.
    #[serde(rename = "health")]
    Health {},
    /// What is wrong, where, and what to do about it: as `health`, each check with `detail` (a
    /// list, at most 50 lines) and `what_to_do`.
    ///
    /// `{"command": "health detail"}` → `{"checks": [{"code": "OSD_DOWN", "detail": ["osd.1 has
    /// been down for 42 s"], "what_to_do": "Start them, …"}], …}`
    #[serde(rename = "health detail")]
    HealthDetail {},
    /// Space.
    ///
    /// Reply: `total_bytes`, `used_bytes`, `available_bytes`, `pools` [as in `pool ls`, with
    /// `objects`, `bytes`, `stored_bytes`, `max_available_bytes`: what can still be written before
    /// OSDs are as full as `mon.full_ratio`, or a quota ends it].
    ///
    /// `{"command": "df"}` → `{"total_bytes": 3298534883328, "used_bytes": 1073741824, …}`
    #[serde(rename = "df")]
    Df {},
    /// What commands there are.
    ///
    /// Reply: `commands` [{command, fields, doc, writes}].
    ///
    /// `{"command": "help", "about": "pool"}` → `{"commands": [{"command": "pool create", …}, …]}`
    #[serde(rename = "help")]
    Help {
        /// How the names begin.
        about: Option<String>,
    },
    /// The cluster map.
    ///
    /// Reply: `cluster`, `epoch`, `digest`, `required_features`, `flags`, `mons`, `osds`, `crush`,
    /// `pools`, `pool_last`, `pgs`, `upmaps`, `fences`, `config`.
    ///
    /// `{"command": "map dump"}` → `{"epoch": 41, "pgs": [{"pg": "1.0", "acting": [2, 0, 1],
    /// "since": 12, …}], …}`
    #[serde(rename = "map dump")]
    MapDump {},
    /// Sets a flag of the cluster.
    ///
    /// Reply: `flags`.
    ///
    /// `{"command": "flag set", "flag": "noout"}` → `{"flags": ["noout"], "epoch": 42}`
    #[serde(rename = "flag set")]
    FlagSet {
        /// Which one.
        flag: Flag,
    },
    /// Clears a flag of the cluster.
    ///
    /// Reply: `flags`.
    ///
    /// `{"command": "flag unset", "flag": "noout"}` → `{"flags": [], "epoch": 43}`
    #[serde(rename = "flag unset")]
    FlagUnset {
        /// Which one.
        flag: Flag,
    },
    /// Ends all instances of a client or OSD up to and including one; a later instance may act. An
    /// OSD whose present instance is fenced is marked down with it.
    ///
    /// Reply: `entity`, `instance`.
    ///
    /// `{"command": "fence add", "entity": "client.7", "instance": 12}` → `{"entity": "client.7",
    /// "instance": 12, "epoch": 44}`
    #[serde(rename = "fence add")]
    FenceAdd(FenceAdd),
    /// Who may no longer act.
    ///
    /// Reply: `fences` [{entity, instance}].
    ///
    /// `{"command": "fence ls"}` → `{"fences": [{"entity": "client.7", "instance": 12}]}`
    #[serde(rename = "fence ls")]
    FenceLs {},
    /// Lifts a fence: the instances that it ended may act again, so nothing must rely on it any
    /// more. A fence that came meanwhile stands. Refused for an OSD that was removed: its fence
    /// keeps its old store out.
    ///
    /// Reply: `entity`, `instance`, `warning`.
    ///
    /// `{"command": "fence rm", "entity": "client.7"}` → `{"entity": "client.7", "instance": 12,
    /// "warning": "…", "epoch": 45}`
    #[serde(rename = "fence rm")]
    FenceRm {
        /// `client.7` or `osd.3`.
        entity: Fenced,
    },
    /// The cluster log's last lines.
    ///
    /// Reply: `lines` [{number, unix_ms, from, severity, text}], oldest first; `next` for `log
    /// watch`. `unix_ms` is null when the leader knew no wall clock.
    ///
    /// `{"command": "log last", "n": 1}` → `{"lines": [{"number": 17, "from": "mon.0", "severity":
    /// "warn", "text": "osd.1 is down: …", "unix_ms": null}], "next": 17}`
    #[serde(rename = "log last")]
    LogLast(LogLast),
    /// The lines after a number: ask again with `next` to follow the log.
    ///
    /// Reply: `lines` (at most 1000), `next`, `no_longer_kept` (lines between that were dropped;
    /// the log keeps 10,000).
    ///
    /// `{"command": "log watch", "since": 17}` → `{"lines": [], "next": 17, "no_longer_kept": 0}`
    #[serde(rename = "log watch")]
    LogWatch {
        /// The number after which lines are wanted.
        since: Whole,
        /// At least this severe.
        severity: Option<Severity>,
    },
    /// Who takes part in consensus.
    ///
    /// Reply: `mons` [{id, address, store, role: leader, follower, catching up, joining, leaving;
    /// reachable}], `leader`, `term`, `reachable`, `majority`.
    ///
    /// `{"command": "mon stat"}` → `{"leader": 0, "majority": 2, "reachable": 3, "term": 4, …}`
    #[serde(rename = "mon stat")]
    MonStat {},
    /// Lets a monitor in: it is told everything first and votes once it has caught up.
    ///
    /// Reply: `id`, `note`.
    ///
    /// `{"command": "mon add", "id": 2, "address": "10.0.0.3:6789", "store": "5e1f00d2c"}` →
    /// `{"id": 2, "note": "…", "epoch": 45}`
    #[serde(rename = "mon add")]
    MonAdd {
        /// Its number.
        id: Mon,
        /// HOST:PORT.
        address: String,
        /// The number that was drawn when its store was made for joining, below 2⁴³: late messages
        /// of a former store under this number do not reach it.
        store: Store,
    },
    /// Removes a monitor: it is `leaving` in `mon stat` until consensus does without it (its own
    /// vote may be needed for that), and must run so long, if it runs. Refused when those that
    /// remain would be no majority.
    ///
    /// Reply: `id`, `left`.
    ///
    /// `{"command": "mon rm", "id": 2}` → `{"id": 2, "left": 2, "epoch": 46}`
    #[serde(rename = "mon rm")]
    MonRm {
        /// Its number.
        id: Mon,
        /// Refused if it has another store by now.
        store: Option<Store>,
    },
    /// Makes the pool for sources (`nacre.programs`), if there is none.
    ///
    /// Reply: `pool`.
    ///
    /// `{"command": "program prepare", "kind": "class", "client": "admin"}` → `{"pool":
    /// "nacre.programs", "epoch": 12}`
    #[serde(rename = "program prepare")]
    ProgramPrepare {
        /// What is to be installed.
        kind: Program,
        /// The sender.
        client: Option<String>,
    },
    /// Checks a source that was stored as object `KIND/NAME/DIGEST` (BLAKE3, in hex) of that pool,
    /// and makes it a version of a program. What does not compile is refused with script and line.
    /// The same source again is the version it was.
    ///
    /// Reply: `kind`, `name`, `version`, `digest`, `activation`, `unchanged`.
    ///
    /// `{"command": "program install", "kind": "class", "name": "zlog", "source": "…"}` → `{"name":
    /// "zlog", "version": 2, "activation": 17, "epoch": 48}`
    #[serde(rename = "program install")]
    ProgramInstall(ProgramInstall),
    /// Makes another version of a program active, under a new activation number.
    ///
    /// Reply: as above.
    ///
    /// `{"command": "program activate", "kind": "class", "name": "zlog"}` → `{"name": "zlog",
    /// "version": 1, "activation": 18, "epoch": 49}`
    #[serde(rename = "program activate")]
    ProgramActivate(ProgramActivate),
    /// Programs with their versions.
    ///
    /// Reply: `programs` [{kind, name, active, activation, since, versions [{version, digest,
    /// bytes, installed_ms, by}]}].
    ///
    /// `{"command": "program ls"}` → `{"programs": [{"kind": "class", "name": "zlog", "active": 2,
    /// …}]}`
    #[serde(rename = "program ls")]
    ProgramLs {
        /// Only programs of this kind.
        kind: Option<Program>,
    },
    /// A program and its versions.
    ///
    /// Reply: as one of `program ls`.
    ///
    /// `{"command": "program show", "kind": "class", "name": "zlog"}` → `{"name": "zlog", "active":
    /// 2, "activation": 17, …}`
    #[serde(rename = "program show")]
    ProgramShow {
        /// Class or policy.
        kind: Program,
        /// The program.
        name: String,
    },
    /// Removes a program with its past; the sources stay where they are.
    ///
    /// `{"command": "program rm", "kind": "class", "name": "zlog"}` → `{"name": "zlog", "epoch":
    /// 50}`
    #[serde(rename = "program rm")]
    ProgramRm {
        /// Class or policy.
        kind: Program,
        /// The program.
        name: String,
        /// The sender.
        client: Option<String>,
    },
    /// Says what a named client may do with programs.
    ///
    /// `{"command": "client set", "name": "bob", "capabilities": ["call p lock *"]}` → `{"name":
    /// "bob", "capabilities": ["call p lock *"], "epoch": 51}`
    #[serde(rename = "client set")]
    ClientSet {
        /// The client.
        name: String,
        /// `all`, `install class`, `install policy`, `call POOL CLASS METHOD`, `eval POOL`; `*`
        /// stands for any.
        capabilities: Vec<String>,
        /// The sender.
        client: Option<String>,
    },
    /// The client is one of the unknown again: it may call what is installed (`admin` may do
    /// everything).
    ///
    /// `{"command": "client rm", "name": "bob"}` → `{"name": "bob", "epoch": 52}`
    #[serde(rename = "client rm")]
    ClientRm {
        /// The client.
        name: String,
        /// The sender.
        client: Option<String>,
    },
    /// Clients that the map names.
    ///
    /// Reply: `clients` [{name, capabilities}].
    ///
    /// `{"command": "client ls"}` → `{"clients": [{"name": "bob", "capabilities": ["call p lock
    /// *"]}]}`
    #[serde(rename = "client ls")]
    ClientLs {},
    /// OSDs by host.
    ///
    /// Reply: `hosts` [{host, osds [{id, class, weight, up, in, reweight, …}]}], `without_a_place`.
    ///
    /// `{"command": "osd tree"}` → `{"hosts": [{"host": "alpha", "osds": [{"id": 0, "up": true,
    /// …}]}], "without_a_place": []}`
    #[serde(rename = "osd tree")]
    OsdTree {},
    /// Space by OSD.
    ///
    /// Reply: `osds` [{id, up, reweight, total_bytes, used_bytes, used_percent, pgs, reported}].
    ///
    /// `{"command": "osd df"}` → `{"osds": [{"id": 0, "pgs": 64, "used_percent": 12.5, …}]}`
    #[serde(rename = "osd df")]
    OsdDf {},
    /// Gives an OSD data again.
    ///
    /// Reply: `id`, `reweight`.
    ///
    /// `{"command": "osd in", "osd": 3}` → `{"id": 3, "reweight": 1.0, "epoch": 47}`
    #[serde(rename = "osd in")]
    OsdIn(OneOsd),
    /// Takes an OSD's data elsewhere; it stays up and helps.
    ///
    /// Reply: `id`, `reweight`.
    ///
    /// `{"command": "osd out", "osd": 3}` → `{"id": 3, "reweight": 0.0, "epoch": 48}`
    #[serde(rename = "osd out")]
    OsdOut(OneOsd),
    /// Marks an OSD down. One that runs comes back with its next instance.
    ///
    /// Reply: `id`, `up`.
    ///
    /// `{"command": "osd down", "osd": 3}` → `{"id": 3, "up": false, "epoch": 49}`
    #[serde(rename = "osd down")]
    OsdDown(OneOsd),
    /// Sets the share of its CRUSH weight that an OSD takes.
    ///
    /// Reply: `id`, `reweight`.
    ///
    /// `{"command": "osd reweight", "osd": 3, "weight": 0.8}` → `{"id": 3, "reweight": 0.8,
    /// "epoch": 50}`
    #[serde(rename = "osd reweight")]
    OsdReweight(OsdReweight),
    /// Reserves an OSD's id and place before it first starts (an OSD that simply starts is admitted
    /// all the same).
    ///
    /// Reply: `id`, `after_instance` (instances up to this one are fenced: a store that was not
    /// named must begin after it), `note`.
    ///
    /// `{"command": "osd add", "host": "alpha", "class": "ssd"}` → `{"id": 4, "note": "it takes
    /// data as soon as it boots", "epoch": 51}`
    #[serde(rename = "osd add")]
    OsdAdd(OsdAdd),
    /// Forgets an OSD that is gone for good; its last instance is fenced. It must be down and out,
    /// and no group may still need it.
    ///
    /// Reply: `id`, `lost_groups`, `lost` (a sentence: what went with it).
    ///
    /// `{"command": "osd rm", "osd": 3}` → `{"id": 3, "epoch": 52}`
    #[serde(rename = "osd rm")]
    OsdRm {
        /// Which one.
        osd: Osd,
        /// Even if it is in, or a group needs it.
        #[serde(default)]
        force: bool,
        /// Only if that is its store: an order that comes late removes no successor.
        store: Option<Store>,
    },
    /// Whether these OSDs can be stopped without a placement group falling below `min_size`
    /// complete members.
    ///
    /// Reply: `ok`, `answer`, `affected`, `would_stop`, `pgs` (the first 50).
    ///
    /// `{"command": "osd ok-to-stop", "osds": [1, 2]}` → `{"ok": false, "answer": "no: 12 placement
    /// groups would stop serving", …}`
    #[serde(rename = "osd ok-to-stop")]
    OsdOkToStop(OsdOkToStop),
    /// Brings every OSD close to its share of placement groups by exceptions to CRUSH, which keep
    /// what the placement rules promise; moves only the groups it names.
    ///
    /// Reply: `worst_before`, `worst_after` (the largest distance of an OSD from its share, in
    /// groups), `swaps`, `groups` (those that move), `finished` (false: more swaps are of use).
    ///
    /// `{"command": "osd balance", "dry_run": true}` → `{"worst_before": 9.3, "worst_after": 0.6,
    /// "swaps": 41, "groups": ["1.2f", …], "finished": true}`
    #[serde(rename = "osd balance")]
    OsdBalance(OsdBalance),
    /// Placement groups.
    ///
    /// Reply: `pgs` [{pg, state, up, acting, since, objects, bytes, degraded, misplaced, unfound}].
    ///
    /// `{"command": "pg ls", "state": "degraded"}` → `{"pgs": [{"pg": "1.2f", "state":
    /// "active+degraded", …}]}`
    #[serde(rename = "pg ls")]
    PgLs(PgLs),
    /// Where an object is.
    ///
    /// Reply: `pg`, `up`, `acting`, `primary`, `epoch`.
    ///
    /// `{"command": "pg map", "pool": "data", "object": "a"}` → `{"pg": "1.2f", "acting": [2, 0,
    /// 1], "primary": 2, …}`
    #[serde(rename = "pg map")]
    PgMap(PgMap),
    /// One placement group: who acts, what it waits for, why.
    ///
    /// Reply: as in `pg ls`, with `raw`, `temporary`, `activated`, `explanation` (sentences).
    ///
    /// `{"command": "pg explain", "pg": "1.2f"}` → `{"explanation": ["osd.1 should hold a copy but
    /// is down"], …}`
    #[serde(rename = "pg explain")]
    PgExplain {
        /// Such as `1.2f`.
        pg: String,
    },
    /// Pools.
    ///
    /// Reply: `pools` [{id, name, size, min_size, pg_num, pgp_num, rule, quota_bytes,
    /// quota_objects, full, no_delete, created}], `epoch` (of the map that this is of).
    ///
    /// `{"command": "pool ls"}` → `{"pools": [{"id": 1, "name": "data", "size": 3, …}], "epoch":
    /// 17}`
    #[serde(rename = "pool ls")]
    PoolLs {},
    /// Makes a pool. Refused when the rule does not exist or finds places for fewer than `min_size`
    /// replicas (before the first OSD nothing can be said).
    ///
    /// Reply: as in `pool ls`, with `warnings`.
    ///
    /// `{"command": "pool create", "name": "data"}` → `{"id": 1, "pg_num": 64, "size": 3,
    /// "warnings": [], "epoch": 53, …}`
    #[serde(rename = "pool create")]
    PoolCreate(PoolCreate),
    /// Changes a pool.
    ///
    /// Reply: as `pool create`.
    ///
    /// `{"command": "pool set", "name": "data", "key": "min_size", "value": 2}` → `{"min_size": 2,
    /// "epoch": 54, …}`
    #[serde(rename = "pool set")]
    PoolSet(PoolSet),
    /// Removes a pool with everything in it.
    ///
    /// Reply: `id`.
    ///
    /// `{"command": "pool rm", "name": "data", "yes_i_really_mean_it": true}` → `{"id": 1, "epoch":
    /// 55}`
    #[serde(rename = "pool rm")]
    PoolRm {
        /// The pool.
        name: String,
        /// Must be true.
        yes_i_really_mean_it: bool,
    },
    /// Takes a snapshot of a pool: every object's state at the first write after it is kept. At
    /// most 64 exist at one time.
    ///
    /// Reply: `id`.
    ///
    /// `{"command": "pool snap create", "pool": "data", "snap": "monday"}` → `{"id": 1, "epoch":
    /// 56}`
    #[serde(rename = "pool snap create")]
    PoolSnapCreate {
        /// The pool.
        pool: String,
        /// The snapshot's name. Without one the id is the caller's own, for the snapshot contexts
        /// of its operations; a pool has the one kind or the other.
        snap: Option<String>,
    },
    /// Snapshots of a pool.
    ///
    /// Reply: `mode` (unused, named, own), `last`, `live`, `snaps` [{id, name, created}], `removed`
    /// [[first, last]].
    ///
    /// `{"command": "pool snap ls", "pool": "data"}` → `{"mode": "named", "last": 1, "live": 1,
    /// "snaps": [{"id": 1, "name": "monday", "created": 56}], "removed": []}`
    #[serde(rename = "pool snap ls")]
    PoolSnapLs {
        /// The pool.
        pool: String,
    },
    /// Removes a snapshot for good; what only it keeps is trimmed in the background.
    ///
    /// Reply: `id`.
    ///
    /// `{"command": "pool snap rm", "pool": "data", "snap": "monday"}` → `{"id": 1, "epoch": 57}`
    #[serde(rename = "pool snap rm")]
    PoolSnapRm {
        /// The pool.
        pool: String,
        /// A name or an id.
        snap: Text,
    },
    /// What options there are.
    ///
    /// Reply: `options` [{key, default, takes, doc}].
    ///
    /// `{"command": "config help", "key": "mon.full_ratio"}` → `{"options": [{"key":
    /// "mon.full_ratio", "default": "0.95", …}]}`
    #[serde(rename = "config help")]
    ConfigHelp {
        /// Only this option.
        key: Option<String>,
    },
    /// One option's value.
    ///
    /// Reply: `key`, `value`, `default`, `set`.
    ///
    /// `{"command": "config get", "key": "mon.full_ratio"}` → `{"key": "mon.full_ratio", "value":
    /// "0.95", "default": "0.95", "set": false}`
    #[serde(rename = "config get")]
    ConfigGet {
        /// The option.
        key: String,
    },
    /// Sets an option. An unknown name is answered with the three closest.
    ///
    /// Reply: `key`, `value`.
    ///
    /// `{"command": "config set", "key": "mon.full_ratio", "value": "0.9"}` → `{"key":
    /// "mon.full_ratio", "value": "0.9", "epoch": 56}`
    #[serde(rename = "config set")]
    ConfigSet(ConfigSet),
    /// Puts an option back to its default.
    ///
    /// Reply: `key`.
    ///
    /// `{"command": "config rm", "key": "mon.full_ratio"}` → `{"key": "mon.full_ratio", "epoch":
    /// 57}`
    #[serde(rename = "config rm")]
    ConfigRm {
        /// The option.
        key: String,
    },
    /// Every option with its value and default.
    ///
    /// Reply: `options` [as `config get`].
    ///
    /// `{"command": "config dump"}` → `{"options": [{"key": "mon.full_ratio", "value": "0.9", …},
    /// …]}`
    #[serde(rename = "config dump")]
    ConfigDump {},
}

impl Kind {
    /// Whether the command may change something. Such commands are checked as the first request of
    /// their batch, on the latest map; the others once the monitor has proven that it leads. One
    /// that is missing here is proposed needlessly, and still right.
    #[must_use]
    pub fn writes(self) -> bool {
        !matches!(
            self,
            Self::Status
                | Self::Health
                | Self::HealthDetail
                | Self::Df
                | Self::Help
                | Self::MapDump
                | Self::FenceLs
                | Self::LogLast
                | Self::LogWatch
                | Self::MonStat
                | Self::ProgramLs
                | Self::ProgramShow
                | Self::ClientLs
                | Self::OsdTree
                | Self::OsdDf
                | Self::OsdOkToStop
                | Self::PgLs
                | Self::PgMap
                | Self::PgExplain
                | Self::PoolLs
                | Self::PoolSnapLs
                | Self::ConfigHelp
                | Self::ConfigGet
                | Self::ConfigDump
        )
    }
}

impl Command {
    /// Its name, fields and sentence.
    #[must_use]
    pub fn spec(&self) -> &'static Spec {
        &specs()[Kind::from(self) as usize]
    }

    /// Whether it may change something.
    #[must_use]
    pub fn writes(&self) -> bool {
        Kind::from(self).writes()
    }
}
