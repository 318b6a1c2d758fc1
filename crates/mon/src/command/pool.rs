//! `pool …`.

use nacre_command::{PoolCreate, PoolSet};
use nacre_wire::map::programs::PROGRAM_POOL;
use nacre_wire::map::{Change, Pool, pool_flag};
use serde_json::{Value, json};

use super::{Done, View, change, find_pool, read};
use crate::pools;

pub(super) fn describe(pool: &Pool) -> Value {
    json!({
        "name": pool.name.to_string(),
        "size": pool.size,
        "min_size": pool.min_size,
        "pg_num": pool.pg_num,
        "pgp_num": pool.pgp_num,
        "rule": pool.rule,
        "quota_bytes": pool.quota_bytes,
        "quota_objects": pool.quota_objects,
        "full": pool.flags & pool_flag::FULL != 0,
        "no_delete": pool.flags & pool_flag::NO_DELETE != 0,
        "created": pool.created.0,
    })
}

pub fn ls(view: &View<'_>) -> Result<Done, String> {
    let one = |(id, pool): (&nacre_types::PoolId, &Pool)| {
        let mut value = describe(pool);
        value["id"] = json!(id.0);
        value
    };
    // A new client asks this first: its map must be at least as new.
    read(
        json!({ "pools": view.map().pools.iter().map(one).collect::<Vec<_>>(), "epoch": view.map().epoch.0 }),
    )
}

pub fn create(view: &View<'_>, wish: &PoolCreate) -> Result<Done, String> {
    let (pool, settings) = pools::create(view.map(), wish)?;
    let mut reply = describe(&settings);
    reply["id"] = json!(pool.0);
    reply["warnings"] = json!(pools::warnings(view.map(), &settings));
    let said = format!(
        "pool {} is created: {} groups of {} copies",
        settings.name, settings.pg_num, settings.size
    );
    change(reply, vec![Change::PoolSet { pool, settings }], said)
}

pub fn set(view: &View<'_>, set: &PoolSet) -> Result<Done, String> {
    let (pool, old) = find_pool(view, &set.name)?;
    let (key, value) = (set.key.as_str(), set.value.0);
    let settings = pools::set(view.map(), pool, key, value)?;
    let mut reply = describe(&settings);
    reply["warnings"] = json!(pools::warnings(view.map(), &settings));
    if settings == *old {
        return read(reply);
    }
    let said = format!("pool {}: {key} = {value}", settings.name);
    change(reply, vec![Change::PoolSet { pool, settings }], said)
}

pub fn rm(view: &View<'_>, name: &str, is_meant: bool) -> Result<Done, String> {
    let (pool, settings) = find_pool(view, name)?;
    if settings.flags & pool_flag::NO_DELETE != 0 {
        return Err(format!(
            "pool {0} is protected; `pool set {0} no_delete 0` first",
            settings.name
        ));
    }
    let programs = view.map().programs.len();
    if settings.name.as_bytes() == PROGRAM_POOL.as_bytes() && programs > 0 {
        return Err(format!(
            "pool {PROGRAM_POOL} has the sources of {programs} programs, and no OSD could read them again; remove those first (`program ls`)"
        ));
    }
    if !is_meant {
        let stat = view.stats.pool(pool);
        return Err(format!(
            "this deletes the {} objects ({} bytes) of pool {} for good; if you mean it, set `yes_i_really_mean_it` to true",
            stat.objects, stat.bytes, settings.name
        ));
    }
    let said = format!("pool {} is removed", settings.name);
    change(
        json!({ "id": pool.0 }),
        vec![Change::PoolRemove { pool }],
        said,
    )
}
