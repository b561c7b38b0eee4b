//! Writing, moving and going back.

use super::*;

fn written(text: &str) -> Composer {
    let mut composer = Composer::default();
    assert!(composer.insert(text));
    composer
}

#[test]
fn characters_are_what_people_see() {
    let mut composer = written("e\u{301}👩‍👩‍👧x");
    composer.backspace();
    composer.backspace();
    assert_eq!(composer.text(), "e\u{301}");
    composer.left();
    assert_eq!(composer.cursor(), 0);
    composer.delete();
    assert!(composer.is_empty());
}

#[test]
fn words_are_units() {
    let mut composer = written("fix snake_case, please");
    composer.word_left();
    composer.word_left();
    assert_eq!(&composer.text()[composer.cursor()..], "snake_case, please");
    composer.word_right();
    assert_eq!(&composer.text()[composer.cursor()..], ", please");
    composer.cut_word_left();
    assert_eq!(composer.text(), "fix , please");
    composer.paste_cut();
    assert_eq!(composer.text(), "fix snake_case, please");
    composer.cut_to_end();
    composer.cut_to_home();
    assert!(composer.is_empty());
}

#[test]
fn a_paste_keeps_its_lines_and_loses_what_steers_terminals() {
    let composer = written("a\r\nb\rc\x1b[2J\td");
    assert_eq!(composer.text(), "a\nb\nc[2J\td");
}

#[test]
fn a_paste_that_is_too_long_changes_nothing() {
    let mut composer = written("short");
    assert!(!composer.insert(&"x".repeat(BYTES_MAX)));
    assert_eq!(composer.text(), "short");
}

#[test]
fn up_and_down_go_by_what_is_seen() {
    let mut composer = written("abcdef\nxy");
    let (rows, at) = composer.layout(4);
    assert_eq!(rows, ["abcd", "ef", "xy"]);
    assert_eq!(at, (2, 2));
    assert!(composer.up());
    assert_eq!(composer.cursor(), 6);
    assert!(composer.up());
    assert_eq!(composer.cursor(), 2);
    assert!(!composer.up());
    assert!(composer.down());
    assert!(composer.down());
    assert!(!composer.down());
}

#[test]
fn the_cursor_behind_a_full_row_has_a_place() {
    let mut composer = written("abcd");
    assert_eq!(composer.layout(4), (vec!["abcd", ""], (1, 0)));
}

#[test]
fn earlier_prompts_come_back_and_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("state/history");
    let (mut history, trouble) = History::open(Some(file.clone()));
    assert!(trouble.is_none());
    for text in ["first", "second \\n\nline", "fix it", "fix it"] {
        history.add(text).unwrap();
    }
    let (mut history, _) = History::open(Some(file));
    assert_eq!(history.older("").as_deref(), Some("fix it"));
    assert_eq!(history.older("").as_deref(), Some("second \\n\nline"));
    assert_eq!(history.newer().as_deref(), Some("fix it"));
    assert_eq!(history.newer().as_deref(), Some(""));
    assert_eq!(history.newer(), None);
    assert_eq!(history.older("fix").as_deref(), Some("fix it"));
    assert_eq!(history.older(""), None, "nothing else begins with fix");
    assert_eq!(history.newer().as_deref(), Some("fix"));
}
