//! The registry of programs on a Ceph cluster: one object, each change of which is guarded by the
//! version read.
//!
//! ```text
//!  omap of `programs`:  head ─▶ RegistryHead: number of changes, last activation
//!                       class/NAME, policy/NAME ─▶ Program: activation, active version, versions
//!  separate objects, for each source:  class/NAME/DIGEST
//! ```
//! A command has the same meaning as at a monitor (`nacre_mon::run_program`): the object is read
//! into a map without other content, the command runs on that, and the changes are written if the
//! object still has the version that was read.
//!
//! *Invariant*: activation numbers only increase, even over removals: the head has the last one,
//! and every activation changes the head.

use bytes::Bytes;
use nacre_command::{Command, ProgramActivate, ProgramInstall};
use nacre_types::{ClusterId, Name, Version};
use nacre_wire::codec::Wire as _;
use nacre_wire::map::programs::RegistryHead;
use nacre_wire::map::{Capability, ClusterMap, CrushSection, Program, ProgramKind};
use nacre_wire::msg::client::SubOp;
use serde_json::Value;

/// The object.
pub const REGISTRY: &str = "programs";
const HEAD: &[u8] = b"head";

/// See the module head.
#[derive(Clone, Debug)]
pub struct Registry {
    map: ClusterMap,
    /// The object's version; `None` if it does not exist.
    version: Option<Version>,
}

/// The result of a command.
#[derive(Debug)]
pub struct Outcome {
    /// The answer.
    pub reply: Value,
    /// What to write, guarded; empty if nothing changes.
    pub ops: Vec<SubOp>,
}

fn key(kind: ProgramKind, name: &Name) -> Bytes {
    let mut key = format!("{kind}/").into_bytes();
    key.extend_from_slice(name.as_bytes());
    key.into()
}

impl Registry {
    /// A registry without programs: the object does not exist.
    #[must_use]
    pub fn empty() -> Self {
        let nothing = CrushSection::parse("").expect("no hierarchy is one");
        Self {
            map: ClusterMap::empty(ClusterId(0), nothing),
            version: None,
        }
    }

    /// Decodes the object's entries.
    ///
    /// # Errors
    /// It was written by another program, or by a newer Nacre.
    pub fn read(entries: &[(Bytes, Bytes)], version: Version) -> Result<Self, String> {
        let mut this = Self {
            version: Some(version),
            ..Self::empty()
        };
        for (key, value) in entries {
            let wrong = |what: &dyn std::fmt::Display| {
                format!(
                    "the registry of programs has an entry {} that cannot be read: {what}",
                    Name::copy(key)
                )
            };
            if key == HEAD {
                let head = RegistryHead::from_bytes(value).map_err(|why| wrong(&why))?;
                (this.map.epoch, this.map.program_last) = (head.epoch, head.last);
                continue;
            }
            let kinds = [ProgramKind::Class {}, ProgramKind::Policy {}];
            let id = kinds
                .into_iter()
                .find_map(|kind| Some((kind, key.strip_prefix(format!("{kind}/").as_bytes())?)));
            let (kind, name) = id.ok_or_else(|| wrong(&"its name is not one of a program"))?;
            let program = Program::from_bytes(value).map_err(|why| wrong(&why))?;
            this.map.programs.insert((kind, Name::copy(name)), program);
        }
        Ok(this)
    }

    /// Programs by kind and name.
    pub fn programs(&self) -> impl Iterator<Item = (ProgramKind, &Name, &Program)> {
        self.map
            .programs
            .iter()
            .map(|((kind, name), program)| (*kind, name, program))
    }

