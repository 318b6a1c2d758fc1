//! `program …` and `client …`: classes and policies, and clients' capabilities for them (MAL-13,
//! MAL-14, MAL-24; `wire::map::programs`).
//!
//! A source is stored as an object before its program is installed: `program prepare` makes the
//! pool, the client writes the object, `program install` checks the same source once more and puts
//! its digest into the map. A source that does not compile is refused here, even if the client
//! accepted it.

use nacre_command::{PoolCreate, Program as Kind, ProgramActivate, ProgramInstall, Whole, nearest};
use nacre_policy::Patience;
use nacre_types::Name;
use nacre_wire::map::programs::{PROGRAM_NAME_MAX, PROGRAM_POOL, PROGRAMS_MAX, SOURCE_BYTES_MAX};
use nacre_wire::map::{Capability, Change, Program, ProgramKind, ProgramVersion, SourceDigest};
use serde_json::{Value, json};
use std::sync::Arc;

use super::{Done, View, change, read};
use crate::pools;
use nacre_wire::map::ClusterMap;

/// Replicas of sources: as for data that everything else depends on.
const SOURCE_COPIES: u64 = 3;
const SOURCE_GROUPS: u64 = 8;

/// Checks a name that becomes part of file names, messages and object names.
fn checked_name(name: &str) -> Result<Name, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.is_empty() || name.len() > PROGRAM_NAME_MAX || !name.chars().all(fits) {
        return Err(format!(
            "{name:?} is no name: 1 to {PROGRAM_NAME_MAX} letters, digits, `_`, `-` or `.`"
        ));
    }
    Ok(name.into())
}

fn client(name: &Option<String>) -> Name {
    name.as_deref().unwrap_or_default().into()
}

fn may_install(map: &ClusterMap, name: &Option<String>, kind: ProgramKind) -> Result<Name, String> {
    let client = client(name);
    if map.may_install(&client, kind) {
        return Ok(client);
    }
    let who = if client.as_bytes().is_empty() {
        "a client without a name".to_owned()
    } else {
        format!("client {client}")
    };
    Err(format!(
        "{who} may not install programs of kind {kind}; an administrator can allow it with `client set`"
    ))
}

fn find<'m>(map: &'m ClusterMap, kind: ProgramKind, name: &str) -> Result<&'m Program, String> {
    map.programs.get(&(kind, name.into())).ok_or_else(|| {
        let names = map
            .programs
            .keys()
            .filter(|(k, _)| *k == kind)
            .map(|(_, name)| name.to_string());
        let names: Vec<_> = names.collect();
        let near = nearest(name, names.iter().map(String::as_str)).join(", ");
        match near.is_empty() {
            true => format!("there is no {kind} {name}; none is installed"),
            false => format!("there is no {kind} {name}; installed are {near}"),
        }
    })
}

fn describe(kind: ProgramKind, name: &Name, program: &Program) -> Value {
    let version = |version: &ProgramVersion| {
        json!({
            "version": version.number,
            "digest": version.digest.to_string(),
            "bytes": version.bytes,
            "installed_ms": version.installed_ms,
            "by": version.by.to_string(),
        })
    };
    json!({
        "kind": kind.to_string(),
        "name": name.to_string(),
        "active": program.active,
        "activation": program.activation,
        "since": program.since.0,
        "versions": program.versions.iter().map(version).collect::<Vec<_>>(),
    })
}

pub fn ls(map: &ClusterMap, only: Option<Kind>) -> Result<Done, String> {
    let only = only.map(ProgramKind::from);
    let programs = map
        .programs
        .iter()
        .filter(|((kind, _), _)| only.is_none_or(|only| only == *kind));
    let programs: Vec<Value> = programs
        .map(|((kind, name), program)| describe(*kind, name, program))
        .collect();
    read(json!({ "programs": programs }))
}

pub fn show(map: &ClusterMap, kind: Kind, name: &str) -> Result<Done, String> {
    let kind = kind.into();
    read(describe(kind, &name.into(), find(map, kind, name)?))
}

pub fn prepare(view: &View<'_>, kind: Kind, client: &Option<String>) -> Result<Done, String> {
    may_install(view.map(), client, kind.into())?;
    if view.map().pool_named(&PROGRAM_POOL.into()).is_some() {
        return read(json!({ "pool": PROGRAM_POOL }));
    }
    let copies = (view.map().osds.len() as u64).clamp(1, SOURCE_COPIES);
    let wish = PoolCreate {
        size: Some(Whole(copies)),
        pg_num: Some(Whole(SOURCE_GROUPS)),
        ..PoolCreate::named(PROGRAM_POOL)
    };
    let (pool, settings) = pools::create(view.map(), &wish)?;
    let said =
        format!("pool {PROGRAM_POOL} is created for the sources of programs: {copies} copies");
    change(
        json!({ "pool": PROGRAM_POOL }),
        vec![Change::PoolSet { pool, settings }],
        said,
    )
}

