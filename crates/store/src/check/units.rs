//! The check's state of every unit of a device: a byte and two bits.

use crate::alloc::Allocator;
use std::collections::BTreeMap;

/// Users of units, counted by the check itself, besides the allocation records.
#[derive(Debug)]
pub(super) struct Units {
    /// [`MANY`]: the number is in `many`.
    users: Vec<u8>,
    many: BTreeMap<u64, u32>,
    /// Some user assumes that it is the only one.
    exclusive: Vec<u64>,
    taken: Vec<u64>,
}

/// From this number of users on, the number is kept elsewhere: few units are shared that often.
const MANY: u8 = u8::MAX;

fn at(unit: u64) -> (usize, u64) {
    ((unit / 64) as usize, 1 << (unit % 64))
}

impl Units {
    /// No users yet; all units that `allocator` has taken must belong to data.
    pub(super) fn new(units: u64, allocator: &Allocator) -> Self {
        let length = usize::try_from(units).expect("checked on a machine that can hold the table");
        let mut taken = vec![0; length.div_ceil(64)];
        for unit in (0..units).filter(|&unit| allocator.is_taken(unit)) {
            let (word, bit) = at(unit);
            taken[word] |= bit;
        }
        Self {
            users: vec![0; length],
            many: BTreeMap::new(),
            exclusive: vec![0; taken.len()],
            taken,
        }
    }

    /// Adds a user; `false` if the device has no such unit.
    pub(super) fn used(&mut self, unit: u64, exclusive: bool) -> bool {
        let Some(users) = usize::try_from(unit)
            .ok()
            .and_then(|unit| self.users.get_mut(unit))
        else {
            return false;
        };
        match *users {
            MANY => *self.many.entry(unit).or_default() += 1,
            _ => *users += 1,
        }
        if *users == MANY {
            self.many.entry(unit).or_insert(MANY.into());
        }
        if exclusive {
            let (word, bit) = at(unit);
            self.exclusive[word] |= bit;
        }
        true
    }

    pub(super) fn users(&self, unit: u64) -> u32 {
        match self.users.get(unit as usize) {
            Some(&MANY) => self.many[&unit],
            Some(&users) => users.into(),
            None => 0,
        }
    }

    pub(super) fn is_exclusive(&self, unit: u64) -> bool {
        let (word, bit) = at(unit);
        self.exclusive[word] & bit != 0
    }

    pub(super) fn is_taken(&self, unit: u64) -> bool {
        let (word, bit) = at(unit);
        self.taken[word] & bit != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With a snapshot a day, more than 255 clones share a block that never changes.
    #[test]
    fn users_are_counted_beyond_a_byte() {
        let mut units = Units::new(100, &Allocator::new(100, 0));
        for n in 1..=600 {
            assert!(units.used(70, n == 300));
            assert_eq!((units.users(70), units.users(71)), (n, 0));
            assert_eq!(
                (units.is_exclusive(70), units.is_exclusive(6)),
                (n >= 300, false)
            );
        }
        assert!(!units.used(100, false), "the device ends before it");
    }
}
