//! Members whose log the leader does not know.

use super::member::Member;
use super::record::{Members, SnapshotRecord};
use super::{Consensus, Decision, Recovered};
use bytes::Bytes;
use nacre_types::{MonId, Time};
use protobuf::Message as _;
use raft::eraftpb::{HardState, Message, MessageType};
use std::time::Duration;

fn founded(mon: u32) -> Consensus {
    let voters = (0..3)
        .map(|mon| Member::founder(MonId(mon)).raft_id())
        .collect();
    let members = Members {
        voters,
        ..Members::default()
    };
    let (index, term, trimmed_index, trimmed_term) = (1, 1, 1, 1);
    let snapshot = SnapshotRecord {
        index,
        term,
        members,
        trimmed_index,
        trimmed_term,
        state: Bytes::new(),
    };
    let hard = HardState {
        term,
        commit: index,
        ..HardState::default()
    };
    let member = Member::founder(MonId(mon));
    let recovered = Recovered {
        member,
        hard,
        snapshot,
        entries: Vec::new(),
    };
    Consensus::new(7, Duration::from_millis(50), recovered).expect("it fits together")
}

/// Messages that a monitor sends; its writes are durable at once.
fn sent(mon: &mut Consensus) -> Vec<(MonId, Bytes)> {
    let (mut all, mut messages) = (Vec::new(), Vec::new());
    mon.poll(Time(0), &mut all);
    while !all.is_empty() {
        for decision in std::mem::take(&mut all) {
            match decision {
                Decision::Send(to, bytes) => messages.push((to, bytes)),
                Decision::Submit(_, token) => mon.on_committed(token, &mut all),
                _ => {}
            }
        }
        mon.poll(Time(0), &mut all);
    }
    mon.check();
    messages
}

/// Delivers messages until there are none, except those for which `lose` returns true: from, to,
/// message.
fn settle(mons: &mut [Consensus], mut lose: impl FnMut(u32, u32, &Bytes) -> bool) {
    loop {
        let mut any = false;
        for from in 0..3_u32 {
            for (to, bytes) in sent(&mut mons[from as usize]) {
                if !lose(from, to.0, &bytes) {
                    any = true;
                    mons[to.0 as usize]
                        .step(MonId(from), &bytes)
                        .expect("it forgot nothing");
                }
            }
        }
        if !any {
            return;
        }
    }
}

/// (An hour of chaos, seeds 153 and 182: a leader that took 413 MiB, others 50.) A monitor was
/// killed while clients continued to read: each read is a heartbeat, also to the absent monitor.
/// Its new process answered all heartbeats sent while it started, and for each answer was sent all
/// entries that it lacked.
#[test]
fn who_answers_many_heartbeats_is_sent_what_it_lacks_once() {
    let mut mons: Vec<Consensus> = (0..3).map(founded).collect();
    while !mons.iter().any(Consensus::is_leader) {
        for mon in &mut mons {
            mon.tick(Time(0));
        }
        settle(&mut mons, |_, _, _| false);
    }
    let leader = mons
        .iter()
        .position(Consensus::is_leader)
        .expect("just seen");
    let away = (leader + 1) % 3;
    let (from, to) = (
        u32::try_from(leader).expect("of three"),
        u32::try_from(away).expect("of three"),
    );
    mons[leader].on_disconnect(MonId(to));
    mons[leader].propose(vec![1; 500_000]).expect("it leads");
    let (mut heartbeats, mut lost) = (Vec::new(), 0);
    for context in 0..200 {
        assert!(mons[leader].read(context));
        settle(&mut mons, |_, receiver, bytes| {
            let message = Message::parse_from_bytes(bytes).expect("our own");
            if receiver == to && message.get_msg_type() == MessageType::MsgHeartbeat {
                heartbeats.push(bytes.clone());
            }
            lost += usize::from(receiver == to && bytes.len() > 500_000);
            receiver == to
        });
    }
    assert_eq!(heartbeats.len(), 200);
    for bytes in heartbeats {
        mons[away]
            .step(MonId(from), &bytes)
            .expect("it forgot nothing");
    }
    settle(&mut mons, |_, receiver, bytes| {
        let large = receiver == to && bytes.len() > 500_000;
        lost += usize::from(large);
        large
    });
    assert_eq!(lost, 1, "times half a megabyte");
    // That one was lost, when it was proposed: it is resent with the next heartbeat.
    for _ in 0..2 {
        mons[leader].tick(Time(0));
        settle(&mut mons, |_, _, _| false);
    }
    assert_eq!(mons[away].last(), mons[leader].last());
    assert_eq!(
        mons[leader].matched(Member::founder(MonId(to))),
        Some(mons[leader].last())
    );
}
