//! Errors of scripts: one type for compiling, running, and exceeding a limit.

use std::fmt;

/// Error numbers as Linux has them, for object interfaces and status codes (a status is negative).
pub mod errno {
    /// Not permitted: a read-only method wrote.
    pub const EPERM: i32 = 1;
    /// No such object, attribute, key or class.
    pub const ENOENT: i32 = 2;
    /// An error inside the script.
    pub const EIO: i32 = 5;
    /// Stopped by the host's clock; nothing happened, and it may be retried.
    pub const EAGAIN: i32 = 11;
    /// The call allocated too much.
    pub const ENOMEM: i32 = 12;
    /// It already exists.
    pub const EEXIST: i32 = 17;
    /// An invalid argument.
    pub const EINVAL: i32 = 22;
    /// The method was registered as read-only, and wrote.
    pub const EROFS: i32 = 30;
    /// A number cannot be represented exactly.
    pub const ERANGE: i32 = 34;
    /// Classes call each other too deeply.
    pub const ELOOP: i32 = 40;
    /// It existed and was removed for good.
    pub const EIDRM: i32 = 43;
    /// No such attribute.
    pub const ENODATA: i32 = 61;
    /// Out of instructions.
    pub const ETIME: i32 = 62;
    /// Output too long.
    pub const EMSGSIZE: i32 = 90;
    /// No such method.
    pub const EOPNOTSUPP: i32 = 95;
    /// The caller's view is out of date.
    pub const ESTALE: i32 = 116;
    /// A condition does not hold.
    pub const ECANCELED: i32 = 125;

    /// The names that scripts find in `objclass`: Ceph's, and those above.
    pub const NAMES: [(&str, i32); 40] = [
        ("EPERM", 1),
        ("ENOENT", 2),
        ("ESRCH", 3),
        ("EINTR", 4),
        ("EIO", 5),
        ("ENXIO", 6),
        ("E2BIG", 7),
        ("ENOEXEC", 8),
        ("EBADF", 9),
        ("ECHILD", 10),
        ("EAGAIN", 11),
        ("ENOMEM", 12),
        ("EACCES", 13),
        ("EFAULT", 14),
        ("EBUSY", 16),
        ("EEXIST", 17),
        ("EXDEV", 18),
        ("ENODEV", 19),
        ("ENOTDIR", 20),
        ("EISDIR", 21),
        ("EINVAL", 22),
        ("ENFILE", 23),
        ("EMFILE", 24),
        ("ENOTTY", 25),
        ("EFBIG", 27),
        ("ENOSPC", 28),
        ("ESPIPE", 29),
        ("EROFS", 30),
        ("EMLINK", 31),
        ("EPIPE", 32),
        ("EDOM", 33),
        ("ERANGE", 34),
        ("ELOOP", 40),
        ("EIDRM", 43),
        ("ENODATA", 61),
        ("ETIME", 62),
        ("EMSGSIZE", 90),
        ("EOPNOTSUPP", 95),
        ("ESTALE", 116),
        ("ECANCELED", 125),
    ];

    /// Name of an errno, for messages.
    #[must_use]
    pub fn name(number: i32) -> Option<&'static str> {
        NAMES
            .iter()
            .find(|(_, at)| *at == number)
            .map(|(name, _)| *name)
    }
}

/// Message for a method or entry function that a script does not have, after its name.
pub const NOT_REGISTERED: &str = "is not registered: a method is a global function that the script gives to objclass.register, an entry is a global function";

/// Why a script failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The text does not compile.
    Syntax,
    /// `error()`, a wrong type, a wrong argument.
    Runtime,
    /// An uncaught error of the object interface, or a method's negative return value: the errno,
    /// positive.
    Errno(i32),
    /// Out of instructions. The script cannot prevent it.
    Instructions,
    /// The host's clock ran out. It occurs only where there is a clock, and is never part of a
    /// program's semantics. Nothing happened; it may be retried.
    Clock,
    /// Out of memory. The VM is usable afterwards.
    Memory,
    /// Recursion too deep: Lua frames, C frames or classes.
    Depth,
    /// Output, log or text too long.
    Output,
    /// A number that cannot be represented exactly: beyond ±(2^53 - 1), a fraction where an integer
    /// is required, NaN.
    Number,
    /// No such class, method or entry function.
    Missing,
    /// The class declared the portable profile, or a method declared itself read-only, and it did
    /// otherwise.
    Profile,
}

impl Kind {
    /// The status of the class call: a negative errno.
    #[must_use]
    pub const fn status(self) -> i32 {
        -match self {
            Self::Syntax | Self::Runtime => errno::EIO,
            Self::Errno(number) => number,
            Self::Instructions => errno::ETIME,
            Self::Clock => errno::EAGAIN,
            Self::Memory => errno::ENOMEM,
            Self::Depth => errno::ELOOP,
            Self::Output => errno::EMSGSIZE,
            Self::Number => errno::ERANGE,
            Self::Missing => errno::EOPNOTSUPP,
            Self::Profile => errno::EPERM,
        }
    }
}

/// The failure of a script, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptError {
    /// Why.
    pub kind: Kind,
    /// Name of the chunk that failed, as [`Chunk`](crate::Chunk) was given it.
    pub script: String,
    /// Line in that chunk, from 1, where one is known.
    pub line: Option<u32>,
    /// The message without the place. At most [`MESSAGE_MAX`](crate::budget::MESSAGE_MAX) bytes.
    pub message: String,
    /// Whether the script raised it by `error` or `assert`; otherwise the runtime did.
    pub raised: bool,
    /// Frames, innermost first, such as `zlog:17 in function write`. Shortened to
    /// [`STACK_MAX`](crate::budget::STACK_MAX).
    pub stack: Vec<String>,
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.script, self.message),
            None => write!(f, "{}: {}", self.script, self.message),
        }
    }
}

impl std::error::Error for ScriptError {}
