//! Errors for users and scripts: one line on standard error, and an exit code.
//!
//! | code | meaning |
//! | --- | --- |
//! | 0 | done |
//! | 1 | not done; or, where a command is a question, the answer is no |
//! | 2 | the arguments are wrong; nothing was tried |

use crate::shown::shown;
use clap::error::ErrorKind;
use std::io;
use std::process::ExitCode;

/// Reports an error of a command.
pub fn report(error: &anyhow::Error) -> ExitCode {
    let closed = |cause: &(dyn std::error::Error + 'static)| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    };
    // The reader of our output may stop at any time: `nacre crush test … | head`.
    if !error.chain().any(closed) {
        crate::say::line(&format!(
            "nacre: {}",
            shown(&one_line(&format!("{error:#}")))
        ));
    }
    ExitCode::FAILURE
}

/// Reports wrong arguments; or prints the requested help.
pub fn arguments(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // Standard output is closed: there is no reader to inform.
            let _ = error.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(2)
        }
        _ => {
            crate::say::line(&format!("nacre: {}", condense(&error.render().to_string())));
            ExitCode::from(2)
        }
    }
}

/// Clap explains over several lines: the problem, tips, usage. The usage is left to `--help`.
fn condense(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let said: Vec<&str> = lines
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"))
        .collect();
    let said = said
        .join("; ")
        .replace(":; ", ": ")
        .replace("; tip: ", "; ");
    format!(
        "{} (--help shows what there is)",
        said.trim_start_matches("error: ")
    )
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clap_says_becomes_one_line() {
        let text = "error: unrecognized subcommand 'crsh'\n\n  tip: a similar subcommand exists: 'crush'\n\nUsage: nacre <COMMAND>\n\nFor more information, try '--help'.\n";
        let expected = "unrecognized subcommand 'crsh'; a similar subcommand exists: 'crush' (--help shows what there is)";
        assert_eq!(condense(text), expected);
    }
}
