//! The Responses API: what a client sends, what comes back whole, and what comes back as a stream.
//!
//! One vocabulary serves HTTP, server-sent events and the WebSocket; the latter adds the messages of [`socket`].

pub mod event;
pub mod input;
pub mod output;
pub mod request;
pub mod resource;
pub mod socket;
pub mod tool;

pub use event::{Event, EventKind};
pub use input::{Content, InputItem, Role, ToolOutput};
pub use output::{LogProb, OutputItem, OutputText, ReasoningText, Status, SummaryText, TopLogProb};
pub use request::{CreateResponse, Reasoning, TextFormat, TextSettings};
pub use resource::{Flint, IncompleteDetails, Response, ResponseError, Timings, Usage};
pub use socket::{ClientMessage, Steer};
pub use tool::{CustomFormat, Tool, ToolChoice};
