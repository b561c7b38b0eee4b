//! What a phase is for one block: the entries that `kernels/decode_persistent.cu` reads, and how tiles are shared out.

use super::products;
use crate::memory::Plain;

/// How shared memory is cut up for the weights that warps wait for; see `kernels/ring.cuh`.
#[derive(Clone, Copy)]
pub(super) struct Ring {
    /// A warp's share of a slot.
    pub slot_bytes: usize,
    /// Slots.
    pub depth: usize,
    /// Most super-blocks whose columns a warp keeps in registers.
    width: usize,
    /// Bytes that the copy engine is asked for at once, and where layers are large.
    pieces: [usize; 2],
}

impl Ring {
    /// Three chunks of four bits, which is half a row of the 1.5B, or two of six.
    const DENSE: Ring = Ring { slot_bytes: 1728, depth: 6, width: 3, pieces: [864, 2560] };
    /// Four chunks of four bits or three of six: half a row of the 30B-A3B, and all of an expert's.
    const MIXED: Ring = Ring { slot_bytes: 2560, depth: 4, width: 4, pieces: [1728; 2] };

    pub fn new(experts: bool) -> Ring {
        if experts { Ring::MIXED } else { Ring::DENSE }
    }

    /// Most super-blocks of a part.
    pub fn width(&self, chunk: usize) -> usize {
        self.width.min(self.slot_bytes / chunk)
    }

    /// What kernels of a model with rows this wide are compiled with.
    ///
    /// Memory gives most in pieces of 8 KB, and answers whoever looks for a result soonest where they are small. A layer of the 1.5B
    /// waits for results, one of the 7B for weights. Its rows are long too: a warp looks for two super-blocks ahead.
    pub fn definitions(&self, columns: usize) -> [String; 5] {
        let Ring { slot_bytes, depth, width, pieces } = *self;
        let large = columns > LARGE_COLUMNS;
        let (piece, ahead) = (pieces[usize::from(large)], if large { 2 } else { 1 });
        [("SLOT_BYTES", slot_bytes), ("DEPTH", depth), ("WIDTH", width), ("PIECE", piece), ("AHEAD", ahead)]
            .map(|(name, value)| format!("{name}={value}"))
    }
}

/// Rows wider than this belong to large layers.
const LARGE_COLUMNS: usize = 2048;

/// `Job` in `kernels/persistent_phase.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct JobBlock {
    pub kind: u32,
    pub format: u32,
    pub input_mark: u32,
    pub input_step: u32,
    pub output_mark: u32,
    pub output_step: u32,
    pub input: u64,
    pub norm: u64,
    pub bias: u64,
    pub output: u64,
    pub candidates: u64,
    pub tiles: u32,
    pub rows: u32,
    pub first_row: u32,
    pub columns: u32,
    pub supers: u32,
    pub slices: u32,
    pub epsilon: f32,
    pub wide: u32,
    pub slot: u32,
    pub chooses: u32,
    pub whole: u32,
    pub phase: u32,
    pub turn: u32,
    pub apart: u32,
    pub waits: u32,
    pub stages: u32,
    pub begin: u32,
    pub coming: u32,
    pub dots: u64,
}

/// `Stretch` in `kernels/ring.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct StretchBlock {
    pub weights: u64,
    pub second: u64,
    pub tiles: u16,
    pub matrix_tiles: u16,
    pub supers: u16,
    pub chunk: u16,
    pub width: u16,
    pub rounds: u16,
    pub rest: u16,
    pub group: u16,
}

impl StretchBlock {
    /// Its tiles in parts of `width` super-blocks, for the warps to share, or as a whole.
    pub fn deal(&mut self, supers: usize, width: Option<usize>, chunk: usize) {
        let warps = products::WARPS;
        let parts = width.map_or(0, |width| supers.div_ceil(width));
        let rounds = if parts > warps { parts / warps } else { 0 };
        let rest = parts - rounds * warps;
        (self.supers, self.chunk, self.width) = (supers as u16, chunk as u16, width.unwrap_or(supers) as u16);
        (self.rounds, self.rest) = (rounds as u16, rest as u16);
        self.group = warps.checked_div(rest).unwrap_or(0) as u16;
    }

