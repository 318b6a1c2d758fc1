//! `nacre fs quota …`: limits of the contents of a directory.

use super::one;
use crate::cluster::{Place, host};
use crate::out::Out;
use crate::table::{Column, table};
use anyhow::{Result, anyhow, ensure};
use clap::Subcommand;
use nacre_mds::evaluate::errno::{ENOENT, ENOTDIR};
use nacre_node::FileSystem;
use nacre_wire::fs::{FsQuota, QuotaKind};
use serde_json::{Value, json};

#[derive(Subcommand)]
pub enum Quota {
    /// Bound what may be below a directory: what would go beyond that fails with EDQUOT. What is
    /// there stays, also if it is more.
    Set {
        /// Of which file system.
        name: String,
        /// The directory's path in it.
        path: String,
        /// Most bytes, such as 10GiB: sizes of files, with their holes.
        #[arg(long, value_name = "SIZE", value_parser = bytes, required_unless_present = "files")]
        bytes: Option<u64>,
        /// Most files and directories.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        files: Option<u64>,
    },
    /// Show a directory's quotas, and how much of them is used.
    Get {
        /// Of which file system.
        name: String,
        /// The directory's path in it.
        path: String,
    },
    /// Remove a directory's quotas: those of directories above it still count.
    Rm {
        /// Of which file system.
        name: String,
        /// The directory's path in it.
        path: String,
        /// Only the one of bytes.
        #[arg(long)]
        bytes: bool,
        /// Only the one of files.
        #[arg(long)]
        files: bool,
    },
}

fn bytes(text: &str) -> Result<u64, String> {
    match crate::cluster::members::size(text)? {
        0 => Err("a quota of 0 bytes is none; `nacre fs quota rm` removes one".to_owned()),
        bytes => Ok(bytes),
    }
}

const COLUMNS: &[Column] = &[
    ("QUOTA", "quota"),
    ("MAX", "max"),
    ("USED", "used"),
    ("LEFT", "left"),
];

pub fn run(command: &Quota, place: &Place, out: &mut Out) -> Result<()> {
    match command {
        Quota::Set {
            name,
            path,
            bytes,
            files,
        } => {
            let bounds = [(QuotaKind::Bytes {}, *bytes), (QuotaKind::Files {}, *files)];
            let bounds: Vec<_> = bounds
                .into_iter()
                .filter(|(_, max)| max.is_some())
                .collect();
            set(name, path, &bounds, place, out)
        }
        Quota::Rm {
            name,
            path,
            bytes,
            files,
        } => {
            let both = bytes == files;
            let kinds = [
                (QuotaKind::Bytes {}, both || *bytes),
                (QuotaKind::Files {}, both || *files),
            ];
            let bounds: Vec<_> = kinds
                .into_iter()
                .filter(|(_, wanted)| *wanted)
                .map(|(kind, _)| (kind, None))
                .collect();
            set(name, path, &bounds, place, out)
        }
        Quota::Get { name, path } => {
            let quotas = with(name, path, place, |files, names| files.quotas(names))?;
            show(name, path, &quotas, out)
        }
    }
}

fn set(
    name: &str,
    path: &str,
    bounds: &[(QuotaKind, Option<u64>)],
    place: &Place,
    out: &mut Out,
) -> Result<()> {
    let quotas = with(name, path, place, |files, names| {
        files.set_quota(names, bounds)?;
        files.quotas(names)
    })?;
    show(name, path, &quotas, out)
}

/// Runs an operation on a directory.
fn with<T>(
    name: &str,
    path: &str,
    place: &Place,
    what: impl FnOnce(&FileSystem, &[&str]) -> Result<T, u16>,
) -> Result<T> {
    let shown = one(name, &mut *place.metadata()?)?;
    ensure!(
        !shown.holders.is_empty(),
        "no server has file system {name}: start the cluster with `nacre up`, or a server with `nacre mds run`"
    );
    let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
    let files = host::file_system(place, name, &super::about())?;
    what(&files, &names).map_err(|errno| match errno {
        ENOENT => anyhow!("there is no directory {path} in file system {name}"),
        ENOTDIR => anyhow!("{path} is no directory, or something on the way to it is none"),
        errno => anyhow!(
            "it was not done: {}",
            std::io::Error::from_raw_os_error(errno.into())
        ),
    })
}

fn show(name: &str, path: &str, quotas: &[FsQuota], out: &mut Out) -> Result<()> {
    if out.json() {
        let of = |kind| quotas.iter().find(|quota| quota.kind == kind);
        let value = |quota: Option<&FsQuota>| {
            quota.map_or(
                Value::Null,
                |quota| json!({ "max": quota.max, "used": quota.used, "left": quota.left() }),
            )
        };
        let (bytes, files) = (
            value(of(QuotaKind::Bytes {})),
            value(of(QuotaKind::Files {})),
        );
        return out.value(&json!({ "name": name, "path": path, "bytes": bytes, "files": files }));
    }
    if quotas.is_empty() {
        return out.line(&format!("{path} has no quota"));
    }
    let row = |quota: &FsQuota| {
        let (kind, shown): (_, fn(u64) -> String) = match quota.kind {
            QuotaKind::Bytes {} => ("bytes", crate::table::bytes),
            QuotaKind::Files {} => ("files", |count| count.to_string()),
        };
        json!({ "quota": kind, "max": shown(quota.max), "used": shown(quota.used), "left": shown(quota.left()) })
    };
    let rows: Vec<Value> = quotas.iter().map(row).collect();
    out.bytes(table(COLUMNS, &rows).as_bytes())
}
