//! The store behind [`Metadata`]: a thread of its own waits for the cluster.
//!
//! ```text
//!  submit, watch ─▶ channel ─▶ thread: MetaStore ── one call after the other
//!                      ▲            │           └── between them: a look for each watch, after a hint, or periodically
//!        poke ─────────┘            ▼
//!  done, news ◀── listen ◀── results ── wake ─▶ host
//! ```
//! Calls are executed in order. A temporarily refused call is retried until its caller gives up,
//! like with Nacre's own monitors.
//!
//! Invariants: a call ends once; a watch's reports come in the order of revisions; nothing is
//! reported for a cancelled watch.

use super::cursor::Cursor;
use super::place::Locate;
use super::store::MetaStore;
use nacre_client::{Driven, MetaDone, MetaFailure, MetaId, MetaWatchId, Metadata, Wake, WatchNews};
use nacre_types::Time;
use nacre_wire::msg::meta::{META_WINDOW, MetaCall, MetaError, MetaSpan};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Delay after a temporary refusal, and between two attempts to connect.
const AGAIN: Duration = Duration::from_millis(100);
const CONNECT_AGAIN: Duration = Duration::from_secs(1);
/// Interval of looks without watches.
const IDLE: Duration = Duration::from_secs(5);
/// How long a service that leaves waits for calls that have not ended.
const LEAVE_MAX: Duration = Duration::from_secs(5);

/// A message to the thread.
enum Ask {
    Call(u64, MetaCall),
    Watch(u64, MetaSpan, u64),
    Cancel(u64),
    /// The store's cluster has an event.
    Poke,
    /// No more messages follow.
    End,
}

/// The thread's results.
#[derive(Default)]
struct Heard {
    done: Vec<MetaDone>,
    news: Vec<(u64, WatchNews)>,
    said: Vec<String>,
}

struct Shared {
    heard: Mutex<Heard>,
    /// Whether there are results.
    ready: AtomicBool,
    /// Whether a poke is in flight.
    poked: AtomicBool,
    /// There is no reason to connect any more.
    leaving: AtomicBool,
    /// What waits for the cluster must be abandoned.
    ending: AtomicBool,
    wake: Wake,
}

impl Shared {
    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn say(&self, what: impl FnOnce(&mut Heard)) {
        what(&mut self.heard());
        self.ready.store(true, Ordering::SeqCst);
        (self.wake)();
    }
    fn is_ending(&self) -> bool {
        self.ending.load(Ordering::SeqCst)
    }
}

/// Wakes the thread when its store's cluster has an event: for [`crate::Ceph::waking`].
#[derive(Clone)]
pub struct Poke {
    shared: Arc<Shared>,
    asks: Sender<Ask>,
}

impl Poke {
    /// As a callback.
    #[must_use]
    pub fn wake(self) -> Wake {
        Arc::new(move || {
            if !self.shared.poked.swap(true, Ordering::SeqCst) {
                let _ = self.asks.send(Ask::Poke);
            }
        })
    }
}

/// See the module head.
pub struct Queued {
    shared: Arc<Shared>,
    asks: Sender<Ask>,
    thread: Option<JoinHandle<()>>,
    next: u64,
    next_watch: u64,
    /// Calls that have not ended as far as their caller knows.
    open: BTreeSet<u64>,
    watches: BTreeSet<u64>,
    done: Vec<MetaDone>,
    news: Vec<(MetaWatchId, WatchNews)>,
    said: Vec<String>,
    ended: u64,
}

impl Queued {
    /// Starts the thread, which calls `make` until it returns a store; its errors are reported.
    pub fn start<D: Driven, L: Locate>(
        wake: Wake,
        mut make: impl FnMut(Poke) -> Result<MetaStore<D, L>, String> + Send + 'static,
    ) -> Self {
        let (asks, asked) = channel();
        let shared = Arc::new(Shared {
            heard: Mutex::default(),
            ready: AtomicBool::new(false),
            poked: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            wake,
        });
        let poke = Poke {
            shared: shared.clone(),
            asks: asks.clone(),
        };
        let run = {
            let shared = shared.clone();
            move || {
                let mut said = String::new();
                loop {
                    match make(poke.clone()) {
                        Ok(store) => {
                            drop((make, poke));
                            return Thread {
                                store,
                                shared,
                                asked,
                                watches: BTreeMap::new(),
                                look_at: None,
                            }
                            .run();
                        }
                        Err(_) if shared.leaving.load(Ordering::SeqCst) => return,
                        Err(why) => {
                            if said != why {
                                shared.say(|heard| {
                                    heard.said.push(format!("no service metadata yet: {why}"))
                                });
                                said = why;
                            }
                            std::thread::park_timeout(CONNECT_AGAIN);
                        }
                    }
                }
            }
        };
        // Without threads there is no cluster: the machine has run out of them, or of memory.
        let thread = Builder::new()
            .name("nacre-meta".to_owned())
            .spawn(run)
            .expect("a thread can be started");
        let (done, news, said) = Default::default();
        let (open, watches) = (BTreeSet::new(), BTreeSet::new());
        Self {
            shared,
            asks,
            thread: Some(thread),
            next: 1,
            next_watch: 1,
            open,
            watches,
            done,
            news,
            said,
            ended: 0,
        }
    }

