//! What may fail, and when: nothing, but where a disk is full, or the victim was mistreated, now or
//! a moment ago.

use std::io;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// So long after its end a fault may still be why a call fails: what was written before it is found
/// missing by the next look, and a mount that was away has to begin a new session.
const AFTER: Duration = Duration::from_secs(30);

/// What came of calls that may have an excuse.
pub enum Outcome {
    /// What they were to do.
    Done,
    /// One failed: in doing what, and why.
    Failed(&'static str, io::Error),
}

/// Times of one kind of fault.
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
    /// Whether it may be why something failed now.
    pub fn holds(&self) -> bool {
        let span = self.span();
        span.lasts || span.until.is_some_and(|until| Instant::now() < until)
    }
    fn span(&self) -> std::sync::MutexGuard<'_, Span> {
        self.0.lock().expect("nothing panics while it is held")
    }
}

/// All of them.
#[derive(Default)]
pub struct Excuses {
    /// A disk is full.
    pub full: Excuse,
    /// The victim is killed or stands still.
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
