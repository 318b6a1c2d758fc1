//! The schedule of faults: a function of the seed and the number of the turn only, so that a run
//! can be repeated and a part of it can be selected.
//!
//! ```text
//!  turn 0 ─ pause ─ faults (1 to 3 at once) ─ last so long ─ undone │ turn 1 ─ … │ turn 3: one that needs calm before it │ …
//! ```

use super::net::Cut;
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

/// Monitors of the cluster.
pub const MONS: u32 = 3;
/// OSDs of the cluster.
pub const OSDS: u32 = 4;
/// Ranks of its file system.
pub const RANKS: u32 = 2;
/// Servers of its file system; those without a rank are standbys.
pub const SERVERS: u32 = 3;
/// The mount that gets faults; the mounts before it only see the effects on others.
pub const VICTIM: Who = Who::Mount(2);

/// A daemon, or the process of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// A monitor.
    Mon(u32),
    /// An OSD.
    Osd(u32),
    /// A server of the file system.
    Mds(u32),
    /// A mount of the file system.
    Mount(u32),
}
impl Who {
    /// `mon`, `osd`, `mds` or `mount`, and its number.
    pub fn parts(self) -> (&'static str, u32) {
        match self {
            Self::Mon(id) => ("mon", id),
            Self::Osd(id) => ("osd", id),
            Self::Mds(id) => ("mds", id),
            Self::Mount(id) => ("mount", id),
        }
    }
    /// Whether it exists only where a file system can be mounted.
    pub fn is_of_files(self) -> bool {
        matches!(self, Self::Mds(_) | Self::Mount(_))
    }
}
impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, id) = self.parts();
        write!(f, "{kind}.{id}")
    }
}

/// The region of a store in which bits are flipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Region {
    /// One copy of the superblock.
    Superblock,
    /// The write-ahead log.
    Log,
    /// Objects' data and the index.
    Units,
}

/// When a temporary pool is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolEnd {
    /// When everything is healthy, and what was acknowledged has been read back.
    Read,
    /// While it is written to.
    UnderLoad,
}

/// One fault, or one action of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// `kill -9`; started again at the end.
    Kill(Vec<Who>),
    /// SIGSTOP; SIGCONT at the end.
    Stop(Who),
    /// Terminated, and started again at once; one after the other, with this number of milliseconds
    /// between.
    Roll(Vec<Who>, u64),
    /// The network is cut.
    Cut(Cut),
    /// A device fault of `node/src/faults.rs`: the call, and the effect.
    Disk(Who, &'static str, String),
    /// The host's file system under an OSD is full.
    Full(u32),
    /// Bits of a stopped OSD's store are flipped; it is replaced at the end.
    Rot(u32, Region, u64),
    /// An OSD is marked out; it is marked in at the end.
    Out(u32),
    /// Marked down although it is alive.
    Down(u32),
    /// A monitor is removed, and added under its number at the end, with an empty store.
    Replace(u32),
    /// A snapshot of the pool is taken; removed at the end.
    Snapshot(&'static str),
    /// The number of PGs of the pool is raised.
    Split(&'static str),
    /// A pool is created, and removed at the end: when it has been read back, or while clients
    /// write to it.
    Pool(PoolEnd),
    /// All daemons are terminated and started again.
    RestartAll,
}

impl Fault {
    /// Its name for `--only`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Kill(who) | Self::Roll(who, _) if who.iter().all(|who| who.is_of_files()) => {
                "files"
            }
            Self::Stop(who) if who.is_of_files() => "files",
            Self::Cut(cut) if cut.named().iter().any(|who| who.is_of_files()) => "files",
            Self::Kill(_) => "kill",
            Self::Stop(_) => "stop",
            Self::Roll(..) | Self::RestartAll => "restart",
            Self::Cut(_) => "net",
            Self::Disk(..) => "disk",
            Self::Full(_) => "full",
            Self::Rot(..) => "rot",
            Self::Out(_) | Self::Down(_) | Self::Replace(_) => "admin",
            Self::Snapshot(_) | Self::Split(_) | Self::Pool(_) => "pool",
        }
    }
    /// Whether its target is a mount.
    pub fn is_of_a_mount(&self) -> bool {
        match self {
            Self::Kill(who) => who.contains(&VICTIM),
            Self::Stop(who) => *who == VICTIM,
            Self::Cut(cut) => cut.named().contains(&VICTIM),
            _ => false,
        }
    }
    /// Servers that are unavailable to everyone during the fault.
    fn servers(&self) -> Vec<Who> {
        let named = match self {
            Self::Kill(who) => who.clone(),
            Self::Stop(who) | Self::Cut(Cut::Off(who)) => vec![*who],
            _ => Vec::new(),
        };
        named
            .into_iter()
            .filter(|who| matches!(who, Who::Mds(_)))
            .collect()
    }
    /// Whether a server is cut off from some only: it continues, and operations that need those
    /// wait.
    fn is_half_cut(&self) -> bool {
        matches!(self, Self::Cut(Cut::OneWay(a, b) | Cut::Pair(a, b)) if [a, b].iter().any(|who| matches!(who, Who::Mds(_))))
    }
}
/// All values of [`Fault::kind`].
pub const KINDS: [&str; 10] = [
    "kill", "stop", "restart", "net", "disk", "full", "rot", "admin", "pool", "files",
];

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = |who: &[Who]| who.iter().map(Who::to_string).collect::<Vec<_>>().join(" ");
        match self {
            Self::Kill(who) => write!(f, "kill -9 {}", all(who)),
            Self::Stop(who) => write!(f, "stop {who}"),
            Self::Roll(who, gap) => write!(f, "restart {} with {gap} ms between", all(who)),
            Self::Cut(cut) => cut.fmt(f),
            Self::Disk(who, call, what) => write!(f, "disk of {who}: {call} {what}"),
            Self::Full(osd) => write!(f, "full host of osd.{osd}"),
            Self::Rot(osd, region, seed) => {
                write!(f, "bits of osd.{osd} flipped: {region:?} {seed}")
            }
            Self::Out(osd) => write!(f, "osd.{osd} out"),
            Self::Down(osd) => write!(f, "osd.{osd} marked down"),
            Self::Replace(mon) => write!(f, "mon.{mon} removed and added"),
            Self::Snapshot(pool) => write!(f, "snapshot of {pool}"),
            Self::Split(pool) => write!(f, "split {pool}"),
            Self::Pool(PoolEnd::Read) => write!(f, "a pool comes, is read and goes"),
            Self::Pool(PoolEnd::UnderLoad) => write!(f, "a pool comes, and goes under load"),
            Self::RestartAll => write!(f, "everything restarts"),
        }
    }
}