    /// Whether [`Self::listen`] has something to take.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.shared.ready.load(Ordering::SeqCst)
    }
    /// Takes the thread's results.
    pub fn listen(&mut self) {
        if !self.shared.ready.swap(false, Ordering::SeqCst) {
            return;
        }
        let Heard {
            done,
            news,
            mut said,
        } = std::mem::take(&mut *self.shared.heard());
        // Abandoned calls have already ended.
        let open = done.into_iter().filter(|done| self.open.remove(&done.id.0));
        self.done.extend(open);
        for (watch, news) in news {
            let is_there = match &news {
                WatchNews::Ended(_) => self.watches.remove(&watch),
                WatchNews::Events { .. } => self.watches.contains(&watch),
            };
            if is_there {
                self.news.push((MetaWatchId(watch), news));
            }
        }
        self.said.append(&mut said);
    }
    /// Number of calls that ended as soon as they were begun, or were abandoned.
    #[must_use]
    pub const fn ended(&self) -> u64 {
        self.ended
    }
    /// Takes its human-readable log lines.
    pub fn said(&mut self) -> Vec<String> {
        std::mem::take(&mut self.said)
    }
}

impl Metadata for Queued {
    fn submit(&mut self, _: Time, call: MetaCall) -> Option<MetaId> {
        if self.open.len() as u64 >= META_WINDOW {
            return None;
        }
        let id = self.next;
        self.next += 1;
        self.open.insert(id);
        // The thread only ends after this.
        let _ = self.asks.send(Ask::Call(id, call));
        Some(MetaId(id))
    }
    fn abandon(&mut self, id: MetaId) {
        if self.open.remove(&id.0) {
            self.ended += 1;
            self.done.push(MetaDone {
                id,
                revision: 0,
                result: Err(MetaFailure::Unknown(None)),
            });
        }
    }
    fn done(&mut self, into: &mut Vec<MetaDone>) {
        into.append(&mut self.done);
    }
    fn watch(&mut self, span: MetaSpan, from: u64) -> MetaWatchId {
        let id = self.next_watch;
        self.next_watch += 1;
        self.watches.insert(id);
        let _ = self.asks.send(Ask::Watch(id, span, from));
        MetaWatchId(id)
    }
    fn cancel(&mut self, watch: MetaWatchId) {
        if self.watches.remove(&watch.0) {
            let _ = self.asks.send(Ask::Cancel(watch.0));
        }
        self.news.retain(|(of, _)| *of != watch);
    }
    fn news(&mut self, into: &mut Vec<(MetaWatchId, WatchNews)>) {
        into.append(&mut self.news);
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        let _ = self.asks.send(Ask::End);
        self.shared.leaving.store(true, Ordering::SeqCst);
        let begun = Instant::now();
        let Some(thread) = self.thread.take() else {
            return;
        };
        thread.thread().unpark();
        // The last requests, such as giving back a lease, matter to others.
        while !thread.is_finished() && begun.elapsed() < LEAVE_MAX {
            std::thread::sleep(Duration::from_millis(2));
        }
        self.shared.ending.store(true, Ordering::SeqCst);
        if thread.is_finished() {
            let _ = thread.join();
        }
    }
}

/// The thread.
struct Thread<D: Driven, L> {
    store: MetaStore<D, L>,
    shared: Arc<Shared>,
    asked: Receiver<Ask>,
    watches: BTreeMap<u64, Cursor>,
    /// When watches look without a hint; `None`: now.
    look_at: Option<Instant>,
}

