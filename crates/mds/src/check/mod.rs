//! `fs check`: verifies that a file system's objects are consistent, and determines repairs.
//!
//! ```text
//!  Journals ─▶ Listing ─▶ Fragments ─▶ (Again) ─▶ Data ─▶ Orphans ─▶ Done: Report
//!   overlay     names      entries, in  suspicious  names   lengths of     └▶ plan ─▶ operations, then from the beginning
//!               of objects  pages       entries             data without
//!                                                           an inode
//! ```
//! A state machine without I/O: its host performs [`Next::Operation`]s, many at a time, lists the
//! requested pools, and reports the results. Like in a server, the journals' contents are applied
//! on top of the objects.
//!
//! A rebuild is a repair that trusts backpointers: those of directories, and those of files' first
//! data objects. When the metadata pool is lost, nothing else is left.
//!
//! Memory: some 700 bytes per directory, 100 per file with several names, 16 per file of more than
//! one object, and three bits per assigned number. Nothing else is kept about files: entries are
//! read once, in pages.
//!
//! Invariant: a check only reads; [`Report::plan`] determines what to write.

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

/// The parameters of a check.
#[derive(Clone, Debug)]
pub struct CheckConfig {
    /// The namespace of the file system's objects.
    pub namespace: Name,
    /// The pool of directories and journals.
    pub pool: PoolId,
    /// Layout of new files.
    pub layout: Layout,
    /// Number of ranks.
    pub ranks: u16,
    /// Only names and attributes, without lengths of data objects.
    pub quick: bool,
    /// Apply the journals on top of the objects. Not with running servers: they write during the
    /// check what was journaled before it began, and later batches would be newer than some objects
    /// and older than others.
    pub journals: bool,
    /// Give unreferenced inodes the names in their backpointers, where those are free.
    pub rebuild: bool,
    /// Return all entries ([`Check::take_rows`]) without judging them.
    pub dump: bool,
    /// The time, for what a repair creates.
    pub now: Stamp,
}

/// Identifies an operation in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token(u64);

/// The next step of a check.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "nearly all are operations")]
pub enum Next {
    /// Perform this operation and report its end with [`Check::on_done`].
    Operation(Token, Operation),
    /// Wait for the end of an operation in flight.
    Wait,
    /// Report all objects of this pool ([`Check::on_object`]).
    List(PoolId),
    /// The check is complete: [`Check::report`].
    Done,
}

/// An entry, for [`CheckConfig::dump`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The directory.
    pub dir: Ino,
    /// Its name.
    pub name: Name,
    /// The entry.
    pub entry: Entry,
}

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// There is no such object.
    NotFound,
    /// Any other reason, as text.
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

/// The purpose of an operation in flight.
#[derive(Debug)]
enum Purpose {
    JournalHead(Rank),
    Journal(Rank, u64),
    /// The next entries of a fragment, with the journal's names that have not been reached yet.
    Page {
        dir: Ino,
        frag: Frag,
        first: bool,
        left: BTreeMap<Name, Option<Entry>>,
    },
    /// The last object of a file, with its maximum length; and the first one, with its backpointer.
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

/// What is known about a directory.
#[derive(Debug, Default)]
struct Dir {
    /// Where its first entry is.
    place: Option<(Ino, Name)>,
    /// The place comes from the journal: its object may not know it yet.
    is_journaled: bool,
    /// It has an object, or is completely in the journal.
    is_there: bool,
    is_unreadable: bool,
    /// Its head.
    head: Option<Head>,
    /// Its entry's copy of the head.
    copy: Option<Head>,
    /// Its own contents: entries, directories, bytes and files.
    own: Head,
    backpointer: Option<Backpointer>,
    bad_backpointer: bool,
}

/// What is known about a file with several names.
#[derive(Debug, Default)]
struct Linked {
    /// Its inode's home, kind, and link count.
    inode: Option<(Ino, FileKind, u32)>,
    references: u32,
    /// A reference has another kind.
    other_kind: bool,
}

/// Where an inode, or a reference to it, was found.
#[derive(Clone, Debug)]
struct Sight {
    dir: Ino,
    name: Name,
    entry: Entry,
}

/// Data without an inode.
#[derive(Debug, Default)]
struct OrphanData {
    pool: PoolId,
    objects: u64,
    /// The highest object numbers, and their lengths.
    last: BTreeMap<u64, u64>,
    at: Option<Backpointer>,
}

/// Counts of what was checked.
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
    /// Files whose first object has the right backpointer.
    pub placed: u64,
    /// Files whose first object has an outdated backpointer: they were renamed since.
    pub misplaced: u64,
    /// Files whose first object has no backpointer.
    pub silent: u64,
}

