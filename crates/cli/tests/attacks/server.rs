//! One client against another: foreign prompts, responses, caches; and one against the server.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Message, WebSocket, client};

use crate::serving::{HONEST, Server, ask, files, model};
use crate::support::{Home, User, binary, output, printed, users};

const ALICE: &str = "key-of-alice";
const BOB: &str = "key-of-bob";
/// What Alice's prompts hold.
const SECRET: &str = "the vault opens with xK93-quill-77";
/// How long anything may take before it counts as hanging.
const LIMIT: Duration = Duration::from_secs(60);

/// A server that knows Alice and Bob.
fn for_two(user: User) -> Server {
    let home = Home::new(user);
    let honest = model(&home, "honest.gguf", HONEST);
    let keys = home.write("keys", format!("{ALICE} # alice\n{BOB} # bob\n"));
    std::fs::set_permissions(&keys, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let keys = keys.display().to_string();
    Server::start(home, &[honest], &["--no-socket", "--api-key-file", &keys])
}

fn socket(port: u16, key: &str) -> WebSocket<TcpStream> {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut request = format!("ws://127.0.0.1:{port}/v1/responses").into_client_request().unwrap();
    request.headers_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
    client(request, stream).unwrap().0
}

/// Sends an event and waits for the one that ends it.
fn say(socket: &mut WebSocket<TcpStream>, event: &Value) -> Value {
    socket.send(Message::text(event.to_string())).unwrap();
    loop {
        let Message::Text(text) = socket.read().unwrap() else { continue };
        let event: Value = serde_json::from_str(&text).unwrap();
        let kind = event["type"].as_str().unwrap_or_default();
        if kind == "error" || ["completed", "incomplete", "failed"].iter().any(|end| kind.ends_with(end)) {
            return event;
        }
    }
}

/// Everything Alice does with her secret. The ids of what she has on the server.
fn alice_works(port: u16) -> Vec<String> {
    let create = |body: Value| -> Value {
        let (status, body) = ask(port, "POST", "/v1/responses", Some(ALICE), Some(&body));
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    };
    let mut ids: Vec<String> = Vec::new();
    let mut keep = |response: &Value| ids.push(response["id"].as_str().unwrap().to_owned());
    create(json!({"input": SECRET, "max_output_tokens": 4, "store": false}));
    let stored = create(json!({"input": SECRET, "max_output_tokens": 4}));
    keep(&stored);
    let next = json!({"input": "and then?", "previous_response_id": stored["id"], "max_output_tokens": 4});
    keep(&create(next));
    keep(&create(json!({"input": SECRET, "max_output_tokens": 400, "background": true})));
    let mut socket = socket(port, ALICE);
    let event = json!({"type": "response.create", "input": SECRET, "max_output_tokens": 4, "store": false});
    keep(&say(&mut socket, &event)["response"]);
    for (path, body) in [
        ("/v1/chat/completions", json!({"messages": [{"role": "user", "content": SECRET}], "max_tokens": 4})),
        ("/v1/messages", json!({"messages": [{"role": "user", "content": SECRET}], "max_tokens": 4})),
        ("/v1/completions", json!({"prompt": SECRET, "max_tokens": 4})),
        ("/infill", json!({"input_prefix": SECRET, "input_suffix": "", "n_predict": 4})),
    ] {
        let (status, answer) = ask(port, "POST", path, Some(ALICE), Some(&body));
        assert_eq!(status, 200, "{path}: {answer}");
    }
    // Her connection stays open: what is parked on it is there while Bob looks.
    std::mem::forget(socket);
    ids
}

/// An answer without what differs between two runs of the same request: times, and ids made anew.
fn comparable(text: &str) -> String {
    fn strip(value: &mut Value) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(strip),
            Value::Object(fields) => {
                let made = |name: &str| name == "id" || name.ends_with("_id") && name != "previous_response_id";
                fields
                    .retain(|name, _| !made(name) && !name.ends_with("_at") && name != "created" && name != "timings");
                fields.values_mut().for_each(strip);
            }
            _ => {}
        }
    }
    match serde_json::from_str::<Value>(text) {
        Ok(mut value) => {
            strip(&mut value);
            value.to_string()
        }
        Err(_) => text.to_owned(),
    }
}

