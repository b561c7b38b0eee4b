//! Models to talk with of every family: its tokens, a chat template in its form, and an actor that answers in that form.
//!
//! The last message says what the answer will be (see [`answer`]). The templates are written for these tests after the
//! published forms: what stands where, which tokens, how thoughts are switched and which of them are forgotten.

use std::sync::Arc;

use model::gguf::{Array, Format, Value};
use model::{Backend, BackendError, Chunk, ModelInfo};
use serde_json::Value as Json;

use crate::chat::Gate;
use crate::gguf::GgufWriter;
use crate::toy::{ToyBackend, ToyOptions};

/// A family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Qwen 3: JSON in tags, thoughts that the model begins.
    Qwen3,
    /// Qwen 3.5 to 3.8: XML in tags, thoughts that the prompt begins, levels of effort.
    Qwen35,
    /// GLM 4.6.
    Glm,
    /// gpt-oss.
    Harmony,
    /// Devstral: no thoughts.
    Mistral,
    /// Gemma 4: thinks when it is told to.
    Gemma,
}

/// What the actor thinks.
pub const THOUGHT: &str = "The user wants something.";

const QWEN_SYSTEM: &str = "\
{%- if messages[0].role == 'system' %}{% set operator = messages[0].content %}{% endif %}\
{%- if tools or operator is defined %}{{- '<|im_start|>system\\n' }}{% if operator is defined %}{{- operator + '\\n\\n' }}{% endif %}\
{%- if tools %}{{- '# Tools\\n<tools>' }}{% for tool in tools %}{{- '\\n' + tool | tojson }}{% endfor %}{{- '\\n</tools>' }}{% endif %}{{- '<|im_end|>\\n' }}{% endif %}\
{%- set ns = namespace(last=-1) %}{% for message in messages %}{% if message.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}";

const QWEN3: &str = "\
{%- for message in messages %}\
{%- if message.role == 'user' %}{{- '<|im_start|>user\\n' + message.content + '<|im_end|>\\n' }}\
{%- elif message.role == 'system' and not loop.first %}{{- '<|im_start|>system\\n' + message.content + '<|im_end|>\\n' }}\
{%- elif message.role == 'assistant' %}{{- '<|im_start|>assistant\\n' }}\
{%- if loop.index0 > ns.last and message.reasoning_content %}{{- '<think>\\n' + message.reasoning_content.strip('\\n') + '\\n</think>\\n\\n' }}{% endif %}\
{{- message.content }}\
{%- for call in message.tool_calls %}{{- '\\n<tool_call>\\n{\"name\": \"' + call.function.name + '\", \"arguments\": ' + (call.function.arguments | tojson) + '}\\n</tool_call>' }}{% endfor %}\
{{- '<|im_end|>\\n' }}\
{%- elif message.role == 'tool' %}{{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}{% endif %}{% endfor %}\
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% if enable_thinking is defined and not enable_thinking %}{{- '<think>\\n\\n</think>\\n\\n' }}{% endif %}{% endif %}";

const QWEN35: &str = "\
{%- set effort = reasoning_effort | default('xhigh') %}{% if effort == 'high' %}{% set effort = 'xhigh' %}{% endif %}\
{%- if effort not in ['low', 'medium', 'xhigh'] %}{{ raise_exception('unsupported effort') }}{% endif %}\
{%- for message in messages %}\
{%- if message.role == 'user' %}{{- '<|im_start|>user\\n' + message.content + '<|im_end|>\\n' }}\
{%- elif message.role == 'system' and not loop.first %}{{ raise_exception('System message must be at the beginning.') }}\
{%- elif message.role == 'assistant' %}{{- '<|im_start|>assistant\\n' }}\
{%- if loop.index0 > ns.last or preserve_thinking | default(false) %}{{- '<think>\\n' + (message.reasoning_content | default('')).strip() + '\\n</think>\\n\\n' }}{% endif %}\
{{- message.content }}\
{%- for call in message.tool_calls %}{{- '\\n\\n<tool_call>\\n<function=' + call.function.name + '>\\n' }}\
{%- for key, value in call.function.arguments.items() %}{{- '<parameter=' + key + '>\\n' }}{{- value if value is string else value | tojson }}{{- '\\n</parameter>\\n' }}{% endfor %}\
{{- '</function>\\n</tool_call>' }}{% endfor %}{{- '<|im_end|>\\n' }}\
{%- elif message.role == 'tool' %}{{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}{% endif %}{% endfor %}\
{%- if add_generation_prompt %}\
{%- if enable_thinking is defined and not enable_thinking %}{{- '<|im_start|>assistant\\n<think>\\n\\n</think>\\n\\n' }}\
{%- else %}{% if effort != 'xhigh' %}{{- '<|im_start|>system\\nEffort: ' + effort + '<|im_end|>\\n' }}{% endif %}{{- '<|im_start|>assistant\\n<think>\\n' }}{% endif %}{% endif %}\
{#- <function= #}";

