//! The program is killed at random moments of a scripted session, with SIGKILL, so nothing can be tidied up. Afterwards
//! every file is as before or as after its edit, the session opens with everything it had, and checkpoints bring back
//! trees that are equal byte for byte to what the script says they were.
#![allow(clippy::disallowed_macros, clippy::disallowed_methods)] // The tests' own files and words.
#![allow(clippy::unwrap_used, reason = "a test whose surroundings fail should fail")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use workspace::checkpoint::{Store, TreeId};
use workspace::edit::{Batch, Change, ChangeKind, is_leftover};
use workspace::session::{EditedFile, Line, Record, Session};

/// With `FLINT_TEST_SLOW`; without it a tenth, because each costs most of a second where syncing is slow.
const KILLS: usize = 200;
/// Says to the child where to work.
const PLACE: &str = "FLINT_TEST_CRASH_PLACE";
const FILES: usize = 6;
/// Is there while the script writes the files of a turn.
const WRITING: &str = "writing";
/// How many microseconds that took the last time.
const WROTE: &str = "wrote";

/// A path, its mode and its bytes, for each file of a version.
type Tree = BTreeMap<PathBuf, (u32, Vec<u8>)>;

/// What the script says the workspace is after `version` turns. One file comes and one goes with every turn.
fn expected(version: u32) -> Tree {
    let mut tree = Tree::new();
    for number in 0..FILES {
        let (path, mode) = match number {
            0 => ("run.sh".to_owned(), 0o755),
            number => (format!("src/part{}/file{number}.txt", number % 2), 0o644),
        };
        let end = if number == 1 { "\r\n" } else { "\n" };
        tree.insert(path.into(), (mode, text(number, version, end).into_bytes()));
    }
    tree.insert(format!("made/{version}.txt").into(), (0o644, text(99, version, "\n").into_bytes()));
    tree
}

/// Long enough that a write could be cut in the middle: about 40 KB.
fn text(number: usize, version: u32, end: &str) -> String {
    (0..1000).map(|line| format!("file {number} version {version:06} line {line:04}{end}")).collect()
}

fn read(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let data = fs::symlink_metadata(&path).unwrap();
            if data.is_dir() {
                open.push(path);
            } else {
                let mode = data.permissions().mode() & 0o777;
                tree.insert(path.strip_prefix(root).unwrap().to_owned(), (mode, fs::read(&path).unwrap()));
            }
        }
    }
    tree
}

struct Fixture {
    root: PathBuf,
    sessions: PathBuf,
    store: Store,
}

impl Fixture {
    fn at(folder: &Path) -> Self {
        let store = Store::open(&folder.join("checkpoints")).unwrap();
        Self { root: folder.join("work"), sessions: folder.join("sessions"), store }
    }

    fn open(&self) -> Session {
        let [path] = &fs::read_dir(&self.sessions).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>()[..]
        else {
            panic!("one session");
        };
        Session::open(&self.sessions, path.file_stem().unwrap().to_str().unwrap()).unwrap()
    }
}

fn checkpoints(lines: &[Line]) -> Vec<(u32, TreeId)> {
    let checkpoint = |line: &Line| match &line.record {
        Record::Checkpoint { turn, tree } => Some((*turn, TreeId::parse(tree).unwrap())),
        _ => None,
    };
    lines.iter().filter_map(checkpoint).collect()
}

/// The changes of one turn: whole files, quoted lines, one new file, one that goes.
fn changes(turn: u32) -> Vec<Change> {
    let change = |path: &Path, kind| Change { path: path.to_owned(), kind };
    let (before, after) = (expected(turn - 1), expected(turn));
    let plain = |tree: &Tree, path: &Path| String::from_utf8(tree[path].1.clone()).unwrap().replace("\r\n", "\n");
    let mut changes = Vec::new();
    for (number, path) in after.keys().enumerate() {
        changes.push(match (before.contains_key(path), number % 2) {
            (false, _) => change(path, ChangeKind::Create { text: plain(&after, path) }),
            (true, 0) => change(path, ChangeKind::WholeFile { text: plain(&after, path) }),
            (true, _) => change(path, ChangeKind::Replace { old: plain(&before, path), new: plain(&after, path) }),
        });
    }
    changes
        .extend(before.keys().filter(|path| !after.contains_key(*path)).map(|path| change(path, ChangeKind::Delete)));
    changes
}

