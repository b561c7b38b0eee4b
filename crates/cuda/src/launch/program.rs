//! A whole step of one row as one kernel: calls are written down as a list that the kernel `token` works through.
//!
//! The list holds the very parameter blocks that the kernels of a graph would get, so the two ways cannot drift apart.

use super::{Kernels, KernelsOptions, Module, products};
use crate::arguments::Arguments;
use crate::device::{Call, Function, Start};
use crate::error::Error;
use crate::memory::{Buffer, Keep};
use crate::{Device, pack};
use kernels::Format;
use std::sync::Arc;

/// Shared memory for weights under way; the rest of a multiprocessor's is for everything else.
const RING_BYTES: usize = 168 << 10;
/// Bytes of an entry of the list: its kind in the first 16, then the parameter block.
const OP_BYTES: usize = 224;
/// Widest row a norm may have: three super-blocks for each warp.
const NORM_COLUMNS_MAX: usize = 3 * products::WARPS * pack::CHUNK_COLUMNS;

/// Bytes of a pair of chunks, and how many of them each warp has under way.
pub(super) fn ring(formats: &[Format]) -> (usize, usize) {
    let pair = 2 * formats.iter().map(|&format| pack::chunk_bytes(format)).max().unwrap_or(16);
    (pair, RING_BYTES / (products::WARPS * pair))
}

/// The kernel and its counters.
pub(super) struct TokenKernel {
    function: Function,
    barrier: Buffer<u32>,
    ring_bytes: usize,
    /// What attention keeps in shared memory, as `AttentionShared` in `attention.cuh`.
    attention_bytes: usize,
}

impl TokenKernel {
    pub fn new(device: &Device, module: &Module, options: &KernelsOptions) -> Result<TokenKernel, Error> {
        let (pair, depth) = ring(&options.formats);
        let (group, head) = (options.group(), options.head);
        Ok(TokenKernel {
            // The kernel has a little fixed shared memory, which counts against the most it may ask for.
            function: module.function_with("token", device.facts().shared_bytes - 2048)?,
            barrier: Buffer::zeroed(device, 2)?,
            ring_bytes: products::WARPS * pair * depth,
            attention_bytes: group * (head + 128 + 3 + 8 * head) * 4 + 16,
        })
    }
}

/// What was asked for so far.
#[derive(Default)]
pub(super) struct Script {
    ops: Vec<u8>,
    kept: Vec<Arc<dyn Keep>>,
    shared_bytes: usize,
}

impl Script {
    pub fn add<P>(
        &mut self,
        name: &'static str,
        grid: (u32, u32, u32),
        shared_bytes: usize,
        arguments: Arguments,
        params: &P,
    ) -> Result<(), Error> {
        let kind: u32 = match name {
            "embed" => 0,
            "product_store" => 1,
            "product_add" => 2,
            "product_gate" => 3,
            "product_logits" => 4,
            "attention" => 5,
            "pick" => 6,
            _ => return Err(Error::Unsupported(format!("`{name}` in a program"))),
        };
        assert!(kind == 5 || grid.1 * grid.2 == 1, "a program is for one row");
        // SAFETY: parameter blocks are `repr(C)` numbers without padding, so all of their bytes are initialised.
        let bytes = unsafe { std::slice::from_raw_parts(std::ptr::from_ref(params).cast::<u8>(), size_of::<P>()) };
        let start = self.ops.len();
        self.ops.extend_from_slice(&kind.to_le_bytes());
        self.ops.resize(start + 16, 0);
        self.ops.extend_from_slice(bytes);
        assert!(self.ops.len() <= start + OP_BYTES, "parameter blocks fit an entry");
        self.ops.resize(start + OP_BYTES, 0);
        self.shared_bytes = self.shared_bytes.max(shared_bytes);
        self.kept.extend(arguments.kept);
        Ok(())
    }
}

/// A list on the card, ready to be worked through any number of times.
pub struct Program {
    device: Device,
    ops: Buffer<u8>,
    count: usize,
    function: Function,
    barrier: u64,
    ring_offset: usize,
    shared_bytes: usize,
    /// Clock readings, when the kernel was compiled to take them.
    times: Option<Buffer<u64>>,
    _kept: Vec<Arc<dyn Keep>>,
}

/// Clock readings of a phase on one block.
pub const READINGS: usize = 6;

#[repr(C)]
struct TokenBlock {
    ops: u64,
    barrier: u64,
    times: u64,
    count: u32,
    ring_offset: u32,
}

impl Kernels {
    /// Whether steps of one row of this width can be programs.
    pub fn has_programs(&self, columns: usize) -> bool {
        self.token.is_some() && columns <= NORM_COLUMNS_MAX
    }

    /// Writes down what `work` asks for, without doing it.
    pub fn program(&self, work: impl FnOnce() -> Result<(), Error>) -> Result<Program, Error> {
        let token = self.token.as_ref().ok_or_else(|| Error::Unsupported("a program".to_owned()))?;
        *self.script() = Some(Script::default());
        let worked = work();
        let script = self.script().take().unwrap_or_default();
        worked?;
        let ring_offset = script.shared_bytes.max(token.attention_bytes).next_multiple_of(128);
        let shared_bytes = ring_offset + token.ring_bytes;
        if shared_bytes > self.device.facts().shared_bytes - 2048 {
            return Err(Error::Unsupported("a program with rows this wide".to_owned()));
        }
        let mut kept = script.kept;
        let barrier = token.barrier.all();
        let allocation: Arc<dyn Keep> = barrier.allocation.clone();
        kept.push(allocation);
        let count = script.ops.len() / OP_BYTES;
        let readings = count * self.device.facts().multiprocessors as usize * READINGS;
        Ok(Program {
            times: self.options.times.then(|| Buffer::zeroed(&self.device, readings)).transpose()?,
            ops: Buffer::new(&self.device, &script.ops)?,
            count,
            device: self.device.clone(),
            function: token.function,
            barrier: barrier.address,
            ring_offset,
            shared_bytes,
            _kept: kept,
        })
    }
}

impl Program {
    /// Clock readings of the last launch, `[phase][block][READINGS]`, when kernels were compiled to take them.
    pub fn times(&self) -> Result<Vec<u64>, Error> {
        let Some(times) = &self.times else { return Ok(Vec::new()) };
        let mut readings = vec![0; times.len()];
        times.read(0, &mut readings)?;
        Ok(readings)
    }

    /// Works through the list after everything asked for before.
    pub fn launch(&self) -> Result<(), Error> {
        let mut a = Arguments::default();
        let params = TokenBlock {
            ops: a.at(self.ops.all()),
            barrier: self.barrier,
            times: self.times.as_ref().map_or(0, |times| a.at(times.all())),
            count: self.count as u32,
            ring_offset: self.ring_offset as u32,
        };
        let call = Call {
            name: "token",
            function: &self.function,
            grid: (self.device.facts().multiprocessors, 1, 1),
            threads: (products::WARPS * 32) as u32,
            shared_bytes: self.shared_bytes,
            start: Start::Together,
        };
        self.device.launch(call, a, &params)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Memory it uses goes with it; nothing may be running on that.
        let _ = self.device.synchronize();
    }
}
