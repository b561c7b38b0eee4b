//! A mixture of experts as phases of a persistent step: the scores, gate and up of the chosen experts, and their downs.
//!
//! Which experts these are is known on the card only. So a block's work is cut up for a place among the chosen, not for an
//! expert: blocks are dealt to the places for gate and up, and every block has rows of all downs.

use super::job::{JobBlock, Ring, StretchBlock, Tiles, share};
use super::phase::{Mark, Work};
use super::recorder::{Recorder, input_bytes};
use super::{Kernels, KernelsOptions, persistent, products, room};
use crate::arguments::*;
use crate::blocks::*;
use crate::error::Error;
use crate::memory::Matrix;
use crate::pack;
use kernels::Format;

const ROUTE: u32 = 8;
const EXPERTS: u32 = 9;
const MIX: u32 = 10;
/// Most scores of one block, as `Choice` in `kernels/persistent_experts.cuh` has them.
const SCORES_MAX: usize = 4;
/// Widest row: a super-block for each warp.
const COLUMNS_MAX: usize = products::WARPS * pack::CHUNK_COLUMNS;

/// What the three phases of a layer share.
#[derive(Clone, Copy)]
pub(super) struct Mixture {
    /// Multiprocessors.
    blocks: u32,
    count: u32,
    used: u32,
    columns: u32,
    /// Rows of an expert's gate.
    width: u32,
    epsilon: f32,
    norm: u64,
    gate: u64,
    up: u64,
    down: u64,
    gate_format: Format,
    down_format: Format,
    /// One more that is visited without being chosen: its gate and up.
    shared: Option<[u64; 2]>,
}

/// Twins of the vectors a phase reads and writes.
#[derive(Clone, Copy)]
pub(super) struct Ends {
    input: u64,
    output: u64,
}

impl Kernels {
    /// Whether a step of one row of a model with so many layers, each with a mixture of this shape, can be a persistent step. Every
    /// block must read the residual stream in every layer, see `kernels/ready_bits.cuh`.
    pub fn has_mixtures(&self, layers: usize, columns: usize, width: usize, count: usize, used: usize) -> bool {
        let KernelsOptions { head, heads, kv_heads, shared, .. } = self.options;
        let used = used + usize::from(shared);
        let blocks = self.device.facts().multiprocessors as usize;
        let whole = columns.is_multiple_of(pack::CHUNK_COLUMNS) && width.is_multiple_of(pack::CHUNK_COLUMNS);
        // Blocks that are spared rows of q, k and v have an expert's score.
        let reads = (heads + 2 * kv_heads) * head / pack::TILE_ROWS >= blocks && self.options.attending() <= count
            || blocks.is_multiple_of(used) && width / pack::TILE_ROWS >= blocks / used;
        let fits = || {
            let (input, partial) = shared_bytes(blocks as u32, columns as u32, width as u32, used as u32);
            input + partial + 256 <= persistent::WORK_BYTES_MIN && 6 * layers + 3 <= persistent::PHASES_MAX
        };
        let decode = self.has_experts(count, used.min(count))
            && used <= blocks
            && count <= SCORES_MAX * blocks
            && columns <= COLUMNS_MAX;
        self.persistent.is_some() && whole && decode && reads && fits()
    }

