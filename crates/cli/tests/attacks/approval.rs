//! Commands that write or execute in disguise, and questions that hide what they ask.
//!
//! The agent crate tries thousands of such lines on the rules alone; here some of every class go the whole way, from a
//! model's call to the shell.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Answer, FakeModel, Home, User, binary, users};

#[path = "../terminal/screen.rs"]
#[allow(dead_code, reason = "questions need few of its helpers")]
mod screen;

/// Lines that make the file `@`, which is another one for each.
const HOSTILE: &[&str] = &[
    // A backslash and a line end inside a word.
    "so\\\nrt -o @ a",
    "sort -\\\no @ a",
    "fi\\\nnd a -exec touch @ \\;",
    "find a -ex\\\nec touch @ \\;",
    "git diff --no-index --out\\\nput=@ a b",
    "ls \\\n; touch @",
    // What the shell itself assigns or evaluates.
    "printf -v 'x[$(touch @)]' y",
    "printf '-vx[$(touch @)]' y",
    "test -v 'x[$(touch @)]'",
    "test ! -v 'x[$(touch @)]'",
    "[ -v 'x[$(touch @)]' ]",
    "test -n '' -o -v 'x[$(touch @)]'",
    "let 'x[$(touch @)]=1'",
    "eval 'touch @'",
    "trap 'touch @' EXIT",
    "exec touch @",
    "command touch @",
    // Options that write or execute, abbreviated and bundled.
    "sort -o @ a",
    "sort -uo @ a",
    "sort -nruo@ a",
    "sort --output=@ a",
    "sort --outp=@ a",
    "sort --o @ a",
    "sort a -o @",
    "git diff --no-index --output @ a b",
    "git diff --no-index --output=@ a b",
    "find a -fprint @",
    "find a -fls @",
    "find a -execdir touch @ \\;",
    "uniq a @",
    "uniq -- a @",
    "sed -n 'w @' a",
    "sed -n '1p;w @' a",
    "sed 's/one/touch @/e' a",
    // Blanks that are none, quotes, expansions, redirections.
    "echo \"a\\\\\"; touch @; echo \"b\"",
    "echo 'a\\'; touch @",
    "ls # x \\\ntouch @",
    "echo $(touch @)",
    "echo `touch @`",
    "echo x > @",
    "echo x 1<>@",
    "$'touch' @",
    "t''ouch @",
    "/usr/bin/tou?h @",
    "true & touch @",
    "ls() { touch @; }; ls",
    "{ touch @; }",
    "x=1 touch @",
    // Folders whose repository executes; it makes the file `ran`.
    "cd evil && git status",
    "git -C evil status",
    "cd evil; git diff",
    "cd ./evil && git ls-files -m",
];

/// Lines that must still run, and what they print.
const ORDINARY: &[(&str, &str)] = &[
    ("ls", "script"),
    ("cat a", "two"),
    ("grep -n two a", "2:two"),
    ("sed -n '2p' a", "two"),
    ("find . -name 'scr*'", "./script"),
    ("sort -r a | head -1", "two"),
    ("git log --oneline 2>/dev/null; echo looked", "looked"),
    ("cd src && pwd", "/src"),
    ("wc -l \\\n a", "2 a"),
];

fn workspace(user: User) -> Home {
    let home = Home::new(user);
    home.write("work/a", "one\ntwo\n");
    home.write("work/b", "one\n");
    home.write("work/script", "#!/bin/sh\n");
    home.write("work/src/c", "three\n");
    let run = home.write("work/run", format!("#!/bin/sh\ntouch {}/ran\n", home.work.display()));
    let make = format!(
        "chmod +x {}; git init -q evil; echo x > evil/f; cd evil; git add f; git config core.fsmonitor {}; rm -f ../ran",
        run.display(),
        run.display()
    );
    let made = home.program(Path::new("/bin/bash")).args(["-c", &make]).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let _ = std::fs::remove_file(home.work.join("ran"));
    home
}

/// The results of a call each for these lines, by the model's next requests.
fn call_all(home: &Home, lines: &[String], settings: &str) -> Vec<String> {
    let calls = lines.iter().enumerate().map(|(at, line)| {
        let mut answer = Answer::call("shell", &json!({"command": line}));
        answer.0[0]["call_id"] = json!(format!("call_{at}"));
        answer
    });
    let model = FakeModel::start(calls.collect::<Vec<_>>());
    home.use_model(&model, &format!("style = \"agent\"\n{settings}"));
    let ran = home.run(&["exec", "look around"]);
    let requests = model.requests();
    let results: Vec<String> = (0..lines.len())
        .map(|at| {
            let id = format!("call_{at}");
            let is_result = |item: &&Value| item["type"] == "function_call_output" && item["call_id"] == id.as_str();
            let all = requests.iter().filter_map(|request| request["input"].as_array()).flatten();
            let result = all.into_iter().find(is_result).map(|item| item["output"].to_string());
            result.unwrap_or_else(|| panic!("{:?} was never called: {ran:?}", lines[at]))
        })
        .collect();
    results
}

