//! Who is let in, and what can be seen from outside.

use std::collections::HashMap;

use hyper::Method;
use serde_json::json;
use server::guard::Keys;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use crate::client::{Http, Socket, text};
use crate::support::{DEADLINE, Setup, TestServer, socket_path, soon};

fn keys() -> Option<Keys> {
    use std::os::unix::fs::PermissionsExt;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "sesame\n").unwrap();
    std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o600)).unwrap();
    Some(Keys::load(file.path()).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_key_only_health_answers() {
    let server = TestServer::with(Setup { keys: keys(), ..Setup::default() }).await;
    let mut http = server.http().await;
    assert_eq!(http.get("/health").await.ok()["status"], "ok");
    for path in ["/v1/models", "/metrics", "/v1/responses/resp_1", "/v1/responses"] {
        assert_eq!(http.get(path).await.error(401)["code"], "invalid_api_key");
    }
    // Anthropic's clients look for their own words.
    for path in ["/v1/messages", "/v1/messages/count_tokens"] {
        let answer = http.post(path, &json!({})).await;
        assert_eq!(answer.status, 401);
        let body = answer.json();
        assert_eq!(
            (&body["type"], &body["error"]["type"]),
            (&json!("error"), &json!("authentication_error")),
            "{body}"
        );
        assert!(answer.header("request-id").is_some());
    }
    let ask = json!({"input": "say in"}).to_string();
    for wrong in ["Bearer wrong", "Bearer ", "sesame", "Basic sesame"] {
        http.ask(Method::POST, "/v1/responses", &[("authorization", wrong)], ask.as_bytes()).await.error(401);
    }
    for right in [("authorization", "Bearer sesame"), ("authorization", "bearer sesame"), ("x-api-key", "sesame")] {
        let answer = http.ask(Method::POST, "/v1/responses", &[right], ask.as_bytes()).await;
        assert_eq!(text(&answer.ok()), "in");
    }
    assert!(Socket::try_connect(&server.address, &[]).await.is_err());
    let mut socket = Socket::try_connect(&server.address, &[("authorization", "Bearer sesame")]).await.unwrap();
    assert_eq!(text(&socket.say("say in").await), "in");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_web_page_is_not_let_in() {
    let origins = vec!["http://localhost:3000".to_owned()];
    let server = TestServer::with(Setup { origins, ..Setup::default() }).await;
    let mut http = server.http().await;
    let ask = json!({"input": "say in"}).to_string();
    for (name, value) in [("host", "evil.example"), ("origin", "https://evil.example"), ("origin", "null")] {
        http.ask(Method::POST, "/v1/responses", &[(name, value)], ask.as_bytes()).await.error(403);
        http.ask(Method::GET, "/health", &[(name, value)], b"").await.error(403);
    }
    let origin = ("origin", "http://localhost:3000");
    let answer = http.ask(Method::POST, "/v1/responses", &[origin], ask.as_bytes()).await;
    assert_eq!(text(&answer.ok()), "in");
    assert_eq!(answer.header("access-control-allow-origin"), Some("http://localhost:3000"));
    let preflight = http.ask(Method::OPTIONS, "/v1/responses", &[origin], b"").await;
    assert_eq!(preflight.status, 204);
    assert!(Socket::try_connect(&server.address, &[("origin", "https://evil.example")]).await.is_err());
    assert!(Socket::try_connect(&server.address, &[]).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_unix_socket_serves_the_same_and_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let server = TestServer::with(Setup { unix: true, ..Setup::default() }).await;
    let path = socket_path(server.directory.path());
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::metadata(path.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
    let mut http = Http::over(UnixStream::connect(&path).await.unwrap(), "localhost").await;
    assert_eq!(text(&http.say("say hello").await), "hello");
    drop(http);
    let directory = server.finish().await;
    assert!(!socket_path(directory.path()).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_connections_are_told_so() {
    let mut setup = Setup::default();
    setup.limits.connections = 2;
    let server = TestServer::with(setup).await;
    // A WebSocket keeps the place it came in by.
    let mut socket = server.socket().await;
    assert_eq!(text(&socket.say("say one").await), "one");
    let mut first = server.http().await;
    first.get("/health").await.ok();
    let refusal = greeting(&server.address).await;
    assert!(refusal.starts_with("HTTP/1.1 503 ") && refusal.contains("retry-after: 1\r\n"), "{refusal}");
    assert!(refusal.contains("too_many_connections"), "{refusal}");
    // A client that asks first and sends a body gets an answer, not a broken connection.
    let mut third = server.http().await;
    let answer = third.create(json!({"input": "x".repeat(100_000)})).await;
    assert_eq!(answer.error(503)["code"], "too_many_connections");
    assert_eq!(answer.header("retry-after"), Some("1"));
    drop(socket);
    let begun = std::time::Instant::now();
    while !greeting(&server.address).await.is_empty() {
        assert!(begun.elapsed() < DEADLINE, "the place is never given back");
    }
}

/// What a server says before it is asked anything: nothing, unless there is no place.
async fn greeting(address: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut said = String::new();
    soon("the server closes", stream.read_to_string(&mut said)).await.unwrap();
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn models_are_listed_in_both_shapes() {
    let server = TestServer::start().await;
    let mut http = server.http().await;
    let list = http.get("/v1/models?client_version=0.166.0").await.ok();
    assert_eq!(list["object"], "list");
    assert_eq!((&list["data"][0]["id"], &list["data"][1]["id"]), (&json!("actor"), &json!("second")));
    let needed = [
        "slug",
        "display_name",
        "supported_reasoning_levels",
        "shell_type",
        "visibility",
        "supported_in_api",
        "priority",
        "support_verbosity",
        "truncation_policy",
        "experimental_supported_tools",
        "base_instructions",
    ];
    for name in needed {
        assert!(!list["models"][0][name].is_null(), "{name}");
    }
    assert_eq!(list["models"][0]["context_window"], 2048);
}

/// Samples by their name and labels as written.
fn samples(page: &str) -> HashMap<String, f64> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').expect("a name and a value");
            (name.to_owned(), value.parse().unwrap_or_else(|_| panic!("no number: {line}")))
        })
        .collect()
}

/// How often requests were refused so far, by reason; reasons that never came are left out.
async fn refusals(http: &mut Http) -> Vec<(String, f64)> {
    let page = http.ask(Method::GET, "/metrics", &[("x-api-key", "sesame")], b"").await;
    let mut counts: Vec<(String, f64)> = samples(str::from_utf8(&page.body).unwrap())
        .into_iter()
        .filter(|(_, count)| *count > 0.0)
        .filter_map(|(name, count)| {
            let reason = name.strip_prefix("flint_requests_rejected_total{reason=\"")?.strip_suffix("\"}")?;
            Some((reason.to_owned(), count))
        })
        .collect();
    counts.sort_by(|a, b| a.0.cmp(&b.0));
    counts
}

type Headers<'a> = &'a [(&'a str, &'a str)];

#[tokio::test(flavor = "multi_thread")]
async fn every_refusal_is_counted_once_by_its_reason() {
    let mut setup = Setup { keys: keys(), ..Setup::default() };
    setup.limits.body_bytes = 10_000;
    setup.limits.lanes_per_socket = 1;
    let server = TestServer::with(setup).await;
    let mut http = server.http().await;
    let key = ("x-api-key", "sesame");
    let long = json!({"input": "x".repeat(5000)}).to_string();
    let streamed = json!({"input": "x".repeat(5000), "stream": true}).to_string();
    let chat = json!({"messages": [{"role": "user", "content": "x".repeat(5000)}]}).to_string();
    let huge = "x".repeat(20_000);
    let cases: &[(&str, &str, Headers, &str)] = &[
        ("key", "/v1/responses", &[], "{}"),
        ("host", "/v1/responses", &[key, ("host", "evil.example")], "{}"),
        ("origin", "/v1/responses", &[key, ("origin", "https://evil.example")], "{}"),
        ("body_size", "/v1/responses", &[key], &huge),
        ("invalid", "/v1/responses", &[key], "{}"),
        ("invalid", "/v1/messages", &[key], "{}"),
        ("model", "/v1/responses", &[key], r#"{"input": "x", "model": "none"}"#),
        ("context_length", "/v1/responses", &[key], &long),
        ("context_length", "/v1/responses", &[key], &streamed),
        ("context_length", "/v1/chat/completions", &[key], &chat),
    ];
    let mut expected: Vec<(String, f64)> = Vec::new();
    let mut count = |reason: &str| match expected.iter_mut().find(|(known, _)| known == reason) {
        Some((_, count)) => *count += 1.0,
        None => expected.push((reason.to_owned(), 1.0)),
    };
    for (reason, path, headers, body) in cases {
        // What is refused before its body is read may close the connection.
        let mut http = server.http().await;
        http.ask(Method::POST, path, headers, body.as_bytes()).await;
        count(reason);
    }
    let mut socket = Socket::try_connect(&server.address, &[key]).await.unwrap();
    let messages = [
        ("invalid", json!({"type": "response.create", "input": 3})),
        ("model", json!({"type": "response.create", "input": "x", "model": "none"})),
    ];
    for (reason, message) in messages {
        socket.send(message).await;
        socket.find(None, "error").await;
        count(reason);
    }
    socket.create(json!({"input": "say x", "stream_id": "a"})).await;
    socket.ended(Some("a")).await;
    socket.create(json!({"input": "say x", "stream_id": "b"})).await;
    socket.find(Some("b"), "error").await;
    count("socket_limit");
    expected.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(refusals(&mut http).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_what_happened() {
    let server = TestServer::start().await;
    let mut http = server.http().await;
    let response = http.say("say hello").await;
    let mut socket = server.socket().await;
    socket.say("say hello").await;
    let page = http.get("/metrics").await;
    assert!(page.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"));
    let now = samples(str::from_utf8(&page.body).unwrap());
    let sum =
        |name: &str| now.iter().filter(|(key, _)| key.split('{').next() == Some(name)).map(|(_, n)| n).sum::<f64>();
    let input = response["usage"]["input_tokens"].as_f64().unwrap();
    assert_eq!(sum("vllm:prompt_tokens_total"), 2.0 * input);
    assert_eq!(sum("vllm:generation_tokens_total"), 12.0);
    assert_eq!(sum("vllm:request_success_total"), 2.0);
    assert_eq!(sum("vllm:num_requests_running"), 0.0);
    assert_eq!(sum("vllm:time_to_first_token_seconds_count"), 2.0);
}