    fn mixture_block(&self, call: &MixtureCall<'_>) -> Result<(Mixture, MixtureBlock, [u64; 2], Arguments), Error> {
        let MixtureCall { gate, up, down, count, used, .. } = *call;
        [gate, up, down].into_iter().for_each(|matrix| self.has(matrix));
        products::same_shape(gate, up)?;
        let (columns, width) = (gate.columns, down.columns);
        assert!(self.has_mixtures(1, columns, width, count, used), "mixtures were checked");
        assert_eq!((gate.rows, down.rows), (count * width, count * columns), "the matrices of all experts");
        assert_eq!(
            (call.norm.0.len(), call.router.len()),
            (columns, (count + usize::from(call.shared.is_some())) * columns),
            "a norm and a router of this width"
        );
        room(call.x, columns, "the residual");
        room(call.gated, (used + usize::from(call.shared.is_some())) * width, "gated rows");
        if let Some(shared) = call.shared {
            assert!(self.options.shared, "kernels were compiled for a shared expert");
            assert!(same_as_others(call, shared), "a shared expert is like the others");
        }
        let blocks = self.device.facts().multiprocessors;
        let mut a = Arguments::default();
        let mixture = Mixture {
            blocks,
            count: count as u32,
            used: used as u32,
            columns: columns as u32,
            width: width as u32,
            epsilon: call.norm.1,
            norm: a.at(call.norm.0.all()),
            gate: a.at(gate.bytes.all()),
            up: a.at(up.bytes.all()),
            down: a.at(down.bytes.all()),
            gate_format: gate.format,
            down_format: down.format,
            shared: call.shared.map(|[gate, up, _]| [gate, up].map(|matrix| a.at(matrix.bytes.all()))),
        };
        let bytes = |matrix: &Matrix| u32::try_from(matrix.bytes() / count).map_err(|_| too_large());
        let params = MixtureBlock {
            router: a.at(call.router.all()),
            scores: 0,
            gate_bytes: bytes(gate)?,
            down_bytes: bytes(down)?,
            count: count as u32,
            used: used as u32,
            known: 0,
            down_supers: pack::supers(width) as u32,
            down: mixture.down,
            down_shared: call.shared.map_or(0, |[_, _, down]| a.at(down.bytes.all())),
        };
        let plain = [a.at(call.x), a.at(call.gated)];
        Ok((mixture, params, plain, a))
    }
}

impl Recorder<'_> {
    /// The three phases of a mixture: norm and scores; the choice, gate and up; down and the residual.
    pub(super) fn add_mixture(&mut self, call: &MixtureCall<'_>) -> Result<(), Error> {
        let (mixture, mut params, [mut x, mut gated], arguments) = self.kernels.mixture_block(call)?;
        let Mixture { columns, width, .. } = mixture;
        let used = mixture.visits();
        let (input_bytes, partial_bytes) = shared_bytes(mixture.blocks, columns, width, used);
        self.input_bytes = self.input_bytes.max(input_bytes);
        self.partial_bytes = self.partial_bytes.max(partial_bytes);
        self.norm_bytes = self.norm_bytes.max(columns as usize * 4);
        self.held.extend(arguments.held);
        params.scores = self.scores()?;
        let (plain_x, plain_gated) = (x, gated);
        let read = self.read(&mut x)?;
        self.push(ROUTE, read, Mark::default(), Work::Mixture(mixture, Ends { input: x, output: 0 }), &params);
        let written = self.write(&mut gated, (used * width) as usize)?;
        let ends = Ends { input: 0, output: gated };
        self.push(EXPERTS, Mark::default(), written, Work::Experts(mixture, ends, params), &params);
        (x, gated) = (plain_x, plain_gated);
        let (read, written) = (self.read(&mut gated)?, self.write(&mut x, columns as usize)?);
        self.push(MIX, read, written, Work::Mixture(mixture, Ends { input: gated, output: x }), &params);
        Ok(())
    }
}

impl Mixture {
    /// Experts a row visits, chosen or not.
    fn visits(&self) -> u32 {
        self.used + u32::from(self.shared.is_some())
    }

    /// The place among the chosen that a block works for, and its tiles of that expert's gate.
    fn gate_share(&self, block: u32) -> (u32, Tiles) {
        let each = self.blocks / self.visits();
        let (slot, own) = (block / each, block % each);
        let blocks = if slot < self.visits() { each } else { 0 };
        (slot, share(self.width / pack::TILE_ROWS as u32, own, blocks))
    }

    /// A block's tiles of every down.
    fn down_share(&self, block: u32) -> Tiles {
        let tiles = self.columns / pack::TILE_ROWS as u32;
        share(tiles, block, self.blocks.min(tiles))
    }

