//! `nacre bench propagation`: the delay until a new version of a class is active on every OSD
//! (MAL-E8, MAL-73), as numbers and as a curve (SVG).
//!
//! Two clusters: a simulated one with as many OSDs as the paper's (the model is in
//! `sim::propagation`), and real daemons on real stores, all in this process on one thread. There
//! the notifications, the sources and all other messages still go from daemon to daemon. Unlike on
//! real machines there are no sockets, and one processor does the work of all.

use crate::clock;
use crate::cluster::host;
use crate::out::Out;
use crate::program;
use anyhow::{Context, Result, bail};
use clap::Args;
use nacre_command::Command;
use nacre_node::{Pipelined, RunOptions};
use nacre_sim::propagation::{Propagation, Setup, measure};
use nacre_wire::map::ProgramKind;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Arguments of `bench propagation`.
#[derive(Args)]
pub struct Arguments {
    /// Simulated OSDs.
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u32).range(1..=1000))]
    osds: u32,
    /// Updates, one after the other.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    updates: u64,
    /// Real OSDs in this process; 0 for none.
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(0..=200))]
    real: u32,
    /// Write the curves to this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

const MONS: u32 = 3;
/// Duration of a flush on a disk with 7,200 rotations a minute: some rotations, and the seeks of
/// the file system's journal.
const HARD_DISK_MS: (u64, u64) = (8, 25);
const NAME: &str = "updated";

/// Runs it.
///
/// # Errors
/// When the real cluster cannot be started, or the file cannot be written.
pub fn run(arguments: &Arguments, out: &mut Out) -> Result<()> {
    let simulated = measure(&Setup::of(arguments.osds, MONS, arguments.updates), 1);
    // A tenth of the OSDs: the monitors' messages must not become a tenth.
    let few = measure(
        &Setup::of(
            (arguments.osds / 10).max(1),
            MONS,
            arguments.updates.min(200),
        ),
        1,
    );
    // The paper's monitors had hard disks: one proposal per second, or as fast as possible.
    let disks = Setup {
        flush_ms: Some(HARD_DISK_MS),
        ..Setup::of(3, MONS, arguments.updates.min(200))
    };
    let mean_ms = |setup| {
        let commits = measure(&setup, 1).commit_ns;
        (commits.iter().sum::<u64>() as f64 / commits.len() as f64 / 1e4).round() / 100.0
    };
    let at_once = mean_ms(disks);
    let each_second = mean_ms(Setup {
        propose_interval_ms: Some(1000),
        ..disks
    });
    let real = if arguments.real > 0 {
        Some(real(arguments.real, arguments.updates)?)
    } else {
        None
    };
    if let Some(file) = &arguments.svg {
        let mut curves = vec![(
            format!("{} OSDs, simulated", arguments.osds),
            &simulated.live_ns[..],
        )];
        if let Some(real) = &real {
            curves.push((
                format!("{} OSDs in one process", arguments.real),
                &real.live_ns[..],
            ));
        }
        std::fs::write(file, svg(&curves))
            .with_context(|| format!("writing {}", file.display()))?;
    }
    let mut value = json!({ "updates": arguments.updates, "simulated": figures(&simulated) });
    value["simulated"]["osds"] = json!(arguments.osds);
    value["hard_disks"] = json!({
        "flush_ms": HARD_DISK_MS, "commit_mean_ms": at_once, "commit_mean_ms_at_1_s": each_second,
    });
    value["simulated"]["mon_messages_with_a_tenth_of_the_osds"] = json!(few.mon_messages);
    if let Some(real) = &real {
        value["real"] = figures(real);
        value["real"]["osds"] = json!(arguments.real);
    }
    if out.json() {
        return out.value(&value);
    }
    for kind in ["simulated", "real"] {
        let row = &value[kind];
        if row.is_null() {
            continue;
        }
        out.line(&format!(
            "{kind}, {} OSDs: live after p50 {} ms, p90 {}, p99 {}, at most {}; the commit itself p50 {} ms, p99 {}",
            row["osds"],
            row["live_p50_ms"],
            row["live_p90_ms"],
            row["live_p99_ms"],
            row["live_max_ms"],
            row["commit_p50_ms"],
            row["commit_p99_ms"]
        ))?;
    }
    out.line(&format!(
        "messages of monitors to OSDs per update, simulated: {:.1}; with a tenth of the OSDs {:.1}",
        simulated.mon_messages, few.mon_messages
    ))?;
    out.line(&format!(
        "commit on simulated hard disks (a flush takes {} to {} ms): {at_once} ms in the mean, {each_second} with proposals every second",
        HARD_DISK_MS.0, HARD_DISK_MS.1
    ))
}

