//! Log lines as written, and a process of its own that exports to a receiver here: variables are of a process.
#![allow(clippy::disallowed_methods, reason = "a test starts itself again")]

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue};
use axum::routing::post;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{LogFormat, TelemetryError, TelemetryOptions, continue_trace, init, subscriber};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn logged(format: LogFormat, level: &str) -> String {
    let lines = Lines::default();
    let writer = lines.clone();
    let options = TelemetryOptions { format, level: Some(level.to_owned()) };
    let subscriber = subscriber(&options, move || writer.clone(), None).unwrap();
    tracing::subscriber::with_default(subscriber, || {
        let _entered = tracing::info_span!("response", id = "resp_1").entered();
        tracing::info!(tokens = 12, "finished");
        tracing::debug!("detail");
    });
    String::from_utf8(lines.0.lock().unwrap().clone()).unwrap()
}

#[test]
fn human_lines() {
    let text = logged(LogFormat::Human, "info");
    assert_eq!(text.lines().count(), 1, "{text}");
    for part in ["INFO", "finished", "tokens=12", "resp_1"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    assert!(!text.contains('\u{1b}'));
}

#[test]
fn json_lines() {
    let text = logged(LogFormat::Json, "debug");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0]["level"], "INFO");
    assert_eq!(lines[0]["message"], "finished");
    assert_eq!(lines[0]["tokens"], 12);
    assert_eq!(lines[0]["span"], json!({ "name": "response", "id": "resp_1" }));
    assert_eq!(lines[1]["message"], "detail");
}

#[test]
fn levels() {
    assert_eq!(logged(LogFormat::Human, "warn"), "");
    assert_eq!(logged(LogFormat::Human, "warn,server=debug").lines().count(), 2);
    let options = TelemetryOptions { level: Some("server=loud".to_owned()), ..TelemetryOptions::default() };
    let error = subscriber(&options, std::io::stderr, None).err().unwrap();
    assert!(matches!(error, TelemetryError::Level { .. }), "{error}");
}

const CHILD: &str = "FLINT_TEST_TELEMETRY_CHILD";
const PARENT_TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

/// Not a test by itself: what the others run with variables set.
#[test]
fn child_that_traces() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let options = TelemetryOptions { level: Some("warn".to_owned()), ..TelemetryOptions::default() };
    // Set up inside the server's runtime and shut down after it.
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let telemetry = runtime.block_on(async { init(&options).unwrap() });
    drop(runtime);
    assert!(matches!(init(&TelemetryOptions::default()), Err(TelemetryError::AlreadySet)));
    {
        let outer = tracing::info_span!("response", model = "toy", tokens = 12);
        let mut headers = HeaderMap::new();
        let parent = format!("00-{PARENT_TRACE}-b7ad6b7169203331-01");
        headers.insert("traceparent", HeaderValue::from_str(&parent).unwrap());
        continue_trace(&outer, &headers);
        let _outer = outer.entered();
        let _inner = tracing::info_span!("prefill").entered();
        let _hidden = tracing::debug_span!("not exported").entered();
    }
    telemetry.shutdown();
}

/// Runs the child to its end and gives what it wrote to stderr.
fn trace_with(variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["telemetry::tests::child_that_traces", "--exact", "--nocapture"]).env(CHILD, "1");
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("OTEL_")) {
        command.env_remove(name);
    }
    let output = command.envs(variables.iter().copied()).stdout(Stdio::null()).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{errors}");
    errors
}

/// The same beside a collector on this runtime.
async fn traced(variables: &[(&str, &str)]) -> String {
    let variables: Vec<_> = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    tokio::task::spawn_blocking(move || {
        let variables: Vec<_> = variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        trace_with(&variables)
    })
    .await
    .unwrap()
}

type Posted = (String, HeaderMap, Value);

/// A collector on a port of its own, and what it is sent.
async fn collector() -> (String, UnboundedReceiver<Posted>) {
    async fn take(
        State(sender): State<UnboundedSender<Posted>>,
        uri: axum::http::Uri,
        headers: HeaderMap,
        body: axum::body::Bytes,
    ) -> &'static str {
        sender.send((uri.to_string(), headers, serde_json::from_slice(&body).unwrap())).unwrap();
        "{}"
    }
    let (sender, receiver) = unbounded_channel();
    let router = Router::new().route("/{*path}", post(take)).with_state(sender);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (address, receiver)
}

