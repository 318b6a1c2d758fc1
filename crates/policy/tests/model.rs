//! An object in memory, and helpers that call a class on it.

use bytes::Bytes;
use nacre_policy::*;
use nacre_types::{Epoch, Version};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// An object; data `None` means that it does not exist. `absent` lists what the host does not have
/// in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model {
    pub data: Option<Vec<u8>>,
    pub attributes: BTreeMap<Bytes, Bytes>,
    pub map: BTreeMap<Bytes, Bytes>,
    pub header: Bytes,
    pub absent: Vec<&'static str>,
}

impl Model {
    pub fn with(data: &str) -> Self {
        Self {
            data: Some(data.as_bytes().to_vec()),
            ..Self::default()
        }
    }
    fn at_hand(&self, what: &str) -> Result<(), Stop> {
        assert!(!self.absent.contains(&"sanity"), "the host's own mistake");
        if self.absent.contains(&what) {
            Err(Stop::Wait)
        } else {
            Ok(())
        }
    }
    fn there(&self) -> Result<&Vec<u8>, Stop> {
        self.data.as_ref().ok_or(Stop::Errno(errno::ENOENT))
    }
    fn made(&mut self) -> &mut Vec<u8> {
        self.data.get_or_insert_default()
    }
    /// The data, to be changed: the attributes derived from it are removed.
    fn changed(&mut self) -> &mut Vec<u8> {
        self.attributes
            .retain(|name, _| name.first() != Some(&DERIVED));
        self.made()
    }
}

/// Maximum object size of the model: hostile scripts write at 2^53.
const SIZE_MAX: u64 = 64 << 20;

impl Object for Model {
    fn exists(&mut self) -> Result<bool, Stop> {
        Ok(self.data.is_some())
    }
    fn stat(&mut self) -> Result<Stat, Stop> {
        self.at_hand("stat")?;
        let size = self.there()?.len() as u64;
        Ok(Stat {
            size,
            version: Version {
                interval: Epoch(3),
                number: 196,
            },
            modified_ns: 1_795_189_863_000_000_000,
        })
    }
    fn create(&mut self, exclusive: bool) -> Result<(), Stop> {
        if exclusive && self.data.is_some() {
            return Err(Stop::Errno(errno::EEXIST));
        }
        self.made();
        Ok(())
    }
    fn remove(&mut self) -> Result<(), Stop> {
        self.there()?;
        *self = Self {
            absent: std::mem::take(&mut self.absent),
            ..Self::default()
        };
        Ok(())
    }
    fn read(&mut self, offset: u64, length: u64) -> Result<Bytes, Stop> {
        self.at_hand("read")?;
        let data = self.there()?;
        let start = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(data.len());
        let length = if length == 0 { u64::MAX } else { length };
        let end = start
            .saturating_add(usize::try_from(length).unwrap_or(usize::MAX))
            .min(data.len());
        Ok(Bytes::copy_from_slice(&data[start..end]))
    }
    fn write(&mut self, offset: u64, data: Bytes) -> Result<(), Stop> {
        let end = offset
            .checked_add(data.len() as u64)
            .filter(|end| *end <= SIZE_MAX)
            .ok_or(Stop::Errno(27))? as usize;
        let bytes = self.changed();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[end - data.len()..end].copy_from_slice(&data);
        Ok(())
    }
    fn write_full(&mut self, data: Bytes) -> Result<(), Stop> {
        *self.changed() = data.to_vec();
        Ok(())
    }
    fn append(&mut self, data: Bytes) -> Result<(), Stop> {
        self.changed().extend_from_slice(&data);
        Ok(())
    }
    fn truncate(&mut self, size: u64) -> Result<(), Stop> {
        let size = Some(size)
            .filter(|size| *size <= SIZE_MAX)
            .ok_or(Stop::Errno(27))? as usize;
        self.changed().resize(size, 0);
        Ok(())
    }
    fn zero(&mut self, offset: u64, length: u64) -> Result<(), Stop> {
        let data = self.changed();
        let start = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(data.len());
        let end = start
            .saturating_add(usize::try_from(length).unwrap_or(usize::MAX))
            .min(data.len());
        data[start..end].fill(0);
        Ok(())
    }
    fn checksum(&mut self, offset: u64, length: u64) -> Result<u32, Stop> {
        let data = self.read(offset, length)?;
        // Bit by bit: the model must not share a mistake with the host.
        Ok(!data.iter().fold(!0_u32, |sum, byte| {
            (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
                if sum & 1 == 1 {
                    (sum >> 1) ^ 0x82f6_3b78
                } else {
                    sum >> 1
                }
            })
        }))
    }
    fn getxattr(&mut self, name: &[u8]) -> Result<Bytes, Stop> {
        self.at_hand("getxattr")?;
        self.there()?;
        self.attributes
            .get(name)
            .cloned()
            .ok_or(Stop::Errno(errno::ENODATA))
    }
    fn getxattrs(&mut self) -> Result<Vec<(Bytes, Bytes)>, Stop> {
        self.there()?;
        Ok(self.attributes.clone().into_iter().collect())
    }
    fn setxattr(&mut self, name: &[u8], value: Bytes) -> Result<(), Stop> {
        self.made();
        self.attributes.insert(Bytes::copy_from_slice(name), value);
        Ok(())
    }
    fn rmxattr(&mut self, name: &[u8]) -> Result<(), Stop> {
        self.there()?;
        self.attributes
            .remove(name)
            .map(drop)
            .ok_or(Stop::Errno(errno::ENODATA))
    }
    fn map_get_val(&mut self, key: &[u8]) -> Result<Bytes, Stop> {
        self.at_hand("map")?;
        self.there()?;
        self.map.get(key).cloned().ok_or(Stop::Errno(errno::ENOENT))
    }
    fn map_get_vals(
        &mut self,
        after: &[u8],
        prefix: &[u8],
        max: u64,
    ) -> Result<Page<(Bytes, Bytes)>, Stop> {
        self.there()?;
        let from = if after.is_empty() {
            Bound::Unbounded
        } else {
            Bound::Excluded(Bytes::copy_from_slice(after))
        };
        let mut all = self
            .map
            .range((from, Bound::Unbounded))
            .filter(|(key, _)| key.starts_with(prefix));
        let page = all
            .by_ref()
            .take(max as usize)
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        Ok((page, all.next().is_some()))
    }
    fn map_get_keys(&mut self, after: &[u8], max: u64) -> Result<Page<Bytes>, Stop> {
        let (pairs, more) = self.map_get_vals(after, b"", max)?;
        Ok((pairs.into_iter().map(|(key, _)| key).collect(), more))
    }
    fn map_set_vals(&mut self, pairs: Vec<(Bytes, Bytes)>) -> Result<(), Stop> {
        self.made();
        self.map.extend(pairs);
        Ok(())
    }
    fn map_remove_key(&mut self, key: &[u8]) -> Result<(), Stop> {
        self.map.remove(key);
        Ok(())
    }
    fn map_clear(&mut self) -> Result<(), Stop> {
        self.map.clear();
        self.header.clear();
        Ok(())
    }
    fn map_read_header(&mut self) -> Result<Bytes, Stop> {
        self.there()?;
        Ok(self.header.clone())
    }
    fn map_write_header(&mut self, data: Bytes) -> Result<(), Stop> {
        self.made();
        self.header = data;
        Ok(())
    }
}

