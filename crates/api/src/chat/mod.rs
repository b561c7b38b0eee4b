//! Chat Completions: what a client sends, what comes back whole, and what comes back as a stream.

pub mod message;
pub mod request;
pub mod response;
mod tools;

pub use message::{ChatMessage, PastCall};
pub use request::ChatRequest;
pub use response::{
    ChatCall, ChatChoice, ChatChunk, ChatChunkChoice, ChatCompletion, ChatDelta, ChatLogProbs, ChatUsage, CustomCall,
    FunctionCall, PromptDetails, TextChoice, TextCompletion, TextLogProbs,
};
pub use tools::read_tools;
