//! Histories: a line is either refused with its number, or survives being written and read back
//! unchanged; checking short histories ends.

use nacre_history::{check, parse};

/// Longer histories may take exponential time to check, which is known.
const RECORDS_MAX: usize = 10;

pub fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let records = match parse(text) {
        Ok(records) => records,
        Err(why) => {
            assert!(
                why.line >= 1 && why.line <= text.lines().count(),
                "the error names a line of the text: {why}"
            );
            return;
        }
    };
    let print = |record| serde_json::to_string(record).expect("a record has a text") + "\n";
    let written: String = records.iter().map(print).collect();
    assert_eq!(
        parse(&written).as_ref(),
        Ok(&records),
        "written and read back:\n{written}"
    );
    if records.len() <= RECORDS_MAX {
        let _ = check(&records);
    }
}
