//! What follows from the model's first token.

use api::responses::{LogProb, OutputText, Status, TopLogProb};

use super::*;

fn response(tokens: &[(&str, f32)]) -> Vec<OutputItem> {
    let top = |&(token, chance): &(&str, f32)| TopLogProb {
        token: token.to_owned(),
        logprob: chance.ln(),
        bytes: token.as_bytes().to_vec(),
    };
    let first = LogProb {
        token: tokens[0].0.to_owned(),
        logprob: tokens[0].1.ln(),
        bytes: Vec::new(),
        top_logprobs: tokens.iter().map(top).collect(),
    };
    said(OutputText { logprobs: vec![first], ..OutputText::default() })
}

fn said(part: OutputText) -> Vec<OutputItem> {
    let item = OutputItem::Message {
        id: "m".to_owned(),
        status: Status::Completed,
        role: "assistant".to_owned(),
        content: vec![part],
        phase: None,
    };
    vec![item]
}

#[test]
fn files_change_only_when_a_change_is_nearly_certain() {
    let intent = |tokens: &[(&str, f32)]| {
        let odds = odds(&response(tokens));
        odds.intent(odds.evidence(LEANING))
    };
    assert_eq!(intent(&[("edit", 0.97), ("answer", 0.02)]), Intent::Change);
    assert_eq!(intent(&[("edit", 0.5), ("answer", 0.5)]), Intent::Unclear);
    assert_eq!(intent(&[("answer", 0.9), ("edit", 0.05)]), Intent::Question);
    assert_eq!(intent(&[("chat", 0.9), ("run", 0.1)]), Intent::Talk);
    assert_eq!(intent(&[("run", 0.9), ("chat", 0.1)]), Intent::Command);
    assert_eq!(intent(&[("un", 0.9), ("chat", 0.1)]), Intent::Unclear, "the beginning of a word is enough");
    assert_eq!(intent(&[("Sure", 0.9), ("!", 0.1)]), Intent::Unclear, "none of the words");
}

#[test]
fn a_model_without_probabilities_is_believed_when_it_says_a_word() {
    let intent = |text: &str| {
        let odds = odds(&said(OutputText::new(text.to_owned())));
        odds.intent(odds.evidence(LEANING))
    };
    assert_eq!(intent("edit"), Intent::Change);
    assert_eq!(intent(" Answer."), Intent::Question);
    assert_eq!(intent("I would say it is an edit."), Intent::Unclear);
    assert_eq!(intent(""), Intent::Unclear);
}

#[test]
fn what_is_certain_needs_no_model() {
    assert_eq!(rules::intent("!ls -la"), Some(Intent::Command));
    assert_eq!(rules::intent(" ... "), Some(Intent::Talk));
    assert_eq!(rules::intent("fix it!"), None);
}

#[test]
fn of_a_long_message_both_ends_are_read() {
    let text = format!("fix this: {} please", "x".repeat(1000));
    let short = shortened(&text);
    assert!(short.starts_with("fix this:") && short.ends_with(" please") && short.len() < 300, "{short}");
    assert_eq!(shortened(" a\nb "), "a\nb");
    for part in ["字", "ы", "x", "7", "{", "é", "\n", " ", "\u{1f600}"] {
        let short = shortened(&format!("a{}b", part.repeat(1000)));
        let about: f32 = pieces(&short).map(tokens).sum();
        assert!(about <= (BEGINNING + END + 2) as f32, "{short}: {about}");
    }
}

#[test]
fn every_example_has_a_word_of_the_list() {
    assert!(EXAMPLES.lines().count() > 20);
    for line in EXAMPLES.lines() {
        let (word, text) = line.split_once('\t').unwrap();
        assert!(WORDS.contains(&word) && !text.is_empty(), "{line}");
    }
}
