//! What the kernel says of the thread whose request this is, where the library passes on too little:
//!
//! * fuser 0.18 does not say of a lock whether it is of `fcntl` or of `flock` (`FUSE_LK_FLOCK`): the thread is in one
//!   of these system calls, and `/proc/TID/syscall` says in which.
//! * It refuses `FUSE_INTERRUPT`, so that the kernel sends none and waits for the reply: whether a signal has come for
//!   the thread, `/proc/TID/status` says.

use std::fs;
use std::time::Duration;

/// How often, and after how long, to look again at a thread that has not gone to sleep.
const LOOKS: u32 = 20;
const LOOK_AGAIN: Duration = Duration::from_micros(50);

/// `flock`: x86-64, i386 and 32-bit ARM, the others.
const FLOCK: [u32; 3] = [73, 143, 32];

/// Whether a thread is in `flock`; `None`: this process may not see that.
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

/// Whether a thread is to handle a signal, or has ended. Then its system call may end as interrupted; without a signal
/// it must not: the kernel would show the program an error that does not exist.
pub fn is_interrupted(thread: u32) -> bool {
    // Zero: it is in another namespace.
    if thread == 0 {
        return false;
    }
    match fs::read_to_string(format!("/proc/{thread}/status")) {
        Ok(status) => has_signal(&status).unwrap_or(false),
        Err(why) => why.kind() == std::io::ErrorKind::NotFound,
    }
}

fn has_signal(status: &str) -> Option<bool> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim));
    let signals = |name| u64::from_str_radix(field(name)?, 16).ok();
    let taken = !(signals("SigBlk")? | signals("SigIgn")?);
    // What the whole process has got goes to its first thread, if that takes it.
    let shared = if field("Pid")? == field("Tgid")? { signals("ShdPnd")? } else { 0 };
    Some((signals("SigPnd")? | shared) & taken != 0)
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
        assert_eq!(has_signal(&status(8, 0, 4, 0, 0)), Some(false), "the first thread takes it");
        assert_eq!(has_signal("Name:\tx\n"), None);
    }

    #[test]
    fn this_kernel_says_it() {
        let own = u32::try_from(rustix::process::getpid().as_raw_nonzero().get()).expect("positive");
        assert!(!is_interrupted(own) && !is_interrupted(0));
        assert!(is_interrupted(u32::MAX), "there is no such thread");
    }
}
