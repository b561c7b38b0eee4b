//! The screen below what the terminal shows: the conversation is the terminal's own scrollback.

use crate::world::World;

const LONG: &str = "It has parts.\n\n1. one\n2. two\n3. three\n4. four\n5. five\n6. six\n7. seven\n8. eight\n9. nine\n10. ten\n11. eleven\n12. twelve\n13. thirteen\n14. fourteen\n15. fifteen\n16. sixteen\n17. seventeen\n18. eighteen\n";
const EDIT: &str = "Here.\n\n```python\ndef total(cart):\n    return sum(item.price for item in cart.items) + 1\n```\n";

fn sorts(message: &str) -> &'static str {
    if message.contains("larger") { "edit" } else { "answer" }
}

/// Rows that hold a text.
fn count(rows: &[String], text: &str) -> usize {
    rows.iter().filter(|row| row.contains(text)).count()
}

#[test]
fn everything_that_is_finished_scrolls_away_once_and_in_order() {
    let world = World::new(sorts, &[LONG, EDIT, "Short."]);
    let mut screen = world.screen(&["--inline"], (70, 14));
    screen.enter("What has it?");
    screen.wait("the end of the answer", |text| text.contains("18. eighteen") && text.contains("Enter asks"));
    screen.enter("Make total larger.");
    screen.wait("the change", |text| text.contains("+    return sum") && text.contains("Enter asks"));
    screen.enter("And now?");
    screen.wait("the last answer", |text| text.contains("Short.") && text.contains("Enter asks"));
    let rows = screen.history();
    let order =
        ["Flint in", "› What has it?", "1. one", "9. nine", "18. eighteen", "changed shop/cart.py +1 -1", "Short."];
    let at: Vec<usize> = order.iter().map(|text| rows.iter().position(|row| row.contains(text)).unwrap()).collect();
    assert!(at.is_sorted(), "{order:?} at {at:?}:\n{}", rows.join("\n"));
    for text in order {
        assert_eq!(count(&rows, text), 1, "{text}:\n{}", rows.join("\n"));
    }
    assert_eq!(count(&rows, "Enter asks"), 1, "the rows below are drawn again, not scrolled:\n{}", rows.join("\n"));
    let text = screen.leave();
    assert!(text.contains("Go on with this session: flint resume"), "{text}");
    assert!(!text.contains("Enter asks"), "our rows are gone:\n{text}");
    let rows = screen.history();
    assert_eq!((count(&rows, "18. eighteen"), count(&rows, "Short.")), (1, 1), "{}", rows.join("\n"));
}

#[test]
fn what_stood_on_the_terminal_before_stays() {
    let world = World::new(sorts, &[LONG]);
    let path = world.root().join("../config/flint/config.toml");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, "screen = \"inline\"\n").unwrap();
    let mut screen = world.screen_after("$ make\nmade everything\n$ flint\n", &[], (60, 20));
    let rows = screen.history();
    assert!(rows[0].starts_with("$ make") && rows[1].starts_with("made everything"), "{}", rows.join("\n"));
    screen.enter("What has it?");
    screen.wait("the end of the answer", |text| text.contains("18. eighteen") && text.contains("Enter asks"));
    screen.resize(50, 12);
    screen.wait("the rows below at the new size", |text| text.contains("Enter asks"));
    screen.enter("/mo");
    screen.sees("/model");
    screen.keys("\x15");
    let rows = screen.history();
    assert!(rows[0].starts_with("$ make"), "{}", rows.join("\n"));
    screen.leave();
}
