//! Sessions survive what happens to files, and going back is as if it had not been said.

use std::fs;

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn prompt(turn: u32, text: &str) -> Record {
    Record::Prompt { turn, text: text.to_owned() }
}

fn item(text: &str) -> Record {
    Record::Item { item: json!({ "type": "message", "text": text }) }
}

fn texts(session: &Session) -> Vec<String> {
    session.replay().items.iter().map(|item| item["text"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn what_is_written_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut session = Session::create(folder.path(), Path::new("/work"), "small").unwrap();
    let records = [
        Record::Checkpoint { turn: 1, tree: "t1".into() },
        prompt(1, "line\nbreak \u{2028} é"),
        item("a"),
        Record::Edits {
            turn: 1,
            files: vec![EditedFile { path: "a.rs".into(), added: 2, removed: 1, diff: String::new() }],
        },
        Record::Restored { what: "undo".into(), turn: 1, step: "t1".into() },
        Record::TurnEnd { turn: 1, outcome: "done".into(), usage: json!({ "requests": 1 }) },
    ];
    records.iter().for_each(|record| session.append(record.clone()).unwrap());
    let (id, lines) = (session.id().to_owned(), session.lines().to_vec());
    assert!(matches!(Session::open(folder.path(), &id), Err(SessionError::Busy { .. })), "one writer at a time");
    drop(session);
    let again = Session::open(folder.path(), &id[..id.len() - 2]).unwrap();
    assert_eq!(again.lines(), lines);
    assert_eq!(again.folder(), Some(Path::new("/work")));
    let written: Vec<Record> = again.lines()[1..].iter().map(|line| line.record.clone()).collect();
    assert_eq!(written, records);
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &fs::metadata(folder.path().join(format!("{id}.jsonl"))).unwrap().permissions(),
    );
    assert_eq!(mode & 0o077, 0);
}

#[test]
fn a_session_is_free_when_it_ends_even_if_a_child_still_has_the_handle() {
    let folder = tempfile::tempdir().unwrap();
    let session = Session::create(folder.path(), Path::new("/work"), "small").unwrap();
    let id = session.id().to_owned();
    // What a process that is being started has until it runs.
    let _inherited = session.file.as_ref().unwrap().1.try_clone().unwrap();
    drop(session);
    Session::open(folder.path(), &id).unwrap();
}

#[test]
fn a_torn_line_is_cut_and_a_strange_one_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let mut session = Session::create(folder.path(), Path::new("/"), "m").unwrap();
    session.append(prompt(1, "one")).unwrap();
    let id = session.id().to_owned();
    drop(session);
    let path = folder.path().join(format!("{id}.jsonl"));
    let whole = fs::read(&path).unwrap();
    // However much of the next line got to the disk.
    let next = b"{\"at\":1,\"type\":\"item\",\"item\":{\"text\":\"lost\"}}";
    for cut in 1..=next.len() {
        fs::write(&path, [&whole[..], &next[..cut]].concat()).unwrap();
        let mut session = Session::open(folder.path(), &id).unwrap();
        assert_eq!(session.lines().len(), 2);
        session.append(item("kept")).unwrap();
        drop(session);
        let session = Session::open(folder.path(), &id).unwrap();
        assert_eq!((texts(&session), session.damaged()), (vec!["kept".to_owned()], 0));
    }
    fs::write(&path, [&whole[..], b"garbage\n{\"at\":1,\"type\":\"from_the_future\",\"x\":1}\n"].concat()).unwrap();
    let session = Session::open(folder.path(), &id).unwrap();
    assert_eq!(session.damaged(), 1);
    assert_eq!(session.lines()[2].record, Record::Unknown);
}

#[test]
fn a_rewind_takes_back_turns_even_across_a_compaction() {
    let mut session = Session::ephemeral(Path::new("/"), "m");
    for turn in 1..=3 {
        session.append(prompt(turn, &format!("ask {turn}"))).unwrap();
        session.append(Record::Checkpoint { turn, tree: format!("tree {turn}") }).unwrap();
        session.append(Record::Checkpoint { turn, tree: "before a command".into() }).unwrap();
        session.append(item(&format!("answer {turn}"))).unwrap();
    }
    let kept = Record::Compaction { items: vec![json!({ "text": "summary" })], kept: "all".into() };
    session.append(kept).unwrap();
    session.append(prompt(4, "ask 4")).unwrap();
    session.append(item("answer 4")).unwrap();
    assert_eq!(texts(&session), ["summary", "answer 4"]);
    assert_eq!(session.replay().next_turn(), 5);
    assert_eq!(session.replay().turns[1].checkpoint.as_deref(), Some("tree 2"));

    session.append(Record::Rewind { turn: 4, files: true, conversation: false }).unwrap();
    assert_eq!(session.replay().turns.len(), 4, "files alone leave the conversation");
    session.append(Record::Rewind { turn: 2, files: true, conversation: true }).unwrap();
    assert_eq!(texts(&session), ["answer 1"]);
    assert_eq!((session.replay().next_turn(), session.replay().compacted), (2, None));
    session.append(prompt(2, "another way")).unwrap();
    session.append(item("other")).unwrap();
    assert_eq!(texts(&session), ["answer 1", "other"]);
    assert_eq!(session.replay().turns[1].text, "another way");
}

