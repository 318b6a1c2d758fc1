//! Watching objects through the facade: a watch's events from the reactor, and the caller that
//! waits for them.
//!
//! ```text
//!  nacre_client::Client ──events──▶ Access ──▶ Hearing (one per watch) ──▶ Watcher::next
//! ```
//! Invariant: a hearing holds at most the unacknowledged notifies that the client role allows (64),
//! and one last event.

use crate::access::Port;
use crate::cluster::{Call, call};
use crate::error::Error;
use crate::slot::slot;
use bytes::Bytes;
use nacre_client::{WatchError, WatchEvent, WatchId};
use nacre_wire::msg::client::RequestId;
use nacre_wire::msg::watch::WatcherId;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};

#[derive(Default)]
struct State {
    id: Option<WatchId>,
    events: VecDeque<WatchEvent>,
    /// No more events follow.
    over: bool,
    waker: Option<Waker>,
}

/// See the module head.
#[derive(Default)]
pub struct Hearing(Mutex<State>);

impl Hearing {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
    /// The watch is registered.
    pub fn begin(&self, id: WatchId) {
        self.lock().id = Some(id);
    }
    /// Queues an event.
    pub fn push(&self, event: WatchEvent) {
        let mut state = self.lock();
        state.over |= matches!(event, WatchEvent::Lost { .. });
        state.events.push_back(event);
        Self::wake(state);
    }
    /// Ends the events.
    pub fn close(&self) {
        let mut state = self.lock();
        state.over = true;
        Self::wake(state);
    }
    fn wake(mut state: MutexGuard<'_, State>) {
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A watch of an object ([`crate::Pool::watch`]). Dropped, it ends.
pub struct Watcher {
    pub(crate) port: Arc<Port>,
    pub(crate) hearing: Arc<Hearing>,
}

impl Watcher {
    fn id(&self) -> WatchId {
        self.hearing.lock().id.expect("it was registered")
    }

    /// Waits for the next notify, or for [`WatchEvent::Lost`]: then notifies may have been missed;
    /// read the object again, and watch it again. One caller at a time. Pings are sent
    /// automatically, whether a caller waits or not.
    ///
    /// # Errors
    /// [`Error::Watch`] after the watch was lost; [`Error::Stopped`].
    pub fn next(&self) -> Call<'_, WatchEvent> {
        call(std::future::poll_fn(|context| {
            let mut state = self.hearing.lock();
            if let Some(event) = state.events.pop_front() {
                return Poll::Ready(Ok(event));
            }
            if state.over {
                return Poll::Ready(Err(match self.port.closed() {
                    Some(why) => Error::Stopped { why },
                    None => Error::Watch(WatchError::NoSuchWatch),
                }));
            }
            state.waker = Some(context.waker().clone());
            Poll::Pending
        }))
    }

    /// Acknowledges a notify, with at most 4096 bytes for the notifier. A watcher that does not
    /// acknowledge within the notifier's timeout loses its watch.
    ///
    /// # Errors
    /// [`Error::Watch`].
    pub fn ack(&self, notify: RequestId, reply: impl Into<Bytes>) -> Call<'_, ()> {
        let data = reply.into();
        call(async move {
            let (reply, receiver) = slot();
            self.port.call(crate::access::Call::Acknowledge {
                watch: self.id(),
                notify,
                data,
                reply,
            })?;
            receiver.await.ok_or_else(|| Error::Stopped {
                why: "its thread ended".to_owned(),
            })?
        })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // A stopped client has no watches any more.
        let _ = self
            .port
            .call(crate::access::Call::Unwatch { watch: self.id() });
    }
}

/// Result of a notify ([`crate::Pool::notify`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notified {
    /// Watchers that acknowledged, with their replies.
    pub acked: Vec<(WatcherId, Bytes)>,
    /// Watchers that did not in time. They lose their watches, and are told.
    pub missed: Vec<WatcherId>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future as _;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake};

    #[derive(Default)]
    struct Bell(AtomicUsize);
    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A caller that waits for a notify is woken by it, on the thread that last polled its task;
    /// and by the end, so that it does not wait for a client that has ended.
    #[test]
    fn who_polled_last_hears_of_it() {
        let port = Port::new(Arc::new(
            crate::wake::Waker::new().expect("an event counter"),
        ));
        let hearing = Arc::<Hearing>::default();
        hearing.begin(WatchId(7));
        let watcher = Watcher {
            port: port.clone(),
            hearing: hearing.clone(),
        };
        let bells = [Arc::<Bell>::default(), Arc::<Bell>::default()];
        let rung = |n: usize| bells[n].0.load(Ordering::Relaxed);
        let lost = WatchEvent::Lost {
            watch: WatchId(7),
            since: nacre_types::Time::ZERO,
        };
        let mut next = Box::pin(watcher.next());
        for bell in &bells {
            assert!(
                next.as_mut()
                    .poll(&mut Context::from_waker(&Waker::from(bell.clone())))
                    .is_pending()
            );
        }
        hearing.push(lost.clone());
        assert_eq!((rung(0), rung(1)), (0, 1));
        assert!(matches!(
            next.as_mut()
                .poll(&mut Context::from_waker(&Waker::from(bells[0].clone()))),
            Poll::Ready(Ok(_))
        ));
        drop(next);
        assert!(
            matches!(
                watcher.next().wait(),
                Err(Error::Watch(WatchError::NoSuchWatch))
            ),
            "and nothing more comes"
        );
    }

    /// (Planted by a reviewer: no caller was woken.) A caller that waits for a notify is told that
    /// its client has ended.
    #[test]
    fn who_waits_hears_that_its_client_is_gone() {
        let port = Port::new(Arc::new(
            crate::wake::Waker::new().expect("an event counter"),
        ));
        let hearing = Arc::<Hearing>::default();
        hearing.begin(WatchId(7));
        let watcher = Watcher {
            port: port.clone(),
            hearing: hearing.clone(),
        };
        let bell = Arc::<Bell>::default();
        let mut next = Box::pin(watcher.next());
        assert!(
            next.as_mut()
                .poll(&mut Context::from_waker(&Waker::from(bell.clone())))
                .is_pending()
        );
        hearing.close();
        assert_eq!(bell.0.load(Ordering::Relaxed), 1);
        assert!(matches!(
            next.as_mut()
                .poll(&mut Context::from_waker(&Waker::from(bell.clone()))),
            Poll::Ready(Err(_))
        ));
    }
}
