//! Keys and events in, pictures and effects out.

use std::time::Duration;

use agent::{
    ApprovalAsk, CandidateRow, CandidateState, Decided, Decision, Event, FileRead, Intent, Outcome, PastTurn,
    RewindPreview, RewindWhat, SessionLine, TurnLine, TurnUsage,
};
use crossterm::event::{Event as Input, KeyCode, KeyEvent, KeyModifiers};
use ratatui::backend::TestBackend;
use ratatui::style::Color;
use ratatui::{Frame, Terminal};

use super::*;

/// A screen with a clock of its own.
struct Bench {
    app: App,
    now: Instant,
    terminal: Terminal<TestBackend>,
}

impl Bench {
    fn new() -> Bench {
        Bench::sized(80, 24)
    }

    fn sized(width: u16, height: u16) -> Bench {
        let app = App::new(true, History::default(), Path::new("/work"));
        let mut bench =
            Bench { app, now: Instant::now(), terminal: Terminal::new(TestBackend::new(width, height)).unwrap() };
        assert_eq!(bench.effects(), [Effect::Send(Command::Status)]);
        bench
    }

    fn press(&mut self, code: KeyCode, modifiers: KeyModifiers) {
        self.app.input(Input::Key(KeyEvent::new(code, modifiers)), self.now);
    }

    fn key(&mut self, code: KeyCode) {
        self.press(code, KeyModifiers::NONE);
    }

    fn write(&mut self, text: &str) {
        text.chars().for_each(|c| self.key(KeyCode::Char(c)));
    }

    fn enter(&mut self, text: &str) -> Vec<Effect> {
        self.write(text);
        self.key(KeyCode::Enter);
        self.effects()
    }

    fn event(&mut self, event: Event) {
        self.app.event(event, self.now);
    }

    fn text(&mut self, text: &str) {
        self.event(Event::Text { delta: text.to_owned() });
    }

    fn begin(&mut self, text: &str) {
        assert_eq!(self.enter(text), [Effect::Send(Command::Ask(text.into()))]);
        self.event(Event::TurnStarted { turn: 1, text: text.to_owned() });
    }

    fn end(&mut self, outcome: Outcome) {
        let usage = TurnUsage { total_ms: 1234.0, ..TurnUsage::default() };
        self.event(Event::TurnEnded { turn: 1, outcome, usage });
        assert_eq!(self.effects(), [Effect::Send(Command::Status)]);
    }

    fn effects(&mut self) -> Vec<Effect> {
        self.app.take_effects()
    }

    fn picture(&mut self) -> Vec<String> {
        let now = self.now;
        let draw = |frame: &mut Frame<'_>| {
            self.app.draw(frame.area(), frame.buffer_mut(), now);
        };
        self.terminal.draw(draw).unwrap();
        let buffer = self.terminal.backend().buffer();
        let row = |y| (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..buffer.area.height).map(|y| row(y).trim_end().to_owned()).collect()
    }

    fn sees(&mut self, text: &str) -> bool {
        self.picture().join("\n").contains(text)
    }

    /// The colour of the row that begins so.
    fn color_of(&mut self, start: &str) -> Color {
        let y = self.picture().iter().position(|row| row.trim_start().starts_with(start)).unwrap() as u16;
        let buffer = self.terminal.backend().buffer();
        let x = (0..buffer.area.width).find(|&x| buffer[(x, y)].symbol() != " ").unwrap();
        buffer[(x, y)].fg
    }
}

fn edit(bench: &mut Bench, diff: &str, lines: (usize, usize)) {
    bench.event(Event::EditGrew { edit: 1, diff: diff.into(), lines });
}

