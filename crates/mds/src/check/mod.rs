//! `fs check`: proves that a file system's objects fit together, and says how to repair those that
//! do not.
//!
//! ```text
//!  Journals ─▶ Listing ─▶ Fragments ─▶ (Again) ─▶ Data ─▶ Orphans ─▶ Done: Report
//!   overlay     names      entries, in  places of  names   lengths of     └▶ plan ─▶ operations, and from the beginning
//!               of objects  pages       what is               what no inode
//!                                       suspicious            has
//! ```
//! A machine without I/O: its host performs [`Next::Operation`]s, many at a time, lists the pools
//! that it is asked to list, and tells what came of it. What journals say is put over what objects
//! have, as a server does.
//!
//! A rebuild is a repair that believes backpointers: of directories, and of files' first objects
//! with data. When the metadata pool is lost, those are all there is.
//!
//! Memory: some 700 bytes per directory, 100 per file with several names, 16 per file of more than
//! one object, and three bits per number given. Nothing else is kept of files: entries stream by,
//! in pages.
//!
//! Invariant: what a check reads it never writes; only [`Report::plan`] says what to write.

mod data;
mod entries;
mod finding;
mod journals;
mod judge;
mod numbers;
mod plan;

pub use finding::{Finding, Kind};
pub use plan::Plan;

use crate::journal::JournalHead;
use crate::mds::fragment_name;
use crate::overlay::Overlay;
use crate::transactions::Transactions;
use crate::writers::Writers;
use bytes::Bytes;
use finding::Edit;
use nacre_client::{Done, Failure, Operation};
use nacre_types::{Frag, Ino, Name, ObjectId, PoolId, Rank};
use nacre_wire::fs::{Backpointer, Entry, FileKind, Head, Layout, Stamp};
use nacre_wire::msg::client::{OpFailure, SubOp};
use numbers::Numbers;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What is checked.
#[derive(Clone, Debug)]
pub struct CheckConfig {
    /// The namespace of the file system's objects.
    pub namespace: Name,
    /// The pool of directories and journals.
    pub pool: PoolId,
    /// How new files' data lies.
    pub layout: Layout,
    /// Ranks that it has.
    pub ranks: u16,
    /// Names and attributes only: no lengths of data objects.
    pub quick: bool,
    /// What journals say is put over what objects have. Not while servers go on: what they had
    /// said before the check began is written then, and later batches would be newer than some
    /// objects and older than others.
    pub journals: bool,
    /// What leads nowhere gets the name that its backpointer says, where that is free.
    pub rebuild: bool,
    /// Entries are given out ([`Check::take_rows`]), and nothing is judged.
    pub dump: bool,
    /// The time, for what a repair makes.
    pub now: Stamp,
}

/// Names an operation in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token(u64);

/// What a check wants next.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "nearly all are operations")]
pub enum Next {
    /// This operation; its end is told with [`Check::on_done`].
    Operation(Token, Operation),
    /// The end of one that is in flight.
    Wait,
    /// All objects of this pool ([`Check::on_object`]).
    List(PoolId),
    /// Nothing: [`Check::report`].
    Done,
}

/// An entry, for [`CheckConfig::dump`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// In which directory.
    pub dir: Ino,
    /// Its name.
    pub name: Name,
    /// It.
    pub entry: Entry,
}

/// Why an operation did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// There is no such object.
    NotFound,
    /// Anything else, in words.
    Other(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Journals,
    Listing,
    Fragments,
    Again,
    Data,
    Orphans,
    Names,
    Done,
}

/// What an operation in flight is for.
#[derive(Debug)]
enum Purpose {
    JournalHead(Rank),
    Journal(Rank, u64),
    /// The next entries of a fragment; what the journal says of names that have not come yet.
    Page {
        dir: Ino,
        frag: Frag,
        first: bool,
        left: BTreeMap<Name, Option<Entry>>,
    },
    /// The last object of a file, which has so many bytes at most; and the first, which says where
    /// it is.
    Length {
        ino: Ino,
        number: u64,
        max: u64,
        pool: PoolId,
        at: Option<Backpointer>,
        place: (Ino, Name),
    },
    Orphan {
        ino: Ino,
        number: u64,
    },
}

/// What is known of a directory.
#[derive(Debug, Default)]
struct Dir {
    /// Where its first entry is.
    place: Option<(Ino, Name)>,
    /// That comes from the journal: its object may not know it yet.
    is_journaled: bool,
    /// It has an object, or the journal says all of it.
    is_there: bool,
    is_unreadable: bool,
    /// What its head says.
    head: Option<Head>,
    /// What its entry says of it.
    copy: Option<Head>,
    /// What it has: entries, directories, bytes and files in it.
    own: Head,
    backpointer: Option<Backpointer>,
    bad_backpointer: bool,
}

