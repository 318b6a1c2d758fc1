//! Settings of a namespace. They are metadata themselves: `nacre/namespace/NAME` is a JSON object
//! that only `admin` writes.
//!
//! ```text
//!  {"readers": ["*"], "writers": ["alice"], "quota_bytes": 1048576, "keys_max": 1000, "value_bytes_max": 65536,
//!   "validator": "positive", "triggers": [{"name": "tell", "prefix": "classes/", "log": "{key} changed in {revision}"}]}
//! ```
//! Programs are `nacre/program/NAME`. An omitted field has its default. An unknown field is refused
//! on writing, and ignored on reading: a newer monitor wrote it.

use crate::state::meta::Meta;
use nacre_types::Name;
use nacre_wire::meta::form::settings_key;
pub use nacre_wire::meta::form::{program_key, program_of, settings_of};
use nacre_wire::msg::meta::{META_SETTINGS, MetaPair};
use serde_json::{Map, Value};

pub use nacre_wire::msg::meta::META_VALUE_BYTES_MAX as VALUE_BYTES_MAX;
/// Maximum value size that a namespace can allow.
pub const VALUE_BYTES_LIMIT: u64 = 256 << 10;
/// Maximum number of triggers per namespace.
pub const TRIGGERS_MAX: usize = 32;

const FIELDS: [&str; 7] = [
    "readers",
    "writers",
    "validator",
    "triggers",
    "quota_bytes",
    "value_bytes_max",
    "keys_max",
];

/// The action of a trigger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Writes a line into the cluster log; `{key}`, `{revision}` and `{what}` are filled in.
    Log(String),
    /// Runs a program.
    Program(String),
}

/// Runs an action after changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// Its name.
    pub name: String,
    /// Prefix of its keys.
    pub prefix: Name,
    /// Its action.
    pub action: Action,
}

/// See the module head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Names of clients that may read; `*` matches all.
    pub readers: Vec<String>,
    /// Names of clients that may write; `*` matches all.
    pub writers: Vec<String>,
    /// The program that judges changes.
    pub validator: Option<String>,
    /// Actions after changes.
    pub triggers: Vec<Trigger>,
    /// Maximum bytes of keys and values.
    pub quota_bytes: u64,
    /// Maximum bytes of one value.
    pub value_bytes_max: u64,
    /// Maximum number of keys.
    pub keys_max: u64,
}
impl Default for Settings {
    fn default() -> Self {
        Self {
            readers: vec!["*".to_owned()],
            writers: vec!["*".to_owned()],
            validator: None,
            triggers: Vec::new(),
            quota_bytes: u64::MAX,
            value_bytes_max: VALUE_BYTES_MAX,
            keys_max: u64::MAX,
        }
    }
}

fn names(fields: &Map<String, Value>, field: &str) -> Result<Option<Vec<String>>, String> {
    let wrong = || format!("`{field}` is a list of client names, or [\"*\"]");
    let Some(value) = fields.get(field) else {
        return Ok(None);
    };
    let list = value.as_array().ok_or_else(wrong)?;
    list.iter()
        .map(|name| name.as_str().map(str::to_owned).ok_or_else(wrong))
        .collect::<Result<_, _>>()
        .map(Some)
}
fn number(fields: &Map<String, Value>, field: &str, default: u64) -> Result<u64, String> {
    let wrong = || format!("`{field}` is a whole number");
    fields
        .get(field)
        .map_or(Ok(default), |value| value.as_u64().ok_or_else(wrong))
}
fn trigger(namespace: &Name, value: &Value) -> Result<Trigger, String> {
    let text = |field: &str| value.get(field).and_then(Value::as_str).map(str::to_owned);
    let name = text("name").filter(|name| !name.is_empty() && !name.contains('/'));
    let name = name.ok_or("a trigger has a `name` without `/`")?;
    let prefix = text("prefix").unwrap_or_else(|| format!("{namespace}/"));
    if !prefix.starts_with(&format!("{namespace}/")) {
        return Err(format!(
            "trigger `{name}`: its prefix begins with `{namespace}/`"
        ));
    }
    let action = match (text("log"), text("program")) {
        (Some(log), None) => Action::Log(log),
        (None, Some(program)) => Action::Program(program),
        _ => {
            return Err(format!(
                "trigger `{name}` has either `log`, a text, or `program`, a name"
            ));
        }
    };
    Ok(Trigger {
        name,
        prefix: prefix.as_str().into(),
        action,
    })
}

/// A use of a program in a namespace's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Used {
    /// As validator.
    Validator {
        /// The program.
        program: String,
    },
    /// As trigger.
    Trigger {
        /// The program.
        program: String,
        /// The trigger's name.
        trigger: String,
    },
}
impl Used {
    /// The program.
    #[must_use]
    pub fn program(&self) -> &str {
        match self {
            Self::Validator { program } | Self::Trigger { program, .. } => program,
        }
    }
    /// For a message: the use and its namespace.
    #[must_use]
    pub fn of(&self, namespace: &Name) -> String {
        match self {
            Self::Validator { .. } => format!("validator of namespace `{namespace}`"),
            Self::Trigger { trigger, .. } => {
                format!("trigger `{trigger}` of namespace `{namespace}`")
            }
        }
    }
}