    /// Runs a command.
    ///
    /// # Errors
    /// One human-readable sentence, from the monitors' code.
    pub fn run(&self, command: &Command) -> Result<Outcome, String> {
        let mut next = self.map.clone();
        // The Ceph cluster decides who may do this, because it knows its clients: those with write
        // access to this pool.
        let client = match command {
            Command::ProgramInstall(ProgramInstall { client, .. })
            | Command::ProgramActivate(ProgramActivate { client, .. })
            | Command::ProgramRm { client, .. } => client.as_deref(),
            _ => None,
        };
        let client = client.unwrap_or_default().into();
        next.clients.insert(client, vec![Capability::All {}]);
        let mut done = nacre_mon::run_program(&next, command)?;
        if done.changes.is_empty() {
            return Ok(Outcome {
                reply: done.reply,
                ops: Vec::new(),
            });
        }
        next.apply(&next.delta(done.changes))
            .expect("the delta is of this map");
        if let Some(reply) = done.reply.as_object_mut() {
            reply.insert("epoch".to_owned(), next.epoch.0.into());
        }
        let head = RegistryHead {
            epoch: next.epoch,
            last: next.program_last,
        };
        let mut entries = vec![(Bytes::from_static(HEAD), head.to_bytes().into())];
        for (id, program) in &next.programs {
            if self.map.programs.get(id) != Some(program) {
                entries.push((key(id.0, &id.1), program.to_bytes().into()));
            }
        }
        let gone = self
            .map
            .programs
            .keys()
            .filter(|id| !next.programs.contains_key(id));
        let gone: Vec<Bytes> = gone.map(|(kind, name)| key(*kind, name)).collect();
        let guard = match self.version {
            Some(version) => SubOp::AssertVersion { version },
            None => SubOp::AssertExists { exists: false },
        };
        let mut ops = vec![guard, SubOp::OmapSet { entries }];
        if !gone.is_empty() {
            ops.push(SubOp::OmapRemove { keys: gone });
        }
        Ok(Outcome {
            reply: done.reply,
            ops,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::Epoch;
    use serde_json::json;
    use std::collections::BTreeMap;

    /// The object as an OSD would store it.
    #[derive(Default)]
    struct Kept {
        entries: BTreeMap<Bytes, Bytes>,
        version: u64,
    }
    impl Kept {
        fn registry(&self) -> Registry {
            let entries: Vec<_> = self.entries.clone().into_iter().collect();
            if self.version == 0 {
                Registry::empty()
            } else {
                Registry::read(&entries, self.at()).expect("ours")
            }
        }
        fn at(&self) -> Version {
            Version {
                interval: Epoch(0),
                number: self.version,
            }
        }
        fn run(&mut self, mut request: Value) -> Result<Value, String> {
            request["kind"] = "class".into();
            if !matches!(
                request["command"].as_str(),
                Some("program ls" | "program show")
            ) {
                request["client"] = "somebody".into();
            }
            let Outcome { reply, ops } = self
                .registry()
                .run(&Command::parse(&request.to_string()).expect("a command"))?;
            for op in ops {
                match op {
                    SubOp::AssertExists { exists } => assert_eq!(exists, self.version > 0),
                    SubOp::AssertVersion { version } => {
                        assert_eq!(version, self.at(), "nobody else writes here")
                    }
                    SubOp::OmapSet { entries } => self.entries.extend(entries),
                    SubOp::OmapRemove { keys } => {
                        keys.iter().for_each(|key| drop(self.entries.remove(key)))
                    }
                    other => panic!("{other:?}"),
                }
                self.version += 1;
            }
            Ok(reply)
        }
        fn install(&mut self, name: &str, text: &str) -> Value {
            let source = format!("--!profile portable\n-- {text}\n");
            self.run(json!({ "command": "program install", "name": name, "source": source }))
                .expect("installed")
        }
    }

    #[test]
    fn activations_only_grow_through_rollbacks_removals_and_readings() {
        let mut kept = Kept::default();
        assert_eq!(
            kept.run(json!({ "command": "program ls" })),
            Ok(json!({ "programs": [] }))
        );
        assert_eq!(kept.version, 0, "reading makes nothing");
        assert_eq!(kept.install("a", "one")["activation"], 1);
        assert_eq!(kept.install("a", "two")["activation"], 2);
        assert_eq!(kept.install("b", "one")["activation"], 3);
        let before = kept.version;
        assert_eq!(kept.install("a", "two")["unchanged"], true);
        assert_eq!(kept.version, before);
        let back = kept
            .run(json!({ "command": "program activate", "name": "a" }))
            .expect("rolled back");
        assert_eq!(
            (&back["version"], &back["activation"], &back["epoch"]),
            (&json!(1), &json!(4), &json!(4))
        );
        kept.run(json!({ "command": "program rm", "name": "a" }))
            .expect("removed");
        assert_eq!(
            kept.registry()
                .programs()
                .map(|(_, name, _)| name.to_string())
                .collect::<Vec<_>>(),
            ["b"]
        );
        assert_eq!(kept.install("a", "one")["activation"], 5);
        let shown = kept
            .run(json!({ "command": "program show", "name": "a" }))
            .expect("there");
        assert_eq!(
            (&shown["versions"][0]["by"], &shown["since"]),
            (&json!("somebody"), &json!(6))
        );
    }

    #[test]
    fn what_somebody_else_wrote_is_not_taken_for_programs() {
        for (key, value) in [("head", "x"), ("class/a", "y"), ("neither", "z")] {
            let entries = [(Bytes::from(key), Bytes::from(value))];
            let why = Registry::read(&entries, Version::default()).expect_err("nonsense");
            assert!(why.contains(key), "{why}");
        }
    }
}
