//! A planted bug of replicas.

use super::{Awaited, Follow, Ops, Shared, Version};
use crate::mutants::{Mutant, mutant};

pub(super) fn log(
    follow: &mut Follow<'_>,
    version: &Version,
    ops: &Ops,
    sh: &mut Shared,
) -> Option<()> {
    mutant(Mutant::AckBeforeFlush).then(|| {
        let durable = Awaited::Logged(*version);
        follow.interval.submit(sh, ops.clone(), durable);
        follow.on_logged(*version, sh);
    })
}