impl Settings {
    /// The programs that they name.
    pub fn programs(&self) -> impl Iterator<Item = Used> {
        let validator = self.validator.iter().map(|program| Used::Validator {
            program: program.clone(),
        });
        let trigger = |trigger: &Trigger| match &trigger.action {
            Action::Program(program) => Some(Used::Trigger {
                program: program.clone(),
                trigger: trigger.name.clone(),
            }),
            Action::Log(_) => None,
        };
        validator.chain(self.triggers.iter().filter_map(trigger))
    }

    /// Reads settings that were written before.
    fn lenient(namespace: &Name, value: &[u8]) -> Result<Self, String> {
        let value: Value = serde_json::from_slice(value)
            .map_err(|why| format!("settings are a JSON object: {why}"))?;
        let Value::Object(fields) = &value else {
            return Err("settings are a JSON object".to_owned());
        };
        let plain = Self::default();
        let triggers = match fields.get("triggers") {
            None => Vec::new(),
            Some(Value::Array(list)) => list
                .iter()
                .map(|one| trigger(namespace, one))
                .collect::<Result<_, _>>()?,
            Some(_) => return Err("`triggers` is a list".to_owned()),
        };
        let validator = match fields.get("validator") {
            None | Some(Value::Null) => None,
            Some(Value::String(name)) => Some(name.clone()),
            Some(_) => return Err("`validator` is the name of a program".to_owned()),
        };
        Ok(Self {
            readers: names(fields, "readers")?.unwrap_or(plain.readers),
            writers: names(fields, "writers")?.unwrap_or(plain.writers),
            validator,
            triggers,
            quota_bytes: number(fields, "quota_bytes", plain.quota_bytes)?,
            value_bytes_max: number(fields, "value_bytes_max", plain.value_bytes_max)?,
            keys_max: number(fields, "keys_max", plain.keys_max)?,
        })
    }

    /// Checks settings before they are written.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn check(namespace: &Name, value: &[u8]) -> Result<Self, String> {
        if namespace.is_empty()
            || namespace.as_bytes().contains(&b'/')
            || namespace.as_bytes() == META_SETTINGS.as_bytes()
        {
            return Err(format!(
                "a namespace's name has no `/`, and is not `{META_SETTINGS}`"
            ));
        }
        let settings = Self::lenient(namespace, value)?;
        if let Ok(Value::Object(fields)) = serde_json::from_slice(value)
            && let Some(unknown) = fields
                .keys()
                .find(|field| !FIELDS.contains(&field.as_str()))
        {
            return Err(format!(
                "settings have no field `{unknown}`; they have {}",
                FIELDS.join(", ")
            ));
        }
        if settings.value_bytes_max > VALUE_BYTES_LIMIT {
            return Err(format!("`value_bytes_max` is at most {VALUE_BYTES_LIMIT}"));
        }
        if settings.triggers.len() > TRIGGERS_MAX {
            return Err(format!("a namespace has at most {TRIGGERS_MAX} triggers"));
        }
        Ok(settings)
    }

    /// A namespace's settings. Damaged ones, which no monitor accepts, would leave the namespace to
    /// `admin` alone.
    #[must_use]
    pub fn of(meta: &Meta, namespace: &Name) -> Self {
        let closed = || Self {
            readers: Vec::new(),
            writers: Vec::new(),
            ..Self::default()
        };
        let read =
            |pair: &MetaPair| Self::lenient(namespace, &pair.value).unwrap_or_else(|_| closed());
        meta.get(&settings_key(namespace))
            .map(read)
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Failed when unknown fields passed.
    #[test]
    fn what_is_misspelt_is_refused_when_written_and_ignored_when_read() {
        let wrong = br#"{"writer": ["alice"]}"#;
        assert!(
            Settings::check(&"a".into(), wrong)
                .expect_err("refused")
                .contains("`writer`")
        );
        assert_eq!(
            Settings::lenient(&"a".into(), wrong),
            Ok(Settings::default())
        );
    }

    #[test]
    fn a_trigger_stays_in_its_namespace() {
        let with = |prefix: &str| {
            format!(r#"{{"triggers":[{{"name":"t","prefix":"{prefix}","log":"x"}}]}}"#)
        };
        assert!(Settings::check(&"a".into(), with("a/b").as_bytes()).is_ok());
        assert!(Settings::check(&"a".into(), with("ab/").as_bytes()).is_err());
    }

    #[test]
    fn the_settings_namespace_has_no_settings() {
        assert!(Settings::check(&META_SETTINGS.into(), b"{}").is_err());
    }
}
