//! Checks of activations and temporary acting sets before they are committed (DESIGN §3, Peering).
//!
//! An activation states "this interval may accept writes, and each of these members has every
//! acknowledged write before it". Later peering relies on it alone, so it is checked here against
//! the map, even if the asking OSD is wrong.
//!
//! Invariant: of two successive activations of a PG, the later has a member of the earlier.
//! Otherwise the later one's members could lack writes that were acknowledged as durable in the
//! earlier one.

use nacre_types::{Entity, OsdId};
use nacre_wire::map::{Change, ClusterMap};
use nacre_wire::msg::monitor::{PgActivateRequest, PgTemporaryRequest};
use std::collections::BTreeSet;

/// Why a request is not committed. The OSD sees it in the next map, or not at all; operators see
/// counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PgReject {
    /// No such PG.
    Unknown,
    /// The interval has ended, or is not known here yet.
    OtherInterval,
    /// Already committed.
    Already,
    /// The sender is not the primary.
    NotPrimary,
    /// Members that are not in the acting set, or appear twice; for a temporary set: that do not
    /// exist or are not up.
    NotMembers,
    /// Fewer than the pool's `min_size`, or more than its size.
    Number,
    /// None of them was a member of the last activation.
    Discontinuous,
}

impl PgReject {
    /// For counters.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "pg_unknown",
            Self::OtherInterval => "pg_other_interval",
            Self::Already => "pg_already",
            Self::NotPrimary => "pg_not_primary",
            Self::NotMembers => "pg_not_members",
            Self::Number => "pg_number",
            Self::Discontinuous => "pg_discontinuous",
        }
    }
}

fn distinct(osds: &[OsdId]) -> bool {
    osds.iter().collect::<BTreeSet<_>>().len() == osds.len()
}

/// Checks an activation.
///
/// # Errors
/// [`PgReject`].
pub fn activate(
    map: &ClusterMap,
    from: Entity,
    request: &PgActivateRequest,
) -> Result<Change, PgReject> {
    let record = map.pgs.get(&request.pg).ok_or(PgReject::Unknown)?;
    let pool = map.pools.get(&request.pg.pool).ok_or(PgReject::Unknown)?;
    if record.since != request.interval {
        return Err(PgReject::OtherInterval);
    }
    if record
        .primary()
        .is_none_or(|primary| from != Entity::Osd(primary))
    {
        return Err(PgReject::NotPrimary);
    }
    let members = &request.members;
    if !distinct(members) || !members.iter().all(|osd| record.acting.contains(osd)) {
        return Err(PgReject::NotMembers);
    }
    // The primary orders updates: an interval with an incomplete primary cannot serve.
    if record
        .primary()
        .is_some_and(|primary| !members.contains(&primary))
    {
        return Err(PgReject::NotMembers);
    }
    if members.len() < usize::from(pool.min_size).max(1) {
        return Err(PgReject::Number);
    }
    let last = &record.activated;
    let first_ever = last.interval == nacre_types::Epoch::NONE;
    if !first_ever && !members.iter().any(|osd| last.members.contains(osd)) {
        return Err(PgReject::Discontinuous);
    }
    if record.is_activated() && last.members == *members {
        return Err(PgReject::Already);
    }
    // A second activation of one interval may only add members: those once reported complete may be
    // the only ones that are.
    if record.is_activated() && !last.members.iter().all(|osd| members.contains(osd)) {
        return Err(PgReject::Discontinuous);
    }
    Ok(Change::PgActivate {
        pg: request.pg,
        interval: request.interval,
        members: members.clone(),
    })
}

