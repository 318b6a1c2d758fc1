//! Compares the lock table with a model that records for each byte what each owner has locked.

use super::*;

const CLIENTS: u64 = 2;
const OWNERS: u64 = 2;
const INOS: u64 = 2;
const BYTES: u64 = 8;

struct Dice(u64);
impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

type Key = (Ino, Owner, u64);

/// Locks byte by byte, and waits in order.
#[derive(Default)]
struct Model {
    bytes: BTreeMap<Key, bool>,
    waits: Vec<(Owner, u64, FsLock)>,
}
impl Model {
    fn bytes_of(lock: &FsLock) -> std::ops::RangeInclusive<u64> {
        if lock.flock {
            0..=BYTES - 1
        } else {
            lock.start..=lock.end.min(BYTES - 1)
        }
    }
    fn blockers(&self, owner: Owner, lock: &FsLock) -> BTreeSet<Owner> {
        let conflicts = |(key, exclusive): (&Key, &bool)| {
            let (ino, other, at) = *key;
            let apart = ino != lock.ino || other == owner || other.flock != owner.flock;
            (!apart && Self::bytes_of(lock).contains(&at) && (*exclusive || lock.exclusive))
                .then_some(other)
        };
        self.bytes.iter().filter_map(conflicts).collect()
    }
    fn set(&mut self, owner: Owner, lock: &FsLock, to: Option<bool>) {
        for at in Self::bytes_of(lock) {
            match to {
                Some(exclusive) => drop(self.bytes.insert((lock.ino, owner, at), exclusive)),
                None => drop(self.bytes.remove(&(lock.ino, owner, at))),
            }
        }
    }
    fn settle(&mut self, granted: &mut Vec<Granted>) {
        while let Some(at) = self
            .waits
            .iter()
            .position(|(owner, _, lock)| self.blockers(*owner, lock).is_empty())
        {
            let (owner, number, lock) = self.waits.remove(at);
            self.set(owner, &lock, Some(lock.exclusive));
            granted.push((owner.client, number));
        }
    }
    /// All owners that an owner waits for, directly or indirectly.
    fn reach(&self, from: BTreeSet<Owner>) -> BTreeSet<Owner> {
        let mut reached = from;
        loop {
            let waits = self
                .waits
                .iter()
                .filter(|(owner, ..)| reached.contains(owner));
            let more: BTreeSet<Owner> = waits
                .flat_map(|(owner, _, lock)| self.blockers(*owner, lock))
                .collect();
            let before = reached.len();
            reached.extend(more);
            if reached.len() == before {
                return reached;
            }
        }
    }
    fn lock(
        &mut self,
        owner: Owner,
        lock: &FsLock,
        wait: Option<u64>,
        granted: &mut Vec<Granted>,
    ) -> Result<Got, u16> {
        if self.blockers(owner, lock).is_empty() {
            self.set(owner, lock, Some(lock.exclusive));
            self.settle(granted);
            return Ok(Got::Held);
        }
        if lock.flock {
            self.set(owner, lock, None);
            self.settle(granted);
        }
        let Some(number) = wait else {
            return Err(EAGAIN);
        };
        if !lock.flock && self.reach(self.blockers(owner, lock)).contains(&owner) {
            return Err(EDEADLK);
        }
        self.waits.push((owner, number, *lock));
        Ok(Got::Waits)
    }
}

fn compare(locks: &Locks, model: &Model) {
    locks.check();
    let mut bytes = BTreeMap::new();
    for (ino, file) in &locks.files {
        for (owner, spans) in &file.held {
            for span in spans.iter() {
                for at in span.start..=span.end.min(BYTES - 1) {
                    bytes.insert((*ino, *owner, at), span.exclusive);
                }
            }
        }
    }
    assert_eq!(bytes, model.bytes);
    for ino in (0..INOS).map(Ino) {
        let waits: Vec<u64> = locks
            .files
            .get(&ino)
            .into_iter()
            .flat_map(|file| &file.waits)
            .map(|wait| wait.number)
            .collect();
        let expected: Vec<u64> = model
            .waits
            .iter()
            .filter(|(_, _, lock)| lock.ino == ino)
            .map(|(_, number, _)| *number)
            .collect();
        assert_eq!(waits, expected);
    }
}

