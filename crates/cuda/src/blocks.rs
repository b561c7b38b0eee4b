//! The parameter blocks kernels read: they stand in the `.cu` files with the same fields in the same order, so that the two can
//! be laid side by side.

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct SegmentBlock {
    pub weights: u64,
    pub second: u64,
    pub bias: u64,
    pub format: u32,
    pub rows: u32,
    pub tiles: u32,
    pub first_block: u32,
    pub blocks: u32,
    pub output: u32,
}

#[repr(C)]
#[derive(Default)]
pub(crate) struct ProductBlock {
    pub segments: [SegmentBlock; 3],
    pub input: u64,
    pub norm: u64,
    pub output: u64,
    pub candidates: u64,
    pub epsilon: f32,
    pub columns: u32,
    pub supers: u32,
    pub slices: u32,
    pub rows: u32,
    pub input_stride: u32,
    pub output_stride: u32,
    pub padding: u32,
}

#[repr(C)]
#[derive(Default)]
pub(crate) struct ProductBatchBlock {
    pub segments: [SegmentBlock; 3],
    pub input: u64,
    pub output: u64,
    pub candidates: u64,
    pub supers: u32,
    pub rows: u32,
    pub output_stride: u32,
    pub splits: u32,
    pub wave: u32,
    pub columns: u32,
    pub chosen: u64,
    pub slice_rows: u32,
    pub used: u32,
}

#[repr(C)]
pub(crate) struct ReadyBlock {
    pub input: u64,
    pub output: u64,
    pub scales: u64,
    pub columns: u32,
    pub rows: u32,
    pub format: u32,
    pub padding: u32,
}

#[repr(C)]
pub(crate) struct FloatsBlock {
    pub segments: [SegmentBlock; 3],
    pub input: u64,
    pub scales: u64,
    pub output: u64,
    pub candidates: u64,
    pub columns: u32,
    pub rows: u32,
    pub output_stride: u32,
    pub padding: u32,
}

