//! `cluster.toml`: the settings a daemon needs before it can ask the monitors.
//! `docs/formats/config.md` describes it.
//!
//! Everything else is in the cluster's configuration database. Unknown keys are errors: a misspelt
//! key must not be ignored silently.

use crate::error::StartError;
use nacre_command::nearest;
use nacre_types::{ClusterId, MonId, OsdId};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// The file's name in a cluster's directory.
pub const FILE_NAME: &str = "cluster.toml";
/// Smallest store.
pub const STORE_BYTES_MIN: u64 = 16 << 20;
/// Smallest store for a monitor: it holds the log with its largest entries, two images of the
/// state, and an index. (In a store of 32 MiB the first large transaction of metadata was larger
/// than its log, and the monitor stopped, again after each start.)
pub const MON_BYTES_MIN: u64 = 128 << 20;
/// Store of a monitor, unless the file says otherwise.
pub const MON_BYTES: u64 = 256 << 20;
/// Store of an OSD, unless the file says otherwise.
pub const OSD_BYTES: u64 = 10 << 30;

const ANNOUNCES_END: &str = "The last line says that the file is whole.";
const END: &str = "# end of cluster.toml";

/// A monitor's entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonEntry {
    /// Its listening address, as `host:port`; empty: only inside an embedded cluster.
    pub address: String,
    /// Its store: a file, or a block device.
    pub path: PathBuf,
    /// Size of the file in bytes.
    pub size: u64,
}

/// An OSD's entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OsdEntry {
    /// Its listening address, as `host:port`; empty: only inside an embedded cluster.
    pub address: String,
    /// Its store: a file, or a block device.
    pub path: PathBuf,
    /// Size of the file in bytes; a block device has its own.
    pub size: u64,
    /// Device class for CRUSH.
    pub class: String,
    /// Host bucket for CRUSH: replicas go to different hosts.
    pub host: String,
}

/// The file's content, with paths made absolute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Identity of the cluster.
    pub cluster: ClusterId,
    /// Its directory: pid files and locks are below it.
    pub dir: PathBuf,
    /// Monitors.
    pub mons: BTreeMap<MonId, MonEntry>,
    /// OSDs.
    pub osds: BTreeMap<OsdId, OsdEntry>,
    /// Listening addresses of file system servers, by the number of their process; others find out
    /// theirs.
    pub servers: BTreeMap<u32, IpAddr>,
}

