//! This machine's kernel with an in-memory file system: the server's own evaluation of requests,
//! without a cluster. Requires permission to mount; without it, the test says so and passes.

use crate::client::Files;
use crate::error::MountError;
use crate::mount::{Mounted, mount_files};
use crate::options::MountOptions;
use bytes::Bytes;
use nacre_fs::{Ask, Given, Outcome};
use nacre_mds::evaluate::{Setting, Verdict, evaluate};
use nacre_mds::locks::{Got, Granted, Locks};
use nacre_mds::tree::Tree;
use nacre_types::{ClientId, Frag, Ino, Name, PoolId, Rank};
use nacre_wire::fs::{Entry, Head, Inode, Layout, Stamp};
use nacre_wire::msg::fs::{FsAnswer, FsCall, FsChanges};
use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{
    FileExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _, symlink,
};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

const RANK: Rank = Rank(0);
/// Free space in bytes.
const ROOM: u64 = 3 << 30;
/// Most bytes copied by one call.
const COPIED: u64 = 9 << 20;
const LAYOUT: Layout = Layout {
    pool: PoolId(2),
    unit: 4 << 20,
    count: 1,
    object: 4 << 20,
};

struct State {
    tree: Tree,
    serial: u64,
    now: i64,
    opens: BTreeMap<Ino, u32>,
    data: BTreeMap<Ino, Vec<u8>>,
    locks: Locks,
    /// What was synchronized, in order; `None`: everything.
    synced: Vec<Option<Ino>>,
    waits: BTreeMap<Granted, Answer>,
}

type Answer = Box<dyn FnOnce(Outcome) + Send>;

impl State {
    fn new() -> Self {
        let mut tree = Tree::default();
        let top = Head {
            entries: 1,
            directories: 1,
            directories_below: 1,
            ..Head::default()
        };
        let entry = Entry::Inode {
            inode: Inode::root(Stamp(1)),
            head: Some(Box::default()),
        };
        tree.load(
            Ino::TOP,
            Frag::WHOLE,
            top,
            vec![(Name::from("root"), entry)],
        );
        for dir in [Ino::ROOT, Ino::links(RANK), Ino::strays(RANK)] {
            tree.load(dir, Frag::WHOLE, Head::default(), Vec::new());
        }
        Self {
            tree,
            serial: Ino::SERIAL_MIN,
            now: 100,
            opens: BTreeMap::new(),
            data: BTreeMap::new(),
            locks: Locks::default(),
            synced: Vec::new(),
            waits: BTreeMap::new(),
        }
    }

    fn names(&mut self, call: &FsCall) -> Outcome {
        self.now += 1;
        let is_open = |ino| self.opens.get(&ino).is_some_and(|opens| *opens > 0);
        let (now, ino) = (Stamp(self.now), Ino::given(RANK, self.serial));
        let setting = Setting {
            rank: RANK,
            now,
            ino,
            layout: LAYOUT,
            is_settling: &|_| false,
            is_open: &is_open,
            again: false,
            facts: &[],
            rooms: &nacre_mds::rooms::Rooms::default(),
            room: (0, 0),
        };
        let Verdict::Done(outcome) = evaluate(&self.tree, call, &setting) else {
            return Err(116);
        };
        self.serial += u64::from(outcome.took_ino);
        for change in outcome.changes {
            self.tree.apply(change);
        }
        if let Some(opened) = outcome.opened {
            let opens = self.opens.entry(opened.ino).or_default();
            *opens = if opened.closed {
                *opens - 1
            } else {
                *opens + 1
            };
        }
        match outcome.answer {
            FsAnswer::Failed { errno } => Err(errno),
            answer => Ok(Given::Answer(answer)),
        }
    }

    fn read(&self, ino: Ino, offset: u64, length: u32) -> Vec<Bytes> {
        let size = self.tree.inode(ino).map_or(0, |inode| inode.size);
        let data = self.data.get(&ino).map_or(&[][..], Vec::as_slice);
        let byte = |at: u64| {
            data.get(usize::try_from(at).expect("small"))
                .copied()
                .unwrap_or(0)
        };
        let all: Vec<u8> = (offset..size.min(offset + u64::from(length)))
            .map(byte)
            .collect();
        // In pieces, like objects return it.
        all.chunks(1000).map(Bytes::copy_from_slice).collect()
    }

