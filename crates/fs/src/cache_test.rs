//! Tests of the cache by itself, and against a byte-by-byte model.

use super::block::SEGMENT_COST;
use super::writeback::Run;
use super::*;
use nacre_types::SplitMix64;
use std::ops::Range;

const INO: Ino = Ino(7);
const ALL: Range<u64> = 0..u64::MAX;

fn data(byte: u8, length: usize) -> Bytes {
    vec![byte; length].into()
}
/// The cached data as text: one character per byte, `?` for missing ones.
fn show<const BLOCK: usize>(cache: &mut Cache<BLOCK>, length: u64) -> String {
    let parts = cache
        .read(INO, 0, length)
        .into_iter()
        .map(|part| match part {
            Part::Data(data) => String::from_utf8(data.to_vec()).expect("letters"),
            Part::Missing { length, .. } => "?".repeat(length as usize),
        });
    parts.collect()
}
/// Takes one run.
fn take<const BLOCK: usize>(cache: &mut Cache<BLOCK>) -> Run {
    let mut runs = cache.take_dirty(INO, ALL, usize::MAX);
    assert_eq!(runs.len(), 1);
    runs.remove(0)
}
/// Writes data and makes it clean.
fn put<const BLOCK: usize>(cache: &mut Cache<BLOCK>, offset: u64, bytes: &Bytes) {
    cache.write(INO, offset, bytes);
    let run = take(cache).id;
    cache.written(INO, run);
}

#[test]
fn a_read_that_is_older_than_a_write_that_was_evicted_is_not_kept() {
    let mut cache = Cache::<8>::new(2 * (8 + SEGMENT_COST));
    let mark = cache.reading(INO);
    put(&mut cache, 0, &data(b'n', 8));
    cache.fill(INO, mark, 8, &[data(b'r', 16)]);
    assert_eq!(
        show(&mut cache, 24),
        "????????rrrrrrrrrrrrrrrr",
        "the first block has been evicted"
    );
    cache.fill(INO, mark, 0, &[data(b'o', 8)]);
    assert_eq!(show(&mut cache, 8), "????????");
    let mark = cache.reading(INO);
    cache.fill(INO, mark, 0, &[data(b'n', 8)]);
    assert_eq!(show(&mut cache, 8), "nnnnnnnn");
    cache.check();
}

/// Reading ahead in a file larger than the cache.
#[test]
fn eviction_of_what_was_only_read_does_not_disturb_reads_in_flight() {
    let mut cache = Cache::<8>::new(2 * (8 + SEGMENT_COST));
    let marks = [(); 4].map(|()| cache.reading(INO));
    for (index, mark) in marks.into_iter().enumerate() {
        cache.fill(INO, mark, index as u64 * 8, &[data(b'r', 8)]);
    }
    assert_eq!(show(&mut cache, 32), "????????????????rrrrrrrrrrrrrrrr");
}

#[test]
fn a_read_that_is_older_than_a_truncation_or_a_change_elsewhere_is_not_kept() {
    type Event = fn(&mut Cache<8>);
    let events: [Event; 3] = [
        |cache| cache.truncate(INO, 4),
        |cache| cache.drop_clean(INO),
        |cache| cache.forget(INO),
    ];
    for event in events {
        let mut cache = Cache::new(1 << 20);
        let mark = cache.reading(INO);
        event(&mut cache);
        cache.fill(INO, mark, 0, &[data(b'o', 8)]);
        assert_eq!(show(&mut cache, 8), "????????");
        cache.check();
    }
}

#[test]
fn a_fill_keeps_what_was_written_since() {
    let mut cache = Cache::<8>::new(1 << 20);
    let mark = cache.reading(INO);
    cache.write(INO, 6, &data(b'n', 4));
    cache.fill(INO, mark, 2, &[data(b'o', 5), data(b'p', 9)]);
    assert_eq!(show(&mut cache, 18), "??oooonnnnpppppp??");
    assert_eq!((cache.dirty_of(INO), cache.untaken_of(INO)), (4, 4));
    cache.check();
}

