//! Wire types of every protocol Flint speaks: serde and nothing else.
//!
//! Requests are read field by field from a JSON object ([`Fields`]), so that an error names the field that is wrong and
//! a field nobody knows can be named in a warning. What is sent is plain serde structs, which the client reads back
//! with the same types. Nothing here decides anything.

pub mod chat;
pub mod completions;
pub mod error;
pub mod fields;
pub mod format;
pub mod infill;
pub mod messages;
pub mod ollama;
pub mod prediction;
mod raw;
pub mod responses;
pub mod sampling;
pub mod thinking;

pub use error::{ErrorBody, ErrorPayload};
pub use fields::{FieldError, Fields};
pub use format::Format;
pub use raw::RawJson;
pub use sampling::SamplingFields;
pub use thinking::ThinkingWish;
