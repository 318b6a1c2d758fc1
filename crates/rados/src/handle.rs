//! A connection to a Ceph cluster, and commands to its daemons. Everything here blocks, but no
//! longer than [`Bounds`] allow.

use crate::error::{EINVAL, EOPNOTSUPP, RadosError};
use crate::ffi::{Functions, functions, rados_t};
use nacre_types::ClusterId;
use serde_json::{Value, json};
use std::ffi::{CString, c_char, c_int};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

/// Time limits for requests to the cluster.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Until the first answer of a monitor.
    pub connect: Duration,
    /// An operation on an object; after that, its outcome is unknown. [`Duration::MAX`]: no limit.
    pub operation: Duration,
    /// A command to a daemon.
    pub command: Duration,
}
impl Default for Bounds {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            operation: Duration::from_secs(30),
            command: Duration::from_secs(20),
        }
    }
}

/// The receiver of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// The monitors.
    Mon,
    /// An OSD.
    Osd(i32),
}

/// See the module head. Clones share the connection; it ends with the last one.
#[derive(Clone)]
pub struct Rados(Arc<Connected>);

struct Connected {
    functions: &'static Functions,
    raw: rados_t,
    path: PathBuf,
}
// SAFETY: librados handles may be used by several threads at once.
unsafe impl Send for Connected {}
// SAFETY: as above.
unsafe impl Sync for Connected {}

impl Drop for Connected {
    fn drop(&mut self) {
        // SAFETY: it was connected or at least created, and there is no other owner.
        unsafe { (self.functions.rados_shutdown)(self.raw) };
    }
}

pub(crate) fn c_string(bytes: &[u8], what: &str) -> Result<CString, RadosError> {
    CString::new(bytes).map_err(|_| RadosError {
        code: EINVAL,
        why: format!("{what} has a byte 0 in it; librados takes names only up to the first of those, so they cannot be used on a Ceph cluster"),
    })
}

impl Rados {
    /// Connects to the cluster of a `ceph.conf`, as `client.NAME`.
    ///
    /// # Errors
    /// No library, no such file, keys unknown to the cluster, no monitor in time.
    pub fn connect(conf: &Path, name: &str, bounds: &Bounds) -> Result<Self, RadosError> {
        let functions = functions()?;
        // librados reports a missing file only as one that could not be parsed.
        if let Err(error) = std::fs::metadata(conf) {
            let code = error.raw_os_error().unwrap_or(EINVAL);
            return Err(RadosError {
                code,
                why: format!("reading {}: {error}", conf.display()),
            });
        }
        let file = c_string(
            conf.as_os_str().as_encoded_bytes(),
            "the name of the configuration file",
        )?;
        let client = c_string(format!("client.{name}").as_bytes(), "the client's name")?;
        let mut raw = ptr::null_mut();
        // SAFETY: the strings stay until the call returns, which has copied them.
        let made = unsafe {
            (functions.rados_create2)(&raw mut raw, c"ceph".as_ptr(), client.as_ptr(), 0)
        };
        if made < 0 {
            return Err(RadosError::of(made, "making a client of Ceph"));
        }
        let this = Self(Arc::new(Connected {
            functions,
            raw,
            path: conf.to_owned(),
        }));
        // SAFETY: as above.
        let read = unsafe { (functions.rados_conf_read_file)(raw, file.as_ptr()) };
        if read < 0 {
            return Err(RadosError::of(
                read,
                format_args!("{} is not a configuration of Ceph", conf.display()),
            ));
        }
        let seconds = |duration: Duration| match duration {
            Duration::MAX => "0".to_owned(),
            bound => bound.as_secs_f64().ceil().max(1.0).to_string(),
        };
        for (option, value) in [
            ("client_mount_timeout", seconds(bounds.connect)),
            ("rados_mon_op_timeout", seconds(bounds.command)),
            ("rados_osd_op_timeout", seconds(bounds.operation)),
            // The caller reports errors, once.
            ("log_to_stderr", "false".to_owned()),
            ("err_to_stderr", "false".to_owned()),
        ] {
            this.set(option, &value)?;
        }
        // SAFETY: the handle is ours.
        let connected = unsafe { (functions.rados_connect)(raw) };
        if connected < 0 {
            let doing = format_args!(
                "connecting as client.{name} to the Ceph cluster of {}",
                conf.display()
            );
            return Err(RadosError::of(connected, doing));
        }
        Ok(this)
    }

