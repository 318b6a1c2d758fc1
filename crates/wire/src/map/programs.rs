//! Programs and client capabilities in the cluster map (MAL-06, -13, -14, -15, -53, -70; DESIGN
//! §4).
//!
//! The map has names, versions and digests. The sources are replicated objects of the pool
//! [`PROGRAM_POOL`], named by their digest: a daemon verifies the source it fetches against the
//! map, and refuses any other.
//!
//! ```text
//!  install  ──▶ object class/zlog/<digest>, then Change::ProgramInstall ──▶ versions: 1 2 3     activation 17
//!  rollback ──▶ Change::ProgramActivate{2}                              ──▶ the same versions,  activation 18
//! ```
//! Invariant: an activation number names one version of one program for ever, and the numbers only
//! increase. A daemon runs the version that its map says is active, and a later primary of an
//! object has a later map. So the activation numbers of an object's calls never decrease.

use super::ClusterMap;
use crate::codec::{Malformed, Reader, Wire};
use crate::measure::Measure;
use crate::{wire_enum, wire_record};
use nacre_types::{Epoch, Name, ObjectId};
use std::fmt;

/// The pool of program sources. The monitors create it with the first program.
pub const PROGRAM_POOL: &str = "nacre.programs";
/// Longest source, in bytes.
pub const SOURCE_BYTES_MAX: usize = 64 << 10;
/// How much of a source is read: earlier versions accepted longer ones, and a daemon that cannot
/// run one reports that.
pub const SOURCE_READ_MAX: u64 = 256 << 10;
/// Longest name of a program or a client, in bytes.
pub const PROGRAM_NAME_MAX: usize = 64;
/// Versions kept of one program: the limit of a rollback.
pub const VERSIONS_MAX: usize = 32;
/// Most programs in a cluster.
pub const PROGRAMS_MAX: usize = 1024;

/// BLAKE3 of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceDigest(pub [u8; 32]);

impl fmt::Display for SourceDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
impl Wire for SourceDigest {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let bytes = from.take(32, "SourceDigest")?;
        Ok(Self(bytes.try_into().expect("just as many as asked for")))
    }
    fn measure(&self, into: &mut Measure) {
        into.add(self.0.len());
    }
}

/// The kind of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProgramKind {
    /// Methods of objects, run by OSDs.
    Class {},
    /// Decisions: balancers, cache policies, validators and triggers of service metadata.
    Policy {},
}
wire_enum!(ProgramKind { 1 => Class {}, 2 => Policy {} });

impl fmt::Display for ProgramKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Class {} => "class",
            Self::Policy {} => "policy",
        })
    }
}

/// One version of a program's source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramVersion {
    /// Counts the sources installed under the name, from 1. Assigned when the map applies the
    /// change; 0 in a change.
    pub number: u32,
    /// Digest of the source.
    pub digest: SourceDigest,
    /// Length of the source.
    pub bytes: u32,
    /// Time of installation, in milliseconds since 1970; informational.
    pub installed_ms: u64,
    /// Who installed it.
    pub by: Name,
}
wire_record!(ProgramVersion version 1 compat 1 { number, digest, bytes, installed_ms, by });

/// A program with its history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// Number of the current activation; 0 when no version is active.
    pub activation: u64,
    /// The active version's number; 0 for none.
    pub active: u32,
    /// Epoch that activated it.
    pub since: Epoch,
    /// All versions kept, oldest first.
    pub versions: Vec<ProgramVersion>,
}
wire_record!(Program version 1 compat 1 { activation, active, since, versions });

impl Program {
    /// The version of that number.
    #[must_use]
    pub fn version(&self, number: u32) -> Option<&ProgramVersion> {
        self.versions
            .iter()
            .find(|version| version.number == number)
    }
    /// The active version.
    #[must_use]
    pub fn current(&self) -> Option<&ProgramVersion> {
        self.version(self.active)
    }
}

/// The header of a program registry that is kept outside the map, on another engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegistryHead {
    /// Counts the changes, as a map's epoch does.
    pub epoch: Epoch,
    /// Highest activation number assigned so far.
    pub last: u64,
}
wire_record!(RegistryHead version 1 compat 1 { epoch, last });

/// The name of the object that stores a source, in [`PROGRAM_POOL`].
#[must_use]
pub fn source_object(kind: ProgramKind, name: &Name, digest: &SourceDigest) -> ObjectId {
    ObjectId::named(&format!("{kind}/{name}/{digest}"))
}

