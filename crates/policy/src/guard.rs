//! Checks between a class and its object: counts writes, and enforces a method's flags.

use crate::class::{Context, MethodFlags, NativeClass};
use crate::error::errno;
use crate::object::{Object, Page, Stat, Stop};
use bytes::Bytes;

/// What the running method may do, and what the call has done so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    /// This method, or one that called it, is registered as read-only.
    pub read_only: bool,
    /// The running class has the portable profile.
    pub portable: bool,
    /// The object answered [`Stop::Wait`]: the call is over, even if a native class hides that
    /// answer.
    pub waited: bool,
    /// Writes so far, by all classes of the call.
    pub writes: u64,
    /// What a portable class did that behaves differently on Ceph. It ends the call.
    pub unportable: Option<&'static str>,
}

/// An object with the rules applied to it.
pub(crate) struct Guard<'a> {
    pub object: &'a mut dyn Object,
    pub rules: &'a mut Rules,
}

impl Guard<'_> {
    fn reading<T>(
        &mut self,
        read: impl FnOnce(&mut dyn Object) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        if self.rules.portable && self.rules.writes > 0 {
            self.rules.unportable = Some(
                "it reads after a write of its own: Ceph shows the old state, Nacre the new; read first, or use --!profile luau",
            );
            return Err(Stop::Errno(errno::EPERM));
        }
        let result = read(self.object);
        self.noting(result)
    }

    fn writing(
        &mut self,
        write: impl FnOnce(&mut dyn Object) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        if self.rules.read_only {
            return Err(Stop::Errno(errno::EROFS));
        }
        let result = write(self.object);
        self.noting(result)?;
        self.rules.writes += 1;
        Ok(())
    }

    fn noting<T>(&mut self, result: Result<T, Stop>) -> Result<T, Stop> {
        self.rules.waited |= matches!(result, Err(Stop::Wait));
        result
    }
}

/// Runs a method in Rust under its flags.
pub(crate) fn run_native(
    class: &dyn NativeClass,
    flags: MethodFlags,
    method: &str,
    input: Bytes,
    context: &mut Context<'_>,
) -> Result<(i32, Bytes), Stop> {
    let mut rules = Rules {
        read_only: flags.read_only,
        ..Rules::default()
    };
    let mut guard = Guard {
        object: &mut *context.object,
        rules: &mut rules,
    };
    let mut inner = Context {
        object: &mut guard,
        request: context.request,
        log: &mut *context.log,
        classes: context.classes,
        depth_left: context.depth_left,
    };
    match class.call(method, input, &mut inner)? {
        (status, _) if status < 0 => Err(Stop::Errno(status.saturating_neg())),
        done => Ok(done),
    }
}

impl Object for Guard<'_> {
    fn exists(&mut self) -> Result<bool, Stop> {
        self.reading(|object| object.exists())
    }
    fn stat(&mut self) -> Result<Stat, Stop> {
        self.reading(|object| object.stat())
    }
    fn read(&mut self, offset: u64, length: u64) -> Result<Bytes, Stop> {
        self.reading(|object| object.read(offset, length))
    }
    fn checksum(&mut self, offset: u64, length: u64) -> Result<u32, Stop> {
        self.reading(|object| object.checksum(offset, length))
    }
    fn getxattr(&mut self, name: &[u8]) -> Result<Bytes, Stop> {
        self.reading(|object| object.getxattr(name))
    }
    fn getxattrs(&mut self) -> Result<Vec<(Bytes, Bytes)>, Stop> {
        self.reading(|object| object.getxattrs())
    }
    fn map_get_val(&mut self, key: &[u8]) -> Result<Bytes, Stop> {
        self.reading(|object| object.map_get_val(key))
    }
    fn map_get_vals(
        &mut self,
        after: &[u8],
        prefix: &[u8],
        max: u64,
    ) -> Result<Page<(Bytes, Bytes)>, Stop> {
        self.reading(|object| object.map_get_vals(after, prefix, max))
    }
    fn map_get_keys(&mut self, after: &[u8], max: u64) -> Result<Page<Bytes>, Stop> {
        self.reading(|object| object.map_get_keys(after, max))
    }
    fn map_read_header(&mut self) -> Result<Bytes, Stop> {
        self.reading(|object| object.map_read_header())
    }
    fn snapshots(&mut self) -> Result<Vec<u64>, Stop> {
        self.reading(|object| object.snapshots())
    }
    fn create(&mut self, exclusive: bool) -> Result<(), Stop> {
        self.writing(|object| object.create(exclusive))
    }
    fn remove(&mut self) -> Result<(), Stop> {
        self.writing(|object| object.remove())
    }
    fn write(&mut self, offset: u64, data: Bytes) -> Result<(), Stop> {
        self.writing(|object| object.write(offset, data))
    }
    fn write_full(&mut self, data: Bytes) -> Result<(), Stop> {
        self.writing(|object| object.write_full(data))
    }
    fn append(&mut self, data: Bytes) -> Result<(), Stop> {
        self.writing(|object| object.append(data))
    }
    fn truncate(&mut self, size: u64) -> Result<(), Stop> {
        self.writing(|object| object.truncate(size))
    }
    fn zero(&mut self, offset: u64, length: u64) -> Result<(), Stop> {
        self.writing(|object| object.zero(offset, length))
    }
    fn setxattr(&mut self, name: &[u8], value: Bytes) -> Result<(), Stop> {
        self.writing(|object| object.setxattr(name, value))
    }
    fn rmxattr(&mut self, name: &[u8]) -> Result<(), Stop> {
        self.writing(|object| object.rmxattr(name))
    }
    fn map_set_vals(&mut self, pairs: Vec<(Bytes, Bytes)>) -> Result<(), Stop> {
        self.writing(|object| object.map_set_vals(pairs))
    }
    fn map_remove_key(&mut self, key: &[u8]) -> Result<(), Stop> {
        self.writing(|object| object.map_remove_key(key))
    }
    fn map_clear(&mut self) -> Result<(), Stop> {
        self.writing(|object| object.map_clear())
    }
    fn map_write_header(&mut self, data: Bytes) -> Result<(), Stop> {
        self.writing(|object| object.map_write_header(data))
    }
    fn rollback(&mut self, snapshot: u64) -> Result<(), Stop> {
        self.writing(|object| object.rollback(snapshot))
    }
}
