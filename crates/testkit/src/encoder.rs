//! A tiny BERT with weights that a Python script can make as well, so that another library can say what it computes.

use model::gguf::{Format, Value};

use crate::gguf::GgufWriter;

/// Its vocabulary as BERT's own file has it, one piece a line.
pub const PIECES: &str = include_str!("../data/wordpiece.txt");

/// Width, heads, feed-forward width, layers and longest text.
pub const WIDTH: usize = 64;
const HEADS: usize = 4;
const FEED_FORWARD: usize = 128;
const LAYERS: usize = 2;
/// Longest text, in tokens.
pub const CONTEXT: usize = 48;

/// How pieces are written in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// `##` before those within a word.
    Within,
    /// A mark before those that begin one.
    Begin,
}

/// The file, ready to be written. The weights are stored in `format`.
pub fn tiny_encoder(format: Format, spelling: Spelling) -> GgufWriter {
    let key = |name: &str| format!("bert.{name}");
    let count = |n: usize| Value::U32(n as u32);
    let pieces: Vec<String> = PIECES.lines().map(|piece| spelled(piece, spelling)).collect();
    let vocab = pieces.len();
    let mut writer = GgufWriter::new()
        .text("general.architecture", "bert")
        .meta(key("block_count"), count(LAYERS))
        .meta(key("embedding_length"), count(WIDTH))
        .meta(key("attention.head_count"), count(HEADS))
        .meta(key("feed_forward_length"), count(FEED_FORWARD))
        .meta(key("context_length"), count(CONTEXT))
        .meta(key("attention.layer_norm_epsilon"), Value::F32(1e-12))
        .meta(key("attention.causal"), Value::Bool(false))
        .meta(key("pooling_type"), count(1))
        .text("tokenizer.ggml.model", "bert")
        .strings("tokenizer.ggml.tokens", &pieces)
        .meta("tokenizer.ggml.unknown_token_id", count(1))
        .meta("tokenizer.ggml.cls_token_id", count(2))
        .meta("tokenizer.ggml.seperator_token_id", count(3));
    let mut tensor = |name: String, dims: &[usize], format: Format| {
        let bytes: Vec<f32> = weights(&name, dims.iter().product());
        let bytes = match format {
            Format::F16 => bytes.iter().flat_map(|&x| half::f16::from_f32(x).to_le_bytes()).collect(),
            _ => bytes.iter().flat_map(|x| x.to_le_bytes()).collect(),
        };
        let dims: Vec<u64> = dims.iter().map(|&dim| dim as u64).collect();
        let done = std::mem::take(&mut writer);
        writer = done.tensor(name, &dims, format, bytes);
    };
    tensor("token_embd.weight".into(), &[WIDTH, vocab], format);
    tensor("position_embd.weight".into(), &[WIDTH, CONTEXT], Format::F32);
    tensor("token_types.weight".into(), &[WIDTH, 2], Format::F32);
    let mut norm = |name: String| {
        tensor(format!("{name}.weight"), &[WIDTH], Format::F32);
        tensor(format!("{name}.bias"), &[WIDTH], Format::F32);
    };
    norm("token_embd_norm".into());
    for i in 0..LAYERS {
        norm(format!("blk.{i}.attn_output_norm"));
        norm(format!("blk.{i}.layer_output_norm"));
    }
    for i in 0..LAYERS {
        for (part, rows, columns) in [
            ("attn_q", WIDTH, WIDTH),
            ("attn_k", WIDTH, WIDTH),
            ("attn_v", WIDTH, WIDTH),
            ("attn_output", WIDTH, WIDTH),
            ("ffn_up", FEED_FORWARD, WIDTH),
            ("ffn_down", WIDTH, FEED_FORWARD),
        ] {
            tensor(format!("blk.{i}.{part}.weight"), &[columns, rows], format);
            tensor(format!("blk.{i}.{part}.bias"), &[rows], Format::F32);
        }
    }
    writer
}

fn spelled(piece: &str, spelling: Spelling) -> String {
    match spelling {
        Spelling::Within => piece.to_owned(),
        Spelling::Begin if piece.starts_with('[') && piece.len() > 1 => piece.to_owned(),
        Spelling::Begin => piece.strip_prefix("##").map_or_else(|| format!("\u{2581}{piece}"), str::to_owned),
    }
}

/// Numbers that follow from the name of a tensor: norms around one, all others around zero.
fn weights(name: &str, count: usize) -> Vec<f32> {
    let seed = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let mut random = kernels::cases::Random(seed);
    let norm = name.ends_with("norm.weight");
    (0..count).map(|_| random.float()).map(|x| if norm { 1.0 + 0.25 * x } else { 0.25 * x }).collect()
}
