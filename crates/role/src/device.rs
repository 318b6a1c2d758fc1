//! The state of a store's device.

use std::time::Duration;

/// A device's oldest call that has not ended, or one that just ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceCall {
    /// The device or file, human-readable.
    pub device: String,
    /// The call: "a flush", "a write" or "a read".
    pub what: &'static str,
    /// How long it has taken so far.
    pub age: Duration,
    /// Whether it ended.
    pub ended: bool,
}

impl DeviceCall {
    /// A human-readable description.
    #[must_use]
    pub fn to_text(&self) -> String {
        let Self {
            device,
            what,
            age,
            ended,
        } = self;
        let seconds = age.as_secs_f64();
        match ended {
            false => format!("device {device}: {what} has not ended for {seconds:.1} s"),
            true => format!("device {device}: {what} took {seconds:.1} s"),
        }
    }
}