    /// Zeros count as holes.
    fn seek(&self, ino: Ino, offset: u64, hole: bool) -> Outcome {
        let size = self.tree.inode(ino).map_or(0, |inode| inode.size);
        let data = self.data.get(&ino).map_or(&[][..], Vec::as_slice);
        let is_data = |at: u64| {
            data.get(usize::try_from(at).expect("small"))
                .is_some_and(|byte| *byte != 0)
        };
        match (offset..size).find(|at| is_data(*at) != hole) {
            Some(at) => Ok(Given::Offset(at)),
            None if hole && offset < size => Ok(Given::Offset(size)),
            None => Err(6),
        }
    }

    fn write(&mut self, ino: Ino, offset: u64, bytes: &[u8]) -> Outcome {
        let end = offset + bytes.len() as u64;
        let data = self.data.entry(ino).or_default();
        let begin = usize::try_from(offset).expect("small");
        data.resize(data.len().max(begin + bytes.len()), 0);
        data[begin..begin + bytes.len()].copy_from_slice(bytes);
        if self.tree.inode(ino).is_some_and(|inode| inode.size < end) {
            let changes = FsChanges {
                size: Some(end),
                ..FsChanges::default()
            };
            return self
                .names(&FsCall::Set { ino, changes })
                .map(|_| Given::Done);
        }
        Ok(Given::Done)
    }
}

/// A client: the shared state, and the client's id.
#[derive(Clone)]
struct Memory(Arc<Mutex<State>>, ClientId);

impl State {
    /// Executes a lock request and returns what is answered at once; `None`: it waits.
    fn lock(&mut self, client: ClientId, ask: &Ask, answer: Answer) {
        let mut granted = Vec::new();
        let all = (0, u64::MAX);
        let result = match ask {
            Ask::Lock { lock, wait } => match self.locks.lock(client, lock, *wait, &mut granted) {
                Ok(Got::Waits) => {
                    return drop(self.waits.insert((client, wait.expect("it waits")), answer));
                }
                other => other.map(|_| ()),
            },
            Ask::Unlock { lock } => {
                let range = (lock.start, lock.end);
                self.locks.unlock(
                    client,
                    lock.ino,
                    (lock.owner, lock.flock),
                    range,
                    &mut granted,
                )
            }
            Ask::UnlockAll { ino, owner } => {
                let unlock = |flock| {
                    self.locks
                        .unlock(client, *ino, (*owner, flock), all, &mut granted)
                };
                [false, true].map(unlock).into_iter().collect()
            }
            Ask::CancelLock { wait } => {
                let inos: Vec<Ino> = self.data.keys().copied().collect();
                if inos
                    .into_iter()
                    .any(|ino| self.locks.cancel(client, ino, *wait))
                {
                    self.waits.remove(&(client, *wait)).expect("it waits")(Err(4));
                }
                Ok(())
            }
            _ => unreachable!("not about locks"),
        };
        answer(result.map(|()| Given::Done));
        for wait in granted {
            self.waits.remove(&wait).expect("it waits")(Ok(Given::Done));
        }
    }
}

impl Files for Memory {
    fn ask(&self, ask: Ask, answer: impl FnOnce(Outcome) + Send + 'static) {
        let (state, client) = (Arc::clone(&self.0), self.1);
        // From another thread, like a client's answer.
        std::thread::spawn(move || {
            let outcome = {
                let mut state = state.lock().expect("no panic");
                match ask {
                    Ask::Lock { .. }
                    | Ask::Unlock { .. }
                    | Ask::UnlockAll { .. }
                    | Ask::CancelLock { .. } => {
                        return state.lock(client, &ask, Box::new(answer));
                    }
                    Ask::Names(FsCall::TestLock { lock }) => {
                        let lock = state.locks.test(client, &lock);
                        Ok(Given::Answer(FsAnswer::Conflict { lock }))
                    }
                    Ask::Names(call) => state.names(&call),
                    Ask::Read {
                        ino,
                        offset,
                        length,
                    } => Ok(Given::Data(state.read(ino, offset, length))),
                    Ask::Write { ino, offset, data } => state.write(ino, offset, &data),
                    Ask::Append { ino, data } => {
                        let end = state.tree.inode(ino).map_or(0, |inode| inode.size);
                        state.write(ino, end, &data)
                    }
                    Ask::Zero {
                        ino,
                        offset,
                        length,
                    } => {
                        let size = state.tree.inode(ino).map_or(0, |inode| inode.size);
                        let end = size.min(offset + length);
                        let length = usize::try_from(end.saturating_sub(offset)).expect("small");
                        state.write(ino, offset.min(end), &vec![0; length])
                    }
                    Ask::Extend { ino, size } => {
                        let wrote = FsCall::Wrote {
                            ino,
                            size,
                            mtime: Stamp(1),
                        };
                        state.names(&wrote).map(|_| Given::Done)
                    }
                    // In parts, like a client.
                    Ask::Copy {
                        from,
                        offset,
                        to,
                        at,
                        length,
                    } => {
                        let length = u32::try_from(length.min(COPIED)).expect("small");
                        let data = state.read(from, offset, length).concat();
                        let copied = Given::Copied(data.len() as u64);
                        if data.is_empty() {
                            Ok(copied)
                        } else {
                            state.write(to, at, &data).map(|_| copied)
                        }
                    }
                    Ask::Seek { ino, offset, hole } => state.seek(ino, offset, hole),
                    Ask::Sync { ino } => {
                        state.synced.push(ino);
                        Ok(Given::Done)
                    }
                    Ask::Failed { .. }
                    | Ask::Lazy { .. }
                    | Ask::Propagate { .. }
                    | Ask::Synchronize { .. } => Ok(Given::Done),
                    Ask::Room => Ok(Given::Room(Some(ROOM))),
                }
            };
            answer(outcome);
        });
    }
}

