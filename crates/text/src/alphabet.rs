//! The byte alphabet of GPT-2: every byte has a printable character, so that tokens can be stored as text.
//!
//! Printable Latin-1 stands for itself; the other 68 bytes are U+0100 and up, in order. Space is `Ġ`, newline `Ċ`.

/// One past the last character of the alphabet.
const CHARS: usize = 256 + 68;

/// Byte of each character; `None` for characters that stand for no byte.
static BYTES: [Option<u8>; CHARS] = {
    let mut bytes = [None; CHARS];
    let mut moved = 256;
    let mut byte = 0;
    while byte < 256 {
        if matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) {
            bytes[byte] = Some(byte as u8);
        } else {
            bytes[moved] = Some(byte as u8);
            moved += 1;
        }
        byte += 1;
    }
    bytes
};

/// Appends the bytes that `text` stands for; `false`, with nothing appended, when it uses other characters.
pub(crate) fn decode(text: &[u8], out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let Ok(text) = str::from_utf8(text) else {
        return false;
    };
    for c in text.chars() {
        match BYTES.get(c as usize).copied().flatten() {
            Some(byte) => out.push(byte),
            None => {
                out.truncate(start);
                return false;
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_one_character() {
        let mut seen: Vec<u8> = BYTES.iter().copied().flatten().collect();
        seen.sort_unstable();
        assert!(seen.iter().copied().eq(0..=255));
        let mut out = Vec::new();
        assert!(decode("ĠtheĊ".as_bytes(), &mut out));
        assert_eq!(out, b" the\n");
        assert!(!decode("▁x".as_bytes(), &mut out));
        assert_eq!(out, b" the\n");
    }
}
