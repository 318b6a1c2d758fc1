//! Planted bugs of peering.

use super::{BTreeMap, Interval, OsdId, PgInfo, Phase};
use crate::mutants::{Mutant, active, mutant};

pub(super) fn may_know(at: &Interval, osd: &OsdId, info: &PgInfo) -> Option<bool> {
    let members = &at.activated.members;
    match active()? {
        _ if members.is_empty() => None,
        Mutant::BackfillTargetComplete => Some(info.exists),
        Mutant::EmptyStoreCounts => Some(members.contains(osd) && info.backfill.is_none()),
        _ => None,
    }
}

pub(super) fn authority(
    _: &Interval,
    infos: &BTreeMap<OsdId, PgInfo>,
    me: &OsdId,
) -> Option<Option<OsdId>> {
    let length = |(osd, info): &(&OsdId, &PgInfo)| (info.head.number, info.exists, *osd == me);
    mutant(Mutant::LongestLogWins).then(|| infos.iter().max_by_key(length).map(|(osd, _)| *osd))
}

pub(super) fn up_by_log(
    at: &Interval,
    _: &BTreeMap<OsdId, PgInfo>,
    _: &PgInfo,
) -> Option<Vec<OsdId>> {
    mutant(Mutant::BackfillTargetComplete).then(|| at.up.clone())
}

pub(super) fn phase_when_adopted(acting: &usize, min_size: &usize) -> Option<Phase> {
    (mutant(Mutant::ActivationNotAwaited) && acting >= min_size).then_some(Phase::Active)
}