#[test]
fn what_is_written_over_while_it_is_written_stays_dirty_and_waits_for_that() {
    let mut cache = Cache::<8>::new(1 << 20);
    cache.write(INO, 0, &data(b'a', 12));
    let first = take(&mut cache);
    assert_eq!((first.offset, first.length, first.parts.len()), (0, 12, 2));
    cache.write(INO, 2, &data(b'b', 3));
    cache.write(INO, 14, &data(b'c', 2));
    assert_eq!((cache.dirty(), cache.untaken_of(INO)), (14, 5));
    let second = take(&mut cache);
    assert_eq!(
        (second.offset, second.length),
        (14, 2),
        "the other is not in flight twice"
    );
    cache.written(INO, first.id);
    assert_eq!((cache.dirty(), cache.untaken_of(INO)), (5, 3));
    let third = take(&mut cache);
    assert_eq!((third.offset, &third.parts), (2, &vec![data(b'b', 3)]));
    cache.written(INO, second.id);
    cache.written(INO, third.id);
    assert_eq!(
        (cache.dirty(), show(&mut cache, 16)),
        (0, "aabbbaaaaaaa??cc".into())
    );
    cache.check();
}

#[test]
fn a_run_that_failed_is_forgotten_where_it_was_not_written_over() {
    let mut cache = Cache::<8>::new(1 << 20);
    cache.write(INO, 0, &data(b'a', 12));
    let run = take(&mut cache);
    cache.write(INO, 6, &data(b'b', 3));
    let mark = cache.reading(INO);
    cache.failed(INO, run.id);
    assert_eq!(show(&mut cache, 12), "??????bbb???");
    cache.fill(INO, mark, 0, &[data(b'o', 12)]);
    assert_eq!(
        show(&mut cache, 12),
        "??????bbb???",
        "that read may have seen the run, or not"
    );
    assert_eq!((cache.dirty(), cache.untaken_of(INO)), (3, 3));
    cache.check();
}

#[test]
fn what_is_cut_off_while_it_is_written_is_not_known_after_that() {
    let mut cache = Cache::<8>::new(1 << 20);
    cache.write(INO, 0, &data(b'a', 20));
    let run = take(&mut cache);
    cache.truncate(INO, 10);
    assert_eq!((cache.dirty(), cache.untaken_of(INO)), (10, 0));
    // Read before the run reaches objects, or after: this cannot be known.
    let mark = cache.reading(INO);
    cache.fill(INO, mark, 10, &[data(b'r', 4)]);
    cache.write(INO, 14, &data(b'b', 2));
    assert_eq!(show(&mut cache, 20), "aaaaaaaaaarrrrbb????");
    let mark = cache.reading(INO);
    cache.written(INO, run.id);
    cache.fill(INO, mark, 16, &[data(b'r', 4)]);
    assert_eq!(show(&mut cache, 20), "aaaaaaaaaa????bb????");
    cache.check();
}

#[test]
fn a_file_that_is_forgotten_waits_for_its_runs_only() {
    let mut cache = Cache::<8>::new(1 << 20);
    cache.write(INO, 0, &data(b'a', 20));
    let run = take(&mut cache);
    cache.write(INO, 0, &data(b'b', 20));
    cache.forget(INO);
    assert_eq!((cache.dirty(), cache.bytes(), cache.files.len()), (0, 0, 1));
    cache.written(INO, run.id);
    assert_eq!((cache.bytes(), cache.files.len()), (0, 0));
    cache.check();
}

#[test]
fn whole_blocks_are_neither_copied_when_written_nor_when_read_nor_when_taken() {
    let mut cache = Cache::<BLOCK_SIZE>::new(1 << 30);
    let large = data(b'a', 1 << 20);
    cache.write(INO, 0, &large);
    let mark = cache.reading(INO);
    cache.fill(
        INO,
        mark,
        1 << 20,
        &[large.slice(..1 << 19), large.slice(1 << 19..)],
    );
    // In as few pieces as the data arrived in.
    let expected = [(0, 1 << 20), (0, 1 << 19), (1 << 19, 1 << 19)];
    for (part, (from, length)) in cache.read(INO, 0, 2 << 20).into_iter().zip(expected) {
        let Part::Data(part) = part else {
            panic!("all is known")
        };
        assert_eq!(
            (part.as_ptr(), part.len()),
            (large[from..].as_ptr(), length)
        );
    }
    for (index, part) in take(&mut cache).parts.iter().enumerate() {
        assert_eq!(part.as_ptr(), large[index * BLOCK_SIZE..].as_ptr());
    }
    cache.check();
}