/// Checks a temporary acting set.
///
/// # Errors
/// [`PgReject`].
pub fn temporary(
    map: &ClusterMap,
    from: Entity,
    request: &PgTemporaryRequest,
) -> Result<Change, PgReject> {
    let record = map.pgs.get(&request.pg).ok_or(PgReject::Unknown)?;
    let pool = map.pools.get(&request.pg.pool).ok_or(PgReject::Unknown)?;
    if record.since != request.interval {
        return Err(PgReject::OtherInterval);
    }
    // Its current primary, or CRUSH's primary, which may know nothing yet.
    let may_ask = record
        .primary()
        .into_iter()
        .chain(record.up.first().copied());
    if !may_ask.into_iter().any(|osd| from == Entity::Osd(osd)) {
        return Err(PgReject::NotPrimary);
    }
    if record.temporary == request.acting {
        return Err(PgReject::Already);
    }
    if !distinct(&request.acting) || !request.acting.iter().all(|osd| map.up_osd(*osd).is_some()) {
        return Err(PgReject::NotMembers);
    }
    // A single replica moves by way of two: its successor serves beside it first.
    if request.acting.len() > usize::from(pool.size).max(2) {
        return Err(PgReject::Number);
    }
    let last = &record.activated;
    let stranger = |osd: &OsdId| !last.members.contains(osd);
    if last.interval != nacre_types::Epoch::NONE
        && !request.acting.is_empty()
        && request.acting.iter().all(stranger)
    {
        return Err(PgReject::Discontinuous);
    }
    Ok(Change::PgTemporary {
        pg: request.pg,
        interval: request.interval,
        acting: request.acting.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{map_with_osds, with_pool};
    use nacre_types::{Epoch, PgId, PoolId};

    fn scene() -> (ClusterMap, PgId, Vec<OsdId>) {
        let map = with_pool(map_with_osds(5), 8);
        let pg = PgId::replicated(PoolId(1), 3);
        let acting = map.pgs[&pg].acting.clone();
        (map, pg, acting)
    }
    fn ask(map: &ClusterMap, pg: PgId, members: &[OsdId]) -> (Entity, PgActivateRequest) {
        let primary = map.pgs[&pg].primary().expect("acts");
        (
            Entity::Osd(primary),
            PgActivateRequest {
                pg,
                interval: map.pgs[&pg].since,
                members: members.to_vec(),
            },
        )
    }

    // Each line failed when its check in `activate` was removed.
    #[test]
    fn an_activation_that_could_lose_writes_is_not_committed() {
        let (mut map, pg, acting) = scene();
        let outsider = (0..5)
            .map(OsdId)
            .find(|osd| !acting.contains(osd))
            .expect("five, three act");
        let check = |map: &ClusterMap, members: &[OsdId]| {
            let (from, request) = ask(map, pg, members);
            activate(map, from, &request).map(|_| ())
        };
        assert_eq!(check(&map, &acting), Ok(()));
        let (from, request) = ask(&map, pg, &acting);
        let late = PgActivateRequest {
            interval: Epoch(request.interval.0 - 1),
            ..request.clone()
        };
        let mut cases = vec![
            (check(&map, &acting[..1]), PgReject::Number),
            (check(&map, &[acting[0], outsider]), PgReject::NotMembers),
            (check(&map, &[acting[0], acting[0]]), PgReject::NotMembers),
            (check(&map, &acting[1..]), PgReject::NotMembers),
            (
                activate(&map, Entity::Osd(acting[1]), &request).map(|_| ()),
                PgReject::NotPrimary,
            ),
            (
                activate(&map, from, &late).map(|_| ()),
                PgReject::OtherInterval,
            ),
        ];
        // None of them has the last interval's writes.
        map.pgs.get_mut(&pg).expect("exists").activated = nacre_wire::map::Activation {
            interval: Epoch(1),
            members: vec![outsider],
            instances: vec![],
        };
        cases.push((check(&map, &acting), PgReject::Discontinuous));
        let wrong: Vec<_> = cases
            .iter()
            .enumerate()
            .filter(|(_, (got, want))| *got != Err(*want))
            .collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn a_second_activation_only_adds() {
        let (mut map, pg, acting) = scene();
        let commit = |map: &mut ClusterMap, members: &[OsdId]| {
            let (from, request) = ask(map, pg, members);
            let change = activate(map, from, &request)?;
            let delta = map.delta(vec![change]);
            map.apply(&delta).expect("applies");
            Ok(())
        };
        assert_eq!(commit(&mut map, &acting[..2]), Ok(()));
        assert_eq!(commit(&mut map, &acting[..2]), Err(PgReject::Already));
        assert_eq!(
            commit(&mut map, &[acting[0], acting[2]]),
            Err(PgReject::Discontinuous)
        );
        assert_eq!(commit(&mut map, &acting), Ok(()));
    }

    #[test]
    fn a_temporary_set_is_the_primarys_to_ask_and_of_the_living() {
        let (mut map, pg, acting) = scene();
        let request = |acting: &[OsdId]| PgTemporaryRequest {
            pg,
            interval: map.pgs[&pg].since,
            acting: acting.to_vec(),
        };
        let from = Entity::Osd(acting[0]);
        let turned: Vec<OsdId> = acting.iter().rev().copied().collect();
        assert!(temporary(&map, from, &request(&turned)).is_ok());
        assert_eq!(
            temporary(&map, Entity::Osd(acting[2]), &request(&turned)),
            Err(PgReject::NotPrimary)
        );
        assert_eq!(temporary(&map, from, &request(&[])), Err(PgReject::Already));
        assert_eq!(
            temporary(&map, from, &request(&[OsdId(77)])),
            Err(PgReject::NotMembers)
        );
        let (request, many) = (
            request(&turned),
            request(&(0..5).map(OsdId).collect::<Vec<_>>()),
        );
        assert_eq!(temporary(&map, from, &many), Err(PgReject::Number));
        map.osds.get_mut(&acting[2]).expect("exists").up = false;
        assert_eq!(temporary(&map, from, &request), Err(PgReject::NotMembers));
    }
}
