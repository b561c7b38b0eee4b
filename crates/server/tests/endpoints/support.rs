//! A server in this process over a toy model with a real tokenizer, and the smallest HTTP client.
//!
//! What the toy says is noise, always the same after the same prompt. Tests that need words ask for them by logit bias,
//! grammar or schema. A byte's token has the byte's number.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, LazyLock, mpsc};

use engine::{Engine, EngineOptions};
use model::gguf::{Array, Format, Gguf, Value as Meta};
use serde_json::{Value, json};
use server::guard::Limits;
use server::{Embedder, FileFacts, Loader, ModelCard, ModelParts, Server, ServerOptions};
use testkit::gguf::GgufWriter;
use testkit::toy::{ToyBackend, ToyOptions};
use text::{ChatTemplate, Tokenizer};

/// Tokens of one sequence.
pub const CONTEXT: usize = 8192;

const TEMPLATE: &str = include_str!("../../../text/tests/golden/qwen2.5-coder-0.5b.jinja");

/// Tokens from id 256 on, and the kind of each: those that are no text, and ` xa`.
const SPECIAL: [(&str, i32); 10] = [
    ("<|im_end|>", 3),
    ("<|im_start|>", 3),
    ("<|endoftext|>", 3),
    ("<tool_call>", 4),
    ("</tool_call>", 4),
    ("<|fim_prefix|>", 3),
    ("<|fim_suffix|>", 3),
    ("<|fim_middle|>", 3),
    ("<|fim_pad|>", 3),
    ("\u{120}xa", 1),
];

/// Ends an answer.
pub const IM_END: u32 = 256;

/// ` xa` in one token, which no prompt is ever encoded to.
pub const XA: u32 = 265;

/// One model that fills gaps, one that cannot, and one that embeds.
struct Toys;

/// Counts letters: a token for each byte between two others, a number for each of the first bytes.
struct Letters;

/// Numbers of a vector of [`Letters`].
pub const DIMENSIONS: usize = 4;

/// Tokens of a text that [`Letters`] reads, the two around it included.
pub const EMBEDDED_MAX: usize = 10;

impl Embedder for Letters {
    fn dimensions(&self) -> usize {
        DIMENSIONS
    }

    fn context(&self) -> usize {
        EMBEDDED_MAX
    }

    fn vocabulary(&self) -> usize {
        256
    }

    fn tokens(&self, text: &str, _most: usize) -> Vec<u32> {
        [1].into_iter().chain(text.bytes().map(u32::from)).chain([2]).collect()
    }

    fn cut(&self, mut tokens: Vec<u32>, most: usize) -> Vec<u32> {
        tokens.truncate(most - 1);
        tokens.push(2);
        tokens
    }

    fn embed(&self, tokens: &[u32]) -> Result<Vec<f32>, String> {
        let count = |letter: u32| tokens.iter().filter(|&&token| token == letter).count() as f32;
        Ok(vec![count(97), count(98), count(99), tokens.len() as f32])
    }
}

impl Loader for Toys {
    fn cards(&self) -> Vec<ModelCard> {
        let card = |name: &str| ModelCard {
            name: name.to_owned(),
            aliases: Vec::new(),
            description: "noise".to_owned(),
            context: CONTEXT,
            file: Default::default(),
        };
        ["toy", "gapless"].map(card).to_vec()
    }

    fn embedders(&self) -> Vec<ModelCard> {
        vec![ModelCard {
            name: "letters".to_owned(),
            aliases: vec!["a-b-c".to_owned()],
            description: "counts letters".to_owned(),
            context: EMBEDDED_MAX,
            file: FileFacts { family: "bert".to_owned(), parameters: "0".to_owned(), ..FileFacts::default() },
        }]
    }

    fn load_embedder(&self, _name: &str) -> Result<Box<dyn Embedder>, String> {
        Ok(Box::new(Letters))
    }

    fn load(&self, name: &str) -> Result<ModelParts, String> {
        let tokenizer = Arc::new(tokenizer(name == "toy"));
        let vocabulary = tokenizer.vocabulary();
        let token_bytes = (0..vocabulary.len() as u32).map(|id| vocabulary.token_bytes(id)).collect();
        let options = ToyOptions { vocab: vocabulary.len(), context: CONTEXT, blocks: 2048, ..ToyOptions::default() };
        let engine_options = EngineOptions { token_bytes: Arc::new(token_bytes), ..EngineOptions::default() };
        let engine = Engine::start(Box::new(ToyBackend::new(options)), engine_options);
        Ok(ModelParts {
            after_tools: None,
            engine: engine.map_err(|error| error.to_string())?,
            template: ChatTemplate::new(vocabulary),
            tokenizer,
            served_model: format!("{name}.gguf"),
            fingerprint: 0x70f,
            quantisation: "none".to_owned(),
            context: CONTEXT,
        })
    }
}

