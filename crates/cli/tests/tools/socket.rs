//! A model that answers whole texts over a WebSocket.

use futures_util::SinkExt;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

/// Answers a request on the stream it names; nothing when the client has left.
pub async fn answer(socket: &mut WebSocketStream<TcpStream>, request: &Value, id: &str, text: &str) -> Option<()> {
    let item = json!({"type": "message", "id": "m", "status": "completed", "role": "assistant",
        "content": [{"type": "output_text", "text": text}]});
    let events = [
        json!({"type": "response.created", "sequence_number": 0, "response": {"id": id, "status": "in_progress"}}),
        json!({"type": "response.output_text.delta", "sequence_number": 1, "item_id": "m", "output_index": 0,
            "content_index": 0, "delta": text}),
        json!({"type": "response.completed", "sequence_number": 2,
            "response": {"id": id, "status": "completed", "output": [item]}}),
    ];
    for mut event in events {
        if !request["stream_id"].is_null() {
            event["stream_id"] = request["stream_id"].clone();
        }
        socket.send(Message::text(event.to_string())).await.ok()?;
    }
    Some(())
}
