//! Where the metadata are: one look with `ceph config-key get nacre/meta` tells.
//!
//! The pointer is written when something is first to be kept. Two clients that do so at once write
//! the same. `config-key` has no compare-and-set, so nothing else is in it.

use crate::error::{EACCES, EINVAL, ENOENT, RadosError};
use crate::handle::{Rados, To};
use crate::home;
use nacre_types::{ObjectId, PoolId};
use serde_json::{Value, json};

/// The key of the pointer.
pub const KEY: &str = "nacre/meta";
/// The object that is made.
pub const OBJECT: &str = "meta";
/// What this program can read.
pub const FORMAT: u64 = 1;

/// Finds the metadata's object.
pub trait Locate {
    /// Where it is; `None`: nothing was ever kept.
    ///
    /// # Errors
    /// It cannot be found out, or this program cannot read what is there.
    fn find(&mut self) -> Result<Option<(PoolId, ObjectId)>, RadosError>;
    /// Makes a place for it.
    ///
    /// # Errors
    /// The cluster does not allow it.
    fn make(&mut self) -> Result<(PoolId, ObjectId), RadosError>;
}

/// What the pointer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// The pool's name.
    pub pool: String,
    /// The object's name.
    pub object: String,
}

impl Pointer {
    /// As text.
    #[must_use]
    pub fn text(&self) -> String {
        json!({ "format": FORMAT, "object": self.object, "pool": self.pool }).to_string()
    }
    /// From text.
    ///
    /// # Errors
    /// It is no pointer, or one to a format that this program does not know.
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

/// Where a Ceph cluster's monitors say.
pub struct ConfigKey(Rados);

impl ConfigKey {
    /// Of a cluster.
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