/// Where nothing confines a command, both policies ask about whatever does not only read.
const UNCONFINED: &[&str] = &["untrusted", "on-request"];

#[test]
fn lines_in_disguise_do_not_run_unasked() {
    for user in users() {
        for policy in UNCONFINED {
            let home = workspace(user);
            let settings = format!("sandbox_mode = \"danger-full-access\"\napproval_policy = \"{policy}\"");
            let lines: Vec<String> =
                HOSTILE.iter().enumerate().map(|(at, line)| line.replace('@', &format!("made-{at}"))).collect();
            assert!(lines.len() >= 37, "{}", lines.len());
            let mut unasked = Vec::new();
            for some in lines.chunks(26) {
                let results = call_all(&home, some, &settings);
                unasked.extend(some.iter().zip(results).filter(|(_, result)| !result.contains("did not allow")));
            }
            let made: Vec<_> = std::fs::read_dir(&home.work)
                .unwrap()
                .flatten()
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .filter(|name| name.starts_with("made-") || name == "ran")
                .collect();
            assert!(made.is_empty() && unasked.is_empty(), "{user:?} {policy}: made {made:?}, unasked {unasked:#?}");
        }
    }
}

#[test]
fn ordinary_looks_still_run() {
    for user in users() {
        let home = workspace(user);
        let lines: Vec<String> = ORDINARY.iter().map(|(line, _)| (*line).to_owned()).collect();
        let settings = "sandbox_mode = \"danger-full-access\"\napproval_policy = \"untrusted\"";
        let results = call_all(&home, &lines, settings);
        for ((line, printed), result) in ORDINARY.iter().zip(results) {
            assert!(result.contains(printed), "{user:?} {line:?}: {result}");
        }
    }
}

/// The hostile lines do what they say, else the test above would prove nothing.
#[test]
fn the_lines_are_hostile() {
    let home = workspace(User::Me);
    for line in HOSTILE {
        let marker = if line.contains('@') { "made" } else { "ran" };
        let _ = std::fs::remove_file(home.work.join(marker));
        let mut bash = Command::new("bash");
        let _ = bash.args(["-c", &line.replace('@', "made")]).current_dir(&home.work).output().unwrap();
        assert!(std::fs::symlink_metadata(home.work.join(marker)).is_ok(), "{line:?} does nothing");
    }
}

/// A screen with the question about a command on it.
fn asked(home: &Home, line: &str) -> (screen::Screen, FakeModel) {
    let model = FakeModel::start([Answer::call("shell", &json!({"command": line}))]);
    let settings = "style = \"agent\"\nsandbox_mode = \"danger-full-access\"\napproval_policy = \"untrusted\"";
    home.use_model(&model, settings);
    let command = pty_process::blocking::Command::new(binary())
        .current_dir(&home.work)
        .env("HOME", home.path())
        .env("FLINT_HOME", &home.flint)
        .env("TMPDIR", home.path().join("tmp"));
    let screen = screen::Screen::start(command, (80, 24));
    screen.sees("Enter asks");
    screen.enter("look around");
    screen.sees("n no");
    (screen, model)
}

#[test]
fn the_question_shows_what_blanks_would_hide() {
    let home = workspace(User::Me);
    let (screen, _model) = asked(&home, &format!("make test{}; touch hidden\u{202e}\u{200b}X", " ".repeat(600)));
    screen.sees("touch hidden<U+202E><U+200B>X");
    screen.sees("asked because");
    let text = screen.text();
    assert!(text.contains("600 blanks"), "{text}");
}

#[test]
fn a_command_longer_than_the_screen_is_allowed_only_when_its_end_was_seen() {
    let home = workspace(User::Me);
    let (screen, _model) = asked(&home, &format!("{}touch made", "echo one two three four five; ".repeat(150)));
    screen.sees("more lines, PageDown shows them");
    // Longer than a question rests before letters count.
    std::thread::sleep(std::time::Duration::from_millis(600));
    screen.keys("y");
    screen.keys("\x1by");
    for _ in 0..40 {
        screen.keys("\x1b[6~");
    }
    screen.sees("touch made");
    screen.sees("y yes");
    assert!(!home.work.join("made").exists(), "it ran before it was read");
    screen.keys("y");
    screen.wait("the command has run", |_| home.work.join("made").exists());
}