/// The program that is killed. It goes on where the one before it was cut.
#[test]
#[ignore = "started by the test below"]
fn child() {
    let Some(folder) = std::env::var_os(PLACE) else { return };
    let fixture = Fixture::at(Path::new(&folder));
    fs::write(Path::new(&folder).join("alive"), "").unwrap();
    let mut session = fixture.open();
    let mut turn = 1;
    if let Some((last, tree)) = checkpoints(session.lines()).last() {
        turn = *last;
        fixture.store.restore(&fixture.root, tree).unwrap();
        session.append(Record::Rewind { turn, files: true, conversation: true }).unwrap();
    }
    loop {
        let before = fixture.store.snapshot(&fixture.root).unwrap();
        session.append(Record::Checkpoint { turn, tree: before.to_string() }).unwrap();
        session.append(Record::Prompt { turn, text: format!("version {turn}") }).unwrap();
        let batch = Batch::resolve(&fixture.root, &changes(turn)).unwrap();
        fs::write(Path::new(&folder).join(WRITING), "").unwrap();
        let begun = Instant::now();
        let written = batch.write(|_| Ok(())).unwrap();
        fs::write(Path::new(&folder).join(WROTE), begun.elapsed().as_micros().to_string()).unwrap();
        let _ = fs::remove_file(Path::new(&folder).join(WRITING));
        let file = |path: &PathBuf| EditedFile { path: path.clone(), added: 1000, removed: 1000, diff: String::new() };
        session
            .append(Record::Edits { turn, files: written.iter().map(|file| &file.path).map(file).collect() })
            .unwrap();
        session.append(Record::Item { item: json!({ "text": "x".repeat(20_000) }) }).unwrap();
        if turn % 3 == 0 {
            let after = fixture.store.snapshot(&fixture.root).unwrap();
            fixture.store.restore(&fixture.root, &before).unwrap();
            fixture.store.restore(&fixture.root, &after).unwrap();
        }
        session.append(Record::TurnEnd { turn, outcome: "done".into(), usage: json!(null) }).unwrap();
        turn += 1;
    }
}

