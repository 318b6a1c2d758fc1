//! Programs on a Ceph cluster (MAL-20, MAL-22; DESIGN §4 "portable profile"): `nacre class …`, and
//! how installed classes are called there.
//!
//! ```text
//!  `program install` ─▶ Nacre's checker, the profile, the cluster's own Lua ─▶ registry (one object) + source (an object)
//!  a call ─▶ classes: the active sources, at most a second old ─▶ the source is sent with the call to `cls_lua`
//! ```
//! * [`registry`]: the object and the effects of commands on it, pure; [`store`]: reading and
//!   writing it;
//! * `classes`: a client's knowledge of it, and the translation of calls.

pub mod classes;
pub mod registry;
pub mod store;

use crate::cluster::Ceph;
use crate::error::{EINVAL, EIO, EOPNOTSUPP, EPERM, RadosError};
use crate::handle::Rados;
use crate::home::{self, HOME};
use crate::lua;
use nacre_client::Failure;
use nacre_command::{Command, Program, ProgramInstall};
use nacre_policy::{Chunk, Profile};
use nacre_types::ObjectId;
use nacre_wire::msg::client::{OpFailure, SubOp, SubReply};
use registry::Registry;
use serde_json::{Value, json};
use store::{Store, Trouble};

/// The object on which classes are tried. It never exists.
const TRIED: &str = "tried";

/// Executes `program …`.
///
/// # Errors
/// What is wrong with the request or the source; the cluster's error.
pub fn command(cluster: &Rados, command: &Command) -> Result<Value, RadosError> {
    let said = |trouble| match trouble {
        Trouble::Refused(why) => RadosError { code: EINVAL, why },
        Trouble::Cluster(Failure::Foreign { code, why }) => RadosError { code, why },
        Trouble::Cluster(failure) => RadosError {
            code: EIO,
            why: format!("the registry of programs: {failure}"),
        },
    };
    let pool = match command {
        Command::ProgramPrepare { .. } => {
            home::make(cluster)?;
            return Ok(json!({ "pool": HOME }));
        }
        Command::ProgramLs { .. } | Command::ProgramShow { .. } => home::find(cluster)?,
        _ => Some(home::make(cluster)?),
    };
    let Some(pool) = pool else {
        let outcome = Registry::empty()
            .run(command)
            .map_err(Trouble::Refused)
            .map_err(said)?;
        return Ok(outcome.reply);
    };
    let mut client = Ceph::new(cluster.clone());
    let mut store = Store::new(&mut client, pool);
    let check = |store: &mut Store<'_>| match command {
        Command::ProgramInstall(ProgramInstall {
            kind: Program::Class,
            name,
            source,
            ..
        }) => {
            portable(name, source)?;
            tried(store, name, source)
        }
        _ => Ok(()),
    };
    store.change(command, &mut { check }).map_err(said)
}

/// Refuses classes that exceed the portable profile.
fn portable(name: &str, source: &str) -> Result<(), Trouble> {
    match Chunk::new(name, source).profile() {
        Profile::Portable => Ok(()),
        Profile::Luau => Err(Trouble::Refused(format!(
            "class {name} is refused: its profile is luau, which takes the capability `exec_reads_own_writes`, and a Ceph cluster has not got it. A class \
             that reads before it writes, returns nothing from calls that write, and uses no `nacre.` function says so in its head: `--!profile portable`"
        ))),
    }
}

/// Loads a class with the cluster's own Lua, which detects what the two Luas of the portable
/// profile do not have in common.
fn tried(store: &mut Store<'_>, name: &str, source: &str) -> Result<(), Trouble> {
    let script = lua::installed(name.as_bytes(), None, source.as_bytes());
    let op = SubOp::Eval {
        script: script.len() as u64,
        handler: lua::HANDLER.into(),
        input: 0,
    };
    let refused = |why: &str| {
        Err(Trouble::Refused(format!(
            "class {name} is refused: {why} (by the Ceph cluster's Lua, which is another than Nacre's)"
        )))
    };
    match store.run_here(ObjectId::named(TRIED), vec![op], vec![script]) {
        Ok(done) => match &done.results[..] {
            [SubReply::Called { output, .. }] if output.is_empty() => Ok(()),
            [SubReply::Called { output, .. }] => refused(&String::from_utf8_lossy(output)),
            other => unreachable!("a call returned {other:?}"),
        },
        Err(Failure::Refused(OpFailure::NoSuchMethod { .. })) => {
            Err(Trouble::Refused(no_lua(EOPNOTSUPP)))
        }
        Err(Failure::Refused(OpFailure::Denied { .. })) => Err(Trouble::Refused(no_lua(EPERM))),
        Err(Failure::Refused(OpFailure::Method { errno, .. })) => {
            refused(&crate::error::named(errno as i32))
        }
        Err(failure) => Err(failure.into()),
    }
}

/// What prevents scripts from running at all.
#[must_use]
pub(crate) fn no_lua(code: i32) -> String {
    format!(
        "the Ceph cluster does not run Lua classes: its OSDs need `lua` (or `*`) in the options `osd_class_load_list` and `osd_class_default_list`, \
         and a restart; a client needs the capability to execute classes in the pool: {}",
        crate::error::named(code)
    )
}
