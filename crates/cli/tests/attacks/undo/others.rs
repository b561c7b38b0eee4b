//! What others did since: undo leaves it, shows it, asks, and keeps both.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::json;

use super::world::{Person, STYLES, Style, Tree, configure, differences, none, read, twenty, world};
use crate::support::{Answer, FakeModel, Home, User, printed, users};

fn done(home: &Home) {
    let output = home.run(&["exec", "Change the files."]);
    assert!(output.status.success(), "{}", printed(&output));
}

fn put(tree: &mut Tree, home: &Home, path: &str, text: &str) {
    home.write(Path::new("work").join(path), text);
    tree.insert(path.into(), (0o644, Some(text.into())));
}

/// M9 as it was reported: a file made since was deleted, two changed since went back.
#[test]
fn undo_leaves_what_others_did_since() {
    for user in users() {
        for style in STYLES {
            let (home, _model) = world(user, style, [twenty(style)]);
            let before = read(&home.work);
            done(&home);
            let mut wanted = before.clone();
            put(&mut wanted, &home, "mine.txt", "made since\n");
            put(&mut wanted, &home, "theirs.txt", "changed since, and never Flint's\n");
            put(&mut wanted, &home, "data/part0/f00.json", "changed since Flint changed it\n");
            put(&mut wanted, &home, "made/new2.json", "changed since Flint made it\n");
            wanted.insert("made".into(), (0o755, None));
            let full = read(&home.work);
            let mut person = Person::resume(&home);
            let said = person.undoes("/undo", "n");
            assert_eq!(differences(&read(&home.work), &wanted), none(), "{user:?} {style:?}: {said}");
            assert!(said.contains("-changed since Flint made it"), "it is shown first: {said}");
            assert!(said.contains("/undo force"), "it says how: {said}");
            // Asked for, that goes too, and comes back: nothing is ever lost.
            let said = person.undoes("/undo force", "n");
            let mut forced = before.clone();
            for path in ["mine.txt", "theirs.txt"] {
                forced.insert(path.into(), wanted[Path::new(path)].clone());
            }
            assert_eq!(differences(&read(&home.work), &forced), none(), "{user:?} {style:?}: {said}");
            person.undoes("/redo", "n");
            assert_eq!(differences(&read(&home.work), &wanted), none(), "{user:?} {style:?}: back to both");
            drop(person);
            // Also in another process.
            Person::resume(&home).undoes("/redo", "n");
            assert_eq!(differences(&read(&home.work), &full), none(), "{user:?} {style:?}: everything is back");
        }
    }
}

/// What can stand in the place of a file that Flint wrote.
#[test]
fn whatever_stands_there_now_is_left_alone() {
    let (home, _model) = world(User::Me, Style::Agent, [twenty(Style::Agent)]);
    let before = read(&home.work);
    done(&home);
    let file = |number: usize| home.work.join(format!("data/part{}/f{number:02}.json", number % 3));
    let outside = home.write("outside/secret.txt", "not yours\n");
    // 0: a link out, 1: a folder, 2: gone, 3: another mode, 4: renamed, 5: a pipe; part2 as a whole: a link to elsewhere.
    std::fs::remove_file(file(0)).unwrap();
    std::os::unix::fs::symlink(&outside, file(0)).unwrap();
    std::fs::remove_file(file(1)).unwrap();
    std::fs::create_dir(file(1)).unwrap();
    std::fs::write(file(1).join("inside"), "kept\n").unwrap();
    std::fs::remove_file(file(3)).unwrap();
    std::fs::set_permissions(file(4), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::rename(file(6), home.work.join("renamed.json")).unwrap();
    std::fs::remove_file(file(7)).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(file(7)).status().unwrap().success());
    std::fs::rename(home.work.join("data/part2"), home.path().join("outside/part2")).unwrap();
    std::os::unix::fs::symlink(home.path().join("outside/part2"), home.work.join("data/part2")).unwrap();
    let outside_before = read(&home.path().join("outside"));
    let changed = read(&home.work);
    let said = Person::resume(&home).undoes("/undo", "n");
    let found = read(&home.work);
    assert_eq!(read(&home.path().join("outside")), outside_before, "nothing outside is touched: {said}");
    for number in [0, 1, 3, 6, 7] {
        let path = file(number).strip_prefix(&home.work).unwrap().to_owned();
        assert_eq!(found.get(&path), changed.get(&path), "{} is left alone: {said}", path.display());
    }
    assert_eq!(std::fs::read_to_string(file(1).join("inside")).unwrap(), "kept\n");
    let (mode, bytes) = &found[file(4).strip_prefix(&home.work).unwrap()];
    assert_eq!(bytes, &before[file(4).strip_prefix(&home.work).unwrap()].1, "the text goes back");
    assert_eq!(*mode, 0o755, "the mode somebody gave it stays");
    assert!(found.contains_key(Path::new("renamed.json")));
    // Even by force no link is followed and no folder emptied.
    Person::resume(&home).undoes("/undo force", "n");
    assert_eq!(read(&home.path().join("outside")), outside_before);
    assert_eq!(std::fs::read_to_string(file(1).join("inside")).unwrap(), "kept\n");
    assert!(!std::fs::symlink_metadata(file(0)).unwrap().is_symlink(), "the link itself is replaced");
}

/// What commands change is taken back as well; what somebody changed after them is not.
#[test]
fn what_a_command_did_goes_back_and_nothing_else() {
    for user in users() {
        let command = "echo one > data/part0/f00.json; mkdir -p out; echo two > out/x; rm theirs.txt; chmod 755 data/part1/f01.json";
        let (home, _model) = world(user, Style::Agent, [Answer::call("shell", &json!({"command": command}))]);
        let before = read(&home.work);
        done(&home);
        let mut wanted = before.clone();
        put(&mut wanted, &home, "data/part0/f03.json", "somebody's\n");
        put(&mut wanted, &home, "out/mine", "somebody's\n");
        wanted.insert("out".into(), (0o755, None));
        assert!(!home.work.join("theirs.txt").exists(), "the command ran");
        let said = Person::resume(&home).undoes("/undo", "n");
        assert_eq!(differences(&read(&home.work), &wanted), none(), "{user:?}: {said}");
    }
}

