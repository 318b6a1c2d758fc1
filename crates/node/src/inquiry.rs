//! Status of the holders of ranks, for operators ([`nacre_fs::Inquiry`]).

use crate::clock;
use crate::config::Config;
use crate::daemon;
use crate::directory;
use crate::error::StartError;
use crate::files::add_service;
use crate::reactor::Reactor;
use nacre_client::{ClientConfig, Engines, Metadata, ObjectCluster, Service};
use nacre_fs::Inquiry;
use nacre_role::{Input, Output};
use nacre_types::{ClientId, Rank, Time};
use nacre_wire::fs::FsHolder;
use nacre_wire::msg::fs::FsFigures;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The service, shared with the host that reads its results.
#[derive(Clone)]
struct Shared(Arc<Mutex<Inquiry>>);

impl Shared {
    fn look(&self) -> MutexGuard<'_, Inquiry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Service for Shared {
    fn on_turn(
        &mut self,
        now: Time,
        inputs: &mut dyn Iterator<Item = Input>,
        objects: &mut dyn ObjectCluster,
        metadata: &mut dyn Metadata,
        out: &mut Vec<Output>,
    ) {
        self.look().on_turn(now, inputs, objects, metadata, out);
    }
    fn next_deadline(&self) -> Time {
        self.look().next_deadline()
    }
}

/// Asks for the holders of all ranks; those that do not answer within that time are left out.
/// `client` is the name of this client.
///
/// # Errors
/// [`StartError`].
pub fn inquire(
    config: &Config,
    client: &str,
    holders: Vec<(Rank, FsHolder)>,
    max: Duration,
) -> Result<BTreeMap<Rank, FsFigures>, StartError> {
    ask(
        daemon::reactor(config, daemon::waker()?, 0)?,
        None,
        client,
        holders,
        max,
    )
}

/// The same on another engine.
///
/// # Errors
/// [`StartError`].
pub fn inquire_on(
    engines: &dyn Engines,
    client: &str,
    holders: Vec<(Rank, FsHolder)>,
    max: Duration,
) -> Result<BTreeMap<Rank, FsFigures>, StartError> {
    let reactor = Reactor::new(engines.cluster(), BTreeMap::new(), daemon::waker()?, 0)?;
    ask(reactor, Some(engines), client, holders, max)
}

fn ask(
    mut reactor: Reactor,
    engines: Option<&dyn Engines>,
    client: &str,
    holders: Vec<(Rank, FsHolder)>,
    max: Duration,
) -> Result<BTreeMap<Rank, FsFigures>, StartError> {
    let shared = Shared(Arc::new(Mutex::new(Inquiry::new(holders))));
    let id = ClientId(directory::random_u128() as u64);
    let config = ClientConfig {
        unix_ms_at_zero: clock::unix_ms_at_zero(),
        ..ClientConfig::new(id)
    };
    let who = add_service(
        &mut reactor,
        engines,
        config,
        Box::new(shared.clone()),
        client,
    )?;
    let begun = Instant::now();
    while !shared.look().is_over()
        && let Some(left) = max.checked_sub(begun.elapsed())
    {
        reactor.turn(left);
    }
    reactor.shut_down(who);
    daemon::drain(&mut reactor);
    let told = shared.look().told().clone();
    Ok(told)
}