fn random_lock(dice: &mut Dice) -> (ClientId, FsLock) {
    let flock = dice.below(4) == 0;
    let start = dice.below(BYTES);
    let end = start + dice.below(BYTES - start);
    // The model's last byte stands for all following ones.
    let end = if end == BYTES - 1 { u64::MAX } else { end };
    let (start, end) = if flock { (0, u64::MAX) } else { (start, end) };
    let (ino, owner, exclusive) = (
        Ino(dice.below(INOS)),
        dice.below(OWNERS),
        dice.below(2) == 0,
    );
    (
        ClientId(dice.below(CLIENTS)),
        FsLock {
            ino,
            owner,
            pid: 1,
            flock,
            start,
            end,
            exclusive,
        },
    )
}

#[test]
fn random_histories_are_as_byte_by_byte() {
    let mut seen = [0_u32; 5];
    for seed in 0..4000 {
        let mut dice = Dice(seed);
        let (mut locks, mut model) = (Locks::new(LockLimits::default()), Model::default());
        for number in 0..60 {
            let (client, lock) = random_lock(&mut dice);
            let owner = Owner::of(client, &lock);
            let (mut granted, mut expected) = (Vec::new(), Vec::new());
            match dice.below(12) {
                0..=5 => {
                    let wait = (dice.below(3) > 0).then_some(number);
                    let got = locks.lock(client, &lock, wait, &mut granted);
                    assert_eq!(
                        got,
                        model.lock(owner, &lock, wait, &mut expected),
                        "seed {seed}: {lock:?}"
                    );
                    let index = match got {
                        Ok(Got::Held) => 0,
                        Ok(Got::Waits) => 1,
                        Err(EAGAIN) => 2,
                        _ => 3,
                    };
                    seen[index] += 1;
                }
                6..=8 => {
                    let (who, range) = ((lock.owner, lock.flock), (lock.start, lock.end));
                    locks
                        .unlock(client, lock.ino, who, range, &mut granted)
                        .expect("there is room");
                    model.set(owner, &lock, None);
                    model.settle(&mut expected);
                }
                9 => {
                    let conflict = locks.test(client, &lock);
                    let blockers = model.blockers(owner, &lock);
                    assert_eq!(
                        conflict.is_some(),
                        !blockers.is_empty(),
                        "seed {seed}: {lock:?}"
                    );
                    if let Some(found) = conflict {
                        let named = |other: &Owner| {
                            other.owner == found.owner && other.flock == found.flock
                        };
                        assert!(blockers.iter().any(named), "seed {seed}: {found:?}");
                        assert!(found.start <= lock.end && lock.start <= found.end);
                    }
                }
                10 => {
                    if let Some((owner, number, lock)) = model.waits.pop() {
                        assert!(locks.cancel(owner.client, lock.ino, number), "seed {seed}");
                    }
                    assert!(!locks.cancel(client, lock.ino, 1000));
                }
                _ if dice.below(4) == 0 => {
                    locks.remove_client(client);
                    locks.settle_all(&mut granted);
                    model
                        .bytes
                        .retain(|(_, owner, _), _| owner.client != client);
                    model.waits.retain(|(owner, ..)| owner.client != client);
                    model.settle(&mut expected);
                }
                _ => {}
            }
            seen[4] += u32::try_from(granted.len()).expect("few");
            // Files are settled one after another: the order of grants for two files is irrelevant.
            granted.sort_unstable();
            expected.sort_unstable();
            assert_eq!(granted, expected, "seed {seed}");
            compare(&locks, &model);
        }
        for client in (0..CLIENTS).map(ClientId) {
            locks.remove_client(client);
        }
        assert!(locks.is_empty() && locks.counts.is_empty() && locks.waiting.is_empty());
    }
    assert!(
        seen.iter().all(|times| *times > 1000),
        "held, waits, refused, circles, granted: {seen:?}"
    );
}

const ANNA: ClientId = ClientId(1);
const BERT: ClientId = ClientId(2);

fn exclusive(ino: u64, owner: u64, start: u64, end: u64) -> FsLock {
    FsLock {
        ino: Ino(ino),
        owner,
        pid: 1,
        flock: false,
        start,
        end,
        exclusive: true,
    }
}

