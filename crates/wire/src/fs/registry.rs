//! File systems in the service metadata: which exist, and which server holds which rank (ADR 0006).
//!
//! ```text
//!  fs/NAME               FsSettings    made by `fs create`
//!  fs/NAME/rank.N        FsHolder      goes with its holder's lease
//!  fs/NAME/rank.N/last   FsHolder      stays: who has to be fenced before another one takes the rank
//!  fs/NAME/repair        for people    goes with the lease of a repair: servers give their ranks back, and take none
//!  fs/@standby/CLIENT    FsHolder      goes with a standby's lease: for health, and for people
//! ```
//! Invariant: both keys with a rank's holder are written in one transaction, so `last` is never
//! older.

use super::inode::Layout;
use crate::map::Address;
use crate::wire_record;
use nacre_types::{ClientId, Instance, Name, PoolId, Rank};

/// Prefix of all file systems' keys in the metadata.
pub const PREFIX: &str = "fs/";
/// Prefix of the keys of standby servers, which wait for a rank; no file system can have this name.
pub const STANDBYS: &str = "fs/@standby/";
/// Longest name of a file system in bytes.
const NAME_MAX: usize = 64;

/// Settings of a file system, fixed when it was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsSettings {
    /// The namespace of its objects, never used by another file system.
    pub namespace: Name,
    /// The pool of directories and journals.
    pub pool: PoolId,
    /// Layout of new files.
    pub layout: Layout,
    /// Number of ranks, numbered from 0.
    pub ranks: u16,
}
wire_record!(FsSettings version 1 compat 1 { namespace, pool, layout, ranks });

/// The server that has a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsHolder {
    /// The server's client id in the cluster.
    pub client: u64,
    /// The server's instance.
    pub instance: Instance,
    /// Where it listens.
    pub address: Address,
    /// Its human-readable name.
    pub name: Name,
}
wire_record!(FsHolder version 1 compat 1 { client, instance, address, name });

impl FsHolder {
    /// The server's client id in the cluster.
    #[must_use]
    pub const fn client(&self) -> ClientId {
        ClientId(self.client)
    }
}

/// The key under which a standby registers.
#[must_use]
pub fn standby_key(client: ClientId) -> Name {
    Name::from(&*format!("{STANDBYS}{}", client.0))
}

/// What a key of the metadata describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FsKey {
    /// A file system's settings.
    Settings,
    /// The holder of a rank.
    Rank(Rank),
    /// The latest holder of a rank.
    Last(Rank),
    /// A repair claims the file system; the value names the repair's owner.
    Repair,
}

impl FsKey {
    /// The full key.
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
    /// The file system that a key belongs to, and what the key describes; `None` if it is no such
    /// key.
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

    /// A name is part of a key and of a namespace.
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
