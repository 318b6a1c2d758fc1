//! Standard output: text for users, or one JSON value for programs.

use anyhow::{Context, Result};
use serde_json::Value;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};

/// Output of a command. It is written at the end, or when the buffer is large.
pub struct Out {
    json: bool,
    writer: BufWriter<Stdout>,
}

impl Out {
    /// Prints JSON if `json`, else text.
    #[must_use]
    pub fn new(json: bool) -> Self {
        Self {
            json,
            writer: BufWriter::new(io::stdout()),
        }
    }
    /// Whether the caller wants JSON.
    #[must_use]
    pub fn json(&self) -> bool {
        self.json
    }
    /// Prints bytes as they are.
    ///
    /// # Errors
    /// When standard output is closed or full.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.writer
            .write_all(bytes)
            .context("writing to standard output")
    }
    /// Prints data from a program: unchanged if another program reads it; on a terminal control
    /// characters are escaped.
    ///
    /// # Errors
    /// As [`Self::bytes`].
    pub fn given(&mut self, bytes: &[u8]) -> Result<()> {
        if !io::stdout().is_terminal() {
            return self.bytes(bytes);
        }
        self.bytes(crate::shown::shown(&String::from_utf8_lossy(bytes)).as_bytes())
    }
    /// Prints a line of text from any source: control characters are escaped.
    ///
    /// # Errors
    /// As [`Self::bytes`].
    pub fn line(&mut self, text: &str) -> Result<()> {
        self.bytes(crate::shown::shown(text).as_bytes())?;
        self.bytes(b"\n")
    }
    /// Reports progress to a user; omitted with JSON.
    ///
    /// # Errors
    /// As [`Self::bytes`].
    pub fn say(&mut self, text: &str) -> Result<()> {
        if self.json { Ok(()) } else { self.line(text) }
    }
    /// Prints a JSON value: indented for readability, which programs ignore.
    ///
    /// # Errors
    /// As [`Self::bytes`].
    pub fn value(&mut self, value: &Value) -> Result<()> {
        let text = serde_json::to_string_pretty(value).expect("a JSON value has a text");
        self.line(&text)
    }
    /// Prints the buffered output.
    ///
    /// # Errors
    /// As [`Self::bytes`].
    pub fn finish(&mut self) -> Result<()> {
        self.writer.flush().context("writing to standard output")
    }
}
