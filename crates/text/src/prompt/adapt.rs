//! Conversations in the form that some templates want.

use std::borrow::Cow;

use crate::chat::{Message, ToolResponse};
use crate::dialect::Dialect;

/// What a template asks for beside the usual.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Form {
    /// Thoughts as `thinking`, one call in a message, and text beside a call as thought.
    harmony: bool,
    /// Results inside of the message that called.
    responses_inside: bool,
}

impl Form {
    pub fn of(dialect: Dialect, source: &str) -> Form {
        Form { harmony: dialect == Dialect::Harmony, responses_inside: source.contains("tool_responses") }
    }

    /// The same conversation in this form.
    pub fn adapt<'a>(self, messages: &'a [Message]) -> Cow<'a, [Message]> {
        if self == Form::default() {
            return Cow::Borrowed(messages);
        }
        let mut adapted: Vec<Message> = Vec::with_capacity(messages.len());
        let mut rest = messages.iter().peekable();
        while let Some(message) = rest.next() {
            let mut message = message.clone();
            let calls = std::mem::take(&mut message.tool_calls);
            if self.harmony {
                message.thinking = message.reasoning_content.take();
            }
            if calls.is_empty() {
                adapted.push(message);
                continue;
            }
            let mut results = Vec::new();
            while let Some(result) = rest.next_if(|next| next.role == "tool") {
                results.push(result);
            }
            if self.harmony {
                let said = std::mem::take(&mut message.content);
                let thought = [message.thinking.take().unwrap_or_default(), said];
                let thought: Vec<String> = thought.into_iter().filter(|text| !text.is_empty()).collect();
                message.thinking = Some(thought.join("\n\n")).filter(|text| !text.is_empty());
                let mut results = results.into_iter();
                for call in calls {
                    let more = Message { tool_calls: vec![call], ..message.clone() };
                    adapted.push(more);
                    adapted.extend(results.next().cloned());
                    message.thinking = None;
                }
                adapted.extend(results.cloned());
            } else {
                let named = |(index, result): (usize, &&Message)| {
                    let name = calls.get(index).map(|call| call.function.name.clone());
                    ToolResponse { name: name.unwrap_or_default(), response: result.content.clone() }
                };
                message.tool_responses = results.iter().enumerate().map(named).collect();
                message.tool_calls = calls;
                adapted.push(message);
            }
        }
        Cow::Owned(adapted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::ToolCall;

    fn conversation() -> Vec<Message> {
        let calls = vec![ToolCall::new("a", "{}"), ToolCall::new("b", "{}")];
        let called = Message { reasoning_content: Some("t".into()), ..Message::assistant("s") }.with_tool_calls(calls);
        vec![Message::user("u"), called, Message::tool("1"), Message::tool("2"), Message::user("v")]
    }

    #[test]
    fn harmony_has_one_call_in_a_message() {
        let adapted = Form::of(Dialect::Harmony, "").adapt(&conversation()).into_owned();
        let shown: Vec<String> = adapted
            .iter()
            .map(|message| {
                let call = message.tool_calls.first().map(|call| call.function.name.clone()).unwrap_or_default();
                format!("{}{}{}{call}", message.role, message.content, message.thinking.clone().unwrap_or_default())
            })
            .collect();
        assert_eq!(shown, ["useru", "assistantt\n\nsa", "tool1", "assistantb", "tool2", "userv"]);
    }

    #[test]
    fn results_go_into_the_message_that_called() {
        let adapted = Form::of(Dialect::Gemma, "tool_responses").adapt(&conversation()).into_owned();
        let roles: Vec<&str> = adapted.iter().map(|message| &*message.role).collect();
        assert_eq!(roles, ["user", "assistant", "user"]);
        let given: Vec<(&str, &str)> =
            adapted[1].tool_responses.iter().map(|given| (&*given.name, &*given.response)).collect();
        assert_eq!((given, adapted[1].tool_calls.len()), (vec![("a", "1"), ("b", "2")], 2));
    }
}
