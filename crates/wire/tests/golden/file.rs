//! The golden file: names and bytes, readable by people and programs.
//!
//! ```text
//! # a comment
//! record Ping v1
//!   0101 0800 0000 2900 0000 0000 0000
//! ```

use std::collections::BTreeMap;
use std::fmt::Write;

/// The bytes by name.
///
/// # Panics
/// When the text is not of that form, or a name occurs twice.
pub fn parse(text: &str) -> BTreeMap<String, Vec<u8>> {
    let mut all: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut name = None;
    for line in text
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
    {
        if let Some(hex) = line.strip_prefix("  ") {
            let digits: Vec<u8> = hex.bytes().filter(|byte| *byte != b' ').collect();
            let pairs = digits.chunks(2).map(|pair| {
                let pair = std::str::from_utf8(pair).expect("hexadecimal digits are ASCII");
                u8::from_str_radix(pair, 16).unwrap_or_else(|_| panic!("`{pair}` is no byte"))
            });
            let name: &String = name.as_ref().expect("bytes follow a name");
            all.get_mut(name)
                .expect("inserted with its name")
                .extend(pairs);
        } else {
            assert!(
                all.insert(line.to_owned(), Vec::new()).is_none(),
                "{line} occurs twice"
            );
            name = Some(line.to_owned());
        }
    }
    all
}

/// A name and its bytes as [`parse`] reads them.
pub fn print(name: &str, bytes: &[u8]) -> String {
    let mut text = format!("{name}\n");
    for row in bytes.chunks(32) {
        text.push(' ');
        for pair in row.chunks(2) {
            text.push(' ');
            for byte in pair {
                write!(text, "{byte:02x}").expect("writing to a string");
            }
        }
        text.push('\n');
    }
    text
}

#[test]
fn what_is_printed_reads_back() {
    let bytes: Vec<u8> = (0..=100).collect();
    let text = format!("# head\n{}\n{}", print("a v1", &bytes), print("b", &[]));
    assert_eq!(
        parse(&text),
        BTreeMap::from([("a v1".to_owned(), bytes), ("b".to_owned(), Vec::new())])
    );
}
