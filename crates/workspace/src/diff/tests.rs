//! Diffs are read back by a small independent patcher, and growing ones are compared with finished ones.

use proptest::prelude::*;

use super::*;

/// Applies a unified diff as its format defines it. Knows nothing of how it was made.
fn apply(old: &str, diff: &str) -> String {
    let old: Vec<&str> = split(old);
    let (mut out, mut at) = (String::new(), 0);
    let lines: Vec<&str> = diff.split_inclusive('\n').collect();
    for (number, line) in lines.iter().enumerate() {
        let bare = lines.get(number + 1).is_some_and(|next| next.starts_with('\\'));
        let text = if bare { &line[1..line.len() - 1] } else { &line[1..] };
        match line.as_bytes()[0] {
            b'@' => {
                let range = line.split(' ').nth(1).unwrap().trim_start_matches('-');
                let (start, len) = range.split_once(',').unwrap_or((range, "1"));
                let start = start.parse::<usize>().unwrap() - usize::from(len != "0");
                old[at..start].iter().for_each(|line| out.push_str(line));
                at = start;
            }
            b' ' => {
                assert_eq!(old[at], text);
                out.push_str(text);
                at += 1;
            }
            b'-' => {
                assert_eq!(old[at], text);
                at += 1;
            }
            b'+' => out.push_str(text),
            b'\\' => {}
            other => panic!("a diff line begins with {}", other as char),
        }
    }
    old[at..].iter().for_each(|line| out.push_str(line));
    out
}

#[test]
fn a_change_in_the_middle_has_three_lines_around_it() {
    let old: String = (1..=9).map(|n| format!("{n}\n")).collect();
    let new = old.replace("5\n", "five\n");
    assert_eq!(unified(&old, &new), "@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n");
    assert_eq!(lines(&old, &new), (1, 1));
    assert_eq!(unified(&old, &old), "");
}

#[test]
fn a_missing_last_newline_is_said() {
    assert_eq!(unified("a\n", "a"), "@@ -1 +1 @@\n-a\n+a\n\\ No newline at end of file\n");
}

#[test]
fn headers_name_the_file_and_nothing_for_what_is_new() {
    let diff = with_headers(Path::new("src/a.rs"), "", "x\n");
    assert_eq!(diff, "--- /dev/null\n+++ b/src/a.rs\n@@ -0,0 +1 @@\n+x\n");
}

#[test]
fn what_the_answer_has_not_reached_is_kept() {
    let old = "fn a() {\n    1\n}\n\nfn b() {\n    2\n}\n";
    assert_eq!(growing(old, ""), (String::new(), (0, 0)));
    assert_eq!(growing(old, "fn a() {\n"), (String::new(), (0, 0)));
    // The beginning of the old line may still become it; anything else cannot.
    assert_eq!(growing(old, "fn a() {\n    ").1, (0, 0));
    let (diff, counts) = growing(old, "fn a() {\n    10\n}\n");
    assert_eq!(counts, (1, 1));
    assert_eq!(diff, "@@ -1,5 +1,5 @@\n fn a() {\n-    1\n+    10\n }\n \n fn b() {\n");
    // A closing brace belongs to the nearest function, not to one further down.
    assert_eq!(growing(old, "fn a() {\n    1\n}\n").1, (0, 0));
}

#[test]
fn two_texts_with_nothing_in_common_are_still_compared() {
    let old: String = (0..1500).map(|n| format!("old {n}\n")).collect();
    let new: String = (0..1500).map(|n| format!("new {n}\n")).collect();
    assert_eq!(lines(&old, &new), (1500, 1500));
    assert_eq!(growing(&old, &new).1.0, 1500);
}

fn text() -> impl Strategy<Value = String> {
    (proptest::collection::vec("[abc]{0,1}", 0..24), any::<bool>()).prop_map(|(lines, end)| {
        let mut text = lines.join("\n");
        if end && !text.is_empty() {
            text.push('\n');
        }
        text
    })
}

proptest! {
    #[test]
    fn a_diff_applied_gives_the_new_text(old in text(), new in text()) {
        prop_assert_eq!(apply(&old, &unified(&old, &new)), new);
    }

    #[test]
    fn a_growing_diff_gives_the_answer_and_then_old_lines(old in text(), new in text()) {
        let (diff, counts) = growing(&old, &new);
        let got = apply(&old, &diff);
        let whole = &new[..new.rfind('\n').map_or(0, |at| at + 1)];
        let partial = &new[whole.len()..];
        let rest = got.strip_prefix(whole);
        prop_assert!(rest.is_some(), "{:?} does not begin with {:?}", got, whole);
        // The unfinished last line is there, or what is there in its place may still be what it becomes.
        prop_assert!(rest.is_some_and(|rest| rest.starts_with(partial)));
        let kept = rest.unwrap_or_default();
        prop_assert!(old.ends_with(kept) || old.ends_with(&kept[partial.len()..]));
        prop_assert_eq!(diff.lines().filter(|line| line.starts_with('+')).count(), counts.0);
        prop_assert_eq!(diff.lines().filter(|line| line.starts_with('-')).count(), counts.1);
    }

    #[test]
    fn nothing_is_removed_while_the_answer_repeats_the_file(old in text(), cut in 0usize..48) {
        let cut = cut.min(old.len());
        prop_assert_eq!(growing(&old, &old[..cut]).1, (0, 0));
    }
}
