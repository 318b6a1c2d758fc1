//! What service metadata say of file systems: which there are, and which server has which rank (ADR
//! 0006).
//!
//! ```text
//!  fs/NAME               FsSettings    made by `fs create`
//!  fs/NAME/rank.N        FsHolder      goes with its holder's lease
//!  fs/NAME/rank.N/last   FsHolder      stays: who has to be fenced before another one takes the rank
//!  fs/NAME/repair        for people    goes with the lease of a repair: servers give their ranks back, and take none
//!  fs/@standby/CLIENT    FsHolder      goes with a standby's lease: for health, and for people
//! ```
//! Invariant: both holders of a rank are written in one transaction, so `last` is never older.

use super::inode::Layout;
use crate::map::Address;
use crate::wire_record;
use nacre_types::{ClientId, Instance, Name, PoolId, Rank};

/// Where all file systems are in the metadata.
pub const PREFIX: &str = "fs/";
/// Where the servers are that wait for a rank; no file system can have such a name.
pub const STANDBYS: &str = "fs/@standby/";
/// Longest name of a file system in bytes.
const NAME_MAX: usize = 64;

/// A file system, as it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsSettings {
    /// The namespace of its objects: no other one has had it.
    pub namespace: Name,
    /// The pool of directories and journals.
    pub pool: PoolId,
    /// How new files' data lies.
    pub layout: Layout,
    /// Ranks that it has, from 0 on.
    pub ranks: u16,
}
wire_record!(FsSettings version 1 compat 1 { namespace, pool, layout, ranks });

/// The server that has a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsHolder {
    /// Which client of the cluster it is.
    pub client: u64,
    /// In which life.
    pub instance: Instance,
    /// Where it listens.
    pub address: Address,
    /// What it calls itself, for people.
    pub name: Name,
}
wire_record!(FsHolder version 1 compat 1 { client, instance, address, name });

impl FsHolder {
    /// Which client of the cluster it is.
    #[must_use]
    pub const fn client(&self) -> ClientId {
        ClientId(self.client)
    }
}

/// The key by which a standby says that it is there.
#[must_use]
pub fn standby_key(client: ClientId) -> Name {
    Name::from(&*format!("{STANDBYS}{}", client.0))
}

/// What a key of the metadata is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FsKey {
    /// A file system's settings.
    Settings,
    /// The holder of a rank.
    Rank(Rank),
    /// The one that took it last.
    Last(Rank),
    /// A repair wants the file system for itself; the value says whose it is.
    Repair,
}

impl FsKey {
    /// The key, in full.
    #[must_use]
    pub fn of(&self, file_system: &Name) -> Name {
        let text = match self {
            Self::Settings => format!("{PREFIX}{file_system}"),
            Self::Rank(rank) => format!("{PREFIX}{file_system}/rank.{}", rank.0),
            Self::Last(rank) => format!("{PREFIX}{file_system}/rank.{}/last", rank.0),
            Self::Repair => format!("{PREFIX}{file_system}/repair"),
        };
        Name::from(&*text)
    }
    /// Which file system a key is of, and what it says; `None` if it is another's.
    #[must_use]
    pub fn parse(key: &Name) -> Option<(Name, Self)> {
        let rest = std::str::from_utf8(key.as_bytes())
            .ok()?
            .strip_prefix(PREFIX)?;
        let (name, what) = rest.split_once('/').unwrap_or((rest, ""));
        let what = match what.strip_prefix("rank.") {
            None if what.is_empty() => Self::Settings,
            None if what == "repair" => Self::Repair,
            None => return None,
            Some(number) => match number.strip_suffix("/last") {
                Some(number) => Self::Last(Rank(number.parse().ok()?)),
                None => Self::Rank(Rank(number.parse().ok()?)),
            },
        };
        Some((Name::from(name), what))
    }
}

/// What is wrong with a file system's name, if anything.
#[must_use]
pub fn name_fault(name: &str) -> Option<&'static str> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Some("a file system's name has between 1 and 64 bytes");
    }
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (!name.bytes().all(good))
        .then_some("a file system's name has letters, digits, `-`, `_` and `.` only")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_say_what_they_are_about() {
        let name = Name::from("home");
        for (key, text) in [
            (FsKey::Settings, "fs/home"),
            (FsKey::Rank(Rank(0)), "fs/home/rank.0"),
            (FsKey::Last(Rank(12)), "fs/home/rank.12/last"),
            (FsKey::Repair, "fs/home/repair"),
        ] {
            assert_eq!(key.of(&name), Name::from(text));
            assert_eq!(FsKey::parse(&Name::from(text)), Some((name.clone(), key)));
        }
        let standby = standby_key(ClientId(7)).to_string();
        assert_eq!(standby, "fs/@standby/7");
        assert!(
            name_fault("@standby").is_some(),
            "no file system is called so"
        );
        for other in [
            &standby,
            "fs",
            "fsx/home",
            "fs/home/pins/1",
            "fs/home/rank.",
            "fs/home/rank.70000",
            "fs/home/rank.1/x",
        ] {
            assert_eq!(FsKey::parse(&Name::from(other)), None, "{other}");
        }
    }

    /// A name is a part of a key, and of a namespace.
    #[test]
    fn names_with_which_no_key_could_be_made_are_refused() {
        assert_eq!(
            (name_fault("home-2.old_x"), name_fault(&"x".repeat(64))),
            (None, None)
        );
        for bad in ["", "a/b", "a b", "\u{e9}", &"x".repeat(65)] {
            assert!(name_fault(bad).is_some(), "{bad}");
        }
    }
}
