//! A run and the one who reads it.
//!
//! When the reader goes away in the middle, a response that is stored is parked with the events it was told, so that the
//! same reader can come back for the rest. The events of one that ended are kept a while, for a reader that missed the
//! last of them. A response that is not stored just ends.

use std::sync::Arc;

use axum::extract::ws::Utf8Bytes;

use super::run::{Run, Stop};
use super::socket::json;
use crate::sessions::turn::Turn;
use crate::shared::Shared;

/// A run with a reader.
pub struct Watched {
    shared: Arc<Shared>,
    run: Option<Run>,
    told: Vec<Utf8Bytes>,
}

impl Watched {
    /// TokenHealing to read.
    pub fn new(shared: &Arc<Shared>, run: Run) -> Self {
        Self { shared: Arc::clone(shared), run: Some(run), told: Vec::new() }
    }

    /// The next event as JSON; `None` after the last.
    pub async fn next(&mut self) -> Option<Utf8Bytes> {
        let run = self.run.as_mut()?;
        let event = run.next().await?;
        Some(Self::tell(run, &mut self.told, &event))
    }

    /// An event that is there already.
    pub fn ready(&mut self) -> Option<Utf8Bytes> {
        let run = self.run.as_mut()?;
        let event = run.ready()?;
        Some(Self::tell(run, &mut self.told, &event))
    }

    fn tell(run: &Run, told: &mut Vec<Utf8Bytes>, event: &api::responses::Event) -> Utf8Bytes {
        let event = json(event);
        if run.response().store {
            told.push(event.clone());
        }
        event
    }

    /// Ends the run at the next token.
    pub fn stop(&mut self, why: Stop) {
        if let Some(run) = &mut self.run {
            run.stop(why);
        }
    }

    /// The link for later requests, once the run has ended.
    pub fn turn(&self) -> Option<&Arc<Turn>> {
        self.run.as_ref().and_then(Run::turn)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let (Some(run), told) = (self.run.take(), std::mem::take(&mut self.told)) else { return };
        if run.is_ended() {
            if run.response().store {
                self.shared.live.keep(&run, told);
            }
            return;
        }
        self.shared.metrics.interrupted();
        if run.response().store && !self.shared.is_closing() {
            self.shared.live.park(run, told);
        }
    }
}
