//! `flint serve` with a real model, over real sockets: predictions on every transport.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{flint, pull_small};

/// A server of its own; killed when dropped.
pub struct Served {
    child: Child,
    port: u16,
    _state: tempfile::TempDir,
}

impl Served {
    pub fn start() -> Self {
        pull_small();
        let state = tempfile::tempdir().unwrap();
        let port_file = state.path().join("port");
        let mut command = flint(&["serve", "--offline", "--port", "0", "--log-level", "warn", "--no-socket"]);
        command.args(["--model", "smollm2-135m", "--state"]).arg(state.path()).arg("--port-file").arg(&port_file);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut served = Self { child, port: 0, _state: state };
        let begun = Instant::now();
        while served.port == 0 {
            assert!(begun.elapsed() < Duration::from_secs(120), "flint serve did not begin to listen");
            assert_eq!(served.child.try_wait().unwrap(), None, "flint serve ended");
            let text = std::fs::read_to_string(&port_file).unwrap_or_default();
            served.port = text.parse().unwrap_or(0);
            std::thread::sleep(Duration::from_millis(20));
        }
        served
    }

    /// The body that answers a request.
    pub fn ask(&self, path: &str, body: Option<&Value>) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let method = if body.is_some() { "POST" } else { "GET" };
        let body = body.map(Value::to_string).unwrap_or_default();
        let head = format!("{method} {path} HTTP/1.0\r\nhost: 127.0.0.1:{}\r\n", self.port);
        write!(stream, "{head}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.0 200") || head.starts_with("HTTP/1.1 200"), "{text}");
        body.to_owned()
    }

    fn json(&self, path: &str, body: Option<&Value>) -> Value {
        serde_json::from_str(&self.ask(path, body)).unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const QUESTION: &str = "Write a short story about a fox who learns to read, in plain words.";

/// An answer sent back as the prediction of itself is accepted nearly whole, says the same, and is counted everywhere.
#[test]
fn predictions_are_accepted_and_counted() {
    let served = Served::start();
    let chat = |more: &Value| {
        let mut body =
            json!({"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 160, "model": "smollm2-135m"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        served.json("/v1/chat/completions", Some(&body))
    };
    let plain = chat(&json!({}));
    let text = plain["choices"][0]["message"]["content"].clone();
    let details = |answer: &Value, kind: &str| answer["usage"][kind].clone();
    let plain_details = details(&plain, "completion_tokens_details");
    assert_eq!(plain_details["accepted_prediction_tokens"], 0, "{plain}");

    let prediction = json!({"type": "content", "content": text});
    let drafted = chat(&json!({"prediction": prediction}));
    assert_eq!(drafted["choices"][0]["message"]["content"], text);
    let accepted = details(&drafted, "completion_tokens_details")["accepted_prediction_tokens"].as_u64().unwrap();
    assert!(accepted > 80, "{drafted}");
    let figures = &drafted["flint"]["timings"]["drafters"]["prediction"];
    assert_eq!(figures["accepted_tokens"], accepted, "{drafted}");
    assert!(figures["acceptance"].as_f64().unwrap() > 0.8, "{figures}");

    // Sampling with a seed is exact as well.
    let sampled = json!({"temperature": 0.8, "seed": 7});
    let plain = chat(&sampled)["choices"][0]["message"]["content"].clone();
    let prediction_of = json!({"type": "content", "content": plain});
    let drafted = chat(&json!({"temperature": 0.8, "seed": 7, "prediction": prediction_of}));
    assert_eq!(drafted["choices"][0]["message"]["content"], plain);
    assert!(details(&drafted, "completion_tokens_details")["accepted_prediction_tokens"].as_u64().unwrap() > 40);

    let body = json!({"input": QUESTION, "max_output_tokens": 160, "prediction": prediction, "stream": true});
    let stream = served.ask("/v1/responses", Some(&body));
    let last = stream.lines().filter_map(|line| line.strip_prefix("data: ")).rfind(|line| line.contains("\"usage\""));
    let last: Value = serde_json::from_str(last.unwrap()).unwrap();
    let usage = &last["response"]["usage"]["output_tokens_details"];
    assert!(usage["accepted_prediction_tokens"].as_u64().unwrap() > 80, "{last}");

    let status = served.json("/status", None);
    let drafters = &status["models"][0]["drafting"]["drafters"];
    assert!(drafters["prediction"]["accepted_tokens"].as_u64().unwrap() >= accepted, "{status}");
    let metrics = served.ask("/metrics", None);
    let name = "vllm:spec_decode_num_accepted_tokens_total{";
    let line = metrics.lines().find(|line| line.starts_with(name) && line.contains("drafter=\"prediction\""));
    let counted: f64 = line.unwrap().rsplit(' ').next().unwrap().parse().unwrap();
    assert!(counted >= accepted as f64, "{line:?}");
}
