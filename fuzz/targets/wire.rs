//! What clients send: bodies of every endpoint and messages on the WebSocket.
#![no_main]

use api::Fields;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(fields) = serde_json::from_slice::<Fields>(bytes) else { return };
    let _ = api::responses::ClientMessage::read(fields.clone());
    let _ = api::responses::CreateResponse::read(fields.clone());
    let _ = api::chat::ChatRequest::read(fields.clone());
    let _ = api::messages::MessagesRequest::read(fields.clone());
    let _ = api::completions::CompletionRequest::read(fields.clone());
    let _ = api::infill::InfillRequest::read(fields);
});
