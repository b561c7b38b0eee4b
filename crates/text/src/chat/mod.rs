//! Chat templates: a conversation written the way a model was trained to read it.
//!
//! The template is a Jinja program that comes with the model file, written for Python. [`ChatTemplate`] runs it with
//! what Hugging Face gives templates there: Python methods on strings and lists, `raise_exception`, `strftime_now`, and
//! a `tojson` that spaces like Python. A program from a stranger gets bounded steps and no access to anything else, and
//! runs in a process whose memory, stack and time the system bounds.

mod json;
mod message;
mod time;

use std::fmt;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Value, context};
use serde_json::Value as Json;

use crate::confined::{Confined, ConfinedError, Conversation, Job, Purpose, Reply, Wanted};
use crate::error::TextError;
use crate::vocabulary::Vocabulary;

pub use message::{ChatRequest, FunctionCall, Message, ToolCall, ToolResponse};

/// Largest accepted template. Real ones have some kilobytes.
const TEMPLATE_BYTES_MAX: usize = 1 << 20;

/// Steps a template may take for one conversation: about a second, and far more than a long one needs.
const STEPS_MAX: u64 = 10_000_000;

/// Used where a file has no template but the tokens of ChatML.
const CHATML: &str = "\
{%- for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{% endfor %}\
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/// Where a template came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TemplateSource {
    /// From the model file.
    File,
    /// The file has none; ChatML was assumed, because the model has its tokens. Tools are not announced to the model.
    ChatMl,
}

/// A compiled chat template. It runs in a process of its own wherever there can be one.
pub struct ChatTemplate {
    runs: Runs,
    source: TemplateSource,
}

enum Runs {
    Confined(Confined),
    /// Where this program cannot start itself again.
    Here(Box<Program>),
}

impl ChatTemplate {
    /// The template of a model, or ChatML where the file has none and the model knows `<|im_start|>`.
    pub fn new(vocabulary: &Vocabulary) -> Result<ChatTemplate, TextError> {
        let (template, source) = match vocabulary.chat_template() {
            Some(template) => (template, TemplateSource::File),
            None if vocabulary.special_token("<|im_start|>").is_some() => (CHATML, TemplateSource::ChatMl),
            None => return Err(TextError::NoTemplate),
        };
        let text = |id: Option<u32>| {
            id.map(|id| String::from_utf8_lossy(vocabulary.token_bytes(id)).into_owned()).unwrap_or_default()
        };
        let special = vocabulary.special();
        let (bos, eos) = (text(special.bos), text(special.eos));
        check_length(template)?;
        let opening = Job::Template { text: template.to_string(), bos: bos.clone(), eos: eos.clone() };
        let runs = match Confined::new(Purpose::Template, Some(&opening)) {
            Some(confined) => {
                read_reply(confined.open())?;
                Runs::Confined(confined)
            }
            None => Runs::Here(Box::new(Program::new(template, bos, eos)?)),
        };
        Ok(ChatTemplate { runs, source })
    }

    /// Where the template came from.
    pub fn source(&self) -> TemplateSource {
        self.source
    }

    /// Writes a conversation. Encode the result with [`Special::Parse`](crate::Special::Parse).
    pub fn render(&self, request: &ChatRequest<'_>) -> Result<String, TextError> {
        let json = |value: Result<Json, serde_json::Error>| {
            value.map_err(|error| TextError::TemplateRender(format!("the conversation has no JSON form: {error}")))
        };
        let conversation = Conversation {
            messages: json(serde_json::to_value(request.messages))?,
            tools: json(serde_json::to_value(request.tools))?,
            add_generation_prompt: request.add_generation_prompt,
            unix_seconds: request.unix_seconds,
            variables: json(serde_json::to_value(&request.variables))?,
        };
        match &self.runs {
            Runs::Confined(confined) => read_reply(confined.ask(&Job::Render(conversation), &Wanted::default())),
            Runs::Here(program) => program.render(&conversation),
        }
    }
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTemplate").field("source", &self.source).finish_non_exhaustive()
    }
}

/// What a confined process says about a template.
fn read_reply(reply: Result<Reply, ConfinedError>) -> Result<String, TextError> {
    match reply.map_err(TextError::TemplateLimits)? {
        Reply::Text(text) => Ok(text),
        Reply::Syntax(error) => Err(TextError::TemplateSyntax(error)),
        Reply::Refused(error) => Err(TextError::TemplateRefused(error)),
        Reply::Fails(error) => Err(TextError::TemplateRender(error)),
        Reply::Ready | Reply::Compiled { .. } | Reply::Grammar(_) => Ok(String::new()),
    }
}

impl From<TextError> for Reply {
    fn from(error: TextError) -> Reply {
        match error {
            TextError::TemplateSyntax(error) => Reply::Syntax(error),
            TextError::TemplateRefused(error) => Reply::Refused(error),
            TextError::TemplateRender(error) => Reply::Fails(error),
            other => Reply::Fails(other.to_string()),
        }
    }
}

/// The template as a program, in whatever process runs it.
pub(crate) struct Program {
    environment: Environment<'static>,
    bos: String,
    eos: String,
}

impl Program {
    /// Compiles it.
    pub(crate) fn new(template: &str, bos: String, eos: String) -> Result<Program, TextError> {
        Ok(Program { environment: environment(template)?, bos, eos })
    }

    /// Runs it.
    pub(crate) fn render(&self, conversation: &Conversation) -> Result<String, TextError> {
        let tools = match &conversation.tools {
            Json::Array(tools) if !tools.is_empty() => Value::from(Serde(tools)),
            _ => Value::from(()),
        };
        let fixed = context! {
            messages => Value::from(Serde(&conversation.messages)),
            tools,
            add_generation_prompt => conversation.add_generation_prompt,
            bos_token => self.bos.as_str(),
            eos_token => self.eos.as_str(),
        };
        let clock = match conversation.unix_seconds {
            Some(now) => context! {
                strftime_now => Value::from_function(move |format: &str| time::format(format, now)),
            },
            None => Value::from(()),
        };
        let variables = Value::from(Serde(&conversation.variables));
        let template = self.environment.get_template("chat").map_err(unparsable)?;
        template.render(context! { ..fixed, ..clock, ..variables }).map_err(render_error)
    }
}

fn unparsable(error: Error) -> TextError {
    TextError::TemplateSyntax(error.to_string())
}

fn check_length(template: &str) -> Result<(), TextError> {
    if template.len() > TEMPLATE_BYTES_MAX {
        return Err(TextError::TemplateTooLong { found: template.len(), max: TEMPLATE_BYTES_MAX });
    }
    Ok(())
}

/// An environment that holds the template under the name `chat`, with the white-space rules Hugging Face sets.
fn environment(template: &str) -> Result<Environment<'static>, TextError> {
    check_length(template)?;
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.map_err(unparsable)?);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(STEPS_MAX));
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_function("raise_exception", raise_exception);
    environment.add_filter("tojson", |value: &Value, options: Kwargs| json::to_json(value, &options));
    environment.add_template_owned("chat", template.to_string()).map_err(unparsable)?;
    Ok(environment)
}

/// What a template says when it refuses a conversation, kept apart from mistakes of the template itself.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refusal(String);

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Refusal(message)))
}

fn render_error(error: Error) -> TextError {
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        if let Some(Refusal(message)) = cause.downcast_ref() {
            return TextError::TemplateRefused(message.clone());
        }
        source = cause.source();
    }
    TextError::TemplateRender(error.to_string())
}
