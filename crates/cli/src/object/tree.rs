//! A directory tree in a pool, and back (`docs/formats/striping.md`, "Trees").
//!
//! ```text
//!  DIR/a/b.txt   ─▶ object `a/b.txt`   data; nacre.kind = file, nacre.mode = 0644, nacre.mtime = seconds.nanoseconds
//!  DIR/a/link    ─▶ object `a/link`    its target; nacre.kind = symlink
//!  DIR/a/empty/  ─▶ object `a/empty/`  no data; nacre.kind = dir, nacre.mode: only for directories that are empty or not 0755
//! ```
//! Names are bytes, as the file system has them.
//!
//! Invariant (tests below): exporting an imported tree gives the same tree; and no object, whatever
//! its name, is written outside of the requested directory.

use super::stripe::{self, Manifest, WHOLE_MAX};
use crate::objects::{Ended, Failed, Head, Objects, Window, head_of, read_head};
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use nacre_types::{Name, ObjectId, PoolId};
use nacre_wire::msg::client::OpFailure;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

const KIND: &str = "nacre.kind";
const MODE: &str = "nacre.mode";
const MTIME: &str = "nacre.mtime";
/// Mode of directories without a recorded one.
const FOLDER_MODE: u32 = 0o755;

/// Operations in flight, and their memory.
const OPS_MAX: usize = 64;
const BYTES_MAX: u64 = 48 << 20;

/// Hashes of imported objects' contents.
pub type Hashes = BTreeMap<Name, blake3::Hash>;

/// Results of a transfer, with the failures.
#[derive(Debug, Default)]
pub struct Moved {
    /// Objects, or files.
    pub objects: u64,
    /// Bytes of content.
    pub bytes: u64,
    /// Failures, as sentences.
    pub failed: Vec<String>,
}

impl Moved {
    /// An error if something could not be transferred.
    ///
    /// # Errors
    /// The first failures.
    pub fn complete(&self, verb: &str) -> Result<()> {
        if self.failed.is_empty() {
            return Ok(());
        }
        let shown: Vec<&str> = self.failed.iter().take(3).map(String::as_str).collect();
        bail!(
            "{} of {} could not be {verb}: {}",
            self.failed.len(),
            self.objects + self.failed.len() as u64,
            shown.join("; ")
        )
    }
}

