//! Classes by name, in Lua or in Rust, and what a call of one is and gives back (MAL-20, MAL-22,
//! MAL-26).

use crate::error::{ScriptError, errno};
use crate::object::{Object, Severity, Stop};
use crate::{Budget, Chunk};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Code of a class.
#[derive(Clone)]
pub enum ClassRef {
    /// In Lua.
    Lua(Chunk),
    /// In Rust.
    Native(Arc<dyn NativeClass>),
}

impl fmt::Debug for ClassRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lua(chunk) => write!(f, "Lua({}, {:016x})", chunk.name(), chunk.fingerprint()),
            Self::Native(_) => f.write_str("Native"),
        }
    }
}

/// One version of a class.
#[derive(Clone, Debug)]
pub struct Class {
    /// Which version: grows with every installation and every rollback. Built-in classes have 0.
    pub activation: u64,
    /// Its code.
    pub code: ClassRef,
}

/// The classes of one moment. The host keeps it behind an `Arc`, replaces it as a whole, and gives
/// it with each call: all classes of one call are of one moment.
#[derive(Clone, Debug, Default)]
pub struct Classes {
    by_name: BTreeMap<String, Class>,
}

impl Classes {
    /// Adds or replaces one.
    pub fn insert(&mut self, name: &str, activation: u64, code: ClassRef) {
        self.by_name
            .insert(name.to_owned(), Class { activation, code });
    }
    /// Takes one out; whether it was there.
    pub fn remove(&mut self, name: &str) -> bool {
        self.by_name.remove(name).is_some()
    }
    /// One by name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Class> {
        self.by_name.get(name)
    }
    /// All, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Class)> {
        self.by_name
            .iter()
            .map(|(name, class)| (name.as_str(), class))
    }
}

/// Who asks, for what, when: the facts of a request that a class may look at. All come from the
/// operation, none from the machine it runs on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The client's name, or its number such as `client.17` if it gave none. Never empty.
    pub client: Arc<str>,
    /// Name of the object.
    pub object: Bytes,
    /// Time of the operation, in nanoseconds since 1970.
    pub now_ns: u64,
    /// Place of this call in its compound operation, from 0.
    pub subop: u32,
    /// Seed of `math.random`. The same seed, the same numbers.
    pub seed: u64,
}

/// One call of a method.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    /// The classes of the moment.
    pub classes: &'a Arc<Classes>,
    /// What to run.
    pub target: Target<'a>,
    /// Name of the method.
    pub method: &'a str,
    /// Its input.
    pub input: Bytes,
    /// Who asks.
    pub request: &'a Request,
    /// Its bounds.
    pub budget: &'a Budget,
}

/// What a call runs.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// An installed class, by name.
    Class(&'a str),
    /// A script that came with the call (Ceph's `lua.eval_json`): its method must be registered
    /// like a class's.
    Eval(&'a Chunk),
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq)]
pub enum CallEnd {
    /// It ran to its end, or failed: see the status.
    Done(CallOutcome),
    /// The object answered [`Stop::Wait`]: drop the effects, fetch, run again from the beginning.
    Wait,
}

/// What a call gives back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallOutcome {
    /// Zero or positive: what the method returned, and the host commits. Negative: an errno, and
    /// the host drops every effect of the call.
    pub status: i32,
    /// What the method put into its output. Empty if the status is negative.
    pub output: Bytes,
    /// Lines of `objclass.log` and `print`, also of failed calls.
    pub log: Vec<(Severity, String)>,
    /// Instructions used; more than the budget by less than one operation's charge if it ran out.
    pub instructions: u64,
    /// Most bytes held at once, as seen at safepoints. Depends on what the VM did before: a
    /// measure, not a result.
    pub memory_peak: usize,
    /// Whether it changed the object (also if the change is to be dropped).
    pub wrote: bool,
    /// Activation number of the class that ran; 0 for built-in classes and scripts that came with
    /// the call.
    pub activation: u64,
    /// Why the status is negative.
    pub error: Option<ScriptError>,
}

/// A class in Rust, called in the same way as one in Lua.
pub trait NativeClass: Send + Sync {
    /// What a method does, before it runs. `None`: there is no such method (`EOPNOTSUPP`).
    fn method(&self, name: &str) -> Option<MethodFlags>;

    /// Runs a method that [`method`](Self::method) knows. `Ok` is a status (zero or positive; a
    /// negative one is an errno, too) and the output.
    ///
    /// # Errors
    /// What the object answered, or the class's own errno.
    fn call(
        &self,
        method: &str,
        input: Bytes,
        context: &mut Context<'_>,
    ) -> Result<(i32, Bytes), Stop>;
}

/// What a method promised as it was registered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MethodFlags {
    /// It changes nothing: a write is refused with `EROFS`.
    pub read_only: bool,
}

/// What a native method works with.
pub struct Context<'a> {
    /// The object.
    pub object: &'a mut dyn Object,
    /// Who asks.
    pub request: &'a Request,
    /// Takes log lines.
    pub log: &'a mut Vec<(Severity, String)>,
    pub(crate) classes: &'a Arc<Classes>,
    pub(crate) depth_left: u32,
}

impl Context<'_> {
    /// Calls a method of another native class on the same object. Its effects are part of this
    /// call's, also if it fails after it wrote: pass the error on then. (Lua is held to that; Rust
    /// is trusted.)
    ///
    /// # Errors
    /// What the method failed with; `EOPNOTSUPP` for an unknown method and for classes in Lua (a
    /// Lua class may call a native one, not the other way round); `ELOOP` if classes call each
    /// other too deeply.
    pub fn call(&mut self, class: &str, method: &str, input: Bytes) -> Result<(i32, Bytes), Stop> {
        let Some(ClassRef::Native(callee)) = self.classes.get(class).map(|class| &class.code)
        else {
            return Err(Stop::Errno(errno::EOPNOTSUPP));
        };
        let flags = callee
            .method(method)
            .ok_or(Stop::Errno(errno::EOPNOTSUPP))?;
        let depth_left = self
            .depth_left
            .checked_sub(1)
            .ok_or(Stop::Errno(errno::ELOOP))?;
        crate::guard::run_native(
            &**callee,
            flags,
            method,
            input,
            &mut Context {
                depth_left,
                ..self.reborrow()
            },
        )
    }

    fn reborrow(&mut self) -> Context<'_> {
        Context {
            object: &mut *self.object,
            request: self.request,
            log: &mut *self.log,
            classes: self.classes,
            depth_left: self.depth_left,
        }
    }
}