/// What is known of a file with several names.
#[derive(Debug, Default)]
struct Linked {
    /// Its inode's home, what it is, and how many names it says to have.
    inode: Option<(Ino, FileKind, u32)>,
    references: u32,
    /// A reference says another kind.
    other_kind: bool,
}

/// Where an inode, or a reference to it, was found.
#[derive(Clone, Debug)]
struct Sight {
    dir: Ino,
    name: Name,
    entry: Entry,
}

/// Data that belongs to no inode.
#[derive(Debug, Default)]
struct OrphanData {
    pool: PoolId,
    objects: u64,
    /// The highest numbers, and how long those are.
    last: BTreeMap<u64, u64>,
    at: Option<Backpointer>,
}

/// What was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Batches in journals.
    pub batches: u64,
    /// Directories.
    pub directories: u64,
    /// Files, links and the like.
    pub files: u64,
    /// Bytes of files.
    pub bytes: u64,
    /// Objects with data.
    pub objects: u64,
    /// Files whose first object says where they are, rightly.
    pub placed: u64,
    /// Files whose first object says another place: they were renamed since.
    pub misplaced: u64,
    /// Files whose first object says nothing.
    pub silent: u64,
}

/// A rank's journal as it was read.
#[derive(Debug)]
struct Journaled {
    head: JournalHead,
    /// The next batch's number.
    next: u64,
    /// The next serial.
    serial: u64,
    /// The lowest and the highest object that there are.
    lowest: Option<u64>,
    last: Option<u64>,
    damaged: bool,
    /// Its head does not say where it begins: with what there is.
    is_headless: bool,
    /// Who has files open for writing.
    writers: Writers,
    /// Changes of names of several ranks that are not over.
    transactions: Transactions,
}

impl Journaled {
    fn new(rank: Rank) -> Self {
        Self {
            head: JournalHead::default(),
            next: 0,
            serial: Ino::SERIAL_MIN,
            lowest: None,
            last: None,
            damaged: false,
            is_headless: false,
            writers: Writers::default(),
            transactions: Transactions::new(rank),
        }
    }
}

/// See the module head.
pub struct Check {
    config: CheckConfig,
    stage: Stage,
    next_token: u64,
    in_flight: BTreeMap<Token, Purpose>,
    queue: VecDeque<(Purpose, Operation)>,
    to_list: VecDeque<PoolId>,
    journals: BTreeMap<Rank, Journaled>,
    overlay: Overlay,
    /// Directories that the journal says are gone.
    ended: BTreeSet<Ino>,
    fragments: BTreeSet<(Ino, Frag)>,
    /// The last fragment that was begun.
    cursor: Option<(Ino, Frag)>,
    dirs: BTreeMap<Ino, Dir>,
    /// More entries of directories that have one.
    more_places: BTreeMap<Ino, Vec<(Ino, Name)>>,
    inodes: Numbers,
    twice: BTreeSet<Ino>,
    linked: BTreeMap<Ino, Linked>,
    /// What references said of inodes that had not come.
    kinds: BTreeMap<Ino, FileKind>,
    lost_found: Option<Ino>,
    /// Where references to directories of other ranks are.
    tops: BTreeMap<Ino, (Ino, Name)>,
    /// The highest serial that was seen, by rank.
    highest: BTreeMap<u16, u64>,
    /// Of these every entry is looked for again.
    wanted: BTreeSet<Ino>,
    sights: BTreeMap<Ino, Vec<Sight>>,
    /// Files with data, those that may have a first object, and how many those may have that may
    /// have more.
    files: Numbers,
    begun: Numbers,
    large: Vec<(Ino, u64)>,
    data_pools: BTreeSet<PoolId>,
    orphans: BTreeMap<Ino, OrphanData>,
    /// Names that backpointers of what leads nowhere say, and whether each is taken.
    names: BTreeMap<(Ino, Name), bool>,
    /// Directories that are made again under their numbers.
    remade: BTreeSet<Ino>,
    counts: Counts,
    findings: Vec<Finding>,
    /// Found while entries stream by: their directory's path is known at the end.
    early: Vec<(Ino, Option<Name>, Finding)>,
    rows: Vec<Row>,
    /// Files whose first object does not say where they are.
    to_place: Vec<(PoolId, Ino, Backpointer)>,
    /// Directories whose entries have an old copy of what is in them, and rightly: a repair has
    /// just put a journal away.
    quiet: BTreeSet<Ino>,
}

