//! What a client says on a WebSocket.

use serde_json::Value;

use super::request::CreateResponse;
use crate::fields::{FieldError, Fields};

/// One message of a client.
#[derive(Clone, Debug)]
pub enum ClientMessage {
    /// Start a response.
    Create(Box<Create>),
    /// Stop one.
    Cancel {
        /// Which; the lane's running one when absent.
        response_id: Option<String>,
        /// On which lane.
        stream_id: Option<String>,
    },
    /// Redirect one while it runs.
    Steer(Steer),
}

/// A response to start.
#[derive(Clone, Debug)]
pub struct Create {
    /// What over HTTP would be the body.
    pub request: CreateResponse,
    /// False only reads the prompt, so that the next request starts at once.
    pub generate: bool,
    /// The lane; the default one when absent.
    pub stream_id: Option<String>,
}

/// New input for a response that is running.
#[derive(Clone, Debug)]
pub struct Steer {
    /// The running response.
    pub previous_response_id: String,
    /// What to say: a text or items.
    pub input: Value,
    /// The lane it runs on, when the client names one.
    pub stream_id: Option<String>,
}

/// Longest name of a lane.
pub const STREAM_ID_BYTES_MAX: usize = 256;

impl ClientMessage {
    /// Reads a message.
    pub fn read(mut fields: Fields) -> Result<Self, FieldError> {
        let kind: String = fields.need("type")?;
        let stream_id: Option<String> = fields.take("stream_id")?;
        if let Some(name) = &stream_id
            && !is_lane_name(name)
        {
            let rule = format!("must be 1 to {STREAM_ID_BYTES_MAX} letters, digits, `_`, `.` or `-`");
            return Err(FieldError::new("stream_id", rule));
        }
        match kind.as_str() {
            "response.create" => {
                let generate = fields.take("generate")?.unwrap_or(true);
                let request = CreateResponse::read(fields)?;
                Ok(Self::Create(Box::new(Create { request, generate, stream_id })))
            }
            "response.cancel" => Ok(Self::Cancel { response_id: fields.take("response_id")?, stream_id }),
            "response.steer" => {
                let previous_response_id = fields.need("previous_response_id")?;
                Ok(Self::Steer(Steer { previous_response_id, input: fields.need("input")?, stream_id }))
            }
            other => {
                let known = "response.create, response.cancel or response.steer";
                Err(FieldError::new("type", format!("must be {known}, not {other:?}")))
            }
        }
    }
}

fn is_lane_name(name: &str) -> bool {
    let letters = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
    letters && (1..=STREAM_ID_BYTES_MAX).contains(&name.len())
}
