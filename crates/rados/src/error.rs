//! Ceph's error numbers and their meaning here. The number is always kept, because Ceph's
//! documentation uses it.

use nacre_client::Failure;
use nacre_wire::msg::client::OpFailure;
use std::fmt;

/// No such object, pool, file.
pub const ENOENT: i32 = 2;
/// Damaged data; for a Lua method also: it raised an error, or does not compile.
pub const EIO: i32 = 5;
/// Not permitted.
pub const EPERM: i32 = 1;
/// Not permitted, according to the monitors.
pub const EACCES: i32 = 13;
/// Exists already.
pub const EEXIST: i32 = 17;
/// Invalid.
pub const EINVAL: i32 = 22;
const EFBIG: i32 = 27;
const ENOSPC: i32 = 28;
/// The asserted version is older than the actual one.
pub const ERANGE: i32 = 34;
const ENAMETOOLONG: i32 = 36;
/// No such attribute.
pub const ENODATA: i32 = 61;
/// The asserted version is newer than the actual one; for a call: more output than a write may
/// have.
pub const EOVERFLOW: i32 = 75;
const E2BIG: i32 = 7;
const EMSGSIZE: i32 = 90;
/// No such class or method, or this client may not use it.
pub const EOPNOTSUPP: i32 = 95;
/// This client is on the blocklist.
pub const ESHUTDOWN: i32 = 108;
/// No answer in time.
pub const ETIMEDOUT: i32 = 110;
const EDQUOT: i32 = 122;
/// A guard does not hold.
pub const ECANCELED: i32 = 125;
/// Errors beyond this encode the offset at which compared data differ.
pub const MAX_ERRNO: i32 = 4095;

/// An error of librados outside of operations on objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RadosError {
    /// A positive error number; 0 if the library itself is missing.
    pub code: i32,
    /// Human-readable reason.
    pub why: String,
}

impl RadosError {
    pub(crate) fn library(why: String) -> Self {
        Self { code: 0, why }
    }
    /// From a negative return value.
    pub(crate) fn of(result: i32, doing: impl fmt::Display) -> Self {
        let code = result.saturating_neg();
        Self {
            code,
            why: format!("{doing}: {}", named(code)),
        }
    }
    pub(crate) fn said(result: i32, doing: impl fmt::Display, said: &str) -> Self {
        let code = result.saturating_neg();
        let said = said.trim();
        let why = if said.is_empty() {
            named(code)
        } else {
            format!("{said} ({})", named(code))
        };
        Self {
            code,
            why: format!("{doing}: {why}"),
        }
    }
}
impl fmt::Display for RadosError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}
impl std::error::Error for RadosError {}

/// A number with its name.
#[must_use]
pub fn named(code: i32) -> String {
    let meaning = match code {
        EPERM | EACCES => "the Ceph cluster does not allow it to this client",
        ENOENT => "no such thing",
        EIO => "damaged data, or a Lua method that raised or does not compile",
        ENOSPC | EDQUOT => "no space left, or the quota is used up",
        EOPNOTSUPP => "the Ceph cluster cannot do that, or no OSD has such a class or method",
        ESHUTDOWN => "this client is on the Ceph cluster's blocklist",
        ETIMEDOUT => "no answer in time: is the Ceph cluster running, and reachable?",
        _ => "librados says so",
    };
    match nacre_policy::errno::name(code) {
        Some(name) => format!("{meaning} (librados error {code}, {name})"),
        None => format!("{meaning} (librados error {code})"),
    }
}

/// The meaning of an operation's negative result if no part gives a more specific one.
#[must_use]
pub fn failure(result: i32) -> Failure {
    let code = result.saturating_neg();
    let refused = match code {
        ENOENT | ENODATA => OpFailure::NotFound {},
        EEXIST => OpFailure::AlreadyExists {},
        ESHUTDOWN => OpFailure::Fenced {},
        ENOSPC | EDQUOT => OpFailure::Full {},
        EFBIG | E2BIG | EMSGSIZE | ENAMETOOLONG => OpFailure::TooLarge {},
        EIO => OpFailure::Corrupt { offset: 0 },
        EPERM | EACCES => OpFailure::Denied { why: named(code) },
        ETIMEDOUT => return Failure::Unknown,
        _ => {
            return Failure::Foreign {
                code,
                why: named(code),
            };
        }
    };
    Failure::Refused(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_word_here_keeps_its_number() {
        assert_eq!(failure(-2), Failure::Refused(OpFailure::NotFound {}));
        assert_eq!(failure(-110), Failure::Unknown);
        let other = failure(-16);
        assert!(
            matches!(&other, Failure::Foreign { code: 16, why } if why.contains("16")),
            "{other:?}"
        );
        assert!(
            RadosError::said(-13, "opening", "no keyring\n")
                .why
                .starts_with("opening: no keyring (the Ceph")
        );
    }
}
