//! What has to be read for a request: entries by name, and ranges of entries.

use super::layout::{self, Place};
use bytes::Bytes;
use nacre_wire::msg::meta::{MetaCall, MetaOp, MetaSpan};
use std::collections::BTreeSet;

/// Most entries per read.
pub const PAGE: u32 = 256;

/// The entries of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Of {
    /// Keys of a span.
    Span(MetaSpan),
    /// All entries with this prefix.
    Prefix(Bytes),
}

/// Consecutive entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// After this one, in the omap's order.
    pub after: Bytes,
    /// The entries.
    pub of: Of,
    /// This many are enough. `None`: all are needed.
    pub enough: Option<u32>,
}

impl Stretch {
    fn prefix(prefix: impl Into<Bytes>) -> Self {
        let prefix = prefix.into();
        Self {
            after: prefix.clone(),
            of: Of::Prefix(prefix),
            enough: None,
        }
    }
    /// Whether an entry after [`Self::after`] still belongs to it; after the first that does not,
    /// none does.
    #[must_use]
    pub fn has(&self, entry: &[u8]) -> bool {
        match &self.of {
            Of::Prefix(prefix) => entry.starts_with(prefix),
            Of::Span(span) => {
                matches!(layout::place(entry), Some(Place::Key(name)) if span.has(&name))
            }
        }
    }
    /// How many entries to read at once.
    #[must_use]
    pub fn page(&self) -> u32 {
        self.enough.map_or(PAGE, |enough| enough.clamp(1, PAGE))
    }
}

/// See the module head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Entries by name.
    pub entries: BTreeSet<Bytes>,
    /// Ranges of entries.
    pub stretches: Vec<Stretch>,
}

impl Needs {
    /// Only the head.
    #[must_use]
    pub fn head() -> Self {
        Self {
            entries: BTreeSet::from([Bytes::from_static(layout::HEAD)]),
            stretches: Vec::new(),
        }
    }
    /// The head and all leases.
    #[must_use]
    pub fn leases() -> Self {
        let mut needs = Self::head();
        needs
            .stretches
            .push(Stretch::prefix(Bytes::from_static(layout::LEASES)));
        needs
    }
    /// The head and the log from a revision on, with at most this many revisions.
    #[must_use]
    pub fn log(from: u64, most: u32) -> Self {
        let mut needs = Self::head();
        let of = Of::Prefix(Bytes::from_static(layout::LOG));
        needs.stretches.push(Stretch {
            after: layout::log(from.saturating_sub(1)),
            of,
            enough: Some(most),
        });
        needs
    }
    /// What the end of a lease needs.
    #[must_use]
    pub fn end_of(lease: u64) -> Self {
        let mut needs = Self::head();
        needs.entries.insert(layout::lease(lease));
        needs
            .stretches
            .push(Stretch::prefix(layout::all_held(lease)));
        needs
    }

    /// What a request needs.
    #[must_use]
    pub fn of(call: &MetaCall) -> Self {
        let mut needs = Self::head();
        match call {
            MetaCall::Transact {
                compares,
                then,
                otherwise,
            } => {
                needs
                    .entries
                    .extend(compares.iter().map(|compare| layout::key(&compare.key)));
                for op in then.iter().chain(otherwise) {
                    match op {
                        MetaOp::Get { span, .. } | MetaOp::Delete { span } => {
                            needs.span(span, None)
                        }
                        MetaOp::Put { key, lease, .. } => {
                            needs.entries.insert(layout::key(key));
                            if *lease != 0 {
                                needs.entries.insert(layout::lease(*lease));
                            }
                        }
                    }
                }
            }
            // A list is returned in pages anyway: each is one read.
            MetaCall::Range { span, limit: 0, .. } => needs.span(span, Some(PAGE)),
            MetaCall::Range { span, limit, .. } => needs.span(span, Some(limit.saturating_add(1))),
            MetaCall::Grant { .. } => {}
            MetaCall::KeepAlive { lease } => drop(needs.entries.insert(layout::lease(*lease))),
            MetaCall::Revoke { lease } => return Self::end_of(*lease),
            MetaCall::Leases {} => {
                needs = Self::leases();
                needs
                    .stretches
                    .push(Stretch::prefix(Bytes::from_static(layout::HELD)));
            }
        }
        needs
    }

    fn span(&mut self, span: &MetaSpan, enough: Option<u32>) {
        let first = span.first();
        // The start of a range is excluded.
        self.entries.insert(layout::key(first));
        if !matches!(span, MetaSpan::Key { .. }) {
            self.stretches.push(Stretch {
                after: layout::key(first),
                of: Of::Span(span.clone()),
                enough,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::Name;

    #[test]
    fn a_stretch_ends_where_its_keys_do() {
        let span = |span: MetaSpan| {
            let call = MetaCall::Range {
                span,
                limit: 0,
                keys_only: false,
                serializable: false,
            };
            Needs::of(&call).stretches.remove(0)
        };
        let below = span(MetaSpan::Prefix {
            prefix: "a/".into(),
        });
        assert!(below.has(&layout::key(&"a/b".into())) && !below.has(&layout::key(&"b/".into())));
        assert!(
            !below.has(&layout::lease(1)),
            "tables behind keys are not keys"
        );
        let all = span(MetaSpan::Prefix {
            prefix: Name::default(),
        });
        assert!(all.has(&layout::key(&"z/z".into())) && !all.has(&layout::lease(1)));
        assert_eq!(&all.after[..], layout::KEYS);
    }

    // Fails when the span's first key is left out: a listing begins after it.
    #[test]
    fn the_first_key_of_a_span_is_read_by_name() {
        let between = MetaSpan::Between {
            from: "a/b".into(),
            to: "a/d".into(),
        };
        let ops = vec![MetaOp::Delete { span: between }];
        let needs = Needs::of(&MetaCall::Transact {
            compares: vec![],
            then: ops,
            otherwise: vec![],
        });
        assert!(needs.entries.contains(&layout::key(&"a/b".into())));
        assert_eq!(needs.stretches.len(), 1);
        assert!(
            needs.stretches[0].enough.is_none(),
            "a transaction needs all"
        );
    }
}
