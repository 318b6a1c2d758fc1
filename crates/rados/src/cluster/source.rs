//! Reading all of an object, for copies and rollbacks: data at once, the map in the pages that OSDs
//! give, all of one version.

use super::{Ceph, Stage, name};
use crate::compound::{Found, Out, ReadOp};
use crate::context::Scope;
use crate::error::{self, failure};
use crate::judge::Whole;
use nacre_client::{Done, Failure};
use nacre_types::ObjectId;
use nacre_wire::msg::client::{OP_BYTES_MAX, OpFailure, SnapContext};
use nacre_wire::msg::snap::COPY_SMALL_BYTES_MAX;
use std::ffi::CString;

type Next = Option<Result<Done, Failure>>;

/// What was read so far.
#[derive(Debug)]
pub struct Reading {
    object: ObjectId,
    whole: Whole,
    version: u64,
    begun: bool,
}

impl Ceph {
    /// Begins to read what an operation makes its object.
    pub(super) fn read_source(&mut self, id: u64, object: ObjectId) -> Next {
        self.next_page(id, Reading { object, whole: Whole::default(), version: 0, begun: false })
    }

    fn next_page(&mut self, id: u64, reading: Reading) -> Next {
        let operation = &self.running[&id].operation;
        let scope = Scope::of(operation.pool, &reading.object, &SnapContext::default());
        let object = match name(reading.object.name.as_bytes(), "the source's name") {
            Ok(object) => object,
            Err(failed) => return Some(Err(Failure::Refused(failed))),
        };
        let context = match self.contexts.get(scope) {
            Ok(context) => context,
            Err(error) => return Some(Err(Failure::Foreign { code: error.code, why: error.why })),
        };
        let mut op = ReadOp::new(self.rados.functions());
        op.stat();
        if !reading.begun {
            op.attrs();
            op.read(0, usize::try_from(OP_BYTES_MAX).expect("small"));
        }
        let after = reading.whole.omap.last().map(|(key, _)| CString::new(&key[..]));
        let Ok(after) = after.unwrap_or_else(|| Ok(CString::default())) else {
            let instead = "a key of the source's map has a byte 0 in it, after which librados cannot go on";
            return Some(Err(Failure::Refused(crate::plan::lacks("zero_bytes", instead))));
        };
        op.list(&after, 10_000);
        let sent = self
            .send(id, context, Stage::Source(reading), |context, completion| op.send(context, completion, &object, 0));
        sent.err().map(Err)
    }

    pub(super) fn source_read(
        &mut self,
        id: u64,
        mut reading: Reading,
        result: i32,
        number: u64,
        outs: Vec<Out>,
    ) -> Next {
        if -result == error::ENOENT {
            self.running.get_mut(&id).expect("it runs").source = None;
            return self.look(id);
        }
        if result < 0 {
            return Some(Err(failure(result)));
        }
        if reading.begun && reading.version != number {
            // It changed between two pages.
            let running = self.running.get_mut(&id).expect("it runs");
            running.attempts += 1;
            if running.attempts > super::ATTEMPTS_MAX {
                return Some(Err(Failure::Refused(OpFailure::Expired {})));
            }
            return self.read_source(id, reading.object);
        }
        let (mut more, mut size) = (false, 0);
        for out in outs {
            match out.found() {
                Ok(Found::Stat(bytes, _)) => size = bytes,
                Ok(Found::Attrs(attrs)) => reading.whole.attrs = attrs,
                Ok(Found::Data(data)) => reading.whole.data = data,
                Ok(Found::Entries(entries, rest)) => {
                    more = rest;
                    reading.whole.omap.extend(entries);
                }
                Ok(other) => unreachable!("nobody asked for {other:?}"),
                Err(result) => return Some(Err(failure(result))),
            }
        }
        let too_much = |why: String| Some(Err(Failure::Refused(OpFailure::Invalid { why })));
        if size > OP_BYTES_MAX {
            return too_much(format!("it has {size} bytes; at most {OP_BYTES_MAX} are copied at once"));
        }
        let Whole { attrs, omap, .. } = &reading.whole;
        let small = attrs.iter().map(|(name, value)| name.as_bytes().len() + value.len()).sum::<usize>()
            + omap.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
        if small > COPY_SMALL_BYTES_MAX {
            return too_much(format!(
                "its attributes and map are more than {COPY_SMALL_BYTES_MAX} bytes: more than is copied at once"
            ));
        }
        (reading.begun, reading.version) = (true, number);
        if more {
            return self.next_page(id, reading);
        }
        self.running.get_mut(&id).expect("it runs").source = Some(reading.whole);
        self.look(id)
    }
}
