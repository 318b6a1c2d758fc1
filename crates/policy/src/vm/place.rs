//! The place of a script: lines and stacks parsed from Luau's texts.

use crate::Kind;
use crate::budget::{MESSAGE_MAX, STACK_MAX};
use mlua::Lua;

/// Name of the prelude's chunk: its frames are ours, not the script's.
pub(super) const PRELUDE: &str = "[nacre]";
/// Prefix of the names of our other chunks: drivers of policies. No program may have such a name.
const OURS: &str = "[nacre";

/// Script, line and stack of the running code, without our own frames.
pub(super) fn here(lua: &Lua) -> (String, Option<u32>, Vec<String>) {
    let text = lua
        .traceback(None, 0)
        .map(|text| text.to_string_lossy())
        .unwrap_or_default();
    let frames: Vec<String> = text
        .lines()
        .map(str::trim)
        .filter(|line| {
            !line.is_empty()
                && !line.starts_with(OURS)
                && !line.starts_with("[C]")
                && !line.starts_with("stack traceback")
        })
        .map(|line| shorten(&line.replacen(": in ", " in ", 1).replace('\'', "")))
        .take(STACK_MAX)
        .collect();
    let (script, line) = frames
        .first()
        .and_then(|frame| position(frame))
        .map_or((String::new(), None), |(script, line, _)| {
            (script, Some(line))
        });
    (script, line, frames)
}

/// Whether the script called `error` or `assert` to end itself. Called while the error handler
/// runs, so the caller is the code that failed.
pub(super) fn is_raised(lua: &Lua) -> bool {
    let text = lua
        .traceback(None, 0)
        .map(|text| text.to_string_lossy())
        .unwrap_or_default();
    let mut frames = text
        .lines()
        .skip_while(|line| !line.ends_with("in function 'failed'"))
        .skip(1)
        .map(str::trim);
    match frames.next() {
        Some("[C]: in function 'assert'") => true,
        // Functions of the prelude also call `error`, for errors that the runtime detected.
        Some("[C]: in function 'error'") => frames
            .next()
            .is_some_and(|frame| frame.ends_with("in function 'raise_value'")),
        _ => false,
    }
}

/// Splits `zlog:17: what` or `zlog:17 in function f` into script, line and rest.
pub(super) fn position(text: &str) -> Option<(String, u32, &str)> {
    // A name may contain colons: the first one followed by digits and an end counts.
    text.match_indices(':').find_map(|(at, _)| {
        let rest = &text[at + 1..];
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let line = rest[..digits].parse().ok()?;
        let after = &rest[digits..];
        (after.is_empty() || after.starts_with(':') || after.starts_with(' ')).then(|| {
            (
                text[..at].to_owned(),
                line,
                after.trim_start_matches(':').trim_start(),
            )
        })
    })
}

/// At most [`MESSAGE_MAX`] bytes, cut at a character boundary.
pub(super) fn shorten(text: &str) -> String {
    if text.len() <= MESSAGE_MAX {
        return text.to_owned();
    }
    let mut end = MESSAGE_MAX - 4;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{} ...", &text[..end])
}

/// The message of an error of mlua without its wrapping.
pub(super) fn root(error: &mlua::Error) -> String {
    match error {
        mlua::Error::CallbackError { cause, .. } | mlua::Error::WithContext { cause, .. } => {
            root(cause)
        }
        mlua::Error::BadArgument { pos, cause, .. } => {
            format!("bad argument #{pos}: {}", root(cause))
        }
        mlua::Error::RuntimeError(text) | mlua::Error::MemoryError(text) => text.clone(),
        mlua::Error::SyntaxError { message, .. } => message.clone(),
        other => other.to_string(),
    }
}

/// Kind of an uncaught error, from its text.
pub(super) fn kind_of(message: &str) -> Kind {
    if message.contains("stack overflow") {
        Kind::Depth
    } else {
        Kind::Runtime
    }
}

/// A feature of plain Lua 5.3 that Luau lacks, if the line that failed to compile looks like it
/// uses one.
pub(super) fn hint(source_line: &str) -> Option<&'static str> {
    let code = source_line.split("--").next().unwrap_or("");
    if code.contains("goto ") || code.trim_start().starts_with("::") {
        return Some("scripts are Luau: there is no goto, use `continue`, `break` or a function");
    }
    let operator = code.contains('&')
        || code.contains('|')
        || code.contains("<<")
        || code.contains(">>")
        || code.replace("~=", "").contains('~');
    if operator {
        return Some(
            "scripts are Luau: there are no bit operators, use bit32.band, bit32.lshift and so on",
        );
    }
    code.contains("<const>").then_some(
        "scripts are Luau: there are no <const> and <close> attributes, use a plain local",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_split_off() {
        assert_eq!(position("zlog:17: no"), Some(("zlog".into(), 17, "no")));
        assert_eq!(
            position("a:b:3 in function f"),
            Some(("a:b".into(), 3, "in function f"))
        );
        assert_eq!(position("no position: here"), None);
    }

    #[test]
    fn long_texts_are_cut_at_a_character() {
        let long = "ä".repeat(MESSAGE_MAX);
        assert!(shorten(&long).len() <= MESSAGE_MAX && shorten(&long).ends_with("ä ..."));
    }
}