impl Config {
    /// Reads `cluster.toml`; `path` is the file or its directory.
    ///
    /// # Errors
    /// [`StartError`]: it cannot be read, or what is wrong in it.
    pub fn load(path: &Path) -> Result<Self, StartError> {
        let file = if path.is_dir() {
            path.join(FILE_NAME)
        } else {
            path.to_owned()
        };
        let text = std::fs::read_to_string(&file).map_err(|error| StartError::Io {
            doing: "read",
            path: file.clone(),
            error,
        })?;
        let dir = file
            .parent()
            .filter(|dir| !dir.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let dir = dir.canonicalize().map_err(|error| StartError::Io {
            doing: "find",
            path: dir.to_owned(),
            error,
        })?;
        Self::parse(&text, &dir).map_err(|why| StartError::Config { path: file, why })
    }

    /// Parses the file's text.
    ///
    /// # Errors
    /// What is wrong, human-readable.
    pub fn parse(text: &str, dir: &Path) -> Result<Self, String> {
        // A file cut off between two sections would still be well-formed, with fewer daemons.
        if text.contains(ANNOUNCES_END) && text.trim_end().lines().next_back() != Some(END) {
            return Err(format!(
                "it is cut off: its last line, `{END}`, is missing. Bring it back from a copy, or complete it"
            ));
        }
        let table: Table = text
            .parse()
            .map_err(|why: toml::de::Error| why.to_string().trim_end().to_owned())?;
        let root = Section {
            what: "cluster.toml".to_owned(),
            table: &table,
        };
        root.only(&["cluster", "mon", "osd", "mds"])?;
        let cluster = root
            .text("cluster")?
            .ok_or("the key `cluster` (the cluster's id) is missing")?;
        let cluster = u128::from_str_radix(&cluster, 16).ok().filter(|id| *id != 0).ok_or(format!(
            "`cluster = \"{cluster}\"` is no cluster id: 32 hexadecimal digits, as `init` wrote them"
        ))?;
        let mut config = Self::empty(ClusterId(cluster), dir);
        for section in root.sections("mon")? {
            section.only(&["id", "address", "path", "size"])?;
            let id = MonId(section.id()?);
            let entry = MonEntry {
                address: section.text("address")?.unwrap_or_default(),
                path: dir.join(
                    section
                        .text("path")?
                        .unwrap_or_else(|| format!("{id}/store")),
                ),
                size: section.size(MON_BYTES)?,
            };
            if config.mons.insert(id, entry).is_some() {
                return Err(format!("{id} is described twice"));
            }
        }
        for section in root.sections("osd")? {
            section.only(&["id", "address", "path", "size", "class", "host"])?;
            let id = OsdId(section.id()?);
            let entry = OsdEntry {
                address: section.text("address")?.unwrap_or_default(),
                path: dir.join(
                    section
                        .text("path")?
                        .unwrap_or_else(|| format!("{id}/store")),
                ),
                size: section.size(OSD_BYTES)?,
                class: section.text("class")?.unwrap_or_else(|| "ssd".to_owned()),
                host: section
                    .text("host")?
                    .unwrap_or_else(|| format!("host{}", id.0)),
            };
            if config.osds.insert(id, entry).is_some() {
                return Err(format!("{id} is described twice"));
            }
        }
        for section in root.sections("mds")? {
            section.only(&["id", "address"])?;
            let id = section.id()?;
            let address = section
                .text("address")?
                .ok_or(format!("{}: `address` is missing", section.what))?;
            let host = address.parse().map_err(|_| {
                format!("`{address}` of mds.{id} is no address of a host; write it like 127.0.0.1, without a port")
            })?;
            if config.servers.insert(id, host).is_some() {
                return Err(format!("mds.{id} is described twice"));
            }
        }
        if config.mons.is_empty() {
            return Err("there is no [[mon]]: every cluster has a monitor".to_owned());
        }
        config.check_addresses()?;
        Ok(config)
    }

    fn empty(cluster: ClusterId, dir: &Path) -> Self {
        let (mons, osds, servers) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self {
            cluster,
            dir: dir.to_owned(),
            mons,
            osds,
            servers,
        }
    }

    /// Each daemon with its address, which may be empty.
    pub fn addresses(&self) -> impl Iterator<Item = (String, &str)> {
        let mons = self.mons.iter();
        let mons = mons.map(|(id, entry)| (id.to_string(), entry.address.as_str()));
        let osds = self.osds.iter();
        mons.chain(osds.map(|(id, entry)| (id.to_string(), entry.address.as_str())))
    }

    fn check_addresses(&self) -> Result<(), String> {
        let mut seen: BTreeMap<&str, String> = BTreeMap::new();
        for (who, address) in self.addresses().filter(|(_, address)| !address.is_empty()) {
            if crate::net::parse(address).is_none() {
                return Err(format!(
                    "`{address}` of {who} is no address; write it like 127.0.0.1:7400"
                ));
            }
            if let Some(other) = seen.insert(address, who.clone()) {
                return Err(format!("{other} and {who} have the same address {address}"));
            }
        }
        Ok(())
    }

    /// Whether reading it back would give the same.
    ///
    /// # Errors
    /// What is wrong, human-readable.
    pub fn check(&self) -> Result<(), String> {
        Self::parse(&self.to_text(), &self.dir).map(drop)
    }

    /// Writes the file atomically. Comments and formatting of an existing file are not kept.
    ///
    /// # Errors
    /// The operating system's.
    pub fn save(&self) -> Result<(), StartError> {
        crate::directory::write_durably(&self.dir.join(FILE_NAME), self.to_text().as_bytes())
    }

    /// An address for one more daemon: the address of the last one with the next port.
    ///
    /// Empty if the cluster's daemons have no addresses.
    #[must_use]
    pub fn next_address(&self) -> String {
        let last = self
            .addresses()
            .filter_map(|(_, address)| crate::net::parse(address))
            .max_by_key(SocketAddr::port);
        last.and_then(|mut last| {
            last.set_port(last.port().checked_add(1)?);
            Some(last.to_string())
        })
        .unwrap_or_default()
    }

    /// The file's text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut out = format!(
            "# Where this cluster's daemons are. Everything else is in the cluster: `nacre config help`.\n\
             # docs/formats/config.md explains every key. {ANNOUNCES_END}\n\n"
        );
        let path = |path: &Path| {
            path.strip_prefix(&self.dir)
                .unwrap_or(path)
                .display()
                .to_string()
        };
        let quoted = |text: String| Value::String(text).to_string();
        let _ = writeln!(out, "cluster = \"{}\"", self.cluster);
        for (id, entry) in &self.mons {
            let _ = writeln!(
                out,
                "\n[[mon]]\nid = {}\naddress = {}",
                id.0,
                quoted(entry.address.clone())
            );
            let _ = writeln!(
                out,
                "path = {}\nsize = \"{}\"",
                quoted(path(&entry.path)),
                show_size(entry.size)
            );
        }
        for (id, entry) in &self.osds {
            let _ = writeln!(
                out,
                "\n[[osd]]\nid = {}\naddress = {}",
                id.0,
                quoted(entry.address.clone())
            );
            let _ = writeln!(
                out,
                "path = {}\nsize = \"{}\"",
                quoted(path(&entry.path)),
                show_size(entry.size)
            );
            let (class, host) = (quoted(entry.class.clone()), quoted(entry.host.clone()));
            let _ = writeln!(out, "class = {class}\nhost = {host}");
        }
        for (id, host) in &self.servers {
            let _ = writeln!(
                out,
                "\n[[mds]]\nid = {id}\naddress = {}",
                quoted(host.to_string())
            );
        }
        let _ = writeln!(out, "\n{END}");
        out
    }

    /// Listening addresses of the monitors.
    #[must_use]
    pub fn mon_addresses(&self) -> BTreeMap<MonId, String> {
        self.mons
            .iter()
            .map(|(id, entry)| (*id, entry.address.clone()))
            .collect()
    }
}