#[test]
fn killed_at_any_moment_nothing_is_half_done() {
    let folder = tempfile::tempdir().unwrap();
    let fixture = Fixture::at(folder.path());
    for (path, (mode, bytes)) in expected(0) {
        let path = fixture.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    drop(Session::create(&fixture.sessions, &fixture.root, "scripted").unwrap());
    let mut random = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64 | 1;
    println!("random numbers begin with {random}");
    let mut known: Vec<Line> = Vec::new();
    // Where the kills fell: in a turn before its edits, in its edits, after them, between turns.
    let mut cuts: BTreeMap<&str, usize> = BTreeMap::new();
    let slow = std::env::var_os("FLINT_TEST_SLOW").is_some_and(|value| !value.is_empty());
    let kills = if slow { KILLS } else { KILLS / 10 };
    let mut turn_ms = 300;
    let mut made = 0;
    // Chance decides where a kill falls, so there are more of them until enough fell into edits, within reason.
    let enough = |cuts: &BTreeMap<&str, usize>, turns: u32| {
        turns as usize > kills / 10 && cuts.get("within the edits").is_some_and(|count| *count > kills / 50)
    };
    let turns = |known: &[Line]| checkpoints(known).last().map_or(0, |(turn, _)| *turn);
    while made < kills || (made < 10 * kills && !enough(&cuts, turns(&known))) {
        made += 1;
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        // Anywhere in the time that going on and two turns take on this machine; every other time among the writes, which
        // take a small part of it.
        let after = Duration::from_micros(random % (3000 * turn_ms));
        let wrote = fs::read_to_string(folder.path().join(WROTE)).ok().and_then(|micros| micros.parse::<u64>().ok());
        let among = wrote.filter(|_| made % 2 == 0).map(|micros| Duration::from_micros((random >> 30) % (micros + 1)));
        run_and_kill(folder.path(), after, among);
        let session = fixture.open();
        assert_eq!(session.damaged(), 0);
        assert_eq!(session.lines()[..known.len()], known[..], "what was written stays written");
        known = session.lines().to_vec();
        turn_ms = longest_turn_ms(&known).unwrap_or(turn_ms);
        let all = checkpoints(&known);
        let turn = all.last().map_or(1, |(turn, _)| *turn);
        *cuts.entry(check_files(&fixture.root, turn)).or_default() += 1;

        // The last checkpoint and any other bring back exactly what the script says.
        let picked = (!all.is_empty()).then(|| &all[(random >> 20) as usize % all.len()]);
        for (turn, tree) in picked.into_iter().chain(all.last()) {
            fixture.store.restore(&fixture.root, tree).unwrap();
            assert!(read(&fixture.root) == expected(*turn - 1), "the tree before turn {turn} came back differently");
        }
    }
    let turns = turns(&known);
    println!("{made} kills over {turns} turns of {turn_ms} ms at most: {cuts:?}");
    assert!(enough(&cuts, turns), "no further than turn {turns}, or no kill within the edits: {cuts:?}");
}

/// Starts the child, lets it run this long from its first sign of life, and kills it: at once, or this long after it next
/// begins to write.
fn run_and_kill(folder: &Path, after: Duration, among: Option<Duration>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--ignored", "--quiet"])
        .env(PLACE, folder)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let alive = folder.join("alive");
    while !alive.exists() {
        std::thread::sleep(Duration::from_micros(500));
        assert!(child.try_wait().unwrap().is_none(), "the script did not begin");
    }
    fs::remove_file(&alive).unwrap();
    let mut wait = |until: &dyn Fn() -> bool| {
        while !until() {
            std::thread::sleep(Duration::from_micros(100));
            assert!(child.try_wait().unwrap().is_none(), "the script ended by itself");
        }
    };
    let begun = Instant::now();
    wait(&|| begun.elapsed() >= after);
    if let Some(among) = among {
        let _ = fs::remove_file(folder.join(WRITING));
        wait(&|| folder.join(WRITING).exists());
        let begun = Instant::now();
        wait(&|| begun.elapsed() >= among);
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

/// How long a whole turn took at most, of the last few.
fn longest_turn_ms(lines: &[Line]) -> Option<u64> {
    let mut begun = 0;
    let mut turns = Vec::new();
    for line in lines {
        match line.record {
            Record::Checkpoint { .. } => begun = line.at,
            Record::TurnEnd { .. } => turns.push((line.at - begun).max(5)),
            _ => {}
        }
    }
    turns.iter().rev().take(5).max().copied()
}

/// Every file is whole and as before or after the turn; says how far it got.
fn check_files(root: &Path, turn: u32) -> &'static str {
    let (before, after) = (expected(turn - 1), expected(turn));
    let (mut old, mut new) = (0, 0);
    for (path, found) in read(root) {
        // An unfinished write lies beside the file it was for; the next snapshot clears it away.
        if is_leftover(path.file_name().unwrap()) {
            continue;
        }
        let is = |tree: &Tree| tree.get(&path) == Some(&found);
        assert!(is(&before) || is(&after), "{} is neither as before nor as after turn {turn}", path.display());
        old += usize::from(is(&before));
        new += usize::from(is(&after));
    }
    for path in before.keys().filter(|path| after.contains_key(*path)) {
        assert!(root.join(path).exists(), "{} is gone", path.display());
    }
    match (old, new) {
        (_, 0) => "before the edits",
        (0, _) => "after the edits",
        _ => "within the edits",
    }
}
