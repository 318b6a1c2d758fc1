//! Fields of commands. With the feature `cli` most are arguments of the command line as well.

use nacre_types::{ClientId, Entity, Instance};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::value::{Fenced, Osd, Program, Severity, Share, State, Store, Text, Whole, one_or_many};

/// An OSD.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(deny_unknown_fields)]
pub struct OneOsd {
    /// `3` or `osd.3`.
    pub osd: Osd,
}

/// Fields of `osd reweight`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(deny_unknown_fields)]
pub struct OsdReweight {
    /// `3` or `osd.3`.
    pub osd: Osd,
    /// From 0 to 1.
    pub weight: Share,
}

/// Fields of `osd ok-to-stop`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(deny_unknown_fields)]
pub struct OsdOkToStop {
    /// `3` or `osd.3`, several if wanted.
    #[cfg_attr(feature = "cli", arg(required = true))]
    #[serde(deserialize_with = "one_or_many")]
    pub osds: Vec<Osd>,
}

/// Fields of `osd balance`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(deny_unknown_fields)]
pub struct OsdBalance {
    /// Only this pool's groups.
    #[cfg_attr(feature = "cli", arg(long))]
    pub pool: Option<String>,
    /// Only say what it would do.
    #[cfg_attr(feature = "cli", arg(long))]
    #[serde(default)]
    pub dry_run: bool,
    /// Most swaps, 1000 if left out: each moves one replica of a placement group.
    #[cfg_attr(feature = "cli", arg(long))]
    pub swaps_max: Option<Whole>,
}

/// Fields of `pg ls`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(deny_unknown_fields)]
pub struct PgLs {
    /// Only of this pool.
    #[cfg_attr(feature = "cli", arg(long))]
    pub pool: Option<String>,
    /// Only those on this OSD, up or acting.
    #[cfg_attr(feature = "cli", arg(long))]
    pub osd: Option<Osd>,
    /// Only in this state.
    #[cfg_attr(feature = "cli", arg(long))]
    pub state: Option<State>,
}

/// Fields of `pg map`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(deny_unknown_fields)]
pub struct PgMap {
    /// The pool.
    pub pool: String,
    /// The object.
    pub object: String,
    /// Its namespace.
    #[cfg_attr(feature = "cli", arg(long))]
    pub namespace: Option<String>,
    /// What it is placed by, if not its name.
    #[cfg_attr(feature = "cli", arg(long))]
    pub key: Option<String>,
}

/// Fields of `pool create`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(deny_unknown_fields)]
pub struct PoolCreate {
    /// Its name, at most 255 bytes.
    pub name: String,
    /// Replicas of every object.
    #[cfg_attr(feature = "cli", arg(long))]
    pub size: Option<Whole>,
    /// Replicas that must be there for reads and writes.
    #[cfg_attr(feature = "cli", arg(long))]
    pub min_size: Option<Whole>,
    /// Placement groups; chosen from the number of OSDs if left out.
    #[cfg_attr(feature = "cli", arg(long))]
    pub pg_num: Option<Whole>,
    /// The number of the placement rule; on a Ceph cluster its name.
    #[cfg_attr(feature = "cli", arg(long))]
    pub rule: Option<Text>,
}

impl PoolCreate {
    /// With the cluster's defaults.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }
    /// With so many replicas.
    #[must_use]
    pub fn replicated(name: &str, size: u64, min_size: u64) -> Self {
        let (size, min_size) = (Some(Whole(size)), Some(Whole(min_size)));
        Self {
            size,
            min_size,
            ..Self::named(name)
        }
    }
}

/// Fields of `pool set`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(deny_unknown_fields)]
pub struct PoolSet {
    /// The pool.
    pub name: String,
    /// size, min_size, pg_num (grows only), quota_bytes, quota_objects (0: none) or no_delete (0
    /// or 1).
    pub key: String,
    /// The value.
    pub value: Whole,
}

/// Fields of `fence add`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(deny_unknown_fields)]
pub struct FenceAdd {
    /// `client.7` or `osd.3`.
    pub entity: Fenced,
    /// The last instance that may no longer act; an OSD's present one if left out.
    #[cfg_attr(feature = "cli", arg(long))]
    pub instance: Option<Whole>,
}

impl FenceAdd {
    /// Of a client, up to one of its instances.
    #[must_use]
    pub fn of(client: ClientId, instance: Instance) -> Self {
        let (entity, instance) = (Fenced(Entity::Client(client)), Some(Whole(instance.0)));
        Self { entity, instance }
    }
}

/// Fields of `log last`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(deny_unknown_fields)]
pub struct LogLast {
    /// How many, 20 if left out; at most 1000.
    pub n: Option<Whole>,
    /// At least this severe.
    #[cfg_attr(feature = "cli", arg(long))]
    pub severity: Option<Severity>,
}

/// Fields of `config set`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(deny_unknown_fields)]
pub struct ConfigSet {
    /// The option.
    pub key: String,
    /// Its value.
    pub value: Text,
}

/// Fields of `program install`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProgramInstall {
    /// Class or policy.
    pub kind: Program,
    /// The program.
    pub name: String,
    /// Its source, as it was stored.
    pub source: String,
    /// Whether it is used from now on: if left out, classes are and policies are not.
    pub activate: Option<bool>,
    /// The sender's wall clock.
    pub unix_ms: Option<Whole>,
    /// The sender.
    pub client: Option<String>,
}

/// Fields of `program activate`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProgramActivate {
    /// Class or policy.
    pub kind: Program,
    /// The program.
    pub name: String,
    /// The one before the active one if left out (a rollback); 0: none.
    pub version: Option<Whole>,
    /// The sender.
    pub client: Option<String>,
}

/// Fields of `osd add`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OsdAdd {
    /// The lowest free id if left out.
    pub osd: Option<Osd>,
    /// The device class (hdd).
    pub class: Option<String>,
    /// The host that it counts for in placement.
    pub host: Option<String>,
    /// Bytes.
    pub capacity: Option<Whole>,
    /// The name of its store: no other may boot under the id. If left out, the first store that
    /// boots owns the id.
    pub store: Option<Store>,
}
