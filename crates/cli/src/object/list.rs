//! Listing a pool: one placement group after the other, in pages.

use crate::objects::{Objects, call, operation};
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use nacre_types::{ObjectId, PoolId};
use nacre_wire::Payload;
use nacre_wire::msg::client::{SubOp, SubReply};

/// Objects per page.
const PAGE: u32 = 1000;

/// Passes every object of a pool to `each`, in an unspecified order.
///
/// During concurrent writes, objects that exist all the time are listed at least once. If the pool
/// is split meanwhile, new PGs are listed too, so that an object that moved to one may be listed
/// twice.
///
/// # Errors
/// When the cluster refuses, and errors of `each`.
pub fn objects(
    cluster: &mut dyn Objects,
    pool: PoolId,
    each: &mut dyn FnMut(ObjectId) -> Result<()>,
) -> Result<()> {
    let (mut group, mut groups) = (0, cluster.pg_num(pool)?);
    while group < groups {
        let mut after = Bytes::new();
        loop {
            let ops = vec![SubOp::ListObjects { after, limit: PAGE }];
            let mut list = operation(pool, ObjectId::default(), ops, Payload::new());
            list.group = Some(group);
            let done = call(cluster, list)?
                .with_context(|| format!("listing placement group {group:x}"))?;
            let Some(SubReply::Objects { objects, next }) = done.results.into_iter().next() else {
                bail!("the answer to a listing is none: is a daemon of another version?");
            };
            objects.into_iter().try_for_each(&mut *each)?;
            match next {
                Some(next) => after = next,
                None => break,
            }
        }
        group += 1;
        if group == groups {
            groups = cluster.pg_num(pool)?.max(groups);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::memory::Memory;

    #[test]
    fn every_object_is_listed_once_over_groups_and_pages() {
        let mut cluster = Memory::default();
        let mut expected: Vec<ObjectId> = (0..4321)
            .map(|i| ObjectId::named(&format!("o{i}")))
            .collect();
        for object in &expected {
            let put = operation(
                PoolId(1),
                object.clone(),
                vec![SubOp::Create { exclusive: true }],
                Payload::new(),
            );
            call(&mut cluster, put).expect("there").expect("created");
        }
        let mut found = Vec::new();
        objects(&mut cluster, PoolId(1), &mut |object| {
            found.push(object);
            Ok(())
        })
        .expect("listed");
        found.sort();
        expected.sort();
        assert!(found == expected);
    }
}
