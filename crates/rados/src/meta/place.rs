//! The location of the metadata, stored by `ceph config-key` under `nacre/meta`.
//!
//! The pointer is written when something is first stored. Two clients that do so at once write the
//! same value. `config-key` has no compare-and-set, so nothing else is stored in it.

use crate::error::{EACCES, EINVAL, ENOENT, RadosError};
use crate::handle::{Rados, To};
use crate::home;
use nacre_types::{ObjectId, PoolId};
use serde_json::{Value, json};

/// The key of the pointer.
pub const KEY: &str = "nacre/meta";
/// The name of the object that is created.
pub const OBJECT: &str = "meta";
/// The format that this program can read.
pub const FORMAT: u64 = 1;

/// Finds the metadata's object.
pub trait Locate {
    /// The object's location; `None`: nothing was ever stored.
    ///
    /// # Errors
    /// It cannot be determined, or this program cannot read what is stored.
    fn find(&mut self) -> Result<Option<(PoolId, ObjectId)>, RadosError>;
    /// Creates a location.
    ///
    /// # Errors
    /// The cluster does not allow it.
    fn make(&mut self) -> Result<(PoolId, ObjectId), RadosError>;
}

/// The pointer's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// The pool's name.
    pub pool: String,
    /// The object's name.
    pub object: String,
}

impl Pointer {
    /// Encodes it as text.
    #[must_use]
    pub fn text(&self) -> String {
        json!({ "format": FORMAT, "object": self.object, "pool": self.pool }).to_string()
    }
    /// Parses the text.
    ///
    /// # Errors
    /// It is no pointer, or one to a format unknown to this program.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`ceph config-key get {KEY}` gives no JSON object with `pool`, `object` and `format`"
            )
        };
        let value: Value = serde_json::from_slice(text).map_err(|_| wrong())?;
        let part = |field: &str| {
            value[field]
                .as_str()
                .filter(|part| !part.is_empty())
                .map(str::to_owned)
        };
        let format = value["format"].as_u64().ok_or_else(wrong)?;
        if format != FORMAT {
            return Err(format!(
                "the metadata's format is {format}, and this program knows {FORMAT}: use the newer program"
            ));
        }
        Ok(Self {
            pool: part("pool").ok_or_else(wrong)?,
            object: part("object").ok_or_else(wrong)?,
        })
    }
}

/// The location according to a Ceph cluster's monitors.
pub struct ConfigKey(Rados);

impl ConfigKey {
    /// For a cluster.
    #[must_use]
    pub const fn new(rados: Rados) -> Self {
        Self(rados)
    }

    fn pool(&self, name: &str) -> Result<Option<PoolId>, RadosError> {
        let id = match self.0.pool(name)? {
            Some(id) => Some(id),
            None => {
                self.0.wait_for_newest_map()?;
                self.0.pool(name)?
            }
        };
        Ok(id.and_then(|id| u64::try_from(id).ok()).map(PoolId))
    }
}

impl Locate for ConfigKey {
    fn find(&mut self) -> Result<Option<(PoolId, ObjectId)>, RadosError> {
        let text = match self.0.command(
            To::Mon,
            &json!({ "prefix": "config-key get", "key": KEY }),
            &[],
        ) {
            Ok(text) => text,
            Err(error) if error.code == ENOENT => return Ok(None),
            Err(RadosError { code: EACCES, why }) => {
                let needs = format!("allow command \"config-key get\" with key={KEY}");
                return Err(RadosError {
                    code: EACCES,
                    why: format!("{why}; the client needs `{needs}` of the monitors"),
                });
            }
            Err(error) => return Err(error),
        };
        let pointer = Pointer::parse(&text).map_err(|why| RadosError { code: EINVAL, why })?;
        let pool = self.pool(&pointer.pool)?.ok_or_else(|| RadosError {
            code: ENOENT,
            why: format!(
                "`ceph config-key get {KEY}` names the pool {}, which is gone, and the metadata with it; to begin anew: `ceph config-key rm {KEY}`",
                pointer.pool
            ),
        })?;
        Ok(Some((pool, ObjectId::named(&pointer.object))))
    }

    fn make(&mut self) -> Result<(PoolId, ObjectId), RadosError> {
        if let Some(found) = self.find()? {
            return Ok(found);
        }
        home::make(&self.0)?;
        let pointer = Pointer {
            pool: home::HOME.to_owned(),
            object: OBJECT.to_owned(),
        };
        self.0.command(
            To::Mon,
            &json!({ "prefix": "config-key set", "key": KEY, "val": pointer.text() }),
            &[],
        )?;
        self.find()?.ok_or_else(|| RadosError {
            code: ENOENT,
            why: format!("`{KEY}` was set, and is gone again"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_reads_as_written_and_a_newer_one_is_refused() {
        let pointer = Pointer {
            pool: "p".to_owned(),
            object: OBJECT.to_owned(),
        };
        assert_eq!(Pointer::parse(pointer.text().as_bytes()), Ok(pointer));
        let newer = br#"{"pool": "p", "object": "o", "format": 2}"#;
        assert!(
            Pointer::parse(newer)
                .expect_err("newer")
                .contains("newer program")
        );
        for wrong in [
            &b""[..],
            b"{}",
            b"[]",
            br#"{"pool": "", "object": "o", "format": 1}"#,
        ] {
            assert!(
                Pointer::parse(wrong).expect_err("wrong").contains(KEY),
                "{wrong:?}"
            );
        }
    }
}
