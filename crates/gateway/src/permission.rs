//! Checks whether this process may mount at all.
//!
//! Mounting needs the capability `CAP_SYS_ADMIN`; for users without it the helper `fusermount3`,
//! which has it, mounts.

use crate::error::MountError;
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

/// The kernel's FUSE device.
const DEVICE: &str = "/dev/fuse";
/// Programs that mount and unmount for users.
pub const HELPERS: [&str; 2] = ["fusermount3", "fusermount"];
/// The number of `CAP_SYS_ADMIN`.
const SYS_ADMIN: u32 = 21;

/// Checks the device and the process's capabilities, and looks for a mount helper.
///
/// # Errors
/// [`MountError::NoDevice`], [`MountError::DeviceDenied`], [`MountError::NotPermitted`].
pub fn may_mount() -> Result<(), MountError> {
    match File::options().read(true).write(true).open(DEVICE) {
        Ok(_) => {}
        Err(why) if why.kind() == ErrorKind::PermissionDenied => {
            return Err(MountError::DeviceDenied);
        }
        Err(_) => return Err(MountError::NoDevice),
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let has = |set: &str| has_capability(&status, set, SYS_ADMIN);
    // The helper gets what the bounding set allows, also when a user starts it.
    let by_helper =
        has("CapBnd:").unwrap_or(true) && HELPERS.iter().any(|helper| is_installed(helper));
    // If it cannot be read, it is assumed: the kernel will decide.
    if has("CapEff:").unwrap_or(true) || by_helper {
        Ok(())
    } else {
        Err(MountError::NotPermitted)
    }
}

/// Whether a set in `/proc/PID/status` has a capability; `None`: the set is missing.
fn has_capability(status: &str, set: &str, capability: u32) -> Option<bool> {
    let line = status.lines().find_map(|line| line.strip_prefix(set))?;
    let bits = u64::from_str_radix(line.trim(), 16).ok()?;
    Some(bits >> capability & 1 == 1)
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path).map(|folder| folder.join(program));
    folders.any(|file| file.is_file()) || Path::new("/bin").join(program).is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_bits_of_a_line() {
        let root = "Name:\tx\nCapEff:\t000001ffffffffff\nCapBnd:\t000001ffffffffff\n";
        let container = "Name:\tx\nCapEff:\t00000000a80425fb\nCapBnd:\t00000000a80425fb\n";
        assert_eq!(has_capability(root, "CapEff:", SYS_ADMIN), Some(true));
        assert_eq!(has_capability(container, "CapEff:", SYS_ADMIN), Some(false));
        assert_eq!(has_capability("Name:\tx\n", "CapEff:", SYS_ADMIN), None);
    }
}
