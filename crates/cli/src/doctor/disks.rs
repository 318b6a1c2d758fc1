//! The stores, and the disks and file systems below them.

use super::{Finding, error, ok, permissions, warn};
use crate::table::bytes;
use nacre_node::machine::{self, Keeps, Space};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A store: its owner and maximum size, and its path. Without an owner: a directory to examine.
pub type Store = (Option<(String, u64)>, PathBuf);

/// A file system, and the space that its stores may still use.
struct Disk {
    folder: PathBuf,
    still_to_grow: u64,
    stores: usize,
}

/// Examines all stores, and each of their file systems once.
pub fn look(stores: &[Store], findings: &mut Vec<Finding>) {
    let mut disks: BTreeMap<u64, Disk> = BTreeMap::new();
    for (owner, path) in stores {
        let Some((who, size)) = owner else {
            if let Ok(meta) = path.metadata() {
                disks.insert(
                    meta.dev(),
                    Disk {
                        folder: path.clone(),
                        still_to_grow: 0,
                        stores: 0,
                    },
                );
            }
            continue;
        };
        let meta = match path.metadata() {
            Ok(meta) => meta,
            Err(why) => {
                let text = format!(
                    "the store of {who} cannot be found at {}: {why}",
                    path.display()
                );
                findings.push(error(
                    "stores",
                    text,
                    "attach its disk, or correct `path` in cluster.toml",
                ));
                continue;
            }
        };
        if let Err(why) = std::fs::File::options().read(true).write(true).open(path) {
            let text = format!(
                "the store of {who} cannot be opened: {}: {why}",
                path.display()
            );
            findings.push(error(
                "rights",
                text,
                "run this and the daemons as its owner, or chown it",
            ));
        }
        findings.extend(permissions(path));
        if machine::block_device_length(path).is_some() {
            continue;
        }
        if meta.len() < *size {
            let text = format!(
                "the store of {who} has {}, but cluster.toml says {}; its own record of its size counts",
                bytes(meta.len()),
                bytes(*size)
            );
            findings.push(warn(
                "stores",
                text,
                "if it was cut off, bring it back from a copy of the disk; else correct `size`",
            ));
        }
        let folder = path.parent().unwrap_or(Path::new(".")).to_path_buf();
        let disk = disks.entry(meta.dev()).or_insert(Disk {
            folder,
            still_to_grow: 0,
            stores: 0,
        });
        disk.still_to_grow += meta.len().saturating_sub(meta.blocks() * 512);
        disk.stores += 1;
    }
    for disk in disks.values() {
        let at = disk.folder.display();
        match machine::file_system(&disk.folder) {
            Ok((kind, keeps)) => findings.push(file_system(&at.to_string(), kind, keeps)),
            Err(why) => findings.push(warn(
                "disk",
                format!("what {at} lies on cannot be found out: {why}"),
                "",
            )),
        }
        match machine::space(&disk.folder) {
            Ok(found) => findings.push(space(
                &at.to_string(),
                found,
                disk.still_to_grow,
                disk.stores,
            )),
            Err(why) => findings.push(warn(
                "space",
                format!("the space of {at} cannot be found out: {why}"),
                "",
            )),
        }
        match machine::flush_times(&disk.folder) {
            Ok(times) => findings.push(flushes(&at.to_string(), &times)),
            Err(why) => {
                let text = format!("{at} cannot be written: {why}");
                findings.push(error(
                    "flush",
                    text,
                    "see to it that the daemons' user may write there, and that it is not full",
                ));
            }
        }
    }
}

fn file_system(at: &str, kind: &str, keeps: Keeps) -> Finding {
    let move_it = "keep stores on a disk of this machine: `path` in cluster.toml, or another --dir";
    match keeps {
        Keeps::Data => ok("disk", format!("{at} is on {kind}")),
        Keeps::UntilRestart => error(
            "disk",
            format!("{at} is on {kind}: everything is gone when the machine restarts"),
            move_it,
        ),
        Keeps::WhileContainer => {
            let text =
                format!("{at} is on {kind}: in a container, everything is gone when it is removed");
            warn("disk", text, "mount a volume for the cluster's folder")
        }
        Keeps::Elsewhere => {
            let text = format!(
                "{at} is on {kind}: whether a flush there is durable is not up to this machine"
            );
            warn("disk", text, move_it)
        }
    }
}

/// Below this no daemon can work.
const SPACE_LEAST: u64 = 64 << 20;

fn space(at: &str, found: Space, still_to_grow: u64, stores: usize) -> Finding {
    let free = bytes(found.available);
    let advice = "add space, or put stores elsewhere (`nacre osd add --path`, then `nacre osd out` an old one)";
    if found.available < SPACE_LEAST {
        error("space", format!("{at} has {free} left"), advice)
    } else if still_to_grow > found.available {
        let text = format!(
            "the {stores} stores at {at} may still grow by {}, but {free} are free: a store whose file cannot grow stops",
            bytes(still_to_grow)
        );
        warn("space", text, advice)
    } else {
        ok(
            "space",
            format!("{at} has {free} of {} free", bytes(found.total)),
        )
    }
}

fn flushes(at: &str, times: &[Duration]) -> Finding {
    let ms = |part: usize| {
        times
            .get((times.len() * part / 100).min(times.len() - 1))
            .map_or(0.0, |t| t.as_secs_f64() * 1e3)
    };
    let (median, late) = (ms(50), ms(99));
    let text = format!(
        "{at}: 4 KiB written and flushed take {median:.2} ms, at worst {late:.2} ms ({} times)",
        times.len()
    );
    if median > 30.0 {
        let advice = "every write waits for this on each of its copies: use a disk with a protected cache, or an SSD";
        warn("flush", text, advice)
    } else if median < 0.01 {
        let advice = "no disk is that fast: something (a virtual disk's cache mode, nobarrier) may only pretend to flush";
        warn("flush", text, advice)
    } else {
        ok("flush", text)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;

    #[test]
    fn space_is_judged_by_what_stores_may_still_take() {
        let found = Space {
            total: 1 << 40,
            available: 10 << 30,
        };
        assert_eq!(space("/d", found, 1 << 30, 3).severity, Severity::Ok);
        assert_eq!(space("/d", found, 30 << 30, 3).severity, Severity::Warn);
        assert_eq!(
            space(
                "/d",
                Space {
                    available: 1 << 20,
                    ..found
                },
                0,
                0
            )
            .severity,
            Severity::Error
        );
    }

    #[test]
    fn what_does_not_keep_data_is_an_error() {
        assert_eq!(
            file_system("/d", "tmpfs", Keeps::UntilRestart).severity,
            Severity::Error
        );
        assert_eq!(
            file_system("/d", "NFS", Keeps::Elsewhere).severity,
            Severity::Warn
        );
        assert_eq!(
            file_system("/d", "ext4", Keeps::Data).severity,
            Severity::Ok
        );
    }

    #[test]
    fn flushes_that_are_slow_or_not_real_are_said() {
        let of = |us: u64| flushes("/d", &[Duration::from_micros(us)]).severity;
        assert_eq!(
            (of(400), of(50_000), of(2)),
            (Severity::Ok, Severity::Warn, Severity::Warn)
        );
    }
}