/// Installs only if sources are stored where daemons look for them.
pub fn install_stored(view: &View<'_>, wish: &ProgramInstall) -> Result<Done, String> {
    let done = install(view.map(), wish, view.clock.clone())?;
    if view.map().pool_named(&PROGRAM_POOL.into()).is_none() {
        return Err(format!(
            "there is no pool {PROGRAM_POOL}; `program prepare` makes it, then store the source there"
        ));
    }
    Ok(done)
}

/// External engines have no monitor's clock, and pass none.
pub fn install(
    map: &ClusterMap,
    wish: &ProgramInstall,
    clock: Option<Arc<dyn Patience>>,
) -> Result<Done, String> {
    let kind = wish.kind.into();
    let by = may_install(map, &wish.client, kind)?;
    let name = checked_name(&wish.name)?;
    let source = wish.source.as_str();
    if source.len() > SOURCE_BYTES_MAX {
        return Err(format!(
            "the source has {} bytes; {SOURCE_BYTES_MAX} are allowed",
            source.len()
        ));
    }
    let id = (kind, name.clone());
    if map.programs.len() >= PROGRAMS_MAX && !map.programs.contains_key(&id) {
        return Err(format!(
            "there are {PROGRAMS_MAX} programs already; remove some with `program rm`"
        ));
    }
    check(kind, &name.to_string(), source, clock)?;
    let digest = SourceDigest(*blake3::hash(source.as_bytes()).as_bytes());
    // By default policies are inactive: an operator tries one before activating it.
    let activate = wish.activate.unwrap_or(kind == ProgramKind::Class {});
    let old = map.programs.get(&id);
    let known = old.and_then(|old| old.versions.iter().find(|version| version.digest == digest));
    let number = known.map_or_else(
        || {
            old.and_then(|old| old.versions.last())
                .map_or(0, |last| last.number)
                + 1
        },
        |v| v.number,
    );
    let mut reply = json!({ "kind": kind.to_string(), "name": name.to_string(), "version": number, "digest": digest.to_string() });
    let active = old.is_some_and(|old| old.active == number);
    if known.is_some() && (active || !activate) {
        reply["activation"] = json!(old.map_or(0, |old| old.activation));
        reply["unchanged"] = json!(true);
        return read(reply);
    }
    let activation = if activate { map.program_last + 1 } else { 0 };
    reply["activation"] = json!(activation);
    let version = ProgramVersion {
        number: 0,
        digest,
        bytes: u32::try_from(source.len()).expect("bounded"),
        installed_ms: wish.unix_ms.map_or(0, |ms| ms.0),
        by: by.clone(),
    };
    let said = match activate {
        true => format!(
            "{kind} {name}: version {number} is active (activation {activation}), installed by {by}"
        ),
        false => format!("{kind} {name}: version {number} is installed by {by}, not active"),
    };
    change(
        reply,
        vec![Change::ProgramInstall {
            kind,
            name,
            version,
            activate,
        }],
        said,
    )
}

pub fn activate(map: &ClusterMap, wish: &ProgramActivate) -> Result<Done, String> {
    let (kind, name) = (wish.kind.into(), wish.name.as_str());
    let by = may_install(map, &wish.client, kind)?;
    let program = find(map, kind, name)?;
    let number = match wish.version {
        Some(number) => {
            u32::try_from(number.0).map_err(|_| "`version` is a version's number".to_owned())?
        }
        // The previous version: the default of a rollback.
        None => {
            let before = program
                .versions
                .iter()
                .rev()
                .find(|version| version.number < program.active);
            before
                .map(|version| version.number)
                .ok_or_else(|| format!("{kind} {name} has no version before the active one"))?
        }
    };
    if number != 0 && program.version(number).is_none() {
        let numbers: Vec<String> = program
            .versions
            .iter()
            .map(|version| version.number.to_string())
            .collect();
        return Err(format!(
            "{kind} {name} has no version {number}; there are {}",
            numbers.join(", ")
        ));
    }
    let mut reply = json!({ "kind": kind.to_string(), "name": name, "version": number });
    if program.active == number {
        reply["activation"] = json!(program.activation);
        reply["unchanged"] = json!(true);
        return read(reply);
    }
    let activation = if number == 0 { 0 } else { map.program_last + 1 };
    reply["activation"] = json!(activation);
    let said = match number {
        0 => format!("{kind} {name}: no version is active any more, says {by}"),
        number => format!(
            "{kind} {name}: version {number} is active (activation {activation}), says {by}"
        ),
    };
    change(
        reply,
        vec![Change::ProgramActivate {
            kind,
            name: name.into(),
            number,
        }],
        said,
    )
}

pub fn rm(
    map: &ClusterMap,
    kind: Kind,
    name: &str,
    client: &Option<String>,
) -> Result<Done, String> {
    let kind = kind.into();
    let by = may_install(map, client, kind)?;
    find(map, kind, name)?;
    let said = format!("{kind} {name} is removed by {by}");
    change(
        json!({ "name": name }),
        vec![Change::ProgramRemove {
            kind,
            name: name.into(),
        }],
        said,
    )
}

// ── clients ─────────────────────────────────────────────────────────────────────────────