/// A turn: simultaneous faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The number of the turn.
    pub number: u64,
    /// Pause before it.
    pub pause_ms: u64,
    /// The faults.
    pub faults: Vec<Fault>,
    /// Duration.
    pub lasts_ms: u64,
    /// Whether everything must be healthy first.
    pub calm: bool,
}

/// Maximum time that others wait for the cache and the unwritten data of a killed mount
/// (docs/files.md).
const AWAY: Duration = Duration::from_secs(16);

impl Turn {
    /// Additional time that a call on a mount may wait during this turn, beyond the takeover of a
    /// server, without an explanation in health, which does not know mounts and their servers.
    pub fn holds_files_up(&self) -> Duration {
        let gone: BTreeSet<Who> = self.faults.iter().flat_map(Fault::servers).collect();
        let no_server =
            gone.len() == SERVERS as usize || self.faults.iter().any(Fault::is_half_cut);
        let no_server = Duration::from_millis(if no_server { self.lasts_ms } else { 0 });
        let mount = if self.faults.iter().any(Fault::is_of_a_mount) {
            AWAY
        } else {
            Duration::ZERO
        };
        no_server + mount
    }
}

impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: Vec<String> = self.faults.iter().map(Fault::to_string).collect();
        let calm = if self.calm { " when all is well" } else { "" };
        write!(
            f,
            "turn {}{calm}: {} for {:.1} s",
            self.number,
            faults.join(" + "),
            self.lasts_ms as f64 / 1e3
        )
    }
}

/// Numbers drawn from a seed (splitmix64).
pub struct Dice(pub u64);
impl Dice {
    /// A number below a limit.
    pub fn draw(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % below
    }
    fn osd(&mut self) -> u32 {
        u32::try_from(self.draw(OSDS.into())).expect("small")
    }
    fn mon(&mut self) -> u32 {
        u32::try_from(self.draw(MONS.into())).expect("small")
    }
    fn any(&mut self) -> Who {
        if self.draw(4) == 0 {
            Who::Mon(self.mon())
        } else {
            Who::Osd(self.osd())
        }
    }
    fn any_order(&mut self, mut all: Vec<Who>) -> Vec<Who> {
        for at in (1..all.len()).rev() {
            let other = usize::try_from(self.draw(at as u64 + 1)).expect("small");
            all.swap(at, other);
        }
        all
    }
}

fn osds() -> impl Iterator<Item = Who> {
    (0..OSDS).map(Who::Osd)
}
fn mons() -> impl Iterator<Item = Who> {
    (0..MONS).map(Who::Mon)
}
fn servers() -> impl Iterator<Item = Who> {
    (0..SERVERS).map(Who::Mds)
}

