//! What somebody who misspelt a name probably meant: options, commands, and the keys of
//! `cluster.toml`.

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

/// How many characters must be inserted, removed or replaced; a name that contains the other is
/// near.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(64).collect(), b.chars().collect());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    let contained = a.len() >= 3 && b.windows(a.len()).any(|part| part == a.as_slice());
    if contained {
        row[b.len()] / 4
    } else {
        row[b.len()]
    }
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
        assert_eq!(
            (
                distance("", "abc"),
                distance("abc", "abc"),
                distance("abc", "acb")
            ),
            (3, 0, 2)
        );
    }
}
