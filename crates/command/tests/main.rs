//! Requests as they are on the wire, what is said against wrong ones, and the document.

use nacre_command::*;
use nacre_types::OsdId;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::PathBuf;

fn parse(request: &Value) -> Command {
    Command::parse(&request.to_string()).unwrap_or_else(|why| panic!("{request}: {why}"))
}

#[track_caller]
fn refused(request: &str, sentence: &str) {
    let why = Command::parse(request).expect_err("refused");
    assert_eq!(why.to_string(), sentence);
}

#[test]
fn every_example_is_a_request_and_is_written_as_it_was_read() {
    for spec in specs() {
        let example = spec
            .text
            .split("\n\n")
            .find(|text| text.starts_with("`{\"command\""));
        let example = example.unwrap_or_else(|| panic!("`{}` has no example", spec.name));
        let request = example.split('`').nth(1).expect("between backticks");
        let request: Value = serde_json::from_str(request).expect(request);
        let command = parse(&request);
        assert_eq!(
            (&command.spec().name, command.writes()),
            (&spec.name, spec.writes)
        );
        assert_eq!(parse(&command.to_json()), command);
        for (field, value) in request.as_object().expect("an object") {
            assert_eq!(&command.to_json()[field], value, "{request}");
        }
    }
}

#[test]
fn what_is_wrong_is_named_with_what_is_known() {
    refused("[]", "a command is a JSON object with a field `command`");
    refused(
        "{",
        "the command is no JSON: EOF while parsing an object at line 1 column 1",
    );
    refused(
        "{}",
        "the field `command` is missing; `help` lists the commands",
    );
    refused(
        r#"{"command": "osd ot"}"#,
        "there is no command `osd ot`; did you mean osd out, osd df, osd in?",
    );
    refused(
        r#"{"command": "osd out", "id": 3}"#,
        "`osd out` has no field `id`; its fields: osd",
    );
    refused(
        r#"{"command": "df", "id": 3}"#,
        "`df` has no field `id`; its fields: none",
    );
    refused(
        r#"{"command": "osd out"}"#,
        "`osd out` needs the field `osd`",
    );
    refused(
        r#"{"command": "osd out", "osd": null}"#,
        "`osd out` needs the field `osd`",
    );
}

#[test]
fn a_wrong_value_is_named_with_its_field() {
    let wrong = |fields: Value, sentence: &str| refused(&fields.to_string(), sentence);
    wrong(
        json!({"command": "osd rm", "osd": "x", "force": true}),
        r#"`osd` is an OSD, such as 3 or "osd.3", not "x""#,
    );
    wrong(
        json!({"command": "osd rm", "osd": 3, "force": 1}),
        "`force` is a boolean, not 1",
    );
    wrong(
        json!({"command": "pool create", "name": 3}),
        "`name` is a string, not 3",
    );
    wrong(
        json!({"command": "pool create", "name": "p", "size": -1}),
        "`size` is a whole number, 0 or more, not -1",
    );
    wrong(
        json!({"command": "flag set", "flag": "noot"}),
        r#"`flag` is one of `noout`, `nodown`, `nobackfill`, `norecover`, not "noot""#,
    );
    wrong(
        json!({"command": "program ls", "kind": "script"}),
        r#"`kind` is `class` or `policy`, not "script""#,
    );
    wrong(
        json!({"command": "osd ok-to-stop", "osds": [1, "x"]}),
        r#"`osds` is an OSD, such as 3 or "osd.3", not [1,"x"]"#,
    );
    wrong(
        json!({"command": "osd reweight", "osd": 1, "weight": 2}),
        "`weight` is a number from 0 (no data) to 1 (its whole share), not 2",
    );
}

#[test]
fn numbers_may_be_texts_and_null_is_left_out() {
    let osd = Osd(OsdId(3));
    for written in [json!(3), json!("3"), json!("osd.3")] {
        let command = parse(&json!({"command": "osd out", "osd": written}));
        assert_eq!(command, Command::OsdOut(OneOsd { osd }));
    }
    let one = parse(&json!({"command": "osd ok-to-stop", "osds": "osd.3"}));
    assert_eq!(one, Command::OsdOkToStop(OsdOkToStop { osds: vec![osd] }));
    let all = json!({"command": "pg ls", "pool": null, "osd": null, "state": null});
    assert_eq!(parse(&all), Command::PgLs(PgLs::default()));
    assert_eq!(parse(&all).to_json(), json!({"command": "pg ls"}));
}

/// Sections of the document, and the words with which their commands begin.
const SECTIONS: &[(&str, &str)] = &[
    ("The cluster", "status health df help map flag fence log"),
    ("Monitors", "mon"),
    ("Programs and clients", "program client"),
    ("OSDs", "osd"),
    ("Placement groups", "pg"),
    ("Pools", "pool"),
    ("Options", "config"),
];

/// What a schema allows, in a few words.
fn takes(schema: &Value) -> String {
    if let Some(title) = schema["title"].as_str() {
        return title.to_owned();
    }
    for any in ["anyOf", "oneOf"] {
        let parts = schema[any].as_array().into_iter().flatten();
        let parts: Vec<_> = parts
            .filter(|part| part["type"] != "null")
            .map(takes)
            .collect();
        if !parts.is_empty() {
            return parts.join(", ");
        }
    }
    if let Some(word) = schema["const"].as_str() {
        return format!("`{word}`");
    }
    match schema["type"].as_str().or(schema["type"][0].as_str()) {
        Some("string") => "text".to_owned(),
        Some("boolean") => "true or false".to_owned(),
        Some("array") => format!("list of {}", takes(&schema["items"])),
        other => unreachable!("a field of type {other:?}"),
    }
}

fn generated() -> String {
    let mut out = String::new();
    let mut said = 0;
    for (title, words) in SECTIONS {
        write!(out, "## {title}\n\n").expect("a text");
        let begins = |name: &str| {
            words
                .split(' ')
                .any(|word| name.split(' ').next() == Some(word))
        };
        for spec in specs().iter().filter(|spec| begins(&spec.name)) {
            let does = if spec.writes { "Writes" } else { "Reads" };
            write!(out, "### `{}`\n\n{does}. ", spec.name).expect("a text");
            let mut paragraphs = spec.text.split("\n\n").map(|text| text.replace('\n', " "));
            writeln!(out, "{}\n", paragraphs.next().expect("a sentence")).expect("a text");
            for name in &spec.fields {
                let field = &spec.schema["properties"][name.trim_end_matches('?')];
                let text = field["description"]
                    .as_str()
                    .expect("a comment")
                    .replace('\n', " ");
                writeln!(out, "* `{name}` ({}): {text}", takes(field)).expect("a text");
            }
            out += if spec.fields.is_empty() { "" } else { "\n" };
            paragraphs.for_each(|text| out += &format!("{text}\n\n"));
            said += 1;
        }
    }
    assert_eq!(said, specs().len(), "a command is in no section");
    out.truncate(out.trim_end().len());
    out + "\n"
}

#[test]
#[allow(clippy::disallowed_methods, reason = "`BLESS=1` writes the document")]
fn the_document_is_what_the_type_says() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats/commands.md");
    let document = std::fs::read_to_string(&path).expect("readable");
    let (by_hand, _) = document
        .split_once("## The cluster")
        .expect("its first section");
    let fresh = format!("{by_hand}{}", generated());
    if std::env::var("BLESS").is_ok() {
        std::fs::write(&path, &fresh).expect("writable");
    } else {
        let advice = "`BLESS=1 cargo test -p nacre-command` updates docs/formats/commands.md";
        assert!(document == fresh, "{advice}");
    }
}