/// Everything below a directory, by name, without the directory itself.
///
/// # Errors
/// When a directory cannot be read.
pub fn walk(root: &Path) -> Result<Vec<PathBuf>> {
    let (mut found, mut folders) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(folder) = folders.pop() {
        let at = root.join(&folder);
        for entry in
            fs::read_dir(&at).with_context(|| format!("reading the folder {}", at.display()))?
        {
            let entry = entry.with_context(|| format!("reading the folder {}", at.display()))?;
            let path = folder.join(entry.file_name());
            if entry
                .file_type()
                .with_context(|| format!("looking at {}", entry.path().display()))?
                .is_dir()
            {
                folders.push(path.clone());
            }
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Stores the files `paths` below `root`; `progress` gets the bytes as they are stored.
///
/// # Errors
/// When the cluster refuses. Unreadable files are listed in the result instead.
pub fn import(
    cluster: &mut dyn Objects,
    pool: PoolId,
    root: &Path,
    paths: &[PathBuf],
    progress: &mut dyn FnMut(u64),
) -> Result<(Moved, Hashes)> {
    let (mut moved, mut hashes, mut later) = (Moved::default(), Hashes::new(), Vec::new());
    {
        let mut window = Window::new(&mut *cluster, OPS_MAX, BYTES_MAX);
        let mut ended = |(path, object, size): (PathBuf, ObjectId, u64), result: Ended| {
            match result {
                Ok(_) => {
                    moved.objects += 1;
                    moved.bytes += size;
                    progress(size);
                }
                // It is striped now; replacing that takes more than one operation.
                Err(Failed::Refused(OpFailure::Guard { index: 0 })) => later.push(path),
                Err(why) => {
                    return Err(anyhow::Error::from(why).context(format!("storing {object}")));
                }
            }
            Ok(())
        };
        let mut large = Vec::new();
        let mut unread = Vec::new();
        for path in paths {
            match load(root, path) {
                Ok(Loaded::Small {
                    object,
                    data,
                    attrs,
                }) => {
                    hashes.insert(object.name.clone(), blake3::hash(&data));
                    let size = data.len() as u64;
                    let put = stripe::put_whole(pool, &object, data, &attrs);
                    window.push(put, (path.clone(), object, size), size, &mut ended)?;
                }
                Ok(Loaded::Large) => large.push(path.clone()),
                Ok(Loaded::Nothing) => {}
                Err(error) => unread.push(format!("{}: {error:#}", path.display())),
            }
        }
        window.drain(&mut ended)?;
        later.extend(large);
        moved.failed = unread;
    }
    for path in later {
        match import_stream(cluster, pool, root, &path, progress) {
            Ok((name, hash, size)) => {
                hashes.insert(name, hash);
                moved.objects += 1;
                moved.bytes += size;
            }
            // An error of the local disk concerns one file, an error of the cluster all of them.
            Err(error) if error.downcast_ref::<io::Error>().is_some() => {
                moved.failed.push(format!("{}: {error:#}", path.display()));
            }
            Err(error) => return Err(error.context(format!("storing {}", path.display()))),
        }
    }
    Ok((moved, hashes))
}

/// Stores these contents as files, replacing existing objects, and records their hashes.
///
/// # Errors
/// When the cluster refuses.
pub fn write(
    cluster: &mut dyn Objects,
    pool: PoolId,
    contents: impl IntoIterator<Item = (Name, Vec<u8>)>,
    hashes: &mut Hashes,
) -> Result<()> {
    for (name, content) in contents {
        let object = ObjectId {
            name: name.clone(),
            ..ObjectId::default()
        };
        let attr = |name: &str, value: &'static str| {
            (Name::from(name), Bytes::from_static(value.as_bytes()))
        };
        let attrs = [
            attr(KIND, "file"),
            attr(MODE, "0644"),
            attr(MTIME, "0.000000000"),
        ];
        hashes.insert(name, blake3::hash(&content));
        stripe::put(
            cluster,
            pool,
            &object,
            &mut &content[..],
            &attrs,
            &mut |_| {},
        )
        .with_context(|| format!("storing {object}"))?;
    }
    Ok(())
}

enum Loaded {
    Small {
        object: ObjectId,
        data: Bytes,
        attrs: Vec<(Name, Bytes)>,
    },
    Large,
    /// A directory that its files imply.
    Nothing,
}

fn load(root: &Path, path: &Path) -> Result<Loaded> {
    let at = root.join(path);
    let meta = at.symlink_metadata()?;
    let mut name = path.as_os_str().as_bytes().to_vec();
    let (kind, data) = if meta.is_symlink() {
        (
            "symlink",
            fs::read_link(&at)?.into_os_string().as_bytes().to_vec(),
        )
    } else if meta.is_dir() {
        let plain = meta.permissions().mode() & 0o7777 == FOLDER_MODE;
        if plain && fs::read_dir(&at)?.next().is_some() {
            return Ok(Loaded::Nothing);
        }
        name.push(b'/');
        ("dir", Vec::new())
    } else if meta.is_file() {
        if meta.len() > WHOLE_MAX {
            return Ok(Loaded::Large);
        }
        let mut data = Vec::new();
        File::open(&at)?
            .take(WHOLE_MAX + 1)
            .read_to_end(&mut data)?;
        if data.len() as u64 > WHOLE_MAX {
            return Ok(Loaded::Large);
        }
        ("file", data)
    } else {
        bail!("neither a file, a folder nor a symbolic link");
    };
    Ok(Loaded::Small {
        object: named(&name)?,
        data: data.into(),
        attrs: attributes(kind, &meta),
    })
}

fn named(name: &[u8]) -> Result<ObjectId> {
    // Names of pieces are longer by a dot and sixteen digits.
    if name.len() > Name::LEN_MAX - 17 {
        bail!(
            "its name has {} bytes; {} are possible",
            name.len(),
            Name::LEN_MAX - 17
        );
    }
    Ok(ObjectId {
        name: Name::copy(name),
        ..ObjectId::default()
    })
}

fn attributes(kind: &str, meta: &Metadata) -> Vec<(Name, Bytes)> {
    let mode = format!("{:04o}", meta.permissions().mode() & 0o7777);
    let mtime = format!("{}.{:09}", meta.mtime(), meta.mtime_nsec());
    let attr =
        |name: &str, value: &str| (Name::from(name), Bytes::copy_from_slice(value.as_bytes()));
    vec![attr(KIND, kind), attr(MODE, &mode), attr(MTIME, &mtime)]
}

/// Hashes the data that are read through it.
struct Hashing<R> {
    inner: R,
    hasher: blake3::Hasher,
}
impl<R> Hashing<R> {
    fn new(inner: R) -> Self {
        Self {
            inner,
            hasher: blake3::Hasher::new(),
        }
    }
}
impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..length]);
        Ok(length)
    }
}
impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let length = self.inner.write(data)?;
        self.hasher.update(&data[..length]);
        Ok(length)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

