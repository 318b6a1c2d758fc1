//! A file system for programs: paths as in the standard library, each call blocking or
//! asynchronous.
//!
//! ```text
//!  FileSystem::open ─▶ path ─▶ walk ─▶ directory and name ─▶ one call of the client
//!                                                        └─▶ OpenFile ─▶ reads, writes, sync
//! ```
//! Nothing asks for rights here: a client that may connect may do everything, as the superuser on a
//! mount. What is made belongs to this process's user and group.

use super::FileSystem;
use super::opened::OpenFile;
use super::walk::{Place, node};
use crate::clock;
use crate::cluster::{Call, Cluster, call};
use crate::directory::random_u128;
use crate::error::Error;
use bytes::Bytes;
use nacre_fs::{Ask, Given, Outcome};
use nacre_mds::evaluate::errno::EINVAL;
use nacre_mds::mds::{MdsConfig, MdsLimits, first_objects_owned};
use nacre_types::{Ino, Name, PoolId, Rank, Time};
use nacre_wire::Wire as _;
use nacre_wire::fs::{FileKind, FsKey, FsSettings, Inode, Layout, Stamp, name_hash};
use nacre_wire::msg::fs::{FsAnswer, FsCall, FsChanges, FsListed};
use nacre_wire::msg::meta::{MetaCall, MetaCompare, MetaOp, MetaRelation, MetaResult, MetaTarget};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Objects of new file systems, in bytes.
const OBJECT: u32 = 4 << 20;
/// Bytes of a page of a listing, and of a piece of a file that is read whole.
const PAGE: u32 = 1 << 20;

/// How a file is opened: for reading; and what else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// For writing as well.
    pub write: bool,
    /// Made if it does not exist; wants `write`.
    pub create: bool,
    /// It must not exist; wants `create`.
    pub exclusive: bool,
    /// Made empty; wants `write`.
    pub truncate: bool,
    /// It is kept, and written later, also while other clients write it, as long as all who have
    /// it open in this client want that (`O_LAZY`): [`OpenFile::propagate`] and
    /// [`OpenFile::synchronize`] say when what was written is seen.
    pub lazy: bool,
    /// Rights of a file that is made: the low twelve bits of `st_mode`.
    pub mode: u16,
}
impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            write: false,
            create: false,
            exclusive: false,
            truncate: false,
            lazy: false,
            mode: 0o644,
        }
    }
}

/// An entry of a directory, with what it stands for: what `readdirplus` gives (CEPH-13).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// Any bytes but `/` and 0.
    pub name: Name,
    /// Its attributes; a file that another client is writing may be larger
    /// ([`FileSystem::metadata`] asks that one).
    pub inode: Inode,
}

fn bytes(path: &impl AsRef<Path>) -> Vec<u8> {
    path.as_ref().as_os_str().as_bytes().to_vec()
}

impl FileSystem {
    /// Opens a file system of the cluster that a `cluster.toml` (or its folder) names, as `admin`.
    /// Returns once its server has answered.
    ///
    /// ```
    /// # let dir = std::env::temp_dir().join(format!("nacre-doc-files-{}", std::process::id()));
    /// # let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    /// # let ports = nacre_node::InitOptions { base_port: Some(free.min(65_000)), mons: 1, osds: 3, ..Default::default() };
    /// # nacre_node::init(&dir, &ports)?;
    /// use nacre_node::{Cluster, FileSystem};
    /// let cluster = Cluster::open(&dir)?; // a whole cluster in this folder, servers of file systems among it
    /// FileSystem::make(&cluster, "home").wait()?;
    /// let home = FileSystem::open(&dir, "home")?;
    /// home.create_dir("notes").wait()?;
    /// home.write("notes/today", "hello").wait()?;
    /// let file = home.open_file("notes/today").wait()?; // in an executor: `.await?`
    /// assert_eq!(file.read_at(1, 3).wait()?, "ell");
    /// file.close().wait()?;
    /// home.sync_all().wait()?; // all of it is safe
    /// # drop(home);
    /// # cluster.stop()?;
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok::<(), nacre_node::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub fn open(cluster: impl AsRef<Path>, name: &str) -> Result<Self, Error> {
        Self::connect(cluster, crate::ADMIN, name)
    }

