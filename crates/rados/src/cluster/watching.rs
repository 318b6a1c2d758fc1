//! Watches and notifies.

use super::{Ceph, Event, Running, Stage};
use crate::compound::{Found, Out};
use crate::error::{self, RadosError};
use crate::flight::{Completion as Ending, Flight};
use crate::handle::{Rados, To};
use crate::watch::{Ear, Heard, Watch, answers, broken, notified};
use bytes::Bytes;
use nacre_client::{Done, Failure, OpId, Operation, Refused, WatchError, WatchEvent, WatchId};
use nacre_command::{Command, PgMap};
use nacre_types::{ClientId, Instance, ObjectId, PoolId, Time, Version};
use nacre_wire::Payload;
use nacre_wire::msg::client::{OpFailure, RequestId, SubReply};
use nacre_wire::msg::watch::{NOTIFY_REPLY_MAX, WatchRecord, Watcher, WatcherId};
use serde_json::{Value, json};
use std::time::Duration;

type Next = Option<Result<Done, Failure>>;

impl Ceph {
    pub(super) fn begin_watch(
        &mut self,
        pool: PoolId,
        object: ObjectId,
        timeout: Duration,
    ) -> Result<WatchId, Refused> {
        let id = self.admit(Operation {
            pool,
            object,
            ..Operation::default()
        })?;
        let watch = WatchId(id);
        match self.register(id, watch, timeout) {
            Ok(()) => {}
            Err(failed) => self.end(id, Err(failed)),
        }
        Ok(watch)
    }

    fn register(&mut self, id: u64, watch: WatchId, timeout: Duration) -> Result<(), Failure> {
        let (context, object) = self.place(id)?;
        let functions = self.rados.functions();
        let ear = Ear::leak(&self.queue, watch, Event::Watch);
        // librados counts in seconds.
        let seconds = u32::try_from(timeout.as_millis().div_ceil(1000))
            .unwrap_or(u32::MAX)
            .max(1);
        let mut kept = Watch {
            context: context.clone(),
            object,
            handle: Box::new(0),
            registered: false,
        };
        let unsent = Ending::telling(functions, &self.queue, Event::Ended(id));
        // SAFETY: the handle is in a box that stays until the watch is dropped, after its
        // registration has ended; the ear is never freed.
        let sent = unsafe {
            (functions.rados_aio_watch2)(
                context.raw(),
                kept.object.as_ptr(),
                unsent.raw(),
                &raw mut *kept.handle,
                notified::<Event>,
                broken::<Event>,
                seconds,
                ear,
            )
        };
        if sent < 0 {
            unsent.unsent();
            return Err(error::failure(sent));
        }
        self.watches.insert(watch, kept);
        let running = self.running.get_mut(&id).expect("it is being sent");
        (running.stage, running.flight) = (
            Stage::Registering(watch),
            Some(Flight {
                completion: unsent.sent(),
                outs: Vec::new(),
                context,
            }),
        );
        Ok(())
    }

    pub(super) fn registered(&mut self, watch: WatchId, result: i32, number: u64) -> Next {
        if result < 0 {
            self.watches.remove(&watch);
            return Some(Err(error::failure(result)));
        }
        if let Some(kept) = self.watches.get_mut(&watch) {
            kept.registered = true;
        }
        Some(Ok(Done {
            version: super::version(number),
            results: vec![SubReply::Done {}],
            payload: Payload::new(),
        }))
    }

    pub(super) fn end_watch(&mut self, watch: WatchId) -> Result<Option<OpId>, Refused> {
        let Some(kept) = self.watches.get(&watch).filter(|kept| kept.registered) else {
            return Ok(None);
        };
        let (context, handle) = (kept.context.clone(), *kept.handle);
        let id = self.admit(Operation::default())?;
        let functions = self.rados.functions();
        let unsent = Ending::telling(functions, &self.queue, Event::Ended(id));
        // SAFETY: both are alive.
        let sent = unsafe { (functions.rados_aio_unwatch)(context.raw(), handle, unsent.raw()) };
        self.watches.remove(&watch);
        if sent < 0 {
            unsent.unsent();
            self.end(id, Err(error::failure(sent)));
            return Ok(Some(OpId(id)));
        }
        let running = self.running.get_mut(&id).expect("just admitted");
        (running.stage, running.flight) = (
            Stage::Plain,
            Some(Flight {
                completion: unsent.sent(),
                outs: Vec::new(),
                context,
            }),
        );
        Ok(Some(OpId(id)))
    }

