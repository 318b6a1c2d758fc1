//! What an operation takes of the daemon's room for clients, while it is here.
//!
//! ```text
//!  client_load ── is answered ─▶ released
//!       │ ▲ └ blocked_load: came while its group did not serve
//!       ▼ │
//!  notify_load   a notify that waits for watchers: what ends it comes from clients
//! ```

use super::object::Pending;
use crate::shared::Shared;

impl Pending {
    /// It is here.
    pub(super) fn take_up(&self, sh: &mut Shared) {
        if !self.is_counted() {
            return;
        }
        sh.client_load.0 += 1;
        sh.client_load.1 += self.bytes();
        if self.blocked {
            let load = sh.blocked_load.entry(self.request.pg).or_default();
            *load = (load.0 + 1, load.1 + self.bytes());
        }
    }

    /// It is here no more.
    pub(super) fn release(&self, sh: &mut Shared) {
        if !self.is_counted() {
            return;
        }
        sh.client_load.0 -= 1;
        sh.client_load.1 -= self.bytes();
        if self.blocked
            && let Some(load) = sh.blocked_load.get_mut(&self.request.pg)
        {
            *load = (load.0 - 1, load.1 - self.bytes());
            if load.0 == 0 {
                sh.blocked_load.remove(&self.request.pg);
            }
        }
    }

    /// Whether notifies that wait have their share of what a daemon holds for clients already: a
    /// quarter.
    pub(super) fn finds_too_many_set_aside(&self, sh: &Shared) -> bool {
        let (count, bytes) = sh.notify_load;
        let limits = &sh.config.limits;
        count > 0
            && (count >= limits.client_ops / 4 || bytes + self.bytes() > limits.client_bytes / 4)
    }
    /// It waits for watchers, and holds up no other operation.
    pub(super) fn set_aside(self, sh: &mut Shared) -> Self {
        self.release(sh);
        sh.notify_load = (sh.notify_load.0 + 1, sh.notify_load.1 + self.bytes());
        Self {
            blocked: false,
            ..self
        }
    }
    /// It waits no more: it is an operation in hand again, until it is answered.
    pub(super) fn take_back(&self, sh: &mut Shared) {
        sh.notify_load = (sh.notify_load.0 - 1, sh.notify_load.1 - self.bytes());
        sh.client_load = (sh.client_load.0 + 1, sh.client_load.1 + self.bytes());
    }
}
