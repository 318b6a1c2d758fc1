//! A standby registers itself, so that health checks can distinguish a rank that will be taken over
//! from one without any server left (ADR 0006, "Ranks"; health: `FS_RANK_DOWN`, `FS_NO_STANDBY`).
//!
//! ```text
//!  Away ── there are file systems ──▶ Granting ──▶ Saying ──▶ There: the lease is renewed
//!    ▲── refused, or the lease has ended ─┴───────────┴─────────┘
//!                    it takes a rank, or stops ──▶ Left: the lease, and with it the key, is gone
//! ```
//! Only what operators see depends on it: if its requests cannot be sent, they are made later.
//!
//! Invariant: in a cluster without file systems, standbys cause no traffic.

use crate::lease::Lease;
use nacre_client::{MetaDone, MetaId, Metadata};
use nacre_types::Time;
use nacre_wire::Wire as _;
use nacre_wire::fs::FsHolder;
use nacre_wire::fs::registry::standby_key;
use nacre_wire::msg::meta::{MetaCall, MetaOp, MetaResult};
use std::time::Duration;

/// How long a dead standby counts at most.
const TTL: Duration = Duration::from_secs(9);
/// Delay after a failure.
const RETRY: Duration = Duration::from_secs(1);

#[derive(Debug)]
enum Stage {
    /// Not registered; retried at that time.
    Away(Time),
    /// Waiting for a lease, requested at that time.
    Granting(MetaId, Time),
    /// Waiting until the key is written.
    Saying(Lease, Option<MetaId>),
    There(Lease),
    Left,
}

/// See the module head.
#[derive(Debug)]
pub(crate) struct Standby {
    me: FsHolder,
    stage: Stage,
}

impl Standby {
    pub const fn new(me: FsHolder) -> Self {
        Self {
            me,
            stage: Stage::Away(Time::ZERO),
        }
    }

    /// Handles an answer.
    pub fn on_done(&mut self, now: Time, done: &MetaDone) {
        let away = Stage::Away(now + RETRY);
        self.stage = match std::mem::replace(&mut self.stage, Stage::Left) {
            Stage::Granting(question, asked) if question == done.id => match done.result {
                Ok(MetaResult::Granted { lease, .. }) => {
                    Stage::Saying(Lease::granted(lease, asked, TTL), None)
                }
                _ => away,
            },
            Stage::Saying(lease, Some(question)) if question == done.id => match done.result {
                Ok(MetaResult::Transacted { .. }) => Stage::There(lease),
                _ => away,
            },
            Stage::There(mut lease) => match lease.on_done(done) {
                true => away,
                false => Stage::There(lease),
            },
            other => other,
        };
    }

    /// Performs the next step.
    pub fn on_turn(&mut self, now: Time, has_file_systems: bool, metadata: &mut dyn Metadata) {
        match &mut self.stage {
            Stage::Away(at) if has_file_systems && *at <= now => {
                let ttl_ms = u64::try_from(TTL.as_millis()).expect("seconds");
                if let Some(question) = metadata.submit(now, MetaCall::Grant { ttl_ms }) {
                    self.stage = Stage::Granting(question, now);
                }
            }
            Stage::Saying(lease, question @ None) => {
                let (key, value) = (standby_key(self.me.client()), self.me.to_bytes().into());
                let then = vec![MetaOp::Put {
                    key,
                    value,
                    lease: lease.id(),
                }];
                let call = MetaCall::Transact {
                    compares: Vec::new(),
                    then,
                    otherwise: Vec::new(),
                };
                *question = metadata.submit(now, call);
            }
            Stage::There(lease) => lease.renew(now, metadata),
            _ => {}
        }
    }

    /// It is no longer a standby.
    pub fn leave(&mut self, now: Time, metadata: &mut dyn Metadata) {
        if let Stage::Saying(lease, _) | Stage::There(lease) =
            std::mem::replace(&mut self.stage, Stage::Left)
        {
            lease.revoke(now, metadata);
        }
    }

    /// `has_file_systems`: as in [`Self::on_turn`].
    pub fn next_deadline(&self, has_file_systems: bool) -> Time {
        match &self.stage {
            Stage::Away(at) if has_file_systems => *at,
            Stage::There(lease) => lease.next_deadline(),
            _ => Time::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Asked;
    use nacre_client::MetaFailure;
    use nacre_types::Instance;
    use nacre_wire::map::Address;
    use nacre_wire::msg::meta::MetaError;

    #[test]
    fn a_standby_is_there_until_it_takes_a_rank() {
        let address = Address("127.0.0.1:1".into());
        let me = FsHolder {
            client: 8,
            instance: Instance(1),
            address,
            name: "mds.0".into(),
        };
        let (mut standby, mut asked) = (Standby::new(me.clone()), Asked(Vec::new(), usize::MAX));
        let at = |s| Time::ZERO + Duration::from_secs(s);
        let answer = |standby: &mut Standby, now, asked: &Asked, result| {
            standby.on_done(
                now,
                &MetaDone {
                    id: MetaId(asked.0.len() as u64),
                    revision: 1,
                    result,
                },
            );
        };
        standby.on_turn(at(1), false, &mut asked);
        assert_eq!(
            (&asked.0[..], standby.next_deadline(false)),
            (&[][..], Time::MAX),
            "there is no file system"
        );
        let is_there = |standby: &mut Standby, asked: &mut Asked, now| {
            standby.on_turn(now, true, asked);
            assert_eq!(asked.0.last(), Some(&MetaCall::Grant { ttl_ms: 9_000 }));
            answer(
                standby,
                now,
                asked,
                Ok(MetaResult::Granted {
                    lease: 77,
                    ttl_ms: 9_000,
                }),
            );
            standby.on_turn(now, true, asked);
            let put = MetaOp::Put {
                key: "fs/@standby/8".into(),
                value: me.to_bytes().into(),
                lease: 77,
            };
            assert!(
                matches!(asked.0.last(), Some(MetaCall::Transact { then, .. }) if *then == [put])
            );
            let said = MetaResult::Transacted {
                succeeded: true,
                answers: Vec::new(),
            };
            answer(standby, now, asked, Ok(said));
        };
        is_there(&mut standby, &mut asked, at(2));
        assert_eq!(standby.next_deadline(true), at(5), "a third of its time");
        standby.on_turn(at(4), true, &mut asked);
        assert_eq!(asked.0.len(), 2);
        standby.on_turn(at(5), true, &mut asked);
        assert_eq!(asked.0.last(), Some(&MetaCall::KeepAlive { lease: 77 }));
        let ended = MetaFailure::Refused(MetaError::NoSuchLease { lease: 77 });
        answer(&mut standby, at(5), &asked, Err(ended));
        standby.on_turn(at(5), true, &mut asked);
        assert_eq!(
            (asked.0.len(), standby.next_deadline(true)),
            (3, at(6)),
            "not at once"
        );
        is_there(&mut standby, &mut asked, at(6));
        standby.leave(at(7), &mut asked);
        assert_eq!(asked.0.last(), Some(&MetaCall::Revoke { lease: 77 }));
        standby.on_turn(at(60), true, &mut asked);
        assert_eq!(
            (asked.0.len(), standby.next_deadline(true)),
            (6, Time::MAX),
            "it says nothing any more"
        );
    }
}