/// Bob's requests: guesses at Alice's prompt wherever a prompt can be sent, and her ids wherever one can be named.
fn probes(ids: &[String]) -> Vec<(String, String, Option<Value>)> {
    let mut all = Vec::new();
    let mut probe =
        |method: &str, path: &str, body: Option<Value>| all.push((method.to_owned(), path.to_owned(), body));
    // He knows all but the end, and tries what comes next, as the attack on `cache_miss` did.
    let guesses: Vec<String> = (0..SECRET.len())
        .flat_map(|known| ["", "x", "K", "9", "the"].map(|next| format!("{}{next}", &SECRET[..known])))
        .chain([SECRET.to_owned(), format!("{SECRET}?"), SECRET.to_uppercase()])
        .collect();
    for (number, guess) in guesses.iter().enumerate() {
        let path = ["/v1/responses", "/v1/chat/completions", "/v1/messages", "/v1/completions", "/infill"];
        let body = [
            json!({"input": guess, "max_output_tokens": 1, "store": number % 2 == 0}),
            json!({"messages": [{"role": "user", "content": guess}], "max_tokens": 1}),
            json!({"messages": [{"role": "user", "content": guess}], "max_tokens": 1}),
            json!({"prompt": guess, "max_tokens": 1, "logprobs": 1}),
            json!({"input_prefix": guess, "input_suffix": "", "n_predict": 1}),
        ];
        for (path, body) in path.iter().zip(body) {
            probe("POST", path, Some(body));
        }
    }
    let spellings = |id: &String| {
        let shorter = id[..id.len() - 1].to_owned();
        [id.clone(), shorter, id.to_uppercase(), format!("{id}%00"), format!("./{id}"), format!("{id}/")]
    };
    for id in ids.iter().flat_map(spellings) {
        probe("GET", &format!("/v1/responses/{id}"), None);
        probe("GET", &format!("/v1/responses/{id}?stream=true"), None);
        probe("GET", &format!("/v1/responses/{id}/input_items"), None);
        probe("POST", &format!("/v1/responses/{id}/cancel"), None);
        probe("DELETE", &format!("/v1/responses/{id}"), None);
        let goes_on = json!({"input": "what did I say?", "previous_response_id": id, "max_output_tokens": 1});
        probe("POST", "/v1/responses", Some(goes_on.clone()));
        let mut streamed = goes_on.clone();
        streamed["stream"] = json!(true);
        probe("POST", "/v1/responses", Some(streamed));
        probe("POST", "/v1/responses/compact", Some(json!({"previous_response_id": id})));
        for more in [json!({"background": true}), json!({"store": false}), json!({"generate": false})] {
            let mut body = goes_on.clone();
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            probe("POST", "/v1/responses", Some(body));
        }
    }
    all
}

/// Bob's events on a WebSocket.
fn events(ids: &[String]) -> Vec<Value> {
    let of = |id: &String| {
        [
            json!({"type": "response.create", "input": "more", "previous_response_id": id, "max_output_tokens": 1}),
            json!({"type": "response.steer", "response_id": id, "input": "say it"}),
            json!({"type": "response.steer", "previous_response_id": id, "input": "say it"}),
            json!({"type": "response.cancel", "response_id": id}),
        ]
    };
    let guess = |text: &str| json!({"type": "response.create", "input": text, "max_output_tokens": 1, "store": false});
    ids.iter().flat_map(of).chain([guess(SECRET), guess(&SECRET[..20]), guess("the")]).collect()
}

/// Everything Bob is told, one line for each of his requests.
fn told_to_bob(server: &Server, ids: &[String]) -> Vec<String> {
    let mut told: Vec<String> = Vec::new();
    for (method, path, body) in probes(ids) {
        let (status, answer) = ask(server.port, &method, &path, Some(BOB), body.as_ref());
        assert!((200..500).contains(&status), "{method} {path}: {status} {answer}");
        told.push(format!("{method} {path} {}: {status} {}", body.unwrap_or_default(), comparable(&answer)));
    }
    let mut socket = socket(server.port, BOB);
    for event in events(ids) {
        let answer = say(&mut socket, &event).to_string();
        told.push(format!("{event}: {}", comparable(&answer)));
    }
    told
}

