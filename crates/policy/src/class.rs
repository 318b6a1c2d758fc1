//! Classes by name, in Lua or in Rust, and the inputs and outputs of a class call (MAL-20, MAL-22,
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
    /// Version number: it grows with every installation and every rollback. Built-in classes have
    /// 0.
    pub activation: u64,
    /// Its code.
    pub code: ClassRef,
}

/// The set of classes at one moment. The host keeps it behind an `Arc`, replaces it as a whole, and
/// passes it with each call, so that all classes of one call are from the same moment.
#[derive(Clone, Debug, Default)]
pub struct Classes {
    by_name: BTreeMap<String, Class>,
}

impl Classes {
    /// Adds or replaces a class.
    pub fn insert(&mut self, name: &str, activation: u64, code: ClassRef) {
        self.by_name
            .insert(name.to_owned(), Class { activation, code });
    }
    /// Removes a class; returns whether it existed.
    pub fn remove(&mut self, name: &str) -> bool {
        self.by_name.remove(name).is_some()
    }
    /// The class with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Class> {
        self.by_name.get(name)
    }
    /// All classes, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Class)> {
        self.by_name
            .iter()
            .map(|(name, class)| (name.as_str(), class))
    }
}

/// The facts about a request that a class may see: client, object and time. All come from the
/// operation, none from the machine it runs on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The client's name, or its number such as `client.17` if it gave none. Never empty.
    pub client: Arc<str>,
    /// Name of the object.
    pub object: Bytes,
    /// Time of the operation, in nanoseconds since 1970.
    pub now_ns: u64,
    /// Index of this call in its compound operation, from 0.
    pub subop: u32,
    /// Seed of `math.random`. The same seed gives the same numbers.
    pub seed: u64,
}

/// One call of a method.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    /// The current classes.
    pub classes: &'a Arc<Classes>,
    /// What to run.
    pub target: Target<'a>,
    /// Name of the method.
    pub method: &'a str,
    /// Its input.
    pub input: Bytes,
    /// The request's facts.
    pub request: &'a Request,
    /// Its limits.
    pub budget: &'a Budget,
}

/// What a call runs.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// An installed class, by name.
    Class(&'a str),
    /// A script that came with the call (Ceph's `lua.eval_json`): its method must be registered
    /// like that of a class.
    Eval(&'a Chunk),
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq)]
pub enum CallEnd {
    /// It ran to its end, or failed: see the status.
    Done(CallOutcome),
    /// The object answered [`Stop::Wait`]: drop the effects, fetch the data, run the call again
    /// from its beginning.
    Wait,
}

/// The result of a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallOutcome {
    /// Zero or positive: the method's return value, and the host commits. Negative: an errno, and
    /// the host drops every effect of the call.
    pub status: i32,
    /// The method's output. Empty if the status is negative.
    pub output: Bytes,
    /// Lines of `objclass.log` and `print`, also those of failed calls.
    pub log: Vec<(Severity, String)>,
    /// Instructions used; if the budget ran out, more than the budget by less than one operation's
    /// charge.
    pub instructions: u64,
    /// Peak of bytes held, sampled at safepoints. It depends on what the VM did before: a
    /// measurement, not a result.
    pub memory_peak: usize,
    /// Whether it changed the object (even if the change will be dropped).
    pub wrote: bool,
    /// Activation number of the class that ran; 0 for built-in classes and scripts that came with
    /// the call.
    pub activation: u64,
    /// Why the status is negative.
    pub error: Option<ScriptError>,
}

/// A class in Rust, called in the same way as one in Lua.
pub trait NativeClass: Send + Sync {
    /// The flags of a method, before it runs. `None`: there is no such method (`EOPNOTSUPP`).
    fn method(&self, name: &str) -> Option<MethodFlags>;

    /// Runs a method for which [`method`](Self::method) returned flags. `Ok` is a status (zero or
    /// positive; a negative one is an errno) and the output.
    ///
    /// # Errors
    /// The object's answer, or an errno of the class.
    fn call(
        &self,
        method: &str,
        input: Bytes,
        context: &mut Context<'_>,
    ) -> Result<(i32, Bytes), Stop>;
}

/// The flags with which a method was registered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MethodFlags {
    /// It changes nothing: a write is refused with `EROFS`.
    pub read_only: bool,
}

/// The environment of a native method.
pub struct Context<'a> {
    /// The object.
    pub object: &'a mut dyn Object,
    /// The request's facts.
    pub request: &'a Request,
    /// Takes log lines.
    pub log: &'a mut Vec<(Severity, String)>,
    pub(crate) classes: &'a Arc<Classes>,
    pub(crate) depth_left: u32,
}

impl Context<'_> {
    /// Calls a method of another native class on the same object. Its effects are part of this
    /// call's, even if it fails after it wrote: in that case return the error. (For Lua this is
    /// enforced; Rust is trusted.)
    ///
    /// # Errors
    /// The callee's error; `EOPNOTSUPP` for an unknown method and for classes in Lua (a Lua class
    /// may call a native one, but not the reverse); `ELOOP` if class calls nest too deeply.
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