#[test]
fn a_turn_with_a_growing_diff() {
    let mut bench = Bench::sized(60, 16);
    bench.begin("make it total");
    bench.text("I change `a`.\n");
    bench.event(Event::EditStarted { edit: 1, path: "src/a.rs".into() });
    edit(&mut bench, "@@ -1,1 +1,2 @@\n-fn a() {}\n+fn a() {\n", (1, 1));
    bench.now += Duration::from_millis(700);
    assert_eq!(
        bench.picture(),
        [
            "· Flint in /work. Ask for a change, name files with @, /help",
            "  lists the rest.",
            "",
            "› make it total",
            "",
            "  I change a.",
            "",
            "editing src/a.rs +1 -1",
            "  @@ -1,1 +1,2 @@",
            "  -fn a() {}",
            "  +fn a() {",
            "",
            "",
            "── writing 0.7 s · Enter steers · Tab queues · Esc stops ───",
            "›",
            "no model yet",
        ]
    );
    edit(&mut bench, "@@ -1,1 +1,3 @@\n-fn a() {}\n+fn a() {\n+    b()\n", (2, 1));
    assert!(bench.sees("+    b()"));
    assert_eq!(bench.color_of("+fn a"), Color::Green);
    assert_eq!(bench.color_of("-fn a"), Color::Red);
    bench.event(Event::EditApplied { edit: 1, path: "src/a.rs".into(), lines: (2, 1) });
    bench.end(Outcome::Done);
    assert!(bench.sees("changed src/a.rs +2 -1"));
    assert!(bench.sees("Enter asks"));
}

