//! `nacre bench …`: performance, and correctness under load.
//!
//! * [`object`]: writes, overwrites and reads at a given depth, with their CPU cost; [`workset`]:
//!   the objects;
//! * [`register`]: a history of reads, writes and compare-and-sets, for `nacre history check`;
//! * [`keys`]: the same for keys of metadata, with transactions and watchers;
//! * [`ledger`]: records the acknowledged content of objects, and reads them back from the
//!   remaining OSDs;
//! * [`files`]: names of a file system, many calls at a time;
//! * [`fill`]: objects until there is no space; [`sessions`]: clients that connect, put one object
//!   and disconnect;
//! * [`call`]: methods of classes, and the cost of Lua;
//! * [`scripts`]: hostile scripts, one after the other;
//! * [`meta`]: changes of metadata, and the delay until watchers receive them;
//! * [`propagation`]: the delay until a new version of a class is active everywhere;
//! * [`disk`]: the disk's own performance;
//! * [`cpu`]: CPU time of processes.

pub mod call;
pub mod cpu;
pub mod disk;
pub mod files;
pub mod fill;
pub mod histories;
pub mod keys;
pub mod ledger;
pub mod meta;
pub mod object;
pub mod propagation;
pub mod register;
pub mod scripts;
pub mod sessions;
pub mod workset;

use crate::cluster::{Commands, Place};
use crate::object::{pool_id, pools};
use crate::out::Out;
use anyhow::Result;
use nacre_command::{Command as MonCommand, PoolCreate};
use nacre_types::PoolId;

/// What is measured.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Objects of one size, so many operations at a time, for so long.
    Object(object::Arguments),
    /// Reads, writes and compare-and-sets on a few objects, written down as a history.
    Register(register::Arguments),
    /// Reads, changes and watches of a few keys of metadata, written down as a history.
    Keys(keys::Arguments),
    /// Objects of which is written down what was acknowledged; and reading them back.
    #[command(subcommand)]
    Ledger(ledger::Command),
    /// Names of one directory of a file system: made, listed, looked up and removed, many at a
    /// time.
    Files(files::Arguments),
    /// New objects until there is no space for more; removing a part of them; reading back what is
    /// left.
    Fill(fill::Arguments),
    /// Clients that connect, put one object and are gone, one after the other.
    Sessions(sessions::Arguments),
    /// Methods of classes; without arguments, what Lua costs over Rust.
    Call(call::Arguments),
    /// Scripts run on objects one after the other, whatever they do.
    Scripts(scripts::Arguments),
    /// Changes of service metadata, one after the other, and with many watchers.
    Meta(meta::Arguments),
    /// How soon a new version of a class is live on every OSD, simulated and real.
    Propagation(propagation::Arguments),
    /// What the disk does without a cluster: log appends with flushes, and large writes.
    Disk(disk::Arguments),
}

/// Runs a benchmark.
///
/// # Errors
/// When the cluster refuses, or data read back are not what was written.
pub fn run(command: &Command, place: &Place, out: &mut Out) -> Result<()> {
    if let Command::Disk(arguments) = command {
        return disk::run(arguments, out);
    }
    if let Command::Propagation(arguments) = command {
        return propagation::run(arguments, out);
    }
    if let Command::Meta(arguments) = command {
        return meta::run(arguments, place, out);
    }
    if let Command::Keys(arguments) = command {
        return keys::run(arguments, place, out);
    }
    if let Command::Files(arguments) = command {
        return files::run(arguments, place, out);
    }
    let mut session = place.connect()?;
    match command {
        Command::Disk(_)
        | Command::Files(_)
        | Command::Keys(_)
        | Command::Meta(_)
        | Command::Propagation(_) => {
            unreachable!("done above")
        }
        Command::Call(arguments) => {
            let pool = pool(&mut *session, &arguments.pool)?;
            call::run(arguments, place, &mut *session, pool, out)
        }
        Command::Fill(arguments) => {
            let pool = pool(&mut *session, &arguments.pool)?;
            fill::run(arguments, &mut *session, pool, out)
        }
        Command::Sessions(arguments) => {
            let pool = pool(&mut *session, &arguments.pool)?;
            drop(session);
            sessions::run(arguments, place, pool, out)
        }
        Command::Scripts(arguments) => {
            let pool = pool(&mut *session, &arguments.pool)?;
            scripts::run(arguments, &mut *session, pool, out)
        }
        Command::Object(arguments) => {
            let pool = pool(&mut *session, &arguments.pool)?;
            object::run(
                arguments,
                &mut *session,
                pool,
                Some(&place.run_folder()),
                out,
            )
        }
        Command::Ledger(command) => {
            let pool = pool(&mut *session, command.pool())?;
            ledger::run(command, place, &mut *session, pool, out)
        }
        Command::Register(arguments) => {
            let pool = pool(&mut *session, &arguments.pool)?;
            register::run(arguments, pool, &|| place.connect(), out)
        }
    }
}

/// The benchmark's pool, made if it does not exist.
fn pool(cluster: &mut dyn Commands, name: &str) -> Result<PoolId> {
    if let Some((_, id)) = pools(cluster)?.into_iter().find(|(known, _)| known == name) {
        return Ok(id);
    }
    cluster.command(&MonCommand::PoolCreate(PoolCreate::named(name)))?;
    pool_id(cluster, name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;
    use serde_json::{Value, json};

    /// A cluster with a pool, whose monitors have no majority at first.
    #[derive(Default)]
    struct Undecided {
        asked: Vec<String>,
        led: bool,
    }

    impl Commands for Undecided {
        fn command(&mut self, command: &MonCommand) -> Result<Value> {
            self.asked.push(command.spec().name.clone());
            match command {
                _ if !self.led => bail!("no monitor majority"),
                MonCommand::PoolLs {} => Ok(json!({ "pools": [{ "name": "there", "id": 7 }] })),
                _ => bail!("there is a pool there already"),
            }
        }
    }

    /// Two of three monitors were killed as a load began (chaos, seed 2301). The failure to list
    /// the pools was taken for "no such pool"; the load asked for one, and was told that it existed
    /// already.
    #[test]
    fn who_cannot_say_which_pools_there_are_is_not_asked_to_make_one() {
        let mut cluster = Undecided::default();
        let why = pool(&mut cluster, "there").expect_err("there is no majority");
        assert!(why.to_string().contains("majority"), "{why}");
        assert_eq!(cluster.asked, ["pool ls"]);
        cluster.led = true;
        assert_eq!(pool(&mut cluster, "there").expect("it is there"), PoolId(7));
        assert!(!cluster.asked.iter().any(|asked| asked == "pool create"));
    }
}
