//! Identities: daemons and their instances, clients, pools and placement groups.

use std::fmt;

/// A cluster's identity, chosen at random when it is created. Every daemon, store and handshake
/// carries it, so that a directory of another cluster is detected before anything is written.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(pub u128);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}
impl fmt::Debug for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

numbered!(
    /// An object storage daemon; the leaf of CRUSH. Dense from 0, bounded by the map's `osd_max`.
    OsdId(u32), "osd."
);
numbered!(
    /// A monitor. Also its Raft node id, plus one (Raft reserves 0).
    MonId(u32), "mon."
);
numbered!(
    /// A client, as registered by the monitors or as it named itself: unique within the cluster for
    /// ever.
    ClientId(u64), "client."
);
numbered!(
    /// A pool. Enters the hash of placement, so it is never reused after a pool is removed.
    PoolId(u64), ""
);
numbered!(
    /// One run of a daemon or client process; larger than every earlier instance of the same
    /// entity. Fencing (DESIGN §3) works on instances: a fenced one never acts again, its successor
    /// may.
    Instance(u64), "#"
);

/// The position within an erasure-coded placement group; [`Shard::NONE`] in replicated pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard(pub u8);

impl Shard {
    /// Every replica is complete: the pool is replicated.
    pub const NONE: Self = Self(u8::MAX);
}
impl Default for Shard {
    fn default() -> Self {
        Self::NONE
    }
}

/// A placement group (CEPH-40): the unit of replication, peering and recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PgId {
    /// The pool it belongs to.
    pub pool: PoolId,
    /// Its number in the pool, below the pool's `pg_num`.
    pub seed: u32,
    /// [`Shard::NONE`] unless the pool is erasure coded.
    pub shard: Shard,
}

impl PgId {
    /// A placement group of a replicated pool.
    #[must_use]
    pub const fn replicated(pool: PoolId, seed: u32) -> Self {
        Self {
            pool,
            seed,
            shard: Shard::NONE,
        }
    }
}

impl fmt::Display for PgId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:x}", self.pool.0, self.seed)?;
        if self.shard != Shard::NONE {
            write!(f, "s{}", self.shard.0)?;
        }
        Ok(())
    }
}

impl std::str::FromStr for PgId {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is not a placement group; write POOL.SEED with a hexadecimal seed, such as 1.2f"
            )
        };
        let (pool, rest) = text.split_once('.').ok_or_else(wrong)?;
        let (seed, shard) = match rest.split_once('s') {
            Some((seed, shard)) => (seed, Shard(shard.parse().map_err(|_| wrong())?)),
            None => (rest, Shard::NONE),
        };
        Ok(Self {
            pool: PoolId(pool.parse().map_err(|_| wrong())?),
            seed: u32::from_str_radix(seed, 16).map_err(|_| wrong())?,
            shard,
        })
    }
}

/// An entity with an address: either end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Entity {
    /// A monitor.
    Mon(MonId),
    /// An object storage daemon.
    Osd(OsdId),
    /// A client (including a service, which is a client to the substrate).
    Client(ClientId),
}

impl fmt::Display for Entity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mon(id) => id.fmt(f),
            Self::Osd(id) => id.fmt(f),
            Self::Client(id) => id.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placement_group_reads_back_what_it_prints() {
        for pg in [
            PgId::replicated(PoolId(1), 0),
            PgId::replicated(PoolId(77), 0x2f),
            PgId {
                pool: PoolId(2),
                seed: 9,
                shard: Shard(4),
            },
        ] {
            assert_eq!(pg.to_string().parse::<PgId>().as_ref(), Ok(&pg));
        }
        for bad in ["", "1", "1.", ".1", "1.x", "1.2s", "1.2s999", "-1.2"] {
            assert!(bad.parse::<PgId>().is_err(), "{bad}");
        }
    }
}
