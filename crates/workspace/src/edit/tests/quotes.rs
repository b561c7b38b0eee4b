//! Quoted lines, whole files and patches.

use proptest::prelude::*;

use super::*;

const FILE: &str = "class A:\n    def f(self):\n        x = 1\n        return x\n\n    def g(self):\n        x = 1\n        return -x\n";

#[test]
fn an_exact_quote_is_replaced() {
    let got = replace(FILE, "        return -x\n", "        return -2 * x\n").unwrap();
    assert_eq!(got, FILE.replace("return -x", "return -2 * x"));
    // With or without the newline at its end, the quote means lines.
    assert_eq!(replace(FILE, "        return -x", "        return -2 * x\n").unwrap(), got);
    // A part of a line.
    assert_eq!(replace(FILE, "-x", "-2 * x").unwrap(), got);
    // But not of a word.
    assert!(replace("max = 1\n", "x = 1", "x = 2").is_err());
}

#[test]
fn two_places_are_never_chosen_between() {
    let error = replace(FILE, "        x = 1\n", "        x = 2\n").unwrap_err();
    assert!(matches!(&error, EditError::Ambiguous { places, .. } if places.len() == 2), "{error}");
    let text = error.to_string();
    assert!(text.contains("line 3, line 7") && text.contains("quote more"), "{text}");
    let longer = replace(FILE, "        x = 1\n        return -x\n", "        x = 2\n        return -x\n").unwrap();
    assert_eq!(longer.lines().nth(6), Some("        x = 2"));
    assert_eq!(longer.lines().nth(2), Some("        x = 1"));
}

#[test]
fn spaces_at_line_ends_do_not_matter_and_stay() {
    let file = "a = 1   \nb = 2\t\nc = 3\n";
    assert_eq!(replace(file, "a = 1\nb = 2\nc = 3\n", "a = 1\nb = 20\nc = 3\n").unwrap(), "a = 1   \nb = 20\nc = 3\n");
}

#[test]
fn a_quote_with_other_indentation_gets_that_of_the_file() {
    let got = replace(FILE, "x = 1\nreturn -x\n", "x = 1\nif x:\n    x = 3\nreturn -x\n").unwrap();
    let body = "        x = 1\n        if x:\n            x = 3\n        return -x\n";
    assert!(got.ends_with(body), "{got}");
    // One line that is also an exact part of the file's line.
    assert_eq!(replace("if a:\n    b()\n", "b()\n", "b()\nc()\n").unwrap(), "if a:\n    b()\n    c()\n");
    // Deeper than it is.
    let got = replace("if a:\n  b()\n", "        if a:\n          b()\n", "        if a:\n          c()\n").unwrap();
    assert_eq!(got, "if a:\n  c()\n");
    // Tabs in the file, spaces in the quote.
    let got =
        replace("if a {\n\tb()\n}\n", "if a {\n    b()\n}\n", "if a {\n    b()\n    if c {\n        d()\n    }\n}\n");
    assert_eq!(got.unwrap(), "if a {\n\tb()\n\tif c {\n\t\td()\n\t}\n}\n");
    // Not the same shift throughout: in Python that is another program.
    assert!(replace("if a:\n    b()\nc()\n", "if a:\n    b()\n    c()\n", "d()\n").is_err());
}

#[test]
fn typographic_characters_and_inner_spaces_are_forgiven_last() {
    let file = "say(\"don't - ever\")\nx  =  1\n";
    let got = replace(file, "say(“don’t – ever”)\n", "say(\"never\")\n").unwrap();
    assert_eq!(got, "say(\"never\")\nx  =  1\n");
    assert_eq!(replace(file, "x = 1\n", "x = 2\n").unwrap(), "say(\"don't - ever\")\nx = 2\n");
}

#[test]
fn what_is_nowhere_is_an_error_that_shows_what_is_there() {
    let error = replace(FILE, "    def g(self):\n        x = 7\n        return -x\n", "").unwrap_err().to_string();
    assert!(error.contains("lines 6 to 8") || error.contains("lines are 6 to 8"), "{error}");
    assert!(error.contains("x = 1"), "{error}");
    let error = replace("a = 2\nb = 3\n", "a = 1\n", "a = 2\n").unwrap_err().to_string();
    assert!(error.contains("already"), "{error}");
    assert!(matches!(replace(FILE, "\n", "x"), Err(EditError::Unclear { .. })));
}

#[test]
fn the_last_line_stays_without_newline() {
    assert_eq!(replace("a\nb", "b\n", "c\n").unwrap(), "a\nc");
    assert_eq!(whole("a\nb", "a\nc\n").unwrap(), "a\nc");
    assert_eq!(whole("a\nb\n", "a\nc").unwrap(), "a\nc\n");
}

#[test]
fn an_answer_that_leaves_something_out_is_refused() {
    for line in [
        "# ... rest of the code remains unchanged ...",
        "    // ... existing code ...",
        "/* ... other methods ... */",
        "# Rest of the code",
        "// … unchanged …",
        "<!-- ... existing code ... -->",
    ] {
        let error = whole("a\nb\nc\n", &format!("a\n{line}\nc\nd\n")).unwrap_err();
        assert!(matches!(&error, EditError::Fragment { line: 2, .. }), "{line}: {error}");
    }
    // Dots alone only when the answer is short.
    let long: String = (0..20).map(|n| format!("x{n} = {n}\n")).collect();
    assert!(matches!(whole(&long, "x0 = 1\n# ...\n"), Err(EditError::Fragment { line: 2, .. })));
    assert!(whole(&long, &format!("# ...\n{long}")).is_ok());
    // Words the author wrote, and code that has dots.
    assert!(whole("# the rest of the code\na\n", "# the rest of the code\nb\n").is_ok());
    assert!(whole("a\n", "def f(*args): ...\nprint(\"... existing\")\n").is_ok());
}

