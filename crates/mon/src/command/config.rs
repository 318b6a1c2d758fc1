//! `config …`: the configuration database. Names and values are checked against [`crate::options`]
//! before they are proposed.

use nacre_types::Name;
use nacre_wire::map::Change;
use serde_json::{Value, json};

use super::{Done, Fields, View, change, read};
use crate::options::{self, Kind, OPTIONS, Spec};

fn find(fields: &Fields<'_>) -> Result<&'static Spec, String> {
    let key = fields.need_text("key")?;
    options::find(key).ok_or_else(|| {
        format!(
            "there is no option {key}; the closest are {}",
            options::closest(key).join(", ")
        )
    })
}

fn describe(spec: &Spec) -> Value {
    let takes = match spec.kind {
        Kind::Whole { min, max } => format!("a whole number from {min} to {max}"),
        Kind::Fraction => "a number from 0 to 1".to_owned(),
    };
    json!({ "key": spec.name, "default": spec.default, "takes": takes, "doc": spec.doc })
}

fn current(view: &View<'_>, spec: &Spec) -> Value {
    let set = view.map().config.get(&Name::from(spec.name));
    json!({ "key": spec.name, "value": set.map_or(spec.default, String::as_str), "default": spec.default, "set": set.is_some() })
}

pub fn get(view: &View<'_>, fields: &Fields<'_>) -> Result<Done, String> {
    read(current(view, find(fields)?))
}

pub fn dump(view: &View<'_>, _: &Fields<'_>) -> Result<Done, String> {
    let known = OPTIONS.iter().map(|spec| current(view, spec));
    // What a newer version set is shown, not hidden.
    let unknown = view.map().config.iter().filter_map(|(key, value)| {
        let key = key.to_string();
        options::find(&key)
            .is_none()
            .then(|| json!({ "key": key, "value": value, "unknown": true }))
    });
    read(json!({ "options": known.chain(unknown).collect::<Vec<_>>() }))
}

pub fn help(_: &View<'_>, fields: &Fields<'_>) -> Result<Done, String> {
    match fields.text("key")? {
        Some(_) => read(json!({ "options": [describe(find(fields)?)] })),
        None => read(json!({ "options": OPTIONS.iter().map(describe).collect::<Vec<_>>() })),
    }
}

pub fn set(view: &View<'_>, fields: &Fields<'_>) -> Result<Done, String> {
    let spec = find(fields)?;
    let value = match fields.value("value") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => return Err("`value` is a text or a number".to_owned()),
    };
    options::validate(spec, &value)?;
    let reply = json!({ "key": spec.name, "value": value });
    if view.map().config.get(&Name::from(spec.name)) == Some(&value) {
        return read(reply);
    }
    let said = format!("option {} = {value}", spec.name);
    change(
        reply,
        vec![Change::Config {
            key: spec.name.into(),
            value: Some(value),
        }],
        said,
    )
}

pub fn rm(view: &View<'_>, fields: &Fields<'_>) -> Result<Done, String> {
    let key = fields.need_text("key")?;
    let reply = json!({ "key": key });
    if !view.map().config.contains_key(&Name::from(key)) {
        // An option that a newer version set can be removed although this one does not know it.
        find(fields)?;
        return read(reply);
    }
    change(
        reply,
        vec![Change::Config {
            key: key.into(),
            value: None,
        }],
        format!("option {key} is its default again"),
    )
}
