//! Stories of one daemon: which maps and instances it accepts, and what it erases.

use super::rig::{Host, MON, Monitors, PG, process};
use super::scenes::served_alone;
use nacre_types::{Entity, Epoch, Instance, OsdId, Version};
use nacre_wire::Message;
use nacre_wire::map::Change;
use nacre_wire::msg::replication::Ping;

/// Simulator with real monitors, seed 35. All machines lost power. A monitor came back first, at
/// the epoch of its snapshot; the pool was younger. An OSD that came back then was sent that map,
/// found that none of its PGs existed any more, and erased them all.
#[test]
fn a_map_from_before_the_pool_erases_nothing() {
    let (monitors, host, epoch) = served_alone();
    let mut old = Monitors::of(1);
    assert!(!old.map.pools.contains_key(&PG.pool) && old.map.epoch < epoch);
    let mut host = host.restart(2);
    host.tell(MON, old.map.epoch, old.full());
    old.up(0, process(0, 7));
    host.tell(MON, old.map.epoch, old.since(Epoch(1)));
    assert_eq!(host.removed, 0);
    let mut host = host.restart(3);
    host.tell(MON, epoch, monitors.full());
    let group = host
        .osd
        .pgs()
        .find(|pg| pg.id() == PG)
        .expect("it is there");
    assert!(
        group.local.exists && group.local.log.head() > Version::NONE,
        "with everything that was written"
    );
}

/// The opposite case: a map that has known the pool and no longer contains it is followed.
#[test]
fn a_pool_that_is_removed_takes_its_data_along() {
    let (mut monitors, mut host, epoch) = served_alone();
    let gone = monitors.commit(vec![Change::PoolRemove { pool: PG.pool }]);
    host.tell(MON, gone, monitors.since(epoch));
    host.wait(100);
    assert!(host.removed > 0);
    assert!(host.osd.pgs().all(|pg| !pg.local.exists));
    let (mut monitors, host, epoch) = served_alone();
    let mut host = host.restart(2);
    monitors.commit(vec![Change::PoolRemove { pool: PG.pool }]);
    monitors.up(0, process(0, 2));
    assert!(monitors.map.epoch > epoch);
    host.tell(MON, monitors.map.epoch, monitors.full());
    host.wait(100);
    assert!(
        host.removed > 0,
        "also when it is gone at the first map of a life"
    );
}

/// Simulator, seed 15. The monitors committed the boot of an instance, then a failure report on the
/// same instance, before the daemon learned of either. It announced that instance again, for ever,
/// and the monitors took each announcement for a late frame.
#[test]
fn an_instance_given_up_before_it_heard_of_itself_is_followed_by_another() {
    let mut monitors = Monitors::of(1);
    let mut host = Host::new(0);
    assert_eq!(host.boots(), [Instance(0)]);
    monitors.up(0, process(0, 1));
    monitors.down(0);
    host.tell(MON, monitors.map.epoch, monitors.full());
    assert!(!host.osd.is_live());
    let boots = host.boots();
    assert!(
        !boots.is_empty() && boots.iter().all(|instance| *instance == Instance(1)),
        "{boots:?}"
    );
    let before = monitors.map.epoch;
    monitors.up(0, process(0, 1));
    host.tell(MON, monitors.map.epoch, monitors.since(before));
    assert!(host.osd.is_live());
    assert_eq!(host.osd.instance(), Instance(2));
}

/// F1, proven on processes: an OSD that was marked down while it was alive continued as the next
/// instance, which only its memory knew. Killed and started again, it counted its starts, computed
/// the same number, and was up at once in the same interval, which it did not remember: as a
/// replica it ignored every update for ever, as a primary it considered committed what its members
/// had not adopted.
#[test]
fn a_process_is_never_live_as_an_instance_that_another_was_granted() {
    let mut monitors = Monitors::of(1);
    let mut host = Host::new(0);
    monitors.up(0, process(0, 1));
    monitors.pool(1);
    host.tell(MON, Epoch::NONE, monitors.full());
    assert!(host.osd.is_live());
    let mut before = monitors.map.epoch;
    monitors.down(0);
    monitors.up(0, process(0, 1));
    host.tell(MON, monitors.map.epoch, monitors.since(before));
    assert!(host.osd.is_live(), "it lived on");
    assert_eq!(host.osd.instance(), Instance(2));
    let interval = monitors.map.pgs[&PG].since;

    let mut host = host.restart(2);
    host.tell(MON, monitors.map.epoch, monitors.full());
    host.wait(1000);
    assert!(
        !host.osd.is_live(),
        "the map names instance 2, and its store too, but that was another process"
    );
    assert!(host.boots().iter().all(|instance| *instance == Instance(2)));
    before = monitors.map.epoch;
    monitors.up(0, process(0, 2));
    host.tell(MON, monitors.map.epoch, monitors.since(before));
    assert!(host.osd.is_live());
    assert_eq!(host.osd.instance(), Instance(3));
    assert_ne!(
        monitors.map.pgs[&PG].since, interval,
        "everybody begins a new interval with it"
    );
}

/// A daemon acts as an instance only after the instance is stored: after a crash in between, no
/// other daemon has received anything.
#[test]
fn an_instance_is_stored_before_anything_is_done_as_it() {
    let mut monitors = Monitors::of(2);
    let mut host = Host::new(0);
    monitors.up(0, process(0, 1));
    monitors.up(1, process(1, 1));
    monitors.pool(2);
    host.commits = false;
    host.tell(MON, Epoch::NONE, monitors.full());
    host.wait(1000);
    assert!(!host.osd.is_live());
    assert_eq!(host.sent_to(1).len(), 0, "not even a question");
    host.tell(
        Entity::Osd(OsdId(1)),
        monitors.map.epoch,
        Message::Ping(Ping { stamp: 1 }),
    );
    assert_eq!(host.sent_to(1).len(), 0);
    host.commits = true;
    host.perform(Vec::new());
    assert!(host.osd.is_live());
    let sent = host.sent_to(1);
    assert!(
        sent.iter()
            .any(|message| matches!(message, Message::Pong(_))),
        "what came meanwhile is answered: {sent:?}"
    );
    let host = host.restart(2);
    assert_eq!(host.osd.instance(), Instance(1));
}

/// Monitors that were reset to an older state grant a number that was used: it is refused, and they
/// are informed.
#[test]
fn an_instance_that_the_store_has_had_is_not_taken_again() {
    let mut monitors = Monitors::of(1);
    let mut host = Host::new(0);
    for _ in 0..3 {
        monitors.up(0, process(0, 1));
    }
    host.tell(MON, monitors.map.epoch, monitors.full());
    assert_eq!(host.osd.instance(), Instance(3));
    let mut host = host.restart(2);
    let mut restored = Monitors::of(1);
    restored.up(0, process(0, 2));
    host.tell(MON, restored.map.epoch, restored.full());
    host.wait(1000);
    assert!(!host.osd.is_live());
    assert!(host.boots().iter().all(|instance| *instance == Instance(3)));
}
