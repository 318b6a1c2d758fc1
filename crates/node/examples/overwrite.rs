//! Operations per second and processor time per operation: 4 KiB durable overwrites and warm reads
//! at depth 16, three replicas.
//!
//!     cargo run --release -p nacre-node --example overwrite -- embedded|tcp [SECONDS]
//!
//! `tcp` starts one monitor and three OSDs as separate processes and includes their processor time.
//! All objects exist before the measurement; the count ends when all operations have completed.
//! Expected: DESIGN §10, at most 60 µs and 12 µs with all processes together.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a program of the host's"
)]

use bytes::Bytes;
use nacre_client::{Completion, Operation};
use nacre_node::{Config, InitOptions, Pipelined, RunOptions, cpu_ns, init, run_mon, run_osd};
use nacre_types::{MonId, ObjectId, OsdId, PoolId, SplitMix64};
use nacre_wire::msg::client::SubOp;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const OBJECTS: u64 = 256;
const BLOCK: u64 = 4096;
const BLOCKS: u64 = 256;
const DEPTH: usize = 16;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    match args.get(1).map(String::as_str) {
        Some("daemon") => daemon(
            &args[2],
            args[3].parse().expect("an id"),
            Path::new(&args[4]),
        ),
        Some(kind @ ("embedded" | "tcp")) => {
            let seconds = args.get(2).map_or(5, |text| text.parse().expect("seconds"));
            bench(kind == "tcp", Duration::from_secs(seconds));
        }
        _ => eprintln!("embedded or tcp?"),
    }
}

fn daemon(kind: &str, id: u32, dir: &Path) {
    let config = Config::load(dir).expect("a cluster");
    let mut say = |line: &str| eprintln!("{line}");
    let options = RunOptions::default();
    let result = match kind {
        "mon" => run_mon(&config, MonId(id), &options, &mut say),
        _ => run_osd(&config, OsdId(id), &options, &mut say),
    };
    result.expect("runs until it is told to stop");
}

