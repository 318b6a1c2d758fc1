//! A change of the hierarchy as a diff of its text: lines kept, dropped and inserted.
//!
//! ```text
//!  old text ─▶ keep 400 │ drop 1, put "item osd.7 weight 1.0" │ keep 9,000 │ put … │ the rest is kept
//! ```
//! The text for ten thousand OSDs has some 700 KB; from fifteen thousand on it exceeds the largest
//! entry of a monitor's log. Adding one OSD changes four lines. Anchors are lines that occur once
//! in both texts, in the longest order common to both (patience diff, B. Cohen); the lines between
//! anchors are inserted again.

use crate::wire_record;
use std::collections::BTreeMap;

/// Lines kept, then lines dropped, then lines inserted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CrushHunk {
    /// Number of lines kept.
    pub keep: u32,
    /// Number of lines dropped.
    pub drop: u32,
    /// Whole lines to insert, including line ends.
    pub lines: String,
}
wire_record!(CrushHunk version 1 compat 1 { keep, drop, lines });

fn lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

/// Applies hunks to a text; `None` if they do not fit that text.
#[must_use]
pub fn patched(old: &str, hunks: &[CrushHunk]) -> Option<String> {
    let old = lines(old);
    let mut new = String::new();
    let mut at = 0_usize;
    for hunk in hunks {
        let kept = old.get(at..)?.get(..hunk.keep as usize)?;
        new.extend(kept.iter().copied());
        at += kept.len();
        at += old.get(at..)?.get(..hunk.drop as usize)?.len();
        new.push_str(&hunk.lines);
    }
    new.extend(old.get(at..)?.iter().copied());
    Some(new)
}

/// Position of each line that occurs exactly once.
fn once<'a>(lines: &[&'a str]) -> BTreeMap<&'a str, usize> {
    let mut all: BTreeMap<&str, Option<usize>> = BTreeMap::new();
    for (at, line) in lines.iter().enumerate() {
        all.entry(line)
            .and_modify(|found| *found = None)
            .or_insert(Some(at));
    }
    all.into_iter()
        .filter_map(|(line, at)| Some((line, at?)))
        .collect()
}

/// Pairs of positions of lines that occur once in both texts, in the longest order common to both.
fn anchors(old: &[&str], new: &[&str]) -> Vec<(usize, usize)> {
    let (there, here) = (once(old), once(new));
    let mut pairs: Vec<(usize, usize)> = here
        .iter()
        .filter_map(|(line, at)| Some((*there.get(line)?, *at)))
        .collect();
    pairs.sort_by_key(|(_, new)| *new);
    // The longest increasing subsequence of the old positions, by patience: for each length, the
    // pair with the lowest end.
    let (mut ends, mut before): (Vec<usize>, Vec<Option<usize>>) =
        (Vec::new(), Vec::with_capacity(pairs.len()));
    for (index, (place, _)) in pairs.iter().enumerate() {
        let length = ends.partition_point(|end| pairs[*end].0 < *place);
        before.push(length.checked_sub(1).map(|shorter| ends[shorter]));
        if length == ends.len() {
            ends.push(index);
        } else {
            ends[length] = index;
        }
    }
    let mut chain = Vec::with_capacity(ends.len());
    let mut next = ends.last().copied();
    while let Some(index) = next {
        chain.push(pairs[index]);
        next = before[index];
    }
    chain.reverse();
    chain
}

/// The hunks that turn `old` into `new`.
#[must_use]
pub fn diff(old: &str, new: &str) -> Vec<CrushHunk> {
    let (old, new) = (lines(old), lines(new));
    let mut hunks: Vec<CrushHunk> = Vec::new();
    let (mut kept, mut from, mut to) = (0_u32, 0, 0);
    let mut between =
        |until: usize, end: usize, from: &mut usize, to: &mut usize, kept: &mut u32, last: bool| {
            // Lines that are equal at both ends of the gap are kept too.
            let head = old[*from..until]
                .iter()
                .zip(&new[*to..end])
                .take_while(|(a, b)| a == b)
                .count();
            let (o, n) = (&old[*from + head..until], &new[*to + head..end]);
            let tail = o
                .iter()
                .rev()
                .zip(n.iter().rev())
                .take_while(|(a, b)| a == b)
                .count();
            *kept += head as u32;
            let (drop, put) = (o.len() - tail, &n[..n.len() - tail]);
            if drop > 0 || !put.is_empty() {
                hunks.push(CrushHunk {
                    keep: std::mem::take(kept),
                    drop: drop as u32,
                    lines: put.concat(),
                });
            }
            *kept += tail as u32;
            if !last {
                *kept += 1;
                (*from, *to) = (until + 1, end + 1);
            }
        };
    for (place, here) in anchors(&old, &new) {
        between(place, here, &mut from, &mut to, &mut kept, false);
    }
    between(old.len(), new.len(), &mut from, &mut to, &mut kept, true);
    hunks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both_ways(a: &str, b: &str) -> usize {
        let hunks = diff(a, b);
        assert_eq!(patched(a, &hunks).as_deref(), Some(b), "{hunks:?}");
        assert_eq!(patched(b, &diff(b, a)).as_deref(), Some(a));
        hunks.len()
    }

    #[test]
    fn a_patch_makes_the_other_text() {
        assert_eq!(both_ways("", ""), 0);
        assert_eq!(both_ways("a\nb\n", "a\nb\n"), 0);
        assert_eq!(both_ways("", "a\nb"), 1);
        assert_eq!(both_ways("a\nb\nc\n", "a\nx\nc\n"), 1);
        assert_eq!(both_ways("a\n}\nb\n}\nc\n}\n", "a\n}\nb\nd\n}\nc\n}\n"), 1);
        assert_eq!(both_ways("a\nb\nc\nd\n", "d\na\nb\nc\n"), 2, "moved");
        assert_eq!(both_ways("x\nx\nx\n", "x\nx\n"), 1);
    }

    #[test]
    fn all_texts_of_few_lines() {
        let text = |mut n: u32| {
            let mut text = String::new();
            while n > 0 {
                text += ["a\n", "b\n", "c\n"][(n % 4).saturating_sub(1).min(2) as usize];
                n /= 4;
            }
            text
        };
        for a in 0..256 {
            for b in 0..256 {
                both_ways(&text(a), &text(b));
            }
        }
    }

    #[test]
    fn a_patch_for_another_text_makes_none() {
        assert_eq!(
            patched(
                "a\n",
                &[CrushHunk {
                    keep: 2,
                    ..CrushHunk::default()
                }]
            ),
            None
        );
        assert_eq!(
            patched(
                "a\n",
                &[CrushHunk {
                    keep: 1,
                    drop: u32::MAX,
                    lines: String::new()
                }]
            ),
            None
        );
    }
}
