//! The program that works on the mounts, controlled by commands on its input; it ends at the first
//! finding, or when its input is closed.
//!
//! ```text
//!  ready ─▶ threads work ──"stop"──▶ all have ended: a line of figures ──"compare PATH"──▶ compared: a line ──▶ …
//! ```
//! Every wait is bounded: a call that takes longer than [`HANG`] is a finding. Shorter limits
//! depend on health (`chaos/eyes.rs`): four times a second the longest waiting call on the two
//! intact mounts is written to a file.

use super::excuses::Excuses;
use super::guest::{self, FOLDER, Guest, Ledgers};
use super::number::Number;
use super::worlds::{Compared, Worlds};
use super::{place, waiting};
use crate::chaos::plan::VICTIM;
use crate::show::mounts::stale;
use crate::show::mounts::stalls::Stalls;
use crate::show::mounts::tokens;
use anyhow::{Context, Result, anyhow, bail};
use serde_json::json;
use std::fs;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

const LOOK: Duration = Duration::from_millis(250);
/// As long as recovery after a fault may take.
const HANG: Duration = Duration::from_secs(150);
/// A lock of a mount that died is free after 60 s, and a process that waited for it may die with
/// it.
const HANG_OF_A_LOCK: Duration = Duration::from_secs(240);

/// Maximum duration of a thread's calls.
#[derive(Clone, Copy, PartialEq)]
enum Calls {
    /// As long as health explains it.
    Whole,
    /// On the victim: as long as it is suspended.
    Victims,
    /// Waits for a lock that the victim may have.
    Locks,
}

struct Thread {
    name: String,
    calls: Calls,
    stalls: Arc<Stalls>,
    thread: Option<JoinHandle<Result<Compared>>>,
}

/// All workers.
struct Crew {
    dir: PathBuf,
    stop: Arc<AtomicBool>,
    excuses: Arc<Excuses>,
    threads: Vec<Thread>,
    compared: Vec<Compared>,
    ledgers: Arc<Ledgers>,
    number: Arc<Number>,
    /// Number of abandoned worlds.
    left: Arc<AtomicU64>,
    guest: Arc<Mutex<Guest>>,
}