/// A capability of a named client. `*` stands for any.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Capability {
    /// Everything.
    All {},
    /// Install, activate and remove programs of the kind.
    Install {
        /// The kind.
        kind: ProgramKind,
    },
    /// Call methods.
    Call {
        /// The pool.
        pool: Name,
        /// The class.
        class: Name,
        /// The method.
        method: Name,
    },
    /// Run scripts sent with the call.
    Eval {
        /// The pool.
        pool: Name,
    },
}
wire_enum!(Capability {
    1 => All {},
    2 => Install { kind },
    3 => Call { pool, class, method },
    4 => Eval { pool },
});

/// The client that may do everything, unless the map says otherwise: a new cluster needs a first
/// client with rights.
pub const ADMIN: &str = "admin";

fn fits(pattern: &Name, name: &[u8]) -> bool {
    pattern.as_bytes() == b"*" || pattern.as_bytes() == name
}

impl ClusterMap {
    /// The capabilities of the client with that name. Unknown clients may only call installed
    /// methods. [`ADMIN`] may do everything while the map does not name it. (Proof of a client's
    /// identity comes with authentication; until then daemons only listen on the loopback
    /// interface.)
    #[must_use]
    pub fn capabilities_of(&self, client: &Name) -> Vec<Capability> {
        match self.clients.get(client) {
            Some(capabilities) => capabilities.clone(),
            None if client.as_bytes() == ADMIN.as_bytes() => vec![Capability::All {}],
            None => vec![Capability::Call {
                pool: "*".into(),
                class: "*".into(),
                method: "*".into(),
            }],
        }
    }

    /// Whether they allow installing programs of the kind.
    #[must_use]
    pub fn may_install(&self, client: &Name, kind: ProgramKind) -> bool {
        self.capabilities_of(client)
            .iter()
            .any(|capability| match capability {
                Capability::All {} => true,
                Capability::Install { kind: allowed } => *allowed == kind,
                _ => false,
            })
    }

    /// Whether they allow calling the method in the pool.
    #[must_use]
    pub fn may_call(&self, client: &Name, pool: &Name, class: &Name, method: &Name) -> bool {
        self.capabilities_of(client)
            .iter()
            .any(|capability| match capability {
                Capability::All {} => true,
                Capability::Call {
                    pool: p,
                    class: c,
                    method: m,
                } => {
                    fits(p, pool.as_bytes())
                        && fits(c, class.as_bytes())
                        && fits(m, method.as_bytes())
                }
                _ => false,
            })
    }

    /// Whether they allow running the client's own scripts in the pool.
    #[must_use]
    pub fn may_eval(&self, client: &Name, pool: &Name) -> bool {
        self.capabilities_of(client)
            .iter()
            .any(|capability| match capability {
                Capability::All {} => true,
                Capability::Eval { pool: p } => fits(p, pool.as_bytes()),
                _ => false,
            })
    }

    pub(super) fn install(
        &mut self,
        kind: ProgramKind,
        name: &Name,
        version: &ProgramVersion,
        activate: bool,
    ) {
        let (epoch, next) = (self.epoch, self.program_last + 1);
        if self.programs.len() >= PROGRAMS_MAX && !self.programs.contains_key(&(kind, name.clone()))
        {
            return;
        }
        let program = self.programs.entry((kind, name.clone())).or_default();
        let number = match program
            .versions
            .iter()
            .find(|old| old.digest == version.digest)
        {
            Some(old) => old.number,
            None => {
                let number = program.versions.last().map_or(0, |last| last.number) + 1;
                program.versions.push(ProgramVersion {
                    number,
                    ..version.clone()
                });
                number
            }
        };
        if activate {
            (program.active, program.activation, program.since) = (number, next, epoch);
            self.program_last = next;
        }
        while program.versions.len() > VERSIONS_MAX {
            let oldest = program
                .versions
                .iter()
                .position(|old| old.number != program.active && old.number != number);
            program.versions.remove(oldest.expect("all but two may go"));
        }
    }

