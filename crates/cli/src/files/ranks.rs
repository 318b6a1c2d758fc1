//! `nacre fs ranks`, `nacre fs subtree pin`: several servers for one file system, each with a part
//! of its tree.

use super::{claim, one};
use crate::cluster::{Place, Session, host};
use crate::objects::{Failed, call};
use crate::out::Out;
use anyhow::{Result, anyhow, bail, ensure};
use nacre_mds::evaluate::errno::{ENOENT, ENOTDIR, ENOTEMPTY, EXDEV};
use nacre_mds::mds::{MdsConfig, MdsLimits, first_objects_owned};
use nacre_types::{Rank, Time};
use nacre_wire::Wire as _;
use nacre_wire::fs::{FsKey, FsSettings, Stamp};
use nacre_wire::msg::client::OpFailure;
use nacre_wire::msg::meta::{MetaOp, MetaTarget};
use serde_json::json;

/// Maximum number of ranks of a file system. (Inode numbers have space for 65,536.)
pub const MAX: i64 = 1024;

/// Creates the initial objects of the ranks from `from` on.
///
/// # Errors
/// The cluster refuses.
pub fn make(session: &mut dyn Session, settings: &FsSettings, from: u16) -> Result<()> {
    let unix_ms = crate::clock::now_unix_ms();
    let now = Stamp::at(unix_ms, Time::ZERO);
    let owner = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    for rank in (from..settings.ranks).map(Rank) {
        let config = MdsConfig {
            rank,
            namespace: settings.namespace.clone(),
            pool: settings.pool,
            layout: settings.layout,
            unix_ms_at_zero: unix_ms,
            limits: MdsLimits::default(),
        };
        for operation in first_objects_owned(&config, now, owner) {
            match call(session, operation)? {
                Ok(_) => {}
                // Its answer was lost, and it was resent.
                Err(Failed::Refused(OpFailure::AlreadyExists {})) => {}
                Err(why) => bail!("the first objects of {rank} cannot be made: {why}"),
            }
        }
    }
    Ok(())
}

/// Increases the number of ranks of a file system.
///
/// # Errors
/// There is none of this name; it has more ranks already.
pub fn grow(name: &str, ranks: u16, place: &Place, out: &mut Out) -> Result<()> {
    let mut session = place.connect_for_files()?;
    let mut metadata = session.metadata()?;
    let shown = one(name, &mut *metadata)?;
    let before = shown.settings.ranks;
    ensure!(
        ranks >= before,
        "file system {name} has {before} ranks already, and cannot have fewer"
    );
    if ranks > before {
        let settings = FsSettings {
            ranks,
            ..shown.settings.clone()
        };
        make(&mut *session, &settings, before)?;
        let key = FsKey::Settings.of(&name.into());
        let target = MetaTarget::Value {
            value: shown.settings.to_bytes().into(),
        };
        let compares = vec![claim::is(key.clone(), target)];
        let then = vec![MetaOp::Put {
            key,
            value: settings.to_bytes().into(),
            lease: 0,
        }];
        ensure!(
            metadata.transact(compares, then)?,
            "another command has just changed file system {name}; `nacre fs ls` shows it"
        );
    }
    if out.json() {
        return out.value(&json!({ "name": name, "ranks": ranks }));
    }
    out.line(&format!(
        "file system {name} has {ranks} ranks; each wants a server (`nacre fs status {name}`), and directories \
         (`nacre fs subtree pin {name} PATH RANK`)"
    ))
}

/// Assigns an empty directory to a rank.
///
/// # Errors
/// There is no such rank; it is not a directory, or not empty.
pub fn pin(name: &str, path: &str, rank: u16, place: &Place, out: &mut Out) -> Result<()> {
    let shown = one(name, &mut *place.metadata()?)?;
    let ranks = shown.settings.ranks;
    ensure!(
        rank < ranks,
        "file system {name} has {ranks} ranks, from 0 on; `nacre fs ranks {name} N` gives it more"
    );
    ensure!(
        shown.holders.contains_key(&rank),
        "no server has rank {rank} of file system {name}: start one with `nacre mds run`"
    );
    let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
    ensure!(
        !names.is_empty(),
        "the root stays with rank 0: pin directories below it"
    );
    let files = host::file_system(place, name, &super::about())?;
    files.pin(&names, Rank(rank)).map_err(|errno| match errno {
        ENOENT => anyhow!("there is no directory {path} in file system {name}"),
        ENOTDIR => anyhow!("{path} is no directory, or something on the way to it is none"),
        ENOTEMPTY => anyhow!(
            "there is something in {path}: only an empty directory can be given to another rank; make a new one, pin \
             it, and move what is to be in it there"
        ),
        EXDEV => anyhow!("{path} is another rank's already: remove it and make it again first"),
        errno => anyhow!("it was not done: {}", std::io::Error::from_raw_os_error(errno.into())),
    })?;
    if out.json() {
        return out.value(&json!({ "name": name, "path": path, "rank": rank }));
    }
    out.line(&format!(
        "rank {rank} has {path}, and what will be below it"
    ))
}
