//! Every family of models in its own form, over every protocol, thinking and not: a real server over an actor that answers as
//! the family writes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, mpsc};

use engine::{Engine, EngineOptions};
use model::gguf::Gguf;
use serde_json::{Value, json};
use server::guard::Limits;
use server::sessions::store::StoreOptions;
use server::{FileFacts, Loader, ModelCard, ModelLimits, ModelParts, Server, ServerOptions};
use testkit::chat::Gate;
use testkit::families::{Family, FamilyBackend, THOUGHT};
use testkit::toy::ToyOptions;
use text::{ChatTemplate, Tokenizer};

const CONTEXT: usize = 8192;

/// One model of each family.
struct Actors;

impl Loader for Actors {
    fn cards(&self) -> Vec<ModelCard> {
        let card = |family: &Family| ModelCard {
            name: family.name().to_owned(),
            aliases: Vec::new(),
            description: String::new(),
            context: CONTEXT,
            file: FileFacts::default(),
        };
        Family::ALL.iter().map(card).collect()
    }

    fn load(&self, name: &str) -> Result<ModelParts, String> {
        let family = Family::ALL.into_iter().find(|family| family.name() == name).ok_or("no such model")?;
        let bytes = family.vocabulary().bytes();
        let gguf = Gguf::parse(&bytes, bytes.len() as u64).map_err(|error| error.to_string())?;
        let tokenizer = Arc::new(Tokenizer::from_gguf(&gguf).map_err(|error| error.to_string())?);
        let toy = ToyOptions { context: CONTEXT, blocks: 1024, ..ToyOptions::default() };
        let backend = FamilyBackend::new(family, toy, Arc::new(Gate::default()));
        let engine = Engine::start(Box::new(backend), EngineOptions::default()).map_err(|error| error.to_string())?;
        Ok(ModelParts {
            engine,
            template: ChatTemplate::new(tokenizer.vocabulary()),
            tokenizer,
            served_model: name.to_owned(),
            fingerprint: family as u64 + 1,
            quantisation: "F32".to_owned(),
            context: CONTEXT,
            after_tools: None,
        })
    }
}

/// A running server, for all families.
struct World {
    address: SocketAddr,
    _stop: tokio::sync::oneshot::Sender<()>,
}

impl World {
    fn start() -> World {
        let (address, started) = mpsc::channel();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let options = ServerOptions {
                    tcp: Some(([127, 0, 0, 1], 0).into()),
                    host: None,
                    unix: None,
                    tls: None,
                    keys: None,
                    origins: Vec::new(),
                    limits: Limits::default(),
                    model_limits: ModelLimits { loaded_max: Family::ALL.len(), ..ModelLimits::default() },
                    store: StoreOptions { path: None, ..StoreOptions::default() },
                };
                let server = Server::bind(options, Arc::new(Actors)).await.unwrap();
                address.send(server.address().unwrap()).unwrap();
                server.run(async { drop(stopped.await) }).await;
            });
        });
        World { address: started.recv().unwrap(), _stop: stop }
    }

    fn raw(&self, path: &str, body: &Value) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let body = body.to_string();
        let head = format!("POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n");
        let request = format!("{head}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let answer = self.raw(path, body);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(" 200 "), "{path}: {answer}");
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"))
    }
}

fn parameters() -> Value {
    json!({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "all": {"type": "boolean"}},
        "required": ["city", "days"]})
}

const CALL: &str = "call weather {\"city\":\"12\",\"days\":3}";

fn arguments(text: &Value) -> Value {
    serde_json::from_str(text.as_str().unwrap()).unwrap_or_else(|error| Value::from(format!("{error}: {text}")))
}

/// Whether the model thinks when it is asked to or not to, and whether the answer must say that it cannot.
fn expected(family: Family, on: bool) -> (bool, bool) {
    match (family.thinks(), on) {
        ((_, true), on) => (on, false),
        ((true, false), on) => (true, !on),
        ((false, false), on) => (false, on),
    }
}

fn warned(flint: &Value) -> bool {
    flint["warnings"].as_array().is_some_and(|warnings| {
        let about = |warning: &Value| {
            let text = warning.as_str().unwrap();
            ["without reasoning", "reasons or does not"].iter().any(|words| text.contains(words))
        };
        warnings.iter().any(about)
    })
}

