//! Noticing a model that goes round in circles. Small ones repeat a call that gave them nothing new; a word helps at first,
//! and when it does not, ending the turn is kinder than a hundred such steps.

use crate::tools::{ToolCall, ToolResult};

/// Equal calls with equal results in a row before the model is told, and before the turn ends.
const TOLD_AT: usize = 3;
const ENDED_AT: usize = 6;

/// The last call and how often it came in a row.
#[derive(Default)]
pub struct Repeats {
    last: Option<(String, String, String)>,
    count: usize,
}

impl Repeats {
    /// Takes note of a result, and adds a word to it when it is an old one. False when enough is enough.
    pub fn note(&mut self, call: &ToolCall, result: &mut ToolResult) -> bool {
        let this = (call.name.clone(), call.input.clone(), result.output.clone());
        self.count = if self.last.as_ref() == Some(&this) { self.count + 1 } else { 1 };
        self.last = Some(this);
        if self.count >= TOLD_AT {
            result.output.push_str(&format!(
                "\n[this is the same call with the same result for the {}th time; do something else, or say that you are done]\n",
                self.count
            ));
        }
        self.count < ENDED_AT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_in_a_circle_is_told_and_then_ended() {
        let call = |input: &str| ToolCall {
            call_id: "c".to_owned(),
            name: "read".to_owned(),
            input: input.to_owned(),
            custom: false,
        };
        let result = || ToolResult { output: "x".to_owned(), ok: true, ..ToolResult::default() };
        let mut repeats = Repeats::default();
        for round in 1..=ENDED_AT {
            let mut result = result();
            assert_eq!(repeats.note(&call("a"), &mut result), round < ENDED_AT);
            assert_eq!(result.output.contains("same call"), round >= TOLD_AT, "round {round}");
        }
        let mut other = result();
        assert!(repeats.note(&call("b"), &mut other));
        assert_eq!(other.output, "x");
    }
}
