//! The facade for users: one cluster, its pools, their objects.
//!
//! Every method returns a [`Call`]: `.await` it in any executor, or `.wait()` for it on this
//! thread. No asynchronous runtime is needed, and none is hidden: a reactor thread does the work.

use crate::access::{Call as Request, Port};
use crate::clock;
use crate::config::Config;
use crate::daemon;
use crate::embedded::Embedded;
use crate::error::Error;
use crate::own_thread::OwnThread;
use crate::slot::{block_on, slot};
use crate::watch::{Hearing, Notified, Watcher};
use bytes::Bytes;
use nacre_client::{Blocked, Done, Operation};
use nacre_command::{Command, PoolCreate};
use nacre_types::{Epoch, Name, ObjectId, PoolId, Time, Version};
use nacre_wire::msg::client::{OP_BYTES_MAX, OpFailure, SnapContext, SubOp, SubReply};
use nacre_wire::msg::payload_len;
use nacre_wire::{ClusterMap, Measure, Payload};
use serde_json::Value;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Default name of a client, with all rights.
pub const ADMIN: &str = "admin";

/// Default bound on the duration of an operation; see [`Cluster::with_timeout`].
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// A pending call: a future, or with [`Call::wait`] a blocking call. Nothing happens until it is
/// awaited or waited for.
#[must_use = "a call does nothing until it is awaited or waited for"]
pub struct Call<'a, T>(Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>);

impl<T> Call<'_, T> {
    /// Blocks this thread until the answer arrives. Not for use inside an asynchronous executor.
    ///
    /// # Errors
    /// The call's own.
    pub fn wait(self) -> Result<T, Error> {
        block_on(self.0)
    }
}
impl<T> Future for Call<'_, T> {
    type Output = Result<T, Error>;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}
pub fn call<'a, T>(future: impl Future<Output = Result<T, Error>> + Send + 'a) -> Call<'a, T> {
    Call(Box::pin(future))
}

/// Keeps the reactor alive.
enum Host {
    /// All daemons are in this process.
    Embedded(#[allow(dead_code, reason = "held so that the cluster runs")] Arc<Embedded>),
    /// Only the client is in this process, on the thread of its owner: [`crate::Pipelined`].
    Driven,
    /// Only the client is in this process.
    Network(OwnThread),
}

/// A client of a cluster. Cloning is cheap; clones share bounds and connections.
///
/// ```
/// let dir = std::env::temp_dir().join(format!("nacre-doc-{}", std::process::id()));
/// let cluster = nacre_node::Cluster::open(&dir)?; // a whole cluster in this folder, made if it is not there
/// let notes = cluster.create_pool("notes").wait()?; // three copies
/// notes.put("greeting", "hello").wait()?; // durable on all of them
/// notes.append("greeting", ", world").wait()?;
/// assert_eq!(notes.get("greeting").wait()?, "hello, world");
/// cluster.stop()?;
/// # std::fs::remove_dir_all(&dir).ok();
/// # Ok::<(), nacre_node::Error>(())
/// ```
#[derive(Clone)]
pub struct Cluster {
    port: Arc<Port>,
    host: Arc<Host>,
    timeout: Duration,
}

/// Name and settings of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolInfo {
    /// Its number.
    pub id: PoolId,
    /// Its name.
    pub name: String,
    /// Number of replicas.
    pub size: u8,
    /// Replicas needed to serve.
    pub min_size: u8,
    /// Number of placement groups.
    pub pg_num: u32,
}

/// Releases all callers waiting at a port when its thread ends, also by a panic.
struct Leave(Arc<Port>);
impl Drop for Leave {
    fn drop(&mut self) {
        drop(self.0.close(if std::thread::panicking() {
            "a fault of the client's own ended it"
        } else {
            "it was closed"
        }));
    }
}

/// Refuses a client's name that is too long: it is in the first frame of each connection, and no
/// monitor could read that.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    let sendable = Measure::of("the client's name", &Name::from(name))
        .fits("the client's name", 4 + Name::LEN_MAX);
    sendable.map_err(|why| Error::Command(why.to_string()))
}

impl Cluster {
    pub(crate) fn over(port: Arc<Port>, embedded: Arc<Embedded>) -> Self {
        Self {
            port,
            host: Arc::new(Host::Embedded(embedded)),
            timeout: TIMEOUT,
        }
    }

