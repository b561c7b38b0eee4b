//! Tables.

use crate::count::Counts;

/// One line of the table.
pub fn row(name: &str, counts: &Counts) -> String {
    format!("{:>8} {:>8} {:>8} {}", counts.lines, counts.words, counts.bytes, name)
}

/// The words that occur most, most frequent first.
pub fn top(frequencies: &std::collections::HashMap<String, usize>, count: usize) -> Vec<(String, usize)> {
    let mut words: Vec<_> = frequencies.iter().map(|(word, times)| (word.clone(), *times)).collect();
    words.sort_by(|a, b| b.1.cmp(&a.1));
    words.truncate(count);
    words
}
