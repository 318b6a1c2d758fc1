//! For operators: the list of clients, and ending a client's session.

use super::*;
use crate::evaluate::errno::ESRCH;
use nacre_wire::msg::fs::FsClient;

/// Clients per answer: some 100 bytes each.
const PAGE: usize = 1000;

impl Mds {
    /// Sets a client's human-readable description.
    pub fn on_about(&mut self, client: ClientId, about: &Name) {
        if let Some(session) = self.sessions.get_mut(&client) {
            session.about = about.clone();
        }
    }

    /// The answer to a request about clients.
    pub(super) fn about_clients(&mut self, call: &FsCall) -> Option<FsAnswer> {
        match call {
            FsCall::Clients { after } => Some(self.clients(*after)),
            FsCall::Evict { client } if self.sessions.contains_key(client) => {
                self.evict(*client);
                Some(FsAnswer::Done {})
            }
            FsCall::Evict { .. } => Some(FsAnswer::Failed { errno: ESRCH }),
            _ => None,
        }
    }
    fn clients(&self, after: u64) -> FsAnswer {
        let mut all = self.sessions.range(ClientId(after.saturating_add(1))..);
        let page = all.by_ref().take(PAGE).map(|(client, session)| {
            let (open, writing) = self.caps.count(*client);
            FsClient {
                client: *client,
                instance: session.instance,
                about: session.about.clone(),
                open,
                writing,
                silent_ms: u64::try_from(self.now.since(session.heard).as_millis())
                    .unwrap_or(u64::MAX),
                evicting: self.evicting.has(*client),
                requests: session.requests,
            }
        });
        let clients = page.collect();
        FsAnswer::Clients {
            clients,
            end: all.next().is_none(),
        }
    }
}
