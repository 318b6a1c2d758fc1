//! One operation of a history, as a line of JSON.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Sets the register.
    Write,
    /// Gets the register.
    Read,
    /// Sets the register if it has the expected value.
    Cas,
}

/// A value, or the result of a compare-and-set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Outcome {
    /// Whether the compare-and-set succeeded.
    Swapped(bool),
    /// The value read; `None` if nothing was ever written.
    Value(Option<u64>),
}

/// One operation. A client has at most one at a time; a client that cannot know the outcome of its
/// operation continues under a new number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The client.
    pub client: u64,
    /// The kind.
    pub op: Kind,
    /// The register.
    pub key: String,
    /// The value that a write or compare-and-set sets; unique in the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<u64>,
    /// The value that a compare-and-set expects. Null in the file means that nothing was ever
    /// written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<u64>,
    /// Time of the call, in nanoseconds of one clock.
    pub invoke_ns: u64,
    /// Time of the return.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub return_ns: Option<u64>,
    /// The result.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub result: Option<Outcome>,
    /// The client cannot tell whether it happened.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unknown: bool,
    /// It certainly did not happen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fail: bool,
}

/// An explicit null is a value: "nothing was ever written".
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Outcome>, D::Error> {
    Outcome::deserialize(deserializer).map(Some)
}

/// A line that is not an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// Line number, from 1.
    pub line: usize,
    /// The reason.
    pub why: String,
}
impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}
impl std::error::Error for ParseError {}

impl Record {
    fn validate(&self) -> Result<(), String> {
        let ended = !self.unknown && !self.fail;
        if ended && self.return_ns.is_none() {
            return Err("an operation without `return_ns` must say `unknown` or `fail`".into());
        }
        if self.return_ns.is_some_and(|end| end < self.invoke_ns) {
            return Err("it returns before it is invoked".into());
        }
        if self.op != Kind::Read && self.value.is_none() {
            return Err("a write or compare-and-set has a `value`".into());
        }
        match (self.op, &self.result) {
            (Kind::Read, None) if ended => {
                Err("a read that ended has a `result` (null if nothing was written)".into())
            }
            (Kind::Read, Some(Outcome::Swapped(_))) => {
                Err("a read returns a number or null".into())
            }
            (Kind::Cas, None | Some(Outcome::Value(_))) if ended => {
                Err("a compare-and-set returns true or false".into())
            }
            _ => Ok(()),
        }
    }
}

/// Parses a history, one record per line; empty lines are skipped.
///
/// # Errors
/// The first line that is not an operation.
pub fn parse(text: &str) -> Result<Vec<Record>, ParseError> {
    let mut records = Vec::new();
    for (index, line) in text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
    {
        let error = |why: String| ParseError {
            line: index + 1,
            why,
        };
        let record: Record = serde_json::from_str(line).map_err(|why| error(why.to_string()))?;
        record.validate().map_err(error)?;
        records.push(record);
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fixed_examples_parse_and_print_the_same() {
        for line in [
            r#"{"client":1,"op":"write","key":"a","value":7,"invoke_ns":1,"return_ns":9}"#,
            r#"{"client":2,"op":"read","key":"a","invoke_ns":3,"return_ns":8,"result":7}"#,
            r#"{"client":3,"op":"cas","key":"a","value":8,"expect":7,"invoke_ns":4,"return_ns":9,"result":true}"#,
            r#"{"client":4,"op":"read","key":"b","invoke_ns":3,"return_ns":8,"result":null}"#,
            r#"{"client":4,"op":"write","key":"b","value":9,"invoke_ns":3,"unknown":true}"#,
        ] {
            let records = parse(line).expect(line);
            assert_eq!(serde_json::to_string(&records[0]).expect("prints"), line);
        }
    }

    #[test]
    fn nonsense_names_its_line() {
        for bad in [
            r#"{"client":1,"op":"write","key":"a","value":7,"invoke_ns":1}"#,
            r#"{"client":1,"op":"write","key":"a","invoke_ns":1,"return_ns":2}"#,
            r#"{"client":1,"op":"read","key":"a","invoke_ns":3,"return_ns":2,"result":1}"#,
            r#"{"client":1,"op":"read","key":"a","invoke_ns":1,"return_ns":2}"#,
            r#"{"client":1,"op":"frob","key":"a","invoke_ns":1,"return_ns":2}"#,
            "garbage",
        ] {
            let error = parse(&format!("\n{bad}")).expect_err(bad);
            assert_eq!(error.line, 2);
        }
    }
}