impl Check {
    /// A check from the beginning.
    #[must_use]
    pub fn new(config: CheckConfig) -> Self {
        let mut check = Self {
            stage: Stage::Journals,
            next_token: 0,
            in_flight: BTreeMap::new(),
            queue: VecDeque::new(),
            to_list: VecDeque::new(),
            journals: BTreeMap::new(),
            overlay: Overlay::default(),
            ended: BTreeSet::new(),
            fragments: BTreeSet::new(),
            cursor: None,
            dirs: BTreeMap::new(),
            more_places: BTreeMap::new(),
            inodes: Numbers::default(),
            twice: BTreeSet::new(),
            linked: BTreeMap::new(),
            kinds: BTreeMap::new(),
            lost_found: None,
            tops: BTreeMap::new(),
            highest: BTreeMap::new(),
            wanted: BTreeSet::new(),
            sights: BTreeMap::new(),
            files: Numbers::default(),
            begun: Numbers::default(),
            large: Vec::new(),
            data_pools: BTreeSet::from([config.layout.pool]),
            orphans: BTreeMap::new(),
            names: BTreeMap::new(),
            remade: BTreeSet::new(),
            counts: Counts::default(),
            findings: Vec::new(),
            early: Vec::new(),
            rows: Vec::new(),
            to_place: Vec::new(),
            quiet: BTreeSet::new(),
            config,
        };
        check.read_journals();
        check
    }
    /// The check after a step of a repair.
    #[must_use]
    pub fn after(config: CheckConfig, report: &Report) -> Self {
        let mut check = Self::new(config);
        check.quiet = report.dirty.clone();
        check
    }

    fn object(&self, name: &str) -> ObjectId {
        object(&self.config.namespace, name)
    }
    fn push(&mut self, purpose: Purpose, pool: PoolId, name: &str, ops: Vec<SubOp>) {
        let object = self.object(name);
        self.queue.push_back((
            purpose,
            Operation {
                pool,
                object,
                ops,
                ..Operation::default()
            },
        ));
    }

    /// What it wants next.
    pub fn wants(&mut self) -> Next {
        loop {
            if let Some((purpose, operation)) = self.queue.pop_front() {
                self.next_token += 1;
                let token = Token(self.next_token);
                self.in_flight.insert(token, purpose);
                return Next::Operation(token, operation);
            }
            if let Some(pool) = self.to_list.pop_front() {
                return Next::List(pool);
            }
            if self.begin_fragment() {
                continue;
            }
            if !self.in_flight.is_empty() {
                return Next::Wait;
            }
            if self.stage == Stage::Done {
                return Next::Done;
            }
            self.advance();
        }
    }

    /// The next fragment's first page; whether there was one.
    fn begin_fragment(&mut self) -> bool {
        if !matches!(self.stage, Stage::Fragments | Stage::Again | Stage::Names) {
            return false;
        }
        let next = match self.cursor {
            Some(last) => {
                let after = (std::ops::Bound::Excluded(last), std::ops::Bound::Unbounded);
                self.fragments.range(after).next().copied()
            }
            None => self.fragments.first().copied(),
        };
        let Some((dir, frag)) = next else {
            return false;
        };
        self.cursor = next;
        self.read_fragment(dir, frag);
        true
    }

    /// All of a stage is done: the next one.
    fn advance(&mut self) {
        let stage = self.stage;
        self.stage = match stage {
            Stage::Journals => {
                self.to_list.push_back(self.config.pool);
                Stage::Listing
            }
            Stage::Listing if self.read_headless() => Stage::Listing,
            Stage::Listing => {
                let ended = &self.ended;
                self.fragments.retain(|(dir, _)| !ended.contains(dir));
                self.fragments.extend(self.overlay.parts());
                Stage::Fragments
            }
            Stage::Fragments if self.config.dump => Stage::Done,
            Stage::Fragments => {
                self.cursor = None;
                for (ino, dir) in &mut self.dirs {
                    dir.head = self.overlay.head(*ino).or(dir.head);
                }
                self.suspect();
                if self.wanted.is_empty() {
                    self.begin_data()
                } else {
                    Stage::Again
                }
            }
            Stage::Again => self.begin_data(),
            Stage::Data => {
                self.read_orphans();
                Stage::Orphans
            }
            Stage::Orphans if self.want_names() => Stage::Names,
            Stage::Orphans | Stage::Names => {
                self.judge();
                Stage::Done
            }
            Stage::Done => Stage::Done,
        };
    }

    /// An object of a pool that was asked for.
    pub fn on_object(&mut self, pool: PoolId, object: &ObjectId) {
        if object.namespace != self.config.namespace {
            return;
        }
        let name = object.name.to_string();
        match self.stage {
            Stage::Listing => self.on_metadata_object(&name),
            Stage::Data => self.on_data_object(pool, &name),
            _ => {}
        }
    }

