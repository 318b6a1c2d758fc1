//! Adding and removing daemons: the monitors' state, the store, and the entry in `cluster.toml`
//! change together.
//!
//! ```text
//!  osd add:  checks here ─▶ monitors reserve number and place ─▶ store, entry      failure: the reservation is cancelled
//!  mon add:  checks here ─▶ monitors add it                   ─▶ store, entry      failure: it is removed again
//!  rm:       monitors agree (and a monitor has left) ─▶ entry is removed; the store's file stays for the operator to remove
//! ```

use super::{Place, Session};
use crate::out::Out;
use anyhow::{Context, Result, anyhow, bail};
use nacre_command::{Command, OsdAdd, Store, Whole};
use nacre_node::config::{FILE_NAME, MON_BYTES, MonEntry, OSD_BYTES, OsdEntry, parse_size};
use nacre_node::{Config, directory, locks, machine, port_is_free};
use nacre_types::{MonId, OsdId};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Time limit of a monitor's removal.
const LEAVES_IN: Duration = Duration::from_secs(30);

/// Parses a human-readable size.
pub fn size(text: &str) -> Result<u64, String> {
    parse_size(text).ok_or_else(|| format!("`{text}` is no size; write it like 10GiB"))
}

/// Where a new daemon's things are.
#[derive(clap::Args)]
pub struct Where {
    /// IP:PORT where it will listen; the port after the last one without.
    #[arg(long)]
    address: Option<String>,
    /// Its store: a file that does not exist yet, or an empty block device; KIND.ID/store in the
    /// cluster's folder without.
    #[arg(long)]
    path: Option<PathBuf>,
    /// Size of the store, if it is a file, such as 10GiB.
    #[arg(long, value_parser = size)]
    size: Option<u64>,
}

/// OSDs that come and go.
#[derive(clap::Subcommand)]
pub enum Osd {
    /// Add an OSD: reserves its number and place, makes its store and its entry in cluster.toml.
    Add {
        /// Its number; the lowest free one without.
        #[arg(long)]
        id: Option<u32>,
        /// Its device class, such as hdd or ssd.
        #[arg(long, default_value = "ssd")]
        class: String,
        /// The host it counts for in placement: copies go to different hosts. A host of its own
        /// without.
        #[arg(long)]
        host: Option<String>,
        #[command(flatten)]
        at: Where,
    },
    /// Forget an OSD that is gone for good; it must be down and out, and nothing may need it.
    Rm {
        /// `3` or `osd.3`.
        osd: nacre_command::Osd,
        /// Even if some placement group still needs it; what only it has is lost.
        #[arg(long)]
        force: bool,
    },
}

/// Monitors that come and go.
#[derive(clap::Subcommand)]
pub enum Mon {
    /// Let a monitor in: makes its store, ready for joining, and its entry in cluster.toml.
    Add {
        /// Its number.
        id: u32,
        /// IP:PORT where it will listen; the port after the last one without.
        address: Option<String>,
        /// Its store: a file that does not exist yet, or an empty block device; mon.ID/store in
        /// the cluster's folder without.
        #[arg(long)]
        path: Option<PathBuf>,
        /// Size of the store, if it is a file, such as 256MiB.
        #[arg(long, value_parser = size)]
        size: Option<u64>,
    },
    /// Remove a monitor, also its entry in cluster.toml.
    Rm {
        /// `2` or `mon.2`.
        mon: nacre_command::Mon,
    },
}

/// How to start an added daemon, depending on what runs now.
fn how_to_start(config: &Config, kind: &str, id: u32) -> Result<String> {
    let holders = locks::holders(&config.dir)?;
    let embedded = holders
        .iter()
        .any(|holder| holder.part == locks::Part::Embedded);
    let file = config.dir.join(FILE_NAME);
    Ok(if embedded {
        "it starts with the next `nacre up` (the cluster runs in one process)".to_owned()
    } else {
        format!(
            "start it: nacre {kind} run --config {} --id {id}",
            file.display()
        )
    })
}

