//! A planted bug of replicas.

use super::{Follow, Ops, Purpose, Shared, Version};
use crate::mutants::{Mutant, mutant};

pub(super) fn log(
    follow: &mut Follow<'_>,
    version: &Version,
    ops: &Ops,
    sh: &mut Shared,
) -> Option<()> {
    mutant(Mutant::AckBeforeFlush).then(|| {
        let durable = Purpose::Logged(*version);
        follow.interval.submit(sh, ops.clone(), durable);
        follow.on_logged(*version, sh);
    })
}
