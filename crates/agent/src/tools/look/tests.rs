//! A small workspace, looked at.

use super::*;

fn workspace() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("src/lib.rs", "pub fn one() {}\npub fn two() {}\n");
    write("src/deep/down/below/file.rs", "fn three() {}\n");
    write("build/out.rs", "pub fn ignored() {}\n");
    write("target/debug/x.rs", "pub fn cached() {}\n");
    write("target/CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55\n");
    write(".gitignore", "build/\n");
    write(".secret", "pub fn hidden() {}\n");
    write("data.bin", "a\0b pub fn binary()");
    root
}

fn text(result: &Result<String, String>) -> &str {
    match result {
        Ok(text) | Err(text) => text,
    }
}

#[test]
fn reading_gives_numbered_lines_and_says_what_is_left() {
    let root = workspace();
    let whole = read(root.path(), "src/lib.rs", 1, None).unwrap();
    assert_eq!(whole, "src/lib.rs (2 lines)\n1\tpub fn one() {}\n2\tpub fn two() {}\n");
    let part = read(root.path(), "src/lib.rs", 1, Some(1)).unwrap();
    assert!(part.ends_with("1\tpub fn one() {}\n[1 more lines; read again with start = 2]\n"), "{part}");
    assert_eq!(read(root.path(), "src/lib.rs", 3, None).unwrap_err(), "src/lib.rs has only 2 lines");
    std::fs::write(root.path().join("long"), "x\n".repeat(10_000)).unwrap();
    let long = read(root.path(), "long", 9000, Some(5000)).unwrap();
    assert!(long.contains("\n9399\tx\n[601 more lines; read again with start = 9400]"), "{long}");
}

#[test]
fn reading_what_is_no_text_says_so() {
    let root = workspace();
    let check = |path: &str, want: &str| assert_eq!(text(&read(root.path(), path, 1, None)), want);
    check("data.bin", "data.bin is not text");
    check("src", "src is a folder; use list");
    check("lib.rs", "lib.rs does not exist; there is src/lib.rs");
    check("nowhere.rs", "nowhere.rs does not exist");
    check("../x", "../x is outside the workspace; give a path relative to the workspace");
}

#[test]
fn listing_leaves_out_what_git_ignores_and_caches() {
    let root = workspace();
    let listed = list(root.path(), ".").unwrap();
    assert_eq!(listed, ".gitignore\ndata.bin\nsrc/\nsrc/deep/\nsrc/deep/down/\nsrc/lib.rs\n");
    assert_eq!(list(root.path(), "src/lib.rs").unwrap_err(), "src/lib.rs is a file; use read");
}

#[test]
fn searching_finds_lines_by_expression_or_literally() {
    let root = workspace();
    let check = |pattern: &str, path: &str, want: &str| {
        assert_eq!(text(&search(root.path(), pattern, path)), want, "{pattern}");
    };
    check("^pub fn (one|two)", ".", "src/lib.rs:1: pub fn one() {}\nsrc/lib.rs:2: pub fn two() {}\n");
    check("two(", "", "src/lib.rs:2: pub fn two() {}\n");
    check("three", "src/deep", "src/deep/down/below/file.rs:1: fn three() {}\n");
    check("ignored|cached|hidden|binary", ".", "no line matches \"ignored|cached|hidden|binary\" in .\n");
    check("", ".", "the pattern is empty; say what to look for");
}

#[test]
fn searching_is_bounded() {
    let root = tempfile::tempdir().unwrap();
    for file in 0..30 {
        std::fs::write(root.path().join(format!("{file:02}")), "needle\n".repeat(50)).unwrap();
    }
    let found = search(root.path(), "needle", ".").unwrap();
    let matches = found.lines().filter(|line| line.ends_with(": needle")).count();
    assert_eq!(matches, MATCHES_MAX);
    assert!(found.ends_with("search for something rarer or in a folder]\n"), "{found}");
    // An expression too large to build is looked for literally.
    assert!(search(root.path(), "((a{1000}){1000}){1000}", ".").unwrap().starts_with("no line matches"));
}