/// A mount on a directory of its own, unless this machine does not allow it.
fn mounted(name: &str) -> Option<(Mounted<Memory>, Memory, PathBuf)> {
    mounted_as(
        name,
        Memory(Arc::new(Mutex::new(State::new())), ClientId(1)),
    )
}

fn mounted_as(name: &str, memory: Memory) -> Option<(Mounted<Memory>, Memory, PathBuf)> {
    mounted_with(name, memory, &MountOptions::of("files"))
}

fn mounted_with(
    name: &str,
    memory: Memory,
    options: &MountOptions,
) -> Option<(Mounted<Memory>, Memory, PathBuf)> {
    let dir = std::env::temp_dir().join(format!("nacre-gateway-{name}-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("a folder");
    match mount_files(memory.clone(), &dir, options) {
        Ok(mounted) => Some((mounted, memory, dir)),
        Err(
            why @ (MountError::NoDevice
            | MountError::DeviceDenied
            | MountError::NotPermitted
            | MountError::Refused { .. }),
        ) => {
            println!("no mount here, so nothing was tested: {why}");
            fs::remove_dir(dir).expect("ours");
            None
        }
        Err(why) => panic!("{why}"),
    }
}

fn end(mounted: Mounted<Memory>, dir: &Path) {
    mounted.unmount().expect("ours");
    assert!(mounted.wait_for(Duration::from_secs(10)), "nothing is open");
    mounted.finish().expect("all is safe");
    fs::remove_dir(dir).expect("it is empty, and not mounted");
}

#[test]
fn files_are_made_read_renamed_and_removed() {
    let Some((mounted, _, dir)) = mounted("files") else {
        return;
    };
    let path = |name: &str| dir.join(name);
    fs::create_dir(path("d")).expect("made");
    let bytes: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
    fs::write(path("d/a"), &bytes).expect("written");
    assert!(fs::read(path("d/a")).expect("read") == bytes);
    let meta = fs::metadata(path("d/a")).expect("there");
    assert_eq!(
        (meta.size(), meta.blocks(), meta.nlink()),
        (300_000, 586, 1)
    );
    let parent = fs::metadata(path("d")).expect("there");
    assert_eq!(
        (parent.nlink(), fs::metadata(&dir).expect("there").nlink()),
        (2, 3)
    );
    assert!(parent.size() == 1 && parent.is_dir());

    fs::hard_link(path("d/a"), path("b")).expect("linked");
    assert_eq!(fs::metadata(path("b")).expect("there").nlink(), 2);
    fs::rename(path("b"), path("d/c")).expect("renamed");
    assert_eq!(
        fs::metadata(path("b")).expect_err("gone").kind(),
        ErrorKind::NotFound
    );
    symlink("d/c", path("s")).expect("made");
    assert_eq!(fs::read_link(path("s")).expect("a link"), Path::new("d/c"));
    assert_eq!(
        fs::metadata(path("s")).expect("it leads there").size(),
        300_000
    );

    // Opened without a name.
    let mut open = fs::File::options()
        .read(true)
        .write(true)
        .open(path("d/c"))
        .expect("opened");
    fs::remove_file(path("d/a")).expect("removed");
    fs::remove_file(path("d/c")).expect("removed");
    open.seek(SeekFrom::Start(299_999)).expect("a place");
    open.write_all(b"xyz").expect("written");
    open.sync_all().expect("safe");
    let mut tail = [0; 3];
    open.read_exact_at(&mut tail, 299_999).expect("read");
    assert_eq!(&tail, b"xyz");
    drop(open);
    assert_eq!(
        fs::remove_dir(&dir).expect_err("it is mounted").kind(),
        ErrorKind::ResourceBusy
    );
    fs::remove_dir(path("d")).expect("empty");
    fs::remove_file(path("s")).expect("removed");
    assert_eq!(fs::read_dir(&dir).expect("readable").count(), 0);
    end(mounted, &dir);
}

#[test]
fn attributes_go_through_the_kernel_and_back() {
    let Some((mounted, memory, dir)) = mounted("attributes") else {
        return;
    };
    let path = dir.join("f");
    let file = fs::File::create_new(&path).expect("made");
    assert_eq!(
        fs::File::create_new(&path).expect_err("it is there").kind(),
        ErrorKind::AlreadyExists
    );
    for nanos in [
        0,
        1,
        -1,
        1_500_000_000,
        -1_200_000_000,
        -3_000_000_000,
        i64::MAX,
        i64::MIN + 1_000_000_000,
    ] {
        let apart = Duration::from_nanos(nanos.unsigned_abs());
        let time = if nanos < 0 {
            UNIX_EPOCH - apart
        } else {
            UNIX_EPOCH + apart
        };
        file.set_times(fs::FileTimes::new().set_modified(time))
            .expect("set");
        let meta = fs::metadata(&path).expect("there");
        assert_eq!(
            (meta.mtime(), meta.mtime_nsec()),
            (
                nanos.div_euclid(1_000_000_000),
                nanos.rem_euclid(1_000_000_000)
            )
        );
        let ino = Ino(meta.ino());
        let kept = memory
            .0
            .lock()
            .expect("no panic")
            .tree
            .inode(ino)
            .map(|inode| inode.mtime);
        assert_eq!(kept, Some(Stamp(nanos)));
    }
    file.set_permissions(fs::Permissions::from_mode(0o640))
        .expect("set");
    assert_eq!(fs::metadata(&path).expect("there").mode(), 0o100_640);
    file.set_len(5000).expect("longer");
    assert_eq!(fs::read(&path).expect("read"), [0; 5000]);

    use rustix::fs::{
        CWD, FileType, Mode, RenameFlags, XattrFlags, makedev, mknodat, renameat_with,
    };
    let device = makedev(4095, 0xf_ffff);
    match mknodat(
        CWD,
        dir.join("dev"),
        FileType::CharacterDevice,
        Mode::RUSR,
        device,
    ) {
        Ok(()) => {
            let meta = fs::metadata(dir.join("dev")).expect("there");
            assert!(meta.rdev() == device && meta.file_type().is_char_device());
            let why = renameat_with(CWD, dir.join("dev"), CWD, &path, RenameFlags::NOREPLACE)
                .expect_err("it is there");
            assert_eq!(why, rustix::io::Errno::EXIST);
            renameat_with(CWD, dir.join("dev"), CWD, &path, RenameFlags::EXCHANGE)
                .expect("exchanged");
            assert_eq!(fs::metadata(dir.join("dev")).expect("there").size(), 5000);
        }
        Err(why) => println!("no device was made: {why}"),
    }

    let root = &dir;
    rustix::fs::setxattr(root, "user.a", b"one", XattrFlags::CREATE).expect("set");
    let why =
        rustix::fs::setxattr(root, "user.a", b"two", XattrFlags::CREATE).expect_err("it is there");
    assert_eq!(why, rustix::io::Errno::EXIST);
    let mut buffer = [0; 64];
    assert_eq!(rustix::fs::getxattr(root, "user.a", &mut buffer), Ok(3));
    assert_eq!(
        rustix::fs::getxattr(root, "user.b", &mut buffer),
        Err(rustix::io::Errno::NODATA)
    );
    assert_eq!(rustix::fs::listxattr(root, &mut buffer), Ok(7));
    rustix::fs::removexattr(root, "user.a").expect("removed");
    assert_eq!(rustix::fs::listxattr(root, &mut buffer), Ok(0));
    let room = rustix::fs::statvfs(root).expect("told");
    assert_eq!((room.f_namemax, room.f_bavail), (255, ROOM / 4096));

    drop(file);
    for entry in fs::read_dir(&dir).expect("readable") {
        fs::remove_file(entry.expect("readable").path()).expect("removed");
    }
    end(mounted, &dir);
}

#[test]
fn zeros_holes_and_copies_go_through_the_kernel() {
    use rustix::fs::{FallocateFlags, copy_file_range, fallocate, seek};
    let Some((mounted, _, dir)) = mounted("zeros") else {
        return;
    };
    let path = dir.join("f");
    fs::write(&path, [7; 10_000]).expect("written");
    let file = fs::File::options()
        .read(true)
        .write(true)
        .open(&path)
        .expect("opened");
    let size = || file.metadata().expect("there").size();
    let zeros = |from: usize, to: usize| {
        let data = fs::read(&path).expect("read");
        data.iter()
            .enumerate()
            .all(|(at, byte)| (*byte == 0) == ((from..to).contains(&at) || at >= 10_000))
    };
    let (keep, punch, zero) = (
        FallocateFlags::KEEP_SIZE,
        FallocateFlags::PUNCH_HOLE,
        FallocateFlags::ZERO_RANGE,
    );
    fallocate(&file, keep | punch, 4000, 2000).expect("punched");
    assert!(size() == 10_000 && zeros(4000, 6000));
    fallocate(&file, keep, 0, 50_000).expect("nothing to do");
    fallocate(&file, keep | zero, 6000, 1000).expect("zeroed");
    assert!(size() == 10_000 && zeros(4000, 7000));
    let places = [
        seek(&file, rustix::fs::SeekFrom::Hole(10)),
        seek(&file, rustix::fs::SeekFrom::Data(4001)),
    ];
    assert_eq!(places, [Ok(4000), Ok(7000)]);
    fallocate(&file, FallocateFlags::empty(), 100, 5000).expect("nothing to do");
    assert_eq!(size(), 10_000);
    fallocate(&file, FallocateFlags::empty(), 100, 12_000).expect("larger");
    assert_eq!(size(), 12_100);
    fallocate(&file, zero, 7000, 9000).expect("larger");
    assert!(size() == 16_000 && zeros(4000, 10_000));
    assert_eq!(
        seek(&file, rustix::fs::SeekFrom::Data(4001)),
        Err(rustix::io::Errno::NXIO)
    );
    let why = fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096).expect_err("not this one");
    assert_eq!(why, rustix::io::Errno::OPNOTSUPP);

    let copy = fs::File::create_new(dir.join("g")).expect("made");
    let (mut from, mut to) = (3000, 1);
    let copied =
        copy_file_range(&file, Some(&mut from), &copy, Some(&mut to), 1_000_000).expect("copied");
    assert_eq!((copied, from, to), (13_000, 16_000, 13_001));
    let data = fs::read(dir.join("g")).expect("read");
    assert!(
        data.len() == 13_001
            && data[0] == 0
            && data[1..=1000] == [7; 1000]
            && data[1001..] == [0; 12_000]
    );

    // Objects have 4 MiB.
    let large: Vec<u8> = (0..21_000_000_u32).map(|n| (n % 251) as u8).collect();
    file.write_all_at(&large, 0).expect("written");
    let (mut from, mut to, mut calls) = (100, 100, 0);
    // Data read from it before is not shown any more.
    assert_eq!(fs::read(dir.join("g")).expect("read").len(), 13_001);
    while copy_file_range(&file, Some(&mut from), &copy, Some(&mut to), 1 << 30).expect("copied")
        > 0
    {
        calls += 1;
    }
    assert_eq!((from, to, calls), (21_000_000, 21_000_000, 3));
    let data = fs::read(dir.join("g")).expect("read");
    assert!(data.len() == large.len() && data[100..] == large[100..]);
    drop((file, copy));
    fs::remove_file(path).expect("removed");
    fs::remove_file(dir.join("g")).expect("removed");
    end(mounted, &dir);
}

/// The library does not support this request (fuser 0.18): the kernel reports that to programs,
/// which then use a temporary name.
#[test]
fn a_file_without_a_name_cannot_be_made_through_the_kernel() {
    use rustix::fs::{CWD, Mode, OFlags, openat};
    let Some((mounted, _, dir)) = mounted("unnamed") else {
        return;
    };
    for _ in 0..2 {
        let made = openat(CWD, &dir, OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR);
        assert_eq!(made.map(|_| ()), Err(rustix::io::Errno::OPNOTSUPP));
    }
    end(mounted, &dir);
}

/// An access control list in Linux' format: tag, permissions, id.
fn list_of_rights(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0];
    for (tag, rights, id) in entries {
        bytes.extend([tag.to_le_bytes(), rights.to_le_bytes()].concat());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// The kernel admits users according to the list, also when another mount has changed it; new
/// inodes inherit from their directory.
#[test]
fn lists_of_rights_are_kept_and_followed() {
    use rustix::fs::{XattrFlags, getxattr, setxattr};
    use std::os::unix::process::CommandExt as _;
    const NO: u32 = u32::MAX;
    const USER: u32 = 65_534;
    const STAFF: u32 = 4_321;
    let options = MountOptions {
        allow_other: true,
        ..MountOptions::of("files")
    };
    let memory = Memory(Arc::new(Mutex::new(State::new())), ClientId(1));
    let other = Memory(Arc::clone(&memory.0), ClientId(2));
    let Some((first, _, dir)) = mounted_with("acl-a", memory, &options) else {
        return;
    };
    let Some((second, _, other_dir)) = mounted_with("acl-b", other, &options) else {
        return;
    };
    let may_read = |dir: &Path, groups: &[u32]| {
        let mut program = std::process::Command::new("cat");
        program
            .arg(dir.join("d/f"))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        program
            .uid(USER)
            .gid(groups.first().copied().unwrap_or(USER))
            .status()
            .map(|status| status.success())
    };
    fs::create_dir(dir.join("d")).expect("made");
    fs::write(dir.join("d/f"), b"x").expect("written");
    let mode =
        |mode| fs::set_permissions(dir.join("d/f"), fs::Permissions::from_mode(mode)).expect("set");
    let shown = || fs::metadata(other_dir.join("d/f")).expect("there").mode() & 0o7777;
    let (access, default) = ("system.posix_acl_access", "system.posix_acl_default");
    let set =
        |path: PathBuf, name: &str, list: &[u8]| setxattr(path, name, list, XattrFlags::empty());
    let get = |path: PathBuf, name: &str| {
        let mut buffer = [0; 256];
        getxattr(path, name, &mut buffer).map(|length| buffer[..length].to_vec())
    };
    mode(0o600);
    let named = |user, group, mask| {
        list_of_rights(&[
            (1, 6, NO),
            (2, user, USER),
            (4, 0, NO),
            (8, group, STAFF),
            (16, mask, NO),
            (32, 0, NO),
        ])
    };
    match may_read(&dir, &[]) {
        Ok(may) => assert!(!may),
        Err(why) => println!("no program was run as another user: {why}"),
    }
    let follows = |path: &Path, groups: &[u32], expected| {
        assert_eq!(
            may_read(path, groups).unwrap_or(expected),
            expected,
            "{groups:?}"
        );
    };
    set(dir.join("d/f"), access, &named(4, 0, 4)).expect("set");
    assert_eq!(
        (get(other_dir.join("d/f"), access), shown()),
        (Ok(named(4, 0, 4)), 0o640)
    );
    [&dir, &other_dir]
        .into_iter()
        .for_each(|dir| follows(dir, &[], true));
    // By the other mount: the mask is removed and restored.
    for (bits, expected) in [(0o600, false), (0o640, true)] {
        fs::set_permissions(other_dir.join("d/f"), fs::Permissions::from_mode(bits)).expect("set");
        [&dir, &other_dir]
            .into_iter()
            .for_each(|dir| follows(dir, &[], expected));
    }
    set(other_dir.join("d/f"), access, &named(0, 4, 7)).expect("set");
    [&dir, &other_dir]
        .into_iter()
        .for_each(|dir| follows(dir, &[STAFF], false));
    assert_eq!(get(dir.join("d/f"), access), Ok(named(0, 4, 7)));
    rustix::fs::removexattr(dir.join("d/f"), access).expect("it has one");
    rustix::fs::removexattr(dir.join("d/f"), access).expect("it has none");
    assert_eq!(
        (get(dir.join("d/f"), access), shown()),
        (Err(rustix::io::Errno::NODATA), 0o670)
    );
    // Not a valid list, or not valid for a file.
    let bad = list_of_rights(&[(1, 6, NO), (2, 4, USER), (4, 0, NO), (32, 0, NO)]);
    assert_eq!(
        set(dir.join("d/f"), access, &bad),
        Err(rustix::io::Errno::INVAL)
    );
    assert_eq!(
        set(dir.join("d/f"), default, &named(4, 4, 7)),
        Err(rustix::io::Errno::ACCESS)
    );
    // The directory's list applies, whatever this process's umask is.
    let given = list_of_rights(&[
        (1, 7, NO),
        (2, 6, USER),
        (4, 7, NO),
        (16, 7, NO),
        (32, 6, NO),
    ]);
    set(dir.join("d"), default, &given).expect("set");
    fs::create_dir(other_dir.join("d/below")).expect("made");
    fs::write(other_dir.join("d/below/g"), b"").expect("written");
    assert_eq!(get(dir.join("d/below"), default), Ok(given));
    assert_eq!(
        fs::metadata(dir.join("d/below/g")).expect("there").mode(),
        0o100_666
    );
    let own = list_of_rights(&[
        (1, 6, NO),
        (2, 6, USER),
        (4, 7, NO),
        (16, 6, NO),
        (32, 6, NO),
    ]);
    assert_eq!(get(dir.join("d/below/g"), access), Ok(own));
    fs::remove_dir_all(dir.join("d")).expect("removed");
    end(first, &dir);
    end(second, &other_dir);
}

/// Through pages and buffers, also while they are removed.
#[test]
fn a_thousand_names_are_listed_each_once() {
    let Some((mounted, _, dir)) = mounted("listing") else {
        return;
    };
    let mut names: Vec<String> = (0..1000)
        .map(|n| format!("a name that is not so short {n}"))
        .collect();
    for name in &names {
        fs::File::create_new(dir.join(name)).expect("made");
    }
    let mut seen: Vec<String> = fs::read_dir(&dir)
        .expect("readable")
        .map(|entry| {
            entry
                .expect("readable")
                .file_name()
                .into_string()
                .expect("a text")
        })
        .collect();
    seen.sort();
    names.sort();
    assert!(seen == names, "{} of {}", seen.len(), names.len());
    for entry in fs::read_dir(&dir).expect("readable") {
        fs::remove_file(entry.expect("readable").path()).expect("removed once");
    }
    assert_eq!(fs::read_dir(&dir).expect("readable").count(), 0);
    end(mounted, &dir);
}

/// The kernel leaves this to the file system if it caches no data: a program written by a user with
/// write permission kept running as its owner.
#[test]
fn a_write_by_others_than_root_takes_set_id_bits_off() {
    use rustix::process::{Gid, Uid};
    let memory = Memory(Arc::new(Mutex::new(State::new())), ClientId(1));
    // Only root may set this; other users do not need this test.
    let options = MountOptions {
        allow_other: true,
        ..MountOptions::of("files")
    };
    if !rustix::process::geteuid().is_root() {
        println!("only root may be others: not tested");
        return;
    }
    let Some((mounted, _, dir)) = mounted_with("set-ids", memory, &options) else {
        return;
    };
    let path = dir.join("program");
    let file = fs::File::create_new(&path).expect("made");
    let mode = || fs::metadata(&path).expect("there").mode() & 0o7777;
    let set = || fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).expect("set");
    set();
    file.write_all_at(b"root", 0).expect("written");
    assert_eq!(mode(), 0o6777, "root may");
    for number in 0..3 {
        set();
        std::thread::scope(|scope| {
            let as_other = scope.spawn(|| {
                // Of this thread only.
                let (user, group) = (Uid::from_raw(65_534), Gid::from_raw(65_534));
                rustix::thread::set_thread_res_gid(group, group, group).expect("root may");
                rustix::thread::set_thread_res_uid(user, user, user).expect("root may");
                match number {
                    0 => file.write_all_at(b"other", 0),
                    1 => file.write_all_at(b"other", 1 << 20),
                    _ => {
                        let mode = rustix::fs::FallocateFlags::empty();
                        rustix::fs::fallocate(&file, mode, 0, 2 << 20).map_err(std::io::Error::from)
                    }
                }
            });
            as_other.join().expect("no panic").expect("written");
            assert_eq!(mode(), 0o777, "call {number}");
        });
    }
    drop(file);
    end(mounted, &dir);
}

/// A program that starts another closes its files under a kernel lock that `/proc/TID/stat` takes,
/// too, and waits for each close. The answering thread used to read that file, for one request in
/// 32, to run where the program runs: once in some two hundred starts it waited for the program,
/// the program for it, and everything else on the mount for both, for good. (`show mounts` hung
/// after a fault, because it starts programs then; three changes of the servers were suspected.)
#[test]
fn programs_that_start_others_have_their_files_closed() {
    let Some((mounted, _, dir)) = mounted("starts") else {
        return;
    };
    let (done, ended) = std::sync::mpsc::channel();
    let place = dir.clone();
    let starts = std::thread::spawn(move || {
        // The other program inherits none of them: all are closed when it starts.
        let files: Vec<fs::File> = (0..8)
            .map(|nr| fs::File::create_new(place.join(format!("f{nr}"))).expect("made"))
            .collect();
        for _ in 0..100 {
            assert!(
                std::process::Command::new("true")
                    .status()
                    .expect("starts")
                    .success()
            );
        }
        drop(files);
        done.send(()).expect("it is waited for");
    });
    let in_time = ended.recv_timeout(Duration::from_secs(60));
    if in_time.is_err() {
        let how = rustix::mount::UnmountFlags::FORCE | rustix::mount::UnmountFlags::DETACH;
        let _ = rustix::mount::unmount(&dir, how);
    }
    assert_eq!(in_time, Ok(()), "a close is not answered");
    starts.join().expect("it has ended");
    for nr in 0..8 {
        fs::remove_file(dir.join(format!("f{nr}"))).expect("removed");
    }
    end(mounted, &dir);
}

/// `sync` and `syncfs` returned at once, and data that they were to make safe was lost when the
/// mount was killed: the kernel does not pass them on, and the document said that they wait.
#[test]
fn all_is_synchronized_by_way_of_the_top() {
    let Some((mounted, memory, dir)) = mounted("sync") else {
        return;
    };
    fs::create_dir(dir.join("d")).expect("made");
    let sync = |path: &Path| {
        fs::File::open(path)
            .and_then(|file| file.sync_all())
            .expect("synchronized")
    };
    sync(&dir.join("d"));
    sync(&dir);
    let synced = std::mem::take(&mut memory.0.lock().expect("no panic").synced);
    assert!(matches!(synced[..], [Some(_), None]), "{synced:?}");
    fs::remove_dir(dir.join("d")).expect("removed");
    end(mounted, &dir);
}

/// What is mounted on the directory after an external unmount is not ours.
#[test]
fn unmounting_from_outside_ends_it_and_touches_nothing_else() {
    let Some((mounted, _, dir)) = mounted("outside") else {
        return;
    };
    let mut file = fs::File::create_new(dir.join("open")).expect("made");
    if rustix::mount::unmount(&dir, rustix::mount::UnmountFlags::DETACH).is_err() {
        println!("only root may unmount: not tested");
        return;
    }
    assert!(
        !mounted.wait_for(Duration::from_millis(100)),
        "a file is open"
    );
    file.write_all(b"still").expect("the file can be used");
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).expect("a place");
    drop(file.read_to_string(&mut text));
    drop(file);
    mounted.wait().expect("it has ended");
    fs::remove_dir(&dir).expect("nothing is mounted there");
}

