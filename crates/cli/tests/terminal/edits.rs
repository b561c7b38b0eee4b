//! Edits by a real coding model: the diff grows, is accepted, taken back, and the session survives a kill.

use crate::fixture::Fixture;
use crate::screen::Screen;
use crate::{CODER, slow};

const BUGGY: &str = "def add(a, b):\n    return a - b\n\n\ndef double(a):\n    return add(a, a)\n";
const TASK: &str = "Fix the bug in add in @calc.py, it must add.";

fn asked(fixture: &Fixture, arguments: &[&str]) -> Screen {
    fixture.write("calc.py", BUGGY);
    let screen = fixture.flint(arguments);
    screen.sees("Enter asks");
    // The space ends the completion of the file's name.
    screen.enter(TASK);
    screen
}

fn turn_over(screen: &Screen) {
    screen.wait("the turn is over", |text| text.contains("Enter asks"));
}

#[test]
fn an_edit_grows_is_accepted_and_goes_back_and_forth() {
    if !slow("an_edit_grows_is_accepted_and_goes_back_and_forth") {
        return;
    }
    let fixture = Fixture::new(CODER);
    let screen = asked(&fixture, &["-c", "temperature=0", "-c", "approval_policy=untrusted"]);
    screen.wait("the diff grows", |text| text.contains("editing calc.py"));
    screen.wait("a question", |text| text.contains("write calc.py?"));
    assert_eq!(fixture.read("calc.py"), BUGGY, "nothing is written before the person says so");
    screen.wait("the change", |text| text.contains("-    return a - b") && text.contains("+    return a + b"));
    assert!(screen.has_color("+    return a + b"));
    // Letters count as an answer once the question has been there for a moment.
    std::thread::sleep(std::time::Duration::from_millis(500));
    screen.keys("y");
    screen.sees("changed calc.py");
    turn_over(&screen);
    let fixed = fixture.read("calc.py");
    assert!(fixed.contains("return a + b"), "{fixed}");
    screen.enter("/undo");
    screen.sees("undo: calc.py");
    assert_eq!(fixture.read("calc.py"), BUGGY);
    screen.enter("/redo");
    screen.sees("redo: calc.py");
    assert_eq!(fixture.read("calc.py"), fixed);
    screen.enter("/rewind");
    screen.sees("Go back to the beginning of a turn");
    screen.sees("1 file would change");
    screen.keys("\r");
    screen.sees("rewind: calc.py");
    assert_eq!(fixture.read("calc.py"), BUGGY);
    assert!(screen.text().contains("› Fix the bug"), "the question can be asked otherwise:\n{}", screen.text());
}

#[test]
fn a_killed_session_goes_on() {
    if !slow("a_killed_session_goes_on") {
        return;
    }
    let fixture = Fixture::new(CODER);
    let mut screen = asked(&fixture, &["-c", "temperature=0"]);
    screen.sees("changed calc.py");
    turn_over(&screen);
    let fixed = fixture.read("calc.py");
    screen.enter("Tell a very long story about adding numbers.");
    screen.sees("writing");
    screen.kill();
    let mut again = fixture.flint(&["resume"]);
    again.wait("what was asked", |text| text.contains("› Fix the bug in add"));
    assert_eq!(fixture.read("calc.py"), fixed);
    again.enter("/undo");
    again.sees("undo: calc.py");
    assert_eq!(fixture.read("calc.py"), BUGGY, "checkpoints outlive the process");
    let left = again.leave();
    assert!(left.contains("Go on with this session: flint resume "), "{left}");
}

#[test]
fn without_color_nothing_is_colored() {
    if !slow("without_color_nothing_is_colored") {
        return;
    }
    let fixture = Fixture::new(CODER);
    fixture.write("calc.py", BUGGY);
    let screen = fixture.flint_with(&["-c", "temperature=0"], &[("NO_COLOR", "1")], (80, 24));
    screen.enter(TASK);
    screen.wait("the change", |text| text.contains("+    return a + b"));
    assert!(!screen.has_color("+    return a + b"));
}