    pub(super) fn activate(&mut self, kind: ProgramKind, name: &Name, number: u32) {
        let (epoch, next) = (self.epoch, self.program_last + 1);
        let Some(program) = self.programs.get_mut(&(kind, name.clone())) else {
            return;
        };
        if number == 0 {
            (program.active, program.activation, program.since) = (0, 0, epoch);
        } else if program.version(number).is_some() {
            (program.active, program.activation, program.since) = (number, next, epoch);
            self.program_last = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::{Change, CrushSection};
    use nacre_types::ClusterId;

    const CLASS: ProgramKind = ProgramKind::Class {};

    fn map() -> ClusterMap {
        ClusterMap::empty(ClusterId(1), CrushSection::parse("").expect("empty text"))
    }
    fn apply(map: &mut ClusterMap, changes: Vec<Change>) {
        map.apply(&map.delta(changes)).expect("the next delta");
    }
    fn install(map: &mut ClusterMap, name: &str, source: u8) {
        let version = ProgramVersion {
            digest: SourceDigest([source; 32]),
            ..ProgramVersion::default()
        };
        apply(
            map,
            vec![Change::ProgramInstall {
                kind: CLASS,
                name: name.into(),
                version,
                activate: true,
            }],
        );
    }
    fn program<'a>(map: &'a ClusterMap, name: &str) -> &'a Program {
        &map.programs[&(CLASS, name.into())]
    }

    #[test]
    fn activations_only_grow_through_rollbacks_and_removals() {
        let mut map = map();
        install(&mut map, "zlog", 1);
        install(&mut map, "zlog", 2);
        assert_eq!(
            (
                program(&map, "zlog").active,
                program(&map, "zlog").activation
            ),
            (2, 2)
        );
        apply(
            &mut map,
            vec![Change::ProgramActivate {
                kind: CLASS,
                name: "zlog".into(),
                number: 1,
            }],
        );
        assert_eq!(
            (
                program(&map, "zlog").active,
                program(&map, "zlog").activation
            ),
            (1, 3)
        );
        // Installing the same source again activates the same version.
        install(&mut map, "zlog", 2);
        assert_eq!(
            (
                program(&map, "zlog").active,
                program(&map, "zlog").versions.len()
            ),
            (2, 2)
        );
        apply(
            &mut map,
            vec![Change::ProgramRemove {
                kind: CLASS,
                name: "zlog".into(),
            }],
        );
        install(&mut map, "zlog", 1);
        assert_eq!(
            (
                program(&map, "zlog").active,
                program(&map, "zlog").activation
            ),
            (1, 5)
        );
        apply(
            &mut map,
            vec![Change::ProgramActivate {
                kind: CLASS,
                name: "zlog".into(),
                number: 9,
            }],
        );
        assert_eq!(
            program(&map, "zlog").activation,
            5,
            "no such version: nothing happens"
        );
    }

    #[test]
    fn old_versions_go_and_the_active_one_stays() {
        let mut map = map();
        for source in 0..40 {
            let version = ProgramVersion {
                digest: SourceDigest([source; 32]),
                ..ProgramVersion::default()
            };
            let change = Change::ProgramInstall {
                kind: CLASS,
                name: "c".into(),
                version,
                activate: source == 0,
            };
            apply(&mut map, vec![change]);
        }
        let program = program(&map, "c");
        assert_eq!(program.versions.len(), VERSIONS_MAX);
        assert_eq!(
            program.current().map(|version| version.digest),
            Some(SourceDigest([0; 32]))
        );
    }

    #[test]
    fn a_named_client_may_do_what_the_map_says_and_no_more() {
        let mut map = map();
        let [admin, bob, eve, pool]: [Name; 4] =
            ["admin".into(), "bob".into(), "eve".into(), "p".into()];
        let call = |class: &str| Capability::Call {
            pool: "p".into(),
            class: class.into(),
            method: "*".into(),
        };
        apply(
            &mut map,
            vec![Change::ClientSet {
                name: bob.clone(),
                capabilities: vec![call("lock")],
            }],
        );
        assert!(map.may_install(&admin, CLASS) && map.may_eval(&admin, &pool));
        assert!(!map.may_install(&bob, CLASS) && !map.may_eval(&bob, &pool));
        assert!(map.may_call(&bob, &pool, &"lock".into(), &"lock".into()));
        assert!(!map.may_call(&bob, &pool, &"zlog".into(), &"write".into()));
        assert!(!map.may_call(&bob, &"q".into(), &"lock".into(), &"lock".into()));
        assert!(
            map.may_call(&eve, &pool, &"zlog".into(), &"write".into())
                && !map.may_eval(&eve, &pool)
        );
        // This applies even to the administrator, once its capabilities are set.
        apply(
            &mut map,
            vec![Change::ClientSet {
                name: admin.clone(),
                capabilities: vec![],
            }],
        );
        assert!(!map.may_install(&admin, CLASS));
        apply(
            &mut map,
            vec![Change::ClientRemove {
                name: admin.clone(),
            }],
        );
        assert!(map.may_install(&admin, CLASS));
    }
}
