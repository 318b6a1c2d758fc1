//! One value on its way from the reactor to whoever asked, who may be a thread or a task of any executor.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

struct State<T> {
    value: Option<T>,
    waker: Option<Waker>,
    /// The sender is gone without a value.
    broken: bool,
}

fn lock<T>(shared: &Arc<Mutex<State<T>>>) -> MutexGuard<'_, State<T>> {
    shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Where the value is put.
pub struct Sender<T>(Arc<Mutex<State<T>>>);
/// Where it is awaited. `None`: it will never come.
pub struct Receiver<T>(Arc<Mutex<State<T>>>);

/// Both ends.
pub fn slot<T>() -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Mutex::new(State { value: None, waker: None, broken: false }));
    (Sender(shared.clone()), Receiver(shared))
}

impl<T> Sender<T> {
    pub fn send(self, value: T) {
        lock(&self.0).value = Some(value);
        // Dropping `self` wakes the receiver.
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

/// A bound on operations and bytes in flight: whoever comes too early waits, in order.
#[derive(Default)]
pub struct Gate {
    state: Mutex<GateState>,
}
#[derive(Default)]
struct GateState {
    ops: usize,
    bytes: u64,
    /// Numbers of those who wait, in order, and how to wake them.
    waiting: std::collections::BTreeMap<u64, Waker>,
    next: u64,
}

/// Operations and bytes of one facade in flight.
const OPS_MAX: usize = 512;
const BYTES_MAX: u64 = 64 << 20;

/// Room taken at a [`Gate`]; given back when dropped.
pub struct Permit {
    gate: Arc<Gate>,
    bytes: u64,
}

/// Waits for room.
pub struct Enter {
    gate: Arc<Gate>,
    bytes: u64,
    number: Option<u64>,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
    pub fn enter(self: &Arc<Self>, bytes: u64) -> Enter {
        Enter { gate: self.clone(), bytes, number: None }
    }
}
impl GateState {
    /// One operation is always let in: the largest must be possible.
    fn has_room(&self, bytes: u64) -> bool {
        self.ops == 0 || (self.ops < OPS_MAX && self.bytes + bytes <= BYTES_MAX)
    }
    fn wake_first(&self) {
        if let Some((_, waker)) = self.waiting.first_key_value() {
            waker.wake_by_ref();
        }
    }
}
impl Future for Enter {
    type Output = Permit;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Permit> {
        let this = &mut *self;
        let mut state = this.gate.lock();
        let first = state.waiting.first_key_value().map(|(number, _)| *number);
        let is_first = match this.number {
            None => first.is_none(),
            Some(_) => first == this.number,
        };
        if is_first && state.has_room(this.bytes) {
            if let Some(number) = this.number.take() {
                state.waiting.remove(&number);
            }
            state.ops += 1;
            state.bytes += this.bytes;
            state.wake_first();
            return Poll::Ready(Permit { gate: this.gate.clone(), bytes: this.bytes });
        }
        let next = &mut state.next;
        let number = *this.number.get_or_insert_with(|| {
            *next += 1;
            *next
        });
        state.waiting.insert(number, context.waker().clone());
        Poll::Pending
    }
}
impl Drop for Enter {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let mut state = self.gate.lock();
            state.waiting.remove(&number);
            state.wake_first();
        }
    }
}
impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        state.ops -= 1;
        state.bytes -= self.bytes;
        state.wake_first();
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

    /// The first of two waiters was woken, and its caller gave up before it came to run.
    /// Nothing else was in flight whose end would have woken anybody: the second one waited for ever.
    #[test]
    fn a_waiter_that_gives_up_when_it_is_woken_passes_it_on() {
        let gate = Arc::new(Gate::default());
        let all = block_on(gate.enter(BYTES_MAX));
        let bells = [Arc::<Bell>::default(), Arc::<Bell>::default()];
        let rung = |n: usize| bells[n].0.load(std::sync::atomic::Ordering::Relaxed);
        let poll = |enter: &mut Enter, n: usize| {
            Pin::new(enter).poll(&mut Context::from_waker(&Waker::from(bells[n].clone())))
        };
        let (mut first, mut second) = (gate.enter(1), gate.enter(1));
        assert!(poll(&mut first, 0).is_pending() && poll(&mut second, 1).is_pending());
        drop(all);
        assert_eq!((rung(0), rung(1)), (1, 0), "its turn");
        drop(first);
        assert_eq!(rung(1), 1, "it is the second one's turn now");
        assert!(poll(&mut second, 1).is_ready());
    }

    #[test]
    fn the_gate_lets_in_as_many_as_fit_and_then_waits() {
        let gate = Arc::new(Gate::default());
        let mut held: Vec<Permit> = (0..OPS_MAX).map(|_| block_on(gate.enter(1))).collect();
        let waiting = {
            let gate = gate.clone();
            std::thread::spawn(move || drop(block_on(gate.enter(1))))
        };
        while gate.lock().waiting.is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(gate.lock().ops, OPS_MAX, "nobody went past the bound");
        held.pop();
        waiting.join().expect("gets in once there is room");
        // The largest operation passes when it is alone, and only then.
        held.clear();
        let large = block_on(gate.enter(BYTES_MAX * 4));
        assert!(!gate.lock().has_room(0), "nothing goes beside it");
        drop(large);
        let state = gate.lock();
        assert_eq!((state.ops, state.bytes), (0, 0));
    }
}