    /// Entries that came since the last call.
    pub fn take_rows(&mut self) -> Vec<Row> {
        std::mem::take(&mut self.rows)
    }
    /// An operation has ended.
    pub fn on_done(&mut self, token: Token, result: Result<Done, Trouble>) {
        let Some(purpose) = self.in_flight.remove(&token) else {
            return;
        };
        match purpose {
            Purpose::JournalHead(rank) => self.on_journal_head(rank, result),
            Purpose::Journal(rank, number) => self.on_journal(rank, number, result),
            Purpose::Page {
                dir,
                frag,
                first,
                left,
            } => self.on_page((dir, frag), first, left, result),
            Purpose::Length {
                ino,
                number,
                max,
                pool,
                at,
                place,
            } => {
                self.on_length((pool, ino, number), max, at.as_ref(), place, result);
            }
            Purpose::Orphan { ino, number } => self.on_orphan(ino, number, result),
        }
    }

    fn find(&mut self, kind: Kind, place: impl Into<String>, what: impl Into<String>) {
        self.findings
            .push(Finding::new(kind, place.into(), what.into()));
    }

    /// All of it, one operation after the other: for objects in memory.
    pub fn run(
        mut self,
        mut perform: impl FnMut(&Operation) -> Result<Done, Failure>,
        list: impl Fn(PoolId) -> Vec<ObjectId>,
    ) -> Report {
        let mut begun = VecDeque::new();
        loop {
            match self.wants() {
                Next::Operation(token, operation) => begun.push_back((token, operation)),
                Next::Wait => {}
                Next::List(pool) => list(pool)
                    .iter()
                    .for_each(|object| self.on_object(pool, object)),
                Next::Done => return self.report(),
            }
            if let Some((token, operation)) = begun.pop_front() {
                let result = perform(&operation).map_err(|why| match why {
                    Failure::Refused(OpFailure::NotFound {} | OpFailure::Guard { .. }) => {
                        Trouble::NotFound
                    }
                    why => Trouble::Other(why.to_string()),
                });
                self.on_done(token, result);
            }
        }
    }

    /// What came of it.
    #[must_use]
    pub fn report(self) -> Report {
        let dirty = self
            .overlay
            .parts()
            .into_iter()
            .map(|(dir, _)| dir)
            .chain(self.quiet)
            .collect();
        let Self {
            config,
            findings,
            counts,
            journals,
            overlay,
            ended,
            lost_found,
            to_place,
            ..
        } = self;
        Report {
            config,
            findings,
            counts,
            journals,
            overlay,
            ended,
            lost_found,
            dirty,
            to_place,
        }
    }
}

/// What a check has found.
pub struct Report {
    config: CheckConfig,
    /// In the order of kinds.
    pub findings: Vec<Finding>,
    /// What was looked at.
    pub counts: Counts,
    journals: BTreeMap<Rank, Journaled>,
    overlay: Overlay,
    ended: BTreeSet<Ino>,
    lost_found: Option<Ino>,
    dirty: BTreeSet<Ino>,
    to_place: Vec<(PoolId, Ino, Backpointer)>,
}

impl Report {
    /// What is wrong; without what only follows from a repair.
    pub fn faults(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| !finding.quiet)
    }
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.faults().next().is_none()
    }
}

fn object(namespace: &Name, name: &str) -> ObjectId {
    ObjectId {
        name: Name::from(name),
        namespace: namespace.clone(),
        ..ObjectId::default()
    }
}

/// The fragment that an object's name says.
fn parse_fragment(name: &str) -> Option<(Ino, Frag)> {
    let (ino, frag) = name.strip_prefix("dir.")?.split_once('.')?;
    let ino = Ino(u64::from_str_radix(ino, 16).ok()?);
    let bits = u8::from_str_radix(frag.get(..2)?, 16).ok()?;
    let frag = Frag::new(bits, u32::from_str_radix(frag.get(2..)?, 16).ok()?)?;
    (fragment_name(ino, frag) == name).then_some((ino, frag))
}

/// The inode and the number that a data object's name says.
fn parse_data(name: &str) -> Option<(Ino, u64)> {
    let (ino, number) = name.split_once('.')?;
    let parsed = (
        Ino(u64::from_str_radix(ino, 16).ok()?),
        u64::from_str_radix(number, 16).ok()?,
    );
    (nacre_wire::fs::data_name(parsed.0, parsed.1) == name).then_some(parsed)
}

fn key_of(name: &Name) -> Bytes {
    Bytes::copy_from_slice(nacre_wire::fs::entry::entry_key(name).as_bytes())
}