/// The requested address, or the next free one.
fn free_address(config: &Config, who: &str, wanted: Option<String>) -> Result<String> {
    if let Some(address) = wanted {
        port_is_free(who, &address)?;
        return Ok(address);
    }
    let first = config.next_address();
    let Some((host, port)) = first.rsplit_once(':') else {
        return Ok(first);
    };
    let port: u16 = port.parse().context("a port is a number")?;
    let mut candidates = (port..=port.saturating_add(100)).map(|port| format!("{host}:{port}"));
    candidates
        .find(|address| port_is_free(who, address).is_ok())
        .with_context(|| format!("no port from {port} on is free; name one with --address"))
}

fn store_path(config: &Config, who: &str, wanted: Option<PathBuf>) -> Result<PathBuf> {
    match wanted {
        None => Ok(config.dir.join(format!("{who}/store"))),
        Some(path) => {
            std::path::absolute(&path).with_context(|| format!("finding {}", path.display()))
        }
    }
}

/// Adds and removes OSDs.
///
/// # Errors
/// When the monitors refuse, or the store cannot be made.
pub fn osd(command: Osd, place: &Place, out: &mut Out) -> Result<()> {
    match command {
        Osd::Add {
            id,
            class,
            host,
            at,
        } => osd_add(id, class, host, at, place, out),
        Osd::Rm { osd, force } => osd_rm(osd.0, force, place, out),
    }
}

fn osd_add(
    id: Option<u32>,
    class: String,
    host: Option<String>,
    at: Where,
    place: &Place,
    out: &mut Out,
) -> Result<()> {
    let (_changing, mut config) = place.config_to_change()?;
    let mut cluster = place.connect()?;
    let tree = cluster.command(&Command::OsdTree {})?;
    let of_hosts = tree["hosts"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|host| host["osds"].as_array())
        .flatten();
    let strays = tree["without_a_place"].as_array().into_iter().flatten();
    let known: Vec<&Value> = of_hosts.chain(strays).collect();
    let is_known = |id: u32| {
        known
            .iter()
            .find(|osd| osd["id"].as_u64() == Some(u64::from(id)))
    };
    let id = match id {
        Some(id) => id,
        None => (0..1 << 20)
            .find(|id| is_known(*id).is_none() && !config.osds.contains_key(&OsdId(*id)))
            .context("all numbers are taken")?,
    };
    let osd = OsdId(id);
    if config.osds.contains_key(&osd) {
        bail!(
            "{osd} is in {} already; `nacre osd tree` lists what there is",
            config.dir.join(FILE_NAME).display()
        );
    }
    let path = store_path(&config, &osd.to_string(), at.path)?;
    let bytes = machine::block_device_length(&path)
        .or(at.size)
        .unwrap_or(OSD_BYTES);
    let entry = OsdEntry {
        address: free_address(&config, &osd.to_string(), at.address)?,
        path,
        size: bytes,
        class: class.clone(),
        host: host.unwrap_or_else(|| format!("host{id}")),
    };
    directory::may_add_osd(&config, osd, &entry)?;
    // Its store is named before it is made: any other store with this number, such as a removed
    // one, is refused.
    let store = directory::random_u128();
    cluster.command(&Command::OsdAdd(OsdAdd {
        osd: Some(nacre_command::Osd(osd)),
        class: Some(class),
        host: Some(entry.host.clone()),
        capacity: Some(Whole(bytes)),
        store: Some(Store(store)),
    }))?;
    let shown = entry.clone();
    if let Err(why) = directory::add_osd(&mut config, osd, entry, store) {
        let (osd, store) = (nacre_command::Osd(osd), Some(Store(store)));
        let undone = cluster.command(&Command::OsdRm {
            osd,
            force: true,
            store,
        });
        let undone = if undone.is_ok() {
            "nothing was added"
        } else {
            "its number stays reserved: `nacre osd rm` it"
        };
        return Err(anyhow!("{why}; {undone}"));
    }
    let next = how_to_start(&config, "osd", id)?;
    if out.json() {
        return out.value(&json!({
            "id": id, "address": shown.address, "path": shown.path.display().to_string(), "size_bytes": bytes,
            "class": shown.class, "host": shown.host, "next": next,
        }));
    }
    let (path, size) = (shown.path.display(), crate::table::bytes(bytes));
    out.line(&format!(
        "{osd} is added ({size} in {path}, class {}, host {}); {next}",
        shown.class, shown.host
    ))
}

