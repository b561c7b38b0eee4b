//! Copying through the terminal (OSC 52), which works over ssh and needs no program on either side.

/// Longest text that is sent. Terminals drop longer sequences without a word: xterm and tmux take about 100 kB of base64.
const BYTES_MAX: usize = 74_000;

/// The sequence that puts a text on the clipboard, or why not.
pub fn copy(text: &str) -> Result<String, String> {
    if text.len() > BYTES_MAX {
        return Err(format!("{} bytes are more than terminals take ({BYTES_MAX}); use /diff or the files", text.len()));
    }
    Ok(format!("\x1b]52;c;{}\x07", base64(text.as_bytes())))
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let word = group.iter().fold(0u32, |word, &byte| word << 8 | u32::from(byte)) << (8 * (3 - group.len()));
        for place in 0..4 {
            let letter = LETTERS[(word >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= group.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_rfc_4648() {
        let table =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy")];
        for (text, expected) in table {
            assert_eq!(base64(text.as_bytes()), expected);
        }
    }

    #[test]
    fn what_a_terminal_would_drop_is_refused() {
        assert!(copy(&"x".repeat(BYTES_MAX + 1)).is_err());
        assert_eq!(copy("hi").unwrap(), "\x1b]52;c;aGk=\x07");
    }
}
