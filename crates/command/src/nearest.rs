//! What was probably meant by a name that was misspelt: options, commands, and the keys of
//! `cluster.toml`.

use strsim::levenshtein;

/// The three of `names` that look most like `name`, the most alike first; fewer if there are not
/// that many.
#[must_use]
pub fn nearest<'n>(name: &str, names: impl IntoIterator<Item = &'n str>) -> Vec<&'n str> {
    let mut ranked: Vec<(usize, &str)> = names
        .into_iter()
        .map(|known| (distance(name, known), known))
        .collect();
    ranked.sort_unstable();
    ranked.into_iter().take(3).map(|(_, known)| known).collect()
}

/// A name that contains the other is near.
fn distance(a: &str, b: &str) -> usize {
    let a: String = a.chars().take(64).collect();
    let contained = a.chars().count() >= 3 && b.contains(&a);
    levenshtein(&a, b) / if contained { 4 } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_alike_comes_first() {
        let keys = ["id", "address", "path", "size", "class", "host"];
        assert_eq!(nearest("adress", keys)[0], "address");
        assert_eq!(nearest("hots", keys)[0], "host");
        assert_eq!(
            nearest("full", ["mon.osd", "mon.full_ratio"])[0],
            "mon.full_ratio",
            "a part of a name is near"
        );
        assert_eq!(nearest("", keys).len(), 3);
    }
}