/// A fault of the file system. The plan does not know which server has a rank: a third of the
/// servers drawn are standbys.
fn of_files(dice: &mut Dice) -> Fault {
    let server = Who::Mds(u32::try_from(dice.draw(SERVERS.into())).expect("small"));
    match dice.draw(16) {
        0..=2 => Fault::Kill(vec![server]),
        3 => Fault::Kill(servers().collect()),
        4 | 5 => Fault::Stop(server),
        6 => Fault::Cut(Cut::Off(server)),
        7 => {
            let others = dice.any_order(
                osds()
                    .chain(mons())
                    .chain(servers().filter(|who| *who != server))
                    .collect(),
            );
            Fault::Cut(Cut::Pair(server, others[0]))
        }
        8 => {
            // One that has just taken over a rank dies too.
            let mut all = dice.any_order(servers().chain(servers()).collect());
            all.truncate(2 + usize::try_from(dice.draw(4)).expect("small"));
            Fault::Roll(all, dice.draw(4_000))
        }
        9 => Fault::Kill(vec![VICTIM]),
        10 | 11 => Fault::Stop(VICTIM),
        12 => Fault::Cut(Cut::Off(VICTIM)),
        // It receives no lease messages, and may continue to write; and the reverse.
        13 => Fault::Cut(Cut::Pair(VICTIM, server)),
        14 => {
            let osd = Who::Osd(dice.osd());
            Fault::Cut(if dice.draw(2) == 0 {
                Cut::Pair(VICTIM, osd)
            } else {
                Cut::OneWay(osd, VICTIM)
            })
        }
        // Synchronized data is present, even if mount and server die at once.
        _ => Fault::Kill(vec![server, VICTIM]),
    }
}

/// A fault that may be combined with others.
fn light(dice: &mut Dice) -> Fault {
    match dice.draw(28) {
        0..=2 => Fault::Kill(vec![dice.any()]),
        3 => {
            let count = 2 + usize::try_from(dice.draw(3)).expect("small");
            let mut all = dice.any_order(osds().chain(mons()).collect());
            all.truncate(count);
            Fault::Kill(all)
        }
        4 => {
            let others: Vec<Who> = match dice.draw(3) {
                0 => Vec::new(),
                1 => mons().collect(),
                _ => mons().chain(servers()).collect(),
            };
            Fault::Kill(osds().chain(others).collect())
        }
        5 | 6 => Fault::Stop(dice.any()),
        7 | 8 => {
            let rolled = dice.any_order(osds().collect());
            Fault::Roll(rolled, dice.draw(1_500))
        }
        9..=12 => {
            let (from, to) = (dice.any(), dice.any());
            let cut = match dice.draw(4) {
                _ if from == to => Cut::Off(from),
                0 => Cut::Off(from),
                1 => Cut::OneWay(from, to),
                2 => Cut::Pair(from, to),
                _ => {
                    let mut all = dice.any_order(osds().chain(mons()).collect());
                    all.truncate(1 + usize::try_from(dice.draw(3)).expect("small"));
                    Cut::Apart(all)
                }
            };
            Fault::Cut(cut)
        }
        13..=15 => {
            let call = ["write", "flush", "read"][usize::try_from(dice.draw(3)).expect("three")];
            let what = match dice.draw(4) {
                0 => "error 5".to_owned(),
                1 => "hang 60000".to_owned(),
                2 => format!("hang {}", 20 + dice.draw(200)),
                _ => format!("hang {}", 500 + dice.draw(4_000)),
            };
            Fault::Disk(Who::Osd(dice.osd()), call, what)
        }
        16 => Fault::Out(dice.osd()),
        17 => Fault::Down(dice.osd()),
        18 => Fault::Snapshot(["data", "small"][usize::try_from(dice.draw(2)).expect("two")]),
        19 => Fault::Split(["data", "small"][usize::try_from(dice.draw(2)).expect("two")]),
        20 => Fault::Pool(PoolEnd::Read),
        21 => Fault::Pool(PoolEnd::UnderLoad),
        _ => of_files(dice),
    }
}

/// A fault that occurs alone, starting from a healthy cluster.
fn heavy(dice: &mut Dice, which: u64) -> Fault {
    match which % 4 {
        0 => {
            let region = [Region::Superblock, Region::Log, Region::Units]
                [usize::try_from(dice.draw(3)).expect("three")];
            Fault::Rot(dice.osd(), region, dice.draw(1 << 32))
        }
        1 => Fault::Replace(dice.mon()),
        // Those with a separate disk.
        2 => Fault::Full(2 + u32::try_from(dice.draw(2)).expect("two")),
        _ => Fault::RestartAll,
    }
}

