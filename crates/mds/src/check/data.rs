//! Checks of data: each object belongs to an inode, and lies within its size.

use super::*;
use crate::mds::PARENT_ATTR;
use nacre_wire::Wire as _;
use nacre_wire::fs::data_name;
use nacre_wire::msg::client::SubReply;

/// Most objects of a file whose lengths are read: those that the file's end divides.
const LENGTHS_MAX: u64 = 4096;

/// Most files whose first objects get a new backpointer: a repair updates the others the next time.
const PLACES_MAX: usize = 1 << 18;

/// The length and the attribute `parent` of an object.
fn length_of(done: &Done) -> (u64, Option<Backpointer>) {
    let (mut length, mut at) = (0, None);
    for reply in &done.results {
        match reply {
            SubReply::Stat { size, .. } => length = *size,
            SubReply::Entries { entries, .. } => {
                let parent = entries.iter().find(|(key, _)| key == PARENT_ATTR);
                at = parent.and_then(|(_, value)| Backpointer::from_bytes(value).ok());
            }
            _ => {}
        }
    }
    (length, at)
}

impl Check {
    /// Reads the lengths of the objects that a file's end divides, and its first object.
    pub(super) fn read_lengths(
        &mut self,
        ino: Ino,
        layout: Layout,
        end: u64,
        at: Option<Backpointer>,
        place: (Ino, Name),
    ) {
        let count = u64::from(layout.count);
        let objects = layout.objects(end);
        let from = objects.saturating_sub(1) / count * count;
        let divided = (from..objects.min(from + LENGTHS_MAX))
            .map(|number| (number, layout.length_of(number, end)));
        let divided = divided.filter(|(_, max)| *max < u64::from(layout.object));
        let mut asked: BTreeMap<u64, u64> = divided.collect();
        if objects > 0 && at.is_some() {
            asked.entry(0).or_insert_with(|| layout.length_of(0, end));
        }
        for (number, max) in asked {
            let at = at.clone().filter(|_| number == 0);
            let (pool, place) = (layout.pool, place.clone());
            let purpose = Purpose::Length {
                ino,
                number,
                max,
                pool,
                at,
                place,
            };
            let ops = vec![SubOp::Stat {}, SubOp::ListAttrs {}];
            self.push(purpose, layout.pool, &data_name(ino, number), ops);
        }
    }
    pub(super) fn on_length(
        &mut self,
        (pool, ino, number): (PoolId, Ino, u64),
        max: u64,
        at: Option<&Backpointer>,
        (dir, name): (Ino, Name),
        result: Result<Done, Trouble>,
    ) {
        let done = match result {
            Ok(done) => done,
            // A hole.
            Err(Trouble::NotFound) => return,
            Err(Trouble::Other(why)) => {
                return self.find(
                    Kind::Unreadable,
                    data_name(ino, number),
                    format!("it cannot be read: {why}"),
                );
            }
        };
        let (length, said) = length_of(&done);
        if let Some(at) = at {
            let count = match &said {
                Some(said) if said == at => &mut self.counts.placed,
                Some(_) => &mut self.counts.misplaced,
                None => &mut self.counts.silent,
            };
            *count += 1;
            if said.as_ref() != Some(at) && self.to_place.len() < PLACES_MAX {
                self.to_place.push((pool, ino, at.clone()));
            }
        }
        if length > max {
            let object = data_name(ino, number);
            let what = format!(
                "object {object} has {length} bytes, and {max} of them are within its size"
            );
            let mut finding = Finding::new(Kind::DataBeyond, String::new(), what);
            // For a file that is being written, the lengths would differ.
            finding.same = (number, length as i64, max as i64);
            let edits = vec![Edit::Cut {
                pool,
                ino,
                number,
                size: max,
            }];
            self.early.push((
                dir,
                Some(name),
                finding.repaired("what is beyond its end is removed", edits),
            ));
        }
    }

    pub(super) fn begin_data(&mut self) -> Stage {
        self.large.sort_unstable();
        self.to_list.extend(&self.data_pools);
        Stage::Data
    }
    /// An object of a data pool.
    pub(super) fn on_data_object(&mut self, pool: PoolId, name: &str) {
        let Some((ino, number)) = parse_data(name) else {
            // The metadata pool's objects were handled before.
            if pool != self.config.pool {
                self.find(
                    Kind::Unknown,
                    name,
                    "no part of a file's data has this name",
                );
            }
            return;
        };
        self.counts.objects += 1;
        if !self.files.contains(ino) {
            let orphan = self.orphans.entry(ino).or_default();
            orphan.pool = pool;
            orphan.objects += 1;
            orphan.last.insert(number, 0);
            // The end is in the last of the objects that are filled in turn.
            let count = u64::from(self.config.layout.count);
            let last = orphan
                .last
                .last_key_value()
                .map_or(0, |(number, _)| number / count * count);
            orphan.last = orphan.last.split_off(&last);
            return;
        }
        let objects = match self.large.binary_search_by_key(&ino, |(ino, _)| *ino) {
            Ok(at) => self.large[at].1,
            Err(_) => u64::from(self.begun.contains(ino)),
        };
        if number >= objects {
            let what = format!("its file has {objects} objects at most");
            let edits = vec![Edit::Remove { pool, ino, number }];
            let finding = Finding::new(Kind::DataBeyond, name.to_owned(), what);
            self.findings
                .push(finding.repaired("it is removed: its file ends before", edits));
        }
    }

    pub(super) fn read_orphans(&mut self) {
        let asked: BTreeSet<(PoolId, Ino, u64)> = self
            .orphans
            .iter()
            .flat_map(|(ino, orphan)| {
                let numbers = orphan.last.keys().copied().chain([0]);
                numbers.map(|number| (orphan.pool, *ino, number))
            })
            .collect();
        for (pool, ino, number) in asked {
            let ops = vec![SubOp::Stat {}, SubOp::ListAttrs {}];
            self.push(
                Purpose::Orphan { ino, number },
                pool,
                &data_name(ino, number),
                ops,
            );
        }
    }
    pub(super) fn on_orphan(&mut self, ino: Ino, number: u64, result: Result<Done, Trouble>) {
        let Some(orphan) = self.orphans.get_mut(&ino) else {
            return;
        };
        match result {
            Ok(done) => {
                let (length, at) = length_of(&done);
                orphan
                    .last
                    .entry(number)
                    .and_modify(|known| *known = length);
                if number == 0 {
                    orphan.at = at;
                }
            }
            Err(Trouble::NotFound) => {}
            Err(Trouble::Other(why)) => {
                self.find(
                    Kind::Unreadable,
                    data_name(ino, number),
                    format!("it cannot be read: {why}"),
                );
            }
        }
    }
    /// The size of a file with this data.
    pub(super) fn orphan_size(&self, orphan: &OrphanData) -> u64 {
        let layout = Layout {
            pool: orphan.pool,
            ..self.config.layout
        };
        let ends = orphan
            .last
            .iter()
            .map(|(number, length)| layout.end_of(*number, *length));
        ends.max().unwrap_or(0)
    }
}
