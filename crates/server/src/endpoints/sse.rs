//! Server-sent events: each whole in one write, several in one write when they are there at once.

use std::convert::Infallible;

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::Stream;

/// An answer that is a stream of events.
pub fn response(chunks: impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static) -> Response {
    streaming("text/event-stream; charset=utf-8", chunks)
}

/// An answer that is a stream of lines, each of them JSON.
pub fn lines(chunks: impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static) -> Response {
    streaming("application/x-ndjson", chunks)
}

fn streaming(
    content_type: &'static str,
    chunks: impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static,
) -> Response {
    let headers = [
        (header::CONTENT_TYPE, content_type),
        (header::CACHE_CONTROL, "no-cache"),
        // Proxies that buffer would turn a stream into a wait.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, Body::from_stream(chunks)).into_response()
}

/// Appends an event with a name.
pub fn write_named(name: &str, data: &str, out: &mut String) {
    out.push_str("event: ");
    out.push_str(name);
    out.push('\n');
    write(data, out);
}

/// Appends an event. JSON has no line breaks of its own.
pub fn write(data: &str, out: &mut String) {
    out.push_str("data: ");
    out.push_str(data);
    out.push_str("\n\n");
}
