//! Situations of one daemon from which stories begin, and messages of its peers.

use super::rig::{Host, MON, Monitors, PG, ask, operation, process, write};
use bytes::Bytes;
use nacre_types::{ClientId, Entity, Epoch, Instance, ObjectId, OsdId, Version};
use nacre_wire::map::Change;
use nacre_wire::msg::client::{OpRequest, RequestId, SubOp};
use nacre_wire::msg::replication::{
    Adopt, AdoptAck, Dedup, Logged, Missing, PeerInfo, PgInfo, Pong, Progress, Push, ReplicateAcks,
    ScanReply, Totals,
};
use nacre_wire::{Message, Payload, Record, RecordFields};

/// A pool of one PG and one replica, served and written to.
pub(super) fn served_alone() -> (Monitors, Host, Epoch) {
    let mut monitors = Monitors::of(1);
    let mut host = Host::new(0);
    monitors.up(0, process(0, 1));
    monitors.pool(1);
    host.tell(MON, Epoch::NONE, monitors.full());
    let before = monitors.map.epoch;
    let epoch = monitors.activate(vec![OsdId(0)]);
    host.tell(MON, epoch, monitors.since(before));
    write(1, epoch, &mut host);
    let answered = |(_, message): &(Entity, Message)| matches!(message, Message::OpReply(reply, _) if reply.failure.is_none());
    assert!(host.sent.iter().any(answered), "{:?}", host.sent);
    (monitors, host, epoch)
}

/// The entry of the update that creates object `a`, of one byte, the only object of its PG.
pub(super) fn first_of_a(version: Version) -> Record {
    let request = RequestId {
        client: ClientId(8),
        instance: Instance(1),
        sequence: 1,
    };
    let totals = Totals {
        objects: 1,
        bytes: 1,
        estimated: false,
    };
    let fields = RecordFields {
        version,
        request,
        answered_below: 1,
        totals,
        ..RecordFields::default()
    };
    Record::new(RecordFields {
        object: ObjectId::named("a"),
        ..fields
    })
}

/// A member's report that it has everything up to this version.
fn logged(interval: Epoch, version: Version) -> Message {
    let logged = vec![Logged {
        pg: PG,
        interval,
        version,
    }];
    Message::ReplicateAcks(ReplicateAcks {
        logged,
        nearly_full: false,
    })
}

/// A peer's report that peering asked for.
pub(super) fn peer_info(interval: Epoch, info: PgInfo) -> Message {
    Message::PeerInfo(PeerInfo {
        pg: PG,
        interval,
        info,
        lease_left_ns: 0,
        logged_max: 0,
    })
}

/// A member has adopted the log up to `head`, and lacks nothing.
pub(super) fn adopted(interval: Epoch, head: Version) -> Message {
    Message::AdoptAck(AdoptAck {
        pg: PG,
        interval,
        head,
        missing: Vec::new(),
        backfill: None,
        undone: Vec::new(),
    })
}

/// The member makes the first update durable that was sent to it; returns that one's interval and
/// version.
pub(super) fn makes_durable(host: &mut Host, member: Entity, epoch: Epoch) -> (Epoch, Version) {
    let update = |(to, message): &(Entity, Message)| match message {
        Message::Replicate(sent, _) if *to == member => {
            Some((sent.updates[0].interval, sent.updates[0].entry.version()))
        }
        _ => None,
    };
    let sent = host.sent.iter().find_map(update);
    let (interval, version) = sent.expect("the write goes to the member");
    host.tell(member, epoch, logged(interval, version));
    (interval, version)
}

/// Two members and their primary up to the point where it serves; the test controls the second
/// member's messages.
pub(super) fn served_by_two() -> (Monitors, Host, Epoch, u32) {
    let mut monitors = Monitors::of(2);
    monitors.up(0, process(0, 1));
    monitors.up(1, process(1, 1));
    monitors.pool(2);
    let acting = monitors.map.pgs[&PG].acting.clone();
    let (primary, member) = (acting[0].0, acting[1].0);
    let mut host = Host::new(primary);
    host.tell(MON, monitors.map.epoch, monitors.full());
    assert!(host.osd.is_live());
    let (from, interval, epoch) = (
        Entity::Osd(OsdId(member)),
        monitors.map.pgs[&PG].since,
        monitors.map.epoch,
    );
    host.tell(from, epoch, peer_info(interval, PgInfo::default()));
    host.tell(from, epoch, adopted(interval, Version::NONE));
    let members = acting;
    let after = monitors.activate(members);
    host.tell(MON, after, monitors.since(epoch));
    (monitors, host, after, member)
}