/// Two of them in one folder: each takes back its own, and asks about the other's.
#[test]
fn two_flints_in_one_folder() {
    let call = |old: &str, new: &str| {
        let patch = format!("*** Begin Patch\n*** Update File: theirs.txt\n@@\n-{old}\n+{new}\n*** End Patch\n");
        Answer::call("apply_patch", &json!({"input": patch}))
    };
    let (home, _first) = world(User::Me, Style::Agent, [call("nobody touches this", "first")]);
    let mut one = Person::start(&home, &["--plain"]);
    // A tool says milliseconds, the end of a turn seconds.
    let ended = [" seconds"];
    one.says("Change it.");
    one.hears(&ended);
    let second = FakeModel::start([call("first", "second")]);
    configure(&home, &second, Style::Agent, "");
    let mut two = Person::start(&home, &["--plain"]);
    two.says("Change it again.");
    two.hears(&ended);
    let theirs = || std::fs::read_to_string(home.work.join("theirs.txt")).unwrap();
    assert_eq!(theirs(), "second\n");
    let said = one.undoes("/undo", "n");
    assert_eq!(theirs(), "second\n", "{said}");
    assert!(said.contains("-second"), "{said}");
    two.undoes("/undo", "n");
    assert_eq!(theirs(), "first\n");
    one.undoes("/undo", "n");
    assert_eq!(theirs(), "nobody touches this\n");
}

/// Where the way back cannot be kept nothing is changed, and the reason is told.
#[test]
fn without_a_way_back_nothing_is_written() {
    for user in users() {
        for style in STYLES {
            let (home, _model) = world(user, style, [twenty(style)]);
            let before = read(&home.work);
            // Nothing can be stored below a file, whoever tries.
            home.write("flint/state/checkpoints/objects", "in the way");
            home.give(&home.flint.join("state"));
            let said = printed(&home.run(&["exec", "Change the files."]));
            assert_eq!(differences(&read(&home.work), &before), none(), "{user:?} {style:?}: {said}");
            assert!(said.contains("checkpoints"), "{said}");
        }
        let call = Answer::call("shell", &json!({"command": "touch by-command"}));
        let (home, _model) = world(user, Style::Agent, [call]);
        home.write("flint/state/checkpoints/trees", "in the way");
        let said = printed(&home.run(&["exec", "Change the files."]));
        assert!(!home.work.join("by-command").exists(), "{user:?}: {said}");
    }
}

/// A candidate that was chosen is an edit like any other.
#[test]
fn a_candidate_can_be_taken_back() {
    let (home, _model) = world(User::Me, Style::Pair, [twenty(Style::Pair)]);
    let before = read(&home.work);
    let output = home.run(&["try", "-n", "1", "--check", "true", "--apply", "Change the files."]);
    assert!(output.status.success(), "{}", printed(&output));
    assert_ne!(read(&home.work), before);
    let said = Person::resume(&home).undoes("/undo", "n");
    assert_eq!(differences(&read(&home.work), &before), none(), "{said}");
}

/// `flint undo`, for scripts: what others changed stays, is shown, and the exit code says so.
#[test]
fn undo_without_a_screen() {
    for style in STYLES {
        let (home, _model) = world(User::Me, style, [twenty(style)]);
        let before = read(&home.work);
        done(&home);
        let after = read(&home.work);
        let mut wanted = before.clone();
        put(&mut wanted, &home, "data/part0/f00.json", "somebody's\n");
        let output = home.run(&["undo"]);
        let said = printed(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert_eq!(differences(&read(&home.work), &wanted), none(), "{said}");
        assert!(
            said.contains("-somebody's") && said.contains("data/part0/f00.json: somebody else has changed it since"),
            "{said}"
        );
        let output = home.run(&["undo", "--force"]);
        assert_eq!(output.status.code(), Some(0), "{}", printed(&output));
        assert_eq!(differences(&read(&home.work), &before), none());
        assert!(home.run(&["undo", "--redo"]).status.success());
        assert!(home.run(&["undo", "--redo"]).status.success());
        let mut both = after;
        put(&mut both, &home, "data/part0/f00.json", "somebody's\n");
        assert_eq!(differences(&read(&home.work), &both), none());
    }
}

/// Old checkpoints go by themselves; what a session can still undo does not.
#[test]
fn checkpoints_are_pruned() {
    let (home, _model) = world(User::Me, Style::Agent, [twenty(Style::Agent)]);
    let before = read(&home.work);
    done(&home);
    let store = home.flint.join("state/checkpoints");
    let stale = store.join("trees").join("0".repeat(64));
    std::fs::write(&stale, "flint checkpoint 1\n").unwrap();
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(40 * 86_400);
    for folder in [store.join("trees"), store.clone()] {
        for entry in std::fs::read_dir(folder).unwrap().flatten().filter(|entry| entry.path().is_file()) {
            std::fs::File::open(entry.path()).unwrap().set_modified(long_ago).unwrap();
        }
    }
    let mut person = Person::resume(&home);
    let began = std::time::Instant::now();
    while stale.exists() {
        assert!(began.elapsed() < std::time::Duration::from_secs(60), "nothing was pruned");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let said = person.undoes("/undo", "n");
    assert_eq!(differences(&read(&home.work), &before), none(), "the last turn of a session stays: {said}");
}
