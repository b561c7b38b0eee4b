//! Escape sequences on their way to the terminal, from everyone whose words are printed.

use std::io::Read;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use model::gguf::Value;
use serde_json::json;

use crate::support::{Answer, FakeModel, Home, output, printed, users};

/// What a terminal would obey, or what would reorder a line: clipboard, title, clear, C1, direction, tags, separators.
const HOSTILE: [&str; 9] = [
    "\x1b]52;c;aGk=\x07",
    "\x1b]0;title\x07",
    "\x1b[2J",
    "\u{9b}2J",
    "\u{9d}0;t\u{9c}",
    "\u{202e}gpj",
    "\u{2066}x\u{2069}",
    "\u{e0041}",
    "\x08\x7f",
];

fn hostile() -> String {
    format!("<{}>", HOSTILE.join("|"))
}

/// Fails where anything of it got through. Escapes of our own (colours) are taken out first.
fn assert_clean(what: &str, output: &Output) {
    for (stream, bytes) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
        let text = String::from_utf8(bytes.clone()).unwrap_or_else(|_| panic!("{what}: {stream} is no UTF-8"));
        let bad: Vec<char> =
            text.chars().filter(|&c| boundary::terminal::is_unsafe(c) && !matches!(c, '\n' | '\t')).collect();
        assert!(bad.is_empty(), "{what}: {bad:?} in {stream}: {text:?}");
    }
}

#[test]
fn exec_prints_no_escapes_of_models_tools_paths_or_diffs() {
    for user in users() {
        let hostile = hostile();
        let name = format!("n{hostile}");
        let calls = [
            Answer::text(&format!("I say {hostile}\n")),
            Answer::call(&name, &json!({"a": 1})),
            Answer::call("read", &json!({"path": format!("missing{hostile}")})),
            Answer::call("search", &json!({"pattern": hostile, "path": "."})),
            Answer::call("edit", &json!({"path": format!("new{hostile}.txt"), "old": "", "new": hostile})),
            Answer::call("shell", &json!({"command": "printf '\\033]52;c;aGk=\\007\\2332J\\342\\200\\256'"})),
            Answer::call("plan", &json!({"steps": [{"text": hostile, "done": false}]})),
        ];
        for call in calls {
            for arguments in [&["exec", "do it"][..], &["exec", "--json", "do it"]] {
                let home = Home::new(user);
                let model = FakeModel::start([call.clone()]);
                home.use_model(&model, "style = \"agent\"\n");
                home.write("work/a.txt", "plain\n");
                let ran = home.run(arguments);
                assert!(!model.requests().is_empty(), "{}", printed(&ran));
                assert_clean(&format!("{user:?} {arguments:?} {call:?}"), &ran);
            }
        }
    }
}

#[test]
fn json_keeps_the_value_of_what_it_escapes() {
    let home = Home::new(users()[0]);
    let said = format!("I say {}", hostile());
    let model = FakeModel::start([Answer::text(&said)]);
    home.use_model(&model, "style = \"agent\"\n");
    let ran = home.run(&["exec", "--json", "say it"]);
    let lines = String::from_utf8(ran.stdout).unwrap();
    let message = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let message = message.map(|line| line["item"]["text"].clone()).find(|text| text.is_string()).unwrap();
    assert_eq!(message, json!(said));
}

#[test]
fn a_projects_configuration_prints_no_escapes() {
    for user in users() {
        for text in [
            r#""k\u001b]52;c;aGk=\u0007\u202e" = 1"#.to_owned(),
            r#"model = "m\u001b[2J\u009b\u202e""#.to_owned(),
            "model = \u{202e}".to_owned(),
            "a\u{9b}2J = = 1".to_owned(),
        ] {
            let home = Home::new(user);
            let model = FakeModel::start([]);
            home.use_model(&model, "");
            home.write("work/.flint/config.toml", &text);
            for arguments in [&["config", "show"][..], &["config", "show", "--json"], &["sandbox"], &["exec", "x"]] {
                assert_clean(&format!("{user:?} {arguments:?} {text:?}"), &home.run(arguments));
            }
        }
    }
}

#[test]
fn errors_that_quote_print_no_escapes() {
    for user in users() {
        let home = Home::new(user);
        let hostile = hostile();
        let file = format!("x{hostile}.gguf");
        home.write(format!("work/{file}"), "not a model");
        let path = format!("./{file}");
        for arguments in [
            &["models", "show", &hostile][..],
            &["models", "path", &path],
            &["models", "rm", &hostile],
            &["run", "--model", &path, "hello"],
            &["run", "--model", &hostile, "--offline", "hello"],
            &["exec", &format!("--{hostile}")],
            &[&hostile],
            &["config", "show", "-c", &hostile],
            &["config", "show", "-C", &hostile],
            &["exec", "--output-schema", &path, "x"],
            &["sandbox", "-C", &hostile],
        ] {
            assert_clean(&format!("{user:?} {arguments:?}"), &home.run(arguments));
        }
    }
}

/// The beginning of a model file whose architecture is `name`.
fn gguf(name: &str) -> Vec<u8> {
    let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3u32.to_le_bytes());
    bytes.extend(0u64.to_le_bytes());
    bytes.extend(1u64.to_le_bytes());
    bytes.extend(text("general.architecture"));
    bytes.extend(8u32.to_le_bytes());
    bytes.extend(text(name));
    bytes.resize(4096, 0);
    bytes
}

