//! Service metadata: the part that is not replicated. The leader judges requests, each monitor
//! serves watches.
//!
//! ```text
//!  MetaRequest ─▶ router ─▶ leader ─┬─ reads, keep-alives ─▶ read-index ─▶ answer
//!                                   └─ the rest ─▶ limiter ─▶ queue ─▶ admit ─▶ entry of a proposal ─▶ applied ─▶ answer
//!                                                               ▲        │ settings, rights, validators            │
//!                                                               └────────┴──────── a guard no longer holds ◀───────┘
//!  expired leases, due triggers ─▶ the leader's own entries
//!  applied anywhere ─▶ watchers of that monitor
//! ```
//! The replicated half is [`crate::state::meta`].

pub mod access;
pub mod admit;
pub mod lead;
pub mod leases;
pub mod limiter;
pub mod overruns;
pub mod programs;
pub mod scripts;
pub mod settings;
pub mod watchers;

use crate::router::Origin;
use crate::state::meta::record::MetaWho;
use nacre_types::Name;
use nacre_wire::Message;
use nacre_wire::msg::meta::{MetaError, MetaReply, MetaRequest, MetaResult};

/// A request at the leader.
#[derive(Clone, Debug)]
pub struct MetaAsk {
    /// The recipient of the answer.
    pub origin: Origin,
    /// The client's name.
    pub name: Name,
    /// Its request.
    pub request: MetaRequest,
    /// Number of proposals whose guards failed.
    pub tries: u32,
}

impl MetaAsk {
    /// The requester, for the entry.
    #[must_use]
    pub fn who(&self) -> MetaWho {
        let MetaRequest {
            instance,
            sequence,
            answered_below,
            known,
            again,
            ..
        } = self.request;
        let client = self.origin.from;
        MetaWho {
            client,
            instance,
            sequence,
            answered_below,
            known,
            again,
            name: self.name.clone(),
        }
    }
    /// An answer.
    #[must_use]
    pub fn reply(&self, revision: u64, result: MetaResult) -> Message {
        reply(&self.request, revision, result)
    }
    /// A refusal.
    #[must_use]
    pub fn refuse(&self, revision: u64, error: MetaError) -> Message {
        self.reply(revision, MetaResult::Failed { error })
    }
}

/// The answer to a request.
#[must_use]
pub fn reply(request: &MetaRequest, revision: u64, result: MetaResult) -> Message {
    Message::MetaReply(MetaReply {
        instance: request.instance,
        sequence: request.sequence,
        revision,
        result,
    })
}

/// Temporarily refused; the client retries.
#[must_use]
pub fn unavailable(request: &MetaRequest, why: &str) -> Message {
    reply(
        request,
        0,
        MetaResult::Failed {
            error: MetaError::Unavailable {
                why: why.to_owned(),
            },
        },
    )
}
