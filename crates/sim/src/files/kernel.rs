//! The kernel above a client: it answers attribute reads from what it was lent, and returns that
//! late.
//!
//! ```text
//!  program ─Stat─▶ lent? ─▶ answered here
//!                    └ no ─▶ the client ─▶ answered, and lent
//!  its own change of an inode ends ─▶ dropped, as the kernel does
//!  the client revokes ─▶ dropped, now or a little later; until then it still answers
//! ```

use crate::rng::Rng;
use nacre_fs::{Ask, CallId, Fs, Given, Outcome};
use nacre_role::Output;
use nacre_types::{Ino, Time};
use nacre_wire::msg::fs::{FsAnswer, FsCall, FsNode};
use std::collections::BTreeMap;
use std::time::Duration;

/// Delay at most until an unreturned loan is revoked again.
const AGAIN: Duration = Duration::from_millis(20);

/// See the module head.
#[derive(Default)]
pub struct Kernel {
    kept: BTreeMap<Ino, (FsNode, Time)>,
    /// Calls that change something.
    changes: BTreeMap<CallId, Ask>,
    /// When to revoke again what was not returned.
    pub again_at: Option<Time>,
    /// How often it answered.
    pub answered: u64,
}

impl Kernel {
    /// The answer that a program gets without the client.
    pub fn answer(&mut self, now: Time, ask: &Ask) -> Option<Outcome> {
        let Ask::Names(FsCall::Stat { ino }) = ask else {
            return None;
        };
        let (node, until) = self.kept.get(ino)?;
        if now >= *until {
            return None;
        }
        self.answered += 1;
        Some(Ok(Given::Answer(FsAnswer::Node {
            node: node.clone(),
            made: false,
        })))
    }
    /// The client was called.
    pub fn on_begun(&mut self, call: CallId, ask: &Ask) {
        let reads = matches!(
            ask,
            Ask::Names(
                FsCall::Stat { .. }
                    | FsCall::StatLite { .. }
                    | FsCall::Lookup { .. }
                    | FsCall::List { .. }
                    | FsCall::Open { .. }
            ) | Ask::Read { .. }
                | Ask::Seek { .. }
                | Ask::Sync { .. }
        );
        if !reads {
            self.changes.insert(call, ask.clone());
        }
    }
    /// A call has ended.
    pub fn on_ended(&mut self, now: Time, call: CallId, outcome: &Outcome, fs: &mut Fs) {
        let node = match outcome {
            Ok(Given::Answer(FsAnswer::Node { node, made: false })) => Some(node),
            _ => None,
        };
        let change = self.changes.remove(&call);
        match &change {
            Some(
                Ask::Write { ino, .. }
                | Ask::Append { ino, .. }
                | Ask::Zero { ino, .. }
                | Ask::Extend { ino, .. }
                | Ask::Copy { to: ino, .. },
            ) => {
                self.kept.remove(ino);
            }
            // The kernel knows by its own names what is moved or replaced.
            Some(Ask::Names(FsCall::Rename { .. })) => self.kept.clear(),
            Some(Ask::Names(call)) => {
                for ino in call.inos().chain(node.map(|node| node.inode.ino)) {
                    self.kept.remove(&ino);
                }
            }
            _ => {}
        }
        let is_shown = match &change {
            None => true,
            Some(Ask::Names(call)) => matches!(call, FsCall::Set { .. } | FsCall::Link { .. }),
            Some(_) => false,
        };
        if let Some(node) = node.filter(|_| is_shown) {
            let lent = fs.lend(now, node);
            if lent > Duration::ZERO {
                self.kept.insert(node.inode.ino, (node.clone(), now + lent));
            }
        }
    }
    /// A turn of the client has ended: revokes loans.
    pub fn give_back(&mut self, now: Time, rng: &mut Rng, fs: &mut Fs, out: &mut Vec<Output>) {
        let mut owed = fs.owed(now);
        owed.retain(|_| !rng.one_in(3));
        for ino in &owed {
            self.kept.remove(ino);
        }
        fs.returned(&owed, out);
        self.again_at =
            (!fs.owed(now).is_empty()).then(|| now + AGAIN.mul_f64(rng.below(100) as f64 / 100.0));
    }
    /// A random attribute read that can be answered here.
    pub fn any(&self, now: Time, rng: &mut Rng) -> Option<Ask> {
        let kept: Vec<Ino> = self
            .kept
            .iter()
            .filter(|(_, (_, until))| now < *until)
            .map(|(ino, _)| *ino)
            .collect();
        (!kept.is_empty()).then(|| {
            Ask::Names(FsCall::Stat {
                ino: *rng.pick(&kept),
            })
        })
    }
}
