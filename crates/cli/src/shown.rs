//! Untrusted text on a user's terminal. Error texts, log lines and names come from scripts, clients
//! and daemons: characters that a terminal would interpret, or that would change the displayed
//! order, are escaped.

use std::borrow::Cow;

/// Whether a terminal would interpret it instead of showing it.
const fn is_control(letter: char) -> bool {
    matches!(letter, '\0'..='\x08' | '\x0b'..='\x1f' | '\x7f'..='\u{9f}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text, with control characters other than tabs and line ends as `\u001b`: as in JSON, so that
/// JSON stays valid.
#[must_use]
pub fn shown(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_control) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        if is_control(letter) {
            out.push_str(&format!("\\u{:04x}", u32::from(letter)));
        } else {
            out.push(letter);
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_written_out() {
        assert_eq!(shown("plain\ttext, ümlaut\n"), "plain\ttext, ümlaut\n");
        assert_eq!(shown("\x1b[2J\x1b]0;x\x07"), "\\u001b[2J\\u001b]0;x\\u0007");
        assert_eq!(
            shown("a\rb\u{9b}c\u{7f}\u{202e}d"),
            "a\\u000db\\u009bc\\u007f\\u202ed"
        );
        let json = serde_json::json!({ "error": "\u{9b}31m\x1b" }).to_string();
        let back: serde_json::Value = serde_json::from_str(&shown(&json)).expect("still JSON");
        assert_eq!(back["error"], "\u{9b}31m\x1b");
    }
}