fn osd_rm(osd: OsdId, force: bool, place: &Place, out: &mut Out) -> Result<()> {
    let (_changing, mut config) = place.config_to_change()?;
    let mut cluster = place.connect()?;
    // The current store: if this command arrived after the number was reassigned, the new OSD would
    // stay.
    let map = cluster.command(&Command::MapDump {})?;
    let known = listed(&map, "osds", osd.0);
    let answer = if known.is_none() && config.osds.contains_key(&osd) {
        // An earlier removal was executed without an answer.
        let lost = "the cluster did not have it any more";
        Ok(json!({ "id": osd.0, "lost": lost, "lost_groups": 0 }))
    } else {
        let store = known.and_then(store_of).filter(|store| store.0 != 0);
        cluster.command(&Command::OsdRm {
            osd: nacre_command::Osd(osd),
            force,
            store,
        })
    };
    let reply = answer.map_err(|why| {
        let text = format!("{why:#}");
        if !text.contains("is up; stop it first") {
            return why;
        }
        let pid = place.run_folder().join(format!("{osd}.pid"));
        anyhow!(
            "{text} (`kill $(cat {})`, or `nacre osd down` if it is gone but still marked up; in an embedded cluster: take its section out of cluster.toml and start again)",
            pid.display()
        )
    })?;
    let id = OsdId(
        reply["id"]
            .as_u64()
            .and_then(|id| u32::try_from(id).ok())
            .context("the answer names no OSD")?,
    );
    let entry = config.osds.remove(&id);
    if entry.is_some() {
        config.save()?;
    }
    if out.json() {
        let left = entry.map(|entry| entry.path.display().to_string());
        let (lost, groups) = (&reply["lost"], &reply["lost_groups"]);
        return out.value(
            &json!({ "id": id.0, "lost": lost, "lost_groups": groups, "store_left": left }),
        );
    }
    let lost = reply["lost"]
        .as_str()
        .unwrap_or("what that costs is not known");
    out.line(&format!("{id} is removed; {lost}"))?;
    match entry {
        Some(entry) => out.line(&format!(
            "its store {} is left; remove it when nothing is missing",
            entry.path.display()
        )),
        None => Ok(()),
    }
}

/// Adds and removes monitors.
///
/// # Errors
/// When the monitors refuse, or the store cannot be made.
pub fn mon(command: Mon, place: &Place, out: &mut Out) -> Result<()> {
    match command {
        Mon::Add {
            id,
            address,
            path,
            size,
        } => mon_add(MonId(id), address, path, size, place, out),
        Mon::Rm { mon } => mon_rm(mon.0, place, out),
    }
}

