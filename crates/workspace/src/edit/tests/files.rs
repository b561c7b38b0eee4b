//! Files keep what they are made of, and paths stay inside the workspace.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use proptest::prelude::*;

use super::*;

fn write_all(root: &Path, path: &str, old: &str, new: &str) -> Result<Vec<Written>, EditError> {
    let kind = ChangeKind::Replace { old: old.to_owned(), new: new.to_owned() };
    Batch::resolve(root, &[change(path, kind)])?.write(|_| Ok(()))
}

#[test]
fn encoding_line_ends_and_mode_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.txt");
    let utf16 = |text: &str| [vec![0xff, 0xfe], text.encode_utf16().flat_map(u16::to_le_bytes).collect()].concat();
    let cases: [(Vec<u8>, Vec<u8>); 6] = [
        (b"a\nx\nc\n".to_vec(), b"a\ny\nz\nc\n".to_vec()),
        (b"a\r\nx\r\nc\r\n".to_vec(), b"a\r\ny\r\nz\r\nc\r\n".to_vec()),
        (b"\xef\xbb\xbfa\r\nx\r\nc".to_vec(), b"\xef\xbb\xbfa\r\ny\r\nz\r\nc".to_vec()),
        (b"a\nx\r\nc\r\nd\n".to_vec(), b"a\ny\nz\nc\r\nd\n".to_vec()),
        (utf16("a\r\nx\r\n"), utf16("a\r\ny\r\nz\r\n")),
        (b"\xe4\nx\n\xff\n".to_vec(), b"\xe4\ny\nz\n\xff\n".to_vec()),
    ];
    for (before, after) in cases {
        fs::write(&path, &before).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o754)).unwrap();
        write_all(folder.path(), "a.txt", "x\n", "y\nz\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), after, "from {before:?}");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o754);
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside the file");
}

#[test]
fn what_is_no_text_is_not_edited() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a"), b"\x7fELF\0\0").unwrap();
    assert!(matches!(TextFile::read(&folder.path().join("a")), Err(EditError::NotText { .. })));
    assert!(matches!(TextFile::read(folder.path()), Err(EditError::NotText { .. })));
    let latin = folder.path().join("latin");
    fs::write(&latin, b"\xe4\n").unwrap();
    let file = TextFile::read(&latin).unwrap();
    let error = write_atomic(&latin, "→\n", &file).unwrap_err().to_string();
    assert!(error.contains('→'), "{error}");
    assert_eq!(fs::read(&latin).unwrap(), b"\xe4\n");
    let large = fs::File::create(folder.path().join("large")).unwrap();
    large.set_len(9 << 20).unwrap();
    assert!(matches!(TextFile::read(&folder.path().join("large")), Err(EditError::NotText { .. })));
}

#[test]
fn a_file_that_somebody_else_wrote_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    fs::write(&path, "x\n").unwrap();
    let file = TextFile::read(&path).unwrap();
    fs::write(&path, "theirs\n").unwrap();
    assert!(matches!(write_atomic(&path, "ours\n", &file), Err(EditError::Changed { .. })));
    assert_eq!(fs::read_to_string(&path).unwrap(), "theirs\n");
    fs::remove_file(&path).unwrap();
    assert!(matches!(write_atomic(&path, "ours\n", &file), Err(EditError::Changed { .. })));
    fs::write(&path, "theirs\n").unwrap();
    assert!(matches!(write_atomic(&path, "ours\n", &TextFile::absent()), Err(EditError::Changed { .. })));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_read_only_file_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    fs::write(&path, "x\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    let error = write_all(folder.path(), "a", "x\n", "y\n").unwrap_err().to_string();
    assert!(error.contains("read-only"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "x\n");
}

#[test]
fn a_batch_is_written_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a"), "1\n").unwrap();
    fs::write(folder.path().join("b"), "2\n").unwrap();
    let edit = |path: &str, old: &str, new: &str| {
        change(path, ChangeKind::Replace { old: old.to_owned(), new: new.to_owned() })
    };
    let create = change("new/c", ChangeKind::Create { text: "3".to_owned() });
    let wrong = [edit("a", "1", "one"), create.clone(), edit("b", "no such", "x")];
    assert!(matches!(Batch::resolve(folder.path(), &wrong), Err(EditError::NotFound { .. })));
    assert_eq!(fs::read_to_string(folder.path().join("a")).unwrap(), "1\n");
    assert!(!folder.path().join("new").exists());

    let right = [
        edit("a", "1", "one"),
        edit("a", "one", "uno"),
        create,
        edit("b", "2", "2"),
        change("b", ChangeKind::Move { to: "d".into() }),
    ];
    let batch = Batch::resolve(folder.path(), &right).unwrap();
    assert_eq!(fs::read_to_string(folder.path().join("a")).unwrap(), "1\n", "resolving writes nothing");
    let written = batch.write(|_| Ok(())).unwrap();
    let paths: Vec<&str> = written.iter().map(|file| file.path.to_str().unwrap()).collect();
    assert_eq!(paths, ["a", "b", "d", "new/c"]);
    assert_eq!(fs::read_to_string(folder.path().join("a")).unwrap(), "uno\n");
    assert_eq!(fs::read_to_string(folder.path().join("d")).unwrap(), "2\n");
    assert_eq!(fs::read_to_string(folder.path().join("new/c")).unwrap(), "3\n");
    assert!(!folder.path().join("b").exists());
    assert_eq!(written[0].lines(), (1, 1));
}