#[test]
fn a_small_slice_does_not_keep_a_large_buffer() {
    let mut cache = Cache::<BLOCK_SIZE>::new(1 << 30);
    let large = data(b'a', 1 << 20);
    put(&mut cache, 0, &large.slice(..4096));
    let mark = cache.reading(INO);
    cache.fill(INO, mark, 1 << 20, &[large.slice(..4096)]);
    // Most of a block is overwritten.
    put(&mut cache, 2 << 20, &data(b'b', BLOCK_SIZE));
    let Part::Data(before) = cache.read(INO, 2 << 20, 10).remove(0) else {
        panic!("known")
    };
    cache.write(INO, (2 << 20) + 4096, &data(b'c', BLOCK_SIZE - 4096));
    let Part::Data(after) = cache.read(INO, 2 << 20, 10).remove(0) else {
        panic!("known")
    };
    assert_eq!(before, after);
    assert_ne!(before.as_ptr(), after.as_ptr());
    assert!(large.try_into_mut().is_ok(), "something refers to it");
    cache.check();
}

#[test]
fn small_appends_grow_one_buffer() {
    let mut cache = Cache::<BLOCK_SIZE>::new(0);
    let (mut buffers, mut last) = (0, None);
    for turn in 0..600 {
        cache.write(INO, turn * 100, &data(b'a', 100));
        let [Part::Data(all)] = &cache.read(INO, 0, (turn + 1) * 100)[..] else {
            panic!("one segment")
        };
        buffers += usize::from(last.replace(all.as_ptr()) != Some(all.as_ptr()));
    }
    assert!(
        buffers <= 11,
        "{buffers} buffers for what doubles ten times"
    );
    assert_eq!(
        (cache.bytes(), cache.dirty()),
        (60_000 + SEGMENT_COST, 60_000)
    );
    cache.check();
}

#[test]
fn appends_that_are_written_one_by_one_leave_few_segments() {
    let mut cache = Cache::<BLOCK_SIZE>::new(1 << 20);
    for turn in 0..600 {
        put(&mut cache, turn * 100, &data(b'a', 100));
        cache.check();
        assert!(cache.files[&INO].blocks[&0].segments() <= 9);
    }
    assert!(
        cache
            .read(INO, 0, 60_000)
            .iter()
            .all(|part| matches!(part, Part::Data(_)))
    );
}

#[test]
fn what_was_used_last_is_evicted_last_and_dirty_data_never() {
    let mut cache = Cache::<8>::new(3 * (8 + SEGMENT_COST));
    cache.write(INO, 24, &data(b'd', 8));
    let mark = cache.reading(INO);
    cache.fill(INO, mark, 0, &[data(b'0', 8), data(b'1', 8)]);
    cache.read(INO, 0, 1);
    cache.fill(INO, mark, 16, &[data(b'2', 8)]);
    assert_eq!(show(&mut cache, 32), "00000000????????22222222dddddddd");
    cache.write(INO, 32, &data(b'd', 24));
    assert_eq!(
        show(&mut cache, 56),
        "?".repeat(24) + &"d".repeat(32),
        "dirty data is kept beyond what is set"
    );
    let run = take(&mut cache);
    cache.written(INO, run.id);
    assert_eq!(cache.bytes(), 3 * (8 + SEGMENT_COST));
    cache.check();
}

