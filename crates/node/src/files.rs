//! File systems for callers on other threads.
//!
//! ```text
//!  threads ──Ask──▶ cached? answered at once, on their thread
//!                     └▶ Inbox ──(one wake-up for many)──▶ Caller(Fs) ──▶ server, objects
//!         ◀────────────── answer, on the client's thread ──┘
//! ```
//! Invariant: every call is answered once: by the file system, or with an error when the client
//! ends.

mod opened;
mod paths;
mod walk;

pub use opened::OpenFile;
pub use paths::{DirEntry, OpenOptions};

use crate::any_role::AnyRole;
use crate::clock;
use crate::config::Config;
use crate::daemon;
use crate::directory;
use crate::error::{Error, StartError};
use crate::machine;
use crate::own_thread::OwnThread;
use crate::reactor::{NodeParts, Reactor};
use crate::slot::block_on;
use crate::wake::Waker;
use nacre_client::{
    Beside, ClientConfig, Engines, Metadata, ObjectCluster, Placed, Served, Service,
};
use nacre_fs::{Ask, CallId, Fs, FsConfig, Given, LookAhead, Outcome, State};
use nacre_role::{Input, Output};
use nacre_types::{ClientId, Entity, Ino, Instance, Name, Rank, Time};
use nacre_wire::fs::{FsQuota, QuotaKind};
use nacre_wire::msg::fs::{FsAnswer, FsCall, FsClient, FsNode};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

/// Time limit of opening a file system.
const OPEN_MAX: Duration = Duration::from_secs(30);
/// Size of a cached name with its attributes, in bytes; a client uses up to 1/32 of the machine's
/// memory for them.
const NAME_BYTES: u64 = 400;
/// Bounds of the number of cached names (40 MB and 400 MB).
const NAMES_LEAST: usize = 100_000;
const NAMES_MOST: usize = 1_000_000;
/// Maximum size of a client's data cache, and of its unwritten part, in bytes.
const DATA_MAX: usize = 256 << 20;
const DIRTY_MAX: usize = 128 << 20;
/// The paper's figure (§3.2, §6.1).
const EARLY_ABOVE: usize = 128 << 10;
/// Error of calls whose client has ended.
const ENDED: u16 = 5;
/// The root cannot be given to another rank.
const EBUSY: u16 = 16;

type Answer = Box<dyn FnOnce(Outcome) + Send>;

/// Interval of repeated requests to forget attributes.
const OWED_AGAIN: Duration = Duration::from_millis(1);

/// A cache above a client that keeps attributes for as long as they are [lent](FileSystem::lend):
/// the kernel. It also makes calls itself.
pub trait Keeper: Send + Sync {
    /// Asks it to forget an inode's attributes; returns whether it has. If not, it is asked again
    /// soon. Called on the client's thread, between its turns: it must not wait for the client.
    fn forget(&self, ino: Ino) -> bool;
}

/// The caller of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    Keeper,
    Others,
}

#[derive(Default)]
struct Calls {
    calls: Vec<(Ask, Whose, Answer)>,
    closed: bool,
    state: Option<State>,
}

/// Queue of the callers' calls.
struct Inbox {
    calls: Mutex<Calls>,
    /// Whether the queue is not empty: read at each turn of the reactor.
    filled: AtomicBool,
    waker: Arc<Waker>,
    /// The client, as soon as it exists: locked for a turn, or for a call that needs only cached
    /// data.
    fs: Mutex<Option<Fs>>,
    /// The cache above the client.
    keeper: Mutex<Option<Weak<dyn Keeper>>>,
}

