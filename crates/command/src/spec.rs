//! Names, fields and sentences of commands, read from the schema of [`Command`], and what is wrong
//! with a request. One that is well-formed needs serde alone.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use std::sync::LazyLock;
use strum::VariantArray;

use crate::{Command, Kind, nearest};

/// What is known of a command.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Its name.
    pub name: String,
    /// Whether it may change something.
    pub writes: bool,
    /// Its fields, first those that it needs; `?` ends the name of one that may be left out.
    pub fields: Vec<String>,
    /// Its comment: the first paragraph is its sentence, the others its reply and an example.
    pub text: String,
    /// Its JSON schema.
    pub schema: Value,
}

impl Spec {
    /// Its sentence.
    #[must_use]
    pub fn doc(&self) -> &str {
        self.text.split("\n\n").next().unwrap_or_default()
    }

    fn of(kind: Kind, schema: &Value) -> Self {
        let required = schema["required"].as_array().map_or(&[][..], Vec::as_slice);
        let names = schema["properties"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, _)| name);
        let needed = |name: &&String| required.contains(&json!(name));
        let (needed, free): (Vec<_>, Vec<_>) =
            names.filter(|name| *name != "command").partition(needed);
        let free = free.iter().map(|name| format!("{name}?"));
        Self {
            name: schema["properties"]["command"]["const"]
                .as_str()
                .expect("the tag")
                .to_owned(),
            writes: kind.writes(),
            fields: needed.into_iter().cloned().chain(free).collect(),
            text: schema["description"]
                .as_str()
                .expect("a comment")
                .to_owned(),
            schema: schema.clone(),
        }
    }
}

/// All commands, in the order of the type.
#[must_use]
pub fn specs() -> &'static [Spec] {
    static SPECS: LazyLock<Vec<Spec>> = LazyLock::new(|| {
        let inline = |settings: &mut SchemaSettings| settings.inline_subschemas = true;
        let generator = SchemaSettings::draft2020_12().with(inline).into_generator();
        let schema = generator.into_root_schema_for::<Command>().to_value();
        let variants = schema["oneOf"]
            .as_array()
            .expect("one schema for each variant");
        assert_eq!(variants.len(), Kind::VARIANTS.len());
        let both = Kind::VARIANTS.iter().zip(variants);
        both.map(|(kind, schema)| Spec::of(*kind, schema)).collect()
    });
    &SPECS
}

/// What is wrong with a request.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// Not JSON at all.
    #[error("the command is no JSON: {0}")]
    NotJson(#[from] serde_json::Error),
    /// JSON, but no object.
    #[error("a command is a JSON object with a field `command`")]
    NotAnObject,
    /// It names no command.
    #[error("the field `command` is missing; `help` lists the commands")]
    Nameless,
    /// It names a command that does not exist; those that look most like it.
    #[error("there is no command `{0}`; did you mean {near}?", near = .1.join(", "))]
    Unknown(String, Vec<&'static str>),
    /// The command has no such field, but others. Never ignored: it may be one that was misspelt.
    #[error("`{0}` has no field `{1}`; its fields: {2}")]
    NoSuchField(&'static str, String, String),
    /// The command needs a field.
    #[error("`{0}` needs the field `{1}`")]
    Missing(&'static str, &'static str),
    /// A field takes something else than what it is.
    #[error("`{0}` is {1}, not {2}")]
    Wrong(String, String, Value),
}

impl Command {
    /// Reads a request.
    ///
    /// # Errors
    /// What is wrong with it, naming what is known.
    pub fn parse(request: &str) -> Result<Self, Refused> {
        let Value::Object(mut fields) = serde_json::from_str(request)? else {
            return Err(Refused::NotAnObject);
        };
        // A field that is null is left out.
        fields.retain(|_, value| !value.is_null());
        serde_json::from_value(Value::Object(fields.clone())).map_err(|why| explain(fields, &why))
    }

    /// The request, without the fields that are left out.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut request = serde_json::to_value(self).expect("fields are texts, numbers and lists");
        let fields = request.as_object_mut().expect("a command is an object");
        fields.retain(|_, value| !value.is_null());
        request
    }
}

fn explain(mut fields: Map<String, Value>, why: &serde_json::Error) -> Refused {
    let Some(Value::String(name)) = fields.remove("command") else {
        return Refused::Nameless;
    };
    let Some(spec) = specs().iter().find(|spec| spec.name == name) else {
        let near = nearest(&name, specs().iter().map(|spec| spec.name.as_str()));
        return Refused::Unknown(name, near);
    };
    let is = |known: &str, given: &str| known.trim_end_matches('?') == given;
    let known = |given: &str| spec.fields.iter().any(|known| is(known, given));
    if let Some(field) = fields.keys().find(|field| !known(field)) {
        let known = match spec.fields.is_empty() {
            true => "none".to_owned(),
            false => spec.fields.join(", "),
        };
        return Refused::NoSuchField(&spec.name, field.clone(), known);
    }
    let missing = |field: &&String| !field.ends_with('?') && !fields.contains_key(*field);
    if let Some(field) = spec.fields.iter().find(missing) {
        return Refused::Missing(&spec.name, field);
    }
    // Serde says what is wrong with a value, not which: each is read alone. One that can be read is
    // an error only for the fields that it lacks.
    for (field, value) in fields {
        let alone = serde_json::from_value::<Command>(json!({ "command": name, &field: value }));
        let why = alone.err().map(|why| why.to_string()).unwrap_or_default();
        if let Some((_, takes)) = why.split_once(", expected ") {
            return Refused::Wrong(field, takes.to_owned(), value);
        }
    }
    Refused::Wrong("command".to_owned(), why.to_string(), Value::Null)
}
