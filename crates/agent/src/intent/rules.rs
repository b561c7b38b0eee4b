//! What is certain about a message without asking a model.

use super::Intent;

/// The intent, where there is no doubt.
pub fn intent(text: &str) -> Option<Intent> {
    let text = text.trim();
    if text.is_empty() || !text.chars().any(char::is_alphanumeric) {
        // `?`, `...`, an emoji: nothing to act on.
        return Some(Intent::Talk);
    }
    text.starts_with('!').then_some(Intent::Command)
}
