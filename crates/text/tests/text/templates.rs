//! Chat templates render as Python's jinja2 renders them, and say clearly when they cannot.

use serde_json::Value;
use testkit::gguf::GgufWriter;
use text::{ChatRequest, ChatTemplate, Message, TemplateSource, TextError, ToolCall, Vocabulary};

use crate::models::{self, gguf, made_up};

const CONVERSATIONS: &str = include_str!("../golden/conversations.json");

fn with_template(template: &str) -> GgufWriter {
    made_up("qwen2").text("tokenizer.chat_template", template)
}

fn compile(template: &str) -> Result<ChatTemplate, TextError> {
    ChatTemplate::new(&Vocabulary::from_gguf(&gguf(&with_template(template)))?)
}

/// Renders for one user message.
fn render(template: &str) -> Result<String, TextError> {
    compile(template)?.render(&ChatRequest::new(&[Message::user("Hi <&> 'é'")]))
}

fn message(value: &Value) -> Message {
    let text = |value: &Value| value.as_str().unwrap().to_string();
    let call = |call: &Value| {
        let function = &call["function"];
        ToolCall::new(text(&function["name"]), &function["arguments"].to_string())
    };
    let calls = value["tool_calls"].as_array().map(|calls| calls.iter().map(call).collect());
    Message::new(text(&value["role"]), text(&value["content"])).with_tool_calls(calls.unwrap_or_default())
}

fn check(model: &str, template: &str, expected: &str) {
    if let Some(real) = models::real(model) {
        assert_eq!(real.metadata.str("tokenizer.chat_template").unwrap(), template, "{model}");
    }
    let compiled = compile(template).unwrap();
    assert_eq!(compiled.source(), TemplateSource::File);
    let conversations: Value = serde_json::from_str(CONVERSATIONS).unwrap();
    let mut rendered = String::new();
    for (name, conversation) in conversations.as_object().unwrap() {
        let messages: Vec<Message> = conversation["messages"].as_array().unwrap().iter().map(message).collect();
        let mut request = ChatRequest::new(&messages);
        request.tools = conversation["tools"].as_array().map_or(&[], Vec::as_slice);
        request.add_generation_prompt = conversation["add_generation_prompt"].as_bool().unwrap_or(true);
        rendered += &format!("=== {name}\n{}\n", compiled.render(&request).unwrap());
    }
    assert_eq!(rendered, expected, "{model}");
}

macro_rules! golden {
    ($model:literal) => {
        check(
            $model,
            include_str!(concat!("../golden/", $model, ".jinja")),
            include_str!(concat!("../golden/template-", $model, ".txt")),
        )
    };
}

#[test]
fn templates_of_real_models() {
    golden!("smollm2-135m");
    golden!("qwen2.5-coder-0.5b");
    golden!("qwen2.5-coder-1.5b");
}

#[test]
fn chatml_stands_in_and_says_so() {
    let vocabulary = Vocabulary::from_gguf(&gguf(&made_up("qwen2"))).unwrap();
    let template = ChatTemplate::new(&vocabulary).unwrap();
    assert_eq!(template.source(), TemplateSource::ChatMl);
    let messages = [Message::system("Be brief."), Message::user("Hi")];
    assert_eq!(
        template.render(&ChatRequest::new(&messages)).unwrap(),
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    );
}

#[test]
fn no_template_and_no_chatml_is_an_error() {
    let bare = GgufWriter::new()
        .text("tokenizer.ggml.model", "gpt2")
        .strings("tokenizer.ggml.tokens", ["a", "b"])
        .tensor("pad", &[1024], model::gguf::Format::F32, vec![0; 4096]);
    let vocabulary = Vocabulary::from_gguf(&gguf(&bare)).unwrap();
    assert!(matches!(ChatTemplate::new(&vocabulary), Err(TextError::NoTemplate)));
}

#[test]
fn python_methods_and_functions() {
    let check = |template: &str, expected: &str| assert_eq!(render(template).unwrap(), expected, "{template}");
    check("{{ messages[0].content.split(' ')[0].upper() }}", "HI");
    check("{{ messages[0]['content'] | tojson }}", "\"Hi <&> 'é'\"");
    check("{{ {'a': [1, {'b': none}], 'c': {}} | tojson }}", "{\"a\": [1, {\"b\": null}], \"c\": {}}");
    check("{{ {'b': [1], 'a': 2} | tojson(indent=2, sort_keys=true) }}", "{\n  \"a\": 2,\n  \"b\": [\n    1\n  ]\n}");
    check("{{ 'é😀' | tojson(ensure_ascii=true) }}", "\"\\u00e9\\ud83d\\ude00\"");
    check("{{ [1, [], {}] | tojson(separators=(',', ':')) }}", "[1,[],{}]");
    check("{% if tools is none %}none{% endif %}{{ eos_token }}", "none<|im_end|>");
    check("{% if strftime_now is defined %}{{ strftime_now('%Y') }}{% else %}never{% endif %}", "never");
    let mut request = ChatRequest::new(&[]);
    request.unix_seconds = Some(86_400 * 365);
    request.variables.insert("enable_thinking".into(), false.into());
    let template = compile("{{ strftime_now('%d %b %Y') }} {{ enable_thinking }}").unwrap();
    assert_eq!(template.render(&request).unwrap(), "01 Jan 1971 False");
}

#[test]
fn bad_templates_say_what_is_wrong() {
    let syntax = render("{% for x in %}").unwrap_err();
    assert!(matches!(syntax, TextError::TemplateSyntax(_)), "{syntax}");
    assert!(syntax.to_string().contains("does not parse"), "{syntax}");
    let refused = render("{{ raise_exception('roles must alternate') }}").unwrap_err();
    assert_eq!(refused.to_string(), "the model's chat template refuses this conversation: roles must alternate");
    let fails = render("{{ messages[0].nothing.more }}").unwrap_err();
    assert!(matches!(fails, TextError::TemplateRender(_)), "{fails}");
    let endless = "{% for a in range(9999) %}{% for b in range(9999) %}{% set c = a %}{% endfor %}{% endfor %}";
    assert!(matches!(render(endless).unwrap_err(), TextError::TemplateRender(_)));
    let long = " ".repeat((1 << 20) + 1);
    assert!(matches!(render(&long).unwrap_err(), TextError::TemplateTooLong { .. }));
}
