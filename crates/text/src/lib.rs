//! Text on one side, token ids on the other.
//!
//! - [`Tokenizer`] turns text into ids, with the vocabulary, merges and pre-tokeniser of a GGUF file. Its ids equal
//!   llama.cpp's, also for broken UTF-8.
//! - [`WordPiece`] does the same for the models that embed texts.
//! - [`Detokenizer`] turns ids back into text as they come, never half a character.
//! - [`ChatTemplate`] writes a conversation the way the model was trained to read it.
//! - [`PromptWriter`] makes a prompt of it: exact ids, no token faked by anyone, and only new text encoded.
//! - [`AnswerParser`] reads the model's answer: text, thoughts and tool calls, as they come.
//! - [`write_infill`] asks for the text in a gap.
//! - [`grammar`] says which tokens may come next, so that answers fit a schema and calls fit their tool.
//!
//! The crate stays below sockets and requests and above the engine, which knows only tokens. Nothing here is async;
//! callers run it off their network threads.
//!
//! ```no_run
//! use text::{ChatRequest, ChatTemplate, Detokenizer, Message, ShowSpecial, Special, Tokenizer};
//!
//! let gguf = model::gguf::Gguf::open("model.gguf".as_ref())?;
//! let tokenizer = Tokenizer::from_gguf(&gguf)?;
//! let template = ChatTemplate::new(tokenizer.vocabulary())?;
//! let messages = [Message::user("Write a haiku about compilers.")];
//! let prompt = template.render(&ChatRequest::new(&messages))?;
//! let ids = tokenizer.encode(&prompt, Special::Parse);
//!
//! let mut text = Detokenizer::new(tokenizer.vocabulary().clone(), ShowSpecial::Hide);
//! for id in ids {
//!     print!("{}", text.push(id));
//! }
//! println!("{}", text.flush());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod tokenizer;
mod words;

mod bpe;
mod merge;
mod pieces;
mod special;
mod table;

mod alphabet;
mod special_names;
mod unicode;
mod vocabulary;
mod wordpiece;

mod answer;
mod chat;
pub mod confined;
mod dialect;
mod infill;
mod prompt;

mod detokenizer;
mod error;
pub mod grammar;

pub use answer::{AnswerOptions, AnswerParser, Part, Reasoning, ToolKind, ToolName};
pub use chat::{ChatRequest, ChatTemplate, FunctionCall, Message, TemplateSource, ToolCall, ToolResponse};
pub use detokenizer::{Detokenizer, ShowSpecial};
pub use dialect::{Dialect, MARK};
pub use error::TextError;
pub use infill::{ExtraFile, Infill, write_infill};
pub use prompt::{Opening, PromptWriter, Thinking, Thoughts, Wish, Written};
pub use tokenizer::{Special, Tokenizer};
pub use vocabulary::{SpecialIds, TokenKind, Vocabulary};
pub use wordpiece::WordPiece;
pub use words::PreTokenizer;