#[repr(C)]
pub(crate) struct RouteBlock {
    pub input: u64,
    pub norm: u64,
    pub router: u64,
    pub scores: u64,
    pub arrived: u64,
    pub chosen: u64,
    pub shares: u64,
    pub columns: u32,
    pub count: u32,
    pub used: u32,
    pub epsilon: f32,
    pub shared: u32,
    pub padding: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct MixtureBlock {
    pub router: u64,
    pub scores: u64,
    pub gate_bytes: u32,
    pub down_bytes: u32,
    pub count: u32,
    pub used: u32,
    pub known: u32,
    pub down_supers: u32,
    pub down: u64,
    pub down_shared: u64,
}

#[repr(C)]
pub(crate) struct ResidualNormQuantBlock {
    pub x: u64,
    pub partial: u64,
    pub bias: u64,
    pub norm: u64,
    pub squares: u64,
    pub arrived: u64,
    pub output: u64,
    pub epsilon: f32,
    pub columns: u32,
    pub supers: u32,
    pub slices: u32,
    pub rows: u32,
    pub wide: u32,
    pub normed: u64,
    pub shares: u64,
    pub visits: u32,
    pub padding: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct HeadsBlock {
    pub rows: u64,
    pub positions: u64,
    pub tables: u64,
    pub sequences: u64,
    pub cache: u64,
    pub q_norm: u64,
    pub k_norm: u64,
    pub angles: u64,
    pub block_bytes: u64,
    pub layer_offset: u64,
    pub epsilon: f32,
    pub scale: f32,
    pub heads: u32,
    pub kv_heads: u32,
    pub dimensions: u32,
    pub neighbours: u32,
    pub table_stride: u32,
    pub padding: u32,
}

#[repr(C)]
pub(crate) struct AttentionBlock {
    pub heads: HeadsBlock,
    pub output: u64,
    pub partial: u64,
    pub arrived: u64,
    pub store: u32,
    pub rows: u32,
}

#[repr(C)]
pub(crate) struct StoreBlock {
    pub heads: HeadsBlock,
    pub queries: u64,
}

#[repr(C)]
pub(crate) struct FlashBlock {
    pub heads: HeadsBlock,
    pub queries: u64,
    pub tiles: u64,
    pub output: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct EmbedBlock {
    pub table: u64,
    pub tokens: u64,
    pub output: u64,
    pub format: u32,
    pub columns: u32,
    pub supers: u32,
    pub padding: u32,
}

#[repr(C)]
pub(crate) struct ShortlistBlock {
    pub logits: u64,
    pub masks: u64,
    pub asks: u64,
    pub maxima: u64,
    pub output: u64,
    pub vocab: u32,
    pub runs: u32,
    pub words: u32,
    pub stride: u32,
}

#[repr(C)]
pub(crate) struct PickBlock {
    pub candidates: u64,
    pub tokens: u64,
    pub positions: u64,
    pub tickets: u64,
    pub mailbox: u64,
    pub blocks: u32,
    pub padding: u32,
}

#[repr(C)]
pub(crate) struct PlainBlock {
    pub input: u64,
    pub output: u64,
    pub columns: u32,
    pub padding: u32,
}

#[repr(C)]
pub(crate) struct NormBlock {
    pub input: u64,
    pub weight: u64,
    pub output: u64,
    pub epsilon: f32,
    pub columns: u32,
}

#[repr(C)]
pub(crate) struct ExpandBlock {
    pub weights: u64,
    pub output: u64,
    pub format: u32,
    pub rows: u32,
    pub columns: u32,
    pub supers: u32,
    pub step: u32,
    pub offset: u32,
}

#[repr(C)]
pub(crate) struct GemmBlock {
    pub input: u64,
    pub weights: u64,
    pub output: u64,
    pub bias: u64,
    pub m: u32,
    pub n: u32,
    pub k: u32,
    pub output_stride: u32,
    pub each: u32,
    pub kind: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct PackedPartBlock {
    pub weights: u64,
    pub second: u64,
    pub bias: u64,
    pub n: u32,
    pub first: u32,
    pub output: u32,
    pub padding: u32,
}

#[repr(C)]
pub(crate) struct GemmPackedBlock {
    pub parts: [PackedPartBlock; 3],
    pub input: u64,
    pub output: u64,
    pub tiles: u64,
    pub from: u64,
    pub to: u64,
    pub kind: u32,
    pub m: u32,
    pub k: u32,
    pub supers: u32,
    pub used: u32,
    pub output_stride: u32,
    pub each: u32,
    pub padding: u32,
}

#[repr(C)]
pub(crate) struct ChooseBlock {
    pub scores: u64,
    pub chosen: u64,
    pub shares: u64,
    pub rows: u32,
    pub count: u32,
    pub used: u32,
    pub parts: u32,
}

#[repr(C)]
pub(crate) struct SortBlock {
    pub chosen: u64,
    pub slots: u64,
    pub tiles: u64,
    pub visits: u32,
    pub tiles_max: u32,
}

#[repr(C)]
pub(crate) struct AddPartsBlock {
    pub parts: u64,
    pub shares: u64,
    pub x: u64,
    pub columns: u32,
    pub each: u32,
    pub anew: u32,
    pub padding: u32,
}

#[repr(C)]
pub(crate) struct RandomBlock {
    pub output: u64,
    pub chunks: u64,
    pub format: u32,
    pub seed: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct DeltaBlock {
    pub states: u64,
    pub taps: u64,
    pub dt: u64,
    pub a: u64,
    pub norm: u64,
    pub slot_bytes: u64,
    pub layer_offset: u64,
    pub epsilon: f32,
    pub key_heads: u32,
    pub value_heads: u32,
    pub grouped: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct DeltaRowsBlock {
    pub delta: DeltaBlock,
    pub x: u64,
    pub norm: u64,
    pub gates: u64,
    pub mixed: u64,
    pub rates: u64,
    pub ready: u64,
    pub factors: u64,
    pub o: u64,
    pub output: u64,
    pub halves: u64,
    pub positions: u64,
    pub sequences: u64,
    pub runs: u64,
    pub log: u64,
    pub log_bytes: u64,
    pub stride: u32,
    pub rates_stride: u32,
    pub rows: u32,
    pub columns: u32,
    pub epsilon: f32,
    pub padding: u32,
}

#[repr(C)]
pub(crate) struct DeltaSettleBlock {
    pub delta: DeltaBlock,
    pub log: u64,
    pub layer_bytes: u64,
    pub log_bytes: u64,
    pub log_layer: u64,
    pub from: u32,
    pub to: u32,
    pub first: u32,
    pub kept: u32,
    pub start: u32,
    pub padding: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct DeltaPhaseBlock {
    pub delta: DeltaBlock,
    pub output: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct DeltaSlotsBlock {
    pub runs: u64,
    pub slot_bytes: u64,
    pub heads: u32,
    pub padding: u32,
}

#[repr(C)]
pub(crate) struct ScaleRowsBlock {
    pub input: u64,
    pub gate: u64,
    pub x: u64,
    pub rows: u32,
    pub columns: u32,
    pub width: u32,
    pub padding: u32,
}