#[test]
fn without_color_no_cell_has_one() {
    let mut bench = Bench::new();
    bench.app = App::new(false, History::default(), Path::new("/work"));
    bench.effects();
    bench.begin("x");
    bench.event(Event::EditStarted { edit: 1, path: "a".into() });
    edit(&mut bench, "@@ -1 +1 @@\n-a\n+b\n", (1, 1));
    bench.event(Event::Trouble { text: "oh".to_owned() });
    bench.picture();
    let buffer = bench.terminal.backend().buffer();
    assert!(buffer.content().iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
}

#[test]
fn enter_steers_tab_queues_and_esc_stops_while_the_model_talks() {
    let mut bench = Bench::new();
    bench.begin("one");
    bench.text("first words");
    assert_eq!(bench.enter("shorter"), [Effect::Send(Command::Steer("shorter".into()))]);
    bench.text(" still the old");
    bench.event(Event::SteerAccepted { after_ms: 3.2 });
    assert!(bench.sees("↳ shorter  (accepted 3 ms)"));
    bench.event(Event::SteerApplied { after_ms: 41.0 });
    bench.text("new words");
    let picture = bench.picture();
    let row = |text: &str| picture.iter().position(|row| row.contains(text)).unwrap_or_else(|| panic!("{text}"));
    assert!(row("first words still the old") < row("(accepted 3 ms, applied 41 ms)"));
    assert!(row("applied 41 ms") < row("new words"));

    bench.write("and then this");
    bench.key(KeyCode::Tab);
    assert_eq!(bench.effects(), [Effect::Send(Command::Queue("and then this".into()))]);
    bench.event(Event::Queued { text: "and then this".to_owned(), waiting: 1 });
    assert!(bench.sees("1 waiting"));
    bench.text(" in one line");
    assert!(bench.sees("new words in one line"), "a notice does not cut a sentence in two");

    bench.write("half a thought");
    bench.key(KeyCode::Esc);
    assert_eq!(bench.effects(), [Effect::Send(Command::Stop)]);
    assert!(bench.sees("stopping"));
    assert!(bench.sees("› half a thought"), "what is written stays");
    bench.end(Outcome::Stopped);
    assert!(bench.sees("new words"), "what was said stays");
    assert!(bench.sees("stopped after 1.2 s"));
}

#[test]
fn a_second_enter_steers_even_before_the_turn_has_begun() {
    let mut bench = Bench::new();
    assert_eq!(bench.enter("one"), [Effect::Send(Command::Ask("one".into()))]);
    assert_eq!(bench.enter("two"), [Effect::Send(Command::Steer("two".into()))]);
    bench.event(Event::Trouble { text: "no model".to_owned() });
    assert_eq!(bench.enter("three"), [Effect::Send(Command::Ask("three".into()))], "a turn that never began is over");
}

#[test]
fn a_steer_that_can_turn_nothing_yet_waits() {
    let mut bench = Bench::new();
    bench.begin("one");
    bench.enter("other");
    bench.event(Event::Queued { text: "other".to_owned(), waiting: 1 });
    assert!(bench.sees("↳ other  (asks next)") && !bench.sees("asks next: other"));
}

#[test]
fn a_steer_that_failed_gives_its_text_back() {
    let mut bench = Bench::new();
    bench.begin("one");
    bench.enter("other");
    bench.event(Event::SteerFailed { text: "other".to_owned(), why: "the answer had ended".to_owned() });
    assert!(bench.sees("not steered: the answer had ended"));
    assert_eq!(bench.app.composer.text(), "other");
}

#[test]
fn letters_answer_an_approval_only_when_it_was_seen_and_nothing_is_written() {
    let mut bench = Bench::new();
    bench.begin("test it");
    let what = ApprovalAsk::Command { command: "cargo test".to_owned(), prefix: "cargo test".to_owned() };
    let approval = Approval { ask: 7, what, why: "it is not on the list of safe commands".to_owned() };
    bench.event(Event::ApprovalAsked(approval.clone()));
    assert!(bench.sees("run `cargo test`?"));
    bench.write("y");
    assert_eq!(bench.effects(), [], "a letter that was on its way is no answer");
    bench.key(KeyCode::Backspace);
    bench.now += keys::APPROVAL_REST;
    bench.write("maybe");
    assert_eq!(bench.effects(), [], "a word is no answer");
    assert!(bench.sees("with Alt: y yes"));
    bench.press(KeyCode::Char('a'), KeyModifiers::ALT);
    assert_eq!(bench.effects(), [Effect::Send(Command::Decide { ask: 7, decision: Decision::Always })]);
    assert_eq!(bench.app.composer.text(), "maybe");
    bench.press(KeyCode::Char('u'), KeyModifiers::CONTROL);
    bench.event(Event::ApprovalAsked(Approval { ask: 8, ..approval }));
    bench.now += keys::APPROVAL_REST;
    bench.write("n");
    assert_eq!(bench.effects(), [Effect::Send(Command::Decide { ask: 8, decision: Decision::No })]);
}

#[test]
fn a_question_shows_all_it_asks_before_it_can_be_allowed() {
    let mut bench = Bench::sized(60, 12);
    bench.begin("test it");
    let asked = |ask, command: &str| {
        let what = ApprovalAsk::Command { command: command.to_owned(), prefix: command.to_owned() };
        Event::ApprovalAsked(Approval { ask, what, why: "asked because: `make` runs programs".to_owned() })
    };
    bench.event(asked(1, &format!("make test{}; touch \u{202e}X", " ".repeat(600))));
    assert!(bench.sees("run `make test <600 blanks> ; touch <U+202E>X`?"), "{:#?}", bench.picture());
    assert!(bench.sees("asked because: `make` runs programs"));
    bench.now += keys::APPROVAL_REST;
    bench.write("n");
    assert_eq!(bench.effects(), [Effect::Send(Command::Decide { ask: 1, decision: Decision::No })]);
    bench.event(asked(2, &format!("make test{}; touch Y", "; make test".repeat(200))));
    bench.now += keys::APPROVAL_REST;
    assert!(bench.sees("more lines, PageDown shows them") && !bench.sees("touch Y"));
    bench.write("y");
    bench.press(KeyCode::Char('a'), KeyModifiers::ALT);
    assert_eq!(bench.effects(), [], "it was not read to its end");
    for _ in 0..100 {
        bench.key(KeyCode::PageDown);
        if bench.sees("touch Y") {
            break;
        }
    }
    while !bench.sees("y yes") {
        bench.key(KeyCode::PageDown);
    }
    bench.write("y");
    assert_eq!(bench.effects(), [Effect::Send(Command::Decide { ask: 2, decision: Decision::Yes })]);
}

#[test]
fn candidates_fill_a_table_and_the_smallest_is_offered() {
    let mut bench = Bench::new();
    let Effect::Send(Command::Try { count: 3, .. }) = bench.enter("/try 3 --check make fix it").remove(0) else {
        panic!("no try");
    };
    let row = |candidate, state| CandidateRow { candidate, state, lines: (4, 2), ms: 1_500 };
    let rows = vec![row(1, CandidateState::Writing), row(2, CandidateState::Checking)];
    bench.event(Event::Candidates { rows, best: None });
    assert!(bench.sees("writing") && bench.sees("checking"));
    let failed = CandidateState::Failed { check: "make".to_owned(), output: "error: no rule\n".to_owned() };
    bench.event(Event::Candidates { rows: vec![row(1, failed), row(2, CandidateState::Passed)], best: Some(2) });
    assert!(bench.sees("failed make: error: no rule"));
    assert!(bench.sees("▸2  +4 -2        1.5 s  passed"));
    assert!(!bench.sees("writing"), "the table is brought up to date, not repeated");
    bench.key(KeyCode::Enter);
    assert_eq!(bench.effects(), [Effect::Send(Command::Choose { candidate: 2 })]);
}

#[test]
fn going_back_shows_what_it_would_change() {
    let mut bench = Bench::new();
    bench.begin("first thing");
    bench.end(Outcome::Done);
    bench.key(KeyCode::Esc);
    assert_eq!(bench.effects(), []);
    bench.key(KeyCode::Esc);
    assert_eq!(bench.effects(), [Effect::Send(Command::Turns)]);
    let turn = |turn| TurnLine { turn, text: format!("thing {turn}"), files: 1, at: 0 };
    bench.event(Event::Turns(vec![turn(1), turn(2)]));
    assert_eq!(bench.effects(), [Effect::Send(Command::PreviewRewind { turn: 2 })]);
    bench.key(KeyCode::Up);
    assert_eq!(bench.effects(), [Effect::Send(Command::PreviewRewind { turn: 1 })]);
    let files = vec![("src/a.rs".into(), (3, 9))];
    bench.event(Event::RewindPreview(RewindPreview { turn: 1, files, turns_lost: 2 }));
    assert!(bench.sees("1 file would change; 2 turns would be forgotten"));
    assert!(bench.sees("src/a.rs +3 -9"));
    bench.key(KeyCode::Char('f'));
    assert_eq!(bench.effects(), [Effect::Send(Command::Rewind { turn: 1, what: RewindWhat::Files })]);
    bench.event(Event::Restored { what: "rewind", paths: vec!["src/a.rs".into()], turn: None });
    assert!(bench.sees("rewind: src/a.rs"));
    assert!(bench.sees("› first thing"));
    bench.event(Event::Restored { what: "rewind", paths: vec![], turn: Some(1) });
    assert!(bench.picture()[3..].iter().filter(|row| row.contains("first thing")).count() == 1);
    assert_eq!(bench.app.composer.text(), "first thing", "the question can be asked otherwise");
}

#[test]
fn sessions_are_filtered_and_resumed() {
    let mut bench = Bench::new();
    assert_eq!(bench.enter("/resume"), [Effect::Send(Command::Sessions { query: String::new() })]);
    let line = |session: &str, title: &str| SessionLine {
        session: session.to_owned(),
        title: title.to_owned(),
        folder: "/work".into(),
        turns: 2,
        at: 0,
    };
    bench.event(Event::Sessions(vec![line("aaaa", "fix the parser"), line("bbbb", "write docs")]));
    bench.write("docs");
    assert!(!bench.sees("parser"));
    bench.key(KeyCode::Enter);
    assert_eq!(bench.effects(), [Effect::Send(Command::Resume { session: "bbbb".to_owned() })]);
    let edits = vec![("a.rs".into(), (1, 1), "@@ -1 +1 @@\n-a\n+b\n".to_owned())];
    let turns = vec![PastTurn { asked: "old question".to_owned(), answered: "old answer".to_owned(), edits }];
    bench.event(Event::SessionOpened { session: "bbbb".to_owned(), turns });
    assert!(bench.sees("› old question") && bench.sees("old answer"));
    assert!(bench.sees("changed a.rs +1 -1") && bench.sees("  +b"), "an edit of an earlier time is a diff too");
    assert!(!bench.sees("Flint in"));
}

#[test]
fn the_figures_fit_eighty_columns_and_lose_the_least_in_fewer() {
    let status = Status {
        model: "qwen2.5-coder-1.5b".to_owned(),
        transport: Some("websocket".to_owned()),
        lane: Some("priority".to_owned()),
        context: 32_768,
        context_used: 4_000,
        last: TurnUsage {
            decode_rate: Some(1234.4),
            first_token_ms: Some(118.2),
            input_tokens: 1_000,
            cached_tokens: 930,
            ..TurnUsage::default()
        },
        ..Status::default()
    };
    let mut bench = Bench::new();
    bench.event(Event::Status(Box::new(status.clone())));
    let whole = "qwen2.5-coder-1.5b  1234 tok/s  first 118 ms  cached 93%  left 87%  ws  priority";
    assert_eq!(bench.picture().last().unwrap(), whole);
    let mut narrow = Bench::sized(40, 10);
    narrow.event(Event::Status(Box::new(status)));
    assert_eq!(narrow.picture().last().unwrap(), "qwen2.5-coder-1.5b  1234 tok/s");
    assert_eq!(bench.enter("/status"), [Effect::Send(Command::Status)]);
}

#[test]
fn completion_offers_commands_and_files() {
    let mut bench = Bench::new();
    bench.write("/und");
    assert!(bench.sees("/undo  take back the files"));
    bench.key(KeyCode::Tab);
    assert_eq!(bench.app.composer.text(), "/undo ");
    bench.key(KeyCode::Enter);
    assert_eq!(bench.effects(), [Effect::Send(Command::Undo { force: false })]);
    bench.write("fix @ma");
    assert_eq!(bench.effects(), [Effect::ListFiles]);
    bench.app.set_files(vec!["src/main.rs".to_owned(), "src/mad.rs".to_owned()]);
    bench.key(KeyCode::Down);
    bench.key(KeyCode::Enter);
    assert_eq!(bench.app.composer.text(), "fix @src/main.rs ");
    let mut told = bench.enter("now");
    assert_eq!(told.remove(0), Effect::Send(Command::Ask("fix @src/main.rs now".into())));
}

#[test]
fn a_paste_of_several_lines_is_one_prompt() {
    let mut bench = Bench::new();
    bench.app.input(Input::Paste("one\ntwo\r\nthree".to_owned()), bench.now);
    assert!(bench.sees("› one") && bench.sees("  three"));
    assert_eq!(bench.enter(""), [Effect::Send(Command::Ask("one\ntwo\nthree".into()))]);
}

#[test]
fn what_is_read_stays_where_it_is() {
    let mut bench = Bench::new();
    bench.begin("long");
    (0..100).for_each(|line| bench.text(&format!("line {line}\n")));
    assert!(bench.sees("line 99"));
    bench.key(KeyCode::PageUp);
    let before = bench.picture()[0].clone();
    bench.text("more\n");
    assert_eq!(bench.picture()[0], before);
    assert!(bench.sees("more below"));
    bench.press(KeyCode::End, KeyModifiers::CONTROL);
    assert!(bench.sees("more"));
}

#[test]
fn every_size_draws() {
    let mut bench = Bench::new();
    bench.begin("日本語 with a wide question");
    bench.text(&"a long answer with words ".repeat(30));
    bench.event(Event::EditStarted { edit: 1, path: "a/very/long/path/to/some/file.rs".into() });
    edit(&mut bench, &format!("@@ -1 +1 @@\n+{}\n", "x".repeat(300)), (1, 0));
    bench.event(Event::ToolStarted { call: 1, tool: "shell".to_owned(), title: "cargo test".to_owned() });
    bench.event(Event::ToolOutput { call: 1, delta: "line\n".repeat(50) });
    bench.event(Event::Turns(vec![TurnLine { turn: 1, text: "x".to_owned(), files: 0, at: 0 }]));
    bench.app.composer.set("written\nin\nlines 日本語");
    for (width, height) in
        (0..30).flat_map(|width| (0..12).map(move |height| (width, height))).chain([(80, 24), (300, 90)])
    {
        bench.terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        bench.picture();
        bench.app.picker = None;
        bench.picture();
        bench.app.conversation.scroll(-3, &Theme::new(true));
    }
}

#[test]
fn a_copy_has_the_answer_and_not_what_stands_around_it() {
    let mut bench = Bench::new();
    bench.begin("q");
    bench.text("the ");
    bench.event(Event::EditStarted { edit: 1, path: "a".into() });
    edit(&mut bench, "@@\n+b\n", (1, 0));
    bench.text("answer");
    bench.event(Event::EditApplied { edit: 1, path: "a".into(), lines: (1, 0) });
    bench.end(Outcome::Done);
    assert_eq!(bench.enter("/copy"), [Effect::Copy("the answer".to_owned())]);
    assert_eq!(bench.enter("/copy diff"), [Effect::Copy("@@\n+b\n".to_owned())]);
}

#[test]
fn a_copy_after_an_edit_without_words_has_the_change() {
    let mut bench = Bench::new();
    assert_eq!(bench.enter("/copy"), []);
    assert!(bench.sees("neither an answer nor a change"));
    bench.begin("q");
    edit(&mut bench, "@@\n+b\n", (1, 0));
    bench.event(Event::EditStarted { edit: 1, path: "a".into() });
    edit(&mut bench, "@@\n+b\n", (1, 0));
    bench.event(Event::EditApplied { edit: 1, path: "a".into(), lines: (1, 0) });
    bench.end(Outcome::Done);
    assert_eq!(bench.enter("/copy"), [Effect::Copy("@@\n+b\n".to_owned())]);
}

#[test]
fn what_a_message_is_taken_for_is_shown_and_one_key_says_otherwise() {
    let mut bench = Bench::new();
    bench.begin("hello");
    let decided = Decided { intent: Intent::Question, odds: None, evidence: None, tokens: 0, ms: 1.0 };
    bench.event(Event::Intent(decided));
    bench.event(Event::FilesRead(vec![FileRead { path: "shop/cart.py".into(), lines: vec![(3, 9)] }]));
    bench.text("It adds.");
    assert_eq!(
        bench.picture()[2..7],
        [
            "› hello",
            "",
            "· taken for a question: no file changes · Ctrl-O: change files",
            "  read shop/cart.py:3-9",
            "",
        ]
    );
    bench.press(KeyCode::Char('o'), KeyModifiers::CONTROL);
    assert_eq!(bench.effects(), [Effect::Send(Command::Overrule)]);
}

#[test]
fn a_command_of_ones_own_shows_all_it_prints() {
    let mut bench = Bench::new();
    assert_eq!(bench.enter("!seq 12"), [Effect::Send(Command::Shell { line: "seq 12".to_owned() })]);
    bench.event(Event::TurnStarted { turn: 1, text: "!seq 12".to_owned() });
    let tool = agent::OWN_COMMAND.to_owned();
    bench.event(Event::ToolStarted { call: 9, tool, title: "seq 12".to_owned() });
    let printed: String = (1..=12).map(|number| format!("line {number}\n")).collect();
    bench.event(Event::ToolOutput { call: 9, delta: printed });
    bench.event(Event::ToolEnded { call: 9, exit_code: Some(0), ok: true, ms: 3.0 });
    assert!(bench.sees("$ seq 12 3 ms") && bench.sees("  line 1\n") && bench.sees("  line 12"));
    assert_eq!(bench.enter("!"), []);
    assert!(bench.sees("say what to run"));
}

#[test]
fn leaving_takes_two_presses_and_first_clears_and_stops() {
    let mut bench = Bench::new();
    bench.begin("q");
    bench.write("text");
    let interrupt = |bench: &mut Bench| bench.press(KeyCode::Char('c'), KeyModifiers::CONTROL);
    interrupt(&mut bench);
    assert!(bench.app.composer.is_empty() && bench.effects().is_empty());
    interrupt(&mut bench);
    assert_eq!(bench.effects(), [Effect::Send(Command::Stop)]);
    bench.end(Outcome::Stopped);
    interrupt(&mut bench);
    assert!(bench.effects().is_empty() && bench.sees("Ctrl-C again leaves"));
    interrupt(&mut bench);
    assert_eq!(bench.effects(), [Effect::Leave]);
}

#[test]
fn a_diff_of_the_session_is_shown_file_by_file() {
    let mut bench = Bench::new();
    let text = "--- a/x.rs\n+++ b/x.rs\n@@ -1 +1 @@\n-a\n+b\n--- a/y.rs\n+++ /dev/null\n@@ -1 +0,0 @@\n-y\n";
    bench.event(Event::Diff { text: text.to_owned() });
    assert!(bench.sees("changed x.rs +1 -1") && bench.sees("changed y.rs +0 -1"));
}

#[test]
fn an_edit_nobody_finished_says_so() {
    let mut bench = Bench::new();
    bench.begin("q");
    bench.event(Event::EditStarted { edit: 1, path: "a.rs".into() });
    edit(&mut bench, "@@\n+b\n", (1, 0));
    bench.end(Outcome::Stopped);
    assert!(bench.sees("left as it was a.rs"));
    bench.event(Event::EditFailed { edit: 2, path: "b.rs".into(), why: "two places fit".to_owned() });
    assert!(bench.sees("not changed b.rs") && bench.sees("two places fit"));
}