    /// An event of a watch from librados' threads.
    pub(super) fn heard_of(&mut self, watch: WatchId, heard: Heard) {
        let now = Time::ZERO + self.begun.elapsed();
        let Some(kept) = self.watches.get(&watch) else {
            return;
        };
        match heard {
            Heard::Notify(number, notifier, payload) => {
                let notify = RequestId {
                    client: ClientId(notifier),
                    instance: Instance(0),
                    sequence: number,
                };
                self.pending.insert((watch, notify));
                let payload = if payload.is_empty() {
                    Payload::new()
                } else {
                    vec![payload]
                };
                self.watch_heard.push(WatchEvent::Notify {
                    watch,
                    notify,
                    payload,
                });
            }
            Heard::Broken => {
                let silent = Duration::from_millis(kept.silent_ms().unwrap_or(0));
                let since = Time::ZERO + self.begun.elapsed().saturating_sub(silent);
                self.watch_heard.push(WatchEvent::Lost {
                    watch,
                    since: since.min(now),
                });
                // librados would register the watch again, but to us that is a new watch: it ends
                // here.
                let _ = self.end_watch(watch);
                self.pending.retain(|(of, _)| *of != watch);
            }
        }
    }

    pub(super) fn acknowledge(
        &mut self,
        watch: WatchId,
        notify: RequestId,
        reply: &Bytes,
    ) -> Result<(), WatchError> {
        if reply.len() > NOTIFY_REPLY_MAX {
            return Err(WatchError::ReplyTooLarge);
        }
        let kept = self.watches.get(&watch).ok_or(WatchError::NoSuchWatch)?;
        if !self.pending.remove(&(watch, notify)) {
            return Err(WatchError::NoSuchNotify);
        }
        // An acknowledgement that does not arrive is like one that is too late.
        let _ = kept.acknowledge(notify.sequence, reply);
        Ok(())
    }

    pub(super) fn confirmed(&self, watch: WatchId) -> Option<Time> {
        let kept = self.watches.get(&watch).filter(|kept| kept.registered)?;
        Some(
            Time::ZERO
                + self
                    .begun
                    .elapsed()
                    .saturating_sub(Duration::from_millis(kept.silent_ms()?)),
        )
    }

    pub(super) fn notify(&mut self, id: u64, timeout_ms: u32, data: &[u8]) -> Result<(), Failure> {
        let (context, object) = self.place(id)?;
        let functions = self.rados.functions();
        let unsent = Ending::telling(functions, &self.queue, Event::Ended(id));
        let mut out = Out::output(functions);
        let (reply, length) = out.output_place();
        // Ceph counts in seconds, and treats zero as its default.
        let timeout_ms = u64::from(timeout_ms).div_ceil(1000).max(1) * 1000;
        let size =
            i32::try_from(data.len()).map_err(|_| Failure::Refused(OpFailure::TooLarge {}))?;
        // SAFETY: data and name are copied; the output for the reply stays until the operation has
        // ended.
        let sent = unsafe {
            (functions.rados_aio_notify)(
                context.raw(),
                object.as_ptr(),
                unsent.raw(),
                data.as_ptr().cast(),
                size,
                timeout_ms,
                reply,
                length,
            )
        };
        if sent < 0 {
            unsent.unsent();
            return Err(error::failure(sent));
        }
        let running = self.running.get_mut(&id).expect("it is being sent");
        (running.stage, running.flight) = (
            Stage::Notifying,
            Some(Flight {
                completion: unsent.sent(),
                outs: vec![out],
                context,
            }),
        );
        Ok(())
    }