impl<D: Driven, L: Locate> Thread<D, L> {
    fn run(mut self) {
        loop {
            let now = Instant::now();
            let wait = match self.look_at {
                _ if self.watches.is_empty() => IDLE,
                None => Duration::ZERO,
                Some(at) => at.saturating_duration_since(now),
            };
            match self.asked.recv_timeout(wait) {
                Ok(Ask::Call(id, call)) => self.call(id, &call),
                Ok(Ask::Watch(id, span, from)) => {
                    self.watches.insert(id, Cursor::new(span, from));
                    self.look_at = None;
                    continue;
                }
                Ok(Ask::Cancel(id)) => drop(self.watches.remove(&id)),
                Ok(Ask::Poke) => {
                    self.shared.poked.store(false, Ordering::SeqCst);
                    if self.store.was_hinted() {
                        self.look_at = None;
                    }
                }
                Ok(Ask::End) | Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if self.look_at.is_none_or(|at| at <= Instant::now()) && !self.watches.is_empty() {
                self.look();
            }
        }
    }

    fn call(&mut self, id: u64, call: &MetaCall) {
        let result = loop {
            match self.store.call(call) {
                // It had no effect.
                Err(MetaFailure::Refused(MetaError::Unavailable { .. }))
                    if !self.shared.is_ending() =>
                {
                    std::thread::sleep(AGAIN);
                }
                other => break other,
            }
        };
        let (revision, result) = match result {
            Ok((revision, result)) => (revision, Ok(result)),
            Err(failure) => (0, Err(failure)),
        };
        self.shared.say(|heard| {
            heard.done.push(MetaDone {
                id: MetaId(id),
                revision,
                result,
            })
        });
    }

    /// Looks for each watch, and reports what it finds.
    fn look(&mut self) {
        for (id, cursor) in &mut self.watches {
            // What cannot be read now is read the next time.
            while let Ok(Some(news)) = self.store.news(cursor, Duration::ZERO) {
                self.shared.say(|heard| heard.news.push((*id, news)));
                if !cursor.is_behind() {
                    break;
                }
            }
        }
        self.watches.retain(|_, cursor| !cursor.has_ended());
        self.look_at = Some(Instant::now() + self.store.look_again());
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::{Fake, Here, world};
    use super::*;
    use crate::error::RadosError;
    use nacre_types::{ObjectId, PoolId};
    use nacre_wire::msg::meta::{MetaOp, MetaResult};

    const WAIT_MAX: Duration = Duration::from_secs(60);

    fn put(key: &str) -> MetaCall {
        let put = MetaOp::Put {
            key: key.into(),
            value: vec![1].into(),
            lease: 0,
        };
        MetaCall::Transact {
            compares: vec![],
            then: vec![put],
            otherwise: vec![],
        }
    }
    /// With one in-memory object; also returns how often its host was woken.
    fn queued() -> (Queued, Receiver<()>) {
        let (sender, woken) = channel();
        let wake: Wake = Arc::new(move || sender.send(()).unwrap_or(()));
        let make = |_: Poke| {
            let world = world();
            Ok(MetaStore::new(
                Fake::new(&world),
                Here(world.clone()),
                "admin",
            ))
        };
        (Queued::start(wake, make), woken)
    }
    fn until<T>(
        queued: &mut Queued,
        woken: &Receiver<()>,
        mut found: impl FnMut(&mut Queued) -> Option<T>,
    ) -> T {
        loop {
            woken.recv_timeout(WAIT_MAX).expect("its host is woken");
            queued.listen();
            if let Some(found) = found(queued) {
                return found;
            }
        }
    }

    /// Fails when a host is woken before there is something to take.
    #[test]
    fn calls_end_in_order_and_watches_tell_what_they_did() {
        let (mut queued, woken) = queued();
        let watch = queued.watch(
            MetaSpan::Prefix {
                prefix: "a/".into(),
            },
            1,
        );
        let ids: Vec<MetaId> = (0..5)
            .map(|n| {
                queued
                    .submit(Time(0), put(&format!("a/{n}")))
                    .expect("room")
            })
            .collect();
        let (mut done, mut keys) = (Vec::new(), Vec::new());
        until(&mut queued, &woken, |queued| {
            queued.done(&mut done);
            let mut news = Vec::new();
            queued.news(&mut news);
            for (of, news) in news {
                assert_eq!(of, watch);
                let WatchNews::Events { events, .. } = news else {
                    panic!("{news:?}")
                };
                keys.extend(events.iter().map(|event| event.key().to_string()));
            }
            (done.len() == 5 && keys.len() == 5).then_some(())
        });
        assert_eq!(done.iter().map(|done| done.id).collect::<Vec<_>>(), ids);
        assert_eq!(
            done.iter().map(|done| done.revision).collect::<Vec<_>>(),
            [1, 2, 3, 4, 5]
        );
        assert_eq!(keys, ["a/0", "a/1", "a/2", "a/3", "a/4"]);
        queued.cancel(watch);
        queued.submit(Time(0), put("a/5")).expect("room");
        until(&mut queued, &woken, |queued| {
            let mut done = Vec::new();
            queued.done(&mut done);
            done.pop()
        });
        let mut news = Vec::new();
        queued.news(&mut news);
        assert!(news.is_empty(), "it was cancelled: {news:?}");
    }

    #[test]
    fn what_is_given_up_ends_at_once_and_only_once_and_the_window_is_bounded() {
        let (mut queued, woken) = queued();
        let given_up = queued.submit(Time(0), put("a/0")).expect("room");
        queued.abandon(given_up);
        let mut done = Vec::new();
        queued.done(&mut done);
        assert!(
            matches!(&done[..], [MetaDone { id, result: Err(MetaFailure::Unknown(_)), .. }] if *id == given_up)
        );
        assert_eq!(queued.ended(), 1, "its host looks again");
        let last = queued.submit(Time(0), put("a/1")).expect("room");
        let ended = until(&mut queued, &woken, |queued| {
            let mut done = Vec::new();
            queued.done(&mut done);
            done.pop()
        });
        assert_eq!(
            (ended.id, ended.revision),
            (last, 2),
            "it happened all the same"
        );
        let taken = (0..2 * META_WINDOW)
            .map_while(|_| queued.submit(Time(0), put("a/k")))
            .count();
        assert_eq!(taken as u64, META_WINDOW);
    }

    /// Refuses until the cluster has been asked three times.
    struct Late(u32);
    impl Locate for Late {
        fn find(&mut self) -> Result<Option<(PoolId, ObjectId)>, RadosError> {
            self.0 += 1;
            let found = Some((PoolId(1), ObjectId::named("meta")));
            let why = RadosError {
                code: 5,
                why: "not yet".to_owned(),
            };
            if self.0 < 4 { Err(why) } else { Ok(found) }
        }
        fn make(&mut self) -> Result<(PoolId, ObjectId), RadosError> {
            unreachable!("it is found")
        }
    }

    #[test]
    fn what_is_refused_for_the_moment_is_tried_again_and_so_is_connecting() {
        let (sender, woken) = channel();
        let mut failures = 1;
        let mut queued =
            Queued::start(Arc::new(move || sender.send(()).unwrap_or(())), move |_| {
                failures -= 1;
                if failures >= 0 {
                    Err("no monitor".to_owned())
                } else {
                    Ok(MetaStore::new(Fake::new(&world()), Late(0), "a"))
                }
            });
        let grant = queued
            .submit(Time(0), MetaCall::Grant { ttl_ms: 3_000 })
            .expect("room");
        let (mut said, mut done) = (Vec::new(), Vec::new());
        until(&mut queued, &woken, |queued| {
            said.append(&mut queued.said());
            queued.done(&mut done);
            done.pop().map(|done| {
                assert!(matches!(done.result, Ok(MetaResult::Granted { .. })) && done.id == grant)
            })
        });
        assert_eq!(said, ["no service metadata yet: no monitor"]);
    }

    #[test]
    fn what_was_asked_before_the_end_is_done() {
        let (sender, _woken) = channel();
        let seen = Arc::new(Mutex::new(0));
        let at_end = seen.clone();
        /// Records what there is when it is dropped.
        struct Last(super::super::fake::Shared, Arc<Mutex<u64>>);
        impl Drop for Last {
            fn drop(&mut self) {
                *self.1.lock().expect("one thread") = self
                    .0
                    .borrow()
                    .object
                    .as_ref()
                    .map_or(0, |object| object.version.number);
            }
        }
        impl Locate for Last {
            fn find(&mut self) -> Result<Option<(PoolId, ObjectId)>, RadosError> {
                Ok(Some((PoolId(1), ObjectId::named("meta"))))
            }
            fn make(&mut self) -> Result<(PoolId, ObjectId), RadosError> {
                unreachable!("it is found")
            }
        }
        let mut queued =
            Queued::start(Arc::new(move || sender.send(()).unwrap_or(())), move |_| {
                let world = world();
                Ok(MetaStore::new(
                    Fake::new(&world),
                    Last(world.clone(), at_end.clone()),
                    "a",
                ))
            });
        for n in 0..20 {
            queued
                .submit(Time(0), put(&format!("a/{n}")))
                .expect("room");
        }
        drop(queued);
        assert_eq!(*seen.lock().expect("it has ended"), 20);
    }
}
