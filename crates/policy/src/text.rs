//! The work that a script's text could do between two safepoints, counted without compiling it.
//!
//! ```text
//!  -s-s-s-s…   one operator after the other, each of which reads a long string: no call, no loop, no step
//!                └ bounded: operators × longest string ≤ Budget::operator_bytes
//! ```
//! The count may be too high, never too low: comments and strings are counted too.

/// A text's counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Text {
    /// Operators that may convert a string into a number or compare two strings, each counted once
    /// per string it reads.
    pub operators: usize,
    /// Bytes of the longest stretch that could be a number in a constant: such a string belongs to
    /// the chunk, and is not part of the call's memory.
    pub stretch: usize,
    /// Length of the text in bytes.
    pub length: usize,
}

impl Text {
    /// The maximum of two, field by field.
    pub fn max(self, other: Self) -> Self {
        Self {
            operators: self.operators.max(other.operators),
            stretch: self.stretch.max(other.stretch),
            length: self.length.max(other.length),
        }
    }
}

/// Operators on numbers and comparisons. (`..` takes memory; `==` and `#` take no time.)
const OPERATORS: &[u8] = b"+*/%^<>";
/// Characters that cannot be part of a number in any notation, nor of an expression that may join
/// two constants.
const BREAKS: &[u8] = b",=:;{}[]<>*/#%^~&|!@$?";

const OPERATOR: u8 = 1;
const BREAK: u8 = 2;
/// The kind of each byte, in a table: scripts that come with calls are scanned each time.
const KINDS: [u8; 256] = kinds();

const fn kinds() -> [u8; 256] {
    let (mut kinds, mut at) = ([0; 256], 0);
    while at < OPERATORS.len() {
        kinds[OPERATORS[at] as usize] |= OPERATOR;
        at += 1;
    }
    at = 0;
    while at < BREAKS.len() {
        kinds[BREAKS[at] as usize] |= BREAK;
        at += 1;
    }
    kinds
}

const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// The word that begins here, at most four bytes of it.
fn word_at(text: &[u8], at: usize) -> &[u8] {
    let text = &text[at..text.len().min(at + 4)];
    text.split(|byte| !is_word(*byte))
        .next()
        .unwrap_or_default()
}

/// Counts a text.
pub(crate) fn scan(text: &[u8]) -> Text {
    let mut found = Text {
        length: text.len(),
        ..Text::default()
    };
    let (mut stretch, mut before) = (0, b' ');
    for (at, &byte) in text.iter().enumerate() {
        let kind = KINDS[byte as usize];
        stretch = if kind & BREAK != 0 { 0 } else { stretch + 1 };
        found.stretch = found.stretch.max(stretch);
        let after = text.get(at + 1).copied().unwrap_or(b' ');
        found.operators += match byte {
            // Two of them begin a comment, unless they are inside a string.
            b'-' => usize::from(before != b'-' && after != b'-'),
            // A numeric loop converts three, and has no safepoint if it does not run.
            b'f' if !is_word(before) && word_at(text, at) == b"for" => 3,
            _ => usize::from(kind & OPERATOR),
        };
        before = byte;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_that_read_strings_are_counted_and_comments_begin_with_none() {
        for (text, operators) in [
            ("return -s", 1),
            ("return -s-s - -s", 4),
            ("a = s + s * s // s % s ^ s < s >= s", 8),
            ("-- a line ------------", 0),
            ("a += s; a -= s", 2),
            ("a = b .. c == #d", 0),
            ("for i = s, s, s do end for i = s, s do end", 6),
            ("format(before, _for)", 0),
            ("a = [[-]]-s", 2),
        ] {
            assert_eq!(scan(text.as_bytes()).operators, operators, "{text}");
        }
    }

    #[test]
    fn a_constant_that_is_a_long_number_is_a_stretch() {
        for constant in [
            "9".repeat(5000),
            " ".repeat(5000),
            "\\x39".repeat(1250),
            format!("0x{}", "a_".repeat(2499)),
        ] {
            let text = format!("local s, t = \"{constant}\", 1");
            assert!(
                (5000..5100).contains(&scan(text.as_bytes()).stretch),
                "{text}"
            );
        }
        assert!(
            scan(
                b"local a = { 1, 2 }\nlocal b = a[1]\n"
                    .repeat(1000)
                    .as_slice()
            )
            .stretch
                < 40
        );
    }
}