#[test]
fn dirty_data_is_taken_in_order_within_a_range_and_up_to_a_size() {
    let mut cache = Cache::<8>::new(0);
    cache.write(INO, 4, &data(b'a', 20));
    cache.write(INO, 40, &data(b'b', 4));
    cache.write(Ino(3), 0, &data(b'c', 1));
    assert_eq!(cache.dirty_files().collect::<Vec<_>>(), [INO, Ino(3)]);
    let spans = |runs: &[Run]| {
        runs.iter()
            .map(|run| (run.offset, run.length))
            .collect::<Vec<_>>()
    };
    let first = cache.take_dirty(INO, 6..42, 11);
    assert_eq!(spans(&first), [(6, 10)], "a block more would exceed it");
    assert_eq!(
        spans(&cache.take_dirty(INO, 0..42, usize::MAX)),
        [(4, 2), (16, 8), (40, 2)]
    );
    assert_eq!(
        spans(&cache.take_dirty(INO, ALL, 0)),
        [(42, 2)],
        "one at least"
    );
    assert_eq!(cache.dirty_files().collect::<Vec<_>>(), [Ino(3)]);
    cache.written(INO, first[0].id);
    assert_eq!(
        (cache.dirty_of(INO), show(&mut cache, 8)),
        (14, "????aa??".into())
    );
    cache.check();
}

mod model {
    use super::*;
    use std::collections::BTreeMap;

    const SIZE: usize = 60;
    const FILES: usize = 3;

    struct Random(SplitMix64);
    impl Random {
        fn below(&mut self, end: usize) -> usize {
            self.0.below(end as u64) as usize
        }
        fn range(&mut self) -> Range<usize> {
            let (a, b) = (self.below(SIZE + 1), self.below(SIZE + 1));
            a.min(b)..a.max(b)
        }
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Byte {
        Clean,
        Dirty,
        Writing(RunId),
    }

    /// A file, byte by byte.
    #[derive(Clone)]
    struct File {
        newest: [u8; SIZE],
        object: [u8; SIZE],
        bytes: [Byte; SIZE],
        runs: BTreeMap<RunId, Run>,
        /// Reads from objects: the mark, the offset, and the data seen.
        reads: Vec<(Mark, usize, Vec<u8>)>,
    }

    impl File {
        /// A run reaches the object. A truncation waits for it or is ordered after it: the
        /// truncated part is not written.
        fn apply(&mut self, run: &Run) {
            for (at, byte) in (run.offset as usize..)
                .zip(run.parts.iter().flatten())
                .take(run.length as usize)
            {
                self.object[at] = *byte;
                if self.bytes[at] == Byte::Clean {
                    self.newest[at] = *byte;
                }
            }
        }
        fn forget(&mut self, range: Range<usize>, is_it: impl Fn(Byte) -> bool) {
            for at in range
                .filter(|at| is_it(self.bytes[*at]))
                .collect::<Vec<_>>()
            {
                self.bytes[at] = Byte::Clean;
                self.newest[at] = self.object[at];
            }
        }
        fn count(&self, is_it: impl Fn(Byte) -> bool) -> u64 {
            self.bytes.iter().filter(|byte| is_it(**byte)).count() as u64
        }
    }

    struct World<const BLOCK: usize> {
        random: Random,
        cache: Cache<BLOCK>,
        files: [File; FILES],
        value: u8,
        /// How often the events occurred that make the test meaningful.
        seen: BTreeMap<&'static str, usize>,
    }