fn import_stream(
    cluster: &mut dyn Objects,
    pool: PoolId,
    root: &Path,
    path: &Path,
    progress: &mut dyn FnMut(u64),
) -> Result<(Name, blake3::Hash, u64)> {
    let (object, attrs, mut source): (_, _, Hashing<Box<dyn Read>>) = match load(root, path)? {
        Loaded::Small {
            object,
            data,
            attrs,
        } => (object, attrs, Hashing::new(Box::new(io::Cursor::new(data)))),
        Loaded::Large => {
            let file = File::open(root.join(path))?;
            let attrs = attributes("file", &file.metadata()?);
            (
                named(path.as_os_str().as_bytes())?,
                attrs,
                Hashing::new(Box::new(file)),
            )
        }
        Loaded::Nothing => bail!("it was changed while it was imported"),
    };
    let size = stripe::put(cluster, pool, &object, &mut source, &attrs, progress)?;
    Ok((object.name, source.hasher.finalize(), size))
}

/// Reads objects back and compares; returns the names of those that differ.
///
/// # Errors
/// When the cluster refuses.
pub fn verify(
    cluster: &mut dyn Objects,
    pool: PoolId,
    expected: &Hashes,
    progress: &mut dyn FnMut(u64),
) -> Result<Vec<String>> {
    let (mut wrong, mut later) = (Vec::new(), Vec::new());
    {
        let mut window = Window::new(&mut *cluster, OPS_MAX, BYTES_MAX);
        let mut ended = |(name, hash): (&Name, &blake3::Hash), result: Ended| {
            let head = head_of(result).with_context(|| format!("reading {name}"))?;
            match head {
                None => wrong.push(format!("{name} is missing")),
                Some(head) if Manifest::of(&head)?.is_some() => later.push((name.clone(), *hash)),
                Some(head) => {
                    let mut hasher = blake3::Hasher::new();
                    for part in &head.data {
                        hasher.update(part);
                    }
                    if hasher.finalize() != *hash {
                        wrong.push(format!("{name} has other content"));
                    }
                    progress(head.size);
                }
            }
            Ok(())
        };
        for (name, hash) in expected {
            let object = ObjectId {
                name: name.clone(),
                ..ObjectId::default()
            };
            // Sizes are unknown here; an estimate bounds the memory for ordinary trees.
            window.push(
                read_head(pool, &object, WHOLE_MAX),
                (name, hash),
                1 << 20,
                &mut ended,
            )?;
        }
        window.drain(&mut ended)?;
    }
    for (name, hash) in later {
        let object = ObjectId {
            name: name.clone(),
            ..ObjectId::default()
        };
        let mut sink = Hashing::new(io::sink());
        match stripe::get(cluster, pool, &object, &mut sink, progress)
            .with_context(|| format!("reading {name}"))?
        {
            None => wrong.push(format!("{name} is missing")),
            Some(_) if sink.hasher.finalize() != hash => {
                wrong.push(format!("{name} has other content"))
            }
            Some(_) => {}
        }
    }
    Ok(wrong)
}

