//! Values by number, where nearly every new number is the largest and the smallest leave first: the
//! operations of one client.
//!
//! In a tree each insertion and each removal waits for memory that nothing else has used lately.

use std::collections::VecDeque;

/// See the module head. Ascending.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ring<T>(VecDeque<(u64, T)>);

impl<T> Default for Ring<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> Ring<T> {
    fn find(&self, number: u64) -> Result<usize, usize> {
        match self.0.back() {
            None => Err(0),
            Some((last, _)) if *last < number => Err(self.0.len()),
            _ => self.0.binary_search_by_key(&number, |(known, _)| *known),
        }
    }
    pub(super) fn get(&self, number: u64) -> Option<&T> {
        self.find(number).ok().map(|at| &self.0[at].1)
    }
    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        self.find(number).ok().map(|at| &mut self.0[at].1)
    }
    /// Returns the former value.
    pub(super) fn insert(&mut self, number: u64, value: T) -> Option<T> {
        match self.find(number) {
            Ok(at) => Some(std::mem::replace(&mut self.0[at].1, value)),
            Err(at) => {
                self.0.insert(at, (number, value));
                None
            }
        }
    }
    pub(super) fn remove(&mut self, number: u64) -> Option<T> {
        let at = self.find(number).ok()?;
        self.0.remove(at).map(|(_, value)| value)
    }
    /// Removes the smallest number, if it is below `below`.
    pub(super) fn pop_below(&mut self, below: u64) -> Option<(u64, T)> {
        self.0.pop_front_if(|(number, _)| *number < below)
    }
    /// The values of larger numbers.
    pub(super) fn after(&self, number: u64) -> impl Iterator<Item = &T> {
        let from = self.0.partition_point(|(known, _)| *known <= number);
        self.0.range(from..).map(|(_, value)| value)
    }
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.0.iter().map(|(number, value)| (*number, value))
    }
    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, value)| value)
    }
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().map(|(_, value)| value)
    }
    /// Takes out those of which `leaves` is true.
    pub(super) fn split(&mut self, mut leaves: impl FnMut(&T) -> bool) -> Self {
        let all = std::mem::take(&mut self.0).into_iter();
        let (gone, kept) = all.partition(|(_, value)| leaves(value));
        self.0 = kept;
        Self(gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_ring_is_an_ordered_map() {
        let mut draws = nacre_types::SplitMix64(5);
        let mut draw = |below: u64| draws.below(below);
        for _ in 0..200 {
            let (mut ring, mut model) = (Ring::default(), BTreeMap::new());
            for n in 0..60 {
                let number = if draw(3) == 0 { draw(80) } else { n };
                match draw(6) {
                    0 => assert_eq!(ring.remove(number), model.remove(&number)),
                    1 => {
                        let first = model.first_entry().filter(|first| *first.key() < number);
                        let first = first.map(|first| first.remove_entry());
                        assert_eq!(ring.pop_below(number), first);
                    }
                    _ => assert_eq!(ring.insert(number, n), model.insert(number, n)),
                }
                assert_eq!(ring.get(number), model.get(&number));
                assert_eq!(ring.get_mut(number), model.get_mut(&number));
                assert!(
                    ring.after(number)
                        .eq(model.range(number + 1..).map(|(_, n)| n))
                );
                assert!(ring.iter().eq(model.iter().map(|(number, n)| (*number, n))));
            }
            let gone = ring.split(|n| n % 2 == 0);
            assert!(gone.values().eq(model.values().filter(|n| **n % 2 == 0)));
            assert!(
                ring.values_mut()
                    .eq(model.values_mut().filter(|n| **n % 2 != 0))
            );
        }
    }
}