struct Section<'a> {
    what: String,
    table: &'a Table,
}

impl Section<'_> {
    fn only(&self, known: &[&str]) -> Result<(), String> {
        for key in self.table.keys() {
            if !known.contains(&key.as_str()) {
                let near = nearest(key, known.iter().copied());
                return Err(format!(
                    "{}: unknown key `{key}`; did you mean `{}`?",
                    self.what, near[0]
                ));
            }
        }
        Ok(())
    }
    fn text(&self, key: &str) -> Result<Option<String>, String> {
        match self.table.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(format!("{}: `{key}` is a text, in quotes", self.what)),
        }
    }
    fn id(&self) -> Result<u32, String> {
        match self.table.get("id") {
            Some(Value::Integer(id)) if (0..1 << 20).contains(id) => Ok(*id as u32),
            Some(_) => Err(format!(
                "{}: `id` is a number from 0 to {}",
                self.what,
                (1 << 20) - 1
            )),
            None => Err(format!("{}: `id` is missing", self.what)),
        }
    }
    fn size(&self, default: u64) -> Result<u64, String> {
        let Some(text) = self.text("size")? else {
            return Ok(default);
        };
        let size = parse_size(&text).ok_or(format!(
            "{}: `{text}` is no size; write it like \"10 GiB\"",
            self.what
        ))?;
        if size < STORE_BYTES_MIN {
            return Err(format!(
                "{}: a store has at least {}",
                self.what,
                show_size(STORE_BYTES_MIN)
            ));
        }
        Ok(size)
    }
    fn sections(&self, key: &str) -> Result<Vec<Section<'_>>, String> {
        let wrong = || format!("`{key}` is a list of sections: begin each with [[{key}]]");
        match self.table.get(key) {
            None => Ok(Vec::new()),
            Some(Value::Array(all)) => all
                .iter()
                .map(|one| match one {
                    Value::Table(table) => {
                        let id = table
                            .get("id")
                            .map_or_else(String::new, |id| format!(" with id {id}"));
                        Ok(Section {
                            what: format!("[[{key}]]{id}"),
                            table,
                        })
                    }
                    _ => Err(wrong()),
                })
                .collect(),
            Some(_) => Err(wrong()),
        }
    }
}

