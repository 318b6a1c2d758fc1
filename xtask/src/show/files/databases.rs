//! Databases, which verify their own durability: SQLite and PostgreSQL, killed while they write.

use super::{Ground, tools};
use crate::bounded::{self, Killed};
use crate::cluster::signal;
use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

const STEP_MAX: Duration = Duration::from_mins(5);
/// Time after which a program to be killed has written.
const WRITES: Duration = Duration::from_secs(3);
/// Number of transactions of each of SQLite's two writers.
const TRANSACTIONS: usize = 200;
/// Duration of PostgreSQL's load, in seconds.
const LOADED: &str = "6";
/// PostgreSQL's port within a site's range: daemons use the first ones.
const PORT: u16 = 19;

/// Two writers at once in both kinds of journal, and one that is killed.
pub fn sqlite(ground: &mut Ground) -> Result<()> {
    if !ground.has("SQLite", "sqlite3") {
        return Ok(());
    }
    for journal in ["wal", "delete"] {
        let file = ground.dir.join(format!("{journal}.db"));
        one_journal(&file, &ground.aside, journal)
            .with_context(|| format!("journal_mode={journal}"))?;
    }
    ground.site.figures.proved(
        "SQLite: two writers, and one killed, with a write-ahead log and a rollback journal",
    );
    Ok(())
}

fn one_journal(file: &Path, aside: &Path, journal: &str) -> Result<()> {
    let ask = |question: &str| -> Result<String> {
        let mut command = Command::new("sqlite3");
        let said = tools::run(
            command
                .arg("-batch")
                .arg(file)
                .args([".timeout 60000", question]),
            STEP_MAX,
        )?;
        Ok(said.trim().to_owned())
    };
    let mode = ask(&format!("PRAGMA journal_mode={journal}"))?;
    ensure!(mode == journal, "SQLite chose another journal: {mode}");
    ask(
        "CREATE TABLE entry (writer INTEGER, text TEXT); CREATE INDEX by_text ON entry (text);
         CREATE TABLE total (n INTEGER); INSERT INTO total VALUES (0)",
    )?;
    let begin = |writer: usize, count: usize| -> Result<Killed> {
        let one = format!(
            "BEGIN IMMEDIATE; INSERT INTO entry VALUES ({writer}, hex(randomblob(200)));
             UPDATE total SET n = n + 1; COMMIT;\n"
        );
        let script = aside.join(format!("{journal}-{writer}.sql"));
        fs::write(
            &script,
            format!(".bail on\n.timeout 60000\n{}", one.repeat(count)),
        )
        .context("writing a script")?;
        let said = File::create(aside.join(format!("{journal}-{writer}.said")))
            .context("a file for what is said")?;
        let mut command = Command::new("sqlite3");
        command
            .arg("-batch")
            .arg(file)
            .stdin(File::open(&script).context("opening a script")?);
        command
            .stdout(said.try_clone().context("using a file twice")?)
            .stderr(said);
        Ok(Killed(command.spawn().context("sqlite3 does not start")?))
    };
    let writers = [begin(1, TRANSACTIONS)?, begin(2, TRANSACTIONS)?];
    for (at, mut writer) in writers.into_iter().enumerate() {
        let status = bounded::ended(&mut writer.0, STEP_MAX)?;
        let said = fs::read_to_string(aside.join(format!("{journal}-{}.said", at + 1)))
            .unwrap_or_default();
        ensure!(
            status.success(),
            "a writer ended badly ({status}): {}",
            said.trim()
        );
    }
    let promised = ask("SELECT count(*) FROM entry")?;
    ensure!(
        promised == (2 * TRANSACTIONS).to_string(),
        "{promised} entries are there"
    );
    let killed = begin(3, 1_000_000)?;
    sleep(WRITES);
    drop(killed);
    let fits = ask(
        "SELECT (SELECT n FROM total) = (SELECT count(*) FROM entry)
                    AND (SELECT count(*) FROM entry WHERE writer < 3) = 400
                    AND (SELECT count(*) FROM entry WHERE writer = 3) > 0; PRAGMA integrity_check",
    )?;
    ensure!(fits == "1\nok", "after a writer was killed: {fits}");
    Ok(())
}