    /// What a phase is for one block. A block reads what others wrote only where others wait for what it writes then:
    /// otherwise it might still be looking for a value when the next one takes its place.
    pub(super) fn on_block(&self, block: u32, job: JobBlock, ends: Ends) -> (JobBlock, StretchBlock) {
        let (slot, gate) = self.gate_share(block);
        let (down, supers) = (self.down_share(block), self.columns / pack::CHUNK_COLUMNS as u32);
        let mut job = JobBlock { input: ends.input, output: ends.output, columns: self.columns, supers, ..job };
        let (rows, each) = (pack::TILE_ROWS as u32, self.width / pack::CHUNK_COLUMNS as u32);
        let (none, ring) = (StretchBlock::default(), Ring::new(true));
        if job.kind == ROUTE {
            job.tiles = u32::from(block < self.count + self.visits() - self.used || gate.count > 0);
            job.wide = is_wide(self.gate_format);
            // What a block does not use is not brought to it.
            job.norm = if job.tiles > 0 { self.norm } else { 0 };
            return (JobBlock { epsilon: self.epsilon, ..job }, none);
        }
        if job.kind == EXPERTS {
            let chooses = u32::from(gate.count + down.count > 0);
            (job.tiles, job.rows, job.first_row) =
                (gate.count, gate.count * rows, slot * self.width + gate.first * rows);
            job = JobBlock { format: self.gate_format.file_id(), slices: supers, slot, chooses, ..job };
            let (chunk, supers) = (pack::chunk_bytes(self.gate_format), supers as usize);
            let skipped = (gate.first as usize * supers * chunk) as u64;
            if gate.count == 0 {
                return (job, none);
            }
            let [first, second] = self.shared.filter(|_| slot == self.used).unwrap_or([self.gate, self.up]);
            let mut stretch = StretchBlock {
                weights: first + skipped,
                second: second + skipped,
                tiles: 2 * gate.count as u16,
                matrix_tiles: gate.count as u16,
                ..none
            };
            stretch.deal(supers, Some(ring.width(chunk)), chunk);
            return (JobBlock { stages: stretch.stages(ring), ..job }, stretch);
        }
        (job.tiles, job.rows, job.first_row) = (down.count, down.count * rows, down.first * rows);
        (job.columns, job.supers, job.slices) = (self.visits() * self.width, self.visits() * each, each);
        job = JobBlock { format: self.down_format.file_id(), wide: is_wide(self.down_format), ..job };
        let (chunk, each) = (pack::chunk_bytes(self.down_format), each as usize);
        // The downs beside each other are one matrix whose columns stand apart; a part is inside one of them.
        let width = (1..=ring.width(chunk)).rev().find(|&width| each.is_multiple_of(width)).unwrap_or(1);
        if down.count == 0 {
            return (job, none);
        }
        let weights = self.down + (down.first as usize * each * chunk) as u64;
        let mut stretch = StretchBlock { weights, tiles: down.count as u16, matrix_tiles: 0, ..none };
        stretch.deal(self.visits() as usize * each, Some(width), chunk);
        (JobBlock { stages: stretch.stages(ring), ..job }, stretch)
    }
}

/// Whether a shared expert has the shapes and formats of those that are chosen.
fn same_as_others(call: &MixtureCall<'_>, shared: [&Matrix; 3]) -> bool {
    let others = [call.gate, call.up, call.down].into_iter().zip(shared);
    others.into_iter().all(|(other, own)| {
        (other.format, other.columns, other.rows) == (own.format, own.columns, own.rows * call.count)
    })
}

fn too_large() -> Error {
    Error::Unsupported("an expert of more than 4 GiB".to_owned())
}

fn is_wide(format: Format) -> u32 {
    u32::from(format.block_elements() == pack::CHUNK_COLUMNS)
}

