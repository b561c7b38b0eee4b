//! What is told of requests outside: spans and log lines with numbers and without words.
//!
//! Subscribers and variables are of a process, so a process of its own serves here and exports to a receiver.

use std::process::{Command, Stdio};

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use hyper::Method;
use serde_json::{Value, json};
use server::telemetry::{LogFormat, TelemetryOptions, init};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::client::{Socket, text};
use crate::support::TestServer;

const CHILD: &str = "FLINT_TEST_SERVING_CHILD";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Not a test by itself: what the other runs with variables set.
#[test]
fn child_that_serves() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let options = TelemetryOptions { format: LogFormat::Json, level: Some("info".to_owned()) };
    let telemetry = init(&options).unwrap();
    runtime.block_on(async {
        let server = TestServer::start().await;
        let mut http = server.http().await;
        let asked = json!({"input": "say whisper"}).to_string();
        http.ask(Method::POST, "/v1/responses", &[("traceparent", PARENT)], asked.as_bytes()).await.ok();
        let chat = json!({"messages": [{"role": "user", "content": "say whisper"}], "stream": true});
        assert_eq!(http.post("/v1/chat/completions", &chat).await.status, 200);
        http.create(json!({"input": "say whisper", "model": "whisper"})).await.error(404);
        let mut socket = Socket::try_connect(&server.address, &[("traceparent", PARENT)]).await.unwrap();
        socket.create(json!({"input": "say whisper", "stream_id": "side"})).await;
        assert_eq!(text(&socket.ended(Some("side")).await), "whisper");
        drop((http, socket));
        server.finish().await;
    });
    drop(runtime);
    telemetry.shutdown();
}

/// Runs the child to its end; gives what was exported and what it logged.
async fn served() -> (Vec<Value>, String) {
    async fn take(State(sender): State<UnboundedSender<Value>>, body: axum::body::Bytes) -> &'static str {
        sender.send(serde_json::from_slice(&body).unwrap()).unwrap();
        "{}"
    }
    let (sender, mut posted) = unbounded_channel();
    let router = Router::new().route("/v1/traces", post(take)).with_state(sender);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let output = tokio::task::spawn_blocking(move || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["telemetry::child_that_serves", "--exact", "--nocapture"]).env(CHILD, "1");
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("OTEL_")) {
            command.env_remove(name);
        }
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", address).stdout(Stdio::null()).output().unwrap()
    });
    let output = output.await.unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{log}");
    let mut spans = Vec::new();
    while let Ok(batch) = posted.try_recv() {
        for scope in batch["resourceSpans"][0]["scopeSpans"].as_array().unwrap() {
            spans.extend(scope["spans"].as_array().unwrap().iter().cloned());
        }
    }
    (spans, log)
}

fn attribute<'a>(span: &'a Value, key: &str) -> &'a Value {
    let found = span["attributes"].as_array().unwrap().iter().find(|attribute| attribute["key"] == key);
    found.map_or(&Value::Null, |attribute| attribute["value"].as_object().unwrap().values().next().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_response_is_a_span_and_a_line_with_numbers_and_no_words() {
    let (spans, log) = served().await;
    let find = |transport: &str| {
        let fits = |span: &&Value| attribute(span, "transport") == transport;
        spans.iter().find(fits).unwrap_or_else(|| panic!("no {transport} in {spans:?}"))
    };
    for (transport, route) in
        [("http", json!("/v1/responses")), ("sse", json!("/v1/chat/completions")), ("websocket", json!(null))]
    {
        let span = find(transport);
        assert_eq!(span["name"], "request");
        assert_eq!(*attribute(span, "route"), route);
        assert_eq!(*attribute(span, "model"), "actor");
        assert_eq!(*attribute(span, "finish"), "stop");
        let number = |key: &str| match attribute(span, key) {
            Value::String(text) => text.parse::<f64>().unwrap(),
            other => other.as_f64().unwrap_or_else(|| panic!("{key} of {span}")),
        };
        assert_eq!((number("status"), number("output_tokens")), (200.0, 8.0));
        assert!(number("prompt_tokens") > number("cached_tokens"), "{span}");
        assert!(number("first_token_ms") > 0.0 && number("total_ms") >= number("first_token_ms"), "{span}");
        assert_eq!(span["traceId"] == TRACE, transport != "sse", "{span}");
        let id = attribute(span, "id").as_str().unwrap();
        let line = log.lines().find(|line| line.contains(id)).unwrap_or_else(|| panic!("no {id} in {log}"));
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!((&line["level"], &line["message"]), (&json!("INFO"), &json!("answer over")));
        assert_eq!((&line["span"]["finish"], &line["span"]["output_tokens"]), (&json!("stop"), &json!(8)));
        assert_eq!(line["span"]["transport"], transport);
    }
    assert_eq!(*attribute(find("websocket"), "lane"), "side");
    let refused =
        spans.iter().find(|span| ["404", "404.0"].contains(&attribute(span, "status").to_string().trim_matches('"')));
    assert!(refused.is_some(), "{spans:?}");
    assert_eq!(log.lines().filter(|line| line.contains("answer over")).count(), 3, "{log}");
    for told in [log, json!(spans).to_string()] {
        assert!(!told.contains("whisper"), "{told}");
    }
}
