//! The cluster's free space in the pool of new files' data.
//!
//! ```text
//!  Ask::Room ─▶ waiting ─ each turn ─▶ ObjectCluster::room ─ new, or after WAIT ─▶ Given::Room
//! ```
//! The object client decides when the cluster is asked ([`nacre_client::Rooms`]); callers wait a
//! moment for its answer, and otherwise get the last known value.
//!
//! Invariant: a call ends at the latest with the first turn after [`WAIT`].

use super::*;
use nacre_client::Room;

/// How long a caller waits for a new value.
const WAIT: Duration = Duration::from_secs(2);

/// Calls that have begun, with their times.
#[derive(Debug, Default)]
pub(super) struct Fullness {
    waiting: Vec<(CallId, Time)>,
}

impl Fullness {
    pub fn next_deadline(&self) -> Time {
        self.waiting
            .first()
            .map_or(Time::MAX, |(_, since)| *since + WAIT)
    }
}

impl Fs {
    pub(super) fn wait_for_news_of_room(&mut self, call: CallId) {
        self.fullness.waiting.push((call, self.now));
    }
    /// Ends calls whose answer is known by now.
    pub(super) fn say_room(&mut self, objects: &mut dyn ObjectCluster) {
        if self.fullness.waiting.is_empty() {
            return;
        }
        let settings = self.seek.found().and_then(|found| found.settings.as_ref());
        // A removed file system has none: otherwise its calls would wait for ever, past their
        // deadline.
        let pool = settings.map(|settings| settings.layout.pool);
        let room = pool.map_or(Room::UNKNOWN, |pool| objects.room(self.now, pool));
        let (is_new, now) = (room.is_new, self.now);
        let ends = |(_, since): &mut (CallId, Time)| is_new || now.since(*since) >= WAIT;
        for (call, _) in self
            .fullness
            .waiting
            .extract_if(.., ends)
            .collect::<Vec<_>>()
        {
            self.end(call, Ok(Given::Room(room.free)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Client;
    use super::*;

    #[test]
    fn who_asks_for_room_is_told_what_is_new_or_what_was_known() {
        let mut client = Client::new();
        let old = Room {
            free: Some(7),
            is_new: false,
        };
        client.objects.fullness = Some(old);
        let (first, asked) = client.ask(Ask::Room);
        assert_eq!(
            (asked, client.ended()),
            (None, vec![]),
            "the server is not asked; news may come"
        );
        client.tick(WAIT / 2);
        let (second, _) = client.ask(Ask::Room);
        assert!(client.fs.next_deadline() <= client.now + WAIT / 2);
        client.tick(WAIT / 2);
        assert_eq!(
            client.ended(),
            [(first, Ok(Given::Room(Some(7))))],
            "it waits no longer"
        );
        client.objects.fullness = Some(Room {
            free: Some(8),
            is_new: true,
        });
        client.turn(None);
        assert_eq!(client.ended(), [(second, Ok(Given::Room(Some(8))))]);
        assert_eq!(
            client.objects.looked_at,
            Some(super::super::testing::LAYOUT.pool)
        );
        client.objects.fullness = None;
        let (third, _) = client.ask(Ask::Room);
        assert_eq!(
            client.ended(),
            [(third, Ok(Given::Room(None)))],
            "no cluster says it"
        );
        client.objects.fullness = Some(old);
        let (fourth, _) = client.ask(Ask::Room);
        client.remove_file_system();
        assert_eq!(
            client.ended(),
            [(fourth, Ok(Given::Room(None)))],
            "it is removed meanwhile"
        );
        assert!(client.fs.next_deadline() > client.now);
    }
}
