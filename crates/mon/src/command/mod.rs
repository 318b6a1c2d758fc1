//! Commands: a JSON object in, a JSON object or one sentence out. `docs/formats/commands.md` lists
//! them.
//!
//! ```text
//!  {"command": "osd out", "osd": 3} ─▶ parse ─▶ spec ─▶ run(view, fields) ─▶ Done { reply, changes, lines } or a sentence
//! ```
//! A command that reads is run once this monitor has proven that it leads; one that writes is
//! checked as the first request of its batch, so on the latest map there is. Unknown commands and
//! fields are errors that name what is known: a misspelt field must not be silently ignored.

mod balance;
mod cluster;
mod config;
mod mons;
mod osd;
mod pg;
mod pool;
mod program;
mod snap;

use nacre_policy::Patience;
use nacre_types::{MonId, OsdId, PoolId, Time};
use nacre_wire::map::{Change, ClusterMap, Pool};
use nacre_wire::msg::monitor::Severity;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::failure::Parted;
use crate::leader::Ask;
use crate::meta::overruns::Overruns;
use crate::nearest::nearest;
use crate::ranks::Ranks;
use crate::state::State;
use crate::stats::Stats;

/// Who takes part in consensus, as the leader sees it.
#[derive(Clone, Debug, Default)]
pub struct Quorum {
    /// Who leads.
    pub leader: Option<MonId>,
    /// In which term.
    pub term: u64,
    /// Who votes.
    pub voters: Vec<MonId>,
    /// Who only follows.
    pub learners: Vec<MonId>,
    /// Voters heard of lately, this one included.
    pub reachable: Vec<MonId>,
}

impl Quorum {
    /// Whether a monitor of that number votes or follows.
    pub fn takes_part(&self, mon: MonId) -> bool {
        self.voters.contains(&mon) || self.learners.contains(&mon)
    }
}

/// What a command sees.
pub struct View<'a> {
    /// Now.
    pub now: Time,
    /// How long this monitor has been awake: beacons are timed by it.
    pub awake: Time,
    /// The monitor that answers.
    pub me: MonId,
    /// In which term.
    pub term: u64,
    /// The replicated state.
    pub state: &'a State,
    /// What OSDs say of themselves.
    pub stats: &'a Stats,
    /// Reporters that are ignored as cut off.
    pub suspects: &'a BTreeSet<OsdId>,
    /// Who does not hear whom, though others do.
    pub parted: &'a BTreeSet<Parted>,
    /// Who was marked down for that, and for how long it is not let up yet.
    pub held: Vec<(OsdId, Duration)>,
    /// OSDs that count as up and have not been heard of for so long.
    pub silent: Vec<(OsdId, Duration)>,
    /// Refusals by reason.
    pub rejects: &'a BTreeMap<&'static str, u64>,
    /// Since when OSDs have been down, on this monitor's clock.
    pub outages: &'a BTreeMap<OsdId, crate::osds::Outage>,
    /// Programs of metadata that the clock ended.
    pub overruns: &'a Overruns,
    /// Since when ranks of file systems have no server.
    pub ranks: &'a Ranks,
    /// The monitors.
    pub quorum: Quorum,
    /// The host's clock for what one request may take.
    pub clock: Option<Arc<dyn Patience>>,
}
impl View<'_> {
    /// The committed map.
    #[must_use]
    pub fn map(&self) -> &ClusterMap {
        self.state.map()
    }
}

/// What a command comes to.
#[derive(Clone, Debug, Default)]
pub struct Done {
    /// For its sender. The epoch of its changes is added to it.
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

type Run = fn(&View<'_>, &Fields<'_>) -> Result<Done, String>;

/// A command.
#[derive(Clone, Copy)]
pub struct CommandSpec {
    /// Its name.
    pub name: &'static str,
    /// Whether it may change something.
    pub writes: bool,
    /// Its fields; `?` ends the name of one that may be left out.
    pub fields: &'static [&'static str],
    /// One sentence.
    pub doc: &'static str,
    run: Run,
}
impl std::fmt::Debug for CommandSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

