//! An object as plain data: a byte vector and two maps. It has no effects, patches, stores or
//! replicas, so it cannot share a mistake with those.

use bytes::Bytes;
use nacre_policy::{DERIVED, Object, Page, Stat, Stop, errno};
use nacre_types::Version;
use nacre_wire::msg::client::{ATTR_BYTES_MAX, ATTR_NAME_MAX, OBJECT_BYTES_MAX};
use std::collections::BTreeMap;
use std::ops::Bound;

/// A part of the object would be too large.
const EFBIG: Stop = Stop::Errno(27);
const OMAP_KEY_MAX: usize = 4096;

/// See the module head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plain {
    /// `None`: the object does not exist.
    pub data: Option<Vec<u8>>,
    /// Attributes.
    pub attributes: BTreeMap<Bytes, Bytes>,
    /// The omap.
    pub omap: BTreeMap<Bytes, Bytes>,
    /// The header beside the omap.
    pub header: Bytes,
}

impl Plain {
    fn there(&self) -> Result<&Vec<u8>, Stop> {
        self.data.as_ref().ok_or(Stop::Errno(errno::ENOENT))
    }
    fn made(&mut self) -> &mut Vec<u8> {
        self.data.get_or_insert_default()
    }
    /// The data, mutable; removes attributes that describe it.
    fn changed(&mut self) -> &mut Vec<u8> {
        self.attributes
            .retain(|name, _| name.first() != Some(&DERIVED));
        self.made()
    }
    /// The existing part of a range.
    fn range(data: &[u8], offset: u64, length: u64) -> std::ops::Range<usize> {
        let start = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(data.len());
        start
            ..start
                .saturating_add(usize::try_from(length).unwrap_or(usize::MAX))
                .min(data.len())
    }
}

impl Object for Plain {
    fn exists(&mut self) -> Result<bool, Stop> {
        Ok(self.data.is_some())
    }
    fn stat(&mut self) -> Result<Stat, Stop> {
        // Random classes use only the size.
        Ok(Stat {
            size: self.there()?.len() as u64,
            version: Version::NONE,
            modified_ns: 0,
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
        *self = Self::default();
        Ok(())
    }
    fn read(&mut self, offset: u64, length: u64) -> Result<Bytes, Stop> {
        let data = self.there()?;
        let length = if length == 0 { u64::MAX } else { length };
        Ok(Bytes::copy_from_slice(
            &data[Self::range(data, offset, length)],
        ))
    }
    fn write(&mut self, offset: u64, data: Bytes) -> Result<(), Stop> {
        let end = offset
            .checked_add(data.len() as u64)
            .filter(|end| *end <= OBJECT_BYTES_MAX)
            .ok_or(EFBIG)? as usize;
        let bytes = self.changed();
        // Writing nothing extends nothing.
        if !data.is_empty() {
            bytes.resize(bytes.len().max(end), 0);
            bytes[end - data.len()..end].copy_from_slice(&data);
        }
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
            .filter(|size| *size <= OBJECT_BYTES_MAX)
            .ok_or(EFBIG)? as usize;
        self.changed().resize(size, 0);
        Ok(())
    }
    fn zero(&mut self, offset: u64, length: u64) -> Result<(), Stop> {
        let data = self.changed();
        let range = Self::range(data, offset, length);
        data[range].fill(0);
        Ok(())
    }
    fn checksum(&mut self, offset: u64, length: u64) -> Result<u32, Stop> {
        let data = self.read(offset, length)?;
        // Bit by bit: the model must not share a mistake with the OSD.
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
        if name.len() > ATTR_NAME_MAX || value.len() > ATTR_BYTES_MAX {
            return Err(EFBIG);
        }
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
        self.there()?;
        self.omap
            .get(key)
            .cloned()
            .ok_or(Stop::Errno(errno::ENOENT))
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
            .omap
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
        if pairs.iter().any(|(key, _)| key.len() > OMAP_KEY_MAX) {
            return Err(EFBIG);
        }
        self.made();
        self.omap.extend(pairs);
        Ok(())
    }
    fn map_remove_key(&mut self, key: &[u8]) -> Result<(), Stop> {
        self.there()?;
        self.omap.remove(key);
        Ok(())
    }
    fn map_clear(&mut self) -> Result<(), Stop> {
        self.there()?;
        self.omap.clear();
        self.header.clear();
        Ok(())
    }
    fn map_read_header(&mut self) -> Result<Bytes, Stop> {
        self.there()?;
        Ok(self.header.clone())
    }
    fn map_write_header(&mut self, data: Bytes) -> Result<(), Stop> {
        if data.len() > ATTR_BYTES_MAX {
            return Err(EFBIG);
        }
        self.made();
        self.header = data;
        Ok(())
    }
}
