//! What a recorded step of few rows depends on, and how it is started.

use super::Net;
use crate::config::Config;
use ::cuda::{Graph, PersistentStep};

/// How a step is started.
pub(super) enum Recorded {
    /// Kernel by kernel: it came once, and recording takes longer than that, milliseconds.
    Once,
    Graph(Graph),
    Persistent(Box<PersistentStep>),
}

/// What a recorded step depends on.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Shape {
    pub rows: usize,
    pub sequences: usize,
    /// Every row has its own sequence.
    pub apart: bool,
    /// All rows are of one sequence, in which they follow each other.
    pub following: bool,
    pub with_logits: bool,
    /// A power of two that no row's positions exceed; the largest for a persistent step, which looks for itself.
    pub length_max: usize,
}

/// Shortest and longest of [`Shape::length_max`]: from the longest on attention is cut into as many parts as it can be, and they
/// are too long for rows to share them.
pub(super) const LENGTHS: (usize, usize) = (256, 1 << 15);

impl Shape {
    pub fn of_persistent(with_logits: bool) -> Shape {
        Shape { rows: 1, sequences: 1, apart: true, following: false, with_logits, length_max: LENGTHS.1 }
    }
}

/// Whether a step of so many rows is one kernel.
pub(super) fn is_persistent(net: &Net, rows: usize) -> bool {
    let (Config { embedding, feed_forward, layers, experts, delta_net, .. }, kernels) = (&net.config, &net.kernels);
    let has = match experts {
        Some(e) => {
            net.weights.layers.iter().all(|layer| layer.is_alike())
                && kernels.has_mixtures(*layers, *embedding, *feed_forward, e.count, e.used)
        }
        None => kernels.has_persistent(*embedding, *feed_forward, *layers),
    };
    rows == 1 && has && delta_net.as_ref().is_none_or(|delta| kernels.has_states(delta.value_heads))
}
