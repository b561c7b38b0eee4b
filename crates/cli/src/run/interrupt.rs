//! Ctrl-C: stops the answer that is being made, and the program when there is none.
//!
//! The handler cancels through the engine, so the reader simply sees its stream end and nothing polls a flag. A second
//! Ctrl-C, or one while loading or waiting for input, ends the program at once.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use engine::{EngineHandle, RequestId};

use super::EXIT_INTERRUPTED;

/// What Ctrl-C would stop.
type Target = Arc<Mutex<Option<(EngineHandle, RequestId)>>>;

/// The program's answer to Ctrl-C.
pub struct Interrupt {
    target: Target,
}

impl Interrupt {
    /// Takes over Ctrl-C for the rest of the program. Once only.
    pub fn install() -> anyhow::Result<Interrupt> {
        let target = Target::default();
        let shared = Arc::clone(&target);
        let handler = move || match take(&shared) {
            Some((engine, id)) => engine.cancel(id),
            None => std::process::exit(i32::from(EXIT_INTERRUPTED)),
        };
        ctrlc::set_handler(handler).context("cannot handle Ctrl-C")?;
        Ok(Interrupt { target })
    }

    /// Until the result is dropped, Ctrl-C cancels this request.
    pub fn watch(&self, engine: &EngineHandle, id: RequestId) -> Watch {
        *self.target.lock().unwrap_or_else(PoisonError::into_inner) = Some((engine.clone(), id));
        Watch { target: Arc::clone(&self.target) }
    }
}

/// While this lives, Ctrl-C cancels a request.
pub struct Watch {
    target: Target,
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(take(&self.target));
    }
}

/// Takes the target out in a statement of its own, so that the lock is not held while it is used or dropped.
fn take(target: &Target) -> Option<(EngineHandle, RequestId)> {
    target.lock().unwrap_or_else(PoisonError::into_inner).take()
}
