//! A client's knowledge of the installed classes, and the translation of calls.
//!
//! ```text
//!  a call ── known, and younger than a second ──▶ the source is sent with it
//!    └── otherwise it waits for a read (the registry's version; if that is new, the registry), then the same
//! ```
//! Sources are read at the first call of their class. *Invariant*: a call runs what was active at
//! most [`YOUNG`] before it began, or later; if reading takes longer, then since the read began.
//! One client never goes back to an older version. Another client may run the older version for
//! that long.

use crate::error::{EIO, EOPNOTSUPP, EPERM};
use crate::handle::Rados;
use crate::home::{self, HOME};
use crate::lua;
use crate::programs::store::Store;
use bytes::Bytes;
use nacre_client::{Failure, Operation};
use nacre_types::{Name, Version};
use nacre_wire::map::{ProgramKind, SourceDigest};
use nacre_wire::msg::client::{OpFailure, SubOp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the list that was read counts as current.
pub const YOUNG: Duration = Duration::from_secs(1);

/// Longest wait for a read: most of it is bounded by librados, which however waits for monitors
/// without a limit.
const READING_MAX: Duration = Duration::from_secs(30);

/// An active version of a class.
#[derive(Clone, Debug)]
struct Class {
    activation: u64,
    digest: SourceDigest,
    /// The source, or why it is unavailable; `None` while it was not requested.
    source: Option<Result<Bytes, String>>,
}

/// All active classes in one version of the registry.
#[derive(Debug, Default)]
pub struct Active {
    version: Option<Version>,
    classes: BTreeMap<Name, Class>,
}

/// The call of an installed class, for its answer.
#[derive(Clone, Debug)]
pub struct Installed {
    /// The activation that runs.
    pub activation: u64,
    class: Name,
    method: Name,
}

/// What this client knows.
#[derive(Default)]
pub struct Classes {
    known: Option<Arc<Active>>,
    /// When the last completed read began.
    since: Option<Instant>,
    /// When the read in flight began.
    reading: Option<Instant>,
    waiting: Vec<u64>,
    /// Classes that were ever called.
    wanted: BTreeSet<Name>,
}

impl Classes {
    /// The classes, if they are current enough.
    #[must_use]
    pub fn young(&self) -> Option<Arc<Active>> {
        self.known
            .clone()
            .filter(|_| self.since.is_some_and(|since| since.elapsed() < YOUNG))
    }
    /// Makes an operation wait for a read; returns what is known so far and what to read, if a read
    /// must begin.
    pub fn wait(
        &mut self,
        id: u64,
        operation: &Operation,
    ) -> Option<(Option<Arc<Active>>, BTreeSet<Name>)> {
        self.waiting.push(id);
        self.wanted.extend(called(operation).cloned());
        if self.reading.is_some() {
            return None;
        }
        self.reading = Some(Instant::now());
        Some((self.known.clone(), self.wanted.clone()))
    }
    /// Operations that have waited too long for a read: [`READING_MAX`]. Operations that begin to
    /// wait for it later are refused at once.
    pub fn overdue(&mut self) -> Vec<u64> {
        match self.reading {
            Some(began) if began.elapsed() > READING_MAX => std::mem::take(&mut self.waiting),
            _ => Vec::new(),
        }
    }
    /// A read has ended: returns the operations that waited for it.
    pub fn read(&mut self, active: Option<Arc<Active>>) -> Vec<u64> {
        let began = self.reading.take();
        if active.is_some() {
            (self.known, self.since) = (active, began);
        }
        std::mem::take(&mut self.waiting)
    }
}

/// The classes that an operation calls, which may be installed ones.
pub fn called(operation: &Operation) -> impl Iterator<Item = &Name> {
    operation.ops.iter().filter_map(|op| {
        if let SubOp::Call { class, .. } = op {
            Some(class)
        } else {
            None
        }
    })
}

impl Active {
    /// Whether everything needed by the operation's calls is known.
    #[must_use]
    pub fn suffices(&self, operation: &Operation) -> bool {
        called(operation).all(|class| {
            self.classes
                .get(class)
                .is_none_or(|class| class.source.is_some())
        })
    }

    /// Whether the sources of these classes were read, as far as they are installed.
    fn has(&self, wanted: &BTreeSet<Name>) -> bool {
        let installed = wanted.iter().filter_map(|name| self.classes.get(name));
        // A source that could not be read before is read again.
        installed
            .into_iter()
            .all(|class| matches!(class.source, Some(Ok(_))))
    }

    /// Reads the installed classes, and the sources of some of them; those in `known` are not read
    /// again. Waits for the cluster.
    ///
    /// # Errors
    /// The cluster's error.
    pub fn load(
        cluster: &Rados,
        known: Option<Arc<Self>>,
        wanted: &BTreeSet<Name>,
    ) -> Result<Arc<Self>, Failure> {
        let denied = |failure| match failure {
            Failure::Refused(OpFailure::Denied { why }) => Failure::Refused(OpFailure::Denied {
                why: format!(
                    "pool {HOME}, which says what classes are installed, cannot be read by this client: {why}"
                ),
            }),
            // The operation itself is not affected.
            Failure::Unknown => Failure::Foreign {
                code: crate::error::ETIMEDOUT,
                why: format!(
                    "pool {HOME}, which says what classes are installed, gave no answer; nothing was called"
                ),
            },
            other => other,
        };
        let home = home::find(cluster).map_err(|error| Failure::Foreign {
            code: error.code,
            why: error.why,
        })?;
        let Some(pool) = home else {
            return Ok(Arc::default());
        };
        let mut client = crate::Ceph::new(cluster.clone());
        let mut store = Store::new(&mut client, pool);
        if let Some(known) = &known
            && known.version.is_some()
            && known.has(wanted)
            && store.version().map_err(denied)? == known.version
        {
            return Ok(known.clone());
        }
        let (registry, version) = store.registry().map_err(denied)?;
        let mut classes = BTreeMap::new();
        for (kind, name, program) in registry.programs() {
            let Some(current) = program.current().filter(|_| kind == ProgramKind::Class {}) else {
                continue;
            };
            let same = known.as_ref().and_then(|known| known.classes.get(name));
            let source = match same
                .filter(|same| same.digest == current.digest)
                .map(|same| &same.source)
            {
                Some(Some(Ok(source))) => Some(Ok(source.clone())),
                // A lost source only affects its callers.
                _ if wanted.contains(name) => Some(
                    store
                        .source(kind, name, current)
                        .map_err(|failure| failure.to_string()),
                ),
                _ => None,
            };
            classes.insert(
                name.clone(),
                Class {
                    activation: program.activation,
                    digest: current.digest,
                    source,
                },
            );
        }
        Ok(Arc::new(Self { version, classes }))
    }

    /// Adds the sources of installed classes to an operation; returns the parts concerned. Calls of
    /// other classes, which are Ceph's, are not changed.
    ///
    /// # Errors
    /// The source of an installed class is unavailable.
    pub fn put_into(
        &self,
        operation: &mut Operation,
    ) -> Result<BTreeMap<usize, Installed>, OpFailure> {
        let mut put = BTreeMap::new();
        let ours = |op: &SubOp| matches!(op, SubOp::Call { class, .. } if self.classes.contains_key(class));
        if !operation.ops.iter().any(ours) {
            return Ok(put);
        }
        let mut input = crate::plan::Input::new(&operation.payload);
        let mut payload = Vec::new();
        for (index, op) in operation.ops.iter_mut().enumerate() {
            let data = input.take(op.payload_len());
            if let SubOp::Call {
                class,
                method,
                length,
            } = op
                && let Some(found) = self.classes.get(class)
            {
                let source = found
                    .source
                    .as_ref()
                    .expect("whoever asks has seen that it suffices");
                let source = source.as_ref().map_err(|why| OpFailure::Method {
                    index: u32::try_from(index).expect("few parts"),
                    activation: found.activation,
                    errno: EIO.unsigned_abs(),
                    why: format!(
                        "the source of class {class} cannot be read, install it again: {why}"
                    ),
                })?;
                let script = lua::installed(class.as_bytes(), Some(method.as_bytes()), source);
                put.insert(
                    index,
                    Installed {
                        activation: found.activation,
                        class: class.clone(),
                        method: method.clone(),
                    },
                );
                *op = SubOp::Eval {
                    script: script.len() as u64,
                    handler: lua::HANDLER.into(),
                    input: *length,
                };
                payload.push(script);
            }
            if !data.is_empty() {
                payload.push(data);
            }
        }
        operation.payload = payload;
        Ok(put)
    }
}

/// Why a call of an installed class failed: its error number, and its output; `None` where librados
/// returns none, in an operation of several parts.
#[must_use]
pub fn failed(call: &Installed, index: u32, code: i32, output: Option<&[u8]>) -> Failure {
    let Installed {
        activation,
        class,
        method,
    } = call;
    let method_failed = |why: String| OpFailure::Method {
        index,
        activation: *activation,
        errno: code.unsigned_abs(),
        why,
    };
    let missing = format!("`{method}` {}", nacre_policy::error::NOT_REGISTERED);
    let Some(output) = output else {
        return Failure::Refused(match code {
            EOPNOTSUPP => OpFailure::NoSuchMethod {
                why: format!("{missing}; or {}", super::no_lua(code)),
            },
            EIO | EPERM => method_failed(format!(
                "class {class} failed: called alone it says where; in an operation of several parts Ceph drops that"
            )),
            _ => method_failed(String::new()),
        });
    };
    Failure::Refused(match output.split_first() {
        Some((&lua::RAN, why)) => method_failed(String::from_utf8_lossy(why).into_owned()),
        Some((&lua::MISSING, _)) => OpFailure::NoSuchMethod { why: missing },
        // The class was not even started.
        _ if matches!(code, EOPNOTSUPP | EPERM) => OpFailure::NoSuchMethod {
            why: super::no_lua(code),
        },
        _ if code == EIO => method_failed(format!(
            "the Ceph cluster's Lua could not run class {class}"
        )),
        _ => return crate::error::failure(-code),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn active(source: Result<Bytes, String>) -> Active {
        let class = Class {
            activation: 7,
            digest: SourceDigest::default(),
            source: Some(source),
        };
        Active {
            version: None,
            classes: BTreeMap::from([("ours".into(), class)]),
        }
    }
    fn call(class: &str, length: u64) -> SubOp {
        SubOp::Call {
            class: class.into(),
            method: "m".into(),
            length,
        }
    }

    #[test]
    fn sources_go_in_front_of_the_inputs_of_their_calls() {
        let ops = vec![
            call("theirs", 2),
            SubOp::Append { length: 3 },
            call("ours", 4),
            call("ours", 0),
        ];
        let payload = vec![Bytes::from_static(b"aabb"), Bytes::from_static(b"bcccc")];
        let mut operation = Operation {
            ops,
            payload,
            ..Operation::default()
        };
        let put = active(Ok(Bytes::from_static(b"x = 1")))
            .put_into(&mut operation)
            .expect("there");
        assert_eq!(put.keys().copied().collect::<Vec<_>>(), [2, 3]);
        let script = lua::installed(b"ours", Some(b"m"), b"x = 1");
        let eval = |input| SubOp::Eval {
            script: script.len() as u64,
            handler: lua::HANDLER.into(),
            input,
        };
        assert_eq!(
            operation.ops,
            [
                call("theirs", 2),
                SubOp::Append { length: 3 },
                eval(4),
                eval(0)
            ]
        );
        assert_eq!(
            operation.payload.concat(),
            [&b"aabbb"[..], &script, b"cccc", &script].concat()
        );
        let mut theirs = Operation {
            ops: vec![call("theirs", 0)],
            ..Operation::default()
        };
        let put = active(Err("lost".into()))
            .put_into(&mut theirs)
            .expect("no class of ours");
        assert!(put.is_empty() && theirs.ops == [call("theirs", 0)]);
        let mut lost = Operation {
            ops: vec![call("ours", 0)],
            ..Operation::default()
        };
        let why = active(Err("lost".into()))
            .put_into(&mut lost)
            .expect_err("no source")
            .to_string();
        assert!(why.contains("lost"), "{why}");
    }

    #[test]
    fn sources_are_read_for_those_who_call() {
        let calls = |class: &str| Operation {
            ops: vec![call(class, 0)],
            ..Operation::default()
        };
        let wanted = |names: &[&str]| names.iter().map(|name| Name::from(*name)).collect();
        let mut active = active(Ok(Bytes::new()));
        assert!(active.suffices(&calls("ours")) && active.suffices(&calls("theirs")));
        assert!(active.has(&wanted(&["ours", "theirs"])));
        active
            .classes
            .get_mut(&Name::from("ours"))
            .expect("there")
            .source = Some(Err("lost".into()));
        assert!(
            active.suffices(&calls("ours")) && !active.has(&wanted(&["ours"])),
            "told, and tried again"
        );
        active
            .classes
            .get_mut(&Name::from("ours"))
            .expect("there")
            .source = None;
        assert!(!active.suffices(&calls("ours")) && active.has(&wanted(&["theirs"])));
    }

    #[test]
    fn what_a_class_said_is_told_from_what_ceph_says() {
        let call = Installed {
            activation: 7,
            class: "ours".into(),
            method: "m".into(),
        };
        let said = |code, output: &[u8]| match failed(&call, 1, code, Some(output)) {
            Failure::Refused(why) => why,
            other => panic!("{other}"),
        };
        let method = |errno, why: &str| OpFailure::Method {
            index: 1,
            activation: 7,
            errno,
            why: why.into(),
        };
        assert_eq!(said(17, b"!"), method(17, ""));
        assert_eq!(said(5, b"!ours:3: no"), method(5, "ours:3: no"));
        assert_eq!(
            said(95, b"!"),
            method(95, ""),
            "a method may return that, too"
        );
        assert!(matches!(said(95, b"?"), OpFailure::NoSuchMethod { why } if why.contains("`m`")));
        assert!(
            matches!(said(95, b""), OpFailure::NoSuchMethod { why } if why.contains("osd_class_load_list"))
        );
        assert!(
            matches!(said(5, b""), OpFailure::Method { why, .. } if why.contains("could not run"))
        );
        assert_eq!(said(28, b""), OpFailure::Full {}, "not what a method said");
        assert_eq!(said(28, b"!"), method(28, ""));
        assert_eq!(failed(&call, 1, 17, None), Failure::Refused(method(17, "")));
        let Failure::Refused(why) = failed(&call, 1, 5, None) else {
            panic!("refused")
        };
        assert!(why.to_string().contains("called alone"), "{why}");
    }

    #[test]
    fn one_reading_serves_all_who_wait_and_a_failed_one_changes_nothing() {
        let mut classes = Classes::default();
        assert!(classes.young().is_none());
        let calls = |class: &str| Operation {
            ops: vec![call(class, 0)],
            ..Operation::default()
        };
        let (ours, theirs) = (calls("ours"), calls("theirs"));
        assert!(
            classes
                .wait(1, &ours)
                .is_some_and(|(known, wanted)| known.is_none() && wanted.len() == 1)
        );
        assert!(classes.wait(2, &theirs).is_none(), "it is under way");
        assert_eq!(classes.read(None), [1, 2]);
        assert!(classes.young().is_none());
        assert!(
            classes
                .wait(3, &ours)
                .is_some_and(|(_, wanted)| wanted.len() == 2)
        );
        assert_eq!(classes.read(Some(Arc::new(active(Ok(Bytes::new()))))), [3]);
        assert!(
            classes
                .young()
                .is_some_and(|active| active.classes.contains_key(&Name::from("ours")))
        );
        classes.since = Instant::now().checked_sub(YOUNG);
        assert!(classes.young().is_none(), "old");
        assert!(
            classes
                .wait(4, &ours)
                .is_some_and(|(known, _)| known.is_some()),
            "only what is new is read again"
        );
        assert!(classes.overdue().is_empty());
        classes.reading = Instant::now().checked_sub(READING_MAX + YOUNG);
        assert_eq!(classes.overdue(), [4]);
        assert!(classes.wait(5, &ours).is_none());
        assert_eq!(classes.overdue(), [5], "nothing new began");
        assert!(classes.read(None).is_empty());
    }
}
