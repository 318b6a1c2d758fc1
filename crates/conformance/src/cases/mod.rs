//! The cases, by subject.

mod claims;
mod compound;
mod data;
mod errors;
mod listing;
mod map;
mod methods;
mod order;

use crate::{Bench, Case};
use nacre_client::Capabilities;

/// A case that needs no capability.
const fn always(name: &'static str, with: fn(&mut Bench<'_>)) -> Case {
    const fn all(_: &Capabilities) -> bool {
        true
    }
    Case {
        name,
        needs: all,
        with,
        without: None,
    }
}

/// All cases.
pub fn all() -> Vec<Case> {
    [
        data::CASES,
        map::CASES,
        compound::CASES,
        order::CASES,
        listing::CASES,
        errors::CASES,
        methods::CASES,
        claims::CASES,
    ]
    .into_iter()
    .flatten()
    .map(|case| Case { ..*case })
    .collect()
}
