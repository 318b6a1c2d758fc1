//! A planted bug of operations of several parts.

use super::{Methods, Run, Stop, SubOp};
use crate::mutants::{Mutant, mutant};

/// A part that fails ends the operation with the effects of those before.
pub(super) fn parts(
    run: &mut Run<'_>,
    ops: &[SubOp],
    methods: &mut dyn Methods,
) -> Option<Result<(), (usize, Stop)>> {
    if !mutant(Mutant::FailedPartKeepsEarlier) {
        return None;
    }
    for (index, op) in ops.iter().enumerate() {
        match run.part(index, op, methods) {
            Ok(()) => {}
            Err(Stop::Fail(_)) if index > 0 => break,
            Err(stop) => return Some(Err((index, stop))),
        }
    }
    Some(Ok(()))
}
