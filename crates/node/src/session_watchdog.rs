//! A watchdog over a session: whether the monitor at the other end still works.
//!
//! A process that hangs keeps its connections: its kernel still acknowledges. A working monitor
//! that has lost the others is useless, too. So a session that has been silent for a while is
//! pinged. It is given up when it stays silent, or when its monitor repeatedly reports that there
//! is no leader.
//!
//! ```text
//!  every half second:   heard ─▶ nothing to do       silent once ─▶ wait       silent twice or more ─▶ ping
//!                       silent seven times (twenty: the only monitor) ─▶ give up
//!                       three answers without a leader ─▶ give up, if there are others
//! ```
//! Counted in *looks*, not by the clock: a daemon that was itself stopped has looked once, and
//! attributes only that much silence to the monitor.

use nacre_wire::Message;
use nacre_wire::msg::monitor::SessionPing;

/// Silent looks before the monitor is pinged.
const ASK_AFTER: u32 = 2;
/// Silent looks after which the session is given up: 3.5 s, of which 2.5 s after the first ping.
const SILENT_MAX: u32 = 7;
/// The same if there is only one monitor: leaving it gains only a new connection, in case the old
/// one is dead. On an overloaded machine it may just be slow, and requests to it would be lost.
const SILENT_ONLY_MAX: u32 = 20;
/// Consecutive answers without a leader: some 4.5 s, longer than an election. A mount whose server
/// has died learns of the next one only from a monitor that has not lost the others, and the new
/// server waits 6 s for it. (Chaos: it took 9 s, and the mount lost its unwritten data.)
const UNLED_MAX: u32 = 3;

/// See the module head.
#[derive(Debug, Default)]
pub struct SessionWatchdog {
    heard: bool,
    silent: u32,
    unled: u32,
    number: u64,
}

/// The action after a look.
#[derive(Debug, PartialEq, Eq)]
pub enum Look {
    /// Nothing.
    Fine,
    /// Send this.
    Ask(SessionPing),
    /// End the session and choose another monitor; with a human-readable reason.
    GiveUp(&'static str),
}

impl SessionWatchdog {
    /// A message of the monitor has arrived.
    pub fn heard(&mut self, message: &Message) {
        self.heard = true;
        if let Message::SessionPong(pong) = message {
            self.unled = if pong.led { 0 } else { self.unled + 1 };
        }
    }

    /// To be called twice a second. `choice`: there are other monitors. `waits`: this one owes an
    /// answer to the caller of a command, even if only that there is no leader: that answer is
    /// better than the end of the session.
    pub fn look(&mut self, choice: bool, waits: bool) -> Look {
        self.silent = if std::mem::take(&mut self.heard) {
            0
        } else {
            self.silent + 1
        };
        if self.silent >= if choice { SILENT_MAX } else { SILENT_ONLY_MAX } {
            return Look::GiveUp("does not answer");
        }
        if choice && !waits && self.unled >= UNLED_MAX {
            return Look::GiveUp("has lost the other monitors");
        }
        if self.silent < ASK_AFTER {
            return Look::Fine;
        }
        self.number += 1;
        Look::Ask(SessionPing {
            number: self.number,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_wire::msg::monitor::SessionPong;

    fn pong(led: bool) -> Message {
        Message::SessionPong(SessionPong { number: 1, led })
    }

    #[test]
    fn a_monitor_that_answers_is_kept_for_ever_and_asked_now_and_then() {
        let (mut watchdog, mut asked) = (SessionWatchdog::default(), 0);
        for _ in 0..1000 {
            match watchdog.look(true, false) {
                Look::Fine => {}
                Look::Ask(_) => {
                    asked += 1;
                    watchdog.heard(&pong(true));
                }
                Look::GiveUp(why) => panic!("it {why}"),
            }
        }
        assert!((300..=500).contains(&asked), "{asked} questions in 500 s");
    }

    // A session with a hanging monitor was kept for ever: nothing was ever requested, and its
    // kernel acknowledged everything.
    #[test]
    fn a_monitor_that_hangs_is_given_up_after_seven_looks_the_only_one_after_twenty() {
        for (choice, most) in [(true, 7), (false, 20)] {
            let mut watchdog = SessionWatchdog::default();
            watchdog.heard(&pong(true));
            watchdog.look(choice, false);
            let looks: Vec<Look> = (0..most).map(|_| watchdog.look(choice, true)).collect();
            assert_eq!(
                looks
                    .iter()
                    .filter(|look| matches!(look, Look::Ask(_)))
                    .count(),
                most - 2
            );
            assert!(
                matches!(looks[most - 1], Look::GiveUp("does not answer")),
                "{looks:?}"
            );
        }
    }

    #[test]
    fn a_monitor_that_lost_the_others_is_left_if_there_are_others() {
        for (choice, waits) in [(true, false), (true, true), (false, false)] {
            let mut watchdog = SessionWatchdog::default();
            let mut left = false;
            for _ in 0..100 {
                match watchdog.look(choice, waits) {
                    Look::Fine => {}
                    Look::Ask(_) => watchdog.heard(&pong(false)),
                    Look::GiveUp(_) => left = true,
                }
            }
            assert_eq!(left, choice && !waits);
        }
        let mut watchdog = SessionWatchdog::default();
        for turn in 0..100 {
            watchdog.heard(&pong(turn % 3 == 0));
            assert_eq!(watchdog.look(true, false), Look::Fine, "elections pass");
        }
    }
}
