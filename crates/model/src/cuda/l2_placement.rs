//! Where the results of single steps stand in memory, chosen by trying.
//!
//! Blocks hand each other a few KB several times a layer (`kernels/ready_bits.cuh` in the crate `cuda`), and all of them read it at the same
//! moment. How evenly that falls on the parts of the second-level cache depends on addresses nobody is told: the same kernel gave
//! 1,735 to 1,875 tokens/s of the 1.5B, 707 to 725 of the 7B and 804 to 843 of the 30B-A3B in places taken at random (H200,
//! 2026-11-17), again and again the same in the same place. So there are several programs at first, and the fastest stays.

use super::Net;
use super::decode::Decode;
use super::recorded::{Shape, is_persistent};
use crate::backend::{BLOCK, Chunk, StateUse, Want};
use ::cuda::Error;
use std::time::{Duration, Instant};

/// Steps that are timed in each place.
const STEPS: usize = 12;
/// How long steps run before the first are timed: a card that rested is slow at first.
const WARMING: Duration = Duration::from_millis(50);
/// No more places are tried when so much time has passed. Steps that take long are not about what blocks hand each other.
const LONGEST: Duration = Duration::from_secs(1);

impl Decode {
    /// Makes what single rows need, so that decoding asks for no memory later: the best of so many places.
    pub fn prepare(&mut self, net: &Net, placements: usize) -> Result<(), Error> {
        if !is_persistent(net, 1) {
            return Ok(());
        }
        for with_logits in [false, true] {
            self.record_persistent(net, Shape::of_persistent(with_logits))?;
        }
        if placements > 1 { self.choose_placement(net, placements) } else { Ok(()) }
    }

    fn choose_placement(&mut self, net: &Net, placements: usize) -> Result<(), Error> {
        let (shape, begun) = (Shape::of_persistent(true), Instant::now());
        while begun.elapsed() < WARMING {
            self.time_steps(net)?;
        }
        // All are kept until the end, so that each is elsewhere.
        let mut tried = Vec::new();
        for placement in 0..placements {
            if placement > 1 && begun.elapsed() > LONGEST {
                break;
            }
            if placement > 0 {
                match self.record_persistent(net, shape) {
                    // What there is will do.
                    Err(Error::OutOfMemory { .. }) => break,
                    written => written?,
                };
            }
            let taken = self.time_steps(net)?;
            tried.extend(self.recorded.remove(&shape).map(|persistent| (taken, persistent)));
        }
        let best = tried.into_iter().min_by_key(|&(taken, _)| taken);
        self.recorded.extend(best.map(|(_, persistent)| (shape, persistent)));
        Ok(())
    }

    /// How long steps take from the first position on. What they leave in the first block of the cache nobody reads.
    fn time_steps(&mut self, net: &Net) -> Result<Duration, Error> {
        const { assert!(STEPS <= BLOCK, "they need one block") };
        let state = net.states.as_ref().map(|_| StateUse { slot: 0, drafted: 0, saves: &[] });
        let first = Chunk { tokens: &[0], start: 0, blocks: &[0], want: Want::Last, state };
        net.device.synchronize()?;
        let begun = Instant::now();
        self.run(net, &[first], true)?;
        for _ in 1..STEPS {
            self.run_on(net, &[first])?;
        }
        net.device.synchronize()?;
        Ok(begun.elapsed())
    }
}