#[test]
fn responses() {
    let world = World::start();
    let tool = json!({"type": "function", "name": "weather", "parameters": parameters(), "strict": true});
    for (family, on) in Family::ALL.into_iter().flat_map(|family| [(family, true), (family, false)]) {
        let about = format!("{family:?}, thinking: {on}");
        let (thinks, unmet) = expected(family, on);
        let ask = |body: Value| {
            let mut body = body;
            body["model"] = family.name().into();
            body["reasoning"] = if on { json!({"effort": "low"}) } else { json!({"effort": "none"}) };
            body["tools"] = json!([tool]);
            world.post("/v1/responses", &body)
        };
        let reasoning = |response: &Value| {
            let items = response["output"].as_array().unwrap();
            let thought: Vec<&Value> = items.iter().filter(|item| item["type"] == "reasoning").collect();
            assert_eq!(!thought.is_empty(), thinks, "{about}: {response}");
            if let Some(item) = thought.first() {
                assert_eq!(item["content"][0]["text"], THOUGHT, "{about}");
                assert_eq!(items[0]["type"], "reasoning", "thoughts come first: {about}");
            }
            let counted = response["usage"]["output_tokens_details"]["reasoning_tokens"].as_u64().unwrap();
            assert_eq!(counted > 0, thinks, "{about}: {response}");
        };
        let last = |response: &Value| response["output"].as_array().unwrap().last().unwrap().clone();

        let said = ask(json!({"input": "say hello </think> [THINK]"}));
        reasoning(&said);
        assert_eq!(last(&said)["content"][0]["text"], "hello </think> [THINK]", "{about}");
        let only_levels = family == Family::Qwen3 || family == Family::Glm || family == Family::Gemma;
        assert_eq!(warned(&said["flint"]), unmet || on && only_levels, "{about}: {}", said["flint"]);

        let called = ask(json!({"input": CALL}));
        reasoning(&called);
        let call = last(&called);
        assert_eq!((&call["type"], &call["name"]), (&json!("function_call"), &json!("weather")), "{about}: {called}");
        assert_eq!(arguments(&call["arguments"]), json!({"city": "12", "days": 3}), "{about}");
        let result = json!({"type": "function_call_output", "call_id": call["call_id"], "output": "rain"});
        let answered = ask(json!({"previous_response_id": called["id"], "input": [result]}));
        reasoning(&answered);
        assert_eq!(last(&answered)["content"][0]["text"], "got rain", "{about}: {answered}");
        let later = ask(json!({"previous_response_id": answered["id"], "input": "say again"}));
        reasoning(&later);
        assert_eq!(last(&later)["content"][0]["text"], "again", "{about}: {later}");
        assert!(later["usage"]["input_tokens_details"]["cached_tokens"].as_u64() > Some(0), "{about}: {later}");

        // The same from a client that sends its whole history, thoughts and all.
        let history: Vec<Value> = [json!({"role": "user", "content": CALL})]
            .into_iter()
            .chain(called["output"].as_array().unwrap().iter().cloned())
            .chain([result])
            .collect();
        let whole = ask(json!({"input": history}));
        assert_eq!(last(&whole)["content"][0]["text"], "got rain", "{about}: {whole}");
        assert!(whole["usage"]["input_tokens_details"]["cached_tokens"].as_u64() > Some(0), "{about}: {whole}");
    }
}

#[test]
fn chat() {
    let world = World::start();
    let tool = json!({"type": "function", "function": {"name": "weather", "parameters": parameters()}});
    for (family, on) in Family::ALL.into_iter().flat_map(|family| [(family, true), (family, false)]) {
        let about = format!("{family:?}, thinking: {on}");
        let (thinks, _) = expected(family, on);
        let ask = |messages: &[Value]| {
            let effort = if on { "medium" } else { "none" };
            let body =
                json!({"model": family.name(), "messages": messages, "tools": [tool], "reasoning_effort": effort});
            let message = world.post("/v1/chat/completions", &body)["choices"][0]["message"].clone();
            let thought = message["reasoning_content"].as_str();
            assert_eq!(thought, thinks.then_some(THOUGHT), "{about}: {message}");
            message
        };
        let mut messages =
            vec![json!({"role": "system", "content": "Be brief."}), json!({"role": "user", "content": CALL})];
        let called = ask(&messages);
        let call = &called["tool_calls"][0];
        assert_eq!(arguments(&call["function"]["arguments"]), json!({"city": "12", "days": 3}), "{about}: {called}");
        let result = json!({"role": "tool", "tool_call_id": call["id"], "content": "sun"});
        messages.extend([called.clone(), result]);
        let answered = ask(&messages);
        assert_eq!(answered["content"], "got sun", "{about}: {answered}");
        // The thoughts of turns before stay away or stay, as the family has it; the answer is the same.
        messages.extend([answered, json!({"role": "user", "content": "say bye"})]);
        assert_eq!(ask(&messages)["content"], "bye", "{about}");
    }
}