/// Shared memory of the three phases: quantised input; and sums of super-blocks with what becomes of them.
fn shared_bytes(blocks: u32, columns: u32, width: u32, used: u32) -> (usize, usize) {
    let (blocks, columns, width, used) = (blocks as usize, columns as usize, width as usize, used as usize);
    let (supers, each) = (pack::supers(columns), pack::supers(width));
    let tiles = |rows: usize, blocks: usize| rows.div_ceil(pack::TILE_ROWS).div_ceil(blocks);
    let gate = 2 * tiles(width, (blocks / used).max(1)) * supers * 16;
    let mix = used * tiles(columns, blocks) * (each + 1) * 16;
    // A part has up to four super-blocks.
    (input_bytes(supers.max(used * each), 3), gate.max(mix))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The 30B-A3B on an H200, and a tiny mixture with fewer tiles than blocks.
    const SHAPES: [(u32, u32, u32, u32); 2] = [(128, 8, 2048, 768), (4, 2, 256, 512)];

    fn mixture((count, used, columns, width): (u32, u32, u32, u32)) -> Mixture {
        let (gate, up, down) = (1 << 20, 1 << 30, 1 << 40);
        let (gate_format, down_format) = (Format::Q4_K, Format::Q6_K);
        let (blocks, epsilon, norm) = (132, 1e-6, 0);
        let shared = None;
        Mixture { blocks, count, used, columns, width, epsilon, norm, gate, up, down, gate_format, down_format, shared }
    }

    fn parts_of(shape: (u32, u32, u32, u32), kind: u32) -> Vec<(JobBlock, StretchBlock)> {
        let job = JobBlock { kind, ..JobBlock::default() };
        let ends = Ends { input: 1, output: 2 };
        (0..132).map(|block| mixture(shape).on_block(block, job, ends)).collect()
    }

    #[test]
    fn every_row_of_every_visit_is_one_blocks() {
        for shape in SHAPES {
            let (_, used, columns, width) = shape;
            for (kind, rows) in [(EXPERTS, used * width), (MIX, columns)] {
                let mut written: Vec<u32> =
                    parts_of(shape, kind).iter().flat_map(|(job, _)| job.first_row..job.first_row + job.rows).collect();
                written.sort_unstable();
                assert_eq!(written, (0..rows).collect::<Vec<_>>());
            }
            let bytes = |kind| -> usize {
                let parts = parts_of(shape, kind);
                parts.iter().map(|(_, s)| [s.tiles, s.supers, s.chunk].map(usize::from).iter().product::<usize>()).sum()
            };
            let (columns, width, used) = (columns as usize, width as usize, used as usize);
            let tile = |format, columns| pack::tile_bytes(format, columns);
            assert_eq!(bytes(EXPERTS), 2 * used * width / 4 * tile(Format::Q4_K, columns));
            assert_eq!(bytes(MIX), used * columns / 4 * tile(Format::Q6_K, width));
        }
    }

    #[test]
    fn whoever_reads_is_waited_for() {
        for shape in SHAPES {
            let (route, experts, mix) = (parts_of(shape, ROUTE), parts_of(shape, EXPERTS), parts_of(shape, MIX));
            for block in 0..132 {
                let (reads_row, chooses) = (route[block].0.tiles > 0, experts[block].0.chooses > 0);
                let (gates, mixes) = (experts[block].0.tiles > 0, mix[block].0.tiles > 0);
                assert_eq!(reads_row, gates || block < shape.0 as usize, "block {block}");
                assert_eq!(chooses, gates || mixes, "block {block}");
            }
        }
    }

    #[test]
    fn a_part_of_the_downs_is_inside_one() {
        for (shape, width, parts) in [(SHAPES[0], 3, 8), (SHAPES[1], 2, 2), ((8, 4, 2048, 1792), 1, 28)] {
            let stretch = parts_of(shape, MIX)[0].1;
            assert_eq!((stretch.width, stretch.rounds * 16 + stretch.rest), (width, parts), "{shape:?}");
        }
    }
}
