//! Caches of names and attributes, explored exhaustively up to some depth: every order of requests,
//! changes, messages, and broken connections (CEPH-30: the security group and the immutable one;
//! `caps_test.rs` does the same for the file group). (Depth 14 was run once: 183,031 states.)

use super::*;
use nacre_types::Frag;
use nacre_wire::fs::{Entry, FileKind, Head, Inode, Stamp};
use std::collections::VecDeque;

const BOTH: [ClientId; 2] = [ClientId(1), ClientId(2)];
const FILE: Ino = Ino(50);
const CHANGES_MAX: u32 = 3;

#[derive(Clone, Debug)]
enum ToClient {
    /// The file's state after this many changes.
    Reply(u32),
    Forget(u64),
}

#[derive(Clone, Debug, Default)]
struct Client {
    asks: bool,
    /// The state that it caches.
    kept: Option<u32>,
    /// The last change that it made itself: earlier answers are ignored.
    made: u32,
    down: VecDeque<ToClient>,
    up: VecDeque<u64>,
}

#[derive(Clone, Debug, Default)]
struct World {
    shares: Shares,
    clients: [Client; 2],
    /// The author of each change, and what must be dropped before it is answered.
    changes: Vec<(usize, Vec<Wait>)>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Ask(usize),
    Answer(usize),
    Change(usize),
    Tell,
    Down(usize),
    Up(usize),
    Break(usize),
}

fn tree() -> Tree {
    let inode = Inode::new(FILE, FileKind::File {}, 0o644, (0, 0), Stamp(1));
    let mut tree = Tree::default();
    let entry = Entry::Inode { inode, head: None };
    tree.load(
        Ino::ROOT,
        Frag::WHOLE,
        Head::default(),
        vec![("a".into(), entry)],
    );
    tree
}

impl World {
    /// Lower changes are met: answered, and shown to all.
    fn answered(&self) -> usize {
        let is_met =
            |(_, waits): &&(usize, Vec<Wait>)| waits.iter().all(|wait| self.shares.is_met(wait));
        self.changes.iter().take_while(is_met).count()
    }
    /// Whether a client may be shown the file's current state: unmet changes are its own.
    fn may_show(&self, client: usize) -> bool {
        self.changes[self.answered()..]
            .iter()
            .all(|(by, _)| *by == client)
    }
    fn steps(&self) -> Vec<Step> {
        let mut steps = vec![Step::Tell];
        for (at, client) in self.clients.iter().enumerate() {
            if client.kept.is_none() && !client.asks {
                steps.push(Step::Ask(at));
            }
            if client.asks && self.may_show(at) {
                steps.push(Step::Answer(at));
            }
            if self.changes.len() < CHANGES_MAX as usize {
                steps.push(Step::Change(at));
            }
            steps.extend((!client.down.is_empty()).then_some(Step::Down(at)));
            steps.extend((!client.up.is_empty()).then_some(Step::Up(at)));
            steps.push(Step::Break(at));
        }
        steps
    }
    fn take(&mut self, step: Step, tree: &Tree) {
        match step {
            Step::Ask(at) => self.clients[at].asks = true,
            Step::Answer(at) => {
                self.shares.grant(BOTH[at], Ino::ROOT);
                let client = &mut self.clients[at];
                client.asks = false;
                client
                    .down
                    .push_back(ToClient::Reply(self.changes.len() as u32));
            }
            Step::Change(at) => {
                let Found::Entry(entry) = tree.find(Ino::ROOT, &"a".into()) else {
                    panic!("it is there")
                };
                let (dir, frag, name, entry) = (Ino::ROOT, Frag::WHOLE, "a".into(), entry.clone());
                let (change, mut waits) = (
                    Change::Set {
                        dir,
                        frag,
                        name,
                        entry,
                    },
                    Vec::new(),
                );
                self.shares
                    .on_change(Some(BOTH[at]), &change, tree, &mut waits);
                self.changes.push((at, waits));
                let made = self.changes.len() as u32;
                (self.clients[at].kept, self.clients[at].made) = (None, made);
            }
            Step::Tell => {
                let mut told = Vec::new();
                self.shares.take(&mut told);
                for (client, forget) in told {
                    assert_eq!(forget.items, [FsStale::Node { ino: FILE }]);
                    let at = BOTH
                        .iter()
                        .position(|one| *one == client)
                        .expect("one of them");
                    self.clients[at]
                        .down
                        .push_back(ToClient::Forget(forget.number));
                }
            }
            Step::Down(at) => {
                let client = &mut self.clients[at];
                match client.down.pop_front().expect("just seen") {
                    ToClient::Reply(version) if version < client.made => {}
                    ToClient::Reply(version) => client.kept = Some(version),
                    ToClient::Forget(number) => {
                        client.kept = None;
                        client.up.push_back(number);
                    }
                }
            }
            Step::Up(at) => {
                let number = self.clients[at].up.pop_front().expect("just seen");
                self.shares.on_forgot(BOTH[at], number);
            }
            // It starts with an empty cache over the next connection.
            Step::Break(at) => {
                self.shares.void(BOTH[at]);
                self.clients[at] = Client::default();
            }
        }
        self.shares.check();
        let answered = self.answered() as u32;
        for client in &self.clients {
            let is_old = client.kept.is_some_and(|kept| kept < answered);
            assert!(!is_old, "{step:?} leaves one with what is over: {self:?}");
        }
    }
    /// All messages arrive: all changes are answered.
    fn end(mut self, tree: &Tree) {
        for _ in 0..20 {
            self.take(Step::Tell, tree);
            for at in 0..2 {
                while !self.clients[at].down.is_empty() {
                    self.take(Step::Down(at), tree);
                }
                while !self.clients[at].up.is_empty() {
                    self.take(Step::Up(at), tree);
                }
            }
        }
        assert_eq!(self.answered(), self.changes.len(), "{self:?}");
    }
}

#[test]
fn nothing_old_is_shown_after_a_change_was_answered_and_each_is() {
    let tree = tree();
    let mut seen = BTreeSet::new();
    let mut all = vec![World::default()];
    for _ in 0..11 {
        let mut next = Vec::new();
        for world in &all {
            for step in world.steps() {
                let mut world = world.clone();
                world.take(step, &tree);
                if seen.insert(format!("{world:?}")) {
                    world.clone().end(&tree);
                    next.push(world);
                }
            }
        }
        all = next;
    }
    assert!(seen.len() > 15_000, "{}", seen.len());
}