#[test]
fn a_model_file_prints_no_escapes() {
    for user in users() {
        let home = Home::new(user);
        home.write("work/m.gguf", gguf(&hostile()));
        // One that is whole but for the name of its architecture, and one whose template fails in its own words.
        let named = testkit::chat::tiny_model("{{ messages }}").set("general.architecture", Value::String(hostile()));
        home.write("work/named.gguf", named.bytes());
        let says = format!("{{{{ raise_exception('{}') }}}}", hostile());
        home.write("work/says.gguf", testkit::chat::tiny_model(&says).bytes());
        for arguments in [
            &["run", "--model", "./m.gguf", "hello"][..],
            &["models", "show", "./m.gguf"],
            &["run", "--model", "./named.gguf", "hello"],
            &["models", "show", "./named.gguf"],
            &["run", "--model", "./says.gguf", "hello"],
            &["models", "show", "./says.gguf"],
        ] {
            assert_clean(&format!("{user:?} {arguments:?}"), &home.run(arguments));
        }
    }
}

#[test]
fn lines_only_prints_no_escapes() {
    for user in users() {
        let home = Home::new(user);
        let model = FakeModel::start([Answer::text(&hostile()), Answer::call(&hostile(), &json!({}))]);
        home.use_model(&model, "style = \"agent\"\n");
        let file = home.write("prompt", "say it\n");
        let mut command = home.flint(&["--plain"]);
        command.stdin(std::fs::File::open(file).unwrap());
        let ran = output(command, Duration::from_secs(60));
        assert!(printed(&ran).contains("turn 1"), "{}", printed(&ran));
        assert_clean(&format!("{user:?}"), &ran);
    }
}

#[test]
fn logs_of_the_server_hold_no_escapes() {
    use std::io::Write;
    let home = Home::new(users()[0]);
    let port = home.path().join("port");
    let mut command =
        home.flint(&["serve", "--port", "0", "--no-socket", "--log-level", "trace", "--preload", "false"]);
    command.arg("--port-file").arg(&port).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let begun = std::time::Instant::now();
    let number = loop {
        match std::fs::read_to_string(&port) {
            Ok(text) if !text.trim().is_empty() => break text.trim().to_owned(),
            _ => assert!(begun.elapsed() < Duration::from_secs(60), "the server does not start"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    for (path, header) in [
        ("/v1/\u{9b}2J", "x: y"),
        ("/v1/models", "x-request-id: \u{9b}2J\u{202e}"),
        ("/v1/models", "origin: http://\u{202e}evil"),
        ("/v1/models", "host: \u{9b}2J"),
        ("/v1/responses/%1b%5d52", "user-agent: \u{202e}"),
    ] {
        let mut stream = std::net::TcpStream::connect(format!("127.0.0.1:{number}")).unwrap();
        let _ = write!(stream, "GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{header}\r\nconnection: close\r\n\r\n");
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let body = json!({"model": hostile(), "input": hostile()}).to_string();
    let mut stream = std::net::TcpStream::connect(format!("127.0.0.1:{number}")).unwrap();
    let head = "POST /v1/responses HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\nconnection: close";
    let _ = write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let _ = stream.read_to_end(&mut Vec::new());
    let id = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM).unwrap();
    let mut stderr = Vec::new();
    child.stderr.take().unwrap().read_to_end(&mut stderr).unwrap();
    let status = child.wait().unwrap();
    assert!(!stderr.is_empty());
    assert_clean("serve", &Output { status, stdout: Vec::new(), stderr });
}

/// Runs the binary with a terminal as its input and outputs, by `script` of util-linux where there is one.
fn on_a_terminal(home: &Home, arguments: &str) -> Option<String> {
    let script = ["/usr/bin/script", "/bin/script"].iter().find(|path| std::path::Path::new(path).exists())?;
    let mut command: Command = home.program(script.as_ref());
    let line = format!("{} {arguments}", crate::support::binary().display());
    command.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm-256color");
    let ran = output(command, Duration::from_secs(60));
    Some(String::from_utf8(ran.stdout).unwrap())
}

#[test]
fn on_a_terminal_the_only_escapes_are_our_colours() {
    for user in users() {
        let home = Home::new(user);
        let hostile = hostile();
        home.write("work/a.txt", "plain\n");
        let edit = Answer::call("edit", &json!({"path": "a.txt", "old": "plain", "new": hostile}));
        let model = FakeModel::start([edit, Answer::text(&hostile)]);
        home.use_model(&model, "style = \"agent\"\napproval_policy = \"never\"\n");
        let Some(text) = on_a_terminal(&home, "exec 'do it'") else {
            // Without the program there is no terminal to be had here; the screen's own tests cover its cells.
            assert!(std::env::var_os("CI").is_none(), "util-linux's script is missing");
            return;
        };
        assert!(text.contains("a.txt"), "{text:?}");
        let mut ours = text.replace("\r\n", "\n");
        for style in ["0", "1", "31", "32", "36"] {
            ours = ours.replace(&format!("\x1b[{style}m"), "");
        }
        let bad: Vec<char> =
            ours.chars().filter(|&c| boundary::terminal::is_unsafe(c) && !matches!(c, '\n' | '\t')).collect();
        assert!(bad.is_empty(), "{bad:?} in {ours:?}");
    }
}