const fn reads(
    name: &'static str,
    fields: &'static [&'static str],
    doc: &'static str,
    run: Run,
) -> CommandSpec {
    CommandSpec {
        name,
        writes: false,
        fields,
        doc,
        run,
    }
}
const fn writes_(
    name: &'static str,
    fields: &'static [&'static str],
    doc: &'static str,
    run: Run,
) -> CommandSpec {
    CommandSpec {
        name,
        writes: true,
        fields,
        doc,
        run,
    }
}

/// All commands, by name.
pub const COMMANDS: &[CommandSpec] = &[
    reads(
        "client ls",
        &[],
        "Clients that the map names, and what they may do.",
        program::client_ls,
    ),
    writes_(
        "client rm",
        &["name", "client?"],
        "A client is one of the unknown again.",
        program::client_rm,
    ),
    writes_(
        "client set",
        &["name", "capabilities", "client?"],
        "Says what a named client may do with programs.",
        program::client_set,
    ),
    reads(
        "config dump",
        &[],
        "Every option with its value and default.",
        config::dump,
    ),
    reads("config get", &["key"], "One option's value.", config::get),
    reads(
        "config help",
        &["key?"],
        "What options there are.",
        config::help,
    ),
    writes_(
        "config rm",
        &["key"],
        "Puts an option back to its default.",
        config::rm,
    ),
    writes_(
        "config set",
        &["key", "value"],
        "Sets an option.",
        config::set,
    ),
    reads("df", &[], "Space by cluster and pool.", cluster::df),
    writes_(
        "fence add",
        &["entity", "instance?"],
        "Ends all lives of a client or OSD up to one.",
        cluster::fence_add,
    ),
    reads("fence ls", &[], "Who may no longer act.", cluster::fence_ls),
    writes_(
        "fence rm",
        &["entity"],
        "Lifts a fence: the lives that it ended may act again.",
        cluster::fence_rm,
    ),
    writes_(
        "flag set",
        &["flag"],
        "Sets noout, nodown, nobackfill or norecover.",
        cluster::flag_set,
    ),
    writes_(
        "flag unset",
        &["flag"],
        "Clears one of them.",
        cluster::flag_unset,
    ),
    reads(
        "health",
        &[],
        "What is wrong, one line each.",
        cluster::health,
    ),
    reads(
        "health detail",
        &[],
        "What is wrong, where, and what to do about it.",
        cluster::health_detail,
    ),
    reads(
        "help",
        &["about?"],
        "What commands there are.",
        cluster::help,
    ),
    reads(
        "log last",
        &["n?", "severity?"],
        "The cluster log's last lines.",
        cluster::log_last,
    ),
    reads(
        "log watch",
        &["since", "severity?"],
        "The cluster log's lines after a number.",
        cluster::log_watch,
    ),
    reads("map dump", &[], "The cluster map.", cluster::map_dump),
    writes_(
        "mon add",
        &["id", "address", "store"],
        "Lets a monitor in.",
        mons::add,
    ),
    writes_("mon rm", &["id", "store?"], "Removes a monitor.", mons::rm),
    reads("mon stat", &[], "Who takes part in consensus.", mons::stat),
    writes_(
        "osd add",
        &["osd?", "class?", "host?", "capacity?", "store?"],
        "Reserves an OSD's id and place before it first starts.",
        osd::add,
    ),
    writes_(
        "osd balance",
        &["pool?", "swaps_max?", "dry_run?"],
        "Evens out placement groups over OSDs.",
        balance::balance,
    ),
    reads("osd df", &[], "Space by OSD.", osd::df),
    writes_(
        "osd down",
        &["osd"],
        "Marks an OSD down; if it lives it comes back.",
        osd::down,
    ),
    writes_("osd in", &["osd"], "Gives an OSD data again.", osd::in_),
    reads(
        "osd ok-to-stop",
        &["osds"],
        "Whether OSDs can be stopped without a placement group falling below min_size.",
        osd::ok_to_stop,
    ),
    writes_(
        "osd out",
        &["osd"],
        "Takes an OSD's data elsewhere.",
        osd::out,
    ),
    writes_(
        "osd reweight",
        &["osd", "weight"],
        "Sets the share of its CRUSH weight that an OSD takes, from 0 to 1.",
        osd::reweight,
    ),
    writes_(
        "osd rm",
        &["osd", "force?", "store?"],
        "Forgets an OSD that is gone for good.",
        osd::rm,
    ),
    reads("osd tree", &[], "OSDs by host.", osd::tree),
    reads(
        "pg explain",
        &["pg"],
        "One placement group: who acts, what it waits for, why.",
        pg::explain,
    ),
    reads(
        "pg ls",
        &["pool?", "osd?", "state?"],
        "Placement groups.",
        pg::ls,
    ),
    reads(
        "pg map",
        &["pool", "object", "namespace?", "key?"],
        "Where an object is.",
        pg::map,
    ),
    writes_(
        "pool create",
        &["name", "size?", "min_size?", "pg_num?", "rule?"],
        "Makes a pool.",
        pool::create,
    ),
    reads("pool ls", &[], "Pools.", pool::ls),
    writes_(
        "pool rm",
        &["name", "yes_i_really_mean_it"],
        "Removes a pool with everything in it.",
        pool::rm,
    ),
    writes_(
        "pool set",
        &["name", "key", "value"],
        "Changes a pool: size, min_size, pg_num, quota_bytes, quota_objects, no_delete.",
        pool::set,
    ),
    writes_(
        "pool snap create",
        &["pool", "snap?"],
        "Takes a snapshot of a pool.",
        snap::create,
    ),
    reads("pool snap ls", &["pool"], "Snapshots of a pool.", snap::ls),
    writes_(
        "pool snap rm",
        &["pool", "snap"],
        "Removes a snapshot.",
        snap::rm,
    ),
    writes_(
        "program activate",
        &["kind", "name", "version?", "client?"],
        "Makes another version of a program active: the one before, if none is named.",
        |view, fields| program::activate(view.map(), fields),
    ),
    writes_(
        "program install",
        &["kind", "name", "source", "activate?", "unix_ms?", "client?"],
        "Checks a source that was stored, and makes it a version of a program.",
        program::install_stored,
    ),
    reads(
        "program ls",
        &["kind?"],
        "Programs with their versions.",
        |view, fields| program::ls(view.map(), fields),
    ),
    writes_(
        "program prepare",
        &["kind", "client?"],
        "Makes the pool for sources.",
        program::prepare,
    ),
    writes_(
        "program rm",
        &["kind", "name", "client?"],
        "Removes a program.",
        |view, fields| program::rm(view.map(), fields),
    ),
    reads(
        "program show",
        &["kind", "name"],
        "A program and its versions.",
        |view, fields| program::show(view.map(), fields),
    ),
    reads("status", &[], "The cluster at a glance.", cluster::status),
];

