//! What a person hears who has only lines.

use agent::{RewindWhat, TurnUsage};

use super::*;

fn plain() -> Plain<Vec<u8>> {
    Plain::new(Vec::new(), History::default())
}

fn heard(plain: &mut Plain<Vec<u8>>) -> String {
    String::from_utf8(std::mem::take(&mut plain.out)).unwrap()
}

fn tell(plain: &mut Plain<Vec<u8>>, event: Event) {
    plain.event(event).unwrap();
}

#[test]
fn text_comes_in_whole_lines_and_changes_once() {
    let mut plain = plain();
    assert_eq!(plain.line("fix it").unwrap(), Some(Command::Ask("fix it".into())));
    tell(&mut plain, Event::TurnStarted { turn: 1, text: "fix it".to_owned() });
    for delta in ["I cha", "nge \x1b[1ma.\nAnd", " more"] {
        tell(&mut plain, Event::Text { delta: delta.to_owned() });
    }
    assert_eq!(heard(&mut plain), "turn 1\nI change ␛[1ma.\n");
    tell(&mut plain, Event::EditStarted { edit: 1, path: "a.rs".into() });
    for diff in ["@@ -1 +1 @@\n-a\n", "@@ -1 +1 @@\n-a\n+b\n"] {
        tell(&mut plain, Event::EditGrew { edit: 1, diff: diff.into(), lines: (1, 1) });
    }
    tell(&mut plain, Event::EditApplied { edit: 1, path: "a.rs".into(), lines: (1, 1) });
    let expected = "And more\nchanged a.rs, 1 lines added, 1 removed\n@@ -1 +1 @@\n-a\n+b\n";
    assert_eq!(heard(&mut plain), expected);
    assert_eq!(plain.line("shorter").unwrap(), Some(Command::Steer("shorter".into())));
    let usage = TurnUsage { total_ms: 1500.0, decode_rate: Some(40.0), ..TurnUsage::default() };
    tell(&mut plain, Event::TurnEnded { turn: 1, outcome: Outcome::Done, usage });
    assert_eq!(heard(&mut plain), "done in 1.5 seconds, 40 tokens per second\n");
    assert_eq!(plain.line("again").unwrap(), Some(Command::Ask("again".into())));
}

#[test]
fn questions_say_what_can_be_answered() {
    let mut plain = plain();
    let what = ApprovalAsk::Command { command: "make".to_owned(), prefix: "make".to_owned() };
    tell(&mut plain, Event::ApprovalAsked(Approval { ask: 3, what, why: "it may write".to_owned() }));
    assert!(heard(&mut plain).ends_with("answer y for yes, a for always `make`, n for no, s to stop\n"));
    assert_eq!(plain.line("y").unwrap(), Some(Command::Decide { ask: 3, decision: Decision::Yes }));
    assert_eq!(plain.line("/rewind 2").unwrap(), Some(Command::PreviewRewind { turn: 2 }));
    let both = Command::Rewind { turn: 2, what: RewindWhat::Both };
    assert_eq!(plain.line("/rewind 2 both").unwrap(), Some(both));
    assert_eq!(plain.line("/quti").unwrap(), None);
    assert_eq!(heard(&mut plain), "error: there is no /quti; did you mean /quit?\n");
}
