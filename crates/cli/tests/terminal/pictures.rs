//! Pictures of the screen for the documents, and the same screens as text: the real binary in a real terminal, with what a
//! real model said to the same messages. `FLINT_BLESS=1` writes the pictures.

use crate::scripted::Scripted;
use crate::world::World;

const RECORDED: &str = include_str!("recorded/cart.json");
const SIZE: (u16, u16) = (88, 44);

/// A screen on which the recorded turns have been asked.
fn recorded(turns: std::ops::Range<usize>, last: &str) -> crate::screen::Screen {
    let model = Scripted::recorded(RECORDED, turns.clone());
    let asked = model.recorded_messages();
    let world = World::with(model);
    for name in ["cart.py", "test_cart.py", "README.md"] {
        let from = testkit::document::root().join("examples/cart").join(name);
        world.write(name, &std::fs::read_to_string(from).unwrap());
    }
    let screen = world.screen(&["-m", "qwen2.5-coder-1.5b"], SIZE);
    for text in asked {
        screen.enter(&text);
        screen.wait("the turn", |text| text.contains("taken for"));
    }
    screen.wait(last, |text| text.contains(last) && text.contains("Enter asks"));
    screen
}

#[test]
fn a_question_looks_like_this() {
    let screen = recorded(0..1, "cart.py:23 add");
    let rows = screen.conversation();
    assert_eq!(
        screen.lines(rows.clone()),
        [
            "› What happens when the same item is added twice?",
            "",
            "· taken for a question: no file changes (change 6 %) · Ctrl-O: change files",
            "  read cart.py:1-10,13-15,18-20,23-29, test_cart.py:1,4-7,10-12,15-19",
            "",
            "  When the same item is added twice, the add function will increment the count of that",
            "  item by 1. This is because the for loop in the add function checks if the current",
            "  item's name matches the name of the item being added. If it does, the count of that",
            "  item is incremented by 1.",
            "",
            "  cart.py:23 add",
        ]
    );
    crate::picture::assert_current(
        "guide/question.svg",
        &screen,
        rows,
        "A question and its answer, with the lines that were read for it",
    );
}

#[test]
fn a_change_looks_like_this() {
    let screen = recorded(1..2, "changed cart.py");
    let rows = screen.conversation();
    assert_eq!(
        screen.lines(rows.clone()),
        [
            "› The test of total fails. Fix cart.py.",
            "",
            "· taken for a change (change 99 %) · Ctrl-O: only answer",
            "  read cart.py, test_cart.py",
            "",
            "changed cart.py +1 -1",
            "  @@ -12,7 +12,7 @@",
            "",
            "   def total(items: list[Item]) -> int:",
            "       \"\"\"The price of all items in cents.\"\"\"",
            "  -    return sum(item.price_cents for item in items)",
            "  +    return sum(item.price_cents * item.count for item in items)",
            "",
            "",
            "   def cheapest(items: list[Item]) -> Item | None:",
        ]
    );
    crate::picture::assert_current(
        "guide/change.svg",
        &screen,
        rows,
        "A change as a diff, with the words that changed marked",
    );
}