    fn set(&self, option: &str, value: &str) -> Result<(), RadosError> {
        let (name, text) = (
            c_string(option.as_bytes(), "an option")?,
            c_string(value.as_bytes(), "an option's value")?,
        );
        // SAFETY: strings live until the call returns.
        let result =
            unsafe { (self.functions().rados_conf_set)(self.raw(), name.as_ptr(), text.as_ptr()) };
        if result < 0 {
            Err(RadosError::of(
                result,
                format_args!("setting {option} to {value}"),
            ))
        } else {
            Ok(())
        }
    }

    pub(crate) fn functions(&self) -> &'static Functions {
        self.0.functions
    }
    pub(crate) fn raw(&self) -> rados_t {
        self.0.raw
    }
    /// The configuration used for the connection.
    #[must_use]
    pub fn conf(&self) -> &Path {
        &self.0.path
    }

    /// Waits until this client has the newest map, which includes pools created just before.
    ///
    /// # Errors
    /// No monitor answers.
    pub fn wait_for_newest_map(&self) -> Result<(), RadosError> {
        // SAFETY: connected.
        let result = unsafe { (self.functions().rados_wait_for_latest_osdmap)(self.raw()) };
        if result < 0 {
            Err(RadosError::of(result, "waiting for the newest map"))
        } else {
            Ok(())
        }
    }

    /// A command in Ceph's own JSON form.
    ///
    /// # Errors
    /// The daemon's error, or that it does not answer.
    pub fn command(&self, to: To, request: &Value, input: &[u8]) -> Result<Vec<u8>, RadosError> {
        let prefix = request
            .get("prefix")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        let text = c_string(request.to_string().as_bytes(), "a command")?;
        let commands = [text.as_ptr()];
        let (mut output, mut said): (*mut c_char, *mut c_char) = (ptr::null_mut(), ptr::null_mut());
        let (mut output_length, mut said_length) = (0_usize, 0_usize);
        let functions = self.functions();
        // SAFETY: the arguments stay until the call returns; its results are freed below.
        let result = unsafe {
            let (commands, count) = (commands.as_ptr(), commands.len());
            let (data, length) = (input.as_ptr().cast(), input.len());
            let (out, out_length) = (&raw mut output, &raw mut output_length);
            let (status, status_length) = (&raw mut said, &raw mut said_length);
            match to {
                To::Mon => (functions.rados_mon_command)(
                    self.raw(),
                    commands,
                    count,
                    data,
                    length,
                    out,
                    out_length,
                    status,
                    status_length,
                ),
                To::Osd(osd) => (functions.rados_osd_command)(
                    self.raw(),
                    osd as c_int,
                    commands,
                    count,
                    data,
                    length,
                    out,
                    out_length,
                    status,
                    status_length,
                ),
            }
        };
        let output = taken(functions, output, output_length);
        let said = taken(functions, said, said_length);
        if result < 0 {
            return Err(RadosError::said(
                result,
                format_args!("`{prefix}`"),
                &String::from_utf8_lossy(&said),
            ));
        }
        Ok(output)
    }

    /// The same, with an answer in JSON.
    ///
    /// # Errors
    /// As [`Self::command`]; also when the answer is not JSON.
    pub fn ask(&self, to: To, mut request: Value) -> Result<Value, RadosError> {
        if let Some(object) = request.as_object_mut() {
            object.entry("format").or_insert_with(|| "json".into());
        }
        let output = self.command(to, &request, &[])?;
        serde_json::from_slice(&output).map_err(|error| RadosError {
            code: EINVAL,
            why: format!("the answer to {request} is not JSON: {error}"),
        })
    }

    /// The cluster's id.
    ///
    /// # Errors
    /// No monitor answers.
    pub fn cluster(&self) -> Result<ClusterId, RadosError> {
        let said = self.ask(To::Mon, json!({ "prefix": "fsid" }))?;
        let digits: String = said["fsid"]
            .as_str()
            .unwrap_or_default()
            .chars()
            .filter(|c| *c != '-')
            .collect();
        u128::from_str_radix(&digits, 16)
            .map(ClusterId)
            .map_err(|_| RadosError {
                code: EINVAL,
                why: format!("`ceph fsid` says {said}, which is no cluster's number"),
            })
    }

    /// Whether this library reports its client's address ([`Self::addresses`]).
    #[must_use]
    pub fn knows_addresses(&self) -> bool {
        self.functions().rados_getaddrs.is_some()
    }

    /// The client's address as known to daemons, in the form used by blocklists: `IP:0/NONCE`.
    ///
    /// # Errors
    /// This librados does not report it.
    pub fn addresses(&self) -> Result<String, RadosError> {
        let Some(getaddrs) = self.functions().rados_getaddrs else {
            let why = "this librados does not say by which address its clients are known: it is older than Ceph 15";
            return Err(RadosError {
                code: EOPNOTSUPP,
                why: why.to_owned(),
            });
        };
        let mut text: *mut c_char = ptr::null_mut();
        // SAFETY: connected; the result is freed below.
        let result = unsafe { getaddrs(self.raw(), &raw mut text) };
        if result < 0 || text.is_null() {
            return Err(RadosError::of(result, "asking for this client's address"));
        }
        // SAFETY: librados returns a string that ends with a zero byte.
        let length = unsafe { std::ffi::CStr::from_ptr(text) }.to_bytes().len();
        let text = String::from_utf8_lossy(&taken(self.functions(), text, length)).into_owned();
        Ok(text)
    }

    /// The epoch of the newest map.
    ///
    /// # Errors
    /// No monitor answers.
    pub fn newest_epoch(&self) -> Result<u64, RadosError> {
        // The command with the shortest answer that contains it.
        let said = self.ask(To::Mon, json!({ "prefix": "osd getmaxosd" }))?;
        said["epoch"].as_u64().ok_or_else(|| RadosError {
            code: EINVAL,
            why: format!("`ceph osd getmaxosd` says {said}, which names no epoch"),
        })
    }

    /// Blocklists the client with these addresses for some time: OSDs with a map that contains this
    /// refuse its requests.
    ///
    /// # Errors
    /// No monitor answers, or this client may not do it.
    pub fn blocklist(&self, addresses: &str, time: Duration) -> Result<(), RadosError> {
        each_address(addresses).try_for_each(|address| self.blocklist_one(address, time))
    }
    fn blocklist_one(&self, address: &str, time: Duration) -> Result<(), RadosError> {
        let expire = time.as_secs_f64();
        let new = json!({ "prefix": "osd blocklist", "blocklistop": "add", "addr": address, "expire": expire });
        match self.command(To::Mon, &new, &[]) {
            // Its name before Ceph 16.
            Err(RadosError { code: EINVAL, .. }) => {
                let old = json!({ "prefix": "osd blacklist", "blacklistop": "add", "addr": address, "expire": expire });
                self.command(To::Mon, &old, &[]).map(drop)
            }
            other => other.map(drop),
        }
    }

    /// A pool's id; `None` if this client's map has no such pool.
    ///
    /// # Errors
    /// An invalid name.
    pub fn pool(&self, name: &str) -> Result<Option<i64>, RadosError> {
        let text = c_string(name.as_bytes(), "a pool's name")?;
        // SAFETY: the string lives until the call returns.
        let found = unsafe { (self.functions().rados_pool_lookup)(self.raw(), text.as_ptr()) };
        if found >= 0 {
            return Ok(Some(found));
        }
        match i32::try_from(found).unwrap_or(i32::MIN) {
            code if code == -crate::error::ENOENT => Ok(None),
            code => Err(RadosError::of(
                code,
                format_args!("looking for the pool {name}"),
            )),
        }
    }
}

