//! The place where the person writes: several lines, words as units, paste as it is, and what was written before.

mod history;

pub use history::History;
use unicode_segmentation::UnicodeSegmentation;

use crate::flow::columns;

/// Bytes a prompt may have. A longer text belongs into a file that the prompt mentions.
pub const BYTES_MAX: usize = 64 * 1024;

/// Text with a cursor.
#[derive(Debug, Default)]
pub struct Composer {
    text: String,
    /// Byte of the text before which the cursor stands; always between two characters as people see them.
    cursor: usize,
    /// What was cut last.
    cut: String,
    /// Width of the last drawing, which up and down go by.
    width: usize,
}

/// A row on the screen: bytes of the text.
type Row = (usize, usize);

impl Composer {
    /// What is written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Where the cursor stands.
    pub fn cursor(&self) -> usize {
        self.cursor
    }

    /// Whether nothing is written.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Other text, with the cursor behind it.
    pub fn set(&mut self, text: impl Into<String>) {
        self.text = text.into();
        self.cursor = self.text.len();
    }

    /// Takes what is written and leaves nothing.
    pub fn take(&mut self) -> String {
        self.cursor = 0;
        std::mem::take(&mut self.text)
    }

    /// Writes at the cursor. False, and nothing is written, when it does not fit.
    pub fn insert(&mut self, text: &str) -> bool {
        let clean: String = text.replace("\r\n", "\n").replace('\r', "\n");
        let clean: String = clean.chars().filter(|&c| c == '\n' || c == '\t' || !c.is_control()).collect();
        if self.text.len() + clean.len() > BYTES_MAX {
            return false;
        }
        self.text.insert_str(self.cursor, &clean);
        self.cursor += clean.len();
        true
    }

    /// Puts text in place of some bytes before the cursor.
    pub fn replace_before(&mut self, from: usize, text: &str) {
        self.text.replace_range(from..self.cursor, text);
        self.cursor = from + text.len();
    }

    /// One character to the left.
    pub fn left(&mut self) {
        self.cursor = self.before();
    }

    /// One character to the right.
    pub fn right(&mut self) {
        self.cursor = self.after();
    }

    /// To the beginning of the word.
    pub fn word_left(&mut self) {
        self.cursor = self.word_before();
    }

    /// Behind the word.
    pub fn word_right(&mut self) {
        self.cursor = self.word_after();
    }

    /// To the beginning of the line.
    pub fn home(&mut self) {
        self.cursor = self.text[..self.cursor].rfind('\n').map_or(0, |at| at + 1);
    }

    /// To the end of the line.
    pub fn end(&mut self) {
        self.cursor += self.text[self.cursor..].find('\n').unwrap_or(self.text.len() - self.cursor);
    }

    /// Removes the character before the cursor.
    pub fn backspace(&mut self) {
        self.remove(self.before(), self.cursor);
    }

    /// Removes the character behind the cursor.
    pub fn delete(&mut self) {
        self.remove(self.cursor, self.after());
    }

    /// Cuts the word before the cursor.
    pub fn cut_word_left(&mut self) {
        self.cut(self.word_before(), self.cursor);
    }

    /// Cuts the word behind the cursor.
    pub fn cut_word_right(&mut self) {
        self.cut(self.cursor, self.word_after());
    }

    /// Cuts from the beginning of the line.
    pub fn cut_to_home(&mut self) {
        let to = self.cursor;
        self.home();
        self.cut(self.cursor, to);
    }

    /// Cuts to the end of the line, or the line's end where nothing else is left.
    pub fn cut_to_end(&mut self) {
        let from = self.cursor;
        self.end();
        let to = if from == self.cursor { self.after() } else { self.cursor };
        self.cut(from, to);
    }

    /// Writes what was cut last.
    pub fn paste_cut(&mut self) {
        let cut = self.cut.clone();
        self.insert(&cut);
    }

    /// One row up; false when there is none.
    pub fn up(&mut self) -> bool {
        self.vertical(-1)
    }

    /// One row down; false when there is none.
    pub fn down(&mut self) -> bool {
        self.vertical(1)
    }

    /// The rows for a width, and the row and column of the cursor.
    pub fn layout(&mut self, width: usize) -> (Vec<&str>, (usize, usize)) {
        self.width = width.max(1);
        let rows = self.rows();
        let at = self.place(&rows);
        (rows.into_iter().map(|(from, to)| &self.text[from..to]).collect(), at)
    }

    fn rows(&self) -> Vec<Row> {
        let width = self.width.max(1);
        let mut rows = Vec::new();
        let mut start = 0;
        for line in self.text.split('\n') {
            let (mut from, mut taken) = (start, 0);
            for (at, cluster) in line.grapheme_indices(true) {
                let wide = cluster_width(cluster);
                if taken + wide > width && taken > 0 {
                    rows.push((from, start + at));
                    (from, taken) = (start + at, 0);
                }
                taken += wide;
            }
            rows.push((from, start + line.len()));
            // A full row leaves no place for the cursor behind it.
            if taken >= width {
                rows.push((start + line.len(), start + line.len()));
            }
            start += line.len() + 1;
        }
        rows
    }

    fn place(&self, rows: &[Row]) -> (usize, usize) {
        let row = rows.iter().rposition(|&(from, _)| from <= self.cursor).unwrap_or(0);
        let column = self.text[rows[row].0..self.cursor].graphemes(true).map(cluster_width).sum();
        (row, column)
    }

    fn vertical(&mut self, by: isize) -> bool {
        let rows = self.rows();
        let (row, column) = self.place(&rows);
        let Some(&(from, to)) = row.checked_add_signed(by).and_then(|row| rows.get(row)) else {
            return false;
        };
        let mut taken = 0;
        let clusters = self.text[from..to].grapheme_indices(true);
        let found = clusters.take_while(|(_, cluster)| {
            taken += cluster_width(cluster);
            taken <= column
        });
        self.cursor = found.last().map_or(from, |(at, cluster)| from + at + cluster.len());
        true
    }

    fn before(&self) -> usize {
        self.text[..self.cursor].grapheme_indices(true).next_back().map_or(0, |(at, _)| at)
    }

    fn after(&self) -> usize {
        self.text[self.cursor..].graphemes(true).next().map_or(self.cursor, |cluster| self.cursor + cluster.len())
    }

    fn word_before(&self) -> usize {
        let mut words = self.text[..self.cursor].split_word_bound_indices().rev();
        words.find(|(_, word)| is_word(word)).map_or(0, |(at, _)| at)
    }

    fn word_after(&self) -> usize {
        let mut words = self.text[self.cursor..].split_word_bound_indices();
        words.find(|(_, word)| is_word(word)).map_or(self.text.len(), |(at, word)| self.cursor + at + word.len())
    }

    fn remove(&mut self, from: usize, to: usize) -> String {
        self.cursor = from;
        self.text.drain(from..to).collect()
    }

    fn cut(&mut self, from: usize, to: usize) {
        let cut = self.remove(from, to);
        if !cut.is_empty() {
            self.cut = cut;
        }
    }
}

fn is_word(word: &str) -> bool {
    word.chars().any(|c| c.is_alphanumeric() || c == '_')
}

/// Columns of what people see as one character.
fn cluster_width(cluster: &str) -> usize {
    match cluster {
        "\t" => 4,
        cluster => cluster.chars().map(columns).sum::<usize>().min(2),
    }
}

#[cfg(test)]
mod tests;