    /// Makes a file system with one rank, in pools of its own, `NAME.meta` and `NAME.data`. It is
    /// served once a server has found it: a moment later, where one runs.
    ///
    /// # Errors
    /// There is one of that name; a pool cannot be made.
    pub fn make<'a>(cluster: &'a Cluster, name: &str) -> Call<'a, ()> {
        let name = name.to_owned();
        call(async move {
            let key = FsKey::Settings.of(&Name::from(&*name));
            let exists = || {
                Error::Command(format!(
                    "there is a file system {name} already; `nacre fs ls` shows it"
                ))
            };
            if cluster.meta_get(key.clone()).await?.is_some() {
                return Err(exists());
            }
            let mut pools = [PoolId::default(); 2];
            for (pool, part) in pools.iter_mut().zip(["meta", "data"]) {
                let of_its_own = format!("{name}.{part}");
                // An earlier attempt may have made it.
                *pool = match cluster.pool(&of_its_own).await {
                    Err(Error::NoSuchPool { .. }) => cluster.create_pool(&of_its_own).await?,
                    known => known?,
                }
                .id();
            }
            let [pool, data] = pools;
            // No two share a namespace, also not one that was removed and has left something.
            let namespace = Name::from(&*format!("{name}.{:08x}", random_u128() as u32));
            let layout = Layout {
                pool: data,
                unit: OBJECT,
                count: 1,
                object: OBJECT,
            };
            let unix_ms = clock::unix_ms_at_zero() + clock::now().0 / 1_000_000;
            let config = MdsConfig {
                rank: Rank(0),
                namespace: namespace.clone(),
                pool,
                layout,
                unix_ms_at_zero: unix_ms,
                limits: MdsLimits::default(),
            };
            for operation in first_objects_owned(&config, Stamp::at(unix_ms, Time::ZERO), owner()) {
                cluster.operate(operation).await?;
            }
            let value = FsSettings {
                namespace,
                pool,
                layout,
                ranks: 1,
            }
            .to_bytes()
            .into();
            let is_new = MetaTarget::Version { number: 0 };
            let compares = vec![MetaCompare {
                key: key.clone(),
                target: is_new,
                relation: MetaRelation::Equal {},
            }];
            let then = vec![MetaOp::Put {
                key,
                value,
                lease: 0,
            }];
            match cluster
                .meta(MetaCall::Transact {
                    compares,
                    then,
                    otherwise: Vec::new(),
                })
                .await?
                .1
            {
                MetaResult::Transacted {
                    succeeded: true, ..
                } => Ok(()),
                _ => Err(exists()),
            }
        })
    }

    // ── files ───────────────────────────────────────────────────────────────────────────

    /// Opens a file for reading.
    ///
    /// # Errors
    /// [`Error::File`], as all calls of this kind.
    pub fn open_file(&self, path: impl AsRef<Path>) -> Call<'_, OpenFile> {
        self.open_with(path, OpenOptions::default())
    }
    /// Opens a file for reading and writing, empty; makes it if it does not exist.
    pub fn create_file(&self, path: impl AsRef<Path>) -> Call<'_, OpenFile> {
        self.open_with(
            path,
            OpenOptions {
                write: true,
                create: true,
                truncate: true,
                ..OpenOptions::default()
            },
        )
    }
    /// Opens a file.
    pub fn open_with(&self, path: impl AsRef<Path>, options: OpenOptions) -> Call<'_, OpenFile> {
        let path = bytes(&path);
        call(async move {
            self.open_at(&path, options)
                .await
                .map_err(failed("open", &path))
        })
    }
    async fn open_at(&self, path: &[u8], options: OpenOptions) -> Result<OpenFile, u16> {
        let OpenOptions {
            write,
            create,
            exclusive,
            truncate,
            lazy,
            mode,
        } = options;
        if (create || truncate) && !write || exclusive && !create {
            return Err(EINVAL);
        }
        let place = self.walk(path, !exclusive).await?;
        let node = match place {
            Place::Name(dir, name, there) if create && (exclusive || there.is_none()) => {
                let new = New {
                    kind: FileKind::File {},
                    mode,
                    exclusive,
                    open: Some(write),
                    target: Bytes::new(),
                };
                self.names(new.call(dir, name)).await.and_then(node)?
            }
            place => self
                .names(FsCall::Open {
                    ino: place.there()?,
                    write,
                })
                .await
                .and_then(node)?,
        };
        let mut file = OpenFile::new(self.clone(), node.inode.ino, write);
        if lazy {
            file.become_lazy().await?;
        }
        if truncate && node.inode.size > 0 {
            file.resize(0).await?;
        }
        Ok(file)
    }
    /// All of a file.
    pub fn read(&self, path: impl AsRef<Path>) -> Call<'_, Bytes> {
        let path = bytes(&path);
        call(async move {
            let mut all = Vec::new();
            let read = async {
                let file = self.open_at(&path, OpenOptions::default()).await?;
                loop {
                    let part = file.read_part(all.len() as u64, PAGE).await?;
                    if part.is_empty() {
                        return file.end().await;
                    }
                    all.extend_from_slice(&part);
                }
            };
            read.await.map_err(failed("read", &path))?;
            Ok(all.into())
        })
    }
    /// Makes a file what is given, and makes the file if it does not exist. [`Self::sync_all`]
    /// makes it safe.
    pub fn write(&self, path: impl AsRef<Path>, data: impl Into<Bytes>) -> Call<'_, ()> {
        let (path, data) = (bytes(&path), data.into());
        call(async move {
            let write = async {
                let options = OpenOptions {
                    write: true,
                    create: true,
                    truncate: true,
                    ..OpenOptions::default()
                };
                let file = self.open_at(&path, options).await?;
                file.write_all(0, data).await?;
                file.end().await
            };
            write.await.map_err(failed("write", &path))
        })
    }

    // ── names ───────────────────────────────────────────────────────────────────────────

    /// The attributes of what a path leads to; a link is followed.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Call<'_, Inode> {
        self.attributes(bytes(&path), true, |ino| FsCall::Stat { ino })
    }
    /// The same, without a word to the file's writers: see [`OpenFile::metadata_lite`].
    pub fn metadata_lite(&self, path: impl AsRef<Path>) -> Call<'_, Inode> {
        self.attributes(bytes(&path), true, |ino| FsCall::StatLite { ino })
    }
    /// The same; a link is not followed.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Call<'_, Inode> {
        self.attributes(bytes(&path), false, |ino| FsCall::Stat { ino })
    }
    fn attributes(&self, path: Vec<u8>, follow: bool, stat: fn(Ino) -> FsCall) -> Call<'_, Inode> {
        call(async move {
            let look = async {
                let ino = self.walk(&path, follow).await?.there()?;
                Ok(self.names(stat(ino)).await.and_then(node)?.inode)
            };
            look.await.map_err(failed("look at", &path))
        })
    }
    /// Changes attributes; a link is followed.
    pub fn change(&self, path: impl AsRef<Path>, changes: FsChanges) -> Call<'_, Inode> {
        let path = bytes(&path);
        call(async move {
            let change = async {
                let ino = self.walk(&path, true).await?.there()?;
                Ok(self
                    .names(FsCall::Set { ino, changes })
                    .await
                    .and_then(node)?
                    .inode)
            };
            change.await.map_err(failed("change", &path))
        })
    }
    /// All entries of a directory, with their attributes, in no order that means anything (CEPH-12,
    /// -13). One request for each MiB of them.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Call<'_, Vec<DirEntry>> {
        let path = bytes(&path);
        call(async move { self.list(&path).await.map_err(failed("list", &path)) })
    }
    async fn list(&self, path: &[u8]) -> Result<Vec<DirEntry>, u16> {
        let dir = self.walk(path, true).await?.there()?;
        let (mut all, mut after) = (Vec::new(), 0);
        loop {
            match self
                .names(FsCall::List {
                    dir,
                    after,
                    bytes_max: PAGE,
                })
                .await?
            {
                Given::Answer(FsAnswer::Listed { entries, end }) => {
                    after = entries.last().map_or(after, |last| name_hash(&last.name));
                    let shown = |FsListed { name, node }| DirEntry {
                        name,
                        inode: node.inode,
                    };
                    all.extend(entries.into_iter().map(shown));
                    if end {
                        return Ok(all);
                    }
                }
                _ => return Err(super::ENDED),
            }
        }
    }
    /// Makes a directory.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Call<'_, ()> {
        self.name(path, "make directory", |dir, name| {
            New::of(FileKind::Directory {}, 0o755).call(dir, name)
        })
    }
    /// Removes a name that is no directory's.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Call<'_, ()> {
        self.name(path, "remove", |dir, name| FsCall::Unlink {
            dir,
            name,
            directory: false,
        })
    }
    /// Removes an empty directory.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Call<'_, ()> {
        self.name(path, "remove directory", |dir, name| FsCall::Unlink {
            dir,
            name,
            directory: true,
        })
    }
    /// Makes a symbolic link.
    pub fn symlink(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) -> Call<'_, ()> {
        let new = New {
            target: bytes(&target).into(),
            ..New::of(FileKind::Symlink {}, 0o777)
        };
        self.name(path, "link", |dir, name| new.call(dir, name))
    }
    /// Where a symbolic link leads.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Call<'_, Bytes> {
        let path = bytes(&path);
        call(async move {
            let look = async {
                match self.walk(&path, false).await? {
                    Place::Name(.., Some(inode)) if inode.kind == (FileKind::Symlink {}) => {
                        Ok(inode
                            .rare
                            .map(|rare| rare.target.clone())
                            .unwrap_or_default())
                    }
                    place => place.there().and(Err(EINVAL)),
                }
            };
            look.await.map_err(failed("read link", &path))
        })
    }
    /// Moves a name; what has the new one goes, if it is no directory with something in it.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Call<'_, ()> {
        let (from, to) = (bytes(&from), bytes(&to));
        call(async move {
            let moved = async {
                let (dir, name) = self.walk(&from, false).await?.name()?;
                let (to_dir, to_name) = self.walk(&to, false).await?.name()?;
                self.names(FsCall::Rename {
                    dir,
                    name,
                    to_dir,
                    to_name,
                    flags: 0,
                })
                .await
            };
            moved.await.map(drop).map_err(failed("rename", &from))
        })
    }
    /// Gives a file another name.
    pub fn hard_link(&self, file: impl AsRef<Path>, path: impl AsRef<Path>) -> Call<'_, ()> {
        let (from, to) = (bytes(&file), bytes(&path));
        call(async move {
            let link = async {
                let ino = self.walk(&from, false).await?.there()?;
                let (dir, name) = self.walk(&to, false).await?.name()?;
                self.names(FsCall::Link { ino, dir, name }).await
            };
            link.await.map(drop).map_err(failed("link", &to))
        })
    }
    /// Waits until all that this client did is safe.
    pub fn sync_all(&self) -> Call<'_, ()> {
        call(async move {
            self.asked(Ask::Sync { ino: None })
                .await
                .map(drop)
                .map_err(failed("synchronize", b"the file system"))
        })
    }

    // ── how ─────────────────────────────────────────────────────────────────────────────

    /// The outcome of a call.
    pub(super) async fn asked(&self, ask: Ask) -> Outcome {
        let (sender, receiver) = crate::slot::slot();
        self.ask(ask, move |outcome| sender.send(outcome));
        receiver.await.unwrap_or(Err(super::ENDED))
    }
    pub(super) async fn names(&self, names: FsCall) -> Outcome {
        self.asked(Ask::Names(names)).await
    }
    /// A call about one name.
    fn name<'a>(
        &'a self,
        path: impl AsRef<Path>,
        doing: &'static str,
        names: impl FnOnce(Ino, Name) -> FsCall + Send + 'a,
    ) -> Call<'a, ()> {
        let path = bytes(&path);
        call(async move {
            let named = async {
                let (dir, name) = self.walk(&path, false).await?.name()?;
                self.names(names(dir, name)).await
            };
            named.await.map(drop).map_err(failed(doing, &path))
        })
    }
}

/// The error of a call about a path.
pub(super) fn failed<'a>(
    doing: &'static str,
    path: &'a [u8],
) -> impl FnOnce(u16) -> Error + use<'a> {
    move |errno| Error::File {
        doing,
        path: String::from_utf8_lossy(path).into_owned(),
        errno,
    }
}

fn owner() -> (u32, u32) {
    (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    )
}

/// What is to be made.
struct New {
    kind: FileKind,
    mode: u16,
    target: Bytes,
    exclusive: bool,
    /// It is opened, for writing or not.
    open: Option<bool>,
}
impl New {
    const fn of(kind: FileKind, mode: u16) -> Self {
        Self {
            kind,
            mode,
            target: Bytes::new(),
            exclusive: true,
            open: None,
        }
    }
    fn call(self, dir: Ino, name: Name) -> FsCall {
        let Self {
            kind,
            mode,
            target,
            exclusive,
            open,
        } = self;
        let ((uid, gid), write) = (owner(), open == Some(true));
        let (umask, device, open) = (0, 0, open.is_some());
        FsCall::Make {
            dir,
            name,
            kind,
            mode,
            umask,
            uid,
            gid,
            target,
            device,
            exclusive,
            open,
            write,
        }
    }
}
