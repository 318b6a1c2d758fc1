//! A repair, step by step: a report becomes operations, and another check from the beginning finds
//! what is left.
//!
//! ```text
//!  1. the journals' contents are written to directories, and the journals restart after it   if there are any
//!  2. entries: what must be kept gets names, what refers to nothing is removed; lost+found
//!  3. counts, sums, link counts, backpointers                                             if nothing else is wrong
//! ```
//! Each step may be interrupted anywhere: the next check finds what is left. If the journals had
//! contents, the clients' sessions end, because their answers are not known here; otherwise clients
//! continue with the next holder as after any takeover.

use super::*;
use crate::change::Change;
use crate::journal;
use crate::mds::{HEAD_ATTR, PARENT_ATTR};
use nacre_wire::Wire as _;
use nacre_wire::fs::{Inode, data_name};

/// Entries per operation.
const ENTRIES_MAX: usize = 1000;

/// The next operations of a repair.
#[derive(Debug, Default)]
pub struct Plan {
    /// Each step starts when all operations of the previous one have ended. An operation that
    /// begins with a guard may be refused by it.
    pub steps: Vec<Vec<Operation>>,
    /// The repairs by finding: kind, place and sentence.
    pub said: Vec<(Kind, String, String)>,
}

impl Report {
    /// The next operations of a repair; `None` if it can do nothing more.
    #[must_use]
    pub fn plan(&self) -> Option<Plan> {
        if self.why_not().is_some() || self.findings.iter().all(|finding| finding.repair.is_none())
        {
            return None;
        }
        if self.counts.batches > 0 || self.journals.values().any(|journal| journal.damaged) {
            return Some(self.fold());
        }
        let may = |finding: &&Finding| finding.repair.is_some();
        let structural =
            |finding: &&Finding| finding.kind.is_structural() && finding.repair.is_some();
        // Names need the directories that every file system has.
        let first = |finding: &&Finding| {
            matches!(finding.kind, Kind::Missing | Kind::DirectoryWithoutObject)
                && finding.repair.is_some()
        };
        if self.config.rebuild && self.findings.iter().any(|finding| first(&finding)) {
            return Some(self.write(self.findings.iter().filter(first)));
        }
        let chosen: Vec<&Finding> = match self.findings.iter().any(|finding| structural(&finding)) {
            true => self.findings.iter().filter(structural).collect(),
            false => self.findings.iter().filter(may).collect(),
        };
        Some(self.write(chosen.into_iter()))
    }
    /// The operations that repair some findings.
    fn write<'a>(&self, chosen: impl Iterator<Item = &'a Finding>) -> Plan {
        let mut plan = Plan::default();
        let (report, lost_found, serials) = (self, self.lost_found, self.serials());
        let mut writer = Writer {
            report,
            lost_found,
            serials,
            ops: Vec::new(),
            last: Vec::new(),
        };
        for finding in chosen {
            finding.edits.iter().for_each(|edit| writer.edit(edit));
            if !finding.quiet
                && let Some(repair) = &finding.repair
            {
                plan.said
                    .push((finding.kind, finding.place.clone(), repair.clone()));
            }
        }
        let Writer {
            serials, ops, last, ..
        } = writer;
        // Numbers assigned here must be in the journal's head first.
        let head = |(rank, journal): (&Rank, &Journaled)| {
            let serial = serials.get(rank).copied().unwrap_or(journal.serial);
            self.write_head(
                *rank,
                &JournalHead {
                    serial,
                    ..ended(journal)
                },
            )
        };
        // An inode with two names for a moment is found again; one without a name would be lost.
        plan.steps = vec![self.journals.iter().map(head).collect(), ops, last];
        plan
    }

    /// New backpointers for first objects of files that were renamed since their first write, or
    /// that have none.
    #[must_use]
    pub fn places(&self) -> Vec<Operation> {
        let place = |(pool, ino, at): &(PoolId, Ino, Backpointer)| {
            let ops = vec![SubOp::AssertExists { exists: true }, set_parent(at)];
            Operation {
                pool: *pool,
                ..self.operation(&data_name(*ino, 0), ops)
            }
        };
        self.to_place.iter().map(place).collect()
    }
    /// Why nothing is repaired, if so.
    #[must_use]
    pub fn why_not(&self) -> Option<&'static str> {
        let has = |kind| self.findings.iter().any(|finding| finding.kind == kind);
        if has(Kind::Unreadable) {
            return Some("not all objects can be read: what is in those would be taken for lost");
        }
        if has(Kind::Unfinished) {
            return Some(
                "changes of names of several ranks are not finished: start its servers, which do that, and check again",
            );
        }
        if has(Kind::Fragment) {
            return Some(
                "there are fragments of divided directories, which this program does not know",
            );
        }
        None
    }

    fn serials(&self) -> BTreeMap<Rank, u64> {
        self.journals
            .iter()
            .map(|(rank, journal)| (*rank, journal.serial))
            .collect()
    }
    fn operation(&self, name: &str, ops: Vec<SubOp>) -> Operation {
        let object = object(&self.config.namespace, name);
        Operation {
            pool: self.config.pool,
            object,
            ops,
            ..Operation::default()
        }
    }
    fn write_head(&self, rank: Rank, head: &JournalHead) -> Operation {
        let bytes = Bytes::from(head.to_bytes());
        let ops = vec![SubOp::WriteFull {
            length: bytes.len() as u64,
        }];
        Operation {
            payload: vec![bytes],
            ..self.operation(&journal::head_name(rank), ops)
        }
    }

    /// Writes the journals' contents to directories.
    fn fold(&self) -> Plan {
        let (mut entries, mut places, mut last) = (Vec::new(), Vec::new(), Vec::new());
        for (dir, frag) in self.overlay.parts() {
            let name = fragment_name(dir, frag);
            let mut first = vec![SubOp::Create { exclusive: false }];
            if self.overlay.is_all(dir, frag) {
                first.push(SubOp::OmapClear {});
            }
            let (mut set, mut removed) = (Vec::new(), Vec::new());
            for change in self.overlay.changes(dir, frag) {
                match change {
                    Change::Set { name, entry, .. } => {
                        if let Entry::Inode { inode, .. } = &entry
                            && inode.is_directory()
                        {
                            let at = Backpointer {
                                dir,
                                name: name.clone(),
                            };
                            let ops = vec![SubOp::AssertExists { exists: true }, set_parent(&at)];
                            places
                                .push(self.operation(&fragment_name(inode.ino, Frag::WHOLE), ops));
                        }
                        set.push((key_of(&name), Bytes::from(entry.to_bytes())));
                    }
                    Change::Remove { name, .. } => removed.push(key_of(&name)),
                    Change::Head { head, .. } => first.push(set_head(&head)),
                    Change::Begin { .. } | Change::End { .. } => {}
                }
            }
            entries.push(self.operation(&name, first));
            for keys in removed.chunks(ENTRIES_MAX) {
                entries.push(self.operation(
                    &name,
                    vec![SubOp::OmapRemove {
                        keys: keys.to_vec(),
                    }],
                ));
            }
            for some in set.chunks(ENTRIES_MAX) {
                entries.push(self.operation(
                    &name,
                    vec![SubOp::OmapSet {
                        entries: some.to_vec(),
                    }],
                ));
            }
        }
        for dir in &self.ended {
            let ops = vec![SubOp::AssertExists { exists: true }, SubOp::Delete {}];
            last.push(self.operation(&fragment_name(*dir, Frag::WHOLE), ops));
        }
        let heads = self.journals.iter().map(|(rank, journal)| {
            let Journaled {
                head,
                next,
                serial,
                last,
                ..
            } = journal;
            // The next server deletes what precedes it.
            let first = last.map_or(head.first, |last| last + 1).max(head.first);
            self.write_head(
                *rank,
                &JournalHead {
                    first,
                    sequence: *next,
                    serial: *serial,
                    ..ended(journal)
                },
            )
        });
        let heads = heads.collect();
        let said = self
            .faults()
            .filter(|finding| matches!(finding.kind, Kind::JournalHead | Kind::JournalDamaged))
            .filter_map(|finding| {
                Some((finding.kind, finding.place.clone(), finding.repair.clone()?))
            })
            .collect();
        Plan {
            steps: vec![entries, places, last, heads],
            said,
        }
    }
}

