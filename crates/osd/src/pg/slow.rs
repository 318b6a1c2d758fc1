//! Operations that have waited for long, described for health (`SLOW_OPS`).
//!
//! Three places hold an operation: its object's queue, the reads or the evaluation for it, and the
//! updates that are not durable on all members. An update waits for known members: those whose
//! acknowledgement is missing. Texts are built only for operations that are reported.

use super::Interval;
use super::primary::Primary;
use nacre_types::{OsdId, Time};
use std::time::Duration;

/// The maximum number of lines of one PG: a PG that does not serve has one cause.
const LINES_MAX: usize = 3;

impl Primary {
    /// Appends the clients' operations that have waited longer than `limit`.
    pub(crate) fn slow(
        &self,
        at: &Interval,
        me: OsdId,
        now: Time,
        limit: Duration,
        lines: &mut Vec<String>,
    ) {
        let id = at.pg;
        let peering = self.peering.phase.waits_for();
        let start = lines.len();
        for update in &self.in_flight {
            if lines.len() >= start + LINES_MAX {
                return;
            }
            let received = update
                .answers
                .iter()
                .filter_map(|answer| answer.op.as_ref())
                .map(|op| op.received)
                .min();
            let Some(age) = received.map(|at| now.since(at)).filter(|age| *age >= limit) else {
                continue;
            };
            // Nothing waits for a member that is being backfilled.
            let behind = self
                .peers
                .iter()
                .filter(|(osd, peer)| at.acting.contains(osd) && peer.acked < update.version);
            let behind = behind.map(|(osd, _)| *osd);
            let own = (self.logged < update.version).then_some(me);
            let names: Vec<String> = own
                .into_iter()
                .chain(behind)
                .map(|osd| osd.to_string())
                .collect();
            let seconds = age.as_secs_f64();
            let on = if names.is_empty() {
                "an earlier update".to_owned()
            } else {
                format!("the disk of {}", names.join(", "))
            };
            lines.push(format!(
                "{id} {}: a write waits for {on} since {seconds:.1} s",
                update.object
            ));
        }
        let all = self.objects.all_with_what_they_do();
        let late = all.filter(|(_, op, _)| op.is_clients() && now.since(op.received) >= limit);
        let mut waiting: Vec<_> = late
            .map(|(object, op, doing)| (op.received, object, doing))
            .collect();
        waiting.sort_unstable();
        let left = (start + LINES_MAX).saturating_sub(lines.len());
        let more = waiting.len().saturating_sub(left);
        for (at, object, doing) in waiting.into_iter().take(left) {
            let seconds = now.since(at).as_secs_f64();
            let why = match (doing, &peering) {
                (Some(doing), _) => doing.to_owned(),
                (None, osds) if !osds.is_empty() => {
                    format!(
                        "{id} waits for {}",
                        osds.iter()
                            .map(ToString::to_string)
                            .collect::<Vec<_>>()
                            .join(", ")
                    )
                }
                _ => "its turn has not come".to_owned(),
            };
            lines.push(format!(
                "{id} {object}: an operation waits since {seconds:.1} s ({why})"
            ));
        }
        if more > 0 {
            lines.push(format!("{id}: {more} more operations wait"));
        }
    }
}
