//! Locks in the form of Ceph's class `lock` (also visible to `rados lock …`): requests to it, and
//! its answers.
//!
//! Differences from Nacre's locks:
//! * a holder's cookie is text there; ours is a number, written in decimal. Other clients' cookies
//!   are hashed to numbers, so that they can be named;
//! * there are no fencing tokens; the object's version at the grant is used, and a renewal gets a
//!   new, greater one;
//! * a lease ends automatically by the OSD's clock, without fencing its holder: operations that
//!   must not be executed after it have to be guarded by the lock.

use bytes::{BufMut as _, Bytes, BytesMut};
use nacre_types::{ClientId, Epoch, Instance, Name, Version};
use nacre_wire::msg::client::SubOp;
use nacre_wire::msg::lock::{LockEntry, LockHolder, LockOwner, LockRecord};

/// The class.
pub const CLASS: &str = "lock";
const EXCLUSIVE: u8 = 1;
const SHARED: u8 = 2;
const MAY_RENEW: u8 = 1;
/// The entity type of clients.
const CLIENT: u8 = 8;

fn encoded(fill: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut body = BytesMut::new();
    fill(&mut body);
    let mut out = BytesMut::with_capacity(body.len() + 6);
    out.put_slice(&[1, 1]);
    out.put_u32_le(u32::try_from(body.len()).expect("names are short"));
    out.put_slice(&body);
    out.freeze()
}
fn text(out: &mut BytesMut, text: &[u8]) {
    out.put_u32_le(text.len() as u32);
    out.put_slice(text);
}

/// A call of the class: method and input. `shared`: the mode if both modes are acceptable.
#[must_use]
pub fn request(op: &SubOp, shared_holders: bool) -> Option<(&'static str, Bytes)> {
    Some(match op {
        SubOp::Lock {
            name,
            cookie,
            shared,
            lease_ms,
            description,
        } => {
            let input = encoded(|out| {
                text(out, name.as_bytes());
                out.put_u8(if *shared { SHARED } else { EXCLUSIVE });
                text(out, cookie.to_string().as_bytes());
                text(out, b"");
                text(out, description.as_bytes());
                out.put_u32_le(lease_ms / 1000);
                out.put_u32_le(lease_ms % 1000 * 1_000_000);
                out.put_u8(MAY_RENEW);
            });
            ("lock", input)
        }
        SubOp::Unlock { name, cookie } => {
            let input = encoded(|out| {
                text(out, name.as_bytes());
                text(out, cookie.to_string().as_bytes());
            });
            ("unlock", input)
        }
        SubOp::AssertLock {
            name,
            cookie,
            shared_ok,
        } => {
            let input = encoded(|out| {
                text(out, name.as_bytes());
                out.put_u8(if *shared_ok && shared_holders {
                    SHARED
                } else {
                    EXCLUSIVE
                });
                text(out, cookie.to_string().as_bytes());
                text(out, b"");
            });
            ("assert_locked", input)
        }
        _ => return None,
    })
}

/// Takes a lock away from a holder, identified by its original cookie.
#[must_use]
pub fn break_request(name: &Name, holder: &Holder) -> (&'static str, Bytes) {
    let input = encoded(|out| {
        text(out, name.as_bytes());
        out.put_u8(CLIENT);
        out.put_u64_le(holder.client);
        text(out, &holder.cookie);
    });
    ("break_lock", input)
}

/// Queries the holders of a lock.
#[must_use]
pub fn info_request(name: &[u8]) -> (&'static str, Bytes) {
    ("get_info", encoded(|out| text(out, name)))
}