fn figures(found: &Propagation) -> Value {
    let at = |all: &[u64], share: f64| {
        (all[((all.len() - 1) as f64 * share) as usize] as f64 / 1e4).round() / 100.0
    };
    json!({
        "live_p50_ms": at(&found.live_ns, 0.5),
        "live_p90_ms": at(&found.live_ns, 0.9),
        "live_p99_ms": at(&found.live_ns, 0.99),
        "live_max_ms": at(&found.live_ns, 1.0),
        "commit_p50_ms": at(&found.commit_ns, 0.5),
        "commit_p99_ms": at(&found.commit_ns, 0.99),
        "mon_messages": found.mon_messages,
    })
}

/// Real daemons, all on this thread; another thread sends the commands, as a client over loopback.
fn real(osds: u32, updates: u64) -> Result<Propagation> {
    let folder = Folder::new()?;
    host::init(
        &folder.0,
        &host::Shape {
            mons: MONS,
            osds,
            base_port: Some(free_port(MONS + osds)?),
            host: None,
            osd_bytes: None,
            first_pool: None,
        },
    )?;
    let mut daemons = Pipelined::embedded(&folder.0, &RunOptions::default())?;
    // The newest activation that is active everywhere: then the next update may follow.
    let live = AtomicU64::new(0);
    let mut out = Propagation::default();
    std::thread::scope(|scope| -> Result<()> {
        let orders = scope.spawn(|| order(&folder.0, osds, updates, &live));
        let mut committed: Option<(u64, Instant)> = None;
        let mut reached = vec![0_u64; osds as usize];
        let mut ended = Vec::new();
        while !orders.is_finished() {
            daemons.poll(Duration::from_millis(1), &mut ended);
            let programs = daemons.programs(NAME);
            let now = Instant::now();
            if committed.is_none_or(|(activation, _)| activation < programs.committed)
                && programs.committed > 0
            {
                committed = Some((programs.committed, now));
            }
            let Some((activation, at)) = committed else {
                continue;
            };
            for (osd, has) in &programs.live {
                let reached = &mut reached[osd.0 as usize];
                if *reached < activation && *has >= activation {
                    *reached = activation;
                    out.live_ns
                        .push(u64::try_from((now - at).as_nanos()).unwrap_or(u64::MAX));
                }
            }
            if reached.iter().all(|reached| *reached >= activation) {
                live.store(activation, Ordering::SeqCst);
            }
        }
        out.commit_ns = orders.join().expect("it does not panic")?;
        Ok(())
    })?;
    out.live_ns.sort_unstable();
    out.commit_ns.sort_unstable();
    Ok(out)
}