fn attribute(attributes: &Value, key: &str) -> Value {
    let found = attributes.as_array().unwrap().iter().find(|attribute| attribute["key"] == key);
    found.map_or(Value::Null, |attribute| attribute["value"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_are_posted_as_otlp_json() {
    let (address, mut posted) = collector().await;
    let variables =
        [("OTEL_EXPORTER_OTLP_ENDPOINT", address.as_str()), ("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=mine")];
    assert_eq!(traced(&variables).await, "");
    let (path, headers, body) = posted.recv().await.unwrap();
    assert_eq!(path, "/v1/traces");
    assert_eq!(headers["content-type"], "application/json");
    assert_eq!(headers["x-tenant"], "mine");
    assert_eq!(format!("http://{}", headers["host"].to_str().unwrap()), address);

    let resource = &body["resourceSpans"][0]["resource"]["attributes"];
    assert_eq!(attribute(resource, "service.name"), json!({ "stringValue": "flint" }));
    let spans = body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
    assert_eq!(spans.len(), 2, "{spans:?}");
    let named = |name: &str| spans.iter().find(|span| span["name"] == name).unwrap();
    let (outer, inner) = (named("response"), named("prefill"));
    assert_eq!(outer["traceId"], PARENT_TRACE);
    assert_eq!(outer["parentSpanId"], "b7ad6b7169203331");
    assert_eq!(inner["traceId"], PARENT_TRACE);
    assert_eq!(inner["parentSpanId"], outer["spanId"]);
    assert_eq!(attribute(&outer["attributes"], "model"), json!({ "stringValue": "toy" }));
    assert!(outer["startTimeUnixNano"].as_str().unwrap() <= outer["endTimeUnixNano"].as_str().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_standard_variables_are_honoured() {
    let (address, mut posted) = collector().await;
    let ours = [
        (vec![("OTEL_SERVICE_NAME", "mine")], "mine"),
        (vec![("OTEL_RESOURCE_ATTRIBUTES", "service.name=theirs,team=core")], "theirs"),
        (vec![("OTEL_RESOURCE_ATTRIBUTES", "service.name=theirs,team=core"), ("OTEL_SERVICE_NAME", "mine")], "mine"),
    ];
    let endpoint = format!("{address}/custom");
    for (mut variables, name) in ours {
        let has_team = variables[0].0 == "OTEL_RESOURCE_ATTRIBUTES";
        variables.push(("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &endpoint));
        variables.push(("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1"));
        assert_eq!(traced(&variables).await, "");
        let (path, _, body) = posted.recv().await.unwrap();
        assert_eq!(path, "/custom");
        let resource = &body["resourceSpans"][0]["resource"]["attributes"];
        assert_eq!(attribute(resource, "service.name"), json!({ "stringValue": name }));
        assert_eq!(attribute(resource, "team") == json!({ "stringValue": "core" }), has_team);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_posted_when_switched_off() {
    let (address, mut posted) = collector().await;
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", address.as_str());
    for variables in [
        vec![],
        vec![("OTEL_EXPORTER_OTLP_ENDPOINT", "")],
        vec![endpoint, ("OTEL_SDK_DISABLED", "true")],
        vec![endpoint, ("OTEL_TRACES_EXPORTER", "none")],
        vec![endpoint, ("OTEL_TRACES_SAMPLER", "always_off")],
    ] {
        assert_eq!(traced(&variables).await, "");
        assert!(posted.try_recv().is_err());
    }
}

#[test]
fn what_cannot_be_done_is_said() {
    let errors = trace_with(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "https://user:secret@collector.example/x")]);
    assert!(errors.contains("https://collector.example is not http://"), "{errors}");
    assert!(!errors.contains("secret"), "{errors}");
    let errors = trace_with(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://not a host")]);
    assert!(errors.contains("no traces are exported: invalid"), "{errors}");
    let errors =
        trace_with(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]);
    assert!(errors.contains("grpc"), "{errors}");
    // Port 9 of loopback: nobody listens there.
    let errors = trace_with(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")]);
    assert_eq!(errors.matches("traces cannot be exported").count(), 1, "{errors}");
}