/// C2, M8: with a thousand requests Bob learns no more than on a server where Alice never was.
#[test]
fn another_key_finds_what_it_would_find_if_nobody_else_were_there() {
    for user in users() {
        let (server, without) = (for_two(user), for_two(user));
        let ids = alice_works(server.port);
        let (told, control) = (told_to_bob(&server, &ids), told_to_bob(&without, &ids));
        assert!(told.len() >= 1000, "{}", told.len());
        for (told, control) in told.iter().zip(&control) {
            assert_eq!(told, control);
        }
        // His own cache works, so equal answers are not equal because nothing is ever said.
        assert!(told.iter().any(|line| line.contains("\"cached_tokens\":") && !line.contains("\"cached_tokens\":0")));
        // What he named is still there, and Alice's.
        for id in &ids[..3] {
            let (status, body) = ask(server.port, "GET", &format!("/v1/responses/{id}"), Some(ALICE), None);
            let body: Value = serde_json::from_str(&body).unwrap();
            assert_eq!((status, &body["id"]), (200, &json!(id)), "{body}");
            assert!(!["cancelled", "failed"].contains(&body["status"].as_str().unwrap()), "{body}");
        }
        let (_, page) = ask(server.port, "GET", "/metrics", Some(BOB), None);
        let (_, status) = ask(server.port, "GET", "/status", Some(BOB), None);
        for text in [page, status] {
            assert!(!text.contains("quill") && ids.iter().all(|id| !text.contains(id.as_str())), "{text}");
        }
    }
}