/// A program of this machine that locks; without it the test says so and passes.
fn flock_program(path: &Path, args: &[&str], then: &str) -> Option<std::process::Child> {
    let mut program = std::process::Command::new("flock");
    program.args(args).arg(path).args(["-c", then]);
    program
        .spawn()
        .inspect_err(|why| println!("no program flock, so waits were not tested: {why}"))
        .ok()
}

#[test]
fn locks_of_one_mount_are_seen_by_another() {
    use rustix::fs::{FlockOperation, flock};
    let Some((first, memory, dir)) = mounted("lock-a") else {
        return;
    };
    let other = Memory(Arc::clone(&memory.0), ClientId(2));
    let Some((second, _, other_dir)) = mounted_as("lock-b", other) else {
        return;
    };
    let again = rustix::io::Errno::AGAIN;
    let file = fs::File::create_new(dir.join("f")).expect("made");
    fs::write(dir.join("f"), b"x").expect("written");
    let there = fs::File::options()
        .read(true)
        .write(true)
        .open(other_dir.join("f"))
        .expect("opened");
    flock(&file, FlockOperation::LockExclusive).expect("locked");
    assert_eq!(
        flock(&there, FlockOperation::NonBlockingLockExclusive),
        Err(again)
    );
    // A lock of `fcntl` is independent.
    rustix::fs::fcntl_lock(&there, FlockOperation::NonBlockingLockExclusive).expect("locked");
    assert_eq!(
        rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockShared),
        Err(again)
    );
    drop(fs::File::open(other_dir.join("f")).expect("opened"));
    rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockShared)
        .expect("a close has unlocked it");
    // Two waits: one is granted, the other one is killed and leaves nothing.
    let path = other_dir.join("f");
    if let (Some(mut waits), Some(mut killed)) = (
        flock_program(&path, &["-x"], "exit 7"),
        flock_program(&path, &["-x"], "exit 8"),
    ) {
        std::thread::sleep(Duration::from_millis(500));
        assert!(waits.try_wait().expect("ours").is_none(), "it waits");
        killed.kill().expect("ours");
        let begun = std::time::Instant::now();
        killed
            .wait()
            .expect("it has ended, though it did not get the lock");
        assert!(begun.elapsed() < Duration::from_secs(5));
        flock(&file, FlockOperation::Unlock).expect("unlocked");
        assert_eq!(waits.wait().expect("it has the lock now").code(), Some(7));
        assert!(memory.0.lock().expect("no panic").waits.is_empty());
    }
    // The kernel reports the closing of its file after a program has ended.
    let begun = std::time::Instant::now();
    while let Err(why) = flock(&there, FlockOperation::NonBlockingLockExclusive) {
        assert!(
            begun.elapsed() < Duration::from_secs(5),
            "it ended, and its lock with it: {why}"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    drop((file, there));
    std::thread::sleep(Duration::from_millis(200));
    assert!(
        memory.0.lock().expect("no panic").locks.is_empty(),
        "all files are closed"
    );
    fs::remove_file(dir.join("f")).expect("removed");
    end(first, &dir);
    end(second, &other_dir);
}