    /// A client whose owner runs the reactor.
    pub(crate) fn driven(port: Arc<Port>) -> Self {
        Self {
            port,
            host: Arc::new(Host::Driven),
            timeout: TIMEOUT,
        }
    }

    /// Opens the cluster in a directory, in this process; creates one of three OSDs if the
    /// directory is empty or missing. If [`crate::init`] gave it ports, other processes can reach
    /// it too.
    ///
    /// # Errors
    /// [`Error::Start`]: the directory is in use, damaged, or holds something else.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, Error> {
        crate::embedded::open(dir.as_ref())
    }

    /// Connects to the daemons named by a `cluster.toml` (or its directory), under the name
    /// `admin`. Returns at once: the first call waits for a monitor.
    ///
    /// # Errors
    /// [`Error::Start`]: the file cannot be used.
    pub fn connect(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::connect_as(path, ADMIN)
    }

    /// The same under another name, which determines the rights in namespaces of metadata; empty:
    /// none. The name is not verified until authentication exists.
    ///
    /// # Errors
    /// [`Error::Start`]: the file cannot be used.
    pub fn connect_as(path: impl AsRef<Path>, name: &str) -> Result<Self, Error> {
        check_name(name)?;
        let name = name.to_owned();
        let config = Config::load(path.as_ref())?;
        let waker = daemon::waker()?;
        let port = Port::new(waker.clone());
        // Runs however the thread ends: no caller waits for it afterwards.
        let leave = Leave(port.clone());
        let make = {
            let (waker, port) = (waker.clone(), port.clone());
            move || {
                let mut reactor = daemon::reactor(&config, waker, 0)?;
                daemon::add_client(&mut reactor, port, &name)?;
                Ok((reactor, leave))
            }
        };
        let thread = OwnThread::start(("nacre-client", path.as_ref()), waker, make, |_, _| {})?;
        Ok(Self {
            port,
            host: Arc::new(Host::Network(thread)),
            timeout: TIMEOUT,
        })
    }

    /// The same client with another bound on the duration of a call.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The embedded cluster, if it is one.
    #[must_use]
    pub fn embedded(&self) -> Option<&Arc<Embedded>> {
        match &*self.host {
            Host::Embedded(embedded) => Some(embedded),
            Host::Network(_) | Host::Driven => None,
        }
    }

    /// Stops an embedded cluster and waits for it; a client over the network only closes. Further
    /// calls fail.
    ///
    /// # Errors
    /// As [`Embedded::stop`]: a disk hangs.
    pub fn stop(&self) -> Result<(), Error> {
        match &*self.host {
            Host::Embedded(embedded) => embedded.stop(),
            Host::Driven => {
                drop(self.port.close("it was closed"));
                Ok(())
            }
            Host::Network(thread) => {
                thread.stop();
                Ok(())
            }
        }
    }

    pub(crate) fn port(&self) -> &Port {
        &self.port
    }

    pub(crate) fn deadline(&self) -> Time {
        clock::now() + self.timeout
    }

    pub(crate) fn gone(&self) -> Error {
        Error::Stopped {
            why: self
                .port
                .closed()
                .unwrap_or_else(|| "its thread ended".to_owned()),
        }
    }

    /// Any operation on an object. Waits while too many operations are in flight.
    pub fn operate(&self, operation: Operation) -> Call<'_, Done> {
        call(self.run(operation))
    }

    async fn run(&self, operation: Operation) -> Result<Done, Error> {
        let length = payload_len(&operation.payload) as u64;
        if length > OP_BYTES_MAX {
            return Err(Error::TooLarge {
                length,
                max: OP_BYTES_MAX,
            });
        }
        let deadline = self.deadline();
        let (reply, receiver) = slot();
        self.port.call(Request::Operate {
            operation,
            deadline,
            reply,
        })?;
        receiver.await.ok_or_else(|| self.gone())?
    }

    /// Sends a command to the monitors; `docs/formats/commands.md` describes each reply.
    pub fn command(&self, command: &Command) -> Call<'_, Value> {
        let (request, writes) = (command.to_json().to_string(), command.writes());
        call(async move {
            let (reply, receiver) = slot();
            self.port.call(Request::Command {
                request,
                writes,
                deadline: self.deadline(),
                reply,
            })?;
            let answer = receiver.await.ok_or_else(|| self.gone())??;
            serde_json::from_str(&answer).map_err(|_| Error::Unexpected("JSON"))
        })
    }

    /// The newest map this client knows.
    pub fn map(&self) -> Call<'_, Arc<ClusterMap>> {
        call(self.map_at_least(Epoch(1)))
    }

    async fn map_at_least(&self, at_least: Epoch) -> Result<Arc<ClusterMap>, Error> {
        let (reply, receiver) = slot();
        self.port.call(Request::Map {
            at_least,
            deadline: self.deadline(),
            reply,
        })?;
        receiver.await.ok_or_else(|| self.gone())?
    }

    /// This client's operations in flight for longer than `than`, and what each waits for.
    pub fn blocked(&self, than: Duration) -> Call<'_, Vec<Blocked>> {
        call(async move {
            let (reply, receiver) = slot();
            self.port.call(Request::Blocked { than, reply })?;
            receiver.await.ok_or_else(|| self.gone())?
        })
    }

    /// Creates a pool with the cluster's defaults; [`Self::command`] with `pool create` takes more
    /// options.
    pub fn create_pool(&self, name: &str) -> Call<'_, Pool> {
        let create = Command::PoolCreate(PoolCreate::named(name));
        call(async move {
            let reply = self.command(&create).await?;
            let id = reply
                .get("id")
                .and_then(Value::as_u64)
                .ok_or(Error::Unexpected("pool"))?;
            let epoch = reply.get("epoch").and_then(Value::as_u64).unwrap_or(1);
            self.map_at_least(Epoch(epoch)).await?;
            Ok(Pool {
                cluster: self.clone(),
                id: PoolId(id),
                snaps: SnapContext::default(),
            })
        })
    }

    /// A pool by its name.
    pub fn pool(&self, name: &str) -> Call<'_, Pool> {
        let name = name.to_owned();
        call(async move {
            // This client's map may be older than the pool: ask the monitors before reporting that
            // it does not exist.
            let known = self.map_at_least(Epoch(1)).await?;
            if let Some((id, _)) = known.pool_named(&Name::from(name.as_str())) {
                return Ok(Pool {
                    cluster: self.clone(),
                    id,
                    snaps: SnapContext::default(),
                });
            }
            let pools = self.command(&Command::PoolLs {}).await?;
            let found = pools
                .get("pools")
                .and_then(Value::as_array)
                .into_iter()
                .flatten();
            let found =
                found.filter(|pool| pool.get("name").and_then(Value::as_str) == Some(&name));
            let Some(id) = found.filter_map(|pool| pool.get("id")?.as_u64()).next() else {
                return Err(Error::NoSuchPool { name });
            };
            let created = pools
                .get("pools")
                .and_then(Value::as_array)
                .into_iter()
                .flatten();
            let created = created
                .filter_map(|pool| pool.get("created")?.as_u64())
                .max()
                .unwrap_or(1);
            self.map_at_least(Epoch(created)).await?;
            Ok(Pool {
                cluster: self.clone(),
                id: PoolId(id),
                snaps: SnapContext::default(),
            })
        })
    }

    /// All pools.
    pub fn pools(&self) -> Call<'_, Vec<PoolInfo>> {
        call(async move {
            let map = self.map().await?;
            let info = |(id, pool): (&PoolId, &nacre_wire::map::Pool)| PoolInfo {
                id: *id,
                name: pool.name.to_string(),
                size: pool.size,
                min_size: pool.min_size,
                pg_num: pool.pg_num,
            };
            Ok(map.pools.iter().map(info).collect())
        })
    }
}

