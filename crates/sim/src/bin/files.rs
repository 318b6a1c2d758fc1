//! Simulated file systems: `files --from A --seeds N`, `files --seed N --verbose`; with the feature `mutants`
//! `files --mutants [--part K/N]` and `files --mutant NAME`.

#![allow(clippy::disallowed_methods, reason = "a command")]

use nacre_sim::files;
use std::panic::catch_unwind;
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
        return hunt(text("--part").as_deref(), text("--mutant").as_deref(), value("--seeds").unwrap_or(HUNTED));
    }
    let (from, seeds) =
        value("--seed").map_or((value("--from").unwrap_or(0), value("--seeds").unwrap_or(100)), |seed| (seed, 1));
    let mut failed = 0;
    let mut sum = files::Report::default();
    for seed in from..from + seeds {
        match catch_unwind(|| files::run(seed, has("--verbose"))) {
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

/// So many seeds may a planted bug survive.
const HUNTED: u64 = 150;

/// Runs seeds with each planted bug of servers and clients, until one fails.
#[cfg(feature = "mutants")]
fn hunt(part: Option<&str>, only: Option<&str>, seeds: u64) -> ExitCode {
    use nacre_fs::Mutant as OfClient;
    use nacre_mds::Mutant as OfServer;

    let set = |client: Option<OfClient>, server: Option<OfServer>| {
        nacre_fs::set_mutant(client);
        nacre_mds::set_mutant(server);
    };
    let clients = OfClient::ALL.iter().map(|mutant| (format!("{mutant:?}"), Some(*mutant), None));
    let servers = OfServer::ALL.iter().map(|mutant| (format!("{mutant:?}"), None, Some(*mutant)));
    let (first, step) = part.and_then(|part| part.split_once('/')).map_or((0, 1), |(first, step)| {
        let number = |text: &str| text.parse().expect("--part takes K/N");
        (number(first), number(step))
    });
    std::panic::set_hook(Box::new(|_| {}));
    let mut survivors = 0;
    for (name, client, server) in clients.chain(servers).skip(first).step_by(step) {
        if only.is_some_and(|only| only != name) {
            continue;
        }
        set(client, server);
        let caught = (0..seeds).find_map(|seed| catch_unwind(|| files::run(seed, false)).err().map(|why| (seed, why)));
        match caught {
            Some((seed, why)) => {
                let why = why.downcast_ref::<String>().cloned().unwrap_or_default();
                let line: String = why.lines().next().unwrap_or_default().chars().take(160).collect();
                println!("{name}: caught by seed {seed}: {line}");
            }
            None => {
                survivors += 1;
                println!("{name}: SURVIVED {seeds} seeds");
            }
        }
    }
    set(None, None);
    ExitCode::from(u8::from(survivors > 0))
}

#[cfg(not(feature = "mutants"))]
fn hunt(_: Option<&str>, _: Option<&str>, _: u64) -> ExitCode {
    eprintln!("files: built without the feature `mutants`; use `./x mutants`");
    ExitCode::from(2)
}