/// C2 between users of one machine: no port, and the socket is for nobody else, wherever it lies.
#[test]
fn the_private_server_has_no_port_and_serves_its_user_alone() {
    let home = Home::new(User::Me);
    let (path, socket) = (model(&home, "honest.gguf", HONEST), home.path().join("open/flint.sock"));
    // Where everybody can reach it: the folder and the socket are opened up on purpose.
    std::fs::create_dir(socket.parent().unwrap()).unwrap();
    let models = path.display().to_string();
    let mut command = home.flint(&["serve", "--offline", "--socket-only", "--model", &models, "--socket"]);
    command.arg(&socket).arg("--state").arg(home.path().join("state"));
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    while !socket.exists() {
        assert!(begun.elapsed() < LIMIT, "flint serve did not begin to listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    let inodes: Vec<String> = std::fs::read_dir(format!("/proc/{}/fd", child.id()))
        .unwrap()
        .flatten()
        .filter_map(|entry| Some(std::fs::read_link(entry.path()).ok()?.display().to_string()))
        .filter_map(|link| Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    for table in ["tcp", "tcp6"] {
        let table = std::fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default();
        let open = table
            .lines()
            .filter_map(|line| line.split_whitespace().nth(9))
            .any(|inode| inodes.iter().any(|own| own == inode));
        assert!(!open, "a port is open");
    }
    let mode =
        |path: &Path| std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(path).unwrap().permissions()) & 0o777;
    assert_eq!(mode(&socket), 0o600);
    for opened in [&socket, socket.parent().unwrap()] {
        std::fs::set_permissions(opened, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    }
    let asks = "import socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.settimeout(30)\ns.connect(sys.argv[1])\n\
                s.sendall(b'GET /v1/models HTTP/1.0\\r\\nhost: localhost\\r\\n\\r\\n')\n\
                print(s.makefile('rb').read().decode())\n";
    for user in users() {
        let visitor = Home::new(user);
        let mut python = visitor.program(Path::new("/usr/bin/env"));
        python.args(["python3", "-I", "-c", asks]).arg(&socket);
        let said = printed(&output(python, LIMIT));
        assert_eq!(said.contains("honest"), user == User::Me, "{user:?}: {said}");
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// Low: prompts that are not stored leave nothing of theirs on the disk; those that are stored do, so the test can fail.
#[test]
fn unstored_prompts_are_not_on_the_disk() {
    for (stored, more) in [(false, vec![]), (true, vec![]), (false, vec!["--snapshot-unstored"])] {
        let home = Home::new(users()[0]);
        let honest = model(&home, "honest.gguf", HONEST);
        let more: Vec<&str> = [vec!["--no-socket"], more].concat();
        let mut server = Server::start(home, &[honest], &more);
        let body = json!({"input": SECRET.repeat(20), "max_output_tokens": 4, "store": stored});
        assert_eq!(ask(server.port, "POST", "/v1/responses", None, Some(&body)).0, 200);
        server.terminate();
        assert!(server.ends_within(LIMIT));
        let kept: Vec<_> = files(&server.state().join("kv"));
        assert_eq!(kept.is_empty(), !stored && more.len() == 1, "{stored} {more:?}: {kept:?}");
        // A token of this model is a byte: the prompt as text, and part of it as the tokens of one block.
        let wide: Vec<u8> = SECRET[..16].bytes().flat_map(|byte| u32::from(byte).to_le_bytes()).collect();
        let holds = |bytes: &[u8], text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
        let found = files(&server.state()).iter().any(|path| {
            let bytes = std::fs::read(path).unwrap_or_default();
            holds(&bytes, SECRET.as_bytes()) || holds(&bytes, &wide)
        });
        assert_eq!(found, stored || more.len() == 2, "{stored} {more:?}");
    }
}

/// Low: a pipe, a folder or a link in the place of a KV file costs what is in it, and nobody waits.
#[test]
fn what_lies_in_place_of_kv_files_is_not_waited_for() {
    let home = Home::new(users()[0]);
    let honest = model(&home, "honest.gguf", HONEST);
    let mut server = Server::start(home, std::slice::from_ref(&honest), &["--no-socket"]);
    let body = json!({"input": SECRET.repeat(20), "max_output_tokens": 4});
    let answer = |server: &Server| {
        let (status, text) = ask(server.port, "POST", "/v1/responses", None, Some(&body));
        assert_eq!(status, 200, "{text}");
        let value: Value = serde_json::from_str(&text).unwrap();
        (value["output"][0]["content"].clone(), value["usage"]["input_tokens_details"]["cached_tokens"].clone())
    };
    let (said, _) = answer(&server);
    server.terminate();
    assert!(server.ends_within(LIMIT));
    let kept = files(&server.state().join("kv"));
    assert!(!kept.is_empty());
    // The next server has looked at its files before they are replaced.
    server.restart(std::slice::from_ref(&honest), &["--no-socket"]);
    for path in &kept {
        std::fs::remove_file(path).unwrap();
        let mut mkfifo = std::process::Command::new("mkfifo");
        assert!(mkfifo.arg(path).status().unwrap().success());
    }
    assert_eq!(answer(&server), (said, json!(0)));
}

/// Low: no keys, and yet every address: an IPv4 address in the clothes of IPv6 is what it is.
#[test]
fn addresses_in_disguise_are_known() {
    let home = Home::new(users()[0]);
    let honest = model(&home, "honest.gguf", HONEST).display().to_string();
    for host in ["::ffff:0.0.0.0", "0.0.0.0", "::", "::ffff:192.0.2.1"] {
        let ran = home.run(&["serve", "--offline", "--no-socket", "--port", "0", "--model", &honest, "--host", host]);
        assert!(!ran.status.success() && printed(&ran).contains("--api-key-file"), "{host}: {}", printed(&ran));
    }
    // Loopback in disguise is loopback, and its Host is checked like any other.
    let path = home.path().join("honest.gguf");
    let server = Server::start(home, &[path], &["--no-socket", "--host", "::ffff:127.0.0.1"]);
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    stream.write_all(b"GET /v1/models HTTP/1.0\r\nhost: evil.example\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.contains(" 403 "), "{text}");
}

/// Low: a prompt that cannot fit is refused before it is tokenised, on every endpoint.
#[test]
fn prompts_that_cannot_fit_are_not_counted_to_the_end() {
    let home = Home::new(users()[0]);
    let honest = model(&home, "honest.gguf", HONEST);
    let server = Server::start(home, &[honest], &["--no-socket"]);
    let long = "word ".repeat(3 << 20);
    for (path, body) in [
        ("/v1/responses", json!({"input": long})),
        ("/v1/chat/completions", json!({"messages": [{"role": "user", "content": long}]})),
        ("/v1/messages", json!({"messages": [{"role": "user", "content": long}], "max_tokens": 4})),
        ("/v1/completions", json!({"prompt": long})),
    ] {
        let (status, text) = ask(server.port, "POST", path, None, Some(&body));
        assert!([400, 413].contains(&status), "{path}: {status}");
        assert!(text.contains("more than"), "{path}: {text}");
    }
}

/// Low: while the server closes, whoever comes is refused and does not wait.
#[test]
fn nobody_waits_for_a_server_that_closes() {
    let home = Home::new(users()[0]);
    let honest = model(&home, "honest.gguf", HONEST);
    let mut server = Server::start(home, &[honest], &["--no-socket"]);
    // Somebody whose request never ends holds it up.
    let mut held = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    let begins = "POST /v1/responses HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{";
    held.write_all(begins.as_bytes()).unwrap();
    assert_eq!(ask(server.port, "GET", "/health", None, None).0, 200);
    server.terminate();
    let begun = Instant::now();
    while server.runs() && begun.elapsed() < LIMIT {
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", server.port)) {
            stream.set_read_timeout(Some(Duration::from_secs(4))).unwrap();
            let _ = stream.write_all(b"GET /health HTTP/1.0\r\nhost: 127.0.0.1\r\n\r\n");
            if let Err(error) = stream.read_to_end(&mut Vec::new()) {
                use std::io::ErrorKind::{TimedOut, WouldBlock};
                assert!(![TimedOut, WouldBlock].contains(&error.kind()), "a connection hangs");
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(!server.runs(), "the server does not end");
    drop(held);
}

/// Low: a WebSocket that breaks the protocol is closed with the code for it.
#[test]
fn broken_frames_are_answered_with_their_code() {
    let home = Home::new(users()[0]);
    let honest = model(&home, "honest.gguf", HONEST);
    let server = Server::start(home, &[honest], &["--no-socket"]);
    let masked = |first: u8, payload: &[u8]| {
        let length = u8::try_from(payload.len()).unwrap();
        [&[first, 0x80 | length, 0, 0, 0, 0], payload].concat()
    };
    let huge = [&[0x81, 0xff][..], &u64::MAX.to_be_bytes(), &[0; 4]].concat();
    for (what, frame, code) in [
        ("no mask", vec![0x81, 2, b'{', b'}'], 1002),
        ("an unknown kind", masked(0x83, b"{}"), 1002),
        ("a reserved bit", masked(0xf1, b"{}"), 1002),
        ("a continuation of nothing", masked(0x80, b"{}"), 1002),
        ("a ping in parts", masked(0x09, b"{}"), 1002),
        ("text that is not UTF-8", masked(0x81, b"\xff\xfe"), 1007),
        ("a frame without end", huge, 1009),
    ] {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let hello = format!(
            "GET /v1/responses HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            server.port
        );
        stream.write_all(hello.as_bytes()).unwrap();
        let mut read = Vec::new();
        let mut buffer = [0; 4096];
        while !read.windows(4).any(|window| window == b"\r\n\r\n") {
            let count = stream.read(&mut buffer).unwrap();
            assert!(count > 0, "{}", String::from_utf8_lossy(&read));
            read.extend_from_slice(&buffer[..count]);
        }
        stream.write_all(&frame).unwrap();
        let _ = stream.read_to_end(&mut read);
        let end = read.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
        // The last frame is the close: its kind, its length, its code.
        let closes = read[end..].windows(4).any(|four| four[0] == 0x88 && four[2..4] == u16::to_be_bytes(code));
        assert!(closes, "{what}: {:?}", &read[end..]);
    }
}

/// Low: clients of vLLM send `top_k: -1` for no limit, whatever the endpoint.
#[test]
fn no_limit_on_picks_is_understood_everywhere() {
    let home = Home::new(users()[0]);
    let honest = model(&home, "honest.gguf", HONEST);
    let server = Server::start(home, &[honest], &["--no-socket"]);
    for (path, body) in [
        ("/v1/responses", json!({"input": "hello", "max_output_tokens": 2, "top_k": -1, "temperature": 1})),
        (
            "/v1/chat/completions",
            json!({"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2, "top_k": -1, "temperature": 1}),
        ),
        ("/v1/completions", json!({"prompt": "hello", "max_tokens": 2, "top_k": -1, "temperature": 1})),
    ] {
        let (status, text) = ask(server.port, "POST", path, None, Some(&body));
        assert_eq!(status, 200, "{path}: {text}");
    }
}

/// Low: three thousand short requests fill neither the disk nor the memory.
#[test]
fn many_short_requests_leave_little_behind() {
    let home = Home::new(users()[0]);
    let honest = model(&home, "honest.gguf", HONEST);
    let mut server = Server::start(home, &[honest], &["--no-socket", "--snapshot-gb", "0.001"]);
    for number in 0..300 {
        let body = json!({"input": format!("{number} is {}", "a number ".repeat(40)), "max_output_tokens": 1});
        assert_eq!(ask(server.port, "POST", "/v1/responses", None, Some(&body)).0, 200);
    }
    server.terminate();
    assert!(server.ends_within(LIMIT));
    let kept: u64 = files(&server.state().join("kv")).iter().map(|path| path.metadata().unwrap().len()).sum();
    assert!(kept > 0 && kept <= 1_000_000, "{kept} bytes of KV");
}

/// The partner's own server, as the partner starts it: only its socket, whatever it was told on the way.
#[test]
fn the_partner_starts_a_server_without_a_port() {
    let home = Home::new(User::Me);
    let path = model(&home, "honest.gguf", HONEST);
    home.write("work/a.py", "x = 1\n");
    let _ = output(home.flint(&["exec", "-m", path.to_str().unwrap(), "What is x?"]), LIMIT * 3);
    let mut listening = Vec::new();
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        if line.starts_with(&binary().display().to_string()) && line.contains(&home.path().display().to_string()) {
            listening.push(line.replace('\0', " "));
        }
    }
    let stopped = home.run(&["stop"]);
    assert!(stopped.status.success(), "{}", printed(&stopped));
    assert_eq!(listening.len(), 1, "{listening:?}");
    assert!(listening[0].contains("--socket-only") && !listening[0].contains("--port"), "{listening:?}");
}