/// The single addresses in a client's address string: one, or a list such as
/// `[v2:10.0.0.1:0/5,v1:10.0.0.1:0/5]`.
pub(crate) fn each_address(text: &str) -> impl Iterator<Item = &str> {
    let list = text
        .strip_prefix("[v")
        .and_then(|list| list.strip_suffix(']'));
    let list = list.map_or(text, |_| &text[1..text.len() - 1]);
    list.split(',')
        .map(str::trim)
        .filter(|address| !address.is_empty())
}

/// Copies a buffer allocated by librados, and frees it.
pub(crate) fn taken(functions: &Functions, buffer: *mut c_char, length: usize) -> Vec<u8> {
    if buffer.is_null() {
        return Vec::new();
    }
    // SAFETY: librados reports that the buffer has this length, and that the caller must free it.
    unsafe {
        let copy = std::slice::from_raw_parts(buffer.cast::<u8>(), length).to_vec();
        (functions.rados_buffer_free)(buffer);
        copy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_one_or_a_list() {
        let all = |text| each_address(text).collect::<Vec<_>>();
        assert_eq!(all("10.0.0.1:0/5"), ["10.0.0.1:0/5"]);
        assert_eq!(all("[::1]:0/5"), ["[::1]:0/5"]);
        assert_eq!(
            all("[v2:10.0.0.1:0/5,v1:10.0.0.1:0/5]"),
            ["v2:10.0.0.1:0/5", "v1:10.0.0.1:0/5"]
        );
        assert_eq!(all("[v2:[::1]:0/5]"), ["v2:[::1]:0/5"]);
    }
}
