//! A model that says what the test wrote down, as a Responses provider on a loopback socket.

use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use crate::provider::{self, Events};

/// Characters of one event of an answer: small enough that a screen sees it grow.
const PIECE: usize = 24;

/// What the model does: the word for a message when it sorts it, and the answer to the request with this number, from 0.
#[derive(Clone)]
enum Script {
    /// Made up: `chat`, `answer`, `edit`, `run` or `unclear` by the words of the person, and the answers, of which the last
    /// one is repeated.
    Written { sorts: fn(&str) -> &'static str, answers: &'static [&'static str] },
    /// What a real model said: for each turn the message, how likely it found each word, and the answer.
    Recorded(Vec<Value>),
}

impl Script {
    /// The word for a message, and how likely each word is.
    fn sorted(&self, message: &str) -> (String, Vec<(String, f64)>) {
        let turns = match self {
            Self::Written { sorts, .. } => return (sorts(message).to_owned(), Vec::new()),
            Self::Recorded(turns) => turns,
        };
        let turn = turns.iter().find(|turn| turn["asked"] == message).unwrap_or(&Value::Null);
        let odds = turn["odds"].as_object().into_iter().flatten();
        let odds: Vec<(String, f64)> = odds.map(|(word, share)| (word.clone(), share.as_f64().unwrap())).collect();
        let likeliest = odds.iter().max_by(|a, b| a.1.total_cmp(&b.1)).map(|(word, _)| word.clone());
        (likeliest.unwrap_or_default(), odds)
    }

    /// The answer to the request with this number.
    fn answer(&self, number: usize) -> String {
        match self {
            Self::Written { answers, .. } => {
                answers.get(number).or(answers.last()).copied().unwrap_or_default().to_owned()
            }
            Self::Recorded(turns) => turns[number]["answer"].as_str().unwrap().to_owned(),
        }
    }
}

/// The model.
pub struct Scripted {
    pub url: String,
    script: Script,
    requests: Arc<Mutex<Vec<Value>>>,
}

impl Scripted {
    /// Sorts every message as `word` and gives the answers in order.
    pub fn start(sorts: fn(&str) -> &'static str, answers: &'static [&'static str]) -> Self {
        Self::with(Script::Written { sorts, answers })
    }

    /// Says what a real model said in these turns of a recording.
    pub fn recorded(recording: &str, turns: std::ops::Range<usize>) -> Self {
        let recording: Value = serde_json::from_str(recording).unwrap();
        Self::with(Script::Recorded(recording["turns"].as_array().unwrap()[turns].to_vec()))
    }

    /// The messages of the recording.
    pub fn recorded_messages(&self) -> Vec<String> {
        match &self.script {
            Script::Recorded(turns) => turns.iter().map(|turn| turn["asked"].as_str().unwrap().to_owned()).collect(),
            Script::Written { .. } => Vec::new(),
        }
    }

    fn with(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (seen, says) = (Arc::clone(&requests), script.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, says) = (Arc::clone(&seen), says.clone());
                std::thread::spawn(move || serve(stream, &seen, &says));
            }
        });
        Self { url, script, requests }
    }

    /// The last message of each request for an answer.
    pub fn asked(&self) -> Vec<String> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).iter().map(last_message).collect()
    }
}

/// The words of the last message of a request.
fn last_message(request: &Value) -> String {
    let last = request["input"].as_array().and_then(|items| items.last()).cloned().unwrap_or_default();
    last["content"][0]["text"].as_str().unwrap_or_default().to_owned()
}

fn serve(mut stream: TcpStream, requests: &Mutex<Vec<Value>>, script: &Script) -> Option<()> {
    let request = provider::request(&mut stream)?;
    let instructions = request["instructions"].as_str().unwrap_or_default();
    let mut odds = Vec::new();
    let (id, text) = if instructions.starts_with("You decide what a coding assistant does") {
        let (word, shares) = script.sorted(&last_message(&request));
        odds = shares;
        ("resp_sorts".to_owned(), word)
    } else {
        let mut requests = requests.lock().unwrap_or_else(PoisonError::into_inner);
        let number = requests.len();
        requests.push(request);
        (format!("resp_{number}"), script.answer(number))
    };
    let token = |(word, share): &(String, f64)| json!({"token": word, "bytes": [], "logprob": share.ln()});
    let mut part = json!({"type": "output_text", "text": text, "annotations": []});
    if let Some(first) = odds.first() {
        let mut first = token(first);
        first["top_logprobs"] = odds.iter().map(token).collect();
        part["logprobs"] = json!([first]);
    }
    let item = json!({"type": "message", "id": "m", "status": "completed", "role": "assistant", "content": [part]});
    let mut events = Events::begin(stream)?;
    events.send(json!({"type": "response.created", "response": {"id": id, "status": "in_progress"}}))?;
    events.send(json!({"type": "response.output_item.added", "output_index": 0, "item": item}))?;
    let letters: Vec<char> = text.chars().collect();
    for piece in letters.chunks(PIECE) {
        let delta: String = piece.iter().collect();
        events.send(
            json!({"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "content_index": 0,
            "delta": delta}),
        )?;
    }
    events.send(json!({"type": "response.output_item.done", "output_index": 0, "item": item}))?;
    let usage = json!({"input_tokens": 840, "input_tokens_details": {"cached_tokens": 790}, "output_tokens": 96,
        "total_tokens": 936});
    events.send(json!({"type": "response.completed",
        "response": {"id": id, "status": "completed", "output": [item], "usage": usage}}))
}
