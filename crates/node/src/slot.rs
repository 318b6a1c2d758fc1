//! A channel for one value from the reactor to a caller, which may be a thread or a task of any
//! executor.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

struct State<T> {
    value: Option<T>,
    waker: Option<Waker>,
    /// The sender was dropped without a value.
    broken: bool,
}

fn lock<T>(shared: &Arc<Mutex<State<T>>>) -> MutexGuard<'_, State<T>> {
    shared
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The sending end.
pub struct Sender<T>(Arc<Mutex<State<T>>>);
/// The receiving end, a future. `None`: the value will never arrive.
pub struct Receiver<T>(Arc<Mutex<State<T>>>);

/// Makes both ends.
pub fn slot<T>() -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Mutex::new(State {
        value: None,
        waker: None,
        broken: false,
    }));
    (Sender(shared.clone()), Receiver(shared))
}

impl<T> Sender<T> {
    pub fn send(self, value: T) {
        lock(&self.0).value = Some(value);
        // Dropping `self` wakes the receiver.
    }
    /// Whether the receiver still exists.
    pub fn is_awaited(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}
impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        state.broken = true;
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
impl<T> Future for Receiver<T> {
    type Output = Option<T>;
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = lock(&self.0);
        if state.value.is_some() || state.broken {
            return Poll::Ready(state.value.take());
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

struct Unpark(Thread);
impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread, blocking.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_crosses_threads_and_a_lost_sender_is_noticed() {
        let (sender, receiver) = slot();
        let thread = std::thread::spawn(move || sender.send(7));
        assert_eq!(block_on(receiver), Some(7));
        thread.join().expect("sends");
        let (sender, receiver) = slot::<u8>();
        drop(sender);
        assert_eq!(block_on(receiver), None);
    }

    /// Counts how often it is woken.
    #[derive(Default)]
    struct Bell(std::sync::atomic::AtomicUsize);
    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }

    fn pends<F: Future + Unpin>(future: &mut F, bell: &Arc<Bell>) -> bool {
        Pin::new(future)
            .poll(&mut Context::from_waker(&Waker::from(bell.clone())))
            .is_pending()
    }

    /// A task may be polled by another executor than the last time: the last one's waker is woken.
    /// The first one's waker was kept, and the task was not woken.
    #[test]
    fn who_polled_last_is_woken() {
        let bells = [Arc::<Bell>::default(), Arc::<Bell>::default()];
        let rung = |n: usize| bells[n].0.load(std::sync::atomic::Ordering::Relaxed);
        let (sender, mut receiver) = slot();
        assert!(pends(&mut receiver, &bells[0]) && pends(&mut receiver, &bells[1]));
        sender.send(7);
        assert_eq!((rung(0), rung(1)), (0, 1));
    }
}
