//! Asks holders of ranks for their figures without a session: an inquirer must not be a client that
//! the next holder waits for. (It used to be one; a server that was killed just after `nacre fs
//! status` was replaced after 6 s instead of 0.1 s.)
//!
//! ```text
//!  Inquiry ──FsInquire──▶ each holder ──FsFigures──▶ reported     gone, or nothing listens: not reported
//! ```
//! Invariant: each holder is asked once.

use nacre_client::{Metadata, ObjectCluster, Service};
use nacre_role::{Input, Output};
use nacre_types::{ClientId, Entity, Rank, Time};
use nacre_wire::Message;
use nacre_wire::fs::FsHolder;
use nacre_wire::msg::fs::{FsFigures, FsInquire};
use std::collections::BTreeMap;

/// See the module head.
#[derive(Debug, Default)]
pub struct Inquiry {
    to_ask: Vec<(Rank, FsHolder)>,
    asked: BTreeMap<ClientId, Rank>,
    told: BTreeMap<Rank, FsFigures>,
}

impl Inquiry {
    /// The ranks' holders according to the registry. Holders without an address are not asked.
    #[must_use]
    pub fn new(holders: impl IntoIterator<Item = (Rank, FsHolder)>) -> Self {
        let to_ask = holders
            .into_iter()
            .filter(|(_, holder)| !holder.address.0.is_empty())
            .collect();
        Self {
            to_ask,
            ..Self::default()
        }
    }
    /// Whether nothing is left to wait for.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.to_ask.is_empty() && self.asked.is_empty()
    }
    /// The answers.
    #[must_use]
    pub const fn told(&self) -> &BTreeMap<Rank, FsFigures> {
        &self.told
    }
}

impl Service for Inquiry {
    fn on_turn(
        &mut self,
        _: Time,
        inputs: &mut dyn Iterator<Item = Input>,
        _: &mut dyn ObjectCluster,
        _: &mut dyn Metadata,
        out: &mut Vec<Output>,
    ) {
        for (rank, holder) in std::mem::take(&mut self.to_ask) {
            let (client, peer) = (holder.client(), Entity::Client(holder.client()));
            self.asked.insert(client, rank);
            out.push(Output::Meet {
                peer,
                address: holder.address,
            });
            out.push(Output::send(
                peer,
                Message::FsInquire(FsInquire { rank: rank.0 }),
            ));
        }
        for input in inputs {
            match input {
                Input::Message {
                    from: Entity::Client(holder),
                    message: Message::FsFigures(figures),
                    ..
                } => {
                    let rank = self.asked.remove(&holder);
                    self.told.extend(rank.map(|rank| (rank, figures)));
                }
                Input::Gone(Entity::Client(holder)) | Input::Absent(Entity::Client(holder)) => {
                    self.asked.remove(&holder);
                }
                _ => {}
            }
        }
    }
    fn next_deadline(&self) -> Time {
        if self.to_ask.is_empty() {
            Time::MAX
        } else {
            Time::ZERO
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::testing::{Objects, Registry};
    use nacre_types::{Epoch, Instance};
    use nacre_wire::map::Address;

    #[test]
    fn holders_are_asked_once_and_what_they_tell_is_known_by_rank() {
        let holder = |rank: u16, address: &str| {
            let address = Address(address.into());
            let holder = FsHolder {
                client: u64::from(rank) + 10,
                instance: Instance(1),
                address,
                name: "mds".into(),
            };
            (Rank(rank), holder)
        };
        let mut inquiry = Inquiry::new([
            holder(0, "a"),
            holder(1, "b"),
            holder(2, ""),
            holder(3, "c"),
        ]);
        let turn = |inquiry: &mut Inquiry, input: Option<Input>| {
            let mut out = Vec::new();
            inquiry.on_turn(
                Time(1),
                &mut input.into_iter(),
                &mut Objects::default(),
                &mut Registry::default(),
                &mut out,
            );
            let whom = |output| match output {
                Output::Send {
                    to: Entity::Client(to),
                    message: Message::FsInquire(_),
                    ..
                } => Some(to.0),
                _ => None,
            };
            out.into_iter().filter_map(whom).collect::<Vec<u64>>()
        };
        assert_eq!(
            (inquiry.next_deadline(), turn(&mut inquiry, None)),
            (Time::ZERO, vec![10, 11, 13])
        );
        assert_eq!(
            (inquiry.next_deadline(), turn(&mut inquiry, None)),
            (Time::MAX, vec![])
        );
        let figures = FsFigures {
            objects: 1,
            bytes: 2,
            sessions: 3,
            opens: 4,
            popular: Vec::new(),
        };
        let from = |client| Input::Message {
            from: Entity::Client(ClientId(client)),
            epoch: Epoch::NONE,
            message: Message::FsFigures(figures.clone()),
        };
        for input in [
            from(11),
            from(99),
            Input::Absent(Entity::Client(ClientId(10))),
        ] {
            turn(&mut inquiry, Some(input));
            assert!(!inquiry.is_over());
        }
        turn(
            &mut inquiry,
            Some(Input::Gone(Entity::Client(ClientId(13)))),
        );
        assert!(
            inquiry.is_over() && inquiry.told() == &BTreeMap::from([(Rank(1), figures)]),
            "{inquiry:?}"
        );
    }
}
