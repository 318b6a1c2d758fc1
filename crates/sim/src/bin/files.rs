//! Simulated file systems: `files --from A --seeds N`, `files --seed N --verbose`.

#![allow(clippy::disallowed_methods, reason = "a command")]

use nacre_sim::files;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)?.parse::<u64>().ok()
    };
    let verbose = arguments.iter().any(|argument| argument == "--verbose");
    let (from, seeds) =
        value("--seed").map_or((value("--from").unwrap_or(0), value("--seeds").unwrap_or(100)), |seed| (seed, 1));
    let mut failed = 0;
    let mut sum = files::Report::default();
    for seed in from..from + seeds {
        match std::panic::catch_unwind(|| files::run(seed, verbose)) {
            Ok(report) => {
                sum.digest ^= report.digest;
                sum.requests += report.requests;
                sum.batches += report.batches;
                sum.takeovers += report.takeovers;
                sum.deaths += report.deaths;
                sum.evictions += report.evictions;
                sum.own += report.own;
                sum.data += report.data;
                sum.appends += report.appends;
                sum.at_once += report.at_once;
                sum.above += report.above;
                sum.relics += report.relics;
                sum.left += report.left;
                sum.across += report.across;
                sum.refused += report.refused;
            }
            Err(_) => {
                println!("seed {seed} failed");
                failed += 1;
            }
        }
    }
    println!("{seeds} seeds, {failed} failed: {sum:?}");
    std::process::exit(i32::from(failed > 0));
}
