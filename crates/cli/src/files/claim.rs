//! A file system for one command: its ranks are taken as a server takes them, so that no server can
//! take them meanwhile.
//!
//! The keys are attached to a lease that is renewed while the command works. If the lease is lost,
//! the next holder fences this command's client before it begins.
//!
//! Servers with ranks are asked for them by a separate key ([`Wanted`]), and take none as long as
//! it exists. It is deleted with its lease, so they continue if the command dies.

use super::one;
use crate::cluster::{Metadata, Session};
use anyhow::{Context, Result, anyhow, bail, ensure};
use nacre_command::{Command, FenceAdd};
use nacre_types::{Name, Rank};
use nacre_wire::Wire as _;
use nacre_wire::fs::{FsHolder, FsKey, FsSettings};
use nacre_wire::map::Address;
use nacre_wire::msg::meta::{
    MetaCall, MetaCompare, MetaOp, MetaRelation, MetaResult, MetaSpan, MetaTarget,
};
use std::time::{Duration, Instant};

const TTL: Duration = Duration::from_secs(30);
const RENEW: Duration = Duration::from_secs(5);
/// A server that hangs loses its rank within this time, and one that cannot write its journal
/// releases it after twenty seconds.
const GIVEN_BACK_MAX: Duration = Duration::from_secs(40);
/// Interval of repetition: a server that has just taken a rank may have missed the key.
const SAY_AGAIN: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(50);

/// See the module head.
pub struct Claim {
    metadata: Box<dyn Metadata>,
    lease: u64,
    renewed: Instant,
    file_system: Name,
    ranks: u16,
    me: FsHolder,
}

/// A condition of a transaction.
pub fn is(key: Name, target: MetaTarget) -> MetaCompare {
    MetaCompare {
        key,
        target,
        relation: MetaRelation::Equal {},
    }
}

/// No server has, or takes, a rank of a file system as long as this exists.
pub struct Wanted {
    metadata: Box<dyn Metadata>,
    lease: u64,
}

