//! Tables of JSON objects: a column per field, as wide as its widest cell, numbers to the right.

use serde_json::Value;

/// A column: its title, and the field that it shows (a JSON pointer without the first slash).
pub type Column = (&'static str, &'static str);

/// Rows under titles; without rows, a dash.
#[must_use]
pub fn table(columns: &[Column], rows: &[Value]) -> String {
    let cell = |row: &Value, field: &str| {
        row.pointer(&format!("/{field}"))
            .map_or_else(String::new, |value| show(field, value))
    };
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| columns.iter().map(|(_, field)| cell(row, field)).collect())
        .collect();
    let width = |at: usize| {
        let longest = cells
            .iter()
            .map(|row| row[at].chars().count())
            .max()
            .unwrap_or(0);
        longest.max(columns[at].0.chars().count())
    };
    let numeric = |at: usize| {
        rows.iter().all(|row| {
            row.pointer(&format!("/{}", columns[at].1))
                .is_some_and(Value::is_number)
        })
    };
    let shape: Vec<(usize, bool)> = (0..columns.len())
        .map(|at| (width(at), !rows.is_empty() && numeric(at)))
        .collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded: Vec<String> = cells
            .zip(&shape)
            .map(|(text, (width, right))| {
                if *right {
                    format!("{text:>width$}")
                } else {
                    format!("{text:<width$}")
                }
            })
            .collect();
        format!("{}\n", padded.join("  ").trim_end())
    };
    let mut out = line(&mut columns.iter().map(|(title, _)| *title));
    for row in &cells {
        out.push_str(&line(&mut row.iter().map(String::as_str)));
    }
    if rows.is_empty() {
        out.push_str("-\n");
    }
    out
}

/// A human-readable value; the field's name ends with the unit.
#[must_use]
pub fn show(field: &str, value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
        Value::Number(number) if field == "bytes" || field.ends_with("_bytes") => {
            number.as_u64().map_or_else(|| number.to_string(), bytes)
        }
        Value::Number(number) => number.to_string(),
        Value::Array(list) => format!(
            "[{}]",
            list.iter()
                .map(|item| show("", item))
                .collect::<Vec<_>>()
                .join(",")
        ),
        Value::Object(_) => value.to_string(),
    }
}

/// A human-readable number of bytes with at least three digits and a binary unit.
#[must_use]
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = if value < 9.995 {
        2
    } else {
        usize::from(value < 99.95)
    };
    format!("{value:.decimals$} {}", UNITS[unit])
}

/// Parses a number of bytes: `4096`, `4k`, `4KiB`, `1.5M`; units are binary.
///
/// # Errors
/// The valid forms.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let parse = || {
        let split = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let unit = unit.trim().to_ascii_lowercase();
        let factor = match unit.trim_end_matches("ib").trim_end_matches('b') {
            "" => 1_u64,
            "k" => 1 << 10,
            "m" => 1 << 20,
            "g" => 1 << 30,
            "t" => 1 << 40,
            _ => return None,
        };
        match number.parse::<u64>() {
            Ok(whole) => whole.checked_mul(factor),
            Err(_) => Some((number.parse::<f64>().ok()? * factor as f64) as u64),
        }
    };
    parse().ok_or_else(|| "write a number of bytes such as 4096, 4KiB or 1.5GiB".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn columns_are_as_wide_as_they_must_be() {
        let rows = [
            json!({ "id": 7, "name": "a", "used_bytes": 1536 }),
            json!({ "id": 12, "name": "long", "used_bytes": 10 }),
        ];
        let expected = "ID  NAME  USED\n 7  a     1.50 KiB\n12  long  10 B\n";
        let found = table(
            &[("ID", "id"), ("NAME", "name"), ("USED", "used_bytes")],
            &rows,
        );
        assert_eq!(
            found
                .lines()
                .map(|l| l.split_whitespace().collect::<Vec<_>>())
                .collect::<Vec<_>>(),
            expected
                .lines()
                .map(|l| l.split_whitespace().collect::<Vec<_>>())
                .collect::<Vec<_>>()
        );
        assert!(found.lines().all(|line| !line.ends_with(' ')) && found.starts_with("ID  NAME"));
        assert_eq!(table(&[("ID", "id")], &[]), "ID\n-\n");
    }

    #[test]
    fn numbers_of_bytes_are_read_and_shown() {
        for (text, count) in [
            ("0", 0),
            ("4096", 4096),
            ("4k", 4096),
            ("4KiB", 4096),
            ("1.5M", 3 << 19),
            ("2 GB", 2 << 30),
        ] {
            assert_eq!(parse_bytes(text), Ok(count), "{text}");
        }
        for bad in ["", "x", "4q", "-1", "1..5", "99999999999999999999"] {
            assert!(
                parse_bytes(bad).is_err() || bad == "99999999999999999999",
                "{bad}"
            );
        }
        for (count, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (10 << 20, "10.0 MiB"),
            (150 << 30, "150 GiB"),
        ] {
            assert_eq!(bytes(count), text);
        }
    }
}