impl Inbox {
    /// The outcome of a call, if the client is not busy and cached data suffice.
    fn at_once(&self, ask: Ask, whose: Whose) -> Result<Outcome, Ask> {
        // During a turn the call can just as well be part of the next one.
        let Ok(mut fs) = self.fs.try_lock() else {
            return Err(ask);
        };
        let Some(fs) = &mut *fs else { return Err(ask) };
        let changes = matches!(
            ask,
            Ask::Names(FsCall::Set { .. } | FsCall::Make { .. } | FsCall::Unlink { .. })
        );
        if changes && whose == Whose::Others && self.keeper().is_some() {
            // The client does not have it cached.
            return Err(ask);
        }
        let (outcome, wakes) = fs.at_once(clock::now(), ask)?;
        if wakes {
            self.wake();
        }
        Ok(outcome)
    }
    fn client(&self) -> MutexGuard<'_, Option<Fs>> {
        self.fs
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
    fn wake(&self) {
        if !self.filled.swap(true, Ordering::SeqCst) {
            self.waker.wake();
        }
    }
    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
    /// Accepts no more calls.
    fn close(&self) {
        let mut calls = self.lock();
        calls.closed = true;
        let left = std::mem::take(&mut calls.calls);
        drop(calls);
        left.into_iter()
            .for_each(|(_, _, answer)| answer(Err(ENDED)));
    }
    /// The cache above the client, if it still exists.
    fn keeper(&self) -> Option<Arc<dyn Keeper>> {
        let keeper = self
            .keeper
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        keeper.as_ref().and_then(Weak::upgrade)
    }
    /// Asks the cache above to forget the attributes that the client must take back; returns
    /// whether it has forgotten all.
    fn take_back(&self, now: Time, fs: &mut Fs, out: &mut Vec<Output>) -> bool {
        let mut owed = fs.owed(now);
        if owed.is_empty() {
            return true;
        }
        // A cache that no longer exists shows nothing.
        let keeper = self.keeper();
        let returned: Vec<Ino> = owed
            .extract_if(.., |ino| {
                keeper.as_ref().is_none_or(|keeper| keeper.forget(*ino))
            })
            .collect();
        fs.returned(&returned, out);
        owed.is_empty()
    }
}

/// The client with its callers.
struct Caller {
    inbox: Arc<Inbox>,
    answers: BTreeMap<CallId, Answer>,
    ended: Vec<(CallId, Outcome)>,
    /// When to ask the cache above again.
    owed_at: Time,
}

impl Service for Caller {
    fn on_turn(
        &mut self,
        now: Time,
        inputs: &mut dyn Iterator<Item = Input>,
        objects: &mut dyn ObjectCluster,
        metadata: &mut dyn Metadata,
        out: &mut Vec<Output>,
    ) {
        let mut client = self.inbox.client();
        let fs = client
            .as_mut()
            .expect("it is there as long as its caller is");
        if self.inbox.filled.swap(false, Ordering::SeqCst) {
            let calls = std::mem::take(&mut self.inbox.lock().calls);
            let is_kept = self.inbox.keeper().is_some();
            for (ask, whose, answer) in calls {
                let beside = is_kept && whose == Whose::Others;
                let call = if beside {
                    fs.begin_beside(ask)
                } else {
                    fs.begin(ask)
                };
                self.answers.insert(call, answer);
            }
        }
        let before = fs.state();
        fs.on_turn(now, inputs, objects, metadata, out);
        let is_forgotten = self.inbox.take_back(now, fs, out);
        self.owed_at = if is_forgotten {
            Time::MAX
        } else {
            now + OWED_AGAIN
        };
        if fs.state() != before {
            self.inbox.lock().state = Some(fs.state());
        }
        fs.ended(&mut self.ended);
        drop(client);
        for (call, outcome) in self.ended.drain(..) {
            if let Some(answer) = self.answers.remove(&call) {
                answer(outcome);
            }
        }
    }
    fn next_deadline(&self) -> Time {
        self.inbox
            .client()
            .as_ref()
            .map_or(Time::MAX, Fs::next_deadline)
            .min(self.owed_at)
    }
    fn is_leaving(&self) -> bool {
        self.inbox
            .client()
            .as_ref()
            .is_some_and(Service::is_leaving)
    }
    fn has_calls(&self) -> bool {
        self.inbox.filled.load(Ordering::SeqCst)
    }
    fn instance(&self) -> Option<Instance> {
        self.inbox.client().as_ref().map(Fs::acts_as)
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        *self.inbox.client() = None;
        self.inbox.close();
        std::mem::take(&mut self.answers)
            .into_values()
            .for_each(|answer| answer(Err(ENDED)));
    }
}

/// The client.
struct Running {
    id: ClientId,
    inbox: Arc<Inbox>,
    #[allow(dead_code, reason = "held so that the client runs")]
    thread: OwnThread,
}

