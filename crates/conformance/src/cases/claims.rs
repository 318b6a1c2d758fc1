//! Watches and locks.

use crate::Case;

pub const CASES: &[Case] = &[];