/// The member of [`served_by_two`] starts over with nothing; the primary has one object of two
/// parts to give it.
pub(super) fn one_object_to_give() -> (Host, Epoch, Epoch, u32, Version) {
    let (mut monitors, mut host, epoch, member) = served_by_two();
    let from = Entity::Osd(OsdId(member));
    write(1, epoch, &mut host);
    let version = Version {
        interval: monitors.map.pgs[&PG].since,
        number: 1,
    };
    let interval = version.interval;
    host.tell(from, epoch, logged(interval, version));
    monitors.down(member);
    let now = monitors.up(member, process(member, 2));
    host.tell(MON, now, monitors.since(epoch));
    let interval = monitors.map.pgs[&PG].since;
    host.tell(from, now, peer_info(interval, PgInfo::default()));
    let missing = vec![Missing {
        object: ObjectId::named("a"),
        need: version,
        have: Version::NONE,
    }];
    host.tell(
        from,
        now,
        Message::AdoptAck(AdoptAck {
            pg: PG,
            interval,
            head: version,
            missing,
            backfill: None,
            undone: vec![],
        }),
    );
    (host, now, interval, member, version)
}

pub(super) fn pushes(host: &mut Host, to: u32) -> Vec<(u32, bool)> {
    let part = |message: &Message| match message {
        Message::Push(push, _) => Some((push.part, push.last)),
        _ => None,
    };
    host.sent_to(to).iter().filter_map(part).collect()
}

/// A member with much space answers a ping that was sent now.
pub(super) fn grants_a_lease(host: &mut Host, from: Entity, epoch: Epoch) {
    let (stamp, lease_ns) = (host.now.0, 500_000_000);
    let pong = Pong {
        stamp,
        lease_ns,
        nearly_full: false,
        share: 1 << 30,
        most: 1 << 30,
        no_room: false,
    };
    host.tell(from, epoch, Message::Pong(pong));
}

/// The member reports that it has nothing in the compared range, which is the whole PG.
pub(super) fn has_nothing(host: &mut Host, (epoch, interval): (Epoch, Epoch), target: OsdId) {
    let round = compared(host);
    let reply = ScanReply {
        pg: PG,
        interval,
        from: Bytes::new(),
        to: None,
        objects: Vec::new(),
        round,
    };
    host.tell(Entity::Osd(target), epoch, Message::ScanReply(reply));
}

/// The primary's current comparison.
pub(super) fn compared(host: &Host) -> u64 {
    let group = host
        .osd
        .pgs()
        .find(|group| group.id() == PG)
        .expect("it is there");
    group.as_primary().expect("it leads").backfill.round()
}

/// The whole object `a` at a version, as another member sends it.
pub(super) fn copy_of_a(interval: Epoch, version: Version, data: &'static [u8]) -> Message {
    let push = Push {
        pg: PG,
        interval,
        object: ObjectId::named("a"),
        version,
        absent: false,
        part: 0,
        last: true,
        size: data.len() as u64,
        offset: 0,
        attrs: vec![(
            nacre_types::Name::copy(nacre_object::VERSION_ATTR),
            nacre_object::version_value(version, 0),
        )],
        omap: Vec::new(),
        transfer: 1,
    };
    Message::Push(push, vec![Bytes::from_static(data)])
}