fn object(request: &str) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(request) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err("a command is a JSON object with a field `command`".to_owned()),
        Err(why) => Err(format!("the command is no JSON: {why}")),
    }
}

/// Finds the command and checks its fields' names.
///
/// # Errors
/// A sentence that names what is known.
pub fn parse(request: &str) -> Result<(&'static CommandSpec, Value), String> {
    let mut fields = object(request)?;
    let Some(Value::String(name)) = fields.remove("command") else {
        return Err("the field `command` is missing; `help` lists the commands".to_owned());
    };
    let Some(spec) = COMMANDS.iter().find(|spec| spec.name == name) else {
        let near = nearest(&name, COMMANDS.iter().map(|spec| spec.name));
        return Err(format!(
            "there is no command `{name}`; did you mean {}?",
            near.join(", ")
        ));
    };
    for given in fields.keys() {
        if !spec
            .fields
            .iter()
            .any(|field| field.trim_end_matches('?') == given)
        {
            let known = if spec.fields.is_empty() {
                "none".to_owned()
            } else {
                spec.fields.join(", ")
            };
            return Err(format!(
                "`{name}` has no field `{given}`; its fields: {known}"
            ));
        }
    }
    for field in spec.fields.iter().filter(|field| !field.ends_with('?')) {
        if !fields.contains_key(*field) {
            return Err(format!("`{name}` needs the field `{field}`"));
        }
    }
    Ok((spec, Value::Object(fields)))
}

/// Runs a command.
///
/// # Errors
/// One sentence for people.
pub fn run(view: &View<'_>, ask: &Ask) -> Result<Done, String> {
    let Value::Object(fields) = &ask.request else {
        return Err("a command is a JSON object".to_owned());
    };
    (ask.spec.run)(view, &Fields(fields))
}

