//! Assembling daemons: role, store, listener; and the process of a daemon.

use crate::access::{Access, Port};
use crate::any_role::AnyRole;
use crate::clock;
use crate::config::Config;
use crate::directory;
use crate::error::StartError;
use crate::evaluator::{self, Clock};
use crate::locks::Lock;
use crate::moved::MovedFile;
use crate::net::{self, Listener};
use crate::reactor::{NodeParts, Reactor};
use crate::wake::Waker;
use nacre_client::{Client, ClientConfig};
use nacre_mon::{Mon, MonConfig};
use nacre_osd::{Limits, Osd, OsdConfig, Timing};
use nacre_types::{ClientId, Entity, Instance, MonId, Name, OsdId};
use nacre_wire::map::Address;
use rustix::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Options of daemons beyond the directory's configuration.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// Protocol timing of the OSDs.
    pub timing: Timing,
    /// Limits of the OSDs.
    pub limits: Limits,
    /// Interval of the monitors' consensus ticks.
    pub mon_tick: Duration,
    /// Whether an embedded cluster also listens on its addresses.
    pub listen: bool,
    /// Whether an embedded cluster also runs servers of file systems.
    pub servers: bool,
    /// Called on the reactor's thread after a second of almost no work: to release memory, for
    /// example.
    pub idle: Option<fn()>,
}
impl Default for RunOptions {
    fn default() -> Self {
        Self {
            timing: Timing::default(),
            limits: Limits::default(),
            mon_tick: Duration::from_millis(50),
            listen: true,
            servers: true,
            idle: None,
        }
    }
}

fn listener(
    who: Entity,
    address: &str,
    listen: bool,
) -> Result<Option<(Listener, Address)>, StartError> {
    if address.is_empty() || !listen {
        return Ok(None);
    }
    Ok(Some((
        net::listen(&who.to_string(), address)?,
        Address(address.to_owned()),
    )))
}

/// Adds a monitor to a reactor.
pub fn add_mon(
    reactor: &mut Reactor,
    config: &Config,
    id: MonId,
    options: &RunOptions,
) -> Result<(), StartError> {
    let who = Entity::Mon(id);
    let entry = config
        .mons
        .get(&id)
        .ok_or_else(|| StartError::NoSuchDaemon {
            who: who.to_string(),
        })?;
    reactor.when_idle(options.idle);
    // Open the port first: of two processes, the one that cannot serve must not touch the store.
    let listener = listener(who, &entry.address, options.listen)?;
    let store = reactor.open_store(who, &entry.path)?;
    let mut settings = MonConfig::new(id, config.cluster, directory::random_u128() as u64);
    settings.tick = options.mon_tick;
    settings.unix_ms_at_zero = clock::unix_ms_at_zero();
    let mut out = Vec::new();
    let mon = Mon::open_with(settings, evaluator::scripts(), clock::now(), &mut out);
    reactor.add(NodeParts {
        entity: who,
        role: AnyRole::Mon(Box::new(mon)),
        begun: out,
        name: Name::default(),
        store: Some(store),
        listener,
    })
}

/// Adds an OSD to a reactor.
pub fn add_osd(
    reactor: &mut Reactor,
    config: &Config,
    id: OsdId,
    options: &RunOptions,
) -> Result<(), StartError> {
    let who = Entity::Osd(id);
    let entry = config
        .osds
        .get(&id)
        .ok_or_else(|| StartError::NoSuchDaemon {
            who: who.to_string(),
        })?;
    reactor.when_idle(options.idle);
    let listener = listener(who, &entry.address, options.listen)?;
    let mut store = reactor.open_store(who, &entry.path)?;
    store.look_at_host(config, &entry.path);
    let identity = directory::identify(config.cluster, id, &entry.path, &mut store)?;
    let settings = OsdConfig {
        id,
        process: directory::random_u128() as u64 | 1,
        store: identity,
        address: Address(entry.address.clone()),
        class: entry.class.clone(),
        host: entry.host.clone(),
        capacity: store.usage().total,
        timing: options.timing,
        limits: options.limits,
    };
    let mut out = Vec::new();
    let mut osd = Osd::open(settings, clock::now(), &mut out);
    osd.set_patience(Arc::new(Clock::inline()));
    reactor.add(NodeParts {
        entity: who,
        role: AnyRole::Osd(Box::new(osd)),
        begun: out,
        name: Name::default(),
        store: Some(store),
        listener,
    })
}

/// Adds a client named `name` to a reactor; `port` is the queue of its callers.
pub fn add_client(
    reactor: &mut Reactor,
    port: Arc<Port>,
    name: &str,
) -> Result<Entity, StartError> {
    let id = ClientId(directory::random_u128() as u64);
    let config = ClientConfig {
        unix_ms_at_zero: clock::unix_ms_at_zero(),
        ..ClientConfig::new(id)
    };
    let instance: Instance = config.instance;
    let client = Client::new(config, clock::now());
    let entity = Entity::Client(id);
    let role = AnyRole::Client(Box::new(Access::new(client, instance, port)));
    reactor.add(NodeParts {
        entity,
        role,
        begun: Vec::new(),
        name: name.into(),
        store: None,
        listener: None,
    })?;
    Ok(entity)
}

