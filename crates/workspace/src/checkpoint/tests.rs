//! Snapshots are compared with an independent reading of the folder.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::Duration;

use proptest::prelude::*;

use super::*;

/// Everything below a folder, read without any help from the store: kind, mode and content.
fn contents(root: &Path) -> BTreeMap<PathBuf, (char, u32, Vec<u8>)> {
    let mut all = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let data = fs::symlink_metadata(&path).unwrap();
            let mode = data.permissions().mode() & 0o7777;
            let name = path.strip_prefix(root).unwrap().to_owned();
            if name.starts_with(".git") {
                continue;
            }
            if data.is_dir() {
                open.push(path);
                all.insert(name, ('d', mode, Vec::new()));
            } else if data.is_symlink() {
                all.insert(name, ('l', 0, fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()));
            } else {
                all.insert(name, ('f', mode, fs::read(&path).unwrap()));
            }
        }
    }
    all
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn folders() -> (tempfile::TempDir, tempfile::TempDir, Store) {
    let (root, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = Store::open(state.path()).unwrap();
    (root, state, store)
}

#[test]
fn a_folder_comes_back_as_it_was() {
    let (folder, _state, store) = folders();
    let root = folder.path();
    write(root, "src/a.rs", "fn a() {}\n");
    write(root, "run.sh", "echo\n");
    write(root, "deep/er/b.txt", "b\n");
    fs::set_permissions(root.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    symlink("src/a.rs", root.join("link")).unwrap();
    symlink("/nowhere", root.join("dangling")).unwrap();
    let before = contents(root);
    let id = store.snapshot(root).unwrap();

    write(root, "src/a.rs", "changed\n");
    write(root, "src/new/c.rs", "new\n");
    fs::remove_dir_all(root.join("deep")).unwrap();
    write(root, "deep", "a file where a folder was\n");
    fs::remove_dir(root.join("empty")).unwrap();
    fs::set_permissions(root.join("run.sh"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::remove_file(root.join("link")).unwrap();
    fs::create_dir(root.join("link")).unwrap();
    write(root, "link/inside", "x");
    fs::remove_file(root.join("dangling")).unwrap();
    symlink("/elsewhere", root.join("dangling")).unwrap();
    let after = contents(root);
    let later = store.snapshot(root).unwrap();

    let changed = store.restore(root, &id).unwrap();
    assert_eq!(contents(root), before);
    assert!(changed.contains(&PathBuf::from("src/a.rs")) && changed.contains(&PathBuf::from("deep")), "{changed:?}");
    store.restore(root, &later).unwrap();
    assert_eq!(contents(root), after, "and forth again");
    assert_eq!(store.restore(root, &later).unwrap(), Vec::<PathBuf>::new());
    assert_eq!(store.snapshot(root).unwrap(), later, "the same folder has the same name");
}

#[test]
fn differences_are_counted_in_lines() {
    let (folder, _state, store) = folders();
    let root = folder.path();
    write(root, "a", "1\n2\n");
    write(root, "same", "x\n");
    fs::write(root.join("binary"), [0xff, 0xfe, 0]).unwrap();
    let one = store.snapshot(root).unwrap();
    write(root, "a", "1\ntwo\nthree\n");
    write(root, "new/b", "b\n");
    fs::write(root.join("binary"), [0xff, 0xfe, 1]).unwrap();
    let two = store.snapshot(root).unwrap();
    let expected = [("a", (2, 1)), ("binary", (0, 0)), ("new/b", (1, 0))];
    let expected: Vec<(PathBuf, (usize, usize))> = expected.iter().map(|(path, lines)| (path.into(), *lines)).collect();
    assert_eq!(store.compare(&one, &two).unwrap(), expected);
    let diff = store.diff(&one, &two).unwrap();
    assert!(diff.contains("--- a/a\n+++ b/a\n") && diff.contains("binary changed"), "{diff}");
    assert_eq!(store.read(&one, Path::new("a")).unwrap().unwrap(), b"1\n2\n");
    assert_eq!(store.read(&one, Path::new("new/b")).unwrap(), None);
}

#[test]
fn git_is_never_touched_and_ignored_files_are_kept() {
    let (folder, _state, store) = folders();
    let root = folder.path();
    write(root, ".git/HEAD", "ref: refs/heads/main\n");
    write(root, "sub/.git/HEAD", "ref\n");
    write(root, ".gitignore", "secret\n");
    write(root, "secret", "ignored\n");
    let id = store.snapshot(root).unwrap();
    write(root, ".git/HEAD", "moved on\n");
    write(root, "secret", "lost\n");
    assert_eq!(store.restore(root, &id).unwrap(), [PathBuf::from("secret")]);
    assert_eq!(fs::read_to_string(root.join(".git/HEAD")).unwrap(), "moved on\n");
    assert_eq!(fs::read_to_string(root.join("sub/.git/HEAD")).unwrap(), "ref\n");
    assert_eq!(fs::read_to_string(root.join("secret")).unwrap(), "ignored\n");
}

#[test]
fn what_is_too_large_is_named_and_left_alone() {
    let (root, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let limits = Limits { file_bytes: 10, total_bytes: 25, entries: 50, generated_entries: 3, generated_bytes: 100 };
    let store = Store::with_limits(state.path(), limits).unwrap();
    let root = root.path();
    write(root, "big", "12345678901");
    write(root, "small", "1");
    write(root, "target/a", "a");
    write(root, "node_modules/a", "a");
    write(root, "node_modules/b/c", "c");
    write(root, "node_modules/b/d", "d");
    let id = store.snapshot(root).unwrap();
    assert_eq!(store.left_out(&id).unwrap(), ["big", "node_modules/"]);
    write(root, "big", "changed");
    write(root, "small", "2");
    write(root, "target/a", "b");
    write(root, "node_modules/b/c", "changed");
    let changed = store.restore(root, &id).unwrap();
    assert_eq!(changed, [PathBuf::from("small"), PathBuf::from("target/a")]);
    assert_eq!(fs::read_to_string(root.join("big")).unwrap(), "changed", "not known, so not touched");
    assert_eq!(fs::read_to_string(root.join("node_modules/b/c")).unwrap(), "changed");
    // What was not there then and is too large now is not removed either.
    write(root, "later", "12345678901");
    store.restore(root, &id).unwrap();
    assert!(root.join("later").exists());
    for number in 0..4 {
        write(root, &format!("file{number}"), "123456789");
    }
    let id = store.snapshot(root).unwrap();
    let files = store.left_out(&id).unwrap().iter().filter(|path| path.starts_with("file")).count();
    assert_eq!(files, 2, "25 bytes in all hold the small ones and two of four");
}

#[test]
fn a_list_of_left_out_files_that_is_cut_removes_nothing() {
    let (root, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let limits = Limits { file_bytes: 4, ..Limits::default() };
    let store = Store::with_limits(state.path(), limits).unwrap();
    let root = root.path();
    (0..1010).for_each(|number| write(root, &format!("f{number}"), "large"));
    write(root, "known", "1");
    let id = store.snapshot(root).unwrap();
    (0..1010).for_each(|number| write(root, &format!("f{number}"), "now"));
    write(root, "known", "2");
    store.restore(root, &id).unwrap();
    assert_eq!(fs::read_dir(root).unwrap().count(), 1011);
    assert_eq!(fs::read_to_string(root.join("known")).unwrap(), "1");
}

#[test]
fn a_quick_second_write_is_noticed() {
    let (folder, _state, store) = folders();
    let root = folder.path();
    let mut ids = Vec::new();
    for number in 0..50 {
        // Same size, same inode, and most likely the same step of the clock.
        fs::write(root.join("a"), format!("{number:04}")).unwrap();
        ids.push((store.snapshot(root).unwrap(), number));
    }
    for (id, number) in ids {
        store.restore(root, &id).unwrap();
        assert_eq!(fs::read_to_string(root.join("a")).unwrap(), format!("{number:04}"));
    }
}

#[test]
fn damage_is_noticed_before_anything_changes() {
    let (folder, state, store) = folders();
    let root = folder.path();
    write(root, "a", "one\n");
    write(root, "b", "two\n");
    let id = store.snapshot(root).unwrap();
    write(root, "a", "1\n");
    write(root, "b", "2\n");
    let object = Hash::of(b"two\n").to_string();
    let path = state.path().join("objects").join(&object[..2]).join(&object[2..]);
    fs::write(&path, "six\n").unwrap();
    assert!(matches!(store.restore(root, &id), Err(CheckpointError::Damaged { .. })));
    assert_eq!(fs::read_to_string(root.join("a")).unwrap(), "1\n");
    let unknown = TreeId::parse(&"0".repeat(64)).unwrap();
    assert!(matches!(store.restore(root, &unknown), Err(CheckpointError::Unknown { .. })));
    assert!(TreeId::parse("../../etc/passwd").is_none());
    // A tree that was cut is no tree.
    let tree = state.path().join("trees").join(id.to_string());
    fs::write(&tree, &fs::read(&tree).unwrap()[..20]).unwrap();
    assert!(matches!(store.restore(root, &id), Err(CheckpointError::Damaged { .. })));
}

#[test]
fn the_store_may_lie_inside_and_knows_other_processes_files() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    write(root, "a", "a");
    let id = Store::open(&root.join("state")).unwrap().snapshot(root).unwrap();
    let again = Store::open(&root.join("state")).unwrap();
    assert_eq!(again.snapshot(root).unwrap(), id);
    assert!(again.left_out(&id).unwrap().is_empty());
    // A write that a dead process left unfinished is cleared away; nobody has the number 4,000,000,000.
    write(root, ".flint-write-4000000000-1", "half");
    assert_eq!(again.snapshot(root).unwrap(), id);
    assert!(!root.join(".flint-write-4000000000-1").exists());
}

/// Makes everything in a store look old.
fn age_all(state: &Path) {
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(100);
    for (path, _) in contents(state).into_iter().filter(|(_, (kind, ..))| *kind == 'f') {
        fs::File::open(state.join(path)).unwrap().set_modified(long_ago).unwrap();
    }
}

/// Limits under which everything older than ten seconds may go.
fn ten_seconds() -> PruneLimits {
    let ten = Duration::from_secs(10);
    PruneLimits { unused: ten, every: ten, rest: ten, ..PruneLimits::default() }
}

#[test]
fn pruning_keeps_what_is_used() {
    let (folder, state, store) = folders();
    let root = folder.path();
    write(root, "a", "old content");
    let old = store.snapshot(root).unwrap();
    write(root, "a", "new");
    let new = store.snapshot(root).unwrap();
    age_all(state.path());
    store.restore(root, &new).unwrap();
    store.snapshot(root).unwrap();
    assert!(store.prune(&ten_seconds(), |_| false).unwrap() >= 11);
    assert!(matches!(store.restore(root, &old), Err(CheckpointError::Unknown { .. })));
    write(root, "a", "x");
    store.restore(root, &new).unwrap();
    assert_eq!(fs::read_to_string(root.join("a")).unwrap(), "new");
    assert_eq!(store.prune(&ten_seconds(), |_| false).unwrap(), 0, "not twice in ten seconds");
}

#[test]
fn pruning_leaves_live_sessions_and_the_last_turn_of_every_other() {
    let (folder, state, store) = folders();
    let root = folder.path();
    let mut snapshots = Vec::new();
    for text in ["one", "two", "three", "four", "nobody's"] {
        write(root, "a", text);
        snapshots.push(store.snapshot(root).unwrap());
    }
    let mut ended = store.hold("ended").unwrap();
    ended.note(1, &snapshots[0]).unwrap();
    ended.note(2, &snapshots[1]).unwrap();
    drop(ended);
    let mut live = store.hold("live").unwrap();
    live.note(1, &snapshots[2]).unwrap();
    live.note(2, &snapshots[3]).unwrap();
    drop(store.hold("deleted").unwrap());
    age_all(state.path());
    let other = Store::open(state.path()).unwrap();
    other.prune(&PruneLimits { bytes_max: 0, ..ten_seconds() }, |session| session != "deleted").unwrap();
    let there: Vec<bool> = snapshots.iter().map(|id| store.read(id, Path::new("a")).is_ok()).collect();
    assert_eq!(there, [false, true, true, true, false]);
    assert!(!state.path().join("sessions/deleted").exists());
    drop(live);
}

#[test]
fn too_much_is_forgotten_oldest_first() {
    let (folder, state, store) = folders();
    let root = folder.path();
    let mut snapshots = Vec::new();
    for number in 0..8u64 {
        write(root, "a", &format!("{number}").repeat(1000));
        let id = store.snapshot(root).unwrap();
        let at = std::time::SystemTime::now() - Duration::from_secs(100 - number);
        fs::File::open(state.path().join("trees").join(id.to_string())).unwrap().set_modified(at).unwrap();
        snapshots.push(id);
    }
    for prefix in fs::read_dir(state.path().join("objects")).unwrap().flatten() {
        age_all(&prefix.path());
    }
    let limits = PruneLimits { unused: Duration::from_secs(1000), bytes_max: 4500, ..ten_seconds() };
    assert!(Store::open(state.path()).unwrap().prune(&limits, |_| true).unwrap() > 3000);
    let there: Vec<bool> = snapshots.iter().map(|id| store.read(id, Path::new("a")).is_ok()).collect();
    assert_eq!(there, [false, false, false, false, true, true, true, true]);
}

fn files() -> impl Strategy<Value = Vec<(String, String)>> {
    proptest::collection::vec(("[ab]/[ab]/[ab]|[ab]/[ab]|[a-d]|é\\\\ \n[ab]", "[x\n]{0,6}"), 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    /// From any folder to any folder and back.
    #[test]
    fn any_two_folders_can_be_exchanged(first in files(), second in files()) {
        let (folder, _state, store) = folders();
        let root = folder.path();
        let fill = |files: &[(String, String)]| {
            for entry in fs::read_dir(root).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
            }
            for (path, text) in files {
                // A path may be a folder for one file and a file for another; then the first wins.
                let path = root.join(path);
                let _ = fs::create_dir_all(path.parent().unwrap()).and_then(|()| fs::write(path, text));
            }
            (store.snapshot(root).unwrap(), contents(root))
        };
        let (one, before) = fill(&first);
        let (two, after) = fill(&second);
        store.restore(root, &one).unwrap();
        prop_assert_eq!(&contents(root), &before);
        store.restore(root, &two).unwrap();
        prop_assert_eq!(&contents(root), &after);
        prop_assert_eq!(one == two, before == after);
    }
}

/// A step that Flint made, with the file written as it says.
fn edit(store: &Store, root: &Path, path: &str, old: &str, new: &str) -> Done {
    let entry = |text: &str| {
        let kind = Kind::File { hash: Hash::of(text.as_bytes()), size: text.len() as u64 };
        Entry { kind, mode: MODE_UNKNOWN }
    };
    let mut step = Step::default();
    step.before.insert(path.into(), entry(old));
    step.after.insert(path.into(), entry(new));
    step.written.push(new.as_bytes().to_vec());
    let id = store.keep(root, &step).unwrap();
    write(root, path, new);
    Done::Edit(id)
}

#[test]
fn what_was_changed_since_stays_when_flints_lines_go() {
    let (folder, _state, store) = folders();
    let root = folder.path();
    let lines = |changes: &[(usize, &str)]| {
        let line = |at: usize| changes.iter().find(|(line, _)| *line == at).map_or("kept", |(_, text)| text);
        (1..=12).map(|at| format!("{at} {}\n", line(at))).collect::<String>()
    };
    let read = || fs::read_to_string(root.join("a")).unwrap();
    write(root, "a", &lines(&[]));
    let first = edit(&store, root, "a", &lines(&[]), &lines(&[(2, "flint")]));
    let second = edit(&store, root, "a", &lines(&[(2, "flint")]), &lines(&[(2, "flint"), (9, "flint too")]));
    write(root, "a", &lines(&[(2, "flint"), (6, "mine"), (9, "flint too")]));
    let plan = store.plan_back(root, std::slice::from_ref(&second)).unwrap();
    assert_eq!((plan.ours.len(), plan.merged.len(), plan.theirs.len()), (0, 1, 0));
    let (diff, _) = store.show(root, &plan.merged[0]);
    assert!(diff.contains("-9 flint too\n+9 kept\n"), "{diff}");
    let step = store.keep_present(root, &plan.merged).unwrap();
    assert_eq!(store.go(root, &plan.merged).unwrap().paths, [Path::new("a")]);
    assert_eq!(read(), lines(&[(2, "flint"), (6, "mine")]));
    // Redo brings both again.
    store.go(root, &store.plan_forth(root, &step).unwrap().ours).unwrap();
    assert_eq!(read(), lines(&[(2, "flint"), (6, "mine"), (9, "flint too")]));
    // Both steps go from under what was written between and after.
    let plan = store.plan_back(root, &[first.clone(), second.clone()]).unwrap();
    store.go(root, &plan.merged).unwrap();
    assert_eq!(read(), lines(&[(6, "mine")]));
    // The same lines: somebody has to say.
    write(root, "a", &lines(&[(2, "flint and me")]));
    let plan = store.plan_back(root, &[first]).unwrap();
    assert_eq!((plan.ours.len(), plan.merged.len(), plan.theirs.len()), (0, 0, 1));
}
