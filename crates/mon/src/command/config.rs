//! `config …`: the configuration database. Names and values are checked against [`crate::options`]
//! before they are proposed.

use nacre_types::Name;
use nacre_wire::map::Change;
use serde_json::{Value, json};

use super::{Done, View, change, read};
use crate::options::{self, Kind, OPTIONS, Spec};

fn find(key: &str) -> Result<&'static Spec, String> {
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

pub fn get(view: &View<'_>, key: &str) -> Result<Done, String> {
    read(current(view, find(key)?))
}

pub fn dump(view: &View<'_>) -> Result<Done, String> {
    let known = OPTIONS.iter().map(|spec| current(view, spec));
    // Options set by a newer version are shown, not hidden.
    let unknown = view.map().config.iter().filter_map(|(key, value)| {
        let key = key.to_string();
        options::find(&key)
            .is_none()
            .then(|| json!({ "key": key, "value": value, "unknown": true }))
    });
    read(json!({ "options": known.chain(unknown).collect::<Vec<_>>() }))
}

pub fn help(key: Option<&str>) -> Result<Done, String> {
    match key {
        Some(key) => read(json!({ "options": [describe(find(key)?)] })),
        None => read(json!({ "options": OPTIONS.iter().map(describe).collect::<Vec<_>>() })),
    }
}

pub fn set(view: &View<'_>, key: &str, value: &str) -> Result<Done, String> {
    let spec = find(key)?;
    options::validate(spec, value)?;
    let reply = json!({ "key": spec.name, "value": value });
    if view
        .map()
        .config
        .get(&Name::from(spec.name))
        .is_some_and(|set| set == value)
    {
        return read(reply);
    }
    let said = format!("option {} = {value}", spec.name);
    change(
        reply,
        vec![Change::Config {
            key: spec.name.into(),
            value: Some(value.to_owned()),
        }],
        said,
    )
}

pub fn rm(view: &View<'_>, key: &str) -> Result<Done, String> {
    let reply = json!({ "key": key });
    if !view.map().config.contains_key(&Name::from(key)) {
        // An option set by a newer version can be removed although this version does not know it.
        find(key)?;
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
