//! Calls that may fail, and when: none, except while a disk is full, or while a fault affects the
//! victim, or shortly after.

use std::io;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A fault may explain a failing call for this long after its end: lost writes are reported by a
/// later call, and a mount that was away has to begin a new session.
const AFTER: Duration = Duration::from_secs(30);

/// Result of calls that may have an excuse.
pub enum Outcome {
    /// They succeeded.
    Done,
    /// One failed: the call, and the error.
    Failed(&'static str, io::Error),
}

/// Begin and end times of one kind of fault.
#[derive(Default)]
pub struct Excuse(Mutex<Span>);

#[derive(Default)]
struct Span {
    lasts: bool,
    until: Option<Instant>,
}

impl Excuse {
    /// A fault begins.
    pub fn begin(&self) {
        self.span().lasts = true;
    }
    /// It ends.
    pub fn end(&self) {
        *self.span() = Span {
            lasts: false,
            until: Some(Instant::now() + AFTER),
        };
    }
    /// Whether it may explain a failure now.
    pub fn holds(&self) -> bool {
        let span = self.span();
        span.lasts || span.until.is_some_and(|until| Instant::now() < until)
    }
    fn span(&self) -> std::sync::MutexGuard<'_, Span> {
        self.0.lock().expect("nothing panics while it is held")
    }
}

/// All kinds.
#[derive(Default)]
pub struct Excuses {
    /// A disk is full.
    pub full: Excuse,
    /// The victim is killed or suspended.
    pub harm: Excuse,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_fault_is_an_excuse_and_a_while_after_it() {
        let excuse = Excuse::default();
        assert!(!excuse.holds());
        excuse.begin();
        assert!(excuse.holds());
        excuse.end();
        assert!(excuse.holds());
        excuse.span().until = Some(Instant::now());
        assert!(!excuse.holds());
    }
}
