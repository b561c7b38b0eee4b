//! A recorded run of launches, started with one call.
//!
//! A step of a small model is 140 dependent kernels of a few microseconds; launching them one by one would take the host
//! longer than the card needs to run them.

use crate::device::{Device, check};
use crate::error::Error;
use crate::memory::Keep;
use cudarc::driver::sys;
use std::sync::Arc;

/// Launches that were recorded, ready to be run any number of times.
pub struct Graph {
    device: Device,
    executable: sys::CUgraphExec,
    /// What the kernels read and write; it must live as long as they may run.
    _held: Vec<Arc<dyn Keep>>,
}

// SAFETY: a handle that any thread may use, one at a time.
unsafe impl Send for Graph {}

impl Graph {
    /// Records what `work` launches, without running it.
    pub fn record(device: &Device, work: impl FnOnce() -> Result<(), Error>) -> Result<Graph, Error> {
        device.inner.bind()?;
        let stream = device.inner.stream;
        *device.recording() = Some(Vec::new());
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream lives as long as the device.
        let begun = check("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(stream, mode) });
        let worked = begun.and_then(|()| work());
        let mut graph = std::ptr::null_mut();
        // SAFETY: the pointer is to a live handle. Ending must happen even when the work failed.
        let ended = check("cuStreamEndCapture", unsafe { sys::cuStreamEndCapture(stream, &mut graph) });
        let held = device.recording().take().unwrap_or_default();
        worked?;
        ended?;
        let mut executable = std::ptr::null_mut();
        // SAFETY: the graph was just recorded; it is not needed once it has been made executable.
        let made = unsafe {
            let made = sys::cuGraphInstantiateWithFlags(&mut executable, graph, 0);
            let _ = sys::cuGraphDestroy(graph);
            made
        };
        check("cuGraphInstantiate", made)?;
        Ok(Graph { device: device.clone(), executable, _held: held })
    }

    /// Runs it after everything asked for before.
    pub fn launch(&self) -> Result<(), Error> {
        self.device.inner.bind()?;
        // SAFETY: the graph is alive, and so is all memory its kernels use.
        check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(self.executable, self.device.inner.stream) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.device.synchronize().is_ok() {
            // SAFETY: the stream is idle, so the graph is not running.
            let _ = unsafe { sys::cuGraphExecDestroy(self.executable) };
        }
    }
}
