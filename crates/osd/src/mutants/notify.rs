//! A planted bug of notifies.

use super::{Answer, Entity, Lead, Notify, Own, RequestId, Shared, told};
use crate::mutants::{Mutant, mutant};

/// Those who missed it are removed after the answer.
pub(super) fn conclude_if_over(lead: &mut Lead<'_>, id: &RequestId, sh: &mut Shared) -> Option<()> {
    let now = sh.now;
    let notifies = &mut lead.primary.watching.notifies;
    let over = |notify: &Notify| notify.waiting.is_empty() || notify.ends <= now;
    if !mutant(Mutant::NotifyAnsweredEarly) || !notifies.get(id).is_some_and(over) {
        return None;
    }
    let Notify {
        op,
        version,
        waiting,
        acked,
        mut missed,
        ..
    } = notifies.remove(id).expect("just seen");
    op.take_back(sh);
    missed.extend(waiting);
    let (results, payload) = told(&acked, &missed);
    let object = op.request.object.clone();
    let answer = Answer {
        payload,
        ..Answer::new(op, version, results)
    };
    lead.replies().answer(answer, None, sh);
    if !missed.is_empty() {
        let drop = Own::Drop {
            watchers: missed,
            acked,
        };
        lead.queue_own(Entity::Osd(sh.me()), &object, drop, sh);
    }
    Some(())
}