    pub(super) fn notified(&mut self, result: i32, number: u64, outs: Vec<Out>) -> Next {
        let reply = match outs.into_iter().next().map(Out::found) {
            Some(Ok(Found::Called(_, reply))) => reply,
            _ => Bytes::new(),
        };
        // Some did not acknowledge in time: the reply contains which.
        let late = -result == error::ETIMEDOUT && !reply.is_empty();
        if result < 0 && !late {
            return Some(Err(error::failure(result)));
        }
        let Some((acked, missed)) = answers(self.rados.functions(), &reply) else {
            return Some(Err(Failure::Foreign {
                code: error::EIO,
                why: "the answer to a notify is unreadable".to_owned(),
            }));
        };
        let payload: Payload = acked
            .iter()
            .map(|(_, reply)| reply.clone())
            .filter(|reply| !reply.is_empty())
            .collect();
        let acked = acked.into_iter().map(|(acked, _)| acked).collect();
        let results = vec![SubReply::Notified {
            acked,
            missed,
            from_memory: false,
        }];
        Some(Ok(Done {
            version: super::version(number),
            results,
            payload,
        }))
    }

    /// Asks an object's primary for the watchers: librados has no operation for that.
    pub(super) fn list_watchers(&mut self, id: u64) -> Result<(), Failure> {
        let (_, _) = self.place(id)?;
        let Running {
            operation, stage, ..
        } = self.running.get_mut(&id).expect("it is being started");
        *stage = Stage::Waiting;
        let (rados, queue, pool, object) = (
            self.rados.clone(),
            self.queue.clone(),
            operation.pool,
            operation.object.clone(),
        );
        self.workers.run(Box::new(move || {
            queue.push(Event::Watchers(id, watchers(&rados, pool, &object)))
        }));
        Ok(())
    }
}

fn watchers(rados: &Rados, pool: PoolId, object: &ObjectId) -> Result<Vec<Watcher>, RadosError> {
    let text = |name: &nacre_types::Name| {
        String::from_utf8(name.as_bytes().to_vec()).map_err(|_| RadosError {
            code: error::EINVAL,
            why: format!("{name} is not UTF-8, and who watches it is asked in JSON"),
        })
    };
    let (name, namespace) = (text(&object.name)?, text(&object.namespace)?);
    let pools = crate::admin::command(rados, &Command::PoolLs {})?;
    let pool_name = pools["pools"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|known| known["id"].as_u64() == Some(pool.0));
    let pool_name = pool_name
        .and_then(|pool| pool["name"].as_str())
        .unwrap_or_default()
        .to_owned();
    let place = crate::admin::command(
        rados,
        &Command::PgMap(PgMap {
            pool: pool_name,
            object: name.clone(),
            namespace: Some(namespace.clone()),
            key: None,
        }),
    )?;
    let primary = place["primary"]
        .as_i64()
        .and_then(|osd| i32::try_from(osd).ok())
        .filter(|osd| *osd >= 0);
    let primary = primary.ok_or_else(|| RadosError {
        code: error::EINVAL,
        why: "nobody serves the object at the moment".to_owned(),
    })?;
    let all = rados.ask(To::Osd(primary), json!({ "prefix": "dump_watchers" }))?;
    let mine = |watcher: &&Value| {
        watcher["object"] == name.as_str() && watcher["namespace"] == namespace.as_str()
    };
    let one = |watcher: &Value| Watcher {
        id: WatcherId {
            client: ClientId(watcher["entity_name"]["num"].as_u64().unwrap_or(0)),
            instance: Instance(0),
            cookie: watcher["cookie"].as_u64().unwrap_or(0),
        },
        record: WatchRecord {
            timeout_ms: u32::try_from(watcher["timeout"].as_u64().unwrap_or(0))
                .unwrap_or(0)
                .saturating_mul(1000),
            since: Version::default(),
        },
    };
    Ok(all
        .as_array()
        .into_iter()
        .flatten()
        .filter(mine)
        .map(one)
        .collect())
}
