//! Work that would block a role's thread for too long, for another thread of the host.
//!
//! A job contains everything that it depends on, so nothing can change under it, and has no effects
//! except its result: it may be run twice, or abandoned while it runs.

use nacre_policy::Patience;
use nacre_types::ClientId;
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// See the module head.
pub trait Job: Send + Sync {
    /// The client that requested it: hosts are fair to clients.
    fn client(&self) -> ClientId;
    /// Runs the job, with what this thread's earlier jobs have left in `tools`.
    fn run(&self, tools: &mut Tools) -> Done;
    /// The answer if the job cannot run: it had no effect, and the client may retry.
    fn not_done(&self, why: String) -> Done;
}

impl fmt::Debug for dyn Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Job({})", self.client())
    }
}

/// The result of a job; only the role that created the job knows its type.
pub struct Done(Box<dyn Any + Send>);

impl Done {
    /// Wraps a result.
    pub fn new<T: Send + 'static>(result: T) -> Self {
        Self(Box::new(result))
    }
    /// The result.
    ///
    /// # Panics
    /// When the job was of another type: the host gave it to the wrong role.
    #[must_use]
    pub fn into<T: 'static>(self) -> T {
        *self
            .0
            .downcast()
            .expect("results come back to the role that made the job")
    }
}

impl fmt::Debug for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Done")
    }
}

/// What a thread keeps between jobs: an interpreter is expensive to create.
#[derive(Default)]
pub struct Tools {
    patience: Option<Arc<dyn Patience>>,
    kept: Option<Box<dyn Any>>,
}

impl Tools {
    /// For a thread whose jobs are bounded by `patience`.
    #[must_use]
    pub fn with_patience(patience: Arc<dyn Patience>) -> Self {
        Self {
            patience: Some(patience),
            kept: None,
        }
    }

    /// The kept value if it is a `T`; otherwise the one created by `make`, which gets the thread's
    /// patience.
    pub fn get<T: 'static>(&mut self, make: impl FnOnce(Option<Arc<dyn Patience>>) -> T) -> &mut T {
        if !self.kept.as_ref().is_some_and(|kept| kept.is::<T>()) {
            self.kept = Some(Box::new(make(self.patience.clone())));
        }
        let kept = self.kept.as_mut().and_then(|kept| kept.downcast_mut());
        kept.expect("just made")
    }
}

impl fmt::Debug for Tools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tools")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_made_once_and_again_for_another_kind() {
        let mut tools = Tools::default();
        *tools.get(|_| 1_u32) += 1;
        assert_eq!(*tools.get(|_| 7_u32), 2);
        assert_eq!(tools.get(|_| "other".to_owned()), "other");
        assert_eq!(*tools.get(|_| 7_u32), 7, "one kind is kept");
    }

    #[test]
    #[should_panic(expected = "come back to the role that made the job")]
    fn a_result_of_another_kind_is_a_mistake() {
        let _: u64 = Done::new("text").into();
    }
}
