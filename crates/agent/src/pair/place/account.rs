//! Whether an answer that looks like a whole file accounts for all lines of the file it would replace.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use workspace::edit::Alike;

use super::{Item, Kind};
use crate::context::definitions;

/// Whether the block is the file as a whole rather than some of its definitions. `goes` says what was asked for to go.
pub(super) fn covers_all(path: &Path, text: &str, old: &str, goes: &dyn Fn(&str) -> bool) -> bool {
    let (new_items, old_items) = (definitions(path, text), definitions(path, old));
    if new_items.is_empty() {
        return false;
    }
    let is_there = |item: &&Item| new_items.iter().any(|new| new.parents.is_empty() && new.name == item.name);
    let all = old_items.iter().filter(|item| item.parents.is_empty()).all(|item| is_there(&item) || goes(&item.name));
    let head = |text: &str, items: &[Item]| {
        let end = items.first().map_or(usize::MAX, |item| item.lines.start);
        text.lines().take(end).filter(|line| !line.trim().is_empty()).count()
    };
    // Behind the last definition stand examples of use, unless the file had such lines too.
    let tail = |text: &str, items: &[Item]| {
        let end = items.iter().map(|item| item.lines.end).max().unwrap_or(0);
        text.lines().skip(end).any(|line| !line.trim().is_empty())
    };
    let as_long = head(text, &new_items) >= head(old, &old_items);
    all && as_long && (!tail(text, &new_items) || tail(old, &old_items))
}

/// The first line of the file that is in none of the functions the answer shows, was not asked for to go, and is neither in
/// the answer nor like a line that is new in it.
pub(super) fn lost(path: &Path, old: &str, new: &str, goes: &dyn Fn(&str) -> bool) -> Option<String> {
    let (new_items, old_items) = (definitions(path, new), definitions(path, old));
    let shows = |item: &Item| new_items.iter().any(|new| new.name == item.name && new.parents == item.parents);
    let accounted = |item: &&Item| match shows(item) {
        true => item.kind == Kind::Function || item.lines.len() == 1,
        false => goes(&item.name),
    };
    let accounted: Vec<&Item> = old_items.iter().filter(accounted).collect();
    let mut there: HashMap<&str, usize> = HashMap::new();
    for line in new.lines() {
        *there.entry(line.trim()).or_default() += 1;
    }
    let mut missing: Vec<&str> = Vec::new();
    for (number, line) in old.lines().enumerate() {
        let line = line.trim();
        let bare = !line.chars().any(char::is_alphanumeric);
        if bare || accounted.iter().any(|item| item.lines.contains(&number)) {
            continue;
        }
        match there.get_mut(line).filter(|count| **count > 0) {
            Some(count) => *count -= 1,
            None => missing.push(line),
        }
    }
    let mut fresh: Vec<&str> = there.into_iter().filter(|(_, count)| *count > 0).map(|(line, _)| line).collect();
    let known: HashSet<&str> = old.lines().map(str::trim).collect();
    fresh.retain(|line| !known.contains(line));
    fresh.sort_unstable();
    let compared = Alike::default();
    missing.into_iter().find_map(|line| match fresh.iter().position(|new| compared.check(line, new)) {
        Some(at) => {
            fresh.remove(at);
            None
        }
        None => Some(line.to_owned()),
    })
}
