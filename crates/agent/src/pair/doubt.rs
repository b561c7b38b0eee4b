//! Where the model was least sure of an answer, and what it would have written there instead.
//!
//! A small model that is shown a broken function mostly copies it, and samples of it copy too: the token that matters is
//! nearly certain, like all others. It is still the place where another token has its best chance. So a candidate begins
//! like the greedy answer, departs from it at one such place, and goes on greedily: one thing is different and nothing else.
//! Of 34 handmade bugs that qwen2.5-coder-1.5b mostly copies, its greedy answer repairs 5, four samples more at temperature
//! 0.8 bring that to 15, and the four likeliest departures to 22. Of 26 easier ones it repairs 21, and 25 either way.

use api::responses::{LogProb, OutputItem};

/// Departures kept of one answer; a try has 32 candidates, some of which ask more than once.
const KEPT_MAX: usize = 64;

/// Tokens reported per place.
pub const ALTERNATIVES: usize = 5;

const FENCE: &str = "```";

/// Beginnings of other answers, the likeliest first: each is the answer up to a place inside its first block of code, and
/// another token there.
pub fn departures(output: &[OutputItem]) -> Vec<String> {
    let parts = output.iter().filter_map(|item| match item {
        OutputItem::Message { content, .. } => Some(content),
        _ => None,
    });
    let tokens: Vec<&LogProb> = parts.flatten().flat_map(|part| &part.logprobs).collect();
    let mut found: Vec<(f32, Vec<u8>)> = Vec::new();
    let mut said: Vec<u8> = Vec::new();
    let mut fences = 0;
    for token in tokens {
        let line = line_of(&said);
        // At the margin stand imports and other functions, of which the answer has enough already.
        if fences == 1 && !line.is_empty() && !line.starts_with(FENCE.as_bytes()) {
            let others = token.top_logprobs.iter().filter(|other| other.bytes != token.bytes);
            let others = others.filter(|other| differs(&token.token, &other.token));
            found.extend(others.map(|other| (other.logprob, [said.as_slice(), &other.bytes].concat())));
        }
        said.extend_from_slice(&token.bytes);
        fences += token.token.matches(FENCE).count();
        if fences > 1 {
            break;
        }
    }
    found.sort_by(|one, other| other.0.total_cmp(&one.0));
    // A character may be cut in the middle by a token.
    found.into_iter().filter_map(|(_, begun)| String::from_utf8(begun).ok()).take(KEPT_MAX).collect()
}

/// The line that is being written.
fn line_of(said: &[u8]) -> &[u8] {
    let begins = said.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
    &said[begins..]
}

/// Whether another token would make other code: not other space, a comment, or the end of everything.
fn differs(token: &str, other: &str) -> bool {
    let (token, other) = (token.trim(), other.trim());
    let comment = ["#", "//", "/*", "\"\"\"", "'''"].iter().any(|begins| other.starts_with(begins));
    let special = other.len() > 2 && other.starts_with('<') && other.ends_with('>');
    token != other && !comment && !special && !other.contains(FENCE)
}

#[cfg(test)]
mod tests {
    use api::responses::{OutputText, Status, TopLogProb};

    use super::*;

    /// A message of tokens, each with one alternative and how likely that was.
    fn message(tokens: &[(&str, &str, f32)]) -> OutputItem {
        let logprob = |&(token, other, logprob): &(&str, &str, f32)| LogProb {
            token: token.to_owned(),
            logprob: -0.1,
            bytes: token.as_bytes().to_vec(),
            top_logprobs: vec![
                TopLogProb { token: token.to_owned(), logprob: -0.1, bytes: token.as_bytes().to_vec() },
                TopLogProb { token: other.to_owned(), logprob, bytes: other.as_bytes().to_vec() },
            ],
        };
        let part = OutputText { logprobs: tokens.iter().map(logprob).collect(), ..OutputText::default() };
        let (id, role) = ("m".to_owned(), "assistant".to_owned());
        OutputItem::Message { id, status: Status::Completed, role, content: vec![part], phase: None }
    }

    #[test]
    fn the_likeliest_departure_comes_first_and_only_code_counts() {
        let answer = message(&[
            ("Here:\n", "No", -0.2),
            ("```", "~~~", -0.2),
            ("python\n", "py", -0.2),
            ("def", "import", -0.2),
            (" f(a", " g(a", -3.0),
            ("):\n", ", b", -2.0),
            ("    ", "  ", -0.2),
            ("return", "# it", -0.2),
            (" a", " <|im_end|>", -0.2),
            (" >", " >=", -1.0),
            (" 1", "  1", -0.2),
            ("\n", " or b", -2.5),
            ("```", "x", -0.2),
            ("\nDone", "y", -0.2),
        ]);
        let head = "Here:\n```python\ndef";
        let wanted = [
            format!("{head} f(a):\n    return a >="),
            format!("{head} f(a, b"),
            format!("{head} f(a):\n    return a > 1 or b"),
            format!("{head} g(a"),
        ];
        assert_eq!(departures(&[answer]), wanted);
    }

    #[test]
    fn half_a_character_is_no_beginning() {
        let mut answer = message(&[("```py\n", "x", -1.0), ("a = ", "b = ", -1.0), ("1", "é", -1.0)]);
        let OutputItem::Message { content, .. } = &mut answer else { unreachable!("it was made as one") };
        content[0].logprobs[2].top_logprobs[1].bytes.truncate(1);
        assert_eq!(departures(&[answer]), [] as [String; 0]);
        assert_eq!(departures(&[]), [] as [String; 0]);
    }
}