/// `all`, `install class`, `call POOL CLASS METHOD`, `eval POOL`; `*` matches any.
fn parse_capability(text: &str) -> Result<Capability, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    Ok(match words[..] {
        ["all"] => Capability::All {},
        ["install", "class"] => Capability::Install {
            kind: ProgramKind::Class {},
        },
        ["install", "policy"] => Capability::Install {
            kind: ProgramKind::Policy {},
        },
        ["call", pool, class, method] => Capability::Call {
            pool: pool.into(),
            class: class.into(),
            method: method.into(),
        },
        ["eval", pool] => Capability::Eval { pool: pool.into() },
        _ => {
            return Err(format!(
                "{text:?} is no capability; write `all`, `install class`, `install policy`, `call POOL CLASS METHOD` or `eval POOL` (`*` is any)"
            ));
        }
    })
}

fn print_capability(capability: &Capability) -> String {
    match capability {
        Capability::All {} => "all".to_owned(),
        Capability::Install { kind } => format!("install {kind}"),
        Capability::Call {
            pool,
            class,
            method,
        } => format!("call {pool} {class} {method}"),
        Capability::Eval { pool } => format!("eval {pool}"),
    }
}

fn administrator(view: &View<'_>, name: &Option<String>) -> Result<(), String> {
    let client = client(name);
    if view
        .map()
        .capabilities_of(&client)
        .contains(&Capability::All {})
    {
        return Ok(());
    }
    Err(format!(
        "client {client} may not say what clients may do; that takes the capability `all`"
    ))
}

pub fn client_ls(view: &View<'_>) -> Result<Done, String> {
    let clients = view.map().clients.iter().map(|(name, capabilities)| {
        json!({ "name": name.to_string(), "capabilities": capabilities.iter().map(print_capability).collect::<Vec<_>>() })
    });
    read(json!({ "clients": clients.collect::<Vec<_>>() }))
}

/// Refuses a change after which no client could change capabilities: it could not be reverted.
fn keeps_an_administrator(
    view: &View<'_>,
    name: &Name,
    capabilities: Option<Vec<Capability>>,
) -> Result<(), String> {
    let map = view.map();
    let all = |capabilities: &Vec<Capability>| capabilities.contains(&Capability::All {});
    let others = map
        .clients
        .iter()
        .filter(|(other, _)| *other != name)
        .any(|(_, capabilities)| all(capabilities));
    let admin = Name::from(nacre_wire::map::programs::ADMIN);
    // An administrator without an entry has all capabilities.
    let of_admin = if *name == admin {
        capabilities.is_none()
    } else {
        !map.clients.contains_key(&admin)
    };
    if others || of_admin || capabilities.as_ref().is_some_and(all) {
        return Ok(());
    }
    Err(format!(
        "no client would have the capability `all` any more, and no client could change that: give it to another one before {name} loses it"
    ))
}

pub fn client_set(
    view: &View<'_>,
    name: &str,
    capabilities: &[String],
    client: &Option<String>,
) -> Result<Done, String> {
    administrator(view, client)?;
    let name = checked_name(name)?;
    let capabilities: Vec<_> = capabilities
        .iter()
        .map(|text| parse_capability(text))
        .collect::<Result<_, _>>()?;
    let all: Vec<String> = capabilities.iter().map(print_capability).collect();
    let reply = json!({ "name": name.to_string(), "capabilities": all });
    if view.map().clients.get(&name) == Some(&capabilities) {
        return read(reply);
    }
    keeps_an_administrator(view, &name, Some(capabilities.clone()))?;
    let said = format!(
        "client {name} may: {}",
        if all.is_empty() {
            "nothing".to_owned()
        } else {
            all.join("; ")
        }
    );
    change(reply, vec![Change::ClientSet { name, capabilities }], said)
}

pub fn client_rm(view: &View<'_>, name: &str, client: &Option<String>) -> Result<Done, String> {
    administrator(view, client)?;
    if !view.map().clients.contains_key(name.as_bytes()) {
        return Err(format!("there is no client {name}; `client ls` lists them"));
    }
    keeps_an_administrator(view, &name.into(), None)?;
    change(
        json!({ "name": name }),
        vec![Change::ClientRemove { name: name.into() }],
        format!("client {name} is one of the unknown again"),
    )
}

/// Every source that can be stored can be compiled.
const _: () = assert!(SOURCE_BYTES_MAX == nacre_policy::budget::SOURCE_MAX);
/// Factor of a request's time limit for the check of a class: 0.4 s.
const CHECK_TIMES: u32 = 8;

/// Refuses programs that would not run, or whose check takes too long.
fn check(
    kind: ProgramKind,
    name: &str,
    source: &str,
    clock: Option<Arc<dyn Patience>>,
) -> Result<(), String> {
    let chunk = nacre_policy::Chunk::new(name, source);
    let checked = match kind {
        ProgramKind::Class {} => {
            nacre_policy::check_class_within(&chunk, clock, CHECK_TIMES).map(drop)
        }
        ProgramKind::Policy {} => nacre_policy::check_script(&chunk),
    };
    checked.map_err(|error| format!("{kind} {name} is refused: {error}"))
}
