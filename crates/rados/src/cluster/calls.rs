//! Calls of methods: installed classes, whose sources are sent with the calls, and Ceph's own.

use super::{Ceph, Event, Running};
use crate::compound::{Found, Out};
use crate::error::{self, failure};
use crate::plan::{Way, way};
use crate::programs::classes::{self, Active, Installed};
use nacre_client::{Done, Failure, Operation};
use nacre_wire::Payload;
use nacre_wire::msg::client::{OpFailure, SubOp, SubReply};
use std::sync::Arc;

impl Running {
    fn installed(&self, index: usize) -> Option<&Installed> {
        self.installed
            .as_ref()
            .and_then(|installed| installed.get(&index))
    }
    /// Whether the output of a call is requested even if it writes: the rules for portable classes
    /// leave nothing to return then.
    pub(super) fn returning(&self) -> bool {
        self.installed(0).is_none()
    }
    /// Adds to the answers which activation ran.
    pub(super) fn tell_activations(&self, done: &mut Done) {
        for (index, call) in self.installed.iter().flatten() {
            if let Some(SubReply::Called { activation, .. }) = done.results.get_mut(*index) {
                *activation = call.activation;
            }
        }
    }
}

impl Ceph {
    /// Whether an operation may continue: its calls, if it has any, are ready to send. Otherwise it
    /// waits for the list of installed classes, and later operations on its object wait for it.
    pub(super) fn calls_are_known(&mut self, id: u64) -> Result<bool, Failure> {
        let Running {
            operation,
            installed,
            ..
        } = &self.running[&id];
        if installed.is_some() || classes::called(operation).next().is_none() {
            return Ok(true);
        }
        if let Some(active) = self
            .classes
            .young()
            .filter(|active| active.suffices(operation))
        {
            return self.install(id, &active).map(|()| true);
        }
        if let Some((known, wanted)) = self.classes.wait(id, operation) {
            let (rados, queue) = (self.rados.clone(), self.queue.clone());
            self.workers.run(Box::new(move || {
                queue.push(Event::Classes(Active::load(&rados, known, &wanted)))
            }));
        }
        self.hold(id);
        Ok(false)
    }

    /// Replaces an operation's calls of installed classes with scripts that are sent along.
    fn install(&mut self, id: u64, active: &Active) -> Result<(), Failure> {
        let running = self.running.get_mut(&id).expect("it is being started");
        running.installed = Some(
            active
                .put_into(&mut running.operation)
                .map_err(Failure::Refused)?,
        );
        Ok(())
    }

    /// The installed classes were read, or cannot be: waiting operations continue with that,
    /// however old it has become meanwhile.
    pub(super) fn classes_read(&mut self, read: &Result<Arc<Active>, Failure>) {
        for id in self.classes.read(read.as_ref().ok().cloned()) {
            if !self.running.contains_key(&id) {
                continue;
            }
            let result = match read {
                Ok(active) if active.suffices(&self.running[&id].operation) => {
                    self.install(id, active)
                }
                // It began to wait during the reading: the next one includes its classes.
                Ok(_) => Ok(()),
                Err(failed) => Err(failed.clone()),
            };
            match result {
                Ok(()) => self.start(id),
                Err(failed) => self.end(id, Err(failed)),
            }
        }
    }

    /// Ends the waits for installed classes that have taken too long.
    pub(super) fn classes_overdue(&mut self) {
        for id in self.classes.overdue() {
            let why = "what classes are installed could not be read in time; nothing was called"
                .to_owned();
            self.end(
                id,
                Err(Failure::Foreign {
                    code: error::ETIMEDOUT,
                    why,
                }),
            );
        }
    }

    /// A call that was its whole operation has ended.
    pub(super) fn called(
        &mut self,
        id: u64,
        result: i32,
        number: u64,
        outs: Vec<Out>,
        returning: bool,
    ) -> Option<Result<Done, Failure>> {
        if -result == error::EOVERFLOW && returning {
            // A writing call has more output than the cluster keeps for resends. If output is not
            // requested, there is none at all.
            let Operation { ops, payload, .. } = &self.running[&id].operation;
            return match way(ops, payload, false) {
                Ok(Way::Call(class, method, input)) => self
                    .send_call(id, &class, &method, &input, false)
                    .err()
                    .map(Err),
                other => unreachable!("a call has become {other:?}"),
            };
        }
        let (status, output) = match outs.into_iter().next().map(Out::found) {
            Some(Ok(Found::Called(status, output))) => (status.unsigned_abs(), output),
            other => unreachable!("a call returned {other:?}"),
        };
        if result < 0 {
            return Some(Err(method_failed(
                &self.running[&id],
                0,
                result,
                Some(&output),
            )));
        }
        let results = vec![SubReply::Called {
            activation: 0,
            status,
            output,
        }];
        Some(Ok(Done {
            version: super::version(number),
            results,
            payload: Payload::new(),
        }))
    }
}

/// Why a call failed; `output` is `None` where librados returns none, in an operation of several
/// parts.
pub fn method_failed(
    running: &Running,
    index: usize,
    result: i32,
    output: Option<&[u8]>,
) -> Failure {
    let code = result.saturating_neg();
    let number = u32::try_from(index).expect("few parts");
    if matches!(code, error::ESHUTDOWN | error::ETIMEDOUT) {
        return failure(result);
    }
    if let Some(call) = running.installed(index) {
        return classes::failed(call, number, code, output);
    }
    let script = matches!(running.operation.ops.get(index), Some(SubOp::Eval { .. }));
    let why = match code {
        error::EOPNOTSUPP if script => {
            let why = format!("the script registers no such function; or {}", crate::programs::no_lua(code));
            return Failure::Refused(OpFailure::NoSuchMethod { why });
        }
        error::EOPNOTSUPP => {
            let why = format!(
                "no such class is installed, and the Ceph cluster has no such class or method of its own, or its OSDs may not load it \
                 (`osd_class_load_list`): {}",
                error::named(code)
            );
            return Failure::Refused(OpFailure::NoSuchMethod { why });
        }
        error::EIO if script => {
            "the script raised an error, does not compile, or returned EIO: Ceph says no more than that".to_owned()
        }
        _ => String::new(),
    };
    Failure::Refused(OpFailure::Method {
        index: number,
        activation: 0,
        errno: code.unsigned_abs(),
        why,
    })
}