fn tokenizer(gaps: bool) -> Tokenizer {
    let printable = |byte: u8| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let alphabet = |byte: u8| {
        let moved = (0..byte).filter(|&other| !printable(other)).count() as u32;
        if printable(byte) { byte as char } else { char::from_u32(256 + moved).unwrap() }
    };
    let mut tokens: Vec<String> = (0..=255).map(|byte| alphabet(byte).to_string()).collect();
    let special = if gaps { &SPECIAL[..] } else { &SPECIAL[..5] };
    tokens.extend(special.iter().map(|(text, _)| (*text).to_owned()));
    let kinds = std::iter::repeat_n(1, 256).chain(special.iter().map(|(_, kind)| *kind)).collect();
    let bytes = GgufWriter::new()
        .text("tokenizer.ggml.model", "gpt2")
        .text("tokenizer.ggml.pre", "qwen2")
        .strings("tokenizer.ggml.tokens", &tokens)
        .strings("tokenizer.ggml.merges", [""; 0])
        .meta("tokenizer.ggml.token_type", Meta::Array(Array::I32(kinds)))
        .meta("tokenizer.ggml.eos_token_id", Meta::U32(IM_END))
        .text("tokenizer.chat_template", TEMPLATE)
        .tensor("pad", &[4096], Format::F32, vec![0; 4096 * 4])
        .bytes();
    Tokenizer::from_gguf(&Gguf::parse(&bytes, bytes.len() as u64).unwrap()).unwrap()
}

/// One server for all tests, until the process ends.
static ADDRESS: LazyLock<SocketAddr> = LazyLock::new(|| {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let options = ServerOptions {
                tcp: Some(([127, 0, 0, 1], 0).into()),
                limits: Limits { choices: 4, ..Limits::default() },
                ..ServerOptions::default()
            };
            let server = Server::bind(options, Arc::new(Toys)).await.unwrap();
            tell.send(server.address().unwrap()).unwrap();
            server.run(std::future::pending()).await;
        });
    });
    told.recv().unwrap()
});

/// What came back.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The answer to a request that must succeed.
    pub fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.body);
        self.json()
    }

    /// The lines of a stream of JSON.
    pub fn lines(&self) -> Vec<Value> {
        assert_eq!(self.status, 200, "{}", self.body);
        assert!(self.head.to_lowercase().contains("content-type: application/x-ndjson"), "{}", self.head);
        self.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Names and data of a stream's events; comments left out.
    pub fn events(&self) -> Vec<(String, String)> {
        assert_eq!(self.status, 200, "{}", self.body);
        assert!(self.head.to_lowercase().contains("content-type: text/event-stream"), "{}", self.head);
        let event = |block: &str| {
            let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
            Some((field("event: ").unwrap_or_default(), field("data: ")?))
        };
        self.body.split("\n\n").filter_map(event).collect()
    }

    /// The chunks of a stream that ends with `[DONE]`.
    pub fn chunks(&self) -> Vec<Value> {
        let mut events = self.events();
        assert_eq!(events.pop().unwrap().1, "[DONE]");
        events.into_iter().map(|(_, data)| serde_json::from_str(&data).unwrap()).collect()
    }
}

/// Sends JSON to a path and waits for the whole answer.
pub fn post(path: &str, body: &Value) -> Reply {
    send("POST", path, &body.to_string())
}

/// Asks for a page.
pub fn get(path: &str) -> Reply {
    send("GET", path, "")
}

fn send(method: &str, path: &str, body: &str) -> Reply {
    let mut stream = TcpStream::connect(*ADDRESS).unwrap();
    let head = format!("{method} {path} HTTP/1.0\r\nhost: {}\r\ncontent-type: application/json\r\n", *ADDRESS);
    write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Reply { status, head: head.to_owned(), body: body.to_owned() }
}

/// `base` with the fields of `more`.
pub fn with(base: &Value, more: Value) -> Value {
    let mut all = base.clone();
    all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    all
}

/// Makes a byte, or another token, the only one that is ever said.
pub fn only(token: u32) -> Value {
    json!({token.to_string(): 100})
}

/// Keeps an answer from ending by itself.
pub fn endless() -> Value {
    json!({"256": -100, "258": -100, "264": -100})
}

/// A schema that leaves no room for endless texts.
pub fn city() -> Value {
    json!({
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Rome"]}},
        "required": ["city"],
        "additionalProperties": false,
    })
}