#[test]
fn a_fork_has_the_past_and_its_own_future() {
    let folder = tempfile::tempdir().unwrap();
    let mut session = Session::create(folder.path(), Path::new("/"), "m").unwrap();
    for turn in 1..=2 {
        session.append(Record::Checkpoint { turn, tree: format!("t{turn}") }).unwrap();
        session.append(prompt(turn, &format!("ask {turn}"))).unwrap();
        session.append(item(&format!("answer {turn}"))).unwrap();
    }
    let mut whole = session.fork(folder.path(), None).unwrap();
    let part = session.fork(folder.path(), Some(2)).unwrap();
    whole.append(item("more")).unwrap();
    assert_eq!(texts(&whole), ["answer 1", "answer 2", "more"]);
    assert_eq!(texts(&part), ["answer 1"]);
    assert_eq!(part.lines().len(), 4, "the checkpoint of the second turn is not taken along");
    assert_eq!(texts(&session), ["answer 1", "answer 2"]);
    assert!(
        matches!(&whole.lines()[0].record, Record::Meta { session: own, forked_from: Some(from), .. } if own == whole.id() && from == session.id())
    );
    let id = whole.id().to_owned();
    drop(whole);
    assert_eq!(texts(&Session::open(folder.path(), &id).unwrap()), ["answer 1", "answer 2", "more"]);
}

#[test]
fn sessions_are_listed_and_searched() {
    let folder = tempfile::tempdir().unwrap();
    assert!(list(&folder.path().join("none")).unwrap().is_empty());
    let mut ids = Vec::new();
    for (text, answer) in [("Fix the Parser\nplease", "done"), ("write docs", "the parser is fine")] {
        let mut session = Session::create(folder.path(), Path::new("/work"), "m").unwrap();
        session.append(prompt(1, text)).unwrap();
        session.append(item(answer)).unwrap();
        ids.push(session.id().to_owned());
    }
    // Nothing was asked in this one.
    Session::create(folder.path(), Path::new("/work"), "m").unwrap();
    assert_eq!(list(folder.path()).unwrap().len(), 2);
    let found = |words: &str| search(folder.path(), words).unwrap();
    assert_eq!(found("parser").len(), 2);
    let [one] = &found("PARSER fix")[..] else { panic!("two words, one session") };
    assert_eq!((one.session.as_str(), one.title.as_str(), one.turns), (ids[0].as_str(), "Fix the Parser", 1));
    assert_eq!(one.folder, Path::new("/work"));
    assert!(found("nowhere").is_empty());
    assert!(matches!(Session::open(folder.path(), "2"), Err(SessionError::Ambiguous { count: 3, .. })));
    assert!(matches!(Session::open(folder.path(), "x"), Err(SessionError::Unknown { .. })));
    assert!(matches!(Session::open(folder.path(), ""), Err(SessionError::Unknown { .. })));
    assert!(matches!(Session::open(folder.path(), "../x"), Err(SessionError::Unknown { .. })));
}

#[test]
fn the_state_directory_follows_the_variables() {
    let with = |pairs: &[(&str, &str)]| {
        let pairs: Vec<(String, String)> = pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        state_directory(move |name| pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value.into()))
    };
    assert_eq!(with(&[("FLINT_HOME", "/f"), ("XDG_STATE_HOME", "/x"), ("HOME", "/h")]), Some("/f/state".into()));
    assert_eq!(with(&[("FLINT_HOME", ""), ("XDG_STATE_HOME", "/x"), ("HOME", "/h")]), Some("/x/flint".into()));
    assert_eq!(with(&[("XDG_STATE_HOME", "relative"), ("HOME", "/h")]), Some("/h/.local/state/flint".into()));
    assert_eq!(with(&[]), None);
}

#[test]
fn ids_say_when() {
    let (before, id) = (OffsetDateTime::now_utc(), new_id());
    let after = OffsetDateTime::now_utc();
    let day = |time: OffsetDateTime| format!("{:04}{:02}{:02}-", time.year(), u8::from(time.month()), time.day());
    assert!(id.len() == 24 && (id.starts_with(&day(before)) || id.starts_with(&day(after))), "{id}");
    assert_ne!(id, new_id());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Cut anywhere, the file opens with the whole lines before the cut.
    #[test]
    fn any_cut_leaves_whole_lines(words in proptest::collection::vec("\\PC{0,8}", 1..6), cut in any::<prop::sample::Index>()) {
        let folder = tempfile::tempdir().unwrap();
        let mut session = Session::create(folder.path(), Path::new("/"), "m").unwrap();
        words.iter().for_each(|word| session.append(item(word)).unwrap());
        let (id, lines) = (session.id().to_owned(), session.lines().to_vec());
        drop(session);
        let path = folder.path().join(format!("{id}.jsonl"));
        let bytes = fs::read(&path).unwrap();
        let cut = cut.index(bytes.len() + 1);
        fs::write(&path, &bytes[..cut]).unwrap();
        let session = Session::open(folder.path(), &id).unwrap();
        let whole = bytes[..cut].iter().filter(|byte| **byte == b'\n').count();
        prop_assert_eq!(session.lines(), &lines[..whole]);
    }
}