/// A head without clients and their answers, and without undecided parts of other ranks'
/// transactions: those do not happen. The next server looks for data that the clients may have
/// written.
fn ended(journal: &Journaled) -> JournalHead {
    if !journal.damaged && journal.next == journal.head.sequence {
        return journal.head.clone();
    }
    let writers = journal.writers.all();
    let transactions = Vec::new();
    JournalHead {
        clients: Vec::new(),
        answers: Vec::new(),
        writers,
        transactions,
        ..journal.head.clone()
    }
}
fn set_head(head: &Head) -> SubOp {
    SubOp::SetAttr {
        name: HEAD_ATTR.into(),
        value: head.to_bytes().into(),
    }
}
fn set_parent(at: &Backpointer) -> SubOp {
    SubOp::SetAttr {
        name: PARENT_ATTR.into(),
        value: at.to_bytes().into(),
    }
}

struct Writer<'a> {
    report: &'a Report,
    lost_found: Option<Ino>,
    serials: BTreeMap<Rank, u64>,
    ops: Vec<Operation>,
    /// Removals.
    last: Vec<Operation>,
}

impl Writer<'_> {
    fn push(&mut self, name: &str, ops: Vec<SubOp>) {
        self.ops.push(self.report.operation(name, ops));
    }
    fn directory(&mut self, dir: Ino, ops: Vec<SubOp>) {
        self.push(&fragment_name(dir, Frag::WHOLE), ops);
    }
    fn set(&mut self, dir: Ino, name: &Name, entry: &Entry) {
        let entries = vec![(key_of(name), Bytes::from(entry.to_bytes()))];
        self.directory(
            dir,
            vec![
                SubOp::Create { exclusive: false },
                SubOp::OmapSet { entries },
            ],
        );
    }
    fn begin(&mut self, dir: Ino, at: Option<&Backpointer>) {
        let empty = Head {
            mtime: self.report.config.now,
            ..Head::default()
        };
        let mut ops = vec![SubOp::Create { exclusive: false }, set_head(&empty)];
        ops.extend(at.map(set_parent));
        self.directory(dir, ops);
    }
    /// The directory for what has lost its names.
    fn lost_found(&mut self) -> Ino {
        if let Some(known) = self.lost_found {
            return known;
        }
        let serial = self.serials.entry(Rank(0)).or_insert(Ino::SERIAL_MIN);
        let ino = Ino::given(Rank(0), *serial);
        *serial += 1;
        let now = self.report.config.now;
        let inode = Inode::new(ino, FileKind::Directory {}, 0o700, (0, 0), now);
        let at = Backpointer {
            dir: Ino::ROOT,
            name: Name::from("lost+found"),
        };
        let head = Some(Head {
            mtime: now,
            ..Head::default()
        });
        self.set(
            at.dir,
            &at.name,
            &Entry::Inode {
                inode,
                head: head.map(Box::new),
            },
        );
        self.begin(ino, Some(&at));
        self.lost_found = Some(ino);
        ino
    }

    fn edit(&mut self, edit: &Edit) {
        match edit {
            Edit::Set { dir, name, entry } => self.set(*dir, name, entry),
            Edit::Unset { dir, key } => {
                let ops = vec![
                    SubOp::AssertExists { exists: true },
                    SubOp::OmapRemove {
                        keys: vec![key.clone()],
                    },
                ];
                self.last.push(
                    self.report
                        .operation(&fragment_name(*dir, Frag::WHOLE), ops),
                );
            }
            Edit::Head { dir, head } => self.directory(*dir, vec![set_head(head)]),
            Edit::Parent { dir, at } => self.directory(*dir, vec![set_parent(at)]),
            Edit::Begin { dir, at } => self.begin(*dir, at.as_ref()),
            Edit::Adopt { entry } => {
                let mut dir = self.lost_found();
                let (ino, kind) = (entry.ino(), entry.kind());
                let name = Name::from(&*ino.to_string());
                if ino.rank() != dir.rank() {
                    // It belongs to its own rank, not to the one that has this directory.
                    let reference = Entry::Reference {
                        ino,
                        kind,
                        home: ino.rank().0,
                    };
                    self.set(dir, &name, &reference);
                    dir = Ino::links(ino.rank());
                }
                self.set(dir, &name, entry);
                if entry.is_directory() {
                    let at = Backpointer { dir, name };
                    self.directory(
                        entry.ino(),
                        vec![SubOp::Create { exclusive: false }, set_parent(&at)],
                    );
                }
            }
            Edit::Serial { rank, serial } => {
                let known = self.serials.entry(*rank).or_default();
                *known = (*known).max(*serial);
            }
            Edit::Remove { pool, ino, number } => self.data(*pool, *ino, *number, SubOp::Delete {}),
            Edit::Cut {
                pool,
                ino,
                number,
                size,
            } => {
                self.data(*pool, *ino, *number, SubOp::Truncate { size: *size });
            }
        }
    }
    fn data(&mut self, pool: PoolId, ino: Ino, number: u64, op: SubOp) {
        let ops = vec![SubOp::AssertExists { exists: true }, op];
        let operation = self.report.operation(&data_name(ino, number), ops);
        self.last.push(Operation { pool, ..operation });
    }
}