impl Wanted {
    /// Asks the servers for their ranks, and waits until they have released them.
    ///
    /// # Errors
    /// A server does not release its rank.
    pub fn ask(name: &str, session: &mut dyn Session) -> Result<Self> {
        let mut metadata = session.metadata()?;
        let lease = grant(&mut *metadata)?;
        let mut wanted = Self { metadata, lease };
        let key = FsKey::Repair.of(&Name::from(name));
        let (begun, mut said) = (Instant::now(), None::<Instant>);
        loop {
            if said.is_none_or(|said| said.elapsed() >= SAY_AGAIN) {
                let value = format!("fs check, process {}", std::process::id()).into();
                let then = vec![MetaOp::Put {
                    key: key.clone(),
                    value,
                    lease,
                }];
                wanted.metadata.meta(MetaCall::KeepAlive { lease })?;
                wanted.metadata.transact(Vec::new(), then)?;
                said = Some(Instant::now());
            }
            let shown = one(name, &mut *wanted.metadata)?;
            let Some((rank, holder)) = shown.holders.first_key_value() else {
                return Ok(wanted);
            };
            ensure!(
                begun.elapsed() < GIVEN_BACK_MAX,
                "server {} does not give back rank {rank} of file system {name}: is it older than this program?",
                holder.name
            );
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        // If that fails it expires.
        let _ = self.metadata.meta(MetaCall::Revoke { lease: self.lease });
    }
}

fn grant(metadata: &mut dyn Metadata) -> Result<u64> {
    let ttl_ms = u64::try_from(TTL.as_millis()).expect("seconds");
    match metadata.meta(MetaCall::Grant { ttl_ms })?.1 {
        MetaResult::Granted { lease, .. } => Ok(lease),
        _ => bail!("the monitors grant no lease"),
    }
}

/// Fences the last holder of a rank.
///
/// # Errors
/// The cluster refuses.
pub fn fence(session: &mut dyn Session, holder: &FsHolder) -> Result<()> {
    let fence = FenceAdd::of(holder.client(), holder.instance);
    let reply = session
        .command(&Command::FenceAdd(fence))
        .context("fencing the last server")?;
    // This client's operations from here on bring the fence to the OSDs that it reaches.
    session.map_at_least(reply["epoch"].as_u64().unwrap_or_default())
}

impl Claim {
    /// Takes all ranks, after fencing their last holders.
    ///
    /// # Errors
    /// A server has one, or takes one at the same time.
    pub fn take(name: &str, settings: &FsSettings, session: &mut dyn Session) -> Result<Self> {
        let mut metadata = session.metadata()?;
        let file_system = Name::from(name);
        let (client, instance) = session
            .identity()
            .context("this cluster's client has no identity that can be fenced: a check of a file system wants one")?;
        let name_of_me = Name::from(&*format!("fs check, process {}", std::process::id()));
        let me = FsHolder {
            client: client.0,
            instance,
            address: Address::default(),
            name: name_of_me,
        };
        let value = bytes::Bytes::from(me.to_bytes());
        let (mut compares, mut keys) = (Vec::new(), Vec::new());
        for rank in (0..settings.ranks).map(Rank) {
            let (key, last) = (
                FsKey::Rank(rank).of(&file_system),
                FsKey::Last(rank).of(&file_system),
            );
            let before = metadata.get(&last.to_string())?;
            if let Some(before) = &before {
                let holder = FsHolder::from_bytes(&before.value).map_err(|_| {
                    anyhow!("{last} has a value of another version: is this program older than the servers?")
                })?;
                fence(session, &holder)?;
            }
            compares.push(is(key.clone(), MetaTarget::Version { number: 0 }));
            let modified = before.map_or(0, |pair| pair.modified);
            compares.push(is(last.clone(), MetaTarget::Modified { number: modified }));
            keys.push((key, last));
        }
        let renewed = Instant::now();
        let lease = grant(&mut *metadata)?;
        let then = keys.into_iter().flat_map(|(key, last)| {
            [
                MetaOp::Put {
                    key,
                    value: value.clone(),
                    lease,
                },
                MetaOp::Put {
                    key: last,
                    value: value.clone(),
                    lease: 0,
                },
            ]
        });
        let then = then.collect();
        ensure!(
            metadata.transact(compares, then)?,
            "a server has just taken file system {name}: `nacre fs status {name}` shows it"
        );
        Ok(Self {
            metadata,
            lease,
            renewed,
            file_system,
            ranks: settings.ranks,
            me,
        })
    }

    /// Renews the lease, if that is due.
    ///
    /// # Errors
    /// It has ended.
    pub fn keep(&mut self) -> Result<()> {
        if self.renewed.elapsed() < RENEW {
            return Ok(());
        }
        let asked = Instant::now();
        let alive = self
            .metadata
            .meta(MetaCall::KeepAlive { lease: self.lease });
        ensure!(
            matches!(alive, Ok((_, MetaResult::Alive { .. }))) && self.renewed.elapsed() < TTL,
            "the lease of file system {} has ended: the monitors did not hear from this command in time",
            self.file_system
        );
        self.renewed = asked;
        Ok(())
    }

    /// The next holder fences this command's client first: its operations may still be executed.
    pub fn leave(&mut self) {
        // If that fails it expires.
        let _ = self.metadata.meta(MetaCall::Revoke { lease: self.lease });
    }
    /// Releases the ranks as if they had never had a holder: no operation of this command is in
    /// flight.
    ///
    /// # Errors
    /// The monitors do not answer: the lease expires then.
    pub fn give_back(&mut self) -> Result<()> {
        let (mut compares, mut then) = (Vec::new(), Vec::new());
        for rank in (0..self.ranks).map(Rank) {
            let last = FsKey::Last(rank).of(&self.file_system);
            let target = MetaTarget::Value {
                value: self.me.to_bytes().into(),
            };
            compares.push(is(last.clone(), target));
            for key in [FsKey::Rank(rank).of(&self.file_system), last] {
                then.push(MetaOp::Delete {
                    span: MetaSpan::Key { key },
                });
            }
        }
        self.metadata.transact(compares, then)?;
        self.metadata.meta(MetaCall::Revoke { lease: self.lease })?;
        Ok(())
    }
}
