//! Data that programs had synchronized before their clients died or were evicted, and everything
//! done before clients left: it must be in their files.
//!
//! Changes after the last `fsync` of such a program may have been executed or not.

use super::world::layout;
use nacre_conformance::memory::Memory;
use nacre_types::{Ino, Name};
use nacre_wire::fs::{Stamp, data_name};
use std::collections::BTreeMap;

/// What a new client sees: a path, the inode and a file's size.
pub type Shown = (String, Option<Ino>, u64);

/// What is certain about a file that was partly synchronized.
#[derive(Clone, Debug)]
pub struct Synced {
    /// Each byte's value, where it is certain.
    content: Vec<Option<u8>>,
    /// The range of the file's possible sizes.
    sizes: (u64, u64),
    /// The time that was set, with nothing written since.
    time: Option<Stamp>,
}

impl Synced {
    /// Everything was synchronized.
    pub fn new(content: &[u8], time: Option<Stamp>) -> Self {
        let size = content.len() as u64;
        Self {
            content: content.iter().map(|byte| Some(*byte)).collect(),
            sizes: (size, size),
            time,
        }
    }
    /// Whether nothing was done since.
    pub fn is_all(&self) -> bool {
        let size = self.content.len() as u64;
        self.sizes == (size, size) && self.content.iter().all(Option::is_some)
    }
    /// Its time has changed since, or may have.
    pub fn touched(&mut self) {
        self.time = None;
    }
    /// These bytes were written afterwards; the file may be larger.
    pub fn written(&mut self, offset: u64, end: u64) {
        let size = self.content.len() as u64;
        self.touched();
        self.content[size.min(offset) as usize..size.min(end) as usize].fill(None);
        self.extended(end);
    }
    /// It has at least this size, or its former one.
    pub fn extended(&mut self, size: u64) {
        self.touched();
        self.sizes.1 = self.sizes.1.max(size);
    }
    /// It has this size, or its former one.
    pub fn resized(&mut self, size: u64) {
        self.touched();
        self.content.truncate(size as usize);
        self.sizes = (self.sizes.0.min(size), self.sizes.1.max(size));
    }
}

/// The file of a program that is gone.
#[derive(Debug)]
pub struct Relic {
    pub path: String,
    pub ino: Ino,
    pub synced: Synced,
}

impl Relic {
    /// Asserts that it exists, with a possible size and the bytes and time that are certain.
    ///
    /// # Panics
    /// If it does not.
    pub fn check(&self, shown: &[Shown], times: &BTreeMap<Ino, Stamp>, memory: &Memory) {
        let Self {
            path: name,
            ino,
            synced,
        } = self;
        let there = shown.iter().find(|(path, ..)| path == name);
        let size = there
            .filter(|(_, is, _)| *is == Some(*ino))
            .map(|(.., size)| *size);
        let size = size.unwrap_or_else(|| panic!("{name} was synchronized and is gone"));
        let (least, most) = synced.sizes;
        assert!(
            (least..=most).contains(&size),
            "{name} has {size} bytes, and was synchronized with {least} to {most}"
        );
        if let Some(time) = synced.time {
            assert_eq!(
                times.get(ino),
                Some(&time),
                "{name}: its time was set, and it was synchronized"
            );
        }
        let layout = layout();
        let parts: BTreeMap<&Name, &[u8]> = memory
            .all
            .iter()
            .filter(|((pool, _), _)| *pool == layout.pool)
            .map(|((_, object), content)| (&object.name, &content.data[..]))
            .collect();
        let sure = synced.content.iter().enumerate().take(size as usize);
        for (at, byte) in sure.filter_map(|(at, byte)| Some((at, (*byte)?))) {
            let (number, offset, _) = layout.place(at as u64);
            let part = parts.get(&Name::from(&*data_name(*ino, number)));
            let found = part
                .and_then(|part| part.get(offset as usize))
                .copied()
                .unwrap_or(0);
            assert_eq!(found, byte, "{name}: byte {at} was synchronized");
        }
    }
}