    impl<const BLOCK: usize> World<BLOCK> {
        fn new(seed: u64, bytes_max: usize) -> Self {
            let file = File {
                newest: [0; SIZE],
                object: [0; SIZE],
                bytes: [Byte::Clean; SIZE],
                runs: BTreeMap::new(),
                reads: Vec::new(),
            };
            let files = [file.clone(), file.clone(), file];
            Self {
                random: Random(SplitMix64(seed)),
                cache: Cache::new(bytes_max),
                files,
                value: 0,
                seen: BTreeMap::new(),
            }
        }
        fn new_data(&mut self, length: usize) -> Vec<u8> {
            self.value = self.value.wrapping_add(1);
            vec![self.value; length]
        }
        fn step(&mut self) {
            let number = self.random.below(FILES);
            let (ino, range) = (Ino(number as u64), self.random.range());
            match self.random.below(100) {
                0..22 => {
                    let range = if self.random.below(2) == 0 {
                        range.start..range.end.min(range.start + 5)
                    } else {
                        range
                    };
                    let new = self.new_data(range.len());
                    self.cache
                        .write(ino, range.start as u64, &Bytes::from(new.clone()));
                    self.files[number].newest[range.clone()].copy_from_slice(&new);
                    self.files[number].bytes[range].fill(Byte::Dirty);
                }
                22..32 => self.take(number, &range),
                32..44 => self.end_run(number),
                44..58 => {
                    let mark = self.cache.reading(ino);
                    let seen = self.files[number].object[range.clone()].to_vec();
                    self.files[number].reads.push((mark, range.start, seen));
                }
                58..80 => self.fill(number),
                80..92 => {
                    self.compare(&mut self.cache.clone(), number, &range);
                    self.cache.read(ino, range.start as u64, range.len() as u64);
                }
                92..95 => {
                    let file = &mut self.files[number];
                    file.newest[range.start..].fill(0);
                    file.object[range.start..].fill(0);
                    file.bytes[range.start..].fill(Byte::Clean);
                    for run in file.runs.values_mut() {
                        run.length = run
                            .length
                            .min((range.start as u64).saturating_sub(run.offset));
                    }
                    self.cache.truncate(ino, range.start as u64);
                }
                95..98 => {
                    // Another client has written.
                    let new = self.new_data(range.len());
                    let file = &mut self.files[number];
                    for (at, new) in range
                        .zip(new)
                        .filter(|(at, _)| file.bytes[*at] == Byte::Clean)
                        .collect::<Vec<_>>()
                    {
                        (file.object[at], file.newest[at]) = (new, new);
                    }
                    self.cache.drop_clean(ino);
                }
                _ => {
                    self.files[number].forget(0..SIZE, |_| true);
                    self.cache.forget(ino);
                }
            }
            self.cache.check();
            self.compare_all();
        }
        fn take(&mut self, number: usize, range: &Range<usize>) {
            let bytes_max = self.random.below(SIZE);
            let runs = self.cache.take_dirty(
                Ino(number as u64),
                range.start as u64..range.end as u64,
                bytes_max,
            );
            let file = &mut self.files[number];
            assert!(
                runs.is_sorted_by(|a, b| a.offset + a.length < b.offset),
                "{runs:?}"
            );
            let taken: u64 = runs.iter().map(|run| run.length).sum();
            assert!(taken <= bytes_max.max(BLOCK) as u64);
            for mut run in runs {
                assert_eq!(
                    run.length,
                    run.parts.iter().map(Bytes::len).sum::<usize>() as u64
                );
                let span = run.offset as usize..(run.offset + run.length) as usize;
                assert!(range.start <= span.start && span.end <= range.end);
                assert!(
                    run.parts.iter().flatten().eq(&file.newest[span.clone()]),
                    "what is written is not the newest"
                );
                for flight in file.runs.values() {
                    let whole: usize = flight.parts.iter().map(Bytes::len).sum();
                    let flight = flight.offset as usize..flight.offset as usize + whole;
                    assert!(
                        flight.end <= span.start || span.end <= flight.start,
                        "in flight twice"
                    );
                }
                for at in span {
                    assert_eq!(file.bytes[at], Byte::Dirty);
                    file.bytes[at] = Byte::Writing(run.id);
                }
                // Nothing in flight changes, whatever is written meanwhile.
                run.parts = run
                    .parts
                    .iter()
                    .map(|part| Bytes::from(part.to_vec()))
                    .collect();
                *self.seen.entry("run").or_default() += 1;
                if self.random.below(2) == 0 {
                    file.apply(&run);
                }
                file.runs.insert(run.id, run);
            }
        }
        fn end_run(&mut self, number: usize) {
            let file = &mut self.files[number];
            if file.runs.is_empty() {
                return;
            }
            let at = self.random.below(file.runs.len());
            let id = *file.runs.keys().nth(at).expect("one of them");
            let run = file.runs.remove(&id).expect("one of them");
            if self.random.below(4) > 0 {
                file.apply(&run);
                file.bytes
                    .iter_mut()
                    .filter(|byte| **byte == Byte::Writing(id))
                    .for_each(|byte| *byte = Byte::Clean);
                self.cache.written(Ino(number as u64), id);
            } else {
                if self.random.below(2) == 0 {
                    file.apply(&run);
                }
                file.forget(0..SIZE, |byte| byte == Byte::Writing(id));
                self.cache.failed(Ino(number as u64), id);
            }
        }
        fn fill(&mut self, number: usize) {
            let file = &mut self.files[number];
            if file.reads.is_empty() {
                return;
            }
            // Usually the last one: others are outdated sooner or later.
            let last = file.reads.len() - 1;
            let index = if self.random.below(4) == 0 {
                self.random.below(last + 1)
            } else {
                last
            };
            let (mark, from, mut read) = file.reads.swap_remove(index);
            // It may have been answered at any time until now.
            if self.random.below(2) == 0 {
                let now = &file.object[from..from + read.len()];
                read.copy_from_slice(now);
            }
            let (before, after) = read.split_at(self.random.below(read.len() + 1));
            let kept = self.cache.bytes();
            let parts = [before, after].map(Bytes::copy_from_slice);
            self.cache
                .fill(Ino(number as u64), mark, from as u64, &parts);
            *self
                .seen
                .entry(if self.cache.bytes() == kept {
                    "refused"
                } else {
                    "filled"
                })
                .or_default() += 1;
        }
        /// Data read is the newest, or is not dirty and equals the object. Returns how many bytes
        /// were cached.
        fn compare(&self, cache: &mut Cache<BLOCK>, number: usize, range: &Range<usize>) -> usize {
            let (file, mut at, mut known) = (&self.files[number], range.start, 0);
            for part in cache.read(Ino(number as u64), range.start as u64, range.len() as u64) {
                match part {
                    Part::Data(data) => {
                        assert!(!data.is_empty());
                        let end = at + data.len();
                        assert_eq!(data, &file.newest[at..end], "{number} {at}..{end}");
                        (at, known) = (end, known + data.len());
                    }
                    Part::Missing { offset, length } => {
                        assert!(length > 0);
                        assert_eq!(offset, at as u64);
                        let missing = at..at + length as usize;
                        assert!(
                            file.bytes[missing.clone()]
                                .iter()
                                .all(|byte| *byte == Byte::Clean),
                            "{number} {missing:?}"
                        );
                        assert_eq!(file.object[missing.clone()], file.newest[missing.clone()]);
                        at = missing.end;
                    }
                }
            }
            assert_eq!(at, range.end);
            known
        }
        fn compare_all(&mut self) {
            // Reads influence later evictions.
            let mut cache = self.cache.clone();
            let (mut known, mut all) = (0, 0);
            for (number, file) in self.files.iter().enumerate() {
                let ino = Ino(number as u64);
                known += self.compare(&mut cache, number, &(0..SIZE));
                let dirty = file.count(|byte| byte != Byte::Clean);
                assert_eq!(self.cache.dirty_of(ino), dirty);
                assert_eq!(
                    self.cache.untaken_of(ino),
                    file.count(|byte| byte == Byte::Dirty)
                );
                assert_eq!(
                    self.cache.dirty_files().any(|it| it == ino),
                    self.cache.untaken_of(ino) > 0
                );
                all += dirty;
            }
            assert_eq!(self.cache.dirty(), all);
            let costs = self.cache.bytes() - known;
            assert_eq!(costs % SEGMENT_COST, 0);
        }
    }

    fn run<const BLOCK: usize>(seed: u64, bytes_max: usize) {
        let mut world = World::<BLOCK>::new(seed, bytes_max);
        for _ in 0..1500 {
            world.step();
        }
        for number in 0..FILES {
            while !world.files[number].runs.is_empty() {
                world.end_run(number);
            }
            world.cache.forget(Ino(number as u64));
        }
        assert!(world.cache.files.is_empty() && world.cache.bytes() == 0);
        // In a small cache, a fill may evict as much as it adds.
        for what in ["run", "refused", "filled"]
            .into_iter()
            .filter(|_| bytes_max >= 1 << 20)
        {
            assert!(world.seen[what] > 30, "{:?}", world.seen);
        }
    }

    #[test]
    fn it_shows_the_newest_bytes_of_a_model() {
        for seed in 0..2 {
            for bytes_max in [0, 6 * SEGMENT_COST, 1 << 20] {
                run::<8>(seed, bytes_max);
                run::<16>(seed + 100, bytes_max);
                run::<64>(seed + 200, bytes_max);
                run::<1>(seed + 300, bytes_max);
            }
        }
    }
}