#[test]
fn one_changed_file_stops_the_whole_batch() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a"), "1\n").unwrap();
    fs::write(folder.path().join("b"), "2\n").unwrap();
    let whole = |path: &str| change(path, ChangeKind::WholeFile { text: "new\n".to_owned() });
    let batch = Batch::resolve(folder.path(), &[whole("a"), whole("b")]).unwrap();
    fs::write(folder.path().join("b"), "theirs\n").unwrap();
    assert!(matches!(batch.write(|_| Ok(())), Err(EditError::Changed { .. })));
    assert_eq!(fs::read_to_string(folder.path().join("a")).unwrap(), "1\n");
}

#[test]
fn a_moved_file_keeps_mode_and_line_ends() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("run.sh"), "a\r\n").unwrap();
    fs::set_permissions(folder.path().join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    let to = change("bin/run", ChangeKind::Move { to: "bin/go".into() });
    let moves = [change("run.sh", ChangeKind::Move { to: "bin/run".into() }), to];
    Batch::resolve(folder.path(), &moves).unwrap().write(|_| Ok(())).unwrap();
    let path = folder.path().join("bin/go");
    assert_eq!(fs::read(&path).unwrap(), b"a\r\n");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o755);
    assert!(!folder.path().join("run.sh").exists() && !folder.path().join("bin/run").exists());
}

#[test]
fn no_path_leads_out_of_the_workspace() {
    let outside = tempfile::tempdir().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    fs::create_dir_all(root.join(".git")).unwrap();
    fs::create_dir_all(root.join("sub")).unwrap();
    fs::write(outside.path().join("target"), "x\n").unwrap();
    symlink(outside.path(), root.join("link")).unwrap();
    symlink(outside.path().join("target"), root.join("file")).unwrap();
    symlink(outside.path().join("nothing"), root.join("dangling")).unwrap();
    symlink(".git", root.join("history")).unwrap();
    let absolute = outside.path().join("target");
    let bad = [
        "../a",
        "/etc/flint-test",
        "sub/../../a",
        "link/a",
        "link/target",
        "file",
        "dangling",
        ".git/config",
        ".GIT/config",
        "history/config",
        ".",
        absolute.to_str().unwrap(),
    ];
    for path in bad {
        let whole = change(path, ChangeKind::WholeFile { text: "y\n".to_owned() });
        let result = Batch::resolve(root, &[whole]).and_then(|batch| batch.write(|_| Ok(())));
        assert!(matches!(result, Err(EditError::Forbidden { .. })), "{path}: {result:?}");
    }
    assert_eq!(fs::read_to_string(outside.path().join("target")).unwrap(), "x\n");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    // Inside is inside, however it is written.
    let inside = root.canonicalize().unwrap().join("sub/./../sub/a");
    let whole = change(inside.to_str().unwrap(), ChangeKind::WholeFile { text: "y\n".to_owned() });
    Batch::resolve(root, &[whole]).unwrap().write(|_| Ok(())).unwrap();
    assert_eq!(fs::read_to_string(root.join("sub/a")).unwrap(), "y\n");
}

#[test]
fn a_link_inside_stays_a_link() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("real"), "x\n").unwrap();
    symlink("real", folder.path().join("link")).unwrap();
    write_all(folder.path(), "link", "x\n", "y\n").unwrap();
    assert!(fs::symlink_metadata(folder.path().join("link")).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(folder.path().join("real")).unwrap(), "y\n");
}

proptest! {
    /// Reading a file and writing the same text gives the same bytes, whatever they are.
    #[test]
    fn what_is_read_is_written_back(bytes in proptest::collection::vec(any::<u8>(), 0..64), ends in proptest::collection::vec(any::<bool>(), 0..8)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let mut content = bytes;
        content.extend(ends.iter().flat_map(|crlf| if *crlf { b"x\r\n".to_vec() } else { b"y\n".to_vec() }));
        fs::write(&path, &content).unwrap();
        if let Ok(file) = TextFile::read(&path) {
            write_atomic(&path, &file.text, &file).unwrap();
            prop_assert_eq!(fs::read(&path).unwrap(), content);
        }
    }
}

/// Whoever sends a huge answer to a huge file waits a moment, not forever.
#[test]
fn a_huge_answer_ends() {
    let old: String =
        (0..40_000).map(|line| format!("key{line} = \"something rather like the others {line}\"\n")).collect();
    let new: String =
        (0..20_000).map(|line| format!("name{line} = \"another thing quite like the others {line}\"\n")).collect();
    let merged = merge(std::path::Path::new("a.toml"), &old, &format!("key0 = 1\n{new}"), &|_| false).unwrap();
    let kept: std::collections::HashSet<&str> = merged.text.lines().collect();
    let lost = old.lines().skip(1).filter(|line| !kept.contains(line)).count();
    assert!(lost == 0 && kept.contains("key0 = 1"), "{lost} lines are lost");
}