fn order(folder: &Path, osds: u32, updates: u64, live: &AtomicU64) -> Result<Vec<u64>> {
    let mut session = host::connect(folder, nacre_node::ADMIN)?;
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let tree = session.command(&Command::Status {})?;
        if tree["osds"]["up"].as_u64() == Some(u64::from(osds)) {
            break;
        }
        if Instant::now() > deadline {
            bail!("the OSDs did not all come up within a minute: {tree}");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let mut commits = Vec::new();
    for number in 1..=updates {
        let source = format!(
            "-- {number}\nfunction get(input, output) output:append(\"{number}\") end\nobjclass.register(get)\n"
        );
        let stored = program::store(
            ProgramKind::Class {},
            NAME,
            source.as_bytes(),
            nacre_node::ADMIN,
            &mut *session,
        )?;
        let begun = Instant::now();
        session.command(&stored)?;
        commits.push(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
        let deadline = Instant::now() + Duration::from_secs(60);
        while live.load(Ordering::SeqCst) < number {
            if Instant::now() > deadline {
                bail!("update {number} was not live everywhere within a minute");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(commits)
}

/// A directory that is removed when this is dropped.
struct Folder(PathBuf);
impl Folder {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!(
            "nacre-propagation-{}-{}",
            std::process::id(),
            clock::now_unix_ms()
        ));
        std::fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
        Ok(Self(path))
    }
}
impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The first of `count` consecutive ports without a listener.
fn free_port(count: u32) -> Result<u16> {
    let count = u16::try_from(count)?;
    let free = |port: u16| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok();
    (20_000..60_000)
        .step_by(usize::from(count))
        .find(|base| (0..count).all(|at| free(base + at)))
        .context("no free ports")
}

/// Curves of distributions: the fraction (0 to 100 %) that was active after a number of
/// milliseconds.
fn svg(curves: &[(String, &[u64])]) -> String {
    let (width, height, left, bottom, top) = (640.0, 400.0, 60.0, 350.0, 30.0);
    const COLOURS: [&str; 3] = ["#1f77b4", "#d62728", "#2ca02c"];
    let most = curves
        .iter()
        .filter_map(|(_, all)| all.last())
        .copied()
        .max()
        .unwrap_or(1) as f64
        / 1e6;
    let step = [
        0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0,
    ]
    .into_iter()
    .find(|step| most / step <= 8.0);
    let step = step.unwrap_or(1000.0);
    let end = (most / step).ceil().max(1.0) * step;
    let x = |ms: f64| left + ms / end * (width - left - 20.0);
    let y = |share: f64| bottom - share * (bottom - top);
    let mut out = String::new();
    let mut line = |text: String| {
        out.push_str(&text);
        out.push('\n');
    };
    line(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">"
    ));
    line(format!(
        "<rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>"
    ));
    for tenth in (0..=10).step_by(2) {
        let (at, label) = (y(f64::from(tenth) / 10.0), tenth * 10);
        line(format!(
            "<line x1=\"{left}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>",
            x(end)
        ));
        line(format!(
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label} %</text>",
            left - 8.0,
            at + 4.0
        ));
    }
    let mut ms = 0.0;
    while ms <= end + step / 2.0 {
        let at = x(ms);
        line(format!(
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{top}\" y2=\"{bottom}\" stroke=\"#ddd\"/>"
        ));
        line(format!(
            "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            bottom + 18.0,
            (ms * 100.0).round() / 100.0
        ));
        ms += step;
    }
    line(format!(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">milliseconds from commit to live on an OSD</text>",
        x(end / 2.0),
        bottom + 38.0
    ));
    for (number, (name, all)) in curves.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let mut points = String::new();
        // A curve of 500 points looks like one of a hundred thousand.
        let every = (all.len() / 500).max(1);
        for (at, ns) in all
            .iter()
            .enumerate()
            .filter(|(at, _)| at % every == 0 || at + 1 == all.len())
        {
            let _ = write!(
                points,
                "{:.1},{:.1} ",
                x(*ns as f64 / 1e6),
                y((at + 1) as f64 / all.len() as f64)
            );
        }
        line(format!(
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>",
            points.trim_end()
        ));
        let at = bottom - 14.0 - 18.0 * number as f64;
        line(format!(
            "<text x=\"{}\" y=\"{at}\" text-anchor=\"end\" fill=\"{colour}\">{name}</text>",
            x(end) - 8.0
        ));
    }
    line("</svg>".to_owned());
    out
}