/// A file system of a cluster. Cloning is cheap; clones share the client. The client ends with the
/// last clone.
#[derive(Clone)]
pub struct FileSystem(Arc<Running>);

impl FileSystem {
    /// Opens a file system of the cluster named by a `cluster.toml` (or its directory). Returns
    /// once its server has answered.
    ///
    /// # Errors
    /// There is no such file system, or no server for it, within 30 s; [`Error::Start`]: the file
    /// cannot be used.
    pub fn connect(cluster: impl AsRef<Path>, client: &str, name: &str) -> Result<Self, Error> {
        Self::connect_for(
            cluster,
            client,
            name,
            &format!("process {}", std::process::id()),
        )
    }
    /// The same; `about` is the description shown by `nacre fs clients`.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub fn connect_for(
        cluster: impl AsRef<Path>,
        client: &str,
        name: &str,
        about: &str,
    ) -> Result<Self, Error> {
        let config = Config::load(cluster.as_ref())?;
        Self::start(client, name, about, move |waker| {
            Ok((daemon::reactor(&config, waker, 0)?, None))
        })
    }
    /// The same on another engine.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub fn connect_on(
        engines: Arc<dyn Engines>,
        client: &str,
        name: &str,
        about: &str,
    ) -> Result<Self, Error> {
        Self::start(client, name, about, move |waker| {
            Ok((
                Reactor::new(engines.cluster(), BTreeMap::new(), waker, 0)?,
                Some(engines),
            ))
        })
    }

    /// Starts it with a reactor that is made on the client's thread, and the engine, if it is not
    /// ours.
    fn start(
        client: &str,
        name: &str,
        about: &str,
        make: impl FnOnce(Arc<Waker>) -> Result<(Reactor, Option<Arc<dyn Engines>>), StartError>
        + Send
        + 'static,
    ) -> Result<Self, Error> {
        let waker = daemon::waker()?;
        let calls = Mutex::new(Calls::default());
        let inbox = Arc::new(Inbox {
            calls,
            filled: AtomicBool::new(false),
            waker: waker.clone(),
            fs: Mutex::new(None),
            keeper: Mutex::new(None),
        });
        let id = ClientId(directory::random_u128() as u64);
        let start = {
            let (inbox, waker) = (inbox.clone(), waker.clone());
            let (client, name, about) = (client.to_owned(), name.to_owned(), Name::from(about));
            move || {
                let (mut reactor, engines) = make(waker)?;
                let whose = (&*client, &*name, about);
                let who = add_caller(&mut reactor, engines.as_deref(), inbox, id, whose)?;
                Ok((reactor, who))
            }
        };
        let end = |mut reactor: Reactor, who| {
            reactor.shut_down(who);
            daemon::drain(&mut reactor);
        };
        let thread = OwnThread::start(("nacre-files", name.as_ref()), waker, start, end)?;
        let files = Self(Arc::new(Running { id, inbox, thread }));
        files.wait_for_server(name)?;
        Ok(files)
    }

    fn wait_for_server(&self, name: &str) -> Result<(), Error> {
        let (sender, receiver) = std::sync::mpsc::channel();
        self.ask(
            Ask::Names(FsCall::Stat { ino: Ino::ROOT }),
            move |outcome| drop(sender.send(outcome)),
        );
        let outcome = receiver.recv_timeout(OPEN_MAX);
        let state = self.0.inbox.lock().state;
        let why = match (outcome, state) {
            (Ok(Ok(_)), _) => return Ok(()),
            (_, Some(State::Missing)) => {
                format!(
                    "there is no file system {name}: `nacre fs ls` shows which there are, `nacre fs create {name}` makes it"
                )
            }
            (Err(RecvTimeoutError::Timeout), Some(State::NoServer)) => format!(
                "no server answers for file system {name}: `nacre fs status` shows who has it; `nacre mds run` or `nacre up` serve it"
            ),
            (Err(RecvTimeoutError::Timeout), _) => {
                format!(
                    "no monitor has answered within {} s; are the monitors running?",
                    OPEN_MAX.as_secs()
                )
            }
            (Ok(Err(errno)), _) => format!(
                "the root of file system {name} cannot be read ({}); `nacre fs status` and `nacre health detail` say more",
                std::io::Error::from_raw_os_error(errno.into())
            ),
            (Err(RecvTimeoutError::Disconnected), _) => "its client has ended".to_owned(),
        };
        Err(Error::Command(why))
    }

    /// Whether two share a client, and thus their open files.
    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
    /// Identity of this client in the cluster, by which it can be fenced. It then continues as its
    /// next instance.
    #[must_use]
    pub fn id(&self) -> ClientId {
        self.0.id
    }

    /// Begins a call; `answer` is called when it ends, on the client's own thread: it must not
    /// block. A call that needs only cached data is answered on this thread, before this returns.
    pub fn ask(&self, ask: Ask, answer: impl FnOnce(Outcome) + Send + 'static) {
        self.ask_from(Whose::Others, ask, answer);
    }
    /// The same for the cache above: it is not asked to forget the attributes that such a call
    /// changes.
    pub fn ask_as_keeper(&self, ask: Ask, answer: impl FnOnce(Outcome) + Send + 'static) {
        self.ask_from(Whose::Keeper, ask, answer);
    }
    /// Registers a cache above that keeps lent attributes; `false`: there is another one. It makes
    /// its own calls with [`Self::ask_as_keeper`].
    #[must_use]
    pub fn keep_for(&self, keeper: Weak<dyn Keeper>) -> bool {
        let mut place = self
            .0
            .inbox
            .keeper
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let is_free = place
            .as_ref()
            .is_none_or(|keeper| keeper.strong_count() == 0);
        if is_free {
            *place = Some(keeper);
        }
        is_free
    }
    /// How long the cache above may show the attributes that it was just given without asking: at
    /// most until [`Keeper::forget`] is called. Zero: not at all.
    #[must_use]
    pub fn lend(&self, node: &FsNode) -> Duration {
        // During a turn this is unknown.
        let Ok(mut fs) = self.0.inbox.fs.try_lock() else {
            return Duration::ZERO;
        };
        fs.as_mut()
            .map_or(Duration::ZERO, |fs| fs.lend(clock::now(), node))
    }

    fn ask_from(&self, whose: Whose, ask: Ask, answer: impl FnOnce(Outcome) + Send + 'static) {
        let inbox = &self.0.inbox;
        let ask = match inbox.at_once(ask, whose) {
            Ok(outcome) => return answer(outcome),
            Err(ask) => ask,
        };
        let mut calls = inbox.lock();
        if calls.closed {
            drop(calls);
            return answer(Err(ENDED));
        }
        calls.calls.push((ask, whose, Box::new(answer)));
        drop(calls);
        inbox.wake();
    }

    /// The same, and waits for its end.
    ///
    /// # Errors
    /// The call's error number.
    pub fn call(&self, ask: Ask) -> Result<Given, u16> {
        block_on(self.asked(ask))
    }
    /// All clients that have a session, including this one.
    ///
    /// # Errors
    /// The call's error number.
    pub fn clients(&self) -> Result<Vec<FsClient>, u16> {
        let mut all: Vec<FsClient> = Vec::new();
        loop {
            let after = all.last().map_or(0, |client| client.client.0);
            match self.call(Ask::Names(FsCall::Clients { after }))? {
                Given::Answer(FsAnswer::Clients { clients, end }) => {
                    let is_over = end || clients.is_empty();
                    all.extend(clients);
                    if is_over {
                        return Ok(all);
                    }
                }
                other => unreachable!("clients were asked for, not {other:?}"),
            }
        }
    }
    /// Ends a client's session: its unwritten data are lost.
    ///
    /// # Errors
    /// The call's error number; `ESRCH`: it has no session.
    pub fn evict(&self, client: ClientId) -> Result<(), u16> {
        self.call(Ask::Names(FsCall::Evict { client })).map(drop)
    }
    /// Assigns an empty directory to another rank: that rank's server serves everything created
    /// below it from then on.
    ///
    /// # Errors
    /// The error number of the look-up of its path, or of [`FsCall::Pin`].
    pub fn pin(&self, path: &[&str], rank: Rank) -> Result<(), u16> {
        let Some((name, above)) = path.split_last() else {
            return Err(EBUSY);
        };
        let dir = self.look_up(above)?;
        self.call(Ask::Names(FsCall::Pin {
            dir,
            name: Name::from(*name),
            rank: rank.0,
        }))
        .map(drop)
    }
    /// The inode at a path.
    fn look_up(&self, path: &[&str]) -> Result<Ino, u16> {
        let mut dir = Ino::ROOT;
        for name in path {
            match self.call(Ask::Names(FsCall::Lookup {
                dir,
                name: Name::from(*name),
            }))? {
                Given::Answer(FsAnswer::Node { node, .. }) => dir = node.inode.ino,
                other => unreachable!("a name was looked up, and not {other:?}"),
            }
        }
        Ok(dir)
    }
    /// Limits the contents of a directory; `None` removes the limit of that kind.
    ///
    /// # Errors
    /// The error number of the look-up of its path, or of [`FsCall::SetXattr`].
    pub fn set_quota(&self, path: &[&str], bounds: &[(QuotaKind, Option<u64>)]) -> Result<(), u16> {
        let ino = self.look_up(path)?;
        for (kind, max) in bounds {
            let value = max.unwrap_or(0).to_string().into();
            let set = FsCall::SetXattr {
                ino,
                name: kind.name().into(),
                value,
                fresh: None,
                drop_sgid: false,
            };
            self.call(Ask::Names(set))?;
        }
        Ok(())
    }
    /// A directory's own quotas, and the usage of each.
    ///
    /// # Errors
    /// The error number of the look-up of its path, or of [`FsCall::Usage`].
    pub fn quotas(&self, path: &[&str]) -> Result<Vec<FsQuota>, u16> {
        let ino = self.look_up(path)?;
        match self.call(Ask::Names(FsCall::Usage { ino }))? {
            Given::Answer(FsAnswer::Usage { mut quotas, .. }) => {
                quotas.retain(|quota| quota.dir == ino);
                Ok(quotas)
            }
            other => unreachable!("the usage of a directory was asked for, and not {other:?}"),
        }
    }
    /// Waits until the server has written its current changes to directories.
    ///
    /// # Errors
    /// The call's error number.
    pub fn flush(&self) -> Result<(), u16> {
        self.call(Ask::Names(FsCall::Flush {})).map(drop)
    }
}

