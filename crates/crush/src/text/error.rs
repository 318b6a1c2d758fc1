//! Errors in a text, with what to write instead.

use crate::map::{DEPTH_MAX, ItemId};
use crate::shadow::ShadowError;
use std::fmt;

/// A text that is not a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The line, counted from 1.
    pub line: u32,
    /// The error on that line.
    pub problem: Problem,
}

/// What is wrong with a text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the messages below say what each is; fields are what they name
pub enum Problem {
    TextEnds {
        wanted: &'static str,
    },
    Unexpected {
        found: String,
        wanted: &'static str,
    },
    BadName {
        name: String,
        wanted: &'static str,
    },
    BadNumber {
        what: &'static str,
        text: String,
        min: i64,
        max: i64,
    },
    BadWeight {
        text: String,
    },
    DeviceWeight {
        item: String,
        text: String,
    },
    BucketWeight {
        bucket: String,
    },
    UnknownTunable {
        name: String,
    },
    UnknownAlg {
        name: String,
    },
    UnknownHash {
        name: String,
    },
    NoAlg {
        bucket: String,
    },
    UnknownType {
        name: String,
    },
    UnknownItem {
        name: String,
        within: String,
    },
    UnknownBucketId {
        id: ItemId,
    },
    ItemTwice {
        item: String,
        bucket: String,
    },
    Duplicate {
        what: &'static str,
        name: String,
    },
    DeviceType {
        bucket: String,
    },
    BadPosition {
        item: String,
        position: i64,
        size: usize,
    },
    PositionTaken {
        item: String,
        position: i64,
    },
    UniformWeights {
        item: String,
        bucket: String,
    },
    Cycle {
        bucket: String,
    },
    TooDeep {
        bucket: String,
    },
    NoFreeId,
    NoClassTree {
        item: String,
        class: String,
        why: Option<ShadowError>,
    },
    Shadow(ShadowError),
    NotStraw2 {
        id: ItemId,
    },
    WrongCount {
        what: &'static str,
        found: usize,
        size: usize,
    },
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.problem)
    }
}
impl std::error::Error for ParseError {}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TextEnds { wanted } => write!(f, "the text ends where {wanted} should follow"),
            Self::Unexpected { found, wanted } => write!(f, "`{found}` where {wanted} should be"),
            Self::BadName { name, wanted } => {
                write!(
                    f,
                    "`{name}` where {wanted} should be; names consist of letters, digits, `-`, `_` and `.`"
                )
            }
            Self::BadNumber {
                what,
                text,
                min,
                max,
            } => {
                write!(
                    f,
                    "`{text}` where {what} should be; write a whole number from {min} to {max}"
                )
            }
            Self::BadWeight { text } => {
                write!(
                    f,
                    "`{text}` is not a weight; write a decimal number from 0 to 65535, such as 1.819"
                )
            }
            Self::DeviceWeight { item, text } => {
                write!(
                    f,
                    "the weight {text} of `{item}` is too large; a device weighs at most 100.0"
                )
            }
            Self::BucketWeight { bucket } => {
                write!(
                    f,
                    "the weights in `{bucket}` add up to more than 65535; divide all weights of the map by the same number"
                )
            }
            Self::UnknownTunable { name } => write!(
                f,
                "there is no tunable `{name}`; there are choose_local_tries, choose_local_fallback_tries, \
                 choose_total_tries, chooseleaf_descend_once, chooseleaf_vary_r, chooseleaf_stable, \
                 straw_calc_version and allowed_bucket_algs"
            ),
            Self::UnknownAlg { name } => {
                write!(
                    f,
                    "there is no bucket algorithm `{name}`; write uniform, list, tree, straw or straw2"
                )
            }
            Self::UnknownHash { name } => {
                write!(f, "there is no hash `{name}`; write 0 or rjenkins1")
            }
            Self::NoAlg { bucket } => {
                write!(f, "bucket `{bucket}` has no algorithm; add `alg straw2`")
            }
            Self::UnknownType { name } => write!(
                f,
                "there is no type `{name}`; declare it with `type NUMBER {name}`"
            ),
            Self::UnknownItem { name, within } => {
                write!(
                    f,
                    "`{within}` refers to `{name}`, which is neither a device nor a bucket of this map"
                )
            }
            Self::UnknownBucketId { id } => write!(f, "there is no bucket with id {id}"),
            Self::ItemTwice { item, bucket } => {
                write!(f, "`{bucket}` lists `{item}` twice; keep one of the lines")
            }
            Self::Duplicate { what, name } => write!(
                f,
                "the {what} `{name}` is defined twice; rename or drop one"
            ),
            Self::DeviceType { bucket } => {
                write!(
                    f,
                    "`{bucket}` has type 0, which is for devices; give it a type with a higher number"
                )
            }
            Self::BadPosition {
                item,
                position,
                size,
            } => {
                write!(
                    f,
                    "`{item}` has position {position} in a bucket of {size}; positions count from 0 without gaps"
                )
            }
            Self::PositionTaken { item, position } => {
                write!(
                    f,
                    "`{item}` has position {position}, which another item of the bucket has as well"
                )
            }
            Self::UniformWeights { item, bucket } => {
                write!(
                    f,
                    "`{item}` weighs other than its siblings, but bucket `{bucket}` is uniform; use equal weights or `alg straw2`"
                )
            }
            Self::Cycle { bucket } => write!(
                f,
                "bucket `{bucket}` contains itself, directly or through others"
            ),
            Self::TooDeep { bucket } => {
                write!(
                    f,
                    "bucket `{bucket}` has more than {DEPTH_MAX} levels of buckets below it"
                )
            }
            Self::NoFreeId => f.write_str("there is no free bucket id left"),
            Self::NoClassTree { item, class, why } => {
                write!(f, "`{item}` has no devices tree for class `{class}`")?;
                match why {
                    Some(why) => write!(f, ": {why}"),
                    None => {
                        write!(
                            f,
                            "; give a device the class, or write an `id NUMBER class {class}` line in `{item}`"
                        )
                    }
                }
            }
            Self::Shadow(error) => error.fmt(f),
            Self::NotStraw2 { id } => {
                write!(
                    f,
                    "choose_args apply to straw2 buckets only, and bucket {id} is none; drop them or change its `alg`"
                )
            }
            Self::WrongCount { what, found, size } => {
                write!(
                    f,
                    "{found} {what} for a bucket of {size} items; write exactly one per item"
                )
            }
        }
    }
}
