//! Storage of cached keys and values, in blocks of 32 positions.
//!
//! All layers and heads of a block stand together, so that a block is copied, saved or dropped as one piece. Inside a
//! head's part, keys stand column by column and values row by row in strips of 64 columns, so that the attention kernel
//! reads both straight on.

use crate::memory::Region;
use half::f16;

/// Positions in a block.
pub const BLOCK: usize = 32;
/// Positions whose attention is summed in one go; partial results are merged span after span.
pub const SPAN: usize = 512;

/// Columns of values that stand together.
pub(crate) const STRIP: usize = 64;

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvType {
    /// Half precision.
    F16,
    /// 8 bits, with one scale per position, head and side.
    Q8,
}

/// Where things stand inside a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvLayout {
    /// Element type.
    pub kind: KvType,
    /// Number of layers.
    pub layers: usize,
    /// KV heads per layer.
    pub heads: usize,
    /// Elements of a head, a multiple of sixteen.
    pub head: usize,
}

impl KvLayout {
    fn element_bytes(&self) -> usize {
        match self.kind {
            KvType::F16 => 2,
            KvType::Q8 => 1,
        }
    }
    /// Offset of the values in a head's part.
    pub(crate) fn values(&self) -> usize {
        BLOCK * self.head * self.element_bytes()
    }
    pub(crate) fn key_scales(&self) -> usize {
        2 * self.values()
    }
    pub(crate) fn value_scales(&self) -> usize {
        self.key_scales() + BLOCK * 4
    }
    /// Place of column `c` of the key at `position`, in elements.
    pub(crate) fn key_at(&self, position: usize, c: usize) -> usize {
        c * BLOCK + position
    }
    /// Place of column `c` of the value at `position`, in elements after [`KvLayout::values`].
    pub(crate) fn value_at(&self, position: usize, c: usize) -> usize {
        let strip = c / STRIP * STRIP;
        strip * BLOCK + position * STRIP.min(self.head - strip) + c - strip
    }
    fn head_bytes(&self) -> usize {
        match self.kind {
            KvType::F16 => self.key_scales(),
            KvType::Q8 => self.value_scales() + BLOCK * 4,
        }
    }
    /// Offset of one head of one layer in a block.
    pub(crate) fn offset(&self, layer: usize, head: usize) -> usize {
        (layer * self.heads + head) * self.head_bytes()
    }
    /// Bytes of a whole block.
    pub fn block_bytes(&self) -> usize {
        self.layers * self.heads * self.head_bytes()
    }
}

/// The cache itself: a fixed number of blocks. Memory is taken from the system as blocks are first written.
pub struct KvStore {
    /// Arrangement of every block.
    pub layout: KvLayout,
    /// Number of blocks.
    pub blocks: usize,
    region: Region,
}

impl KvStore {
    /// Reserves room for `blocks` blocks.
    pub fn new(layout: KvLayout, blocks: usize) -> KvStore {
        assert!(layout.head.is_multiple_of(16), "head size is a multiple of sixteen");
        KvStore { layout, blocks, region: Region::new(blocks * layout.block_bytes()) }
    }

    /// The bytes of a block.
    pub fn block(&self, block: usize) -> &[u8] {
        &self.region.as_slice()[block * self.layout.block_bytes()..][..self.layout.block_bytes()]
    }

    /// The bytes of a block, for writing.
    pub fn block_mut(&mut self, block: usize) -> &mut [u8] {
        let bytes = self.layout.block_bytes();
        &mut self.region.as_mut_slice()[block * bytes..][..bytes]
    }

    /// Copies one block onto another.
    pub fn copy(&mut self, from: usize, to: usize) {
        let bytes = self.layout.block_bytes();
        self.region.as_mut_slice().copy_within(from * bytes..(from + 1) * bytes, to * bytes);
    }

    /// Stores the key and value of one position for all heads of a layer.
    pub fn write(&mut self, layer: usize, block: usize, position: usize, keys: &[f32], values: &[f32]) {
        let layout = self.layout;
        assert!(keys.len() == layout.heads * layout.head && values.len() == keys.len() && position < BLOCK);
        let bytes = self.block_mut(block);
        let heads = keys.chunks_exact(layout.head).zip(values.chunks_exact(layout.head));
        for (h, (key, value)) in heads.enumerate() {
            let part = &mut bytes[layout.offset(layer, h)..][..layout.head_bytes()];
            match layout.kind {
                KvType::F16 => {
                    for c in 0..layout.head {
                        put(part, layout.key_at(position, c) * 2, f16::from_f32(key[c]).to_le_bytes());
                        let at = layout.values() + layout.value_at(position, c) * 2;
                        put(part, at, f16::from_f32(value[c]).to_le_bytes());
                    }
                }
                KvType::Q8 => {
                    let (key_scale, value_scale) = (scale(key), scale(value));
                    for c in 0..layout.head {
                        part[layout.key_at(position, c)] = quant(key[c], key_scale);
                        part[layout.values() + layout.value_at(position, c)] = quant(value[c], value_scale);
                    }
                    put(part, layout.key_scales() + position * 4, key_scale.to_le_bytes());
                    put(part, layout.value_scales() + position * 4, value_scale.to_le_bytes());
                }
            }
        }
    }

    /// Start of one head's part of a block.
    pub(crate) fn pointer(&self, block: usize, layer: usize, head: usize) -> *const u8 {
        assert!(block < self.blocks, "block {block} exists");
        self.region.pointer().wrapping_add(block * self.layout.block_bytes() + self.layout.offset(layer, head))
    }
}

fn put<const N: usize>(part: &mut [u8], at: usize, bytes: [u8; N]) {
    part[at..at + N].copy_from_slice(&bytes);
}

fn scale(values: &[f32]) -> f32 {
    values.iter().fold(0.0f32, |m, x| m.max(x.abs())) / 127.0
}

fn quant(value: f32, scale: f32) -> u8 {
    (if scale == 0.0 { 0.0 } else { value / scale }).round_ties_even() as i8 as u8
}