/// A rank's journal as read.
#[derive(Debug)]
struct Journaled {
    head: JournalHead,
    /// The next batch's number.
    next: u64,
    /// The next serial.
    serial: u64,
    /// The lowest and the highest existing object.
    lowest: Option<u64>,
    last: Option<u64>,
    damaged: bool,
    /// Its head does not say where it begins: read what exists.
    is_headless: bool,
    /// Clients with files open for writing.
    writers: Writers,
    /// Pending transactions across ranks.
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
    /// Directories removed according to the journal.
    ended: BTreeSet<Ino>,
    fragments: BTreeSet<(Ino, Frag)>,
    /// The last fragment begun.
    cursor: Option<(Ino, Frag)>,
    dirs: BTreeMap<Ino, Dir>,
    /// Further entries of directories that already have one.
    more_places: BTreeMap<Ino, Vec<(Ino, Name)>>,
    inodes: Numbers,
    twice: BTreeSet<Ino>,
    linked: BTreeMap<Ino, Linked>,
    /// Kinds in references whose inodes have not been read yet.
    kinds: BTreeMap<Ino, FileKind>,
    lost_found: Option<Ino>,
    /// Where references to directories of other ranks are.
    tops: BTreeMap<Ino, (Ino, Name)>,
    /// The highest serial seen, by rank.
    highest: BTreeMap<u16, u64>,
    /// Inodes whose entries must all be read again.
    wanted: BTreeSet<Ino>,
    sights: BTreeMap<Ino, Vec<Sight>>,
    /// Files with data, files that may have a first object, and the number of objects of those that
    /// may have several.
    files: Numbers,
    begun: Numbers,
    large: Vec<(Ino, u64)>,
    data_pools: BTreeSet<PoolId>,
    orphans: BTreeMap<Ino, OrphanData>,
    /// Names in backpointers of unreferenced inodes, and whether each is taken.
    names: BTreeMap<(Ino, Name), bool>,
    /// Directories that are recreated under their numbers.
    remade: BTreeSet<Ino>,
    counts: Counts,
    findings: Vec<Finding>,
    /// Findings while entries are read: their directory's path is known at the end.
    early: Vec<(Ino, Option<Name>, Finding)>,
    rows: Vec<Row>,
    /// Files whose first object has no correct backpointer.
    to_place: Vec<(PoolId, Ino, Backpointer)>,
    /// Directories whose entries rightly have an outdated head, because a repair has just emptied a
    /// journal.
    quiet: BTreeSet<Ino>,
}

impl Check {
    /// A new check.
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

    /// Its next step.
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

    /// Begins the next fragment's first page; returns whether there was one.
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

    /// Advances to the next stage when the current one is complete.
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

    /// An object of a listed pool.
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

    /// Entries read since the last call.
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

    /// Runs the whole check, one operation at a time, on objects in memory.
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

    /// The result.
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

/// The findings of a check.
pub struct Report {
    config: CheckConfig,
    /// Ordered by kind.
    pub findings: Vec<Finding>,
    /// Counts of what was checked.
    pub counts: Counts,
    journals: BTreeMap<Rank, Journaled>,
    overlay: Overlay,
    ended: BTreeSet<Ino>,
    lost_found: Option<Ino>,
    dirty: BTreeSet<Ino>,
    to_place: Vec<(PoolId, Ino, Backpointer)>,
}

impl Report {
    /// The faults, without consequences of a repair.
    pub fn faults(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| !finding.quiet)
    }
    /// Whether there are no faults.
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

/// The fragment in an object's name.
fn parse_fragment(name: &str) -> Option<(Ino, Frag)> {
    let (ino, frag) = name.strip_prefix("dir.")?.split_once('.')?;
    let ino = Ino(u64::from_str_radix(ino, 16).ok()?);
    let bits = u8::from_str_radix(frag.get(..2)?, 16).ok()?;
    let frag = Frag::new(bits, u32::from_str_radix(frag.get(2..)?, 16).ok()?)?;
    (fragment_name(ino, frag) == name).then_some((ino, frag))
}

/// The inode and the number in a data object's name.
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
