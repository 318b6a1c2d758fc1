//! `nacre bench files`: names of one directory through the library, many calls at a time.
//!
//! ```text
//!  mkdir ─▶ create each ─▶ list, page by page ─▶ look each up ─▶ remove each ─▶ rmdir
//!              └ `depth` calls in flight, over all clients
//! ```
//! The cost of the namespace without the kernel: µs of CPU per call of clients and of daemons.
//! Look-ups use separate clients, which have nothing cached.

use super::cpu;
use crate::cluster::{Place, host};
use crate::out::Out;
use anyhow::{Result, anyhow, bail, ensure};
use bytes::Bytes;
use clap::Args;
use nacre_fs::{Ask, Given, Outcome};
use nacre_node::FileSystem;
use nacre_types::{Ino, Name};
use nacre_wire::fs::{FileKind, name_hash};
use nacre_wire::msg::fs::{FsAnswer, FsCall};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Time limit of a call.
const CALL_MAX: Duration = Duration::from_mins(2);
/// Delayed work within this time belongs to the measured calls.
const SETTLED: Duration = Duration::from_secs(1);
/// Size of a page of a listing, in bytes.
const PAGE: u32 = 1 << 20;

/// Arguments of `bench files`.
#[derive(Args)]
pub struct Arguments {
    /// The file system.
    #[arg(long, default_value = "home")]
    fs: String,
    /// The directory of its root in which it happens; it must not exist, and is removed.
    #[arg(long, default_value = "bench-files")]
    dir: String,
    /// Files.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    count: u32,
    /// Calls under way, of all clients together.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    depth: u32,
    /// Clients that make and remove them.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    clients: u16,
    /// Leave the files there: nothing is looked up or removed.
    #[arg(long)]
    keep: bool,
}

/// Runs the benchmark.
///
/// # Errors
/// A call fails, or a listing does not show each file once.
pub fn run(arguments: &Arguments, place: &Place, out: &mut Out) -> Result<()> {
    let count = u64::from(arguments.count);
    let clients = || {
        let connect = |_| host::file_system(place, &arguments.fs, "nacre bench files");
        (0..arguments.clients)
            .map(connect)
            .collect::<Result<Vec<FileSystem>>>()
    };
    let (run, makers) = (place.run_folder(), clients()?);
    let dir = make_dir(&makers[0], &arguments.dir)?;
    let mut steps = Steps {
        run,
        rows: Vec::new(),
    };
    let names: Vec<Name> = (0..count)
        .map(|n| Name::from(&*format!("f{n:08}")))
        .collect();
    steps.measure("create", count, || {
        each(&makers, arguments.depth, &names, |name| {
            make(dir, name, FileKind::File {})
        })
    })?;
    if !arguments.keep {
        let readers = clients()?;
        steps.measure("list", count, || list(&readers[0], dir, count))?;
        let readers = clients()?;
        // In another order than that of their creation or of a listing.
        let mut shuffled = names.clone();
        shuffled.sort_by_key(|name| name_hash(name).rotate_left(32));
        let lookup = |name: Name| FsCall::Lookup { dir, name };
        steps.measure("look up", count, || {
            each(&readers, arguments.depth, &shuffled, lookup)
        })?;
        let remove = |name: Name| FsCall::Unlink {
            dir,
            name,
            directory: false,
        };
        steps.measure("remove", count, || {
            each(&makers, arguments.depth, &names, remove)
        })?;
        let rmdir = FsCall::Unlink {
            dir: Ino::ROOT,
            name: Name::from(&*arguments.dir),
            directory: true,
        };
        call(&makers[0], rmdir)?;
    }
    if out.json() {
        return out.value(&Value::Array(steps.rows));
    }
    for row in &steps.rows {
        let figure = |what: &str| row[what].as_f64().unwrap_or_default();
        let cpu: Vec<String> = row["cpu_us"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(who, us)| format!("{who} {us}"))
            .collect();
        let step = row["step"].as_str().unwrap_or_default();
        let (rate, seconds) = (figure("per_s"), figure("seconds"));
        out.line(&format!(
            "{step}: {rate:.0} a second, {seconds:.1} s; µs of CPU each: {}",
            cpu.join(", ")
        ))?;
    }
    Ok(())
}

