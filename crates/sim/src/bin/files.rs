//! Simulated file systems: `files --from A --seeds N`, `files --seed N --verbose`; with the feature
//! `mutants` `files --mutants [--part K/N]` and `files --mutant NAME`.

#![allow(clippy::disallowed_methods, reason = "a command")]

use nacre_sim::files;
use nacre_sim::hunt::{Hunt, attempt, part};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let text = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let value = |name: &str| text(name)?.parse::<u64>().ok();
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    if has("--mutants") || has("--mutant") {
        let part = text("--part").map(|text| part(&text).expect("--part takes K/N, K from 0"));
        return hunt(&Hunt {
            part,
            only: text("--mutant"),
            seeds: 0..value("--seeds").unwrap_or(HUNTED),
        });
    }
    let (from, seeds) = value("--seed").map_or(
        (
            value("--from").unwrap_or(0),
            value("--seeds").unwrap_or(100),
        ),
        |seed| (seed, 1),
    );
    let mut failed = 0;
    let mut sum = files::Report::default();
    for seed in from..from + seeds {
        match attempt(|| files::run(seed, has("--verbose"))) {
            Ok(report) => sum.add(&report),
            Err(_) => {
                println!("seed {seed} failed");
                failed += 1;
            }
        }
    }
    println!("{seeds} seeds, {failed} failed: {sum:?}");
    ExitCode::from(u8::from(failed > 0))
}

/// Number of seeds that a planted bug may survive.
const HUNTED: u64 = 400;

/// Runs seeds with each planted bug of servers and clients, until one fails.
#[cfg(feature = "mutants")]
fn hunt(hunt: &Hunt) -> ExitCode {
    use nacre_fs::Mutant as OfClient;
    use nacre_mds::Mutant as OfServer;

    let clients = OfClient::ALL
        .iter()
        .map(|mutant| (format!("{mutant:?}"), (Some(*mutant), None)));
    let servers = OfServer::ALL
        .iter()
        .map(|mutant| (format!("{mutant:?}"), (None, Some(*mutant))));
    let switch = |bug: Option<&(Option<OfClient>, Option<OfServer>)>| {
        let (client, server) = bug.copied().unwrap_or_default();
        nacre_fs::set_mutant(client);
        nacre_mds::set_mutant(server);
    };
    hunt.run(clients.chain(servers), switch, |seed| {
        attempt(|| files::run(seed, false)).map(drop)
    })
}

#[cfg(not(feature = "mutants"))]
fn hunt(_: &Hunt) -> ExitCode {
    eprintln!("files: built without the feature `mutants`; use `./x mutants`");
    ExitCode::from(2)
}