/// Size and version of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Bytes of data.
    pub size: u64,
    /// Version of the last update; [`SubOp::AssertVersion`] compares with it.
    pub version: Version,
}

/// One page of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Objects, in the pool's own order.
    pub objects: Vec<ObjectId>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<Cursor>,
}
/// Position at which a listing stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    group: u32,
    after: Bytes,
}

/// A pool of a cluster. Objects are named by text or by a full [`ObjectId`]. An object is at most
/// 256 MiB, one operation at most 32 MiB; the writer stripes larger data over objects.
#[derive(Clone)]
pub struct Pool {
    cluster: Cluster,
    id: PoolId,
    snaps: SnapContext,
}

/// A name of an object.
pub trait IntoObject: Send {
    /// The object's full name.
    fn into_object(self) -> ObjectId;
}
impl IntoObject for &str {
    fn into_object(self) -> ObjectId {
        ObjectId::named(self)
    }
}
impl IntoObject for &String {
    fn into_object(self) -> ObjectId {
        ObjectId::named(self)
    }
}
impl IntoObject for ObjectId {
    fn into_object(self) -> ObjectId {
        self
    }
}
impl IntoObject for &ObjectId {
    fn into_object(self) -> ObjectId {
        self.clone()
    }
}

fn one(mut done: Done) -> Result<SubReply, Error> {
    done.results.pop().ok_or(Error::Unexpected("result"))
}
fn joined(payload: Payload) -> Bytes {
    match <[Bytes; 1]>::try_from(payload) {
        Ok([one]) => one,
        Err(many) => many.concat().into(),
    }
}

