//! `nacre fs clients`, `nacre fs evict`: the clients of a file system, and the end of one that does
//! not answer.

use crate::cluster::{Place, host};
use crate::out::Out;
use crate::table::{Column, table};
use anyhow::{Result, anyhow, bail, ensure};
use nacre_node::FileSystem;
use nacre_wire::msg::fs::FsClient;
use serde_json::{Value, json};

const COLUMNS: &[Column] = &[
    ("CLIENT", "client"),
    ("OPEN", "open"),
    ("WRITING", "writing"),
    ("REQUESTS", "requests"),
    ("SILENT", "silent"),
    ("STATE", "state"),
    ("ABOUT", "about"),
];

/// Lists the clients.
///
/// # Errors
/// The file system has no server.
pub fn list(name: &str, place: &Place, out: &mut Out) -> Result<()> {
    let files = connect(name, place)?;
    let me = files.id();
    let rows: Vec<Value> = all(&files, name)?
        .iter()
        .filter(|client| client.client != me)
        .map(row)
        .collect();
    if out.json() {
        return out.value(&Value::Array(rows));
    }
    out.bytes(table(COLUMNS, &rows).as_bytes())
}

/// Ends a client's session.
///
/// # Errors
/// There is none of this name.
pub fn evict(name: &str, which: &str, place: &Place, out: &mut Out) -> Result<()> {
    let files = connect(name, place)?;
    let all = all(&files, name)?;
    let Some(client) = all.iter().find(|client| client.client.to_string() == which) else {
        bail!("file system {name} has no client {which}; `nacre fs clients {name}` shows them");
    };
    ensure!(client.client != files.id(), "that is this command");
    files
        .evict(client.client)
        .map_err(|errno| failed(name, errno))?;
    if out.json() {
        return out.value(&json!({ "name": name, "client": which }));
    }
    out.line(&format!(
        "{which} is evicted: what it had not written is lost, and its locks are free in a moment"
    ))
}

/// Clients other than this command, human-readable.
///
/// # Errors
/// The file system has no server.
pub fn others(name: &str, place: &Place) -> Result<Vec<String>> {
    let files = connect(name, place)?;
    let mut all = all(&files, name)?;
    all.retain(|client| client.client != files.id());
    Ok(all
        .iter()
        .map(|client| format!("{} ({})", client.client, client.about))
        .collect())
}

fn connect(name: &str, place: &Place) -> Result<FileSystem> {
    host::file_system(place, name, &super::about())
}
fn all(files: &FileSystem, name: &str) -> Result<Vec<FsClient>> {
    files.clients().map_err(|errno| failed(name, errno))
}
fn failed(name: &str, errno: u16) -> anyhow::Error {
    let why = std::io::Error::from_raw_os_error(errno.into());
    anyhow!("the server of file system {name} did not do it: {why}")
}
fn row(client: &FsClient) -> Value {
    let FsClient {
        client,
        instance,
        about,
        open,
        writing,
        silent_ms,
        evicting,
        requests,
    } = client;
    let state = if *evicting { "being evicted" } else { "here" };
    json!({
        "client": client.to_string(), "instance": instance.0, "about": about.to_string(), "open": open,
        "writing": writing, "silent_ms": silent_ms, "silent": format!("{:.1} s", *silent_ms as f64 / 1000.0),
        "state": state, "requests": requests,
    })
}
