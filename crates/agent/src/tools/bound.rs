//! Keeping what a tool gives back small. A model reads every byte of it again at every later step, so a long output is
//! cut in the middle, where it matters least: the command line is at the beginning and the error at the end.

/// Bytes a result may have.
pub const OUTPUT_BYTES_MAX: usize = 16 << 10;

/// Bytes of one line; longer ones are cut at the end. Minified files have lines of megabytes.
pub const LINE_BYTES_MAX: usize = 400;

/// The largest prefix of `text` of at most `bytes` that ends at a character.
pub fn prefix(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes.min(text.len()))]
}

/// The largest end of `text` of at most `bytes` that begins at a character.
pub fn suffix(text: &str, bytes: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(bytes))..]
}

/// One line, cut with a note when it is too long.
pub fn line(text: &str) -> String {
    if text.len() <= LINE_BYTES_MAX {
        return text.to_owned();
    }
    let kept = prefix(text, LINE_BYTES_MAX);
    format!("{kept} [{} more bytes in this line]", text.len() - kept.len())
}

/// `text` with its middle left out when it has more than `bytes_max`: a third from the beginning, the rest from the end,
/// whole lines where that loses little.
pub fn middle(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let head = whole_lines(prefix(text, bytes_max / 3));
    let tail = suffix(text, bytes_max - bytes_max / 3);
    let tail = match tail.split_once('\n') {
        Some((broken, rest)) if broken.len() < tail.len() / 4 => rest,
        _ => tail,
    };
    let left_out = text.len() - head.len() - tail.len();
    let lines = text[head.len()..text.len() - tail.len()].trim_matches('\n').lines().count();
    format!("{head}\n[{left_out} bytes in {lines} lines left out]\n{tail}")
}

fn whole_lines(head: &str) -> &str {
    match head.rfind('\n') {
        Some(end) if end > head.len() * 3 / 4 => &head[..end],
        _ => head,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_output_stays_as_it_is() {
        assert_eq!(middle("a\nb\n", 4), "a\nb\n");
        assert_eq!(line("abc"), "abc");
    }

    #[test]
    fn a_long_output_keeps_its_beginning_and_its_end() {
        let text: String = (0..2000).map(|number| format!("line {number}\n")).collect();
        let cut = middle(&text, 1000);
        assert!(cut.len() < 1100, "{}", cut.len());
        assert!(cut.starts_with("line 0\n") && cut.ends_with("line 1999\n"), "{cut}");
        let note = cut.lines().find(|line| line.starts_with('[')).unwrap();
        let kept = cut.lines().filter(|line| line.starts_with("line ")).count();
        assert!(note.contains(&format!("in {} lines", 2000 - kept)), "{note}, {kept} kept");
    }

    #[test]
    fn no_character_is_cut_in_half() {
        let text = "é".repeat(1000);
        for bytes in 0..50 {
            assert!(prefix(&text, bytes).len() <= bytes && suffix(&text, bytes).len() <= bytes);
            assert!(middle(&text, bytes).contains("left out"));
        }
        assert!(line(&text).ends_with("more bytes in this line]"));
    }
}