const GLM: &str = "\
[gMASK]<sop>{%- if tools %}{{- '<|system|>\\n# Tools\\n<tools>' }}{% for tool in tools %}{{- '\\n' + tool | tojson }}{% endfor %}{{- '\\n</tools>' }}{% endif %}\
{%- set ns = namespace(last=-1) %}{% for message in messages %}{% if message.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}\
{%- for message in messages %}\
{%- if message.role == 'user' %}{{- '<|user|>\\n' + message.content }}\
{%- elif message.role == 'system' %}{{- '<|system|>\\n' + message.content }}\
{%- elif message.role == 'assistant' %}{{- '<|assistant|>' }}\
{%- if loop.index0 > ns.last and message.reasoning_content %}{{- '\\n<think>' + message.reasoning_content.strip() + '</think>' }}{% else %}{{- '\\n<think></think>' }}{% endif %}\
{%- if message.content %}{{- '\\n' + message.content }}{% endif %}\
{%- for call in message.tool_calls %}{{- '\\n<tool_call>' + call.function.name + '\\n' }}{% for key, value in call.function.arguments.items() %}{{- '<arg_key>' + key + '</arg_key>\\n<arg_value>' }}{{- value if value is string else value | tojson }}{{- '</arg_value>\\n' }}{% endfor %}{{- '</tool_call>' }}{% endfor %}\
{%- elif message.role == 'tool' %}{{- '<|observation|>\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}{% endif %}{% endfor %}\
{%- if add_generation_prompt %}{{- '<|assistant|>' }}{% if enable_thinking is defined and not enable_thinking %}{{- '\\n<think></think>' }}{% endif %}{% endif %}\
{#- <think> <arg_key> #}";

const HARMONY: &str = "\
{{- '<|start|>system<|message|>Reasoning: ' + (reasoning_effort | default('medium')) + '\\n\\n# Valid channels: analysis, commentary, final.<|end|>' }}\
{%- if tools or messages[0].role == 'system' %}{{- '<|start|>developer<|message|>' }}{% if messages[0].role == 'system' %}{{- '# Instructions\\n\\n' + messages[0].content + '\\n\\n' }}{% endif %}\
{%- if tools %}{{- '# Tools\\n\\nnamespace functions {' }}{% for tool in tools %}{{- '\\n' + tool.function | tojson }}{% endfor %}{{- '\\n}' }}{% endif %}{{- '<|end|>' }}{% endif %}\
{%- set ns = namespace(call=none) %}\
{%- for message in messages %}\
{%- if message.role == 'user' %}{{- '<|start|>user<|message|>' + message.content + '<|end|>' }}\
{%- elif message.role == 'system' and not loop.first %}{{- '<|start|>developer<|message|>' + message.content + '<|end|>' }}\
{%- elif message.role == 'assistant' and message.tool_calls %}\
{%- if message.content and message.thinking %}{{ raise_exception('Cannot pass both content and thinking in an assistant message with tool calls!') }}{% endif %}\
{%- if message.thinking %}{{- '<|start|>assistant<|channel|>analysis<|message|>' + message.thinking + '<|end|>' }}{% endif %}\
{%- set call = message.tool_calls[0].function %}{% set ns.call = call.name %}\
{{- '<|start|>assistant to=functions.' + call.name + '<|channel|>commentary json<|message|>' + (call.arguments | tojson) + '<|call|>' }}\
{%- elif message.role == 'assistant' %}{{- '<|start|>assistant<|channel|>final<|message|>' + message.content + '<|end|>' }}{% set ns.call = none %}\
{%- elif message.role == 'tool' %}{% if ns.call is none %}{{ raise_exception('Message has tool role, but there was no previous assistant message with a tool call!') }}{% endif %}\
{{- '<|start|>functions.' + ns.call + ' to=assistant<|channel|>commentary<|message|>' + message.content + '<|end|>' }}{% endif %}{% endfor %}\
{%- if add_generation_prompt %}{{- '<|start|>assistant' }}{% endif %}";