    /// In how many stages all of it comes.
    pub fn stages(&self, ring: Ring) -> u32 {
        let [tiles, supers, chunk, rounds] = [self.tiles, self.supers, self.chunk, self.rounds].map(usize::from);
        let stages = match (rounds, usize::from(self.group)) {
            (0, 0) => tiles.div_ceil(products::WARPS) * supers.div_ceil(ring.slot_bytes / chunk),
            (_, 0) => rounds * tiles,
            (_, group) => rounds * tiles + tiles.div_ceil(group),
        };
        stages as u32
    }
}

// SAFETY: numbers without padding.
unsafe impl Plain for JobBlock {}
// SAFETY: numbers without padding.
unsafe impl Plain for StretchBlock {}

/// Tiles `first..first + count` of something.
pub(super) struct Tiles {
    pub first: u32,
    pub count: u32,
}

/// The share of one of `blocks` blocks.
pub(super) fn share(tiles: u32, own: u32, blocks: u32) -> Tiles {
    if own >= blocks {
        return Tiles { first: 0, count: 0 };
    }
    let first = tiles * own / blocks;
    Tiles { first, count: tiles * (own + 1) / blocks - first }
}

/// A share where no block has more than an even one rounded up. What that leaves over is spared the first blocks, `light` of them before all others and down to `least`: attention over few positions is theirs,
/// and their ring holds keys and values meanwhile.
pub(super) fn uneven_share(tiles: u32, blocks: u32, own: u32, light: u32, least: u32) -> Tiles {
    let (each, light) = (tiles.div_ceil(blocks), light.clamp(1, blocks.div_ceil(2)));
    let spared = (each * blocks - tiles) / light;
    let spared = spared.min(each - least);
    let rest = each * blocks - tiles - spared * light;
    let count = |block: u32| {
        if block < light { each - spared } else { each - u32::from(block - light < rest) }
    };
    Tiles { first: (0..own).map(count).sum(), count: count(own) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts_have_a_warp() {
        // Output of the 1.5B, that of the 7B, its down, and one whose parts are just two rounds.
        let ring = Ring::new(false);
        for (supers, chunk, expected) in
            [(6, 576, (0, 2, 8, 1)), (14, 576, (0, 5, 3, 3)), (74, 848, (2, 5, 3, 17)), (96, 576, (2, 0, 0, 14))]
        {
            let mut stretch = StretchBlock { tiles: 7, ..StretchBlock::default() };
            stretch.deal(supers, Some(ring.width(chunk)), chunk);
            assert_eq!(
                (stretch.rounds, stretch.rest, stretch.group, stretch.stages(ring)),
                expected,
                "{supers} super-blocks"
            );
        }
        // Logits of the 7B: eighteen rounds of sixteen tiles, two chunks at a time.
        let mut whole = StretchBlock { tiles: 288, ..StretchBlock::default() };
        whole.deal(14, None, 848);
        assert_eq!((whole.rounds, whole.rest, whole.group, whole.stages(ring)), (0, 0, 0, 18 * 7));
    }

    #[test]
    fn uneven_shares_are_everything_and_none_is_larger() {
        for tiles in [1, 2, 131, 132, 133, 384, 512, 896, 2240, 4736] {
            for (blocks, light, least) in [(132, 2, 0), (132, 4, 1), (132, 64, 0), (108, 1, 1), (1, 2, 0)] {
                let blocks = u32::min(blocks, tiles);
                let mut next = 0;
                for own in 0..blocks {
                    let Tiles { first, count } = uneven_share(tiles, blocks, own, light, least);
                    assert!(first == next && (least..=tiles.div_ceil(blocks)).contains(&count));
                    next = first + count;
                }
                assert_eq!(next, tiles, "{tiles} tiles on {blocks} blocks");
            }
        }
        let of = |own| uneven_share(2240, 132, own, 2, 1);
        assert_eq!([(of(0).first, of(0).count), (of(131).first, of(131).count)], [(0, 15), (2223, 17)]);
    }
}