/// Runs `program ls`, `show`, `install`, `activate` or `rm` on a map that no monitor keeps: what
/// the registry of another engine holds. Sources are its own affair.
///
/// # Errors
/// One sentence for people, as for [`run`].
pub fn run_program(map: &ClusterMap, request: &Value) -> Result<Done, String> {
    let (spec, fields) = parse(&request.to_string())?;
    let Value::Object(fields) = &fields else {
        return Err("a command is a JSON object".to_owned());
    };
    let run = match spec.name {
        "program ls" => program::ls,
        "program show" => program::show,
        "program install" => program::install,
        "program activate" => program::activate,
        "program rm" => program::rm,
        other => return Err(format!("`{other}` is not a command about programs")),
    };
    run(map, &Fields(fields))
}

/// A command's fields.
pub struct Fields<'a>(&'a Map<String, Value>);

impl Fields<'_> {
    fn text(&self, name: &str) -> Result<Option<&str>, String> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(format!("`{name}` is a text")),
        }
    }
    fn need_text(&self, name: &str) -> Result<&str, String> {
        self.text(name)?
            .ok_or_else(|| format!("`{name}` is missing"))
    }
    /// A whole number, also written as a text: command lines give texts.
    fn number(&self, name: &str) -> Result<Option<u64>, String> {
        let wrong = || format!("`{name}` is a whole number, 0 or more");
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Number(number)) => number.as_u64().map(Some).ok_or_else(wrong),
            Some(Value::String(text)) => text.parse().map(Some).map_err(|_| wrong()),
            Some(_) => Err(wrong()),
        }
    }
    fn need_number(&self, name: &str) -> Result<u64, String> {
        self.number(name)?
            .ok_or_else(|| format!("`{name}` is missing"))
    }
    fn flag(&self, name: &str) -> Result<bool, String> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(format!("`{name}` is true or false")),
        }
    }
    /// Null is as good as left out: command lines send it for what nobody said.
    fn value(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }
    /// An OSD of the map, as `3` or `"osd.3"`.
    fn osd(&self, view: &View<'_>) -> Result<OsdId, String> {
        let value = self
            .value("osd")
            .ok_or_else(|| "`osd` is missing".to_owned())?;
        existing_osd(view, value)
    }
    fn pool<'v>(&self, view: &'v View<'_>, field: &str) -> Result<(PoolId, &'v Pool), String> {
        let name = self.need_text(field)?;
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
}

fn parse_osd(value: &Value) -> Result<OsdId, String> {
    let wrong = || format!("{value} is no OSD; write 3 or \"osd.3\"");
    let number = match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.strip_prefix("osd.").unwrap_or(text).parse().ok(),
        _ => None,
    };
    number
        .and_then(|number| u32::try_from(number).ok())
        .map(OsdId)
        .ok_or_else(wrong)
}

fn existing_osd(view: &View<'_>, value: &Value) -> Result<OsdId, String> {
    let osd = parse_osd(value)?;
    if view.map().osds.contains_key(&osd) {
        Ok(osd)
    } else {
        Err(format!("there is no {osd}; `osd tree` lists them"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_every_command_is_documented() {
        assert!(COMMANDS.is_sorted_by(|a, b| a.name < b.name));
        let document = include_str!("../../../../docs/formats/commands.md");
        for spec in COMMANDS {
            assert!(
                document.contains(&format!("### `{}`", spec.name)),
                "docs/formats/commands.md lacks `{}`",
                spec.name
            );
            for field in spec.fields {
                assert!(
                    document.contains(&format!("`{field}`")),
                    "`{}` lacks its field `{field}`",
                    spec.name
                );
            }
        }
    }

    #[test]
    fn what_is_misspelt_is_named() {
        let error = |request: &str| parse(request).expect_err("refused");
        assert!(error("[]").contains("object"));
        assert!(error("{").contains("no JSON"));
        assert!(error("{}").contains("command"));
        assert!(error(r#"{"command": "osd ot"}"#).contains("osd out"));
        assert!(error(r#"{"command": "osd out", "id": 3}"#).contains("no field `id`"));
        assert!(error(r#"{"command": "osd out"}"#).contains("needs the field `osd`"));
        assert!(parse(r#"{"command": "osd out", "osd": 3}"#).is_ok());
    }
}