#[test]
fn a_patch_is_read_and_applied() {
    let text = "*** Begin Patch\n*** Update File: a.py\n*** Move to: b.py\n@@ class A:\n@@     def g(self):\n-        x = 1\n+        x = 5\n*** Add File: n.txt\n+one\n+\n+two\n*** Delete File: d.txt\n*** End Patch\n";
    let changes = patch::parse(text).unwrap();
    assert_eq!(changes.len(), 4);
    let got = resolve(&changes[0], Some(FILE)).unwrap();
    assert_eq!(got.lines().nth(6), Some("        x = 5"), "{got}");
    assert_eq!(got.lines().nth(2), Some("        x = 1"));
    assert_eq!(changes[1].kind, ChangeKind::Move { to: PathBuf::from("b.py") });
    assert_eq!(changes[2].kind, ChangeKind::Create { text: "one\n\ntwo\n".to_owned() });
    assert_eq!(changes[3], change("d.txt", ChangeKind::Delete));
}

#[test]
fn a_sloppy_patch_is_read_too() {
    let heredoc = "apply_patch <<'EOF'\n  *** Begin Patch  \n*** Update File: a.py \n@@ -6,3 +6,3 @@\n     def g(self):\n-        x = 1\n+        x = 5\n\n*** End Patch\nEOF\n";
    let changes = patch::parse(heredoc).unwrap();
    assert_eq!(resolve(&changes[0], Some(FILE)).unwrap().lines().nth(6), Some("        x = 5"));
    let fenced = "```\n*** Update File: a.py\n def f(self):\n-    x = 1\n+    x = 5\n```\n";
    let changes = patch::parse(fenced).unwrap();
    assert_eq!(resolve(&changes[0], Some(FILE)).unwrap().lines().nth(2), Some("        x = 5"));
}

#[test]
fn a_patch_says_where_it_is_wrong() {
    let error = patch::parse("hello").unwrap_err().to_string();
    assert!(error.contains("*** Update File:"), "{error}");
    let error = patch::parse("*** Begin Patch\n*** Update File: a\n*** End Patch").unwrap_err().to_string();
    assert!(error.starts_with("line 3"), "{error}");
    let error = patch::parse("*** Begin Patch\n*** Update File: a\n@@\nxx\n*** End Patch").unwrap_err().to_string();
    assert!(error.starts_with("line 4"), "{error}");
}

#[test]
fn hunks_go_in_order_and_at_the_end() {
    let same = "a\nx\na\nx\na\n";
    let text = "*** Update File: t\n@@\n a\n-x\n+1\n a\n@@\n-x\n+2\n";
    let changes = patch::parse(text).unwrap();
    // The first stands twice and nothing says which.
    assert!(matches!(resolve(&changes[0], Some(same)), Err(EditError::Ambiguous { .. })));
    let text = "*** Update File: t\n@@\n x\n-a\n+end\n*** End of File\n";
    let changes = patch::parse(text).unwrap();
    assert_eq!(resolve(&changes[0], Some(same)).unwrap(), "a\nx\na\nx\nend\n");
    let text = "*** Update File: t\n@@\n+new\n";
    assert_eq!(resolve(&patch::parse(text).unwrap()[0], Some(same)).unwrap(), "a\nx\na\nx\na\nnew\n");
}

proptest! {
    /// Whatever is quoted, either exactly one place changed, or the file did not.
    #[test]
    fn a_quote_changes_one_place_or_none(
        file in proptest::collection::vec("[ \t]{0,2}[ab]{0,2}[ ]{0,1}", 1..12),
        quote in proptest::collection::vec("[ ]{0,2}[ab]{0,2}", 1..3),
    ) {
        let text = file.join("\n") + "\n";
        if let Ok(new) = replace(&text, &(quote.join("\n") + "\n"), "NEW\n") {
            prop_assert_eq!(new.matches("NEW").count(), 1);
            let (added, removed) = crate::diff::lines(&text, &new);
            prop_assert!(added <= quote.len() && removed <= quote.len());
        }
    }

    /// Lines cut out of a file and quoted with another indentation find their way back.
    #[test]
    fn a_shifted_quote_finds_its_place(depths in proptest::collection::vec(1usize..4, 2..20), cut in any::<prop::sample::Index>()) {
        let lines: Vec<String> = depths.iter().enumerate().map(|(n, depth)| format!("{}line {n}", "  ".repeat(*depth))).collect();
        let at = cut.index(lines.len() - 1);
        let quote: String = lines[at..at + 2].iter().map(|line| format!("{}\n", &line[2..])).collect();
        let text = lines.join("\n") + "\n";
        let new = replace(&text, &quote, &quote.replace("line", "LINE")).unwrap();
        prop_assert_eq!(new.to_lowercase(), text);
        prop_assert_eq!(new.matches("LINE").count(), 2);
    }

    #[test]
    fn a_patch_never_panics(text in "(\\*\\*\\* (Begin Patch|Update File: a|Add File: b|End Patch|End of File|Move to: c)\n|@@ ?a?\n|[-+ ]a\n|a\n|\n){0,12}") {
        if let Ok(changes) = patch::parse(&text) {
            for change in changes {
                let _ = resolve(&change, Some("a\nb\na\n"));
            }
        }
    }
}
