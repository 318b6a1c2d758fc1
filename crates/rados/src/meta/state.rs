//! The part of the metadata that was read, all from one version of the object.

use super::layout::{self, Place};
use super::record::{COUNT_MAX, Head, HeldRecord, LeaseRecord, StepRecord};
use nacre_types::{Name, Version};
use nacre_wire::meta::draft::Pairs;
use nacre_wire::msg::meta::MetaPair;
use nacre_wire::{Malformed, Wire};
use std::collections::BTreeMap;

/// See the module head.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// The object's version; `None`: it does not exist yet.
    pub version: Option<Version>,
    /// The head; the default one without an object.
    pub head: Head,
    /// Keys.
    pub pairs: Pairs,
    /// Leases.
    pub leases: BTreeMap<u64, LeaseRecord>,
    /// Keys attached to leases.
    pub held: BTreeMap<u64, BTreeMap<Name, HeldRecord>>,
    /// Changes, by revision.
    pub log: BTreeMap<u64, StepRecord>,
    /// For a range of which a part is enough, there may be more than this.
    pub more: bool,
}

/// An entry that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// Its name.
    pub entry: Name,
    /// What is wrong; `None`: it is no valid entry name.
    pub why: Option<Malformed>,
}
impl std::fmt::Display for Damaged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.why {
            Some(why) => write!(f, "the entry `{}` cannot be read: {why}", self.entry),
            None => write!(
                f,
                "the entry `{}` is not one of service metadata",
                self.entry
            ),
        }
    }
}
impl std::error::Error for Damaged {}

impl State {
    /// Adds an entry.
    ///
    /// # Errors
    /// It is invalid or damaged.
    pub fn take(&mut self, entry: &[u8], value: &[u8]) -> Result<(), Damaged> {
        let damaged = |why| Damaged {
            entry: Name::copy(entry),
            why,
        };
        let bad = |why: Malformed| damaged(Some(why));
        match layout::place(entry).ok_or_else(|| damaged(None))? {
            Place::Head => self.head = Head::from_bytes(value).map_err(bad)?,
            Place::Key(name) => {
                let pair = MetaPair::from_bytes(value).map_err(bad)?;
                if pair.key != name {
                    return Err(bad(Malformed::Value("key")));
                }
                if pair.version >= COUNT_MAX {
                    return Err(bad(Malformed::Value("version")));
                }
                self.pairs.insert(name, pair);
            }
            Place::Lease(lease) => {
                self.leases
                    .insert(lease, LeaseRecord::from_bytes(value).map_err(bad)?);
            }
            Place::Held(lease, name) => {
                self.held
                    .entry(lease)
                    .or_default()
                    .insert(name, HeldRecord::from_bytes(value).map_err(bad)?);
            }
            Place::Log(revision) => {
                self.log
                    .insert(revision, StepRecord::from_bytes(value).map_err(bad)?);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Fails when names are not compared.
    #[test]
    fn an_entry_under_another_keys_name_is_damage() {
        let pair = MetaPair {
            key: "a/b".into(),
            version: 1,
            ..MetaPair::default()
        };
        let mut state = State::default();
        assert_eq!(
            state.take(&layout::key(&"a/b".into()), &pair.to_bytes()),
            Ok(())
        );
        assert!(
            state
                .take(&layout::key(&"a/c".into()), &pair.to_bytes())
                .is_err()
        );
        assert!(
            state
                .take(b"elsewhere", b"")
                .expect_err("foreign")
                .to_string()
                .contains("`elsewhere`")
        );
        assert!(
            state
                .take(layout::HEAD, b"\x09")
                .expect_err("short")
                .to_string()
                .contains("`head`")
        );
        assert_eq!(state.pairs.len(), 1);
    }

    // Fails without each of the three checks: the next change would overflow, or the log's oldest
    // revision would be wrong.
    #[test]
    fn numbers_to_which_nothing_can_be_added_are_damage() {
        let mut state = State::default();
        let mut takes = |head: Head| state.take(layout::HEAD, &head.to_bytes()).is_ok();
        let good = Head {
            revision: 130,
            log: vec![1, 2, 3],
            ..Head::default()
        };
        assert!(takes(good.clone()) && takes(Head::default()));
        assert!(!takes(Head {
            revision: u64::MAX,
            ..good.clone()
        }));
        assert!(!takes(Head {
            log: vec![u64::MAX, 2],
            ..good.clone()
        }));
        assert!(!takes(Head {
            log: vec![],
            ..good.clone()
        }));
        assert!(!takes(Head {
            log: vec![0; 4],
            ..good
        }));
        let pair = MetaPair {
            key: "a/b".into(),
            version: u64::MAX,
            ..MetaPair::default()
        };
        assert!(
            state
                .take(&layout::key(&"a/b".into()), &pair.to_bytes())
                .is_err()
        );
    }
}
