//! Asking, steering, stopping, resizing and leaving, with a small model.

use std::time::Duration;

use crate::fixture::Fixture;
use crate::{CODER, SMALL, any_model, slow};

/// A question with a long answer.
const LONG: &str = "Tell a very long story about a cat who travels. Do not stop early.";
/// A screen on which nothing scrolls away before it was looked at.
const TALL: (u16, u16) = (80, 240);

/// Whether the model has said this many words after the last sign. Lines of Flint's own are not the model's.
fn words_after(text: &str, sign: &str, count: usize) -> bool {
    let said = text.rsplit_once(sign).map_or("", |(_, rest)| rest);
    let said = said.split("──").next().unwrap_or_default();
    let lines = said.lines().filter(|line| !line.starts_with('·'));
    lines.flat_map(str::split_whitespace).count() >= count
}

#[test]
fn a_question_is_answered_with_figures_and_the_terminal_is_given_back() {
    let fixture = Fixture::new(SMALL);
    let mut screen = fixture.flint(&[]);
    screen.sees("Enter asks");
    screen.enter("Say hello.");
    screen.sees("Esc stops");
    let figures = ["smollm2-135m", "tok/s", "first ", "cached ", "left ", "ws"];
    screen.wait_rows("the turn is over, with its figures in the last row", |rows| {
        let over = rows.iter().any(|row| row.contains("Enter asks"));
        over && figures.iter().all(|figure| rows[23].contains(figure))
    });
    screen.enter("/status");
    screen.sees("weights");
    screen.leave();
}

#[test]
fn a_steer_in_the_middle_begins_another_answer_below_it() {
    let fixture = Fixture::new(SMALL);
    let screen = fixture.flint_with(&["-c", "temperature=0"], &[], TALL);
    screen.enter(LONG);
    screen.wait("a few words", |text| words_after(text, "stop early.", 12));
    screen.enter("Now list ten colours instead.");
    screen.wait("the steer is applied", |text| text.contains("(accepted ") && text.contains(", applied "));
    screen.wait("an answer to the steer", |text| words_after(text, " ms)", 5));
    let text = screen.text();
    let (before, _) = text.split_once("↳ Now list").unwrap();
    assert!(before.contains("› Tell a very long story") && words_after(before, "stop early.", 12), "{text}");
}

#[test]
fn a_steer_before_the_answer_began_turns_it_too() {
    let fixture = Fixture::new(SMALL);
    let screen = fixture.flint_with(&["-c", "max_output_tokens=60"], &[], TALL);
    screen.enter(LONG);
    screen.sees("Esc stops");
    screen.enter("Say hello instead.");
    screen.wait("the steer is applied", |text| text.contains("(accepted ") && text.contains(", applied "));
    screen.sees("Enter asks");
    assert!(!screen.text().contains("asks next"), "{}", screen.text());
}

#[test]
fn a_steer_turns_what_the_answer_is_about() {
    if !slow("a_steer_turns_what_the_answer_is_about") {
        return;
    }
    let fixture = Fixture::new(CODER);
    let screen = fixture.flint(&["-c", "temperature=0"]);
    screen.enter(LONG);
    screen.wait("a few words", |text| words_after(text, "stop early.", 12));
    screen.enter("Now list ten colours instead.");
    screen.sees(", applied ");
    let colours = ["red", "blue", "green", "yellow", "white", "black", "purple", "orange"];
    screen.wait("colours", |text| {
        let after = text.rsplit_once("↳ Now list").map_or(text, |(_, rest)| rest).to_lowercase();
        colours.iter().filter(|colour| after.contains(**colour)).count() >= 3
    });
}

#[test]
fn esc_stops_at_once_and_keeps_what_was_said() {
    let fixture = Fixture::new(any_model());
    let screen = fixture.flint_with(&[], &[], TALL);
    let mut times = Vec::new();
    for turn in 1..=5 {
        // An answer that was stopped before would teach the model to be brief.
        screen.enter("/new");
        let asked = format!("Part {turn}.");
        screen.enter(&format!("{LONG} {asked}"));
        screen.wait("a few words", |text| words_after(text, &asked, 12));
        screen.keys("\x1b");
        let over =
            |text: &str| text.rsplit_once(&asked).is_some_and(|(_, rest)| rest.contains("what is above was kept"));
        times.push(screen.wait("the turn is over", over));
        let said = screen.text();
        let kept = said.rsplit_once("· stopped after").map_or("", |(kept, _)| kept);
        assert!(words_after(kept, &asked, 12), "turn {turn}: {said}");
        // Nothing more may come; the figures below may still change.
        std::thread::sleep(Duration::from_millis(200));
        let later = screen.text();
        let talk = |text: &str| text.split("──").next().unwrap_or_default().to_owned();
        assert_eq!(talk(&later), talk(&said), "turn {turn}");
    }
    times.sort_unstable();
    // Told, not asserted: how long it takes depends on what else the machine does.
    eprintln!("Esc to the end of the turn on the screen: {times:?}");
}

#[test]
fn tab_asks_after_the_turn() {
    let fixture = Fixture::new(SMALL);
    let screen = fixture.flint(&["-c", "max_output_tokens=40"]);
    screen.enter(LONG);
    screen.wait("a few words", |text| words_after(text, "stop early.", 3));
    screen.keys("Say goodbye.\t");
    screen.sees("asks next: Say goodbye.");
    screen.sees("› Say goodbye.");
    screen.wait("both turns are over", |text| text.contains("Enter asks"));
}

#[test]
fn another_size_is_drawn_whole_while_the_model_talks() {
    let fixture = Fixture::new(any_model());
    let screen = fixture.flint(&[]);
    let (name, _) = any_model().split_at(7);
    screen.enter(LONG);
    screen.wait("a few words", |text| words_after(text, "stop early.", 12));
    for (columns, rows) in [(40, 10), (100, 30), (20, 6), (80, 24)] {
        screen.resize(columns, rows);
        screen.wait_rows("the figures in the last row, the composer above, the hints above that", |seen| {
            let last = usize::from(rows) - 1;
            seen[last].starts_with(name) && seen[last - 1].starts_with('›') && seen[last - 2].starts_with("──")
        });
    }
    screen.keys("\x1b");
    screen.sees("stopped after");
}

#[test]
fn a_key_that_comes_with_another_size_is_read_at_once() {
    let fixture = Fixture::new(SMALL);
    let screen = fixture.flint(&[]);
    let mut written = String::from("› ");
    for round in 0..40u16 {
        let letter = char::from(b'a' + (round % 26) as u8);
        written.push(letter);
        screen.resize(100 - round % 2, 24 + round % 3);
        screen.keys(&letter.to_string());
        screen.wait("the letter, without another key after it", |text| text.contains(&written));
    }
}

#[test]
fn plain_mode_speaks_in_lines() {
    let fixture = Fixture::new(SMALL);
    let screen = fixture.flint_with(&["--plain", "-c", "max_output_tokens=30"], &[("NO_COLOR", "1")], (80, 24));
    screen.sees("/help lists commands");
    screen.keys("Say hello.\n");
    screen.wait("the end of the turn", |text| text.contains("done in ") || text.contains("error: "));
    assert!(screen.text().contains("turn 1"), "{}", screen.text());
    screen.keys("/quit\n");
}