/// Calls with everything but script, method and input at defaults.
pub struct Caller {
    pub vm: ClassVm<Model>,
    pub classes: Arc<Classes>,
    pub budget: Budget,
    pub request: Request,
}

impl Caller {
    pub fn new() -> Self {
        let request = Request {
            client: "client.17".into(),
            object: Bytes::from_static(b"obj"),
            now_ns: 1_795_189_900_000_000_000,
            subop: 1,
            seed: 42,
        };
        Self {
            vm: ClassVm::new(16),
            classes: Arc::default(),
            budget: Budget::CLASS,
            request,
        }
    }

    /// A call whose effects are kept as a host would keep them.
    pub fn on(
        &mut self,
        object: &mut Model,
        script: &str,
        method: &str,
        input: &[u8],
    ) -> CallOutcome {
        let chunk = Chunk::new("t", script);
        match self.end(object, Target::Eval(&chunk), method, input) {
            CallEnd::Done(outcome) => outcome,
            CallEnd::Wait => panic!("the model has everything at hand"),
        }
    }

    /// A call with any result.
    pub fn end(
        &mut self,
        object: &mut Model,
        target: Target<'_>,
        method: &str,
        input: &[u8],
    ) -> CallEnd {
        let call = Call {
            classes: &self.classes,
            target,
            method,
            input: Bytes::copy_from_slice(input),
            request: &self.request,
            budget: &self.budget,
        };
        let (after, end) = self.vm.call(object.clone(), &call);
        if matches!(&end, CallEnd::Done(outcome) if outcome.status >= 0) {
            *object = after;
        }
        end
    }

    /// Body of a function `f(i, o)` on an object "base".
    pub fn body(&mut self, body: &str) -> CallOutcome {
        self.on(
            &mut Model::with("base"),
            &format!("function f(i,o) {body} end objclass.register(f)"),
            "f",
            b"",
        )
    }

    /// The output of a body that must succeed, as text.
    pub fn text(&mut self, body: &str) -> String {
        let outcome = self.body(body);
        assert_eq!(outcome.error, None, "{body}");
        String::from_utf8_lossy(&outcome.output).into_owned()
    }

    /// The error of a body that must fail.
    pub fn error(&mut self, body: &str) -> ScriptError {
        let outcome = self.body(body);
        assert!(
            outcome.status < 0 && outcome.output.is_empty(),
            "{body}: {outcome:?}"
        );
        outcome.error.expect("a negative status has an error")
    }
}
