//! Instructor, the Anthropic SDK, Outlines, Ollama's client, LangChain, Cline, and the requests of llama.vscode.

use std::fs;
use std::path::{Path, PathBuf};

use model::gguf::Format;
use serde_json::{Value, json};
use testkit::encoder::{Spelling, WIDTH, tiny_encoder};

use crate::install::{npm_dir, pip_venv};
use crate::server::{Server, json_lines};
use crate::{DEFAULT_MODEL, SMALL_MODEL, client, program, scratch, success, text, turn};

/// The name of the file, which is how the server calls the model in it.
const EMBEDDER: &str = "tiny-encoder";

#[test]
fn python_libraries() {
    let Some(_turn) = turn() else { return };
    let packages = [
        "anthropic==2.10.0",
        "instructor==1.17.0",
        "langchain-ollama==1.1.0",
        "langchain-openai==1.7.3",
        "ollama==0.6.3",
        "openai==3.3.0",
        "outlines==1.3.3",
    ];
    let python = pip_venv("more-python", &packages).join("bin/python");
    let folder = scratch("encoder-");
    let file = encoder(folder.path());
    let server = Server::start_with(DEFAULT_MODEL, &["--model", file.to_str().unwrap()]);
    let home = scratch("home-");
    let mut command = client(python, home.path());
    success(command.arg(program("more_clients.py")).args([DEFAULT_MODEL, EMBEDDER]).env("FLINT_URL", server.url()));
}

/// A model that embeds, with weights made up for tests: what its vectors are like is tested elsewhere.
fn encoder(folder: &Path) -> PathBuf {
    let path = folder.join(format!("{EMBEDDER}.gguf"));
    tiny_encoder(Format::F32, Spelling::Begin).write(&path).expect("the file of the encoder");
    path
}

/// As the extension sends them: warm-up, completion, edit, tools and embeddings, whatever the model is called.
#[test]
fn requests_of_llama_vscode() {
    let Some(_turn) = turn() else { return };
    let folder = scratch("encoder-");
    let file = encoder(folder.path());
    let server = Server::start_with(DEFAULT_MODEL, &["--model", file.to_str().unwrap()]);
    let gap = json!({
        "input_prefix": "def add(a, b):\n", "input_suffix": "\n", "input_extra": [], "prompt": "    ", "n_predict": 0,
        "samplers": [], "cache_prompt": true, "t_max_prompt_ms": 500, "t_max_predict_ms": 1,
    });
    let warm = server.post("/infill", &gap);
    assert_eq!((&warm["content"], &warm["tokens_predicted"]), (&json!(""), &json!(0)));
    let mut asked = gap.clone();
    for (field, value) in [("n_predict", json!(16)), ("t_max_predict_ms", json!(2500)), ("top_k", json!(40))] {
        asked[field] = value;
    }
    let filled = server.post("/infill", &asked);
    assert!(filled["content"].as_str().unwrap().contains("return"), "{filled}");
    let messages = json!([
        {"role": "system", "content": "You are an expert coder."},
        {"role": "user", "content": "Say OK."},
    ]);
    let warm =
        json!({"messages": messages, "n_predict": 0, "samplers": [], "cache_prompt": true, "t_max_predict_ms": 1});
    let answer = server.post("/v1/chat/completions", &warm);
    assert_eq!(answer["usage"]["completion_tokens"], 0);
    let edit = json!({
        "messages": messages, "stream": false, "cache_prompt": true, "samplers": "edkypmxt", "temperature": 0.8,
        "dynatemp_range": 0, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "typical_p": 1, "repeat_last_n": 64,
        "presence_penalty": 0, "frequency_penalty": 0, "max_tokens": -1, "timings_per_token": false,
    });
    let answer = server.post("/v1/chat/completions", &edit);
    assert!(answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64() > Some(10), "{answer}");
    let embedded = json!({"input": "some text", "model": "GPT-4", "encoding_format": "float"});
    let answer = server.post("/v1/embeddings", &embedded);
    assert_eq!(answer["data"][0]["embedding"].as_array().unwrap().len(), WIDTH);
    let props: Value = serde_json::from_str(&server.get("/props")).unwrap();
    assert!(props["default_generation_settings"]["n_ctx"].as_u64() > Some(1000), "{props}");
    let tokens = server.post("/tokenize", &json!({"content": "def add(a, b):"}));
    let back = server.post("/detokenize", &json!({"tokens": tokens["tokens"]}));
    assert_eq!(back["content"], "def add(a, b):");
}

/// The extension's test above is the protocol; this is a whole turn of an agent that was told to read a file.
#[test]
fn cline_reads_a_file() {
    let Some(_turn) = turn() else { return };
    let cline = npm_dir("cline", &["cline@3.0.65"]).join("node_modules/.bin/cline");
    let server = Server::start_with(DEFAULT_MODEL, &["--max-output-tokens", "512"]);
    let (home, work) = (scratch("cline-"), scratch("work-"));
    fs::write(work.path().join("NOTE.txt"), "The meeting is moved to Thursday.\n").expect("the note");
    let data = home.path().join("data");
    let mut command = client(&cline, home.path());
    command.args(["auth", "-p", "openai", "-k", "x", "-m", DEFAULT_MODEL, "-b", &server.base_url(), "--data-dir"]);
    success(command.arg(&data));
    let mut command = client(&cline, home.path());
    command
        .args(["-P", "openai", "-m", DEFAULT_MODEL, "--json", "-t", "300", "--retries", "2", "--data-dir"])
        .arg(&data);
    command.arg("-c").arg(work.path()).arg("Read the file NOTE.txt and tell me on which day the meeting is.");
    let events = json_lines(&text(&success(&mut command).stdout));
    let called = events.iter().any(|event| event.to_string().contains("read_file"));
    assert!(called, "no tool was called");
}

#[test]
fn a_small_model_answers_as_ollama_does() {
    let Some(_turn) = turn() else { return };
    let server = Server::start(SMALL_MODEL);
    let tags: Value = serde_json::from_str(&server.get("/api/tags")).unwrap();
    assert_eq!(tags["models"][0]["name"], SMALL_MODEL);
    assert!(tags["models"][0]["size"].as_u64() > Some(1_000_000), "{tags}");
    let body = json!({"model": SMALL_MODEL, "prompt": "Hi", "stream": false, "options": {"num_predict": 4}});
    let answer = server.post("/api/generate", &body);
    assert!(answer["eval_count"].as_u64() <= Some(4) && answer["done"] == true, "{answer}");
}
