//! Classes in Rust that every daemon has. They exist so that the cost of Lua can be measured
//! against the same method in Rust (MAL-28), and as examples of native classes: `tally`, a few
//! lines; `zlog_native`, the library's `zlog` (MAL-25).

use bytes::Bytes;
use nacre_policy::native::zlog::Zlog;
use nacre_policy::{ClassRef, Classes, Context, MethodFlags, NativeClass, Stop, errno};
use std::sync::Arc;

/// All native classes.
pub fn classes() -> Classes {
    let mut classes = Classes::default();
    classes.insert("tally", 0, ClassRef::Native(Arc::new(Tally)));
    classes.insert("zlog_native", 0, ClassRef::Native(Arc::new(Zlog)));
    classes
}

/// Counters in the omap: `add` takes a key and returns its new value, `get` the value.
struct Tally;

impl NativeClass for Tally {
    fn method(&self, name: &str) -> Option<MethodFlags> {
        match name {
            "add" => Some(MethodFlags { read_only: false }),
            "get" => Some(MethodFlags { read_only: true }),
            _ => None,
        }
    }

    fn call(
        &self,
        method: &str,
        input: Bytes,
        context: &mut Context<'_>,
    ) -> Result<(i32, Bytes), Stop> {
        let object = &mut *context.object;
        let before = match object.map_get_val(&input) {
            Ok(value) => std::str::from_utf8(&value)
                .ok()
                .and_then(|text| text.parse().ok())
                .unwrap_or(0_u64),
            Err(Stop::Errno(errno::ENOENT)) => 0,
            Err(stop) => return Err(stop),
        };
        if method == "get" {
            return Ok((0, before.to_string().into()));
        }
        let after = Bytes::from((before + 1).to_string());
        object.map_set_vals(vec![(input, after.clone())])?;
        Ok((0, after))
    }
}