/// PostgreSQL under load, killed with all its processes, started again.
pub fn postgresql(ground: &mut Ground) -> Result<()> {
    let Some(programs) = programs() else {
        ground.site.figures.skipped(
            "PostgreSQL",
            "its programs are missing, and apt-get did not help",
        );
        return Ok(());
    };
    let user = if is_there("postgres") {
        "postgres"
    } else {
        "nobody"
    };
    let reaches = Command::new("runuser")
        .args(["-u", user, "--", "test", "-x"])
        .arg(&ground.dir)
        .status();
    if !reaches.is_ok_and(|status| status.success()) {
        let why = format!(
            "user {user} may not enter {}; --dir names another place",
            ground.dir.display()
        );
        ground.site.figures.skipped("PostgreSQL", &why);
        return Ok(());
    }
    let port = ground.site.base_port + PORT;
    let server = Postgres {
        programs,
        user,
        data: ground.dir.join("data"),
        aside: ground.aside.clone(),
        port,
    };
    tools::run(Command::new("chown").arg(user).arg(&ground.dir), STEP_MAX)?;
    tools::run(
        server
            .program("initdb")
            .args(["-A", "trust", "-U", "postgres", "-D"])
            .arg(&server.data),
        STEP_MAX,
    )?;
    let mut running = server.start()?;
    // Without -n a run truncates the table written by the previous one.
    tools::run(
        &mut server.client("pgbench", &["--quiet", "-i", "-s", "3", "postgres"]),
        STEP_MAX,
    )?;
    let said = tools::run(
        &mut server.client("pgbench", &["-n", "-c", "4", "-T", LOADED, "postgres"]),
        STEP_MAX,
    )?;
    let processed = said
        .lines()
        .find_map(|line| line.strip_prefix("number of transactions actually processed: "));
    let processed: u64 = processed
        .and_then(|count| count.trim().parse().ok())
        .context("pgbench counts nothing")?;
    let load = server
        .client("pgbench", &["-n", "-c", "4", "-T", "60", "postgres"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let load = Killed(load.context("pgbench does not start")?);
    sleep(WRITES);
    running.kill()?;
    drop(load);
    let mut running = server.start().context("after kill -9")?;
    let sums = "SELECT count(DISTINCT sum) = 1 FROM (SELECT sum(abalance) FROM pgbench_accounts UNION ALL
        SELECT sum(bbalance) FROM pgbench_branches UNION ALL SELECT sum(tbalance) FROM pgbench_tellers UNION ALL
        SELECT coalesce(sum(delta), 0) FROM pgbench_history) AS sums";
    let fits = server.ask(sums)?;
    ensure!(
        fits == "t",
        "after a crash the sums of four tables differ ({fits})"
    );
    let kept: u64 = server
        .ask("SELECT count(*) FROM pgbench_history")?
        .parse()
        .context("a count")?;
    ensure!(
        kept > processed,
        "of {processed} acknowledged transactions and those of another load {kept} are there"
    );
    tools::run(
        &mut server.client("pgbench", &["-n", "-c", "4", "-T", "2", "postgres"]),
        STEP_MAX,
    )?;
    ensure!(
        server.ask(sums)? == "t",
        "after a crash and more load the sums differ"
    );
    running.kill()?;
    ground.site.figures.note(
        "PostgreSQL: transactions before the crash",
        processed as f64,
        "",
    );
    ground.site.figures.proved(
        "PostgreSQL: killed under load, all sums equal, nothing that was acknowledged lost",
    );
    Ok(())
}

/// A server that is to be killed.
struct Postgres {
    programs: PathBuf,
    user: &'static str,
    data: PathBuf,
    aside: PathBuf,
    port: u16,
}

impl Postgres {
    /// One of its programs, run as a user that is not root, which it refuses.
    fn program(&self, name: &str) -> Command {
        let mut command = Command::new("runuser");
        command
            .args(["-u", self.user, "--"])
            .arg(self.programs.join(name))
            .current_dir("/");
        command
    }
    fn client(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = self.program(name);
        command
            .args([
                "-h",
                "127.0.0.1",
                "-U",
                "postgres",
                "-p",
                &self.port.to_string(),
            ])
            .args(arguments);
        command
    }
    fn ask(&self, question: &str) -> Result<String> {
        let said = tools::run(
            &mut self.client("psql", &["-AtXqc", question, "postgres"]),
            STEP_MAX,
        )?;
        Ok(said.trim().to_owned())
    }
    /// Starts it, and waits until it answers: after a crash that includes recovery.
    fn start(&self) -> Result<Running> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.aside.join("postgres.log"))
            .context("a log")?;
        let mut command = self.program("postgres");
        command.arg("-D").arg(&self.data).args([
            "-p",
            &self.port.to_string(),
            "-c",
            "listen_addresses=127.0.0.1",
        ]);
        command.args(["-c", "unix_socket_directories="]);
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("using a file twice")?)
            .stderr(log);
        let mut running = Running(command.spawn().context("postgres does not start")?);
        bounded::until("PostgreSQL answers", STEP_MAX, || {
            if let Some(status) = running.0.try_wait().context("waiting for PostgreSQL")? {
                let said = fs::read_to_string(self.aside.join("postgres.log")).unwrap_or_default();
                bail!("PostgreSQL ended ({status}): {}", said.trim());
            }
            Ok(self.ask("SELECT 1").ok())
        })?;
        Ok(running)
    }
}

/// All processes of a server: the main one is a child of `runuser`, and all others are its
/// children. They are killed when this is dropped.
struct Running(Child);

impl Running {
    /// Kills all of them at once; waits until they are gone.
    fn kill(&mut self) -> Result<()> {
        let main = children(self.0.id());
        let all: Vec<u32> = main
            .iter()
            .copied()
            .chain(main.iter().flat_map(|pid| children(*pid)))
            .collect();
        for pid in &all {
            // One of its workers may have ended by itself.
            let _ = signal(*pid, "KILL");
        }
        bounded::ended(&mut self.0, STEP_MAX)?;
        bounded::until("PostgreSQL's processes are gone", STEP_MAX, || {
            Ok((!all.iter().any(|pid| is_alive(*pid))).then_some(()))
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// The directory of PostgreSQL's programs, the newest if there are several.
fn programs() -> Option<PathBuf> {
    let find = || {
        let versions = fs::read_dir("/usr/lib/postgresql")
            .into_iter()
            .flatten()
            .flatten();
        let folders = versions.map(|entry| entry.path().join("bin"));
        folders
            .filter(|folder| {
                ["initdb", "postgres", "pgbench"]
                    .iter()
                    .all(|name| folder.join(name).exists())
            })
            .max()
    };
    find().or_else(|| {
        tools::package("initdb", "postgresql", "a suite").ok()?;
        find()
    })
}

fn is_there(user: &str) -> bool {
    Command::new("id")
        .arg(user)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn children(of: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap_or_default();
    text.split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// Whether a process is running; a zombie is not.
fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}