struct Processes(Vec<Child>);
impl Processes {
    fn start(dir: &Path) -> Self {
        let daemons = [("mon", 0), ("osd", 0), ("osd", 1), ("osd", 2)];
        let spawn = |(kind, id): (&str, u32)| {
            let exe = std::env::current_exe().expect("this binary");
            let id = id.to_string();
            Command::new(exe)
                .args(["daemon", kind, &id])
                .arg(dir)
                .spawn()
                .expect("starts")
        };
        Self(daemons.into_iter().map(spawn).collect())
    }
    /// Processor time of all processes, in nanoseconds (the kernel counts it in ticks of 10 ms
    /// here).
    fn cpu_ns(&self) -> u64 {
        let of = |child: &Child| {
            let text =
                std::fs::read_to_string(format!("/proc/{}/stat", child.id())).expect("it runs");
            let fields: Vec<&str> = text
                .rsplit(')')
                .next()
                .expect("a name")
                .split_whitespace()
                .collect();
            let ticks = |at: usize| fields[at].parse::<u64>().expect("a number");
            (ticks(11) + ticks(12)) * 10_000_000
        };
        self.0.iter().map(of).sum()
    }
}
impl Drop for Processes {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn bench(tcp: bool, time: Duration) {
    let dir: PathBuf = std::env::temp_dir().join(format!("nacre-overwrite-{}", std::process::id()));
    let options = InitOptions {
        base_port: Some(17_400),
        osd_bytes: 4 << 30,
        config: [("pool.default_size".to_owned(), "3".to_owned())].into(),
        ..InitOptions::default()
    };
    init(&dir, &options).expect("an empty folder");
    let processes = Processes(Vec::new());
    let processes = if tcp {
        Processes::start(&dir)
    } else {
        processes
    };
    let mut handle = if tcp {
        std::thread::sleep(Duration::from_secs(2));
        nacre_node::Cluster::connect(&dir)
            .expect("connects")
            .create_pool("bench")
            .wait()
            .expect("a pool");
        Pipelined::connect(&dir).expect("connects")
    } else {
        let embedded = std::sync::Arc::new(
            nacre_node::Embedded::start(&dir, RunOptions::default()).expect("starts"),
        );
        embedded
            .cluster()
            .create_pool("bench")
            .wait()
            .expect("a pool");
        embedded.stop().expect("it stops");
        Pipelined::embedded(&dir, &RunOptions::default()).expect("starts")
    };
    let mut done = Vec::new();
    while handle
        .client()
        .map()
        .is_none_or(|map| map.pools.is_empty() || map.pgs.values().any(|pg| !pg.is_activated()))
    {
        handle.poll(Duration::from_millis(10), &mut done);
        assert!(handle.halted().is_empty(), "{:?}", handle.halted());
    }
    let pool = *handle
        .client()
        .map()
        .expect("just seen")
        .pools
        .keys()
        .next()
        .expect("a pool");
    let names: Vec<ObjectId> = (0..OBJECTS)
        .map(|n| ObjectId::named(&format!("object-{n}")))
        .collect();
    let data = Bytes::from(vec![0x5a; (BLOCK * BLOCKS) as usize]);
    let whole = |n: u64| Operation {
        pool,
        object: names[n as usize].clone(),
        ops: vec![SubOp::WriteFull {
            length: data.len() as u64,
        }],
        payload: vec![data.clone()],
        ..Operation::default()
    };
    run(&mut handle, Limit::Count(OBJECTS), 4, |n| {
        whole(n % OBJECTS)
    });
    let mut random = SplitMix64(1);
    let mut place = move || (random.below(OBJECTS), random.below(BLOCKS));
    let block = data.slice(..BLOCK as usize);
    let one = |pool: PoolId, object: u64, op: SubOp, payload: Vec<Bytes>| Operation {
        pool,
        object: names[object as usize].clone(),
        ops: vec![op],
        payload,
        ..Operation::default()
    };
    // Warm up, then count.
    for (name, time) in [
        ("warm-up", Duration::from_secs(2)),
        ("4 KiB overwrite", time),
    ] {
        let before = (
            cpu_ns() + processes.cpu_ns(),
            Instant::now(),
            handle.traffic(),
        );
        let count = run(&mut handle, Limit::Time(time), DEPTH, |_| {
            let (object, at) = place();
            one(
                pool,
                object,
                SubOp::Write {
                    offset: at * BLOCK,
                    length: BLOCK,
                },
                vec![block.clone()],
            )
        });
        report(name, tcp, count, before, &handle, &processes);
    }
    for (name, time) in [
        ("warm-up", Duration::from_secs(1)),
        ("4 KiB warm read", time),
    ] {
        let before = (
            cpu_ns() + processes.cpu_ns(),
            Instant::now(),
            handle.traffic(),
        );
        let count = run(&mut handle, Limit::Time(time), DEPTH, |_| {
            let (object, at) = place();
            one(
                pool,
                object,
                SubOp::Read {
                    offset: at * BLOCK,
                    length: BLOCK,
                },
                Vec::new(),
            )
        });
        report(name, tcp, count, before, &handle, &processes);
    }
    drop(handle);
    drop(processes);
    let _ = std::fs::remove_dir_all(&dir);
}

type Before = (u64, Instant, (nacre_node::Traffic, u64));

fn report(
    name: &str,
    tcp: bool,
    count: u64,
    before: Before,
    handle: &Pipelined,
    processes: &Processes,
) {
    let (cpu, begun, (traffic, turns)) = before;
    let (elapsed, cpu) = (begun.elapsed(), cpu_ns() + processes.cpu_ns() - cpu);
    let (now, turns_now) = handle.traffic();
    println!(
        "{name:16} {} {:9.0} op/s {:7.1} us CPU/op {:6.2} op/turn; here: {} sends, {} receives, {} bytes copied",
        if tcp { "tcp     " } else { "embedded" },
        count as f64 / elapsed.as_secs_f64(),
        cpu as f64 / 1000.0 / count as f64,
        count as f64 / (turns_now - turns) as f64,
        now.sends - traffic.sends,
        now.receives - traffic.receives,
        now.bytes_copied - traffic.bytes_copied,
    );
}

enum Limit {
    Count(u64),
    Time(Duration),
}

fn run(
    handle: &mut Pipelined,
    limit: Limit,
    depth: usize,
    mut next: impl FnMut(u64) -> Operation,
) -> u64 {
    let begun = Instant::now();
    let (mut submitted, mut in_flight, mut count) = (0, 0, 0);
    let mut done: Vec<Completion> = Vec::new();
    loop {
        let more = match limit {
            Limit::Count(n) => submitted < n,
            Limit::Time(time) => begun.elapsed() < time,
        };
        if !more && in_flight == 0 {
            return count;
        }
        while more && in_flight < depth && !matches!(limit, Limit::Count(n) if submitted >= n) {
            handle
                .submit(next(submitted))
                .expect("depth is below the client's bounds");
            submitted += 1;
            in_flight += 1;
        }
        handle.poll(Duration::from_secs(1), &mut done);
        assert!(handle.halted().is_empty(), "{:?}", handle.halted());
        for completion in done.drain(..) {
            completion.result.expect("succeeds");
            in_flight -= 1;
            count += 1;
        }
    }
}
