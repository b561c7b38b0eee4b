//! What clients say of thinking, in every protocol's own words.

use serde_json::Value;

use crate::fields::{FieldError, Fields};

/// How much a model is to think: a wish, which each model meets as far as it can.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThinkingWish {
    /// Whether to think at all; the model's own way where nothing is said.
    pub on: Option<bool>,
    /// `none`, `minimal`, `low`, `medium`, `high` and the like.
    pub effort: Option<String>,
    /// Most tokens of thoughts.
    pub budget: Option<usize>,
}

impl ThinkingWish {
    /// Chat Completions: `reasoning_effort`, `thinking_budget`, and what vLLM, SGLang and llama.cpp take as
    /// `chat_template_kwargs`. Other variables of templates are named in `warnings`.
    pub fn read_chat(fields: &mut Fields, warnings: &mut Vec<String>) -> Result<Self, FieldError> {
        let mut wish = Self {
            on: None,
            effort: fields.take("reasoning_effort")?,
            budget: fields.take_count("thinking_budget", 0)?,
        };
        if let Some(more) = fields.take_value("chat_template_kwargs") {
            let mut more = Fields::at(fields.path("chat_template_kwargs"), more)?;
            for name in ["enable_thinking", "thinking"] {
                wish.on = more.take::<bool>(name)?.or(wish.on);
            }
            wish.effort = more.take("reasoning_effort")?.or(wish.effort);
            let rest: Vec<String> = more.rest().map(|name| more.path(name)).collect();
            warnings.extend(rest.iter().map(|name| format!("`{name}` is not known here and was ignored")));
        }
        Ok(wish)
    }

    /// Messages: `thinking`, and `output_config.effort` as it was read already.
    pub fn read_messages(fields: &mut Fields, effort: Option<String>) -> Result<Self, FieldError> {
        let mut wish = Self { effort, ..Self::default() };
        let Some(thinking) = fields.take_value("thinking") else { return Ok(wish) };
        let mut thinking = Fields::at(fields.path("thinking"), thinking)?;
        match thinking.need::<String>("type")?.as_str() {
            "enabled" => wish.on = Some(true),
            "disabled" => wish.on = Some(false),
            // As much as the model likes, which may be nothing.
            "adaptive" => {}
            other => {
                let rule = format!("must be enabled, disabled or adaptive, not {other:?}");
                return Err(FieldError::new(thinking.path("type"), rule));
            }
        }
        wish.budget = thinking.take_count("budget_tokens", 1)?;
        Ok(wish)
    }

    /// Ollama's `think`: a truth value, or a level.
    pub fn read_ollama(fields: &mut Fields) -> Result<Self, FieldError> {
        match fields.take_value("think") {
            None | Some(Value::Null) => Ok(Self::default()),
            Some(Value::Bool(on)) => Ok(Self { on: Some(on), ..Self::default() }),
            Some(Value::String(effort)) => Ok(Self { on: Some(true), effort: Some(effort), ..Self::default() }),
            Some(other) => {
                Err(FieldError::new(fields.path("think"), format!("must be true, false or a level, not {other}")))
            }
        }
    }

    /// Whether thoughts were asked for.
    pub fn asks(&self) -> bool {
        self.on == Some(true) || self.effort.as_deref().is_some_and(|effort| effort != "none") || self.budget.is_some()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_protocol_says_it_differently() {
        let fields = |body: Value| Fields::new(body).unwrap();
        let wish = |on, effort: Option<&str>, budget| ThinkingWish { on, effort: effort.map(str::to_owned), budget };
        let mut warnings = Vec::new();
        let chat = json!({"reasoning_effort": "low", "thinking_budget": 9,
            "chat_template_kwargs": {"enable_thinking": false, "colour": 1}});
        let read = ThinkingWish::read_chat(&mut fields(chat), &mut warnings).unwrap();
        assert_eq!(read, wish(Some(false), Some("low"), Some(9)));
        assert!(warnings.len() == 1 && warnings[0].contains("chat_template_kwargs.colour"), "{warnings:?}");
        let messages = |body: Value| ThinkingWish::read_messages(&mut fields(body), None);
        let enabled = json!({"thinking": {"type": "enabled", "budget_tokens": 1024}});
        assert_eq!(messages(enabled), Ok(wish(Some(true), None, Some(1024))));
        assert_eq!(messages(json!({"thinking": {"type": "disabled"}})), Ok(wish(Some(false), None, None)));
        assert_eq!(messages(json!({"thinking": {"type": "adaptive"}})), Ok(wish(None, None, None)));
        assert_eq!(messages(json!({"thinking": {"type": "x"}})).unwrap_err().param, "thinking.type");
        let ollama = |body: Value| ThinkingWish::read_ollama(&mut fields(body));
        assert_eq!(ollama(json!({"think": "high"})), Ok(wish(Some(true), Some("high"), None)));
        assert_eq!(ollama(json!({"think": false})), Ok(wish(Some(false), None, None)));
        assert_eq!(ollama(json!({"think": 3})).unwrap_err().param, "think");
    }
}
