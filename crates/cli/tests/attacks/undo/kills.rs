//! kill -9 at any moment of a patch of twenty files: afterwards there is a way back, and it takes nothing of others.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::world::{Person, STYLES, Style, after, begun, differences, none, read, twenty, world};
use crate::support::{Home, User, users};

/// Kills in CI; `FLINT_ATTACK_KILLS=200` is the long run.
const KILLS: usize = 20;

fn exec(home: &Home) -> Child {
    let mut command = home.flint(&["exec", "Change the files."]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// Waits for a moment of a run; false when the run ended before it.
fn until(child: &mut Child, moment: impl Fn() -> bool) -> bool {
    let began = Instant::now();
    while !moment() {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "the run did not begin to write");
    }
    true
}

#[test]
fn a_patch_that_was_killed_at_its_first_file_can_be_undone() {
    for user in users() {
        for style in STYLES {
            let (home, _model) = world(user, style, [twenty(style)]);
            let before = read(&home.work);
            let mut child = exec(&home);
            assert!(until(&mut child, || begun(&home)), "{style:?}: nothing was written");
            child.kill().unwrap();
            child.wait().unwrap();
            let said = Person::resume(&home).undoes("/undo", "n");
            assert_eq!(differences(&read(&home.work), &before), none(), "{user:?} {style:?}: {said}");
        }
    }
}

/// Every moment: over the whole run, and above all while files are being written. Half of the time somebody else has
/// worked on the same files before they are taken back.
#[test]
fn killed_at_any_moment_nothing_is_lost() {
    let kills = std::env::var("FLINT_ATTACK_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(KILLS);
    let users = users();
    let mut random = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64 | 1;
    println!("random numbers begin with {random}");
    let mut number = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below.max(1)
    };
    // How long a whole run and its writing take here: learned from one that is not killed.
    let mut spans = Vec::new();
    for style in STYLES {
        let (home, _model) = world(User::Me, style, [twenty(style)]);
        let expected = after(style, &read(&home.work));
        let began = Instant::now();
        let mut child = exec(&home);
        assert!(until(&mut child, || begun(&home)));
        let writing = Instant::now();
        until(&mut child, || differences(&read(&home.work), &expected).is_empty());
        let written = writing.elapsed();
        assert!(child.wait().unwrap().success());
        assert_eq!(differences(&read(&home.work), &expected), none(), "{style:?}");
        spans.push((began.elapsed(), written));
    }
    // Before the edits, within them, after them; and how often others had worked on the files.
    let (mut cuts, mut others) = ([0; 3], 0);
    for kill in 0..kills {
        let (style, user) = (STYLES[kill % 2], users[kill / 2 % users.len()]);
        let (run, writing) = spans[kill % 2];
        let (home, _model) = world(user, style, [twenty(style)]);
        let before = read(&home.work);
        let expected = after(style, &before);
        let mut child = exec(&home);
        if number(4) == 0 {
            let moment = Duration::from_micros(number(run.as_micros() as u64));
            std::thread::sleep(moment);
        } else if until(&mut child, || begun(&home)) {
            std::thread::sleep(Duration::from_micros(number(writing.as_micros() as u64)));
        }
        let _ = child.kill();
        child.wait().unwrap();

        let cut = read(&home.work);
        let leftover = |path: &std::path::Path| path.to_string_lossy().contains(".flint-write-");
        for (path, found) in cut.iter().filter(|(path, _)| !leftover(path)) {
            let known = before.get(path) == Some(found) || expected.get(path) == Some(found);
            assert!(known, "kill {kill}, {style:?}: {} is neither before nor after", path.display());
        }
        let at = if differences(&cut, &before).is_empty() {
            0
        } else if differences(&cut, &expected).is_empty() {
            2
        } else {
            1
        };
        cuts[at] += 1;

        let mut wanted = before.clone();
        if kill % 4 >= 2 {
            others += 1;
            // One of the files that change, one that may be new by now, and one that nobody else knows.
            for path in ["data/part0/f00.json", "made/new2.json", "made/deep/mine.txt"] {
                let mut bytes =
                    cut.get(std::path::Path::new(path)).and_then(|(_, bytes)| bytes.clone()).unwrap_or_default();
                bytes.extend(b"somebody's work\n");
                home.write(std::path::Path::new("work").join(path), &bytes);
                wanted.insert(path.into(), (0o644, Some(bytes)));
            }
            for folder in ["made", "made/deep"] {
                wanted.insert(folder.into(), (0o755, None));
            }
        }
        let said = Person::resume(&home).undoes("/undo", "n");
        let found = read(&home.work);
        assert_eq!(
            differences(&found, &wanted),
            none(),
            "kill {kill}, {style:?}, {user:?}, cut {at}, of which {:?}: {said}",
            differences(&cut, &before).len()
        );
    }
    println!(
        "{kills} kills in both styles, patches of 20 files: {} before the edits, {} within, {} after; every tree came back \
         byte for byte, and the work of others survived in {others} of {others}",
        cuts[0], cuts[1], cuts[2]
    );
    assert!(cuts[1] > kills / 10, "too few kills fell within the edits: {cuts:?}");
}

/// A command that was cut off: nobody knows which files are its doing, so undo asks and takes nothing by itself.
#[test]
fn a_command_that_was_killed_is_asked_about() {
    use crate::support::Answer;
    let call =
        serde_json::json!({"command": "echo changed > data/part0/f00.json; echo made > by-command.txt; sleep 30"});
    let (home, _model) = world(User::Me, Style::Agent, [Answer::call("shell", &call)]);
    let before = read(&home.work);
    let mut child = exec(&home);
    assert!(until(&mut child, || home.work.join("by-command.txt").exists()));
    std::thread::sleep(Duration::from_millis(50));
    child.kill().unwrap();
    child.wait().unwrap();
    home.write("work/mine.txt", "my work since\n");
    let cut = read(&home.work);
    let mut person = Person::resume(&home);
    let said = person.undoes("/undo", "n");
    assert!(said.contains("by-command.txt"), "it is named: {said}");
    assert_eq!(differences(&read(&home.work), &cut), none(), "without a yes nothing goes: {said}");
    let said = person.undoes("/undo", "y");
    assert_eq!(differences(&read(&home.work), &before), none(), "{said}");
    person.undoes("/redo", "y");
    assert_eq!(differences(&read(&home.work), &cut), none(), "and nothing is lost by a yes");
}