impl Pool {
    /// Its number.
    #[must_use]
    pub fn id(&self) -> PoolId {
        self.id
    }

    /// The same pool with writes that preserve these snapshots: for a pool whose ids are allocated
    /// with `pool snap create` without a name. In other pools operations with a context are
    /// refused.
    #[must_use]
    pub fn preserving(&self, snaps: SnapContext) -> Self {
        Self {
            snaps,
            ..self.clone()
        }
    }

    /// Executes several parts atomically on one object.
    pub fn operate(
        &self,
        object: impl IntoObject,
        ops: Vec<SubOp>,
        data: Payload,
    ) -> Call<'_, Done> {
        let object = object.into_object();
        call(self.cluster.run(Operation {
            pool: self.id,
            object,
            ops,
            payload: data,
            snaps: self.snaps.clone(),
            ..Operation::default()
        }))
    }

    fn change(&self, object: impl IntoObject, op: SubOp, data: Payload) -> Call<'_, Version> {
        let operation = self.operate(object, vec![op], data);
        call(async move { Ok(operation.await?.version) })
    }

    /// Replaces the object's data, creating it if it is absent.
    pub fn put(&self, object: impl IntoObject, data: impl Into<Bytes>) -> Call<'_, Version> {
        let data = data.into();
        self.change(
            object,
            SubOp::WriteFull {
                length: data.len() as u64,
            },
            vec![data],
        )
    }
    /// Writes at an offset; a gap reads as zeros.
    pub fn write(
        &self,
        object: impl IntoObject,
        offset: u64,
        data: impl Into<Bytes>,
    ) -> Call<'_, Version> {
        let data = data.into();
        self.change(
            object,
            SubOp::Write {
                offset,
                length: data.len() as u64,
            },
            vec![data],
        )
    }
    /// Writes at the end.
    pub fn append(&self, object: impl IntoObject, data: impl Into<Bytes>) -> Call<'_, Version> {
        let data = data.into();
        self.change(
            object,
            SubOp::Append {
                length: data.len() as u64,
            },
            vec![data],
        )
    }
    /// Sets the size.
    pub fn truncate(&self, object: impl IntoObject, size: u64) -> Call<'_, Version> {
        self.change(object, SubOp::Truncate { size }, Payload::new())
    }
    /// Makes a range read as zeros.
    pub fn zero(&self, object: impl IntoObject, offset: u64, length: u64) -> Call<'_, Version> {
        self.change(object, SubOp::Zero { offset, length }, Payload::new())
    }
    /// Removes the object with its attributes and omap.
    pub fn remove(&self, object: impl IntoObject) -> Call<'_, Version> {
        self.change(object, SubOp::Delete {}, Payload::new())
    }

    /// All data, up to the largest object; an object that the command line has striped is an error
    /// ([`Error::Striped`]). Reads in operations of the maximum size, so atomic only up to 32 MiB.
    pub fn get(&self, object: impl IntoObject) -> Call<'_, Bytes> {
        let object = object.into_object();
        call(async move {
            let mut pieces = Payload::new();
            let mut offset = 0;
            loop {
                let piece = self
                    .read_pieces(object.clone(), offset, OP_BYTES_MAX)
                    .await?;
                let length = payload_len(&piece) as u64;
                pieces.extend(piece);
                offset += length;
                if offset == 0 && self.attr(object.clone(), STRIPED).await.is_ok() {
                    return Err(Error::Striped { object });
                }
                if length < OP_BYTES_MAX {
                    return Ok(joined(pieces));
                }
            }
        })
    }
    /// A range; shorter if the object ends before.
    pub fn read(&self, object: impl IntoObject, offset: u64, length: u64) -> Call<'_, Bytes> {
        let object = object.into_object();
        call(async move { Ok(joined(self.read_pieces(object, offset, length).await?)) })
    }
    async fn read_pieces(
        &self,
        object: ObjectId,
        offset: u64,
        length: u64,
    ) -> Result<Payload, Error> {
        if length > OP_BYTES_MAX {
            return Err(Error::TooLarge {
                length,
                max: OP_BYTES_MAX,
            });
        }
        Ok(self
            .operate(object, vec![SubOp::Read { offset, length }], Payload::new())
            .await?
            .payload)
    }

    /// Size and version; `None` if the object does not exist.
    pub fn stat(&self, object: impl IntoObject) -> Call<'_, Option<Stat>> {
        let operation = self.operate(object, vec![SubOp::Stat {}], Payload::new());
        call(async move {
            match operation.await {
                Ok(done) => match one(done)? {
                    SubReply::Stat { size, version, .. } => Ok(Some(Stat { size, version })),
                    _ => Err(Error::Unexpected("stat")),
                },
                Err(Error::Refused(OpFailure::NotFound {})) => Ok(None),
                Err(why) => Err(why),
            }
        })
    }

    /// One page of the pool's objects, at most `limit`; begin with no cursor.
    pub fn list(&self, from: Option<Cursor>, limit: u32) -> Call<'_, Listing> {
        call(async move {
            let map = self.cluster.map().await?;
            let pool = map.pools.get(&self.id).ok_or(Error::NoSuchPool {
                name: self.id.0.to_string(),
            })?;
            let mut at = from.unwrap_or_default();
            let mut listing = Listing::default();
            while at.group < pool.pg_num && (listing.objects.len() as u32) < limit {
                let left = limit - listing.objects.len() as u32;
                let operation = Operation {
                    pool: self.id,
                    ops: vec![SubOp::ListObjects {
                        after: at.after.clone(),
                        limit: left,
                    }],
                    group: Some(at.group),
                    ..Operation::default()
                };
                let SubReply::Objects { objects, next } = one(self.cluster.run(operation).await?)?
                else {
                    return Err(Error::Unexpected("listing"));
                };
                listing.objects.extend(objects);
                at = match next {
                    Some(after) => Cursor {
                        group: at.group,
                        after,
                    },
                    None => Cursor {
                        group: at.group + 1,
                        after: Bytes::new(),
                    },
                };
            }
            listing.next = (at.group < pool.pg_num).then_some(at);
            Ok(listing)
        })
    }
    /// All objects of the pool; for pools that fit into memory.
    pub fn list_all(&self) -> Call<'_, Vec<ObjectId>> {
        call(async move {
            let (mut all, mut from) = (Vec::new(), None);
            loop {
                let page = self.list(from, 1000).await?;
                all.extend(page.objects);
                from = page.next;
                if from.is_none() {
                    return Ok(all);
                }
            }
        })
    }

    /// An attribute's value.
    pub fn attr(&self, object: impl IntoObject, name: &str) -> Call<'_, Bytes> {
        let operation = self.operate(
            object,
            vec![SubOp::GetAttr { name: name.into() }],
            Payload::new(),
        );
        call(async move {
            match one(operation.await?)? {
                SubReply::Value { value } => Ok(value),
                _ => Err(Error::Unexpected("attribute")),
            }
        })
    }
    /// Sets an attribute.
    pub fn set_attr(
        &self,
        object: impl IntoObject,
        name: &str,
        value: impl Into<Bytes>,
    ) -> Call<'_, Version> {
        self.change(
            object,
            SubOp::SetAttr {
                name: name.into(),
                value: value.into(),
            },
            Payload::new(),
        )
    }
    /// Removes an attribute.
    pub fn remove_attr(&self, object: impl IntoObject, name: &str) -> Call<'_, Version> {
        self.change(
            object,
            SubOp::RemoveAttr { name: name.into() },
            Payload::new(),
        )
    }
    /// All attributes.
    pub fn attrs(&self, object: impl IntoObject) -> Call<'_, Vec<(Bytes, Bytes)>> {
        let operation = self.operate(object, vec![SubOp::ListAttrs {}], Payload::new());
        call(async move { entries(operation.await?).map(|(entries, _)| entries) })
    }

    /// Values of omap keys; absent keys are left out.
    pub fn omap_get(
        &self,
        object: impl IntoObject,
        keys: Vec<Bytes>,
    ) -> Call<'_, Vec<(Bytes, Bytes)>> {
        let operation = self.operate(object, vec![SubOp::OmapGet { keys }], Payload::new());
        call(async move { entries(operation.await?).map(|(entries, _)| entries) })
    }
    /// Sets omap keys.
    pub fn omap_set(
        &self,
        object: impl IntoObject,
        entries: Vec<(Bytes, Bytes)>,
    ) -> Call<'_, Version> {
        self.change(object, SubOp::OmapSet { entries }, Payload::new())
    }
    /// Removes omap keys.
    pub fn omap_remove(&self, object: impl IntoObject, keys: Vec<Bytes>) -> Call<'_, Version> {
        self.change(object, SubOp::OmapRemove { keys }, Payload::new())
    }
    /// Omap entries in key order after a key (empty: from the first), at most `limit`; and whether
    /// there are more.
    pub fn omap_list(
        &self,
        object: impl IntoObject,
        after: impl Into<Bytes>,
        limit: u32,
    ) -> Call<'_, (Vec<(Bytes, Bytes)>, bool)> {
        let operation = self.operate(
            object,
            vec![SubOp::OmapList {
                after: after.into(),
                limit,
            }],
            Payload::new(),
        );
        call(async move { entries(operation.await?) })
    }

    /// Replaces the data if the object's version is still `version` (compare and set);
    /// [`Error::Refused`] with [`OpFailure::Guard`] if it is not.
    pub fn put_if(
        &self,
        object: impl IntoObject,
        version: Version,
        data: impl Into<Bytes>,
    ) -> Call<'_, Version> {
        let data = data.into();
        let ops = vec![
            SubOp::AssertVersion { version },
            SubOp::WriteFull {
                length: data.len() as u64,
            },
        ];
        let operation = self.operate(object, ops, vec![data]);
        call(async move { Ok(operation.await?.version) })
    }
}