/// A member that was brought up to date with this log becomes primary of three who all answer:
/// returns the host, the epoch, the interval, and the other two.
pub(super) fn primary_with_log(
    tail: Version,
    head: Version,
    entries: Vec<Record>,
) -> (Host, Epoch, Epoch, [OsdId; 2]) {
    let mut monitors = Monitors::all_up(3);
    monitors.pool_that_needs(2, 3);
    let [first, second, third] = monitors.map.pgs[&PG].acting[..] else {
        panic!("three of three")
    };
    let interval = monitors.map.pgs[&PG].since;
    monitors.commit(vec![Change::PgTemporary {
        pg: PG,
        interval,
        acting: vec![second, first, third],
    }]);
    let interval = monitors.map.pgs[&PG].since;
    let epoch = monitors.activate(vec![second, first, third]);
    let mut host = Host::new(first.0);
    host.tell(MON, epoch, monitors.full());
    let adopt = Adopt {
        pg: PG,
        interval,
        from: tail,
        tail,
        head,
        entries,
        dedup: Dedup::default(),
        restart: true,
        committed: Version::NONE,
        totals: Totals::default(),
    };
    host.tell(Entity::Osd(second), epoch, Message::Adopt(adopt));
    host.tell(
        Entity::Osd(second),
        epoch,
        Message::Progress(Progress {
            pg: PG,
            interval,
            cursor: None,
            round: 0,
        }),
    );
    let after = monitors.commit(vec![Change::PgTemporary {
        pg: PG,
        interval,
        acting: Vec::new(),
    }]);
    host.tell(MON, after, monitors.since(epoch));
    (host, after, monitors.map.pgs[&PG].since, [second, third])
}

/// A primary that serves alone for a member that is being brought up to date and is complete except
/// for this cursor.
pub(super) fn served_for_another(backfill: Option<Bytes>) -> (Host, Epoch, Epoch, OsdId) {
    let (_, host, epoch, interval, target) = served_by_monitors_for_another(backfill);
    (host, epoch, interval, target)
}

pub(super) fn served_by_monitors_for_another(
    backfill: Option<Bytes>,
) -> (Monitors, Host, Epoch, Epoch, OsdId) {
    let mut monitors = Monitors::all_up(2);
    monitors.pool_that_needs(1, 2);
    let (primary, target) = (
        monitors.map.pgs[&PG].acting[0],
        monitors.map.pgs[&PG].acting[1],
    );
    let mut host = Host::new(primary.0);
    let interval = monitors.map.pgs[&PG].since;
    monitors.commit(vec![Change::PgTemporary {
        pg: PG,
        interval,
        acting: vec![primary],
    }]);
    let (from, epoch, interval) = (
        Entity::Osd(target),
        monitors.map.epoch,
        monitors.map.pgs[&PG].since,
    );
    host.tell(MON, epoch, monitors.full());
    let old = Version {
        interval: Epoch(1),
        number: 7,
    };
    let info = PgInfo {
        exists: true,
        head: old,
        tail: old,
        spans: vec![old],
        backfill: backfill.clone(),
        ..PgInfo::default()
    };
    host.tell(from, epoch, peer_info(interval, info));
    host.tell(
        from,
        epoch,
        Message::AdoptAck(AdoptAck {
            pg: PG,
            interval,
            head: Version::NONE,
            missing: Vec::new(),
            backfill,
            undone: vec![],
        }),
    );
    let after = monitors.activate(vec![primary]);
    host.tell(MON, after, monitors.since(epoch));
    (monitors, host, after, interval, target)
}

/// A client that has the answer to its first write only appends a letter that its operation's
/// number determines.
pub(super) fn append(sequence: u64, attempt: u32, epoch: Epoch, host: &mut Host) {
    let letter = Bytes::from(vec![b'a' + sequence as u8]);
    let request = operation(9, sequence, attempt, vec![SubOp::Append { length: 1 }]);
    let request = OpRequest {
        answered_below: 3,
        ..request
    };
    host.tell(
        Entity::Client(ClientId(9)),
        epoch,
        Message::OpRequest(request, vec![letter]),
    );
}

/// The data that the client reads then, if it is answered.
pub(super) fn read_by_appender(epoch: Epoch, host: &mut Host) -> Option<Vec<u8>> {
    host.sent.clear();
    ask(
        9,
        6,
        1,
        vec![SubOp::Read {
            offset: 0,
            length: 100,
        }],
        Payload::new(),
        epoch,
        host,
    );
    host.sent.iter().find_map(|(_, message)| match message {
        Message::OpReply(reply, payload) if reply.request.sequence == 6 => Some(payload.concat()),
        _ => None,
    })
}
