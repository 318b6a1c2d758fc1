//! I/O contexts: librados stores pool, namespace, placement key and snapshot there instead of in
//! the operation.

use crate::error::{ENOENT, RadosError};
use crate::ffi::{self, Functions, rados_ioctx_t};
use crate::handle::{Rados, c_string};
use nacre_types::{ObjectId, PoolId, SnapId};
use nacre_wire::msg::client::SnapContext;
use std::collections::BTreeMap;
use std::ptr;
use std::sync::Arc;

/// The properties of a context.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scope {
    /// The pool.
    pub pool: PoolId,
    /// The namespace.
    pub namespace: Vec<u8>,
    /// The placement key; empty means the object's name.
    pub key: Vec<u8>,
    /// The snapshot to read.
    pub snapshot: SnapId,
    /// The snapshots that writes preserve.
    pub snaps: (u64, Vec<u64>),
}

impl Scope {
    /// The scope of an operation on an object.
    #[must_use]
    pub fn of(pool: PoolId, object: &ObjectId, snaps: &SnapContext) -> Self {
        Self {
            pool,
            namespace: object.namespace.as_bytes().to_vec(),
            key: object.key.as_bytes().to_vec(),
            snapshot: object.snapshot,
            snaps: (
                snaps.sequence,
                snaps.snapshots.iter().map(|snap| snap.0).collect(),
            ),
        }
    }
}

/// A context; freed with its last user. Contexts of operations in flight stay.
pub struct Context {
    cluster: Rados,
    raw: rados_ioctx_t,
}
// SAFETY: contexts may be used by several threads; what may not (setting namespace and snapshots)
// happens before it is shared.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: there is no other owner; operations in flight hold librados' own references.
        unsafe { (self.cluster.functions().rados_ioctx_destroy)(self.raw) };
    }
}

impl Context {
    /// Creates a context.
    ///
    /// # Errors
    /// There is no such pool, or librados cannot represent a name.
    pub fn new(cluster: &Rados, scope: &Scope) -> Result<Self, RadosError> {
        let context = Self::plain(cluster, scope.pool)?;
        let functions = cluster.functions();
        let (namespace, key) = (
            c_string(&scope.namespace, "a namespace")?,
            c_string(&scope.key, "a placement key")?,
        );
        // SAFETY: strings live until the calls return.
        unsafe {
            (functions.rados_ioctx_set_namespace)(context.raw, namespace.as_ptr());
            if !scope.key.is_empty() {
                (functions.rados_ioctx_locator_set_key)(context.raw, key.as_ptr());
            }
            if scope.snapshot != SnapId::HEAD {
                (functions.rados_ioctx_snap_set_read)(context.raw, scope.snapshot.0);
            }
        }
        let (sequence, snaps) = &scope.snaps;
        if *sequence != 0 || !snaps.is_empty() {
            // SAFETY: the list has the given length.
            let set = unsafe {
                (functions.rados_ioctx_selfmanaged_snap_set_write_ctx)(
                    context.raw,
                    *sequence,
                    snaps.as_ptr(),
                    snaps.len() as i32,
                )
            };
            if set < 0 {
                return Err(RadosError::of(
                    set,
                    "setting the snapshots that a write preserves",
                ));
            }
        }
        Ok(context)
    }

    /// A context for a pool only.
    ///
    /// # Errors
    /// There is no such pool.
    pub fn plain(cluster: &Rados, pool: PoolId) -> Result<Self, RadosError> {
        let mut raw = ptr::null_mut();
        let id = i64::try_from(pool.0)
            .map_err(|_| RadosError::of(-ENOENT, format_args!("pool {pool}")))?;
        // SAFETY: the result is written before it is read.
        let made =
            unsafe { (cluster.functions().rados_ioctx_create2)(cluster.raw(), id, &raw mut raw) };
        if made < 0 {
            return Err(RadosError::of(
                made,
                format_args!("opening the pool {pool}"),
            ));
        }
        Ok(Self {
            cluster: cluster.clone(),
            raw,
        })
    }

    /// A context that covers all namespaces, for listings.
    ///
    /// # Errors
    /// There is no such pool.
    pub fn everywhere(cluster: &Rados, pool: PoolId) -> Result<Self, RadosError> {
        let context = Self::plain(cluster, pool)?;
        // SAFETY: a constant.
        unsafe {
            (cluster.functions().rados_ioctx_set_namespace)(
                context.raw,
                ffi::LIBRADOS_ALL_NSPACES.as_ptr(),
            )
        };
        Ok(context)
    }

    /// Allocates a snapshot id for clients that decide themselves what their writes preserve. Waits
    /// for the monitors.
    ///
    /// # Errors
    /// The monitors' error.
    pub fn allocate_snap(&self) -> Result<u64, RadosError> {
        let mut snap = 0;
        // SAFETY: the result is written before it is read.
        let made = unsafe {
            (self.functions().rados_ioctx_selfmanaged_snap_create)(self.raw, &raw mut snap)
        };
        if made < 0 {
            Err(RadosError::of(made, "taking a snapshot"))
        } else {
            Ok(snap)
        }
    }
    /// Removes one of those snapshots. Waits for the monitors.
    ///
    /// # Errors
    /// The monitors' error.
    pub fn remove_snap(&self, snap: u64) -> Result<(), RadosError> {
        // SAFETY: ours.
        let gone =
            unsafe { (self.functions().rados_ioctx_selfmanaged_snap_remove)(self.raw, snap) };
        if gone < 0 {
            Err(RadosError::of(gone, "removing a snapshot"))
        } else {
            Ok(())
        }
    }

    pub(crate) fn raw(&self) -> rados_ioctx_t {
        self.raw
    }
    pub(crate) fn functions(&self) -> &'static Functions {
        self.cluster.functions()
    }
}

/// Recently used contexts: creating one takes a lock of the whole client.
pub struct Contexts {
    cluster: Rados,
    known: BTreeMap<Scope, Arc<Context>>,
}

/// Most contexts kept; beyond that all are dropped and created again.
const KNOWN_MAX: usize = 256;

impl Contexts {
    /// An empty cache.
    #[must_use]
    pub const fn new(cluster: Rados) -> Self {
        Self {
            cluster,
            known: BTreeMap::new(),
        }
    }
    /// The context of a scope.
    ///
    /// # Errors
    /// As [`Context::new`].
    pub fn get(&mut self, scope: Scope) -> Result<Arc<Context>, RadosError> {
        if let Some(known) = self.known.get(&scope) {
            return Ok(known.clone());
        }
        let context = Arc::new(Context::new(&self.cluster, &scope)?);
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert(scope, context.clone());
        Ok(context)
    }
}
