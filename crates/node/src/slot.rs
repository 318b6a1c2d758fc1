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

/// A limit of operations and bytes in flight: callers beyond it wait, in order.
#[derive(Default)]
pub struct Gate {
    state: Mutex<GateState>,
}
#[derive(Default)]
struct GateState {
    ops: usize,
    bytes: u64,
    /// Numbers of waiting callers, in order, with their wakers.
    waiting: std::collections::BTreeMap<u64, Waker>,
    next: u64,
}

/// Maximum number of operations of one facade in flight.
const OPS_MAX: usize = 512;
const BYTES_MAX: u64 = 64 << 20;

/// Capacity acquired at a [`Gate`]; released when dropped.
pub struct Permit {
    gate: Arc<Gate>,
    bytes: u64,
}

/// Waits for capacity.
pub struct Enter {
    gate: Arc<Gate>,
    bytes: u64,
    number: Option<u64>,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
    pub fn enter(self: &Arc<Self>, bytes: u64) -> Enter {
        Enter {
            gate: self.clone(),
            bytes,
            number: None,
        }
    }
}
impl GateState {
    /// One operation is always admitted: the largest must be possible.
    fn has_room(&self, bytes: u64) -> bool {
        self.ops == 0 || (self.ops < OPS_MAX && self.bytes + bytes <= BYTES_MAX)
    }
    /// The waker to call once the lock is released: a waker may poll, or drop, a waiting future at
    /// once.
    fn first(&self) -> Option<Waker> {
        self.waiting
            .first_key_value()
            .map(|(_, waker)| waker.clone())
    }
}
fn wake(waiter: Option<Waker>) {
    if let Some(waker) = waiter {
        waker.wake();
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
            let next = state.first();
            drop(state);
            wake(next);
            return Poll::Ready(Permit {
                gate: this.gate.clone(),
                bytes: this.bytes,
            });
        }
        let next = &mut state.next;
        let number = *this.number.get_or_insert_with(|| {
            *next += 1;
            *next
        });
        let before = state.waiting.insert(number, context.waker().clone());
        drop(state);
        drop(before);
        Poll::Pending
    }
}
impl Drop for Enter {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let mut state = self.gate.lock();
            let gone = state.waiting.remove(&number);
            let next = state.first();
            drop(state);
            drop(gone);
            wake(next);
        }
    }
}
impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        state.ops -= 1;
        state.bytes -= self.bytes;
        let next = state.first();
        drop(state);
        wake(next);
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

    /// The first of two waiters was woken, and its caller gave up before it ran. Nothing else was
    /// in flight whose end would have woken the second one: it waited for ever.
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
        assert_eq!((rung(0), rung(1)), (0, 1), "a slot");
        let gate = Arc::new(Gate::default());
        let all = block_on(gate.enter(BYTES_MAX));
        let mut waits = gate.enter(1);
        assert!(pends(&mut waits, &bells[0]) && pends(&mut waits, &bells[1]));
        drop(all);
        assert_eq!((rung(0), rung(1)), (0, 2), "a gate");
    }

    /// For any sequence of arrivals, ends and cancellations: waiters are woken when there is
    /// capacity, in order, and the counters match the operations inside. (Only the first of two
    /// small ones was woken when a large one left: the other waited for nothing.)
    #[test]
    fn whoever_there_is_room_for_is_woken() {
        for seed in 1..200_u64 {
            let mut dice = seed;
            let mut below = |n: u64| {
                dice = dice
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (dice >> 33) % n
            };
            let gate = Arc::new(Gate::default());
            let mut inside: Vec<Permit> = Vec::new();
            let mut waiting: Vec<(Enter, Arc<Bell>, usize)> = Vec::new();
            for step in 0..300 {
                match below(5) {
                    0..2 => {
                        let bytes = [1, BYTES_MAX / 3, BYTES_MAX / 2, BYTES_MAX, 2 * BYTES_MAX]
                            [below(5) as usize];
                        let (mut enter, bell) = (gate.enter(bytes), Arc::<Bell>::default());
                        match Pin::new(&mut enter)
                            .poll(&mut Context::from_waker(&Waker::from(bell.clone())))
                        {
                            Poll::Ready(permit) => {
                                assert!(waiting.is_empty(), "it overtakes who waits");
                                inside.push(permit);
                            }
                            Poll::Pending => waiting.push((enter, bell, 0)),
                        }
                    }
                    2..4 if !inside.is_empty() => {
                        drop(inside.swap_remove(below(inside.len() as u64) as usize))
                    }
                    4 if !waiting.is_empty() => {
                        drop(waiting.remove(below(waiting.len() as u64) as usize))
                    }
                    _ => {}
                }
                let rung = |bell: &Bell| bell.0.load(std::sync::atomic::Ordering::Relaxed);
                while let Some(at) = waiting
                    .iter()
                    .position(|(_, bell, heard)| rung(bell) > *heard)
                {
                    let (enter, bell, heard) = &mut waiting[at];
                    *heard = rung(bell);
                    let polled =
                        Pin::new(enter).poll(&mut Context::from_waker(&Waker::from(bell.clone())));
                    if let Poll::Ready(permit) = polled {
                        assert_eq!(at, 0, "in order");
                        inside.push(permit);
                        drop(waiting.remove(0));
                    }
                }
                let state = gate.lock();
                let fits = waiting
                    .first()
                    .is_some_and(|(enter, ..)| state.has_room(enter.bytes));
                assert!(
                    !fits,
                    "seed {seed}, step {step}: there is room, and nobody woke who waits for it"
                );
                let bytes = inside.iter().map(|permit| permit.bytes).sum();
                assert_eq!(
                    (state.ops, state.bytes, state.waiting.len()),
                    (inside.len(), bytes, waiting.len())
                );
            }
        }
    }

    /// A waker may drop the task that it wakes, and with it a waiting future: the lock was held
    /// meanwhile, and the thread deadlocked.
    #[test]
    fn a_waker_may_drop_what_waits() {
        struct Dropper(Mutex<Option<Enter>>);
        impl Wake for Dropper {
            fn wake(self: Arc<Self>) {
                drop(self.0.lock().expect("one at a time").take());
            }
        }
        let (done, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let gate = Arc::new(Gate::default());
            let all = block_on(gate.enter(BYTES_MAX));
            let dropper = Arc::new(Dropper(Mutex::new(None)));
            let mut waits = gate.enter(1);
            let waker = Waker::from(dropper.clone());
            assert!(
                Pin::new(&mut waits)
                    .poll(&mut Context::from_waker(&waker))
                    .is_pending()
            );
            *dropper.0.lock().expect("one at a time") = Some(waits);
            drop(all);
            let _ = done.send(gate.lock().waiting.len());
        });
        let left = ended.recv_timeout(std::time::Duration::from_mins(1));
        assert_eq!(left, Ok(0), "it hangs, or leaves what is gone in its queue");
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
        // The largest operation is admitted when it is alone, and only then.
        held.clear();
        let large = block_on(gate.enter(BYTES_MAX * 4));
        assert!(!gate.lock().has_room(0), "nothing goes beside it");
        drop(large);
        let state = gate.lock();
        assert_eq!((state.ops, state.bytes), (0, 0));
    }
}
