//! Hostile model files and hostile schemas: they get an error of their own, and nobody else notices.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::serving::{self, HONEST, Server, model};
use crate::support::{Home, User, output, printed};

/// Seconds of the long run; a few in CI, where no time is asserted. Must-show: 600 on a quiet machine.
const SECONDS: &str = "FLINT_ATTACK_SECONDS";
const SECONDS_CI: u64 = 20;
/// The model that honest clients talk to in the long run, by the path of its file; a tiny one unless told.
const MODEL: &str = "FLINT_ATTACK_MODEL";
/// Memory that the server and its confined processes may have at once, in kB.
const MEMORY_KB: u64 = 3_000_000;

/// Templates that are too deep for the stack of whoever reads, compiles, runs or forgets them.
fn deep() -> Vec<(&'static str, String)> {
    let chain = |first: &str, link: &str| format!("{{{{ {first}{} }}}}", link.repeat(900_000 / link.len()));
    let nest = |open: &str, close: &str, count: usize| format!("{}x{}", open.repeat(count), close.repeat(count));
    vec![
        ("additions", chain("1", "+1")),
        ("joins", chain("1", "~1")),
        ("products", chain("1", "*1")),
        ("powers", chain("1", "**1")),
        ("filters", chain("'a'", "|upper")),
        ("attributes", chain("messages", ".a")),
        ("indices", chain("messages", "[0]")),
        ("calls", chain("messages", "()")),
        ("tests", chain("1", " is odd")),
        ("ors", chain("0", " or 0")),
        ("comparisons", chain("1", "==1")),
        ("choices", chain("1", " if 1 else 1")),
        ("choices without end", chain("1", " if 1")),
        ("denials", format!("{{{{ {}1 }}}}", "not ".repeat(200_000))),
        ("signs", format!("{{{{ {}1 }}}}", "-".repeat(900_000))),
        ("lists", format!("{{{{ {}{} }}}}", "[".repeat(100_000), "]".repeat(100_000))),
        ("blocks", nest("{% if 1 %}", "{% endif %}", 40_000)),
        ("elifs", format!("{{% if 0 %}}{}{{% endif %}}", "{% elif 0 %}".repeat(70_000))),
        ("a macro of itself", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}".into()),
        ("a loop of itself", "{% for a in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}".into()),
        (
            "a list in a list",
            "{% set n = namespace(l=[]) %}{% for i in range(90000) %}{% set n.l = [n.l] %}{% endfor %}{{ n.l }}".into(),
        ),
    ]
}

/// Templates that want all the memory or time there is.
fn greedy() -> Vec<(&'static str, String)> {
    let grow = |start: &str, step: &str| {
        format!(
            "{{% set n = namespace(s={start}) %}}{{% for i in range(64) %}}{{% set n.s = {step} %}}{{% endfor %}}{{{{ n.s }}}}"
        )
    };
    vec![
        ("doubling by +", grow("'aaaaaaaa'", "n.s + n.s")),
        ("doubling by ~", grow("'aaaaaaaa'", "n.s ~ n.s")),
        ("doubling by replace", grow("'aa'", "n.s|replace('a', 'aa')")),
        ("doubling by join", grow("'aa'", "[n.s, n.s]|join")),
        ("doubling lists", grow("[1]", "(n.s + n.s)|list")),
        ("products of strings", grow("'a'", "n.s * 1000")),
        ("products of lists", grow("[1]", "(n.s * 1000)|list")),
        ("lists of lists", grow("[1]", "[n.s|list, n.s|list]|tojson|list")),
        ("indentation", grow("'a\\na'", "n.s|indent(10000)")),
        (
            "captures",
            "{% set n = namespace(s='aaaa') %}{% for i in range(64) %}{% set x %}{{ n.s }}{{ n.s }}{% endset %}\
             {% set n.s = x %}{% endfor %}{{ n.s }}"
                .into(),
        ),
        ("output", "{% for i in range(99999) %}{% for j in range(99999) %}aaaaaaaaaaaaaaaaaaaaaaaaaaaaa{% endfor %}{% endfor %}".into()),
        ("steps", "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}".into()),
        (
            "sorting",
            "{% set n = namespace(l=range(90000)|list) %}{% for i in range(90000) %}{% set n.l = n.l|sort|reverse|list \
             %}{% endfor %}"
                .into(),
        ),
    ]
}