/// Writes a pool's objects below `root`, which must be empty or new.
///
/// # Errors
/// When the cluster refuses or `root` cannot be used. Objects that cannot be written are listed in
/// the result instead.
pub fn export(
    cluster: &mut dyn Objects,
    pool: PoolId,
    root: &Path,
    progress: &mut dyn FnMut(u64),
) -> Result<Moved> {
    fs::create_dir_all(root).with_context(|| format!("making the folder {}", root.display()))?;
    if fs::read_dir(root)
        .with_context(|| format!("reading the folder {}", root.display()))?
        .next()
        .is_some()
    {
        bail!("{} is not empty; name a new folder", root.display());
    }
    let mut names = BTreeSet::new();
    super::list::objects(cluster, pool, &mut |object| {
        if object.namespace.is_empty() {
            names.insert(object.name);
        }
        Ok(())
    })?;
    let mut export = Export {
        root,
        moved: Moved::default(),
        folders: BTreeMap::new(),
        links: Vec::new(),
    };
    let mut later = Vec::new();
    {
        let mut window = Window::new(&mut *cluster, OPS_MAX, BYTES_MAX);
        let mut ended = |name: Name, result: Ended| {
            // Objects removed since the listing are skipped.
            let Some(head) = head_of(result).with_context(|| format!("reading {name}"))? else {
                return Ok(());
            };
            if Manifest::of(&head)?.is_some() || head.size > WHOLE_MAX {
                later.push((name, head));
            } else {
                let size = head.size;
                export.object(&name, &head, |sink| {
                    Ok(head.data.iter().try_for_each(|part| sink.write_all(part))?)
                });
                progress(size);
            }
            Ok(())
        };
        for name in names {
            let object = ObjectId {
                name: name.clone(),
                ..ObjectId::default()
            };
            window.push(
                read_head(pool, &object, WHOLE_MAX),
                name,
                1 << 20,
                &mut ended,
            )?;
        }
        window.drain(&mut ended)?;
    }
    for (name, head) in later {
        let object = ObjectId {
            name: name.clone(),
            ..ObjectId::default()
        };
        export.object(&name, &head, |sink| {
            stripe::rest_of(cluster, pool, &object, &head, sink, progress)
        });
    }
    export.finish();
    Ok(export.moved)
}

/// State of an export.
struct Export<'r> {
    root: &'r Path,
    moved: Moved,
    /// Created directories, with their modes.
    folders: BTreeMap<PathBuf, u32>,
    /// Written last: no file may be written through them.
    links: Vec<(PathBuf, PathBuf)>,
}

impl Export<'_> {
    fn object(
        &mut self,
        name: &Name,
        head: &Head,
        content: impl FnOnce(&mut dyn Write) -> Result<()>,
    ) {
        match self.try_object(name, head, content) {
            Ok(()) => {
                self.moved.objects += 1;
                self.moved.bytes += Manifest::of(head)
                    .ok()
                    .flatten()
                    .map_or(head.size, |manifest| manifest.size);
            }
            Err(error) => self.moved.failed.push(format!("{name}: {error:#}")),
        }
    }

    fn try_object(
        &mut self,
        name: &Name,
        head: &Head,
        content: impl FnOnce(&mut dyn Write) -> Result<()>,
    ) -> Result<()> {
        let attr = |name: &str| {
            head.attrs
                .get(&Name::from(name))
                .map(|value| String::from_utf8_lossy(value).into_owned())
        };
        let mode = attr(MODE)
            .and_then(|mode| u32::from_str_radix(&mode, 8).ok())
            .map(|mode| mode & 0o7777);
        let kind = attr(KIND);
        let bytes = name.as_bytes();
        if kind.as_deref() == Some("dir") {
            let path = inside(bytes.strip_suffix(b"/").unwrap_or(bytes))?;
            self.folder(&path)?;
            self.folders.insert(path, mode.unwrap_or(FOLDER_MODE));
            return Ok(());
        }
        let path = inside(bytes)?;
        if let Some(parent) = path.parent() {
            self.folder(parent)?;
        }
        if kind.as_deref() == Some("symlink") {
            let mut target = Vec::new();
            content(&mut target)?;
            self.links
                .push((path, PathBuf::from(OsStr::from_bytes(&target))));
            return Ok(());
        }
        let mut file = File::create_new(self.root.join(&path))?;
        content(&mut file)?;
        if let Some(mode) = mode {
            file.set_permissions(Permissions::from_mode(mode))?;
        }
        if let Some(time) = attr(MTIME).and_then(|text| parse_time(&text)) {
            file.set_modified(time)?;
        }
        Ok(())
    }

    /// Creates a directory and its parents.
    fn folder(&mut self, path: &Path) -> Result<()> {
        if path.as_os_str().is_empty() || self.folders.contains_key(path) {
            return Ok(());
        }
        if let Some(parent) = path.parent() {
            self.folder(parent)?;
        }
        fs::create_dir(self.root.join(path))?;
        self.folders.insert(path.to_owned(), FOLDER_MODE);
        Ok(())
    }

    /// Links, then modes of directories from the innermost on: a mode may forbid later changes
    /// inside.
    fn finish(&mut self) {
        for (path, target) in std::mem::take(&mut self.links) {
            if let Err(error) = std::os::unix::fs::symlink(target, self.root.join(&path)) {
                self.moved
                    .failed
                    .push(format!("{}: {error}", path.display()));
            }
        }
        for (path, mode) in std::mem::take(&mut self.folders).into_iter().rev() {
            if let Err(error) =
                fs::set_permissions(self.root.join(&path), Permissions::from_mode(mode))
            {
                self.moved
                    .failed
                    .push(format!("{}: {error}", path.display()));
            }
        }
    }
}