/// Adds the client to a reactor.
fn add_caller(
    reactor: &mut Reactor,
    engines: Option<&dyn Engines>,
    inbox: Arc<Inbox>,
    id: ClientId,
    (client, name, about): (&str, &str, Name),
) -> Result<Entity, StartError> {
    let unix_ms_at_zero = clock::unix_ms_at_zero();
    let config = ClientConfig {
        unix_ms_at_zero,
        ..ClientConfig::new(id)
    };
    let instance = config.instance;
    let fs = Fs::new(FsConfig {
        file_system: name.into(),
        about,
        instance,
        unix_ms_at_zero,
        names_max: names_max(machine::memory()),
        ahead: LookAhead::default(),
        data_max: DATA_MAX,
        dirty_max: DIRTY_MAX,
        early_above: EARLY_ABOVE,
    });
    *inbox.client() = Some(fs);
    let caller = Caller {
        inbox,
        answers: BTreeMap::new(),
        ended: Vec::new(),
        owed_at: Time::MAX,
    };
    add_service(reactor, engines, config, Box::new(caller), client)
}

/// Number of names and attributes that a client caches with this much memory, in bytes.
fn names_max(memory: u64) -> usize {
    machine::fitting(memory / 32, NAME_BYTES, NAMES_LEAST..=NAMES_MOST)
}

/// Adds a service that is a client of the cluster, under this name.
pub(crate) fn add_service(
    reactor: &mut Reactor,
    engines: Option<&dyn Engines>,
    config: ClientConfig,
    service: Box<dyn Service + Send>,
    name: &str,
) -> Result<Entity, StartError> {
    let (id, instance) = (config.id, config.instance);
    let role = match engines {
        None => Placed::Ours(Served::new(service, config, clock::now())),
        Some(engines) => Placed::Other(Beside::new(
            service,
            engines.open(id, instance, reactor.waker().on_other_threads()),
        )),
    };
    let role = AnyRole::Service(Box::new(role));
    let (entity, name) = (Entity::Client(id), name.into());
    reactor.add(NodeParts {
        entity,
        role,
        begun: Vec::new(),
        name,
        store: None,
        listener: None,
    })?;
    Ok(entity)
}
