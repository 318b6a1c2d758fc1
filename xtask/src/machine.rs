//! Properties and load of this machine, from `/proc`.

use anyhow::{Context, Result};
use std::fs;
use std::process::Command;
use std::time::Duration;

/// Linux counts 100 ticks a second for programs.
const TICKS_PER_S: f64 = 100.0;

/// Processors that this process may use.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// One line: processors and memory.
pub fn describe() -> String {
    format!(
        "{} × {}, {} GiB",
        processors(),
        line("/proc/cpuinfo", "model name"),
        memory() >> 30
    )
}
/// Bytes of memory that the machine has.
pub fn memory() -> u64 {
    let memory = line("/proc/meminfo", "MemTotal");
    memory
        .split(' ')
        .next()
        .and_then(|kib| kib.parse::<u64>().ok())
        .unwrap_or(0)
        << 10
}
/// The value of a line in a file of the kernel; `?` if it is missing.
fn line(file: &str, name: &str) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let value = text.lines().find_map(|line| {
        line.strip_prefix(name)?
            .split_once(':')
            .map(|(_, value)| value.trim().to_owned())
    });
    value.unwrap_or_else(|| "?".to_owned())
}

/// The output of a program; `?` if it does not run.
pub fn text_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map_or_else(
        |_| "?".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}

/// The beginning of every line of a history: time, commit, machine.
pub fn stamp() -> serde_json::Value {
    serde_json::json!({
        "date": text_of("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"]),
        "commit": text_of("git", &["describe", "--always", "--dirty"]),
        "machine": describe(),
    })
}

/// Total time in which processors were not idle since the machine started, in seconds.
///
/// # Errors
/// When `/proc/stat` has an unknown format.
pub fn busy_seconds() -> Result<f64> {
    let stat = fs::read_to_string("/proc/stat").context("reading /proc/stat")?;
    Ok(busy_ticks(&stat).context("/proc/stat has another form")? as f64 / TICKS_PER_S)
}

/// Number of processors that other processes keep busy, over half a second in which this one
/// sleeps.
///
/// # Errors
/// As [`busy_seconds`].
pub fn others_load() -> Result<f64> {
    let (before, pause) = (busy_seconds()?, Duration::from_millis(500));
    std::thread::sleep(pause);
    Ok((busy_seconds()? - before) / pause.as_secs_f64())
}

/// User, nice, system, interrupts, and time taken by a hypervisor.
fn busy_ticks(stat: &str) -> Option<u64> {
    let fields: Vec<u64> = stat
        .lines()
        .next()?
        .split_whitespace()
        .skip(1)
        .map_while(|field| field.parse().ok())
        .collect();
    let [
        user,
        nice,
        system,
        _idle,
        _waiting,
        interrupts,
        soft,
        stolen,
        ..,
    ] = fields[..]
    else {
        return None;
    };
    Some(user + nice + system + interrupts + soft + stolen)
}

/// Resident memory of a process, in MiB.
///
/// # Errors
/// When there is no such process.
pub fn resident_mib(pid: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))
        .with_context(|| format!("process {pid} does not run"))?;
    let kib = status.lines().find_map(|line| {
        line.strip_prefix("VmRSS:")?
            .split_whitespace()
            .next()?
            .parse()
            .ok()
    });
    let kib: f64 = kib.with_context(|| format!("process {pid} has ended"))?;
    Ok(kib / 1024.0)
}

/// Bytes that a process has caused to be written to disks.
///
/// # Errors
/// When there is no such process.
pub fn written_bytes(pid: u32) -> Result<f64> {
    let io = fs::read_to_string(format!("/proc/{pid}/io"))
        .with_context(|| format!("process {pid} does not run"))?;
    let bytes = io
        .lines()
        .find_map(|line| line.strip_prefix("write_bytes:")?.trim().parse().ok());
    bytes.context("/proc/PID/io has another form")
}

/// CPU time that a process has used, in seconds: user and system, all threads.
///
/// # Errors
/// When there is no such process.
pub fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))
        .with_context(|| format!("process {pid} does not run"))?;
    Ok(process_ticks(&stat).context("/proc/PID/stat has another form")? as f64 / TICKS_PER_S)
}

/// The name in the line may contain spaces and brackets.
fn process_ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_waiting_processors_are_not_busy() {
        assert_eq!(
            busy_ticks("cpu  10 1 5 1000 500 2 3 4 0 0\ncpu0 1 1 1 1\n"),
            Some(25)
        );
        assert_eq!(busy_ticks("nonsense"), None);
    }

    #[test]
    fn a_process_is_read_whatever_its_name() {
        assert_eq!(
            process_ticks("42 (a ) b) R 1 2 3 4 5 6 7 8 9 10 300 40 0 0 20 0 1 0 5"),
            Some(340)
        );
        let me = std::process::id();
        assert!(resident_mib(me).expect("readable") > 0.1);
        assert!(cpu_seconds(me).expect("readable") >= 0.0);
        assert!(resident_mib(u32::MAX).is_err());
    }
}