/// The turn of a seed; only faults of these kinds, if any are given.
pub fn turn(seed: u64, number: u64, only: &[String]) -> Turn {
    let mut dice = Dice(seed.wrapping_mul(0xd6e8_feb8_6659_fd93) ^ (number << 20));
    let wanted = |fault: &Fault| only.is_empty() || only.iter().any(|kind| kind == fault.kind());
    let calm = number % 4 == 3;
    let (pause_ms, lasts_ms) = (dice.draw(4_000), 500 + dice.draw(9_000));
    let mut faults: Vec<Fault> = Vec::new();
    if calm {
        faults.push(heavy(&mut dice, seed.wrapping_add(number / 4)));
    } else {
        let count = [1, 1, 1, 2, 2, 3][usize::try_from(dice.draw(6)).expect("six")];
        faults.extend((0..count).map(|_| light(&mut dice)));
    }
    let count = if only.is_empty() { 1 } else { faults.len() };
    faults.retain(wanted);
    // With few kinds most turns would be empty: more faults are drawn until enough match.
    for tried in 0..200 {
        if faults.len() < count {
            // Some kinds are never heavy.
            let fault = if calm && tried < 50 {
                let which = dice.draw(4);
                heavy(&mut dice, which)
            } else {
                light(&mut dice)
            };
            faults.extend(Some(fault).filter(wanted));
        }
    }
    // A mount is suspended for less than its lease, for longer, and for long enough to lose its
    // session.
    let longer = faults.iter().any(|fault| fault.is_of_a_mount()) && dice.draw(2) == 0;
    let lasts_ms = if longer {
        lasts_ms + LONGER_MS
    } else {
        lasts_ms
    };
    Turn {
        number,
        pause_ms,
        faults,
        lasts_ms,
        calm,
    }
}

/// With this a mount is away for longer than the 10 s after which others need not wait for its
/// unwritten data.
const LONGER_MS: u64 = 11_000;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_seed_gives_the_same_turns_and_all_kinds_occur() {
        let mut kinds = BTreeSet::new();
        for number in 0..200 {
            assert_eq!(turn(7, number, &[]), turn(7, number, &[]));
            kinds.extend(turn(7, number, &[]).faults.iter().map(Fault::kind));
        }
        assert_eq!(kinds, KINDS.into_iter().collect());
        assert_ne!(turn(7, 0, &[]), turn(8, 0, &[]));
    }

    #[test]
    fn each_server_and_the_mount_are_killed_and_stopped_and_only_that_mount() {
        let only = ["files".to_owned()];
        let turns: Vec<Turn> = (0..400)
            .filter(|number| number % 4 != 3)
            .map(|number| turn(3, number, &only))
            .collect();
        let faults: Vec<&Fault> = turns.iter().flat_map(|turn| &turn.faults).collect();
        for who in servers().chain([VICTIM]) {
            assert!(
                faults.contains(&&Fault::Kill(vec![who])) && faults.contains(&&Fault::Stop(who)),
                "{who}"
            );
        }
        assert!(faults.contains(&&Fault::Kill(servers().collect())));
        assert!(faults.contains(&&Fault::Cut(Cut::Off(VICTIM))));
        assert!(
            !faults
                .iter()
                .any(|fault| matches!(fault, Fault::Stop(Who::Mount(id)) if *id != 2))
        );
        let longest = turns.iter().filter(|turn| turn.lasts_ms > 10_000);
        assert!(
            longest.clone().count() > 0
                && longest
                    .clone()
                    .all(|turn| turn.faults.iter().any(Fault::is_of_a_mount))
        );
    }

    #[test]
    fn calls_may_wait_without_a_word_where_no_server_is_left_or_a_mount_is_away() {
        let stands = |faults: &[Fault]| {
            let turn = Turn {
                number: 0,
                pause_ms: 0,
                faults: faults.to_vec(),
                lasts_ms: 7,
                calm: false,
            };
            turn.holds_files_up()
        };
        let [one, two, three] = [0, 1, 2].map(Who::Mds);
        let all = Duration::from_millis(7);
        assert_eq!(
            stands(&[Fault::Kill(vec![one, two]), Fault::Stop(three)]),
            all
        );
        assert_eq!(
            stands(&[
                Fault::Kill(vec![one, VICTIM]),
                Fault::Stop(two),
                Fault::Cut(Cut::Off(two))
            ]),
            AWAY
        );
        assert_eq!(stands(&[Fault::Cut(Cut::Pair(one, Who::Osd(0)))]), all);
        assert_eq!(stands(&[Fault::Cut(Cut::Pair(VICTIM, Who::Osd(0)))]), AWAY);
        assert_eq!(
            stands(&[Fault::Kill(vec![Who::Osd(0), Who::Mon(1)])]),
            Duration::ZERO
        );
    }

    #[test]
    fn only_what_is_asked_for_occurs() {
        let only = ["net".to_owned()];
        let faults: Vec<Fault> = (0..40)
            .flat_map(|number| turn(1, number, &only).faults)
            .collect();
        assert!(faults.len() >= 30 && faults.iter().all(|fault| fault.kind() == "net"));
    }
}