/// A reactor for this configuration's cluster.
pub fn reactor(config: &Config, waker: Arc<Waker>, stores: usize) -> Result<Reactor, StartError> {
    // One flush per store at a time, and capacity for the stores' own jobs.
    Reactor::new(config.cluster, config.mon_addresses(), waker, stores * 2)
}

/// Creates a waker.
pub fn waker() -> Result<Arc<Waker>, StartError> {
    let failed = |errno: rustix::io::Errno| StartError::Io {
        doing: "make",
        path: "an event counter".into(),
        error: errno.into(),
    };
    Ok(Arc::new(Waker::new().map_err(failed)?))
}

/// How long a stopping daemon waits for its last messages and writes.
const DRAIN_MAX: Duration = Duration::from_secs(2);

/// Runs a monitor until SIGTERM or SIGINT, or until it stops by itself. Human-readable lines go to
/// `say`.
///
/// # Errors
/// [`StartError`].
pub fn run_mon(
    config: &Config,
    id: MonId,
    options: &RunOptions,
    say: &mut dyn FnMut(&str),
) -> Result<(), StartError> {
    run(config, Entity::Mon(id), say, |reactor| {
        add_mon(reactor, config, id, options)
    })
}

/// Runs an OSD until SIGTERM or SIGINT, or until it stops by itself. Human-readable lines go to
/// `say`.
///
/// # Errors
/// [`StartError`].
pub fn run_osd(
    config: &Config,
    id: OsdId,
    options: &RunOptions,
    say: &mut dyn FnMut(&str),
) -> Result<(), StartError> {
    run(config, Entity::Osd(id), say, |reactor| {
        add_osd(reactor, config, id, options)
    })
}

fn run(
    config: &Config,
    who: Entity,
    say: &mut dyn FnMut(&str),
    add: impl FnOnce(&mut Reactor) -> Result<(), StartError>,
) -> Result<(), StartError> {
    let _lock = Lock::daemon(config, &who.to_string())?;
    for line in crate::creating::tighten(config) {
        say(&line);
    }
    let mut reactor = reactor(config, waker()?, 1)?;
    let told = Arc::new(AtomicBool::new(false));
    reactor.watch_signal(signals(&told)?)?;
    reactor.when_hung(|why| end_process(why, HUNG));
    reactor.end_within(told, LATE, |why| end_process(why, 0));
    add(&mut reactor)?;
    let mut moved = MovedFile::new(config, &who.to_string());
    while !reactor.is_signalled() {
        reactor.turn(Duration::from_secs(1));
        moved.note(|| reactor.moved());
        for line in reactor.take_said() {
            say(&line);
        }
        if let Some((_, why)) = reactor.halted().pop() {
            // Its last messages, to the monitors for example, may still be in flight.
            drain(&mut reactor);
            return Err(StartError::Halted {
                who: who.to_string(),
                why,
            });
        }
    }
    reactor.shut_down(who);
    drain(&mut reactor);
    Ok(())
}

/// Ends this process without waiting for its threads: one of them hangs in the kernel.
pub fn end_process(why: &str, code: i32) {
    use std::io::Write as _;
    let line = format!("{why}\n");
    let (said, heard) = std::sync::mpsc::channel();
    // On a separate thread: the reader may hang too, and a full pipe would block this process for
    // ever.
    let say = move || {
        let _ = std::io::stderr().write_all(line.as_bytes());
        let _ = said.send(());
    };
    if std::thread::Builder::new()
        .name("nacre-end".to_owned())
        .spawn(say)
        .is_ok()
    {
        let _ = heard.recv_timeout(SAY_MAX);
    }
    std::process::exit(code);
}
/// How long an ending process waits for the reason to be written.
const SAY_MAX: Duration = Duration::from_secs(1);
/// A process that was told to stop ends after this time even if something hangs: before `nacre
/// down` kills it.
pub const LATE: Duration = Duration::from_secs(15);
/// Exit code of a daemon whose device hangs.
const HUNG: i32 = 3;

/// Runs the reactor until all messages and writes are done, within a bound: leaving roles bound it
/// themselves.
pub fn drain(reactor: &mut Reactor) {
    let mut begun = clock::now();
    loop {
        reactor.turn(Duration::from_millis(10));
        if reactor.is_leaving() {
            begun = clock::now();
        } else if reactor.is_drained() && reactor.mark_ends()
            || clock::now().since(begun) > DRAIN_MAX
        {
            return;
        }
    }
}

/// A descriptor that becomes readable on SIGTERM and SIGINT; `told` becomes true, too.
pub fn signals(told: &Arc<AtomicBool>) -> Result<OwnedFd, StartError> {
    let failed = |error| StartError::Io {
        doing: "watch",
        path: "signals".into(),
        error,
    };
    let (reader, writer) = std::os::unix::net::UnixStream::pair().map_err(failed)?;
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        let writer = writer.try_clone().map_err(failed)?;
        signal_hook::low_level::pipe::register(signal, writer).map_err(failed)?;
        signal_hook::flag::register(signal, told.clone()).map_err(failed)?;
    }
    reader.set_nonblocking(true).map_err(failed)?;
    Ok(reader.into())
}
