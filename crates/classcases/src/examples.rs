//! The examples in the comments of a class: `METHOD "input" -> "output"`, `METHOD "input" !ENAME`,
//! `setup: write "data"`.

use crate::{Change, Desk, Host};
use nacre_policy::{errno, library};

/// The errno with this name.
#[must_use]
pub fn number_of(name: &str) -> i32 {
    errno::NAMES
        .iter()
        .find(|(known, _)| *known == name)
        .unwrap_or_else(|| panic!("no errno {name}"))
        .1
}

/// Parses a quoted text with \n, \", \\ and \xNN; returns it and the rest.
#[must_use]
pub fn quoted(text: &str) -> (Vec<u8>, &str) {
    let mut rest = text
        .strip_prefix('"')
        .unwrap_or_else(|| panic!("a quoted text, not {text}"))
        .char_indices();
    let mut bytes = Vec::new();
    let text = &text[1..];
    while let Some((at, letter)) = rest.next() {
        match letter {
            '"' => return (bytes, text[at + 1..].trim()),
            '\\' => match rest.next().expect("an escape").1 {
                'n' => bytes.push(b'\n'),
                'x' => {
                    bytes.push(
                        u8::from_str_radix(&text[at + 2..at + 4], 16)
                            .expect("two hexadecimal digits"),
                    );
                    rest.nth(1);
                }
                other => bytes.push(other as u8),
            },
            _ => bytes.extend(letter.to_string().as_bytes()),
        }
    }
    panic!("no end of {text}")
}

/// Executes an example and checks its result.
pub fn follow(desk: &mut Desk<'_>, example: &str) {
    let (setup, line) = match example.strip_prefix("setup: ") {
        Some(line) => (true, line),
        None => (false, example),
    };
    let (method, rest) = line.split_once(' ').expect("a method and its input");
    let (input, rest) = quoted(rest);
    if setup {
        assert_eq!(method, "write", "what a setup can do");
        return desk.host.change(Change::WriteFull(input));
    }
    let shown = format!("{}: {example}", desk.class);
    let came = desk.call(method, input);
    if let Some(name) = rest.strip_prefix('!') {
        assert_eq!(came, Err(number_of(name)), "{shown}");
    } else if let Some(output) = rest.strip_prefix("-> ") {
        assert_eq!(
            came.map(|output| String::from_utf8_lossy(&output).into_owned()),
            Ok(String::from_utf8_lossy(&quoted(output).0).into_owned()),
            "{shown}"
        );
    } else {
        assert_eq!((rest, came), ("", Ok(Vec::new())), "{shown}");
    }
}

/// Executes the examples that the library has for `documented`, with another class that should
/// behave the same.
///
/// On a cluster it stops before the first example that names its caller, because the caller differs
/// there.
pub fn follow_all(host: &mut dyn Host, documented: &str, class: &'static str) {
    let cluster = host.is_cluster();
    let mut desk = Desk::new(host, class);
    let methods = library::class(documented)
        .expect("a class of the library")
        .documented()
        .methods;
    for example in methods.iter().flat_map(|method| &method.examples) {
        if cluster && example.contains("client.17") {
            println!(
                "{class}: the examples from here on need the caller that they name: {example}"
            );
            return;
        }
        follow(&mut desk, example);
    }
}
