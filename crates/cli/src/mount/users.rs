//! Programs that use a mount. No file of the mount is read: it may not answer. Reading `/proc` for
//! a program that starts another one blocks as long as that waits for its mount, so it is read on a
//! separate thread, for a bounded time.

use nacre_gateway::table;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// Maximum number of programs named.
const NAMED_MAX: usize = 5;
/// Longer than needed for all processes of a machine with tens of thousands.
const LOOK_MAX: Duration = Duration::from_secs(3);

/// The users of a mount, as a part of a sentence; `None`: none is visible, since it has just ended
/// or is another user's.
#[must_use]
pub fn users(dir: &Path) -> Option<String> {
    let below = |entry: &table::MountEntry| entry.dir != dir && entry.dir.starts_with(dir);
    if let Some(other) = table::mounts().iter().find(|entry| below(entry)) {
        return Some(format!(
            "{} is mounted at {}",
            other.source,
            other.dir.display()
        ));
    }
    let (found, all) = channel();
    let place = dir.to_owned();
    thread::spawn(move || drop(found.send(uses(&place))));
    match all.recv_timeout(LOOK_MAX) {
        Ok(all) => sentence(&all),
        Err(_) => Some("a program that waits for it".to_owned()),
    }
}

/// The use of the mount by each program, by ascending process id.
fn uses(dir: &Path) -> Vec<String> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<u32> = all
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    pids.into_iter()
        .filter_map(|pid| use_of(pid, dir))
        .collect()
}

fn sentence(users: &[String]) -> Option<String> {
    let named = users
        .iter()
        .take(NAMED_MAX)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    match users.len().saturating_sub(NAMED_MAX) {
        _ if users.is_empty() => None,
        0 => Some(named),
        more => Some(format!("{named} and {more} more")),
    }
}

/// `process 7 (bash) is in it`, if it uses it.
fn use_of(pid: u32, dir: &Path) -> Option<String> {
    let proc = PathBuf::from(format!("/proc/{pid}"));
    let leads = |link: PathBuf| std::fs::read_link(link).is_ok_and(|path| path.starts_with(dir));
    let how = if leads(proc.join("cwd")) || leads(proc.join("root")) {
        "is in it"
    } else if std::fs::read_dir(proc.join("fd"))
        .into_iter()
        .flatten()
        .flatten()
        .any(|fd| leads(fd.path()))
    {
        "has a file open"
    } else if leads(proc.join("exe"))
        || maps(&std::fs::read(proc.join("maps")).unwrap_or_default(), dir)
    {
        "has a file mapped"
    } else {
        return None;
    };
    let name = std::fs::read_to_string(proc.join("comm")).unwrap_or_default();
    Some(format!("process {pid} ({}) {how}", name.trim()))
}

/// Whether one of these lines of `/proc/PID/maps` names a file in a directory.
fn maps(text: &[u8], dir: &Path) -> bool {
    let path = |line: &[u8]| {
        let begins = line.iter().position(|byte| *byte == b'/')?;
        Some(Path::new(OsStr::from_bytes(&line[begins..])).starts_with(dir))
    };
    text.split(|byte| *byte == b'\n')
        .filter_map(path)
        .any(|inside| inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_a_file_open_uses_its_directory() {
        let dir = std::env::temp_dir().canonicalize().expect("it is there");
        let dir = dir.join(format!("nacre-users-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a folder");
        let me = std::process::id();
        assert_eq!(use_of(me, &dir), None);
        let file = std::fs::File::create(dir.join("open")).expect("writable");
        let said = use_of(me, &dir).expect("it is open");
        assert!(
            said.starts_with(&format!("process {me} (")) && said.ends_with(") has a file open"),
            "{said}"
        );
        drop(file);
        assert_eq!(use_of(me, &dir), None);
        std::fs::remove_dir_all(dir).expect("ours");
    }

    #[test]
    fn maps_have_a_path_at_their_end() {
        let text = b"7f00-7f01 r--s 00000000 00:36 12    /mnt/a b/file\n7f02-7f03 rw-p 00000000 00:00 0 [heap]\n";
        assert!(maps(text, Path::new("/mnt/a b")));
        assert!(!maps(text, Path::new("/mnt/a")));
    }

    #[test]
    fn many_users_are_counted() {
        let users: Vec<String> = (1..=7).map(|n| format!("p{n}")).collect();
        assert_eq!(
            sentence(&users).as_deref(),
            Some("p1, p2, p3, p4, p5 and 2 more")
        );
        assert_eq!(sentence(&users[..2]).as_deref(), Some("p1, p2"));
        assert_eq!(sentence(&[]), None);
    }
}
