//! Command lines of a model, judged before they run. The judge must come to an end whatever it is given, and what writes,
//! substitutes or holds a byte that shells disagree about must never run unasked.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if agent::approval::only_reads(bytes, Path::new(env!("CARGO_MANIFEST_DIR"))).is_ok() {
        let line = std::str::from_utf8(bytes).expect("only text is allowed");
        // None of these can be read as anything else outside quotes, and the quoted ones are rare enough to be asked for.
        let quoted = line.contains(['\'', '"']);
        assert!(!line.contains(['\0', '\r']), "runs unasked: {line:?}");
        assert!(quoted || !substitutes(line), "runs unasked: {line:?}");
    }
});

/// Whether a line without quotes has a backtick or a parenthesis that is neither escaped nor in a comment.
fn substitutes(line: &str) -> bool {
    let (mut rest, mut word_begins) = (line.chars(), true);
    while let Some(c) = rest.next() {
        match c {
            // A continued line goes on in the same place.
            '\\' => word_begins &= rest.next() == Some('\n'),
            '#' if word_begins => {
                // The end of the line ends the comment, and a word.
                rest.by_ref().take_while(|&c| c != '\n').for_each(drop);
            }
            '`' | '(' => return true,
            _ => word_begins = [' ', '\t', '\n', ';', '&', '|'].contains(&c),
        }
    }
    false
}