fn mon_add(
    id: MonId,
    address: Option<String>,
    path: Option<PathBuf>,
    size: Option<u64>,
    place: &Place,
    out: &mut Out,
) -> Result<()> {
    let (_changing, mut config) = place.config_to_change()?;
    if config.mons.contains_key(&id) {
        bail!(
            "{id} is in {} already; `nacre mon stat` lists what there is",
            config.dir.join(FILE_NAME).display()
        );
    }
    let path = store_path(&config, &id.to_string(), path)?;
    let bytes = machine::block_device_length(&path)
        .or(size)
        .unwrap_or(MON_BYTES);
    let entry = MonEntry {
        address: free_address(&config, &id.to_string(), address)?,
        path,
        size: bytes,
    };
    directory::may_add_mon(&config, id, &entry)?;
    let mut cluster = place.connect()?;
    // An earlier store of this number made commitments to the other monitors: this one has its own
    // number.
    let number = directory::random_mon_store();
    let store = Store(number.into());
    cluster.command(&Command::MonAdd {
        id: nacre_command::Mon(id),
        address: entry.address.clone(),
        store,
    })?;
    let shown = entry.clone();
    if let Err(why) = directory::add_mon(&mut config, id, entry, number) {
        let undone = cluster.command(&Command::MonRm {
            id: nacre_command::Mon(id),
            store: Some(store),
        });
        let undone = if undone.is_ok() {
            "nothing was added"
        } else {
            "it is still expected: `nacre mon rm` it"
        };
        return Err(anyhow!("{why}; {undone}"));
    }
    let next = how_to_start(&config, "mon", id.0)?;
    if out.json() {
        let path = shown.path.display().to_string();
        return out.value(&json!({
            "id": id.0, "address": shown.address, "path": path, "size_bytes": bytes, "next": next,
        }));
    }
    out.line(&format!(
        "{id} is let in at {}; {next}; it votes once it has caught up",
        shown.address
    ))
}

/// The entry of that number in a list of an answer.
fn listed<'a>(answer: &'a Value, list: &str, id: u32) -> Option<&'a Value> {
    answer[list]
        .as_array()?
        .iter()
        .find(|known| known["id"].as_u64() == Some(u64::from(id)))
}

fn store_of(listed: &Value) -> Option<Store> {
    listed["store"].as_str()?.parse().ok()
}

/// A monitor's own vote may be needed for its removal: if it ended earlier, the others might wait
/// for it for ever.
fn wait_until_gone(cluster: &mut dyn Session, id: MonId) -> Result<()> {
    let begun = Instant::now();
    loop {
        let stat = cluster.command(&Command::MonStat {})?;
        if listed(&stat, "mons", id.0).is_none() {
            return Ok(());
        }
        if begun.elapsed() > LEAVES_IN {
            bail!(
                "{id} is to leave, and has not left within {} s: keep it running, start the monitors that do not run (`nacre mon stat`), and remove it again",
                LEAVES_IN.as_secs()
            );
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn mon_rm(mon: MonId, place: &Place, out: &mut Out) -> Result<()> {
    let (_changing, mut config) = place.config_to_change()?;
    let mut cluster = place.connect()?;
    let stat = cluster.command(&Command::MonStat {})?;
    let known = listed(&stat, "mons", mon.0);
    let reply = if known.is_none() && config.mons.contains_key(&mon) {
        // An earlier removal was executed without an answer.
        json!({ "id": mon.0, "left": stat["mons"].as_array().map(Vec::len) })
    } else {
        // The current store: a late removal does not remove its successor.
        let (id, store) = (nacre_command::Mon(mon), known.and_then(store_of));
        cluster.command(&Command::MonRm { id, store })?
    };
    let id = MonId(
        reply["id"]
            .as_u64()
            .and_then(|id| u32::try_from(id).ok())
            .context("the answer names no monitor")?,
    );
    wait_until_gone(&mut *cluster, id)?;
    let entry = config.mons.remove(&id);
    if entry.is_some() && !config.mons.is_empty() {
        config.save()?;
    }
    if out.json() {
        let left = entry.map(|entry| entry.path.display().to_string());
        return out.value(&json!({ "id": id.0, "left": reply["left"], "store_left": left }));
    }
    out.line(&format!("{id} is removed, {} are left", reply["left"]))?;
    match entry {
        Some(entry) => {
            let path = entry.path.display();
            out.line(&format!(
                "end its process if it runs; its store {path} is of no more use and may be removed"
            ))
        }
        None => Ok(()),
    }
}
