//! Three-way merges: what Flint wrote goes, what somebody wrote since stays.

use std::ops::Range;

/// A change of lines: those of the common text, and what stands there instead.
struct Hunk<'a> {
    at: Range<usize>,
    new: Vec<&'a str>,
}

/// The text with both changes of a common text in it; none when they touch each other.
pub(super) fn three_way(base: &str, one: &str, other: &str) -> Option<String> {
    let lines: Vec<&str> = base.split_inclusive('\n').collect();
    let mut all: Vec<(bool, Hunk<'_>)> = hunks(&lines, one).into_iter().map(|hunk| (true, hunk)).collect();
    all.extend(hunks(&lines, other).into_iter().map(|hunk| (false, hunk)));
    all.sort_by_key(|(_, hunk)| (hunk.at.start, hunk.at.end));
    all.dedup_by(|next, before| next.0 != before.0 && next.1.at == before.1.at && next.1.new == before.1.new);
    let touches = |pair: &[(bool, Hunk<'_>)]| pair[0].0 != pair[1].0 && pair[0].1.at.end >= pair[1].1.at.start;
    if all.windows(2).any(touches) {
        return None;
    }
    let mut out = String::new();
    let mut at = 0;
    for (_, hunk) in all {
        out.extend(lines.get(at..hunk.at.start)?.iter().copied());
        out.extend(hunk.new);
        at = hunk.at.end;
    }
    out.extend(lines[at..].iter().copied());
    Some(out)
}

fn hunks<'a>(base: &[&str], new: &'a str) -> Vec<Hunk<'a>> {
    let new: Vec<&str> = new.split_inclusive('\n').collect();
    let found = crate::diff::hunks(base, &new);
    found.into_iter().map(|(at, come)| Hunk { at, new: new[come].to_vec() }).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn both_changes_or_none() {
        let base = "a\nb\nc\nd\ne\n";
        let merged = |one: &str, other: &str| three_way(base, one, other);
        assert_eq!(merged("A\nb\nc\nd\ne\n", "a\nb\nc\nd\ne\nf\n").as_deref(), Some("A\nb\nc\nd\ne\nf\n"));
        assert_eq!(merged("a\nc\nd\ne\n", "a\nb\nc\nD\ne\n").as_deref(), Some("a\nc\nD\ne\n"));
        assert_eq!(merged("a\nB\nc\nd\ne\n", "a\nX\nc\nd\ne\n"), None, "both changed the line");
        assert_eq!(merged("a\nB\nc\nd\ne\n", "a\nb\nC\nd\ne\n"), None, "they touch");
        assert_eq!(
            merged("a\nB\nc\nd\ne\n", "a\nB\nc\nd\ne\n").as_deref(),
            Some("a\nB\nc\nd\ne\n"),
            "both say the same"
        );
        assert_eq!(three_way("", "a\n", ""), Some("a\n".to_owned()));
    }

    proptest! {
        /// What only one side changed is that side; and no line of either change is lost.
        #[test]
        fn one_side_alone_is_that_side(base in "[ab\n]{0,20}", one in "[abc\n]{0,20}") {
            prop_assert_eq!(three_way(&base, &one, &base), Some(one.clone()));
            prop_assert_eq!(three_way(&base, &base, &one), Some(one.clone()));
            prop_assert_eq!(three_way(&base, &one, &one), Some(one));
        }
    }
}