fn entries(done: Done) -> Result<(Vec<(Bytes, Bytes)>, bool), Error> {
    match one(done)? {
        SubReply::Entries { entries, more } => Ok((entries, more)),
        _ => Err(Error::Unexpected("list of entries")),
    }
}

impl Pool {
    /// Watches an object: the watcher receives every notify that begins from now on, or learns that
    /// it has lost its watch ([`nacre_client::ObjectCluster::watch_events`]). The cluster removes
    /// the watch when it receives nothing from this client for `timeout`, between 100 ms and an
    /// hour.
    pub fn watch(&self, object: impl IntoObject, timeout: Duration) -> Call<'_, Watcher> {
        let object = object.into_object();
        call(async move {
            let (hearing, deadline) = (Arc::<Hearing>::default(), self.cluster.deadline());
            let (reply, receiver) = slot();
            let (pool, there) = (self.id, hearing.clone());
            self.cluster.port.call(Request::Watch {
                pool,
                object,
                timeout,
                deadline,
                hearing: there,
                reply,
            })?;
            receiver.await.ok_or_else(|| self.cluster.gone())??;
            Ok(Watcher {
                port: self.cluster.port.clone(),
                hearing,
            })
        })
    }

    /// Notifies all watchers of an object, with at most 64 KiB; returns which have acknowledged,
    /// and which missed it within `timeout` (at most the cluster's own, [`Cluster::with_timeout`]).
    pub fn notify(
        &self,
        object: impl IntoObject,
        data: impl Into<Bytes>,
        timeout: Duration,
    ) -> Call<'_, Notified> {
        let data = data.into();
        let timeout_ms = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
        let ops = vec![SubOp::Notify {
            timeout_ms,
            length: data.len() as u64,
        }];
        let operation = self.operate(
            object,
            ops,
            if data.is_empty() {
                Payload::new()
            } else {
                vec![data]
            },
        );
        call(async move {
            let mut done = operation.await?;
            let mut replies = joined(std::mem::take(&mut done.payload));
            match one(done)? {
                SubReply::Notified { acked, missed, .. } => {
                    let reply = |acked: nacre_wire::msg::watch::NotifyAcked| {
                        let length = (acked.length as usize).min(replies.len());
                        (acked.watcher, replies.split_to(length))
                    };
                    Ok(Notified {
                        acked: acked.into_iter().map(reply).collect(),
                        missed,
                    })
                }
                _ => Err(Error::Unexpected("answer to a notify")),
            }
        })
    }
}
/// Attribute of an object whose data the command line has striped over other objects.
const STRIPED: &str = "nacre.stripes";