/// Main function of the program.
///
/// # Errors
/// The first finding.
pub fn main(dir: &Path, seed: u64) -> Result<()> {
    let mut crew = Crew::begin(dir, seed)?;
    let (sender, words) = mpsc::channel();
    std::thread::spawn(move || {
        std::io::stdin()
            .lock()
            .lines()
            .map_while(Result::ok)
            .try_for_each(|l| sender.send(l))
    });
    loop {
        match words.recv_timeout(LOOK) {
            Ok(word) => crew.hear(&word)?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        crew.look()?;
    }
}

impl Crew {
    fn begin(dir: &Path, seed: u64) -> Result<Self> {
        let [first, second, third] = [0, 1, VICTIM.parts().1].map(|id| place(dir, id));
        fs::create_dir(first.join(FOLDER)).context("making the guest's folder")?;
        Number::make(&first.join(FOLDER))?;
        let guest = Guest {
            root: third,
            ledgers: Arc::default(),
            number: Arc::default(),
            excuses: Arc::default(),
            stop: Arc::default(),
            breaks: 0,
        };
        let mut crew = Self {
            dir: dir.to_owned(),
            stop: guest.stop.clone(),
            excuses: guest.excuses.clone(),
            threads: Vec::new(),
            compared: Vec::new(),
            ledgers: guest.ledgers.clone(),
            number: guest.number.clone(),
            left: Arc::default(),
            guest: Arc::new(Mutex::new(guest)),
        };
        let places = [first.clone(), second.clone()];
        tokens::make(&first)?;
        for (name, draw) in [("zero/pair", seed), ("one/pair", seed + 1)] {
            crew.world(name, &places, move |world| world.pair(draw));
        }
        for (name, draw) in [("tokens-1", 1), ("tokens-2", 2)] {
            crew.world(name, &places, move |world| world.tokens(draw));
        }
        crew.world("one/races", &places, Worlds::races);
        crew.world("zero/book", &places, Worlds::book);
        let guest = crew.guest.clone();
        crew.thread("guest", Calls::Victims, move |stalls| {
            guest
                .lock()
                .expect("no other thread has it before this ends")
                .work(stalls)
        });
        let (ledgers, stop) = (crew.ledgers.clone(), crew.stop.clone());
        let root = first;
        crew.thread("watch", Calls::Whole, move |stalls| {
            guest::watch(&root, &ledgers, seed, stalls, &stop)
        });
        let (number, excuses, stop) =
            (crew.number.clone(), crew.excuses.clone(), crew.stop.clone());
        let root = second;
        crew.thread("count", Calls::Locks, move |stalls| {
            guest::count(&root, &number, &excuses, stalls, &stop)
        });
        Ok(crew)
    }

    fn world(
        &mut self,
        name: &str,
        places: &[PathBuf; 2],
        run: impl FnOnce(&Worlds) -> Result<Compared> + Send + 'static,
    ) {
        let stalls = Arc::new(Stalls::default());
        let world = Worlds {
            places: places.clone(),
            name: name.to_owned(),
            stalls: stalls.clone(),
            stop: self.stop.clone(),
            excuses: self.excuses.clone(),
            left: self.left.clone(),
        };
        let thread = Some(std::thread::spawn(move || run(&world)));
        self.threads.push(Thread {
            name: name.to_owned(),
            calls: Calls::Whole,
            stalls,
            thread,
        });
    }
    fn thread(
        &mut self,
        name: &str,
        calls: Calls,
        run: impl FnOnce(&Stalls) -> Result<()> + Send + 'static,
    ) {
        let stalls = Arc::new(Stalls::default());
        let theirs = stalls.clone();
        let thread = Some(std::thread::spawn(move || {
            run(&theirs).map(|()| Compared::Nothing)
        }));
        self.threads.push(Thread {
            name: name.to_owned(),
            calls,
            stalls,
            thread,
        });
    }

    /// Executes a command, and answers with a line.
    fn hear(&mut self, word: &str) -> Result<()> {
        let mut answer = json!("heard");
        match word.split_once(' ').unwrap_or((word, "")) {
            ("harm", _) => self.excuses.harm.begin(),
            ("mended", _) => self.excuses.harm.end(),
            ("full", _) => {
                self.ledgers.note_full();
                self.excuses.full.begin();
            }
            ("room", _) => self.excuses.full.end(),
            ("stop", _) => {
                self.stop.store(true, Ordering::Relaxed);
                while self.threads.iter().any(|thread| thread.thread.is_some()) {
                    self.look()?;
                    std::thread::sleep(LOOK);
                }
                fs::remove_file(waiting(&self.dir)).context("nothing waits any more")?;
                answer = self.figures();
            }
            ("compare", root) => answer = self.compare(Path::new(root))?,
            _ => bail!("`{word}` is nothing that is said here"),
        }
        println!("{answer}");
        Ok(())
    }

    /// Checks for workers that have ended or hang, and for waiting calls.
    fn look(&mut self) -> Result<()> {
        let stopped = self.stop.load(Ordering::Relaxed);
        for Thread { name, thread, .. } in &mut self.threads {
            if let Some(ended) = thread.take_if(|thread| thread.is_finished()) {
                let result = ended.join().map_err(|_| anyhow!("{name} panicked"))?;
                self.compared.push(result.with_context(|| name.clone())?);
                if !stopped {
                    bail!("{name} ended early");
                }
            }
        }
        let mut longest = (Duration::ZERO, String::new());
        for Thread {
            name,
            calls,
            stalls,
            ..
        } in &self.threads
        {
            let Some((took, call)) = stalls.waiting() else {
                continue;
            };
            let limit = if *calls == Calls::Locks {
                HANG_OF_A_LOCK
            } else {
                HANG
            };
            if took > limit {
                bail!("{name} hangs: {call} for {} s", took.as_secs());
            }
            if *calls == Calls::Whole && took > longest.0 {
                longest = (took, format!("{name}: {call}"));
            }
        }
        let waits = json!([{ "ms": u64::try_from(longest.0.as_millis()).unwrap_or(u64::MAX), "what": longest.1 }]);
        let (file, new) = (waiting(&self.dir), self.dir.join("files.waiting.new"));
        if self.threads.iter().any(|thread| thread.thread.is_some()) {
            fs::write(&new, waits.to_string())
                .and_then(|()| fs::rename(&new, &file))
                .context("writing who waits")?;
        }
        Ok(())
    }

    fn figures(&self) -> serde_json::Value {
        let of = |thread: &Thread| {
            let (longest, call) = thread.stalls.take();
            json!({ "calls": thread.stalls.calls(), "longest_s": longest.as_millis() as f64 / 1e3, "which": call })
        };
        let threads: serde_json::Map<_, _> = self
            .threads
            .iter()
            .map(|thread| (thread.name.clone(), of(thread)))
            .collect();
        let breaks = self.guest.lock().map_or(0, |guest| guest.breaks);
        let left = self.left.load(Ordering::Relaxed);
        json!({ "threads": threads, "folders_left": left, "victim_failed": breaks, "stale_again": stale::count() })
    }

    /// Compares everything known with a mount with an empty cache.
    fn compare(&mut self, root: &Path) -> Result<serde_json::Value> {
        let things = self.compared.iter_mut().try_fold(0, |sum, one| {
            Ok::<_, anyhow::Error>(sum + one.compare(root)?)
        });
        let things = things.context("on a new mount")?;
        let records = self
            .ledgers
            .verify(&root.join(FOLDER))
            .context("on a new mount")?;
        let number = self
            .number
            .verify(&root.join(FOLDER))
            .context("on a new mount")?;
        Ok(
            json!({ "entries_and_records": things, "records_of_the_victim": records, "number": number }),
        )
    }
}
