//! What part of a conversation is on the screen.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::*;

fn seen(conversation: &mut Conversation, width: u16, height: u16) -> Vec<String> {
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    conversation.draw(area, &mut buffer, &Theme::new(false));
    let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(row).collect()
}

fn numbered(count: usize) -> Conversation {
    let mut conversation = Conversation::default();
    for number in 0..count {
        conversation.say(Voice::Notice, format!("line {number}"));
    }
    conversation
}

#[test]
fn the_end_is_shown_until_the_person_scrolls() {
    let theme = Theme::new(false);
    let mut conversation = numbered(10);
    assert_eq!(seen(&mut conversation, 20, 5), ["· line 7", "", "· line 8", "", "· line 9"]);
    conversation.scroll(-2, &theme);
    assert_eq!(seen(&mut conversation, 20, 5), ["· line 6", "", "· line 7", "", "· line 8"]);
    conversation.say(Voice::Notice, "new");
    assert_eq!(seen(&mut conversation, 20, 5)[0], "· line 6", "what is read does not move under the eyes");
    conversation.scroll(100, &theme);
    assert!(conversation.at_end());
    assert_eq!(seen(&mut conversation, 20, 5)[4], "· new");
    conversation.scroll(-1000, &theme);
    assert_eq!(seen(&mut conversation, 20, 5)[0], "· line 0");
}

#[test]
fn another_width_keeps_the_place() {
    let theme = Theme::new(false);
    let mut conversation = numbered(50);
    seen(&mut conversation, 20, 5);
    conversation.scroll(-20, &theme);
    let before = seen(&mut conversation, 20, 5)[0].clone();
    assert_eq!(seen(&mut conversation, 40, 8)[0], before);
}

#[test]
fn old_blocks_leave_and_numbers_stay() {
    let mut conversation = numbered(BLOCKS_MAX);
    let id = conversation.say(Voice::Answer, "kept");
    assert!(conversation.get(0).is_none());
    for _ in 0..5 {
        conversation.say(Voice::Notice, "more");
    }
    assert!(matches!(conversation.get(id), Some(Block::Words(words)) if words.text() == "kept"));
    conversation.cut(id);
    assert_eq!(conversation.next_id(), id);
}

#[test]
fn a_long_answer_goes_on_in_another_block() {
    let mut conversation = Conversation::default();
    let long = "word ".repeat(WORDS_BYTES_MAX / 5 + 1);
    let first = conversation.extend(None, &long);
    let second = conversation.extend(Some(first), "the end");
    assert_ne!(first, second);
    assert_eq!(conversation.extend(Some(second), "."), second);
}
