//! Planted bugs of snapshots.

use super::{Bytes, Image, Wire};
use crate::mutants::{Mutant, active};

pub(super) fn encoded(image: &Image) -> Option<Bytes> {
    let mut image = image.clone();
    match active()? {
        Mutant::FenceLostInSnapshot => image.map.fences.clear(),
        Mutant::LeaseLostInSnapshot => image.meta.leases.clear(),
        Mutant::CommandsLostInSnapshot => image.commands.clear(),
        _ => return None,
    }
    Some(image.to_bytes().into())
}
