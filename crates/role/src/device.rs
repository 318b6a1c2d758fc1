//! A look at a store's device.

use std::time::Duration;

/// The oldest call of a device that has not ended, or one that just did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceCall {
    /// The device or file, for people.
    pub device: String,
    /// The call: "a flush", "a write" or "a read".
    pub what: &'static str,
    /// How long it took so far.
    pub age: Duration,
    /// Whether it ended.
    pub ended: bool,
}

impl DeviceCall {
    /// For people.
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
