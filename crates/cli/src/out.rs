//! Standard output: text for people, or one JSON value for programs.

use anyhow::{Context, Result};
use serde_json::Value;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};

/// Where a command prints. Everything is written at the end, or when much has come together.
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
    /// Prints what a program gave: as it is where another program reads it, and what a terminal
    /// would obey written out where a person does.
    ///
    /// # Errors
    /// As [`Self::bytes`].
    pub fn given(&mut self, bytes: &[u8]) -> Result<()> {
        if !io::stdout().is_terminal() {
            return self.bytes(bytes);
        }
        self.bytes(crate::shown::shown(&String::from_utf8_lossy(bytes)).as_bytes())
    }
    /// Prints a line of text, which may have come from anybody: control characters are written out.
    ///
    /// # Errors
    /// As [`Self::bytes`].
    pub fn line(&mut self, text: &str) -> Result<()> {
        self.bytes(crate::shown::shown(text).as_bytes())?;
        self.bytes(b"\n")
    }
    /// Tells a person what is going on; programs that want JSON are not told.
    ///
    /// # Errors
    /// As [`Self::bytes`].
    pub fn say(&mut self, text: &str) -> Result<()> {
        if self.json { Ok(()) } else { self.line(text) }
    }
    /// Prints a JSON value: over several lines for a person's eyes, since programs do not mind.
    ///
    /// # Errors
    /// As [`Self::bytes`].
    pub fn value(&mut self, value: &Value) -> Result<()> {
        let text = serde_json::to_string_pretty(value).expect("a JSON value has a text");
        self.line(&text)
    }
    /// Prints what has come together so far.
    ///
    /// # Errors
    /// As [`Self::bytes`].
    pub fn finish(&mut self) -> Result<()> {
        self.writer.flush().context("writing to standard output")
    }
}
