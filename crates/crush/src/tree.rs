//! The hierarchy as displayed by `nacre crush tree`.

use crate::map::{CrushMap, ItemId};
use crate::weight::Weight;
use std::fmt::Write;

/// One line of the listing.
#[derive(Clone, Debug, PartialEq)]
pub struct TreeRow<'m> {
    /// Its depth below its root, which has depth 0.
    pub depth: usize,
    /// The bucket or device.
    pub id: ItemId,
    /// The class of a device.
    pub class: Option<&'m str>,
    /// Its weight in the bucket above; for a root, its own weight.
    pub weight: Weight,
    /// The name of its type.
    pub kind: &'m str,
    /// Its name.
    pub name: &'m str,
}

impl CrushMap {
    /// Every root with everything below it, parents before children; with `shadows`, class trees
    /// too. An item in two buckets is listed twice. Devices in no bucket come last, at depth 0 and
    /// without weight.
    #[must_use]
    pub fn tree(&self, shadows: bool) -> Vec<TreeRow<'_>> {
        let mut rows = Vec::new();
        for root in self.roots().into_iter().rev() {
            let shadow_roots = self
                .class_shadows
                .range((root, 0)..=(root, usize::MAX))
                .map(|(_, shadow)| *shadow);
            for top in std::iter::once(root).chain(shadow_roots.filter(|_| shadows)) {
                let weight = self
                    .bucket(top)
                    .map_or(Weight::ZERO, |bucket| bucket.weight());
                self.list(top, weight, 0, &mut rows);
            }
        }
        let parents = self.parents();
        for id in self
            .devices()
            .map(ItemId::from)
            .filter(|id| !parents.contains_key(id))
        {
            self.list(id, Weight::ZERO, 0, &mut rows);
        }
        rows
    }

    /// The recursion is bounded by the depth that is checked for every map.
    fn list<'m>(&'m self, id: ItemId, weight: Weight, depth: usize, rows: &mut Vec<TreeRow<'m>>) {
        let kind = self
            .item_kind(id)
            .and_then(|kind| self.type_name(kind))
            .unwrap_or_default();
        let class = id.device().and_then(|device| self.device_class(device));
        rows.push(TreeRow {
            depth,
            id,
            class,
            weight,
            kind,
            name: self.item_name(id).unwrap_or_default(),
        });
        for (item, weight) in self
            .bucket(id)
            .into_iter()
            .flat_map(|bucket| bucket.items())
        {
            self.list(item, weight, depth + 1, rows);
        }
    }

    /// [`Self::tree`] as a table.
    #[must_use]
    pub fn tree_table(&self, shadows: bool) -> String {
        let rows = self.tree(shadows);
        let class_width = rows
            .iter()
            .filter_map(|row| row.class)
            .map(str::len)
            .max()
            .unwrap_or(0)
            .max(5);
        let mut out = format!(
            "{:>6}  {:<class_width$}  {:>10}  TYPE NAME\n",
            "ID", "CLASS", "WEIGHT"
        );
        for row in rows {
            let (id, class, weight) = (row.id.0, row.class.unwrap_or(""), row.weight.rounded());
            let indent = 4 * row.depth;
            writeln!(
                out,
                "{id:>6}  {class:<class_width$}  {weight:>10}  {:indent$}{} {}",
                "", row.kind, row.name
            )
            .expect("writing to a string does not fail");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::OsdId;

    #[test]
    fn a_tree_lists_parents_before_children_and_loose_devices_last() {
        let text = "device 0 osd.0 class ssd\ndevice 1 osd.1\ntype 1 host\ntype 11 root\n\
                    host a { alg straw2 item osd.0 weight 2 }\nroot default { alg straw2 item a }";
        let mut map = crate::text::parse(text).expect("a legal text");
        let names = |map: &CrushMap, shadows| {
            map.tree(shadows)
                .iter()
                .map(|row| format!("{}{}", " ".repeat(row.depth), row.name))
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&map, false), ["default", " a", "  osd.0", "osd.1"]);
        map.set_device_class(OsdId(0), Some("hdd"))
            .expect("a legal class");
        assert_eq!(
            names(&map, true),
            [
                "default",
                " a",
                "  osd.0",
                "default~hdd",
                " a~hdd",
                "  osd.0",
                "osd.1"
            ]
        );
        let expected =
            "    ID  CLASS      WEIGHT  TYPE NAME\n    -2              2.000  root default\n";
        assert!(
            map.tree_table(false).starts_with(expected),
            "{}",
            map.tree_table(false)
        );
    }
}
