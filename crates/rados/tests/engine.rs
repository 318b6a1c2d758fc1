//! Ceph as a service's engine: two clients, one of which fences the other.

use crate::OwnPool;
use nacre_client::{Completion, Engine, Engines, Failure, Operation, Refused, Wake};
use nacre_rados::{Bounds, CephEngines, Rados, instances};
use nacre_types::{ClientId, Instance, ObjectId, PoolId, Time};
use nacre_wire::msg::client::{OpFailure, SubOp, SubReply};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const WAIT_MAX: Duration = Duration::from_secs(60);

/// A client with a host that only waits for it.
struct Client {
    engine: Box<dyn Engine + Send>,
    woken: Receiver<()>,
    pool: PoolId,
    said: Vec<String>,
}

impl Client {
    fn open(conf: &Path, number: u64, pool: PoolId) -> Self {
        let engines = CephEngines::find(conf, "admin").expect("there is a cluster");
        let (sender, woken) = channel();
        let wake: Wake = Arc::new(move || sender.send(()).unwrap_or(()));
        let engine = engines.open(ClientId(number), Instance(1), wake);
        Self {
            engine,
            woken,
            pool,
            said: Vec::new(),
        }
    }
    /// A turn whenever it is woken, until one brings what is waited for.
    fn until<T>(&mut self, what: &str, mut found: impl FnMut(&mut dyn Engine) -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            self.engine.listen();
            self.said.append(&mut self.engine.said());
            if let Some(found) = found(&mut *self.engine) {
                return found;
            }
            let left = WAIT_MAX.saturating_sub(begun.elapsed());
            assert!(
                self.woken.recv_timeout(left).is_ok(),
                "{what} never comes; it said {:?}",
                self.said
            );
        }
    }
    /// Executes one operation on the object `o`.
    fn run(&mut self, ops: Vec<SubOp>) -> Completion {
        let pool = self.pool;
        let mut begun = None;
        self.until("an end", |engine| {
            let (objects, _) = engine.parts();
            if begun.is_none() {
                let object = ObjectId::named("o");
                let operation = Operation {
                    pool,
                    object,
                    ops: ops.clone(),
                    ..Operation::default()
                };
                match objects.submit(Time::ZERO, operation) {
                    Ok(id) => begun = Some(id),
                    Err(Refused::NotConnected) => {}
                    Err(refused) => panic!("{refused:?}"),
                }
            }
            let mut ended = Vec::new();
            objects.completions(&mut ended);
            ended
                .into_iter()
                .find(|completion| Some(completion.id) == begun)
        })
    }
    fn set(&mut self, key: &'static [u8]) -> Result<(), Failure> {
        let entries = vec![(key.into(), vec![1].into())];
        self.run(vec![SubOp::OmapSet { entries }]).result.map(drop)
    }
    fn keys(&mut self) -> Vec<Vec<u8>> {
        let done = self
            .run(vec![SubOp::OmapList {
                after: vec![0].into(),
                limit: 100,
            }])
            .result
            .expect("read");
        let [SubReply::Entries { entries, .. }] = &done.results[..] else {
            panic!("{done:?}")
        };
        entries.iter().map(|(key, _)| key.to_vec()).collect()
    }
    /// Fences another client, and waits until that is in force.
    fn fence(&mut self, client: u64, instance: u64) {
        let mut begun = None;
        self.until("a fence", |engine| {
            let (objects, _) = engine.parts();
            if begun.is_none() {
                begun = objects
                    .fence(Time::ZERO, ClientId(client), Instance(instance))
                    .ok();
            }
            let mut ended = Vec::new();
            objects.completions(&mut ended);
            ended
                .iter()
                .any(|ended| Some(ended.id) == begun)
                .then(|| assert!(ended[0].result.is_ok(), "{ended:?}"))
        });
    }
}

const FENCED: Failure = Failure::Refused(OpFailure::Fenced {});

#[test]
fn a_fenced_instance_does_nothing_more_and_its_client_goes_on_as_the_next() {
    let Some((conf, _shared)) = crate::ceph("fences on Ceph") else {
        return;
    };
    if !Rados::connect(&conf, "admin", &Bounds::default())
        .expect("connects")
        .knows_addresses()
    {
        eprintln!(
            "SKIPPED fences on Ceph: this librados does not say by which address its client is known"
        );
        return;
    }
    let pool = OwnPool::make(&conf, "engine");
    let base = u64::from(std::process::id()) << 8;
    let mut one = Client::open(&conf, base, pool.id);
    let mut other = Client::open(&conf, base + 1, pool.id);
    assert_eq!(one.set(b"a\0b"), Ok(()), "keys may have bytes 0 in them");
    other.fence(base, 1);
    // The fencing client's operations bring the map to the object's primary before they are
    // executed there.
    assert_eq!(other.keys(), [b"a\0b"]);
    assert_eq!(one.set(b"late"), Err(FENCED));
    assert_eq!(other.keys(), [b"a\0b"]);

    one.engine.begin_again(Instance(2));
    assert_eq!(one.engine.instance(), Instance(2));
    assert_eq!(one.set(b"next"), Ok(()));
    assert_eq!(other.keys(), [&b"a\0b"[..], b"next"]);
    // Peers that learn of this map depend on it; one that has it, or a newer one, is not delayed.
    let epoch = other.engine.epoch();
    assert!(epoch.0 > 0);
    one.engine.parts().0.rest_on(epoch);
    assert_eq!(one.keys().len(), 2);

    // An instance that is fenced before it has sent anything never sends; one with a later number
    // is different.
    let mut early = Client::open(&conf, base + 2, pool.id);
    other.fence(base + 2, 1);
    assert_eq!(early.set(b"never"), Err(FENCED));
    early.engine.begin_again(Instance(2));
    assert_eq!(early.set(b"then"), Ok(()));
    assert_eq!(other.keys().len(), 3);
    assert!(one.said.is_empty() && other.said.is_empty() && early.said.is_empty());
    for number in [base, base + 2] {
        let rados = Rados::connect(&conf, "admin", &Bounds::default()).expect("connects");
        instances::fence(&rados, ClientId(number), Instance(2)).expect("again, as often as wanted");
    }
    assert_eq!(one.set(b"late"), Err(FENCED));
}
