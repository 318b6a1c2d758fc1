//! A file system for programs: paths as in the standard library, each call blocking or
//! asynchronous.
//!
//! ```text
//!  FileSystem::open ─▶ path ─▶ walk ─▶ directory and name ─▶ one call of the client
//!                                                        └─▶ OpenFile ─▶ reads, writes, sync
//! ```
//! Permissions are not checked here: a client that may connect may do everything, as the superuser
//! on a mount. New files belong to this process's user and group.

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

/// Object size of new file systems, in bytes.
const OBJECT: u32 = 4 << 20;
/// Size of a page of a listing, and of a read of a whole file, in bytes.
const PAGE: u32 = 1 << 20;

/// How to open a file: for reading, and these options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// For writing as well.
    pub write: bool,
    /// Create it if it does not exist; requires `write`.
    pub create: bool,
    /// Fail if it exists; requires `create`.
    pub exclusive: bool,
    /// Truncate it; requires `write`.
    pub truncate: bool,
    /// Data are cached, and written later, even while other clients write it, as long as all users
    /// of the file in this client have this set (`O_LAZY`): [`OpenFile::propagate`] and
    /// [`OpenFile::synchronize`] determine when written data become visible.
    pub lazy: bool,
    /// Mode of a new file: the low twelve bits of `st_mode`.
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

/// An entry of a directory with its inode, as from `readdirplus` (CEPH-13).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// Any bytes but `/` and 0.
    pub name: Name,
    /// Its attributes; a file that another client is writing may be larger
    /// ([`FileSystem::metadata`] asks that client).
    pub inode: Inode,
}

fn bytes(path: &impl AsRef<Path>) -> Vec<u8> {
    path.as_ref().as_os_str().as_bytes().to_vec()
}

impl FileSystem {
    /// Opens a file system of the cluster named by a `cluster.toml` (or its directory), as `admin`.
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

    /// Makes a file system with one rank, in new pools `NAME.meta` and `NAME.data`. It is served
    /// once a server has found it: a moment later, where one runs.
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
            // Namespaces are never shared, not even with a removed file system that has left
            // objects.
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
    /// [`Error::File`], as for all calls of this kind.
    pub fn open_file(&self, path: impl AsRef<Path>) -> Call<'_, OpenFile> {
        self.open_with(path, OpenOptions::default())
    }
    /// Opens a file for reading and writing, truncated; creates it if it does not exist.
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
    /// The whole content of a file.
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
    /// Replaces a file's content, and creates the file if it does not exist. [`Self::sync_all`]
    /// makes it durable.
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

    /// The attributes of the file at a path; links are followed.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Call<'_, Inode> {
        self.attributes(bytes(&path), true, |ino| FsCall::Stat { ino })
    }
    /// The same, without asking the file's writers: see [`OpenFile::metadata_lite`].
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
    /// All entries of a directory, with their attributes, in no particular order (CEPH-12, -13).
    /// One request for each MiB of them.
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
    /// Removes a name that is not a directory.
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
    /// The target of a symbolic link.
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
    /// Renames a file or directory; an existing target is replaced, unless it is a directory that
    /// is not empty.
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
    /// Creates a hard link to a file.
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
    /// Waits until all changes of this client are durable.
    pub fn sync_all(&self) -> Call<'_, ()> {
        call(async move {
            self.asked(Ask::Sync { ino: None })
                .await
                .map(drop)
                .map_err(failed("synchronize", b"the file system"))
        })
    }

    // ── how ─────────────────────────────────────────────────────────────────────────────

    /// Makes a call; returns its outcome.
    pub(super) async fn asked(&self, ask: Ask) -> Outcome {
        let (sender, receiver) = crate::slot::slot();
        self.ask(ask, move |outcome| sender.send(outcome));
        receiver.await.unwrap_or(Err(super::ENDED))
    }
    pub(super) async fn names(&self, names: FsCall) -> Outcome {
        self.asked(Ask::Names(names)).await
    }
    /// Makes a call about one name.
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

/// The kind of file to create.
struct New {
    kind: FileKind,
    mode: u16,
    target: Bytes,
    exclusive: bool,
    /// Whether to open it, and for writing.
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