/// M5: `flint run` and `flint models show` end by themselves and in words, whatever the template.
fn refused(templates: Vec<(&'static str, String)>, must_fail: bool) {
    let home = Home::new(User::Me);
    for (what, template) in templates {
        let path = model(&home, "hostile.gguf", &template);
        let path = path.to_str().unwrap();
        let command = home.flint(&["run", "--model", path, "--max-tokens", "1", "hello"]);
        let ran = output(command, Duration::from_secs(120));
        let said = printed(&ran);
        assert_eq!(ran.status.signal(), None, "{what}: {said}");
        let in_words = said.contains("chat template") || said.contains("is longer than");
        assert!(ran.status.success() || in_words, "{what}: {said}");
        assert!(!(must_fail && ran.status.success()), "{what}: it should not fit: {said}");
        assert!(said.len() < 100_000, "{what}: {} bytes are printed", said.len());
        let shown = output(home.flint(&["models", "show", path]), Duration::from_secs(120));
        assert_eq!(shown.status.signal(), None, "{what}: {}", printed(&shown));
    }
}

#[test]
fn deep_templates_end_in_words() {
    refused(deep(), false);
}

#[test]
fn greedy_templates_end_in_words() {
    refused(greedy(), true);
}

#[test]
fn an_honest_template_still_works() {
    let home = Home::new(User::Me);
    let path = model(&home, "honest.gguf", HONEST);
    let ran = home.run(&["run", "--model", path.to_str().unwrap(), "--max-tokens", "4", "hello"]);
    assert!(ran.status.success(), "{}", printed(&ran));
}

/// A server of one honest and one hostile model.
fn serve(hostile: &str) -> Server {
    let home = Home::new(User::Me);
    let honest = home.path().join("honest.gguf");
    match std::env::var_os(MODEL) {
        Some(path) => std::os::unix::fs::symlink(path, &honest).unwrap(),
        None => drop(model(&home, "honest.gguf", HONEST)),
    }
    let models = [honest, model(&home, "hostile.gguf", hostile)];
    Server::start(home, &models, &[])
}

/// The status of an answer and its body.
fn ask(port: u16, body: &Value) -> (u16, String) {
    serving::ask(port, "POST", "/v1/responses", None, Some(body))
}

/// Sends a request; the connection to read the answer from.
fn send(port: u16, path: &str, body: &[u8]) -> std::io::Result<TcpStream> {
    serving::send(port, "POST", path, None, body)
}

fn plain(model: &str) -> Value {
    json!({"model": model, "input": "hello", "max_output_tokens": 4, "store": false})
}

fn held_to(schema: Value) -> Value {
    let mut body = plain("honest");
    body["text"] = json!({"format": {"type": "json_schema", "name": "s", "strict": true, "schema": schema}});
    body
}

/// Schemas that take long, or much, to compile or to follow. `seed` makes them differ, so that none is remembered.
fn schemas(seed: usize) -> Vec<(&'static str, Value)> {
    let many = |count: usize, pattern: &dyn Fn(usize) -> String| -> Value {
        (0..count).map(|i| (pattern(i), json!({"type": "string"}))).collect::<serde_json::Map<_, _>>().into()
    };
    let names: Vec<String> = (0..8000).map(|i| format!("{seed}-value-number-{i}-{}", i * 7919 % 1000)).collect();
    let shuffled: Vec<String> =
        (0..3000).map(|i| format!("{:x}", (i + seed) * 2_654_435_761 % 4_294_967_291)).collect();
    let tangled: Vec<Value> = (0..40).map(|i| json!({"pattern": format!("^.*{i}.*[a-z]{{{seed}}}.*$")})).collect();
    vec![
        // Each compared with every other: cubic, and none is refused for being ambiguous.
        ("apart patterns", json!({"type": "object", "patternProperties": many(500, &|i| format!("^p{seed}x{i}_"))})),
        ("patterns", json!({"type": "object", "patternProperties": many(500, &|i| format!("^{seed}a{i}.*b$"))})),
        ("looser patterns", json!({"type": "object", "patternProperties": many(300, &|i| format!("{seed}.*{i}"))})),
        ("an enum", json!({"enum": names})),
        ("an enum without a common beginning", json!({"type": "array", "items": {"enum": shuffled}})),
        ("all of many patterns", json!({"type": "string", "allOf": tangled})),
        ("long repetitions", json!({"type": "string", "pattern": format!("^((a|b)*a(a|b){{{}}})+$", 900 + seed % 90)})),
        (
            "long lists",
            json!({"type": "array", "minItems": 5000 + seed, "maxItems": 90_000, "items": {"type": "integer"}}),
        ),
        ("optional members", json!({"type": "object", "properties": many(900, &|i| format!("p{seed}x{i}"))})),
    ]
}

/// M6: each is compiled or refused; a client that leaves takes its work along; others are answered meanwhile.
#[test]
fn hostile_schemas_are_bounded_and_others_are_answered() {
    let mut server = serve(HONEST);
    let port = server.port;
    assert_eq!(ask(port, &plain("honest")).0, 200);
    for (what, schema) in schemas(1) {
        let begun = Instant::now();
        let (status, body) = ask(port, &held_to(schema));
        println!("{what}: {status} after {:?}", begun.elapsed());
        assert!([200, 400, 429].contains(&status), "{what}: {status} {body}");
    }
    // Clients that leave: what they asked for would take minutes in all, and then there would be no answer below.
    for seed in 2..12 {
        for (_, schema) in schemas(seed) {
            let asked = send(port, "/v1/responses", held_to(schema).to_string().as_bytes());
            std::thread::sleep(Duration::from_millis(30));
            drop(asked);
        }
    }
    // It ends with them: soon nothing is computed for nobody.
    let begun = Instant::now();
    loop {
        let before = server.worked();
        std::thread::sleep(Duration::from_secs(2));
        let worked = server.worked().saturating_sub(before);
        if worked < 20 {
            break;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "still at work, {worked} % of two seconds, for clients that left"
        );
    }
    assert_eq!(ask(port, &plain("honest")).0, 200);
    let small = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": false});
    let begun = Instant::now();
    while ask(port, &held_to(small.clone())).0 != 200 {
        assert!(begun.elapsed() < Duration::from_secs(60), "the place is not given back");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(server.runs());
    assert!(server.memory_kb() < MEMORY_KB, "{} kB", server.memory_kb());
}

/// M5 in the server: requests to a model with a hostile template fail, those to another are answered.
#[test]
fn a_hostile_template_is_that_models_problem() {
    for (what, template) in [greedy().remove(0), deep().remove(0), ("honest", HONEST.to_owned())] {
        let mut server = serve(&template);
        let (status, body) = ask(server.port, &plain("hostile"));
        assert!(what == "honest" || body.contains("chat template"), "{what}: {status} {body}");
        assert_eq!(ask(server.port, &plain("honest")).0, 200, "{what}");
        assert!(server.runs(), "{what}");
    }
}

/// Must-show 6: hostile templates, schemas, bodies and sockets at once, and an interactive session beside them.
#[test]
fn an_interactive_session_is_served_under_attack() {
    let asked = std::env::var(SECONDS).ok().and_then(|seconds| seconds.parse::<u64>().ok());
    let mut server = serve(&greedy()[0].1);
    let port = server.port;
    let first_token = || -> Duration {
        let mut body = plain("honest");
        body["stream"] = json!(true);
        let begun = Instant::now();
        let mut stream = send(port, "/v1/responses", body.to_string().as_bytes()).unwrap();
        let (mut text, mut buffer) = (Vec::new(), [0; 4096]);
        let mut first = None;
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            text.extend_from_slice(&buffer[..count]);
            let said = String::from_utf8_lossy(&text);
            if first.is_none() && (said.contains("output_text.delta") || said.contains("response.completed")) {
                first = Some(begun.elapsed());
            }
        }
        let said = String::from_utf8_lossy(&text);
        let ended = said.contains("response.completed") || said.contains("response.incomplete");
        assert!(ended, "no whole answer: {said}");
        first.unwrap_or_else(|| begun.elapsed())
    };
    let median = |times: &mut Vec<Duration>| {
        times.sort();
        times[times.len() / 2]
    };
    let mut idle: Vec<Duration> = (0..20).map(|_| first_token()).collect();
    let idle = median(&mut idle);
    let (over, sent) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut busy = Vec::new();
    let mut memory = 0;
    std::thread::scope(|scope| {
        // What an attacker can send, without taking the processor from the server himself.
        let attack = |pause: u64, act: Box<dyn Fn(usize) + Send>| {
            let (over, sent) = (&over, &sent);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    act(sent.fetch_add(1, Ordering::Relaxed));
                    std::thread::sleep(Duration::from_millis(pause));
                }
            });
        };
        attack(200, Box::new(move |_| drop(ask(port, &plain("hostile")))));
        attack(
            200,
            Box::new(move |seed| {
                let mut schemas = schemas(seed + 100);
                let (_, schema) = schemas.swap_remove(seed % schemas.len());
                drop(ask(port, &held_to(schema)));
            }),
        );
        attack(
            300,
            Box::new(move |seed| {
                let mut schemas = schemas(seed + 100);
                let (_, schema) = schemas.swap_remove(seed % schemas.len());
                drop(send(port, "/v1/responses", held_to(schema).to_string().as_bytes()));
            }),
        );
        attack(
            100,
            Box::new(move |seed| {
                let bodies =
                    ["[".repeat(200_000), "{\"input\":\"".to_owned() + &"a".repeat(4 << 20), "\u{0}".repeat(1000)];
                drop(send(port, "/v1/responses", bodies[seed % 3].as_bytes()));
            }),
        );
        attack(
            50,
            Box::new(move |_| {
                let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return };
                let _ = stream.write_all(b"POST /v1/responses HTTP/1.1\r\nhost: a\r\ncontent-le");
                std::thread::sleep(Duration::from_millis(500));
            }),
        );
        let until = Instant::now() + Duration::from_secs(asked.unwrap_or(SECONDS_CI));
        while Instant::now() < until {
            busy.push(first_token());
            memory = memory.max(server.memory_kb());
            std::thread::sleep(Duration::from_millis(200));
        }
        over.store(true, Ordering::Relaxed);
    });
    let under = median(&mut busy);
    println!(
        "first token: idle {idle:?}, under attack {under:?} ({} turns, {} hostile requests), {memory} kB at most",
        busy.len(),
        sent.load(Ordering::Relaxed)
    );
    assert!(server.runs(), "the server ended");
    assert!(memory < MEMORY_KB, "{memory} kB");
    if asked.is_some_and(|seconds| seconds >= 600) {
        assert!(under <= idle * 2, "first tokens take {under:?}, idle {idle:?}");
    }
}
