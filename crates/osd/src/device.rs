//! The OSD's reaction to its device's answers, or to their absence (DESIGN §3: every device call
//! has a deadline).
//!
//! ```text
//!  oldest call takes    device_slow ─▶ the beacon reports it: health names the device
//!                       device_stall ─▶ "mark me down": others serve; no boot until the device answers
//!                       device_hung ─▶ the host ends the daemon (`node/src/watchdog.rs`)
//! ```
//! The host measures ([`nacre_role::Input::Device`]); the decisions are made here. The monitors may
//! refuse "mark me down": if most OSDs request it, their common disk is slow, and taking all of
//! them down would help no client.

use crate::config::Timing;
use nacre_role::DeviceCall;
use nacre_types::Time;
use std::time::Duration;

/// How long health continues to name a device that was slow once.
const REMEMBERED: Duration = Duration::from_secs(10);

/// The state of the device; see the module head.
#[derive(Debug, Default)]
pub struct DeviceWatch {
    text: String,
    /// When `text` was last true.
    at: Time,
    stalled: bool,
}

/// The consequences of an observation of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceNews {
    /// A beacon is due at once.
    pub tell: bool,
    /// Request to be marked down, now and with every further observation.
    pub stalled: bool,
    /// Withdraw that request.
    pub answers_again: bool,
}

impl DeviceWatch {
    /// An observation of the host: `call` is the oldest call in progress, or one that ended and
    /// took long.
    pub fn look(&mut self, now: Time, call: Option<&DeviceCall>, timing: &Timing) -> DeviceNews {
        let stalled = call.is_some_and(|call| !call.ended && call.age >= timing.device_stall);
        let mut news = DeviceNews {
            stalled,
            answers_again: self.stalled && !stalled,
            tell: self.stalled != stalled,
        };
        self.stalled = stalled;
        if let Some(call) = call.filter(|call| call.age >= timing.device_slow) {
            news.tell |= self.text.is_empty();
            self.text = call.to_text();
            self.at = now;
        }
        news
    }

    /// The text on the device for health; empty: none.
    pub fn text(&mut self, now: Time) -> String {
        if !self.stalled && now.since(self.at) > REMEMBERED {
            self.text.clear();
        }
        self.text.clone()
    }

    /// Whether it prevents us from serving.
    #[must_use]
    pub const fn is_stalled(&self) -> bool {
        self.stalled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flush(ms: u64, ended: bool) -> DeviceCall {
        DeviceCall {
            device: "/dev/x".to_owned(),
            what: "a flush",
            age: Duration::from_millis(ms),
            ended,
        }
    }

    #[test]
    fn a_device_is_quick_then_slow_then_stalled_and_comes_back() {
        let (mut watch, timing, at) = (DeviceWatch::default(), Timing::default(), |ms: u64| {
            Time(ms * 1_000_000)
        });
        assert_eq!(
            watch.look(at(1), Some(&flush(999, false)), &timing),
            DeviceNews::default()
        );
        assert_eq!(watch.text(at(1)), "");
        let news = watch.look(at(2), Some(&flush(1000, false)), &timing);
        assert_eq!(
            news,
            DeviceNews {
                tell: true,
                ..DeviceNews::default()
            }
        );
        assert!(
            watch
                .text(at(2))
                .contains("/dev/x: a flush has not ended for 1.0 s")
        );
        assert!(
            !watch.look(at(3), Some(&flush(1200, false)), &timing).tell,
            "told already"
        );
        let news = watch.look(at(4), Some(&flush(2000, false)), &timing);
        assert!(news.stalled && news.tell && watch.is_stalled());
        let news = watch.look(at(4), Some(&flush(2200, false)), &timing);
        assert!(news.stalled && !news.tell, "asked for again, told already");
        assert!(!watch.text(at(60_000)).is_empty(), "as long as it lasts");
        let news = watch.look(at(60_000), Some(&flush(58_000, true)), &timing);
        assert!(news.answers_again && !news.stalled && news.tell);
        assert!(watch.text(at(70_000)).contains("took 58.0 s"));
        assert_eq!(watch.text(at(70_001)), "");
    }
}