#[test]
fn waits_are_granted_in_the_order_in_which_they_came() {
    let (mut locks, mut granted) = (Locks::new(LockLimits::default()), Vec::new());
    assert_eq!(
        locks.lock(ANNA, &exclusive(1, 1, 0, 9), Some(1), &mut granted),
        Ok(Got::Held)
    );
    for number in 2..5 {
        assert_eq!(
            locks.lock(
                BERT,
                &exclusive(1, number, 0, 9),
                Some(number),
                &mut granted
            ),
            Ok(Got::Waits)
        );
    }
    for number in 2..5 {
        let (client, owner) = if number == 2 {
            (ANNA, 1)
        } else {
            (BERT, number - 1)
        };
        locks
            .unlock(client, Ino(1), (owner, false), (0, 9), &mut granted)
            .expect("there is room");
        assert_eq!(std::mem::take(&mut granted), [(BERT, number)]);
    }
}

#[test]
fn a_circle_over_three_files_is_found_and_what_was_refused_waits_no_more() {
    let (mut locks, mut granted) = (Locks::new(LockLimits::default()), Vec::new());
    for owner in 1..4 {
        assert_eq!(
            locks.lock(
                ANNA,
                &exclusive(owner, owner, 0, 0),
                Some(owner),
                &mut granted
            ),
            Ok(Got::Held)
        );
    }
    assert_eq!(
        locks.lock(ANNA, &exclusive(2, 1, 0, 0), Some(11), &mut granted),
        Ok(Got::Waits)
    );
    assert_eq!(
        locks.lock(ANNA, &exclusive(3, 2, 0, 0), Some(12), &mut granted),
        Ok(Got::Waits)
    );
    assert_eq!(
        locks.lock(ANNA, &exclusive(1, 3, 0, 0), Some(13), &mut granted),
        Err(EDEADLK)
    );
    locks
        .unlock(ANNA, Ino(3), (3, false), (0, 0), &mut granted)
        .expect("there is room");
    assert_eq!(granted, [(ANNA, 12)]);
    // Two convert `flock`: the first gives up its lock and waits, so the second continues.
    granted.clear();
    let flock = |owner, exclusive| FsLock {
        ino: Ino(9),
        owner,
        pid: 1,
        flock: true,
        start: 5,
        end: 5,
        exclusive,
    };
    for owner in [1, 2] {
        assert_eq!(
            locks.lock(BERT, &flock(owner, false), None, &mut granted),
            Ok(Got::Held)
        );
    }
    assert_eq!(
        locks.lock(BERT, &flock(1, true), Some(21), &mut granted),
        Ok(Got::Waits)
    );
    assert_eq!(
        locks.lock(BERT, &flock(2, true), Some(22), &mut granted),
        Ok(Got::Held)
    );
    locks
        .unlock(BERT, Ino(9), (2, true), (0, 0), &mut granted)
        .expect("there is room");
    assert_eq!(granted, [(BERT, 21)]);
}

#[test]
fn there_are_so_many_and_no_more() {
    let (mut locks, mut granted) = (
        Locks::new(LockLimits {
            client_max: 4,
            file_max: 3,
        }),
        Vec::new(),
    );
    for at in 0..3 {
        assert_eq!(
            locks.lock(ANNA, &exclusive(1, 1, 2 * at, 2 * at), None, &mut granted),
            Ok(Got::Held)
        );
    }
    assert_eq!(
        locks.lock(BERT, &exclusive(1, 1, 50, 50), None, &mut granted),
        Err(ENOLCK),
        "of the file"
    );
    assert_eq!(
        locks.lock(BERT, &exclusive(1, 1, 0, 0), Some(1), &mut granted),
        Err(ENOLCK),
        "waits count"
    );
    assert_eq!(
        locks.lock(ANNA, &exclusive(1, 1, 0, 9), None, &mut granted),
        Ok(Got::Held),
        "joined they are fewer"
    );
    assert_eq!(
        locks.lock(ANNA, &exclusive(2, 1, 0, 9), None, &mut granted),
        Ok(Got::Held)
    );
    for at in [2, 4] {
        locks
            .unlock(ANNA, Ino(1), (1, false), (at, at), &mut granted)
            .expect("there is room");
    }
    assert_eq!(
        locks.unlock(ANNA, Ino(1), (1, false), (6, 6), &mut granted),
        Err(ENOLCK),
        "it would split"
    );
    assert_eq!(
        locks.lock(ANNA, &exclusive(3, 1, 0, 0), None, &mut granted),
        Err(ENOLCK),
        "of the client"
    );
    locks
        .unlock(ANNA, Ino(1), (1, false), (0, u64::MAX), &mut granted)
        .expect("there are fewer then");
    locks.check();
}
