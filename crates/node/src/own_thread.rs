//! A client's reactor on a thread of its own.

use crate::error::StartError;
use crate::reactor::Reactor;
use crate::slot::{block_on, slot};
use crate::wake::Waker;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// See the module head. When dropped, it ends the thread and waits for that.
pub struct OwnThread {
    stop: Arc<AtomicBool>,
    waker: Arc<Waker>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl OwnThread {
    /// Starts it; returns when the reactor exists. `make` is called on the thread, and so is `end`
    /// after the last turn, with what `make` has returned; a panic only drops that. `of` names the
    /// cluster or file system in errors.
    pub fn start<T>(
        (name, of): (&str, &Path),
        waker: Arc<Waker>,
        make: impl FnOnce() -> Result<(Reactor, T), StartError> + Send + 'static,
        end: impl FnOnce(Reactor, T) + Send + 'static,
    ) -> Result<Self, StartError> {
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = slot();
        let run = {
            let stop = stop.clone();
            move || {
                let (mut reactor, kept) = match make() {
                    Ok(made) => made,
                    Err(why) => return sender.send(Err(why)),
                };
                sender.send(Ok(()));
                while !stop.load(Ordering::SeqCst) {
                    reactor.turn(Duration::from_secs(1));
                    let _ = reactor.take_said();
                }
                end(reactor, kept);
            }
        };
        let failed = |error| StartError::Io {
            doing: "start a thread for",
            path: of.to_owned(),
            error,
        };
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(run)
            .map_err(failed)?;
        block_on(receiver).unwrap_or(Ok(()))?;
        Ok(Self {
            stop,
            waker,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Ends the thread soon; does not wait.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.waker.wake();
    }
}

impl Drop for OwnThread {
    fn drop(&mut self) {
        self.stop();
        let thread = self.thread.get_mut();
        // The last answer may be dropped on the thread itself.
        if let Some(thread) = thread.unwrap_or_else(PoisonError::into_inner).take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}
