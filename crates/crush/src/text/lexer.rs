//! Words of the text form: separated by white space, `{ } [ ]` stand alone, `#` starts a comment.

use super::error::{ParseError, Problem};

/// A word and the line it is on, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word<'t> {
    pub text: &'t str,
    pub line: u32,
}

/// Reads words one by one, with a look-ahead of one word.
pub(super) struct Words<'t> {
    rest: &'t str,
    line: u32,
    peeked: Option<Option<Word<'t>>>,
}

impl<'t> Words<'t> {
    pub fn new(text: &'t str) -> Self {
        Self {
            rest: text,
            line: 1,
            peeked: None,
        }
    }

    fn scan(&mut self) -> Option<Word<'t>> {
        loop {
            let rest = self
                .rest
                .trim_start_matches(|c: char| c.is_ascii_whitespace() && c != '\n');
            let mut chars = rest.chars();
            match chars.next()? {
                '\n' => {
                    self.line = self.line.saturating_add(1);
                    self.rest = chars.as_str();
                }
                '#' => self.rest = &rest[rest.find('\n').unwrap_or(rest.len())..],
                first => {
                    let stands_alone = |c: char| matches!(c, '{' | '}' | '[' | ']');
                    let end = if stands_alone(first) {
                        1
                    } else {
                        let ends = |c: char| c.is_ascii_whitespace() || c == '#' || stands_alone(c);
                        rest.find(ends).unwrap_or(rest.len())
                    };
                    self.rest = &rest[end..];
                    return Some(Word {
                        text: &rest[..end],
                        line: self.line,
                    });
                }
            }
        }
    }

    pub fn next(&mut self) -> Option<Word<'t>> {
        match self.peeked.take() {
            Some(word) => word,
            None => self.scan(),
        }
    }

    pub fn peek(&mut self) -> Option<Word<'t>> {
        if self.peeked.is_none() {
            self.peeked = Some(self.scan());
        }
        self.peeked.flatten()
    }

    /// The next word, without restriction.
    pub fn any(&mut self, wanted: &'static str) -> Result<Word<'t>, ParseError> {
        self.next().ok_or(ParseError {
            line: self.line,
            problem: Problem::TextEnds { wanted },
        })
    }

    /// The next word, which must be this one.
    pub fn expect(&mut self, wanted: &'static str) -> Result<Word<'t>, ParseError> {
        let word = self.any(wanted)?;
        if word.text == wanted {
            Ok(word)
        } else {
            Err(word.unexpected(wanted))
        }
    }

    /// Consumes the next word if it is this one.
    pub fn eat(&mut self, wanted: &str) -> bool {
        let found = self.peek().is_some_and(|word| word.text == wanted);
        if found {
            self.next();
        }
        found
    }

    /// The next word as a name.
    pub fn name(&mut self, wanted: &'static str) -> Result<Word<'t>, ParseError> {
        let word = self.any(wanted)?;
        if is_name(word.text) {
            Ok(word)
        } else {
            Err(word.error(Problem::BadName {
                name: clip(word.text),
                wanted,
            }))
        }
    }

    /// The next word as a number in a range, both ends included.
    pub fn number(
        &mut self,
        what: &'static str,
        min: i64,
        max: i64,
    ) -> Result<(i64, u32), ParseError> {
        let word = self.any(what)?;
        let number = word
            .text
            .parse::<i64>()
            .ok()
            .filter(|_| !word.text.starts_with('+'));
        match number.filter(|number| (min..=max).contains(number)) {
            Some(number) => Ok((number, word.line)),
            None => Err(word.error(Problem::BadNumber {
                what,
                text: clip(word.text),
                min,
                max,
            })),
        }
    }
}

impl Word<'_> {
    pub fn error(&self, problem: Problem) -> ParseError {
        ParseError {
            line: self.line,
            problem,
        }
    }
    pub fn unexpected(&self, wanted: &'static str) -> ParseError {
        self.error(Problem::Unexpected {
            found: clip(self.text),
            wanted,
        })
    }
}

/// Whether a word is a valid name of a device, bucket, type, class or rule.
pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// The beginning of a word, long enough to recognise it in a message.
pub(super) fn clip(text: &str) -> String {
    text.chars().take(60).collect()
}