/// Duration of each step.
struct Steps {
    run: PathBuf,
    rows: Vec<Value>,
}

impl Steps {
    fn measure(&mut self, step: &str, count: u64, what: impl FnOnce() -> Result<()>) -> Result<()> {
        let (before, begun) = (cpu::used(Some(&self.run))?, Instant::now());
        what().map_err(|why| why.context(step.to_owned()))?;
        let seconds = begun.elapsed().as_secs_f64();
        std::thread::sleep(SETTLED);
        let used = cpu::between(&before, &cpu::used(Some(&self.run))?);
        let each = |us: u64| (us as f64 / count as f64 * 10.0).round() / 10.0;
        let cpu: serde_json::Map<String, Value> = used
            .into_iter()
            .map(|(who, us)| (who, json!(each(us))))
            .filter(|(_, us)| us.as_f64() > Some(0.0))
            .collect();
        self.rows.push(
            json!({ "step": step, "count": count, "seconds": seconds, "per_s": count as f64 / seconds, "cpu_us": cpu }),
        );
        Ok(())
    }
}

fn make(dir: Ino, name: Name, kind: FileKind) -> FsCall {
    let target = Bytes::new();
    let (mode, umask, uid, gid, device) = (0o644, 0, 0, 0, 0);
    FsCall::Make {
        dir,
        name,
        kind,
        mode,
        umask,
        uid,
        gid,
        target,
        device,
        exclusive: true,
        open: false,
        write: false,
    }
}
fn make_dir(files: &FileSystem, name: &str) -> Result<Ino> {
    match call(
        files,
        make(Ino::ROOT, Name::from(name), FileKind::Directory {}),
    )? {
        FsAnswer::Node { node, .. } => Ok(node.inode.ino),
        other => bail!("a directory was made, and the answer is {other:?}"),
    }
}

fn answer(outcome: Outcome) -> Result<FsAnswer> {
    match outcome {
        Ok(Given::Answer(answer)) => Ok(answer),
        Ok(other) => bail!("the answer is {other:?}"),
        Err(errno) => Err(std::io::Error::from_raw_os_error(errno.into()).into()),
    }
}
fn call(files: &FileSystem, call: FsCall) -> Result<FsAnswer> {
    answer(files.call(Ask::Names(call)))
}

/// Lists the whole directory: each name must appear once.
fn list(files: &FileSystem, dir: Ino, count: u64) -> Result<()> {
    let (mut after, mut listed) = (0, 0);
    loop {
        let FsAnswer::Listed { entries, end } = call(
            files,
            FsCall::List {
                dir,
                after,
                bytes_max: PAGE,
            },
        )?
        else {
            bail!("a listing is no listing")
        };
        listed += entries.len() as u64;
        if end {
            break;
        }
        let last = entries
            .last()
            .ok_or_else(|| anyhow!("an empty page is not the last one"))?;
        after = name_hash(&last.name);
    }
    ensure!(
        listed == count,
        "{listed} names are listed, and {count} are there"
    );
    Ok(())
}

/// Makes a call for each name, `depth` at a time.
fn each(
    clients: &[FileSystem],
    depth: u32,
    names: &[Name],
    call: impl Fn(Name) -> FsCall,
) -> Result<()> {
    let (sender, receiver): (Sender<Outcome>, Receiver<Outcome>) = channel();
    let mut under_way = 0;
    let wait = |under_way: &mut u32| {
        let outcome = receiver
            .recv_timeout(CALL_MAX)
            .map_err(|_| anyhow!("a call is not answered within 2 min"))?;
        *under_way -= 1;
        answer(outcome).map(drop)
    };
    for (name, files) in names.iter().zip(clients.iter().cycle()) {
        if under_way >= depth {
            wait(&mut under_way)?;
        }
        under_way += 1;
        let sender = sender.clone();
        files.ask(Ask::Names(call(name.clone())), move |outcome| {
            drop(sender.send(outcome))
        });
    }
    while under_way > 0 {
        wait(&mut under_way)?;
    }
    Ok(())
}