/// A holder in the class's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Ceph's id of the client.
    pub client: u64,
    /// The original cookie.
    pub cookie: Bytes,
    /// Human-readable description.
    pub description: String,
}
impl Holder {
    /// Nacre's identity of the holder.
    #[must_use]
    pub fn owner(&self) -> LockOwner {
        let text = std::str::from_utf8(&self.cookie).ok();
        let number = text.and_then(|text| {
            text.parse::<u64>()
                .ok()
                .filter(|number| number.to_string() == text)
        });
        let hash = || {
            self.cookie
                .iter()
                .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                    (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
                })
        };
        LockOwner {
            client: ClientId(self.client),
            instance: Instance(0),
            cookie: number.unwrap_or_else(hash),
        }
    }
}

/// A lock in Nacre's form.
#[must_use]
pub fn entry(name: &[u8], shared: bool, holders: &[Holder]) -> LockEntry {
    let holder = |holder: &Holder| LockHolder {
        owner: holder.owner(),
        token: Version::default(),
        granted: Epoch(0),
        lease_ms: 0,
        description: holder.description.clone(),
    };
    LockEntry {
        name: Name::copy(name),
        record: LockRecord {
            shared,
            holders: holders.iter().map(holder).collect(),
        },
    }
}

struct Reader<'a>(&'a [u8]);
impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }
    fn u8(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }
    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }
    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }
    fn text(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()?;
        self.take(usize::try_from(length).ok()?)
    }
    /// A structure: version, oldest reader, and length; unknown trailing fields are skipped.
    fn structure(&mut self) -> Option<Reader<'a>> {
        self.take(2)?;
        Some(Reader(self.text()?))
    }
}

/// Whether it is shared, and its holders; `None` if the answer is invalid.
#[must_use]
pub fn info(answer: &[u8]) -> Option<(bool, Vec<Holder>)> {
    let mut all = Reader(answer).structure()?;
    let mut holders = Vec::new();
    for _ in 0..all.u32()? {
        let mut id = all.structure()?;
        let (_, client, cookie) = (id.u8()?, id.u64()?, id.text()?);
        let mut details = all.structure()?;
        // The expiry, and the holder's address.
        details.take(8)?;
        details.take(1)?;
        details.structure()?;
        let description = String::from_utf8_lossy(details.text()?).into_owned();
        holders.push(Holder {
            client,
            cookie: Bytes::copy_from_slice(cookie),
            description,
        });
    }
    Some((all.u8()? == SHARED, holders))
}

/// Names of an object's locks.
#[must_use]
pub fn names(answer: &[u8]) -> Option<Vec<Bytes>> {
    let mut all = Reader(answer).structure()?;
    (0..all.u32()?)
        .map(|_| all.text().map(Bytes::copy_from_slice))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ceph 16's answer for a lock `L` with the cookie `cook` and the description `d`.
    const INFO: &[u8] = b"\x01\x01V\x00\x00\x00\x01\x00\x00\x00\x01\x01\x11\x00\x00\x00\x08\xc7\x11\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00cook\
        \x01\x010\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x01\x01\x1c\x00\x00\x00\x01\x00\x00\x00\x9d\x80X\x06\x10\x00\x00\x00\x02\x00\x00\x00\
        \x7f\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00d\x01\x00\x00\x00\x00";

    #[test]
    fn answers_are_read_and_broken_ones_are_none() {
        let holder = Holder {
            client: 4551,
            cookie: Bytes::from_static(b"cook"),
            description: "d".to_owned(),
        };
        assert_eq!(info(INFO), Some((false, vec![holder])));
        assert_eq!(
            names(b"\x01\x01\x09\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00L"),
            Some(vec![Bytes::from_static(b"L")])
        );
        for cut in 0..INFO.len() {
            assert!(info(&INFO[..cut]).is_none(), "cut at {cut}");
        }
    }

    #[test]
    fn cookies_are_numbers_where_they_can_be() {
        let cookie = |text: &'static str| {
            Holder {
                client: 1,
                cookie: text.into(),
                description: String::new(),
            }
            .owner()
            .cookie
        };
        assert_eq!(cookie("7"), 7);
        assert_ne!(cookie("07"), 7);
        assert_ne!(cookie("auto 1"), cookie("auto 2"));
    }
}
