//! What a field may be. JSON and the words of a command line are read alike: a number may be a
//! text.

use nacre_types::{ClientId, Entity, MonId, OsdId};
use nacre_wire::map::ProgramKind;
use nacre_wire::msg::monitor;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::borrow::Cow;
use std::str::FromStr;

/// A value with a title for the documents, a sentence for errors, and how it is read and shown.
macro_rules! value {
    ($(#[$doc:meta])* $name:ident($inner:ty), $title:literal, $what:literal,
     $read:expr, $show:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name(pub $inner);
        impl $name {
            fn read(value: &Value) -> Result<Self, String> {
                let read: fn(&Value) -> Option<$inner> = $read;
                let wrong = || format!("invalid value: {value}, expected {}", $what);
                read(value).map(Self).ok_or_else(wrong)
            }
        }
        impl FromStr for $name {
            type Err = String;
            fn from_str(word: &str) -> Result<Self, String> {
                Self::read(&Value::from(word)).map_err(|_| format!("write {}", $what))
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
                Self::read(&Value::deserialize(input)?).map_err(D::Error::custom)
            }
        }
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, output: S) -> Result<S::Ok, S::Error> {
                let show: fn(&$inner) -> Value = $show;
                show(&self.0).serialize(output)
            }
        }
        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "title": $title })
            }
        }
    };
}

/// A number, or a text that is one, perhaps after a prefix.
fn number<N: FromStr>(value: &Value, prefix: &str) -> Option<N> {
    match value {
        Value::Number(number) => number.to_string().parse().ok(),
        Value::String(text) => text.strip_prefix(prefix).unwrap_or(text).parse().ok(),
        _ => None,
    }
}

value!(
    #[derive(Copy)]
    /// A whole number.
    Whole(u64),
    "whole number",
    "a whole number, 0 or more",
    |value| number(value, ""),
    |whole| (*whole).into()
);
value!(
    #[derive(Copy)]
    /// An OSD.
    Osd(OsdId),
    "OSD",
    "an OSD, such as 3 or \"osd.3\"",
    |value| number(value, "osd.").map(OsdId),
    |osd| osd.0.into()
);
value!(
    #[derive(Copy)]
    /// A monitor.
    Mon(MonId),
    "monitor",
    "a monitor's number, such as 2 or \"mon.2\"",
    |value| number(value, "mon.")
        .filter(|id| *id < 1_000_000)
        .map(MonId),
    |mon| mon.0.into()
);
value!(
    #[derive(Copy)]
    /// The number that was drawn when a store was made.
    Store(u128),
    "hexadecimal number",
    "a number in hexadecimal, at most 32 digits",
    |value| u128::from_str_radix(value.as_str()?, 16).ok(),
    |store| format!("{store:x}").into()
);
value!(
    #[derive(Copy)]
    /// A share of an OSD's weight.
    Share(f64),
    "number from 0 to 1",
    "a number from 0 (no data) to 1 (its whole share)",
    |value| number(value, "").filter(|share| (0.0..=1.0).contains(share)),
    |share| (*share).into()
);
value!(
    /// A text, which may look like a number.
    Text(String),
    "text or number",
    "a text or a number",
    |value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    },
    |text| text.as_str().into()
);
value!(
    #[derive(Copy)]
    /// A client or OSD that a fence is about.
    Fenced(Entity),
    "client or OSD",
    "client.7 or osd.3",
    |value| match value.as_str()?.split_once('.')? {
        ("client", id) => id.parse().ok().map(|id| Entity::Client(ClientId(id))),
        ("osd", id) => id.parse().ok().map(|id| Entity::Osd(OsdId(id))),
        _ => None,
    },
    |entity| entity.to_string().into()
);

/// One OSD, or a list.
pub(crate) fn one_or_many<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<Osd>, D::Error> {
    let list = match Value::deserialize(input)? {
        Value::Array(list) => list,
        one => vec![one],
    };
    let read: Result<_, _> = list.iter().map(Osd::read).collect();
    read.map_err(D::Error::custom)
}

/// Flags of the cluster.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, strum::IntoStaticStr,
)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Flag {
    /// OSDs that are down are not taken out.
    Noout,
    /// OSDs are not marked down on reports.
    Nodown,
    /// Nothing is backfilled.
    Nobackfill,
    /// Nothing is recovered.
    Norecover,
}

/// How severe a line of the cluster log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Of interest when looking for something else.
    Debug,
    /// Normal.
    Info,
    /// To be looked at.
    Warn,
    /// Something failed.
    Error,
}
impl From<Severity> for monitor::Severity {
    fn from(severity: Severity) -> Self {
        match severity {
            Severity::Debug => Self::Debug {},
            Severity::Info => Self::Info {},
            Severity::Warn => Self::Warn {},
            Severity::Error => Self::Error {},
        }
    }
}

/// What a program is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Program {
    /// Methods of objects, run by OSDs.
    Class,
    /// Decisions, run by the daemons that they are about.
    Policy,
}
impl From<Program> for ProgramKind {
    fn from(program: Program) -> Self {
        match program {
            Program::Class => Self::Class {},
            Program::Policy => Self::Policy {},
        }
    }
}
impl From<ProgramKind> for Program {
    fn from(kind: ProgramKind) -> Self {
        match kind {
            ProgramKind::Class {} => Self::Class,
            ProgramKind::Policy {} => Self::Policy,
        }
    }
}

/// What a placement group does.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum State {
    /// It serves.
    Active,
    /// Every replica is there and complete.
    Clean,
    /// It finds out what is true.
    Peering,
    /// Replicas of objects are missing.
    Degraded,
    /// Objects are being recovered.
    Recovering,
    /// A member is being backfilled.
    Backfilling,
    /// Others act than placement says.
    Remapped,
    /// It does not serve.
    Down,
    /// It has fewer members than its pool's size.
    Undersized,
}