/// A name as a path that stays inside. A name that would be imported under another name is refused
/// too.
fn inside(name: &[u8]) -> Result<PathBuf> {
    let path = PathBuf::from(OsStr::from_bytes(name));
    let plain = path
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    let same = path
        .components()
        .collect::<PathBuf>()
        .as_os_str()
        .as_bytes()
        == name;
    if name.is_empty() || !plain || !same || name.contains(&0) {
        bail!("this name is no path of a file inside a folder; `nacre object get` reads it");
    }
    Ok(path)
}

/// Parses `seconds.nanoseconds`; seconds may be negative.
fn parse_time(text: &str) -> Option<SystemTime> {
    let (seconds, nanos) = text.split_once('.')?;
    let (seconds, nanos): (i64, u32) = (
        seconds.parse().ok()?,
        nanos.parse().ok().filter(|n| *n < 1_000_000_000)?,
    );
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let base = if seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(whole)?
    } else {
        SystemTime::UNIX_EPOCH.checked_add(whole)?
    };
    base.checked_add(Duration::from_nanos(u64::from(nanos)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::call;
    use crate::objects::memory::Memory;

    const POOL: PoolId = PoolId(1);

    /// A directory that is removed with the test.
    struct Folder(PathBuf);
    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("nacre-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }
    }
    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// All properties of a tree that must be preserved.
    fn describe(root: &Path) -> Vec<(PathBuf, u32, i64, Vec<u8>)> {
        let one = |path: PathBuf| {
            let at = root.join(&path);
            let meta = at.symlink_metadata().expect("there");
            let content = if meta.is_symlink() {
                fs::read_link(&at)
                    .expect("a link")
                    .into_os_string()
                    .as_bytes()
                    .to_vec()
            } else if meta.is_file() {
                blake3::hash(&fs::read(&at).expect("readable"))
                    .as_bytes()
                    .to_vec()
            } else {
                Vec::new()
            };
            let mtime = if meta.is_file() { meta.mtime() } else { 0 };
            (path, meta.mode(), mtime, content)
        };
        walk(root).expect("readable").into_iter().map(one).collect()
    }

    #[test]
    fn a_tree_comes_back_exactly() {
        let (source, target) = (Folder::new("import"), Folder::new("export"));
        let at = |name: &str| source.0.join(name);
        for folder in ["deep/er/still", "empty/inside", "private"] {
            fs::create_dir_all(at(folder)).expect("made");
        }
        fs::write(at("deep/er/still/file"), b"hello").expect("written");
        fs::write(at("deep/none"), b"").expect("written");
        fs::write(at("private/key"), b"secret").expect("written");
        fs::write(source.0.join(OsStr::from_bytes(b"not\xff\xfeutf8")), b"x").expect("written");
        fs::write(at("large"), vec![7; WHOLE_MAX as usize + 12345]).expect("written");
        fs::write(at("run"), b"#!/bin/sh\n").expect("written");
        for (name, mode) in [("run", 0o755), ("private/key", 0o400), ("private", 0o500)] {
            fs::set_permissions(at(name), Permissions::from_mode(mode)).expect("set");
        }
        let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        File::open(at("deep/none"))
            .and_then(|file| file.set_modified(old))
            .expect("set");
        for (link, to) in [
            ("link", "deep/none"),
            ("dangling", "nowhere/at/all"),
            ("up", ".."),
        ] {
            std::os::unix::fs::symlink(to, at(link)).expect("linked");
        }
        let mut cluster = Memory::default();
        let paths = walk(&source.0).expect("walked");
        // Twice: the second replaces the first.
        for _ in 0..2 {
            let (moved, hashes) =
                import(&mut cluster, POOL, &source.0, &paths, &mut |_| {}).expect("imported");
            moved.complete("imported").expect("everything");
            assert_eq!(
                verify(&mut cluster, POOL, &hashes, &mut |_| {}).expect("read"),
                Vec::<String>::new()
            );
        }
        let moved = export(&mut cluster, POOL, &target.0, &mut |_| {}).expect("exported");
        moved.complete("exported").expect("everything");
        assert_eq!(describe(&source.0), describe(&target.0));
        let error = export(&mut cluster, POOL, &target.0, &mut |_| {})
            .expect_err("not over something else");
        assert!(error.to_string().contains("not empty"), "{error}");
        for root in [&source, &target] {
            fs::set_permissions(root.0.join("private"), Permissions::from_mode(0o700))
                .expect("set");
        }
    }

    #[test]
    fn what_differs_or_is_gone_is_named() {
        let mut cluster = Memory::default();
        let put = |cluster: &mut Memory, name: &str, data: &'static [u8]| {
            call(
                cluster,
                stripe::put_whole(POOL, &ObjectId::named(name), Bytes::from_static(data), &[]),
            )
            .expect("there")
            .expect("put");
        };
        put(&mut cluster, "same", b"1");
        put(&mut cluster, "other", b"2");
        let hash = blake3::hash(b"1");
        let expected: Hashes = ["same", "other", "gone"]
            .map(|name| (Name::from(name), hash))
            .into();
        let wrong = verify(&mut cluster, POOL, &expected, &mut |_| {}).expect("read");
        assert_eq!(
            BTreeSet::from_iter(wrong),
            BTreeSet::from(["other has other content".into(), "gone is missing".into()])
        );
    }

    #[test]
    fn no_name_leads_outside() {
        let (outer, mut cluster) = (Folder::new("outside"), Memory::default());
        let target = outer.0.join("in");
        let put = |cluster: &mut Memory, name: &str, kind: &str, data: &'static [u8]| {
            let attrs = [(Name::from(KIND), Bytes::copy_from_slice(kind.as_bytes()))];
            let put = stripe::put_whole(
                POOL,
                &ObjectId::named(name),
                Bytes::from_static(data),
                &attrs,
            );
            call(cluster, put).expect("there").expect("put");
        };
        for name in [
            "../evil",
            "/evil",
            "a/../../evil",
            "a//b",
            "./c",
            "..",
            "nul\0",
        ] {
            put(&mut cluster, name, "file", b"x");
        }
        put(&mut cluster, "../evil/", "dir", b"");
        put(&mut cluster, "out", "symlink", b"..");
        put(&mut cluster, "out/evil", "file", b"x");
        put(&mut cluster, "good", "file", b"x");
        let moved = export(&mut cluster, POOL, &target, &mut |_| {}).expect("exported");
        assert_eq!(moved.failed.len(), 9, "{:?}", moved.failed);
        assert!(moved.complete("exported").is_err());
        let found: Vec<PathBuf> = walk(&outer.0).expect("walked");
        assert!(!outer.0.join("evil").exists(), "{found:?}");
        assert!(target.join("good").exists());
    }

    #[test]
    fn times_are_read_on_both_sides_of_1970() {
        let at = |text| {
            parse_time(text).and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok())
        };
        assert_eq!(at("7.000000005"), Some(Duration::new(7, 5)));
        assert!(parse_time("-7.5").is_some_and(|time| time < SystemTime::UNIX_EPOCH));
        assert!(
            parse_time("7").is_none()
                && parse_time("7.x").is_none()
                && parse_time("7.1000000000").is_none()
        );
    }
}