const MISTRAL: &str = "\
{{- '<s>' }}{% if messages[0].role == 'system' %}{{- '[SYSTEM_PROMPT]' + messages[0].content + '[/SYSTEM_PROMPT]' }}{% endif %}\
{%- if tools %}{{- '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}{% endif %}\
{%- for message in messages %}\
{%- if message.role == 'user' %}{{- '[INST]' + message.content + '[/INST]' }}\
{%- elif message.role == 'system' and not loop.first %}{{- '[SYSTEM_PROMPT]' + message.content + '[/SYSTEM_PROMPT]' }}\
{%- elif message.role == 'assistant' %}{{- message.content }}{% for call in message.tool_calls %}{{- '[TOOL_CALLS]' + call.function.name + '[ARGS]' + (call.function.arguments | tojson) }}{% endfor %}{{- '</s>' }}\
{%- elif message.role == 'tool' %}{{- '[TOOL_RESULTS]' + message.content + '[/TOOL_RESULTS]' }}{% endif %}{% endfor %}";

const GEMMA: &str = "\
{%- macro quoted(value) %}{% if value is string %}{{- '<|\"|>' + value + '<|\"|>' }}{% else %}{{- value | tojson }}{% endif %}{% endmacro %}\
{{- '<bos>' }}{% set thinks = enable_thinking is defined and enable_thinking %}\
{%- if thinks or tools or messages[0].role == 'system' %}{{- '<|turn>system\\n' }}{% if thinks %}{{- '<|think|>\\n' }}{% endif %}{% if messages[0].role == 'system' %}{{- messages[0].content | trim }}{% endif %}\
{%- for tool in tools or [] %}{{- '<|tool>declaration:' + tool.function.name + '{}<tool|>' }}{% endfor %}{{- '<turn|>\\n' }}{% endif %}\
{%- set ns = namespace(last=-1, open=false) %}{% for message in messages %}{% if message.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}\
{%- for message in messages %}{% if message.role != 'system' or not loop.first %}\
{%- set role = 'model' if message.role == 'assistant' else message.role %}\
{%- if not (ns.open and message.tool_calls) %}{{- '<|turn>' + role + '\\n' }}{% endif %}{% set ns.open = false %}\
{%- if message.tool_calls %}\
{%- if message.reasoning_content and loop.index0 > ns.last %}{{- '<|channel>thought\\n' + message.reasoning_content + '<channel|>' }}{% endif %}\
{%- for call in message.tool_calls %}{{- '<|tool_call>call:' + call.function.name + '{' }}{% for key, value in call.function.arguments | dictsort %}{% if not loop.first %}{{- ',' }}{% endif %}{{- key + ':' }}{{- quoted(value) }}{% endfor %}{{- '}<tool_call|>' }}{% endfor %}{% endif %}\
{%- for given in message.tool_responses or [] %}{{- '<|tool_response>response:' + given.name + '{value:' }}{{- quoted(given.response) }}{{- '}<tool_response|>' }}{% set ns.open = true %}{% endfor %}\
{{- message.content | trim }}{% if not (message.tool_responses and not message.content) %}{{- '<turn|>\\n' }}{% endif %}{% endif %}{% endfor %}\
{%- if add_generation_prompt %}{% if not ns.open %}{{- '<|turn>model\\n' }}{% endif %}{% if not thinks %}{{- '<|channel>thought\\n<channel|>' }}{% endif %}{% endif %}";

impl Family {
    /// All of them.
    pub const ALL: [Family; 6] =
        [Family::Qwen3, Family::Qwen35, Family::Glm, Family::Harmony, Family::Mistral, Family::Gemma];