const UNITS: [(&str, u64); 4] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
];

/// Number of bytes in a text such as `10 GiB`.
#[must_use]
pub fn parse_size(text: &str) -> Option<u64> {
    for (unit, bytes) in UNITS {
        if let Some(number) = text.strip_suffix(unit) {
            return number.trim().parse::<u64>().ok()?.checked_mul(bytes);
        }
    }
    text.trim().parse().ok()
}

/// A number of bytes as exact text.
#[must_use]
pub fn show_size(bytes: u64) -> String {
    match UNITS
        .iter()
        .find(|(_, unit)| bytes >= *unit && bytes.is_multiple_of(*unit))
    {
        Some((name, unit)) => format!("{} {name}", bytes / unit),
        None => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "cluster = \"00000000000000000000000000000abc\"\n[[mon]]\nid = 0\naddress = \"127.0.0.1:7400\"\n\
                        [[osd]]\nid = 3\npath = \"/dev/sdz\"\nsize = \"64 MiB\"\n\
                        [[mds]]\nid = 1\naddress = \"127.0.0.9\"\n";

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(text, Path::new("/c"))
    }

    #[test]
    fn a_file_reads_back_what_was_written() {
        let config = parse(GOOD).expect("well-formed");
        assert_eq!(config.cluster, ClusterId(0xabc));
        assert_eq!(config.osds[&OsdId(3)].path, Path::new("/dev/sdz"));
        assert_eq!(config.mons[&MonId(0)].path, Path::new("/c/mon.0/store"));
        assert_eq!(
            config.servers,
            BTreeMap::from([(1, IpAddr::from([127, 0, 0, 9]))])
        );
        assert_eq!(parse(&config.to_text()), Ok(config));
    }

    /// Found with the real binary: a file that had lost its last OSD's section started a cluster
    /// without that OSD.
    #[test]
    fn a_file_that_is_cut_off_anywhere_is_refused() {
        let text = parse(GOOD).expect("well-formed").to_text();
        let whole = text.trim_end().len();
        for length in text.find("cluster = ").expect("there")..whole {
            assert!(
                parse(&text[..length]).is_err(),
                "cut off after {:?}",
                &text[..length]
            );
        }
        assert!(parse(&text[..whole]).is_ok());
    }

    #[test]
    fn mistakes_are_named_with_what_was_probably_meant() {
        let why =
            |change: (&str, &str)| parse(&GOOD.replace(change.0, change.1)).expect_err("a mistake");
        assert!(
            why(("address", "adress")).contains("unknown key `adress`; did you mean `address`?")
        );
        assert!(why(("cluster =", "clutser =")).contains("did you mean `cluster`?"));
        assert!(why(("64 MiB", "64 MB")).contains("write it like \"10 GiB\""));
        assert!(why(("64 MiB", "1 MiB")).contains("at least 16 MiB"));
        assert!(why(("id = 3", "id = -3")).contains("`id` is a number"));
        assert!(why(("127.0.0.1:7400", "localhost")).contains("is no address"));
        assert!(
            why(("id = 3", "id = 3\naddress = \"127.0.0.1:7400\""))
                .contains("mon.0 and osd.3 have the same address")
        );
        assert!(why(("127.0.0.9", "127.0.0.9:80")).contains("of mds.1 is no address of a host"));
        assert!(
            why(("address = \"127.0.0.9\"", ""))
                .contains("[[mds]] with id 1: `address` is missing")
        );
        assert!(
            parse(&format!("{GOOD}[[mds]]\nid = 1\naddress = \"::1\"\n"))
                .expect_err("two")
                .contains("twice")
        );
        assert!(
            parse("cluster = \"1\"")
                .expect_err("no monitor")
                .contains("[[mon]]")
        );
    }
}