#[test]
fn messages() {
    let world = World::start();
    let tool = json!({"name": "weather", "input_schema": parameters()});
    for (family, on) in Family::ALL.into_iter().flat_map(|family| [(family, true), (family, false)]) {
        let about = format!("{family:?}, thinking: {on}");
        let (thinks, _) = expected(family, on);
        let ask = |messages: &[Value]| {
            let thinking =
                if on { json!({"type": "enabled", "budget_tokens": 1024}) } else { json!({"type": "disabled"}) };
            let body = json!({"model": family.name(), "max_tokens": 2000, "messages": messages, "tools": [tool],
                "thinking": thinking, "system": "Be brief."});
            let answer = world.post("/v1/messages", &body);
            let thought = answer["content"].as_array().unwrap().iter().find(|block| block["type"] == "thinking");
            assert_eq!(thought.map(|block| &block["thinking"]), thinks.then_some(&json!(THOUGHT)), "{about}: {answer}");
            answer
        };
        let mut messages = vec![json!({"role": "user", "content": CALL})];
        let called = ask(&messages);
        assert_eq!(called["stop_reason"], "tool_use", "{about}: {called}");
        let block = called["content"].as_array().unwrap().last().unwrap();
        assert_eq!(block["input"], json!({"city": "12", "days": 3}), "{about}");
        let result = json!({"type": "tool_result", "tool_use_id": block["id"], "content": "fog"});
        messages.push(json!({"role": "assistant", "content": called["content"]}));
        messages.push(json!({"role": "user", "content": [result]}));
        let answered = ask(&messages);
        assert_eq!(answered["content"].as_array().unwrap().last().unwrap()["text"], "got fog", "{about}: {answered}");
    }
}

#[test]
fn formats_and_forced_calls_come_behind_thoughts() {
    let world = World::start();
    for family in Family::ALL {
        let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": false});
        let format = json!({"type": "json_schema", "name": "f", "schema": schema});
        let body = json!({"model": family.name(), "input": "say {\"a\": 7}", "text": {"format": format},
            "reasoning": {"effort": "high"}, "max_output_tokens": 400});
        let answer = world.post("/v1/responses", &body);
        let items = answer["output"].as_array().unwrap();
        let (thinks, _) = expected(family, true);
        assert_eq!(items[0]["type"] == "reasoning", thinks, "{family:?}: {answer}");
        assert_eq!(items.last().unwrap()["content"][0]["text"], "{\"a\": 7}", "{family:?}: {answer}");

        let tool = json!({"type": "function", "name": "weather", "parameters": parameters(), "strict": true});
        let body = json!({"model": family.name(), "input": CALL, "tools": [tool], "tool_choice": "required",
            "reasoning": {"effort": "high"}, "max_output_tokens": 400});
        let answer = world.post("/v1/responses", &body);
        let call = answer["output"].as_array().unwrap().last().unwrap();
        assert_eq!(call["type"], "function_call", "{family:?}: {answer}");
        assert_eq!(arguments(&call["arguments"]), json!({"city": "12", "days": 3}), "{family:?}");
    }
}

#[test]
fn a_budget_ends_thoughts() {
    let world = World::start();
    for family in Family::ALL.into_iter().filter(|family| expected(*family, true).0) {
        let body =
            json!({"model": family.name(), "input": "say hello", "reasoning": {"effort": "high", "max_tokens": 6}});
        let answer = world.post("/v1/responses", &body);
        let items = answer["output"].as_array().unwrap();
        let thought = items[0]["content"][0]["text"].as_str().unwrap();
        assert!(THOUGHT.starts_with(thought) && thought.len() < THOUGHT.len(), "{family:?}: {answer}");
        assert!(answer["usage"]["output_tokens"].as_u64().unwrap() < 80, "{family:?}: {answer}");
    }
}

#[test]
fn streams_say_the_same() {
    let world = World::start();
    for family in Family::ALL {
        let tool = json!({"type": "function", "name": "weather", "parameters": parameters()});
        let body = json!({"model": family.name(), "input": CALL, "tools": [tool], "stream": true,
            "reasoning": {"effort": "high"}});
        let stream = world.raw("/v1/responses", &body);
        let events: Vec<Value> = stream
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .filter_map(|data| serde_json::from_str(data).ok())
            .collect();
        let joined = |kind: &str| -> String {
            let deltas =
                events.iter().filter(|event| event["type"] == kind).map(|event| event["delta"].as_str().unwrap());
            deltas.collect()
        };
        let (thinks, _) = expected(family, true);
        assert_eq!(joined("response.reasoning_text.delta"), if thinks { THOUGHT } else { "" }, "{family:?}");
        let arguments: Value = serde_json::from_str(&joined("response.function_call_arguments.delta")).unwrap();
        assert_eq!(arguments, json!({"city": "12", "days": 3}), "{family:?}");
        assert_eq!(events.last().unwrap()["type"], "response.completed", "{family:?}");
    }
}
