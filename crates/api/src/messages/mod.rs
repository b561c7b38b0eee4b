//! Anthropic's Messages: what a client sends and what comes back, whole and as a stream.

pub mod request;
pub mod response;

pub use request::MessagesRequest;
pub use response::{Block, BlockDelta, MessageBody, MessageDelta, MessageEvent, MessagesError, MessagesUsage};
