//! What the kernel knows about the requesting thread, where the library passes on too little:
//!
//! * fuser 0.18 does not tell whether a lock is of `fcntl` or of `flock` (`FUSE_LK_FLOCK`): the
//!   thread is in one of these system calls, and `/proc/TID/syscall` shows which.
//! * It refuses `FUSE_INTERRUPT`, so the kernel sends none and waits for the reply:
//!   `/proc/TID/status` shows whether the thread has a pending signal.
//! * It drops a flag that comes with an access control list (`FUSE_SETXATTR_ACL_KILL_SGID`): the
//!   same file shows the thread's groups.

use fuser::Request;
use std::fs;
use std::time::Duration;

/// How often, and at which interval, to check a thread that has not gone to sleep.
const LOOKS: u32 = 20;
const LOOK_AGAIN: Duration = Duration::from_micros(50);

/// `flock`: x86-64, i386 and 32-bit ARM, the others.
const FLOCK: [u32; 3] = [73, 143, 32];

/// Whether a thread is in `flock`; `None`: this process cannot see that.
pub fn is_in_flock(thread: u32) -> Option<bool> {
    for _ in 0..LOOKS {
        let text = fs::read_to_string(format!("/proc/{thread}/syscall")).ok()?;
        if let Ok(number) = text.split(' ').next()?.trim().parse::<u32>() {
            return Some(FLOCK.contains(&number));
        }
        // It has sent its request and is about to wait.
        std::thread::sleep(LOOK_AGAIN);
    }
    None
}

/// Whether a thread has a signal to handle, or has ended. Then its system call may end as
/// interrupted; without a signal it must not: the kernel would pass an invalid error to the
/// program.
pub fn is_interrupted(thread: u32) -> bool {
    // Zero: the thread is in another namespace.
    if thread == 0 {
        return false;
    }
    match fs::read_to_string(format!("/proc/{thread}/status")) {
        Ok(status) => has_signal(&status).unwrap_or(false),
        Err(why) => why.kind() == std::io::ErrorKind::NotFound,
    }
}

fn has_signal(status: &str) -> Option<bool> {
    let field = |name| field(status, name);
    let signals = |name| u64::from_str_radix(field(name)?, 16).ok();
    let taken = !(signals("SigBlk")? | signals("SigIgn")?);
    // A signal for the whole process goes to its first thread, if that accepts it.
    let shared = if field("Pid")? == field("Tgid")? {
        signals("ShdPnd")?
    } else {
        0
    };
    Some((signals("SigPnd")? | shared) & taken != 0)
}

/// The caller of a request.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    uid: u32,
    gid: u32,
    thread: u32,
}

impl Caller {
    /// The caller of this request.
    pub fn of(request: &Request) -> Self {
        Self {
            uid: request.uid(),
            gid: request.gid(),
            thread: request.pid(),
        }
    }
    /// Whether the caller is in a group, or may ignore that for set-id files (`CAP_FSETID`). If
    /// this process sees nothing else of the caller, the ids decide.
    pub fn is_of(self, gid: u32) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.thread))
            .ok()
            .filter(|_| self.thread != 0);
        let may = status.as_deref().and_then(may_set_ids).unwrap_or(true);
        // A caller with that capability in its own user namespace is an ordinary user here.
        self.gid == gid
            || (self.uid == 0 && may)
            || status
                .as_deref()
                .is_some_and(|status| has_group(status, gid))
    }
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
}
fn has_group(status: &str, gid: u32) -> bool {
    let groups = field(status, "Groups").unwrap_or_default();
    groups
        .split_whitespace()
        .any(|group| group.parse() == Ok(gid))
}
fn may_set_ids(status: &str) -> Option<bool> {
    const FSETID: u64 = 1 << 4;
    Some(u64::from_str_radix(field(status, "CapEff")?, 16).ok()? & FSETID != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(pid: u32, pending: u64, shared: u64, blocked: u64, ignored: u64) -> String {
        format!(
            "Name:\tx\nTgid:\t7\nPid:\t{pid}\nPPid:\t1\nSigPnd:\t{pending:016x}\nShdPnd:\t{shared:016x}\n\
             SigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\n"
        )
    }

    #[test]
    fn a_signal_interrupts_the_thread_that_is_to_take_it() {
        let kill = 1 << 8;
        assert_eq!(has_signal(&status(7, 0, 0, 0, 0)), Some(false));
        assert_eq!(has_signal(&status(8, kill, 0, 0, 0)), Some(true));
        assert_eq!(has_signal(&status(7, 0, 4, 0, 0)), Some(true));
        assert_eq!(has_signal(&status(7, 0, 4, 4, 0)), Some(false), "blocked");
        assert_eq!(has_signal(&status(7, 0, 4, 0, 4)), Some(false), "ignored");
        assert_eq!(
            has_signal(&status(8, 0, 4, 0, 0)),
            Some(false),
            "the first thread takes it"
        );
        assert_eq!(has_signal("Name:\tx\n"), None);
    }

    #[test]
    fn groups_and_rights_are_read() {
        let status = "Gid:\t5\t5\t5\t5\nGroups:\t7 12 \nCapEff:\t0000000000000010\n";
        assert!(
            has_group(status, 7)
                && has_group(status, 12)
                && !has_group(status, 1)
                && !has_group("", 0)
        );
        assert_eq!(
            (
                may_set_ids(status),
                may_set_ids("CapEff:\tf\n"),
                may_set_ids("")
            ),
            (Some(true), Some(false), None)
        );
        let caller = |uid, gid| Caller {
            uid,
            gid,
            thread: 0,
        };
        assert!(caller(9, 3).is_of(3) && !caller(9, 3).is_of(4) && caller(0, 3).is_of(4));
    }

    #[test]
    fn this_kernel_says_it() {
        let own =
            u32::try_from(rustix::process::getpid().as_raw_nonzero().get()).expect("positive");
        assert!(!is_interrupted(own) && !is_interrupted(0));
        assert!(is_interrupted(u32::MAX), "there is no such thread");
    }
}