    /// Its name, for models and messages.
    pub fn name(self) -> &'static str {
        match self {
            Family::Qwen3 => "qwen3",
            Family::Qwen35 => "qwen3.5",
            Family::Glm => "glm",
            Family::Harmony => "gpt-oss",
            Family::Mistral => "mistral",
            Family::Gemma => "gemma4",
        }
    }

    /// Its chat template.
    pub fn template(self) -> String {
        match self {
            Family::Qwen3 => [QWEN_SYSTEM, QWEN3].concat(),
            Family::Qwen35 => [QWEN_SYSTEM, QWEN35].concat(),
            Family::Glm => GLM.to_owned(),
            Family::Harmony => HARMONY.to_owned(),
            Family::Mistral => MISTRAL.to_owned(),
            Family::Gemma => GEMMA.to_owned(),
        }
    }

    /// Tokens after the bytes; those that stand for text, and then those that are control tokens.
    fn named(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Family::Qwen3 | Family::Qwen35 => (
                &["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"],
                &["<|im_end|>", "<|im_start|>"],
            ),
            Family::Glm => (
                &[
                    "<think>",
                    "</think>",
                    "<tool_call>",
                    "</tool_call>",
                    "<arg_key>",
                    "</arg_key>",
                    "<arg_value>",
                    "</arg_value>",
                ],
                &["<|user|>", "<|observation|>", "<|assistant|>", "<|system|>", "[gMASK]", "<sop>"],
            ),
            Family::Harmony => (
                &[],
                &["<|return|>", "<|call|>", "<|end|>", "<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"],
            ),
            Family::Mistral => (
                &[],
                &[
                    "</s>",
                    "<s>",
                    "[INST]",
                    "[/INST]",
                    "[TOOL_CALLS]",
                    "[ARGS]",
                    "[CALL_ID]",
                    "[TOOL_RESULTS]",
                    "[/TOOL_RESULTS]",
                    "[AVAILABLE_TOOLS]",
                    "[/AVAILABLE_TOOLS]",
                    "[SYSTEM_PROMPT]",
                    "[/SYSTEM_PROMPT]",
                ],
            ),
            Family::Gemma => (
                &[],
                &[
                    "<turn|>",
                    "<|tool_response>",
                    "<bos>",
                    "<|turn>",
                    "<|think|>",
                    "<|channel>",
                    "<channel|>",
                    "<|tool_call>",
                    "<tool_call|>",
                    "<|\"|>",
                    "<|tool>",
                    "<tool|>",
                    "<tool_response|>",
                ],
            ),
        }
    }

    /// All its named tokens; the first control token ends an answer.
    fn names(self) -> Vec<&'static str> {
        let (texts, controls) = self.named();
        texts.iter().chain(controls).copied().collect()
    }

    fn id(self, name: &str) -> u32 {
        256 + self.names().iter().position(|other| *other == name).unwrap_or_default() as u32
    }

    /// Number of token ids.
    pub fn vocab(self) -> usize {
        256 + self.names().len()
    }

    /// The vocabulary with the template, as a file without a model.
    pub fn vocabulary(self) -> GgufWriter {
        let (texts, controls) = self.named();
        let kinds = std::iter::repeat_n(1, 256)
            .chain(std::iter::repeat_n(4, texts.len()))
            .chain(std::iter::repeat_n(3, controls.len()));
        let bytes = (0..=255).map(|byte| crate::chat::spelling(byte).to_string());
        let tokens: Vec<String> = bytes.chain(self.names().iter().map(|name| (*name).to_owned())).collect();
        GgufWriter::new()
            .text("tokenizer.ggml.model", "gpt2")
            .text("tokenizer.ggml.pre", "qwen2")
            .strings("tokenizer.ggml.tokens", &tokens)
            .strings("tokenizer.ggml.merges", [] as [&str; 0])
            .meta("tokenizer.ggml.token_type", Value::Array(Array::I32(kinds.collect())))
            .meta("tokenizer.ggml.eos_token_id", Value::U32(self.id(controls[0])))
            .text("tokenizer.chat_template", self.template())
            .tensor("pad", &[4096], Format::F32, vec![0; 4096 * 4])
    }

    /// Whether it thinks where nobody says anything, and whether it can be told.
    pub fn thinks(self) -> (bool, bool) {
        match self {
            Family::Qwen3 | Family::Qwen35 | Family::Glm => (true, true),
            Family::Harmony => (true, false),
            Family::Mistral => (false, false),
            Family::Gemma => (false, true),
        }
    }

    /// Where the last question and the last result of a tool are in a prompt: what opens each, and what closes it.
    fn inputs(self) -> [(&'static str, &'static str); 2] {
        match self {
            Family::Qwen3 | Family::Qwen35 => [
                ("<|im_start|>user\n", "<|im_end|>\n"),
                ("<|im_start|>user\n<tool_response>\n", "\n</tool_response><|im_end|>\n"),
            ],
            Family::Glm => [("<|user|>\n", "<|assistant|>"), ("<tool_response>\n", "\n</tool_response>")],
            Family::Harmony => {
                [("<|start|>user<|message|>", "<|end|>"), (" to=assistant<|channel|>commentary<|message|>", "<|end|>")]
            }
            Family::Mistral => [("[INST]", "[/INST]"), ("[TOOL_RESULTS]", "[/TOOL_RESULTS]")],
            Family::Gemma => [("<|turn>user\n", "<turn|>\n"), ("{value:<|\"|>", "<|\"|>}<tool_response|>")],
        }
    }

    /// What asks for an answer.
    fn header(self) -> &'static str {
        match self {
            Family::Qwen3 | Family::Qwen35 => "<|im_start|>assistant\n",
            Family::Glm => "<|assistant|>",
            Family::Harmony => "<|start|>assistant",
            Family::Mistral => "",
            Family::Gemma => "<|turn>model\n",
        }
    }

    /// The next token of an answer. A message says which answer it wants:
    ///
    /// - `say TEXT`: that text.
    /// - `call NAME {...}`: that tool with these arguments, in the form of the family.
    ///
    /// The result of a tool is answered with `got` and its last line, anything else with `ok`. It thinks first where it is
    /// told to, or nobody says that it should not.
    fn next(self, history: &[u32]) -> u32 {
        let text = self.text(history);
        let [(user, user_end), (tool, tool_end)] = self.inputs();
        let at_tool = text.rfind(tool);
        let at_user = text.rmatch_indices(user).map(|(at, _)| at).find(|at| Some(*at) != at_tool);
        let is_tool = at_tool > at_user;
        let (open, close, at) = if is_tool { (tool, tool_end, at_tool) } else { (user, user_end, at_user) };
        let Some(at) = at else { return self.id(self.named().1[0]) };
        let inside = &text[at + open.len()..];
        let length = inside.find(close).unwrap_or(inside.len());
        let asked = order(&inside[..length], is_tool);
        let mut said = if self == Family::Glm && !is_tool {
            &inside[length..]
        } else {
            &inside[(length + close.len()).min(inside.len())..]
        };
        if let Some(at) = said.find(self.header()) {
            said = &said[at + self.header().len()..];
        }
        let (by_default, switched) = self.thinks();
        let mut thinks = match self {
            Family::Gemma => text.contains("<|think|>"),
            _ => by_default,
        };
        for closed in ["<think>\n\n</think>\n\n", "\n<think></think>", "<|channel>thought\n<channel|>"] {
            if let Some(rest) = said.strip_prefix(closed).filter(|_| switched) {
                (said, thinks) = (rest, false);
            }
        }
        if self == Family::Qwen35 {
            said = said.strip_prefix("<think>\n").unwrap_or(said);
        }
        let wanted = self.tokens(&self.answer(asked, is_tool, thinks));
        let written = self.tokens(said).len();
        wanted.get(written).copied().unwrap_or(match self {
            Family::Harmony if is_call(asked, is_tool) => self.id("<|call|>"),
            _ => self.id(self.named().1[0]),
        })
    }

    /// A whole answer.
    fn answer(self, asked: &str, is_tool: bool, thinks: bool) -> String {
        let thought = match (self, thinks) {
            (_, false) | (Family::Mistral, _) => String::new(),
            (Family::Qwen3, _) => format!("<think>\n{THOUGHT}\n</think>\n\n"),
            (Family::Qwen35, _) => format!("{THOUGHT}\n</think>\n\n"),
            (Family::Glm, _) => format!("\n<think>{THOUGHT}</think>\n"),
            (Family::Harmony, _) => format!("<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant"),
            (Family::Gemma, _) => format!("<|channel>thought\n{THOUGHT}<channel|>"),
        };
        if is_call(asked, is_tool)
            && let Some((name, arguments)) = asked.trim_start_matches("call ").split_once(' ')
        {
            return thought + &self.call(name, &serde_json::from_str(arguments).unwrap_or_default());
        }
        let text = match (is_tool, asked.split_once(' ')) {
            (true, _) => format!("got {asked}"),
            (false, Some(("say", text))) => text.to_owned(),
            _ => "ok".to_owned(),
        };
        match self {
            Family::Harmony => format!("{thought}<|channel|>final<|message|>{text}"),
            _ => thought + &text,
        }
    }

    /// A call.
    fn call(self, name: &str, arguments: &Json) -> String {
        let members = arguments.as_object().cloned().unwrap_or_default();
        let bare = |value: &Json| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let each = |write: &dyn Fn(&String, &Json) -> String, between: &str| {
            members.iter().map(|(key, value)| write(key, value)).collect::<Vec<String>>().join(between)
        };
        match self {
            Family::Qwen3 => format!("<tool_call>\n{{\"name\": \"{name}\", \"arguments\": {arguments}}}\n</tool_call>"),
            Family::Qwen35 => {
                let parameters = each(&|key, value| format!("<parameter={key}>\n{}\n</parameter>\n", bare(value)), "");
                format!("<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>")
            }
            Family::Glm => {
                let pair = |key: &String, value: &Json| {
                    format!("<arg_key>{key}</arg_key>\n<arg_value>{}</arg_value>\n", bare(value))
                };
                format!("<tool_call>{name}\n{}</tool_call>", each(&pair, ""))
            }
            Family::Harmony => {
                format!("<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{arguments}")
            }
            Family::Mistral => format!("[TOOL_CALLS]{name}[ARGS]{arguments}"),
            Family::Gemma => {
                let quoted = |key: &String, value: &Json| match value {
                    Json::String(text) => format!("{key}:<|\"|>{text}<|\"|>"),
                    other => format!("{key}:{other}"),
                };
                format!("<|tool_call>call:{name}{{{}}}<tool_call|>", each(&quoted, ","))
            }
        }
    }

    /// The text of some tokens, with the names of those that have one.
    fn text(self, tokens: &[u32]) -> String {
        let names = self.names();
        let mut bytes = Vec::with_capacity(tokens.len());
        for &token in tokens {
            match (token as usize).checked_sub(256) {
                None => bytes.push(token as u8),
                Some(index) => bytes.extend_from_slice(names[index].as_bytes()),
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The tokens of a text, its names as one each.
    fn tokens(self, text: &str) -> Vec<u32> {
        let names = self.names();
        let mut tokens = Vec::new();
        let mut rest = text;
        while let Some(&byte) = rest.as_bytes().first() {
            let name = names.iter().position(|name| rest.starts_with(name));
            let length = name.map_or(1, |index| names[index].len());
            tokens.push(name.map_or(u32::from(byte), |index| 256 + index as u32));
            rest = if name.is_some() {
                &rest[length..]
            } else {
                let character = rest.chars().next().map_or(1, char::len_utf8);
                tokens.extend(rest.as_bytes()[1..character].iter().map(|byte| u32::from(*byte)));
                &rest[character..]
            };
        }
        tokens
    }
}

/// What a message asks for, whatever a client wrote around it.
fn order(message: &str, is_tool: bool) -> &str {
    let orders = |line: &&str| line.starts_with("say ") || line.starts_with("call ");
    let line = match is_tool {
        true => message.split("<system-reminder>").next().and_then(|result| result.trim().lines().next_back()),
        false => message.lines().rfind(orders),
    };
    line.unwrap_or(message).trim()
}

fn is_call(asked: &str, is_tool: bool) -> bool {
    !is_tool && asked.starts_with("call ")
}

/// The actor of a family, as a function without a state.
fn speaker(family: Family) -> fn(&[u32]) -> u32 {
    match family {
        Family::Qwen3 => |history| Family::Qwen3.next(history),
        Family::Qwen35 => |history| Family::Qwen35.next(history),
        Family::Glm => |history| Family::Glm.next(history),
        Family::Harmony => |history| Family::Harmony.next(history),
        Family::Mistral => |history| Family::Mistral.next(history),
        Family::Gemma => |history| Family::Gemma.next(history),
    }
}

/// A toy that speaks as a family does.
#[derive(Debug)]
pub struct FamilyBackend(ToyBackend, Arc<Gate>);

impl FamilyBackend {
    /// A toy with the vocabulary of a family and these limits.
    pub fn new(family: Family, options: ToyOptions, gate: Arc<Gate>) -> Self {
        let options = ToyOptions { vocab: family.vocab(), speaker: Some(speaker(family)), memory: 64, ..options };
        Self(ToyBackend::new(options), gate)
    }
}

impl Backend for FamilyBackend {
    fn info(&self) -> &ModelInfo {
        self.0.info()
    }

    fn forward(&mut self, batch: &[Chunk<'_>], logits: &mut Vec<f32>) -> Result<(), BackendError> {
        self.1.pass();
        self.0.forward(batch, logits)
    }

    fn copy_block(&mut self, from: u32, to: u32) -> Result<(), BackendError> {
        self.0.copy_block(from, to)
    }

    fn export_block(&self, block: u32, bytes: &mut Vec<u8>) -> Result<(), BackendError> {
        self.0.export_block(block, bytes)
    }

    fn import_block(&mut self, block: u32, bytes: &[u8]) -> Result<(), BackendError> {
        self.0.import_block(block, bytes)
    }
}
