//! What a model can be told about thinking, and what its template does with thoughts.
//!
//! Nothing says so but the template itself, so it is tried out once, when the model is loaded: rendered with each switch
//! on and off, with each level of effort, and with thoughts of a turn before.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::chat::{ChatRequest, ChatTemplate, Message};
use crate::dialect::Dialect;

/// Variables by which templates are told whether to think.
const SWITCHES: [&str; 2] = ["enable_thinking", "thinking"];
/// Levels of effort, least first.
const LEVELS: [&str; 6] = ["minimal", "low", "medium", "high", "xhigh", "max"];
/// The levels of a template that writes down whatever it is given.
const WRITTEN_LEVELS: [&str; 3] = ["low", "medium", "high"];
const EFFORT: &str = "reasoning_effort";
/// No level of any model.
const NO_LEVEL: &str = "q7";
/// Variables by which templates are told to keep the thoughts of turns before.
const KEEPS: [(&str, bool); 2] = [("preserve_thinking", true), ("clear_thinking", false)];
/// A thought that is found again where it is kept.
const THOUGHT: &str = "7fq2";

/// What a client wants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wish {
    /// Whether to think; the model's own way where nothing is said.
    pub on: Option<bool>,
    /// How much.
    pub level: Option<String>,
}

/// What comes of a wish.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Thinking {
    /// What the template is given.
    pub variables: BTreeMap<String, Value>,
    /// What could not be met, to be said behind the name of the model.
    pub unmet: Option<String>,
}

/// What is known of a model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Thoughts {
    /// It thinks, or can be made to.
    pub thinks: bool,
    /// It does without being told.
    pub by_default: bool,
    /// What turns it on and off.
    switch: Option<&'static str>,
    /// The levels of effort it knows, least first.
    pub levels: Vec<&'static str>,
    /// The template leaves the thoughts of turns before the last question out.
    pub forgets: bool,
    /// What it is told so that it does not.
    keeps: Option<(&'static str, bool)>,
}

impl Thoughts {
    /// Tries a template out.
    pub(super) fn of(template: &ChatTemplate, dialect: Dialect, source: &str) -> Thoughts {
        let render = |variables: &[(&str, Value)], messages: &[Message]| {
            let mut request = ChatRequest::new(messages);
            request.variables = variables.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
            template.render(&request).ok()
        };
        let question = [Message::user(".")];
        let plain = render(&[], &question);
        let mut thoughts = Thoughts::default();
        for switch in SWITCHES {
            let (on, off) = (render(&[(switch, json!(true))], &question), render(&[(switch, json!(false))], &question));
            if on.is_some() && off.is_some() && on != off {
                (thoughts.switch, thoughts.by_default) = (Some(switch), plain == on);
                break;
            }
        }
        let on: Vec<(&str, Value)> = thoughts.switch.iter().map(|switch| (*switch, json!(true))).collect();
        let level = |level: &str| render(&[&on[..], &[(EFFORT, json!(level))]].concat(), &question);
        let nothing = level(NO_LEVEL);
        thoughts.levels = match &nothing {
            Some(text) if text.contains(NO_LEVEL) => WRITTEN_LEVELS.to_vec(),
            _ => LEVELS.into_iter().filter(|name| level(name).is_some_and(|text| Some(text) != nothing)).collect(),
        };
        let marked = source.contains(dialect.thoughts_begin().trim_end());
        thoughts.thinks = dialect == Dialect::Harmony || thoughts.switch.is_some() || marked;
        if thoughts.switch.is_none() {
            thoughts.by_default = thoughts.thinks;
        }
        let before = Message {
            reasoning_content: Some(THOUGHT.to_owned()),
            thinking: Some(THOUGHT.to_owned()),
            ..Message::assistant("a")
        };
        let later = [Message::user("."), before, Message::user(".")];
        let kept = |more: &[(&str, Value)]| {
            render(&[&on[..], more].concat(), &later).is_some_and(|text| text.contains(THOUGHT))
        };
        thoughts.forgets = thoughts.thinks && !kept(&[]);
        if thoughts.forgets {
            thoughts.keeps = KEEPS.into_iter().find(|&(name, value)| kept(&[(name, json!(value))]));
            thoughts.forgets = thoughts.keeps.is_none();
        }
        thoughts
    }

    /// What to tell the template, and what of the wish it cannot be told.
    pub fn answer(&self, wish: &Wish) -> Thinking {
        let mut thinking = Thinking::default();
        if let Some((name, value)) = self.keeps {
            thinking.variables.insert(name.to_owned(), json!(value));
        }
        let asked = wish.level.as_deref().filter(|level| *level != "none");
        let on = match (wish.on, wish.level.as_deref()) {
            (Some(on), _) => Some(on),
            (None, Some(level)) => Some(level != "none"),
            (None, None) => None,
        };
        match (on, self.thinks) {
            (Some(true), false) => thinking.unmet = Some("answers without reasoning".to_owned()),
            (Some(on), true) => {
                if let Some(switch) = self.switch {
                    thinking.variables.insert(switch.to_owned(), json!(on));
                } else if !on {
                    thinking.unmet = Some(self.least(&mut thinking.variables));
                }
            }
            (Some(false) | None, _) => {}
        }
        if let Some(asked) = asked.filter(|_| self.thinks && on == Some(true)) {
            self.level(asked, &mut thinking);
        }
        thinking
    }

    /// Where thoughts cannot be turned off they are made as short as they get.
    fn least(&self, variables: &mut BTreeMap<String, Value>) -> String {
        match self.levels.first() {
            Some(level) => {
                variables.insert(EFFORT.to_owned(), json!(level));
                format!("cannot answer without reasoning; its least effort, {level}, was used")
            }
            None => "cannot answer without reasoning".to_owned(),
        }
    }

    fn level(&self, asked: &str, thinking: &mut Thinking) {
        if self.levels.is_empty() {
            thinking.unmet = Some("reasons or does not, and knows no levels of effort".to_owned());
            return;
        }
        let rank = |name: &str| LEVELS.iter().position(|level| *level == name);
        let nearest = match (self.levels.iter().find(|level| **level == asked), rank(asked)) {
            (Some(level), _) => Some(*level),
            // The next one below or above, whichever is nearer; the larger of two.
            (None, Some(wanted)) => {
                self.levels.iter().rev().min_by_key(|level| rank(level).unwrap_or(0).abs_diff(wanted)).copied()
            }
            (None, None) => None,
        };
        if nearest != Some(asked) {
            let levels = self.levels.join(", ");
            let used = nearest.map_or("its own was used".to_owned(), |level| format!("{level} was used"));
            thinking.unmet = Some(format!("knows the efforts {levels}, not {asked:?}; {used}"));
        }
        if let Some(level) = nearest {
            thinking.variables.insert(EFFORT.to_owned(), json!(level));
        }
    }
}
