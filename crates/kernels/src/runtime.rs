//! The operations a model is made of, checked on the outside and parallel on the inside.
//!
//! Everything here takes slices, verifies lengths once, cuts the work into chunks and hands raw pointers to the kernel
//! table. Threads write disjoint parts of the outputs; that is the one reason for the unsafe blocks.

use crate::activations::Activations;
use crate::format::Precision;
use crate::kv::{KvStore, SPAN};
use crate::pack::{Layout, Matrix, TILE};
use crate::pool::Pool;
use crate::simd::{HEAD_MAX, Kernels, PARTIAL_HEAD, Product, QUERIES, Span};

/// Kernels and the threads to run them on.
pub struct Runtime {
    pub(crate) kernels: &'static Kernels,
    pub(crate) pool: Pool,
    partials: Vec<f32>,
    units: Vec<Unit>,
}

/// One matrix product of a group that reads the same activations.
pub struct Output<'a> {
    /// Weights.
    pub matrix: &'a Matrix,
    /// Which activation rows are multiplied, and where their results go.
    pub rows: RowMap<'a>,
    /// Result rows, [`output_stride`] floats apart.
    pub out: &'a mut [f32],
}

/// Which activation rows take part in a product and which output rows they give.
#[derive(Clone, Copy)]
pub struct RowMap<'a> {
    /// Rows of the activations.
    pub input: &'a [u32],
    /// Rows of the output, as many.
    pub output: &'a [u32],
}

/// Floats between the rows of an output: whole tiles, so that kernels need no edge case.
pub fn output_stride(matrix_rows: usize) -> usize {
    matrix_rows.next_multiple_of(TILE)
}

/// Query rows of one sequence in a step.
pub struct Queries<'a> {
    /// The sequence's blocks.
    pub blocks: &'a [u32],
    /// Position of the first query.
    pub start: usize,
    /// First row of this sequence in the batch.
    pub row: usize,
    /// Number of rows.
    pub count: usize,
}

/// Shape of an attention step.
#[derive(Clone, Copy)]
pub struct Heads {
    /// Layer whose cache is read.
    pub layer: usize,
    /// Query heads; a multiple of the cache's KV heads.
    pub count: usize,
}

/// A piece of attention work: some rows and heads that share a KV head, over one span or over all.
#[derive(Clone, Copy)]
struct Unit {
    sequence: usize,
    kv_head: usize,
    head: usize,
    heads: usize,
    row: usize,
    rows: usize,
    /// A span and the place of its partial results, when spans are computed apart.
    span: Option<(usize, usize)>,
}

/// Room for the partial results of one unit with the longest head.
const SLOT: usize = QUERIES * (HEAD_MAX + PARTIAL_HEAD);

/// A pointer that threads may share because they write disjoint parts.
#[derive(Clone, Copy)]
pub(crate) struct Shared<T>(pub(crate) *mut T);
// SAFETY: every use writes parts that no other chunk touches.
unsafe impl<T> Sync for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Send for Shared<T> {}

impl<T> Shared<T> {
    pub(crate) fn get(&self) -> *mut T {
        self.0
    }
}

impl Runtime {
    /// Kernels from the table, run by `threads` threads.
    pub fn new(kernels: &'static Kernels, threads: usize) -> Runtime {
        Runtime { kernels, pool: Pool::new(threads), partials: Vec::new(), units: Vec::new() }
    }

    /// Name of the kernels in use.
    pub fn name(&self) -> &'static str {
        self.kernels.name
    }

    /// The weight layout the kernels read.
    pub fn layout(&self) -> Layout {
        self.kernels.layout
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// The threads, for work that is not an operation of a model.
    pub fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// Several products over the same activations, as one piece of parallel work.
    ///
    /// The activations must have been quantised for each matrix's format (see [`Runtime::quantize`]).
    pub fn matmul<'a>(&mut self, x: &'a Activations, outputs: &mut [Output<'a>]) {
        let (mut tiles, mut bytes) = (0, 0);
        let mut products: Vec<(usize, Product<'a>)> = Vec::with_capacity(outputs.len());
        for o in outputs.iter_mut().filter(|o| !o.rows.input.is_empty()) {
            self.check(x, o);
            products.push((tiles, product(o, x)));
            tiles += o.matrix.tiles();
            bytes += o.matrix.bytes().len();
        }
        // About 64 KiB of weights per claim keeps the claiming cheap and the end of the job even. Claims of one thread are
        // neighbours (see `pool`): scattered claims of this size cost a tenth of the bandwidth.
        let chunks = (bytes / (64 << 10)).clamp(4 * self.pool.threads(), 1024).min(tiles);
        let kernel = self.kernels.product;
        self.pool.run(chunks, &|chunk| {
            let (mut from, to) = (chunk * tiles / chunks, (chunk + 1) * tiles / chunks);
            for (first, product) in &products {
                let end = to.min(first + product.matrix.tiles());
                if (*first..end).contains(&from) {
                    // SAFETY: shapes were checked above; chunks own disjoint tiles; the kernels fit this CPU.
                    unsafe {
                        kernel(product, from - first..end - first);
                        scale(product, from - first..end - first);
                    }
                    from = end;
                }
            }
        });
    }

    fn check(&self, x: &Activations, o: &Output<'_>) {
        let last = |rows: &[u32]| rows.iter().max().map_or(0, |&row| row as usize + 1);
        assert_eq!(o.rows.input.len(), o.rows.output.len(), "as many outputs as inputs");
        assert!(last(o.rows.input) * x.columns <= x.values.len(), "input rows exist");
        assert_eq!(o.matrix.columns, x.columns, "inner lengths agree");
        assert_eq!(o.matrix.layout, self.kernels.layout, "weights are packed for these kernels");
        assert!(quantised(x, o.matrix.format.precision()), "row length fits the format");
        assert!(o.out.len() >= last(o.rows.output) * output_stride(o.matrix.rows), "output has room");
    }

    /// Brings `rows` rows into the 8-bit form that weights of `precision` are multiplied with.
    pub fn quantize(&mut self, x: &mut Activations, rows: usize, precision: Precision) {
        let kernels = self.kernels;
        assert!(quantised(x, precision) && rows * x.columns <= x.values.len(), "row length fits the format");
        let (form, kernel) = match precision {
            Precision::Float => return,
            Precision::Small => (&mut x.small, kernels.quantize_small),
            Precision::Super => (&mut x.wide, kernels.quantize_super),
        };
        let (form, values, columns) = (Shared(form), &x.values, x.columns);
        self.each_row(rows, &|row| {
            // SAFETY: rows are disjoint parts of the form, and the form outlives the call.
            unsafe { kernel(&values[row * columns..][..columns], &mut (*form.get()).row(row, columns)) };
        });
    }

    /// Normalises `out.len() / weight.len()` rows of `x` into `out`.
    pub fn rms_norm(&mut self, x: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) {
        let (n, kernel) = (weight.len(), self.kernels.rms_norm);
        self.rows_of(out, n, &|row, out| {
            // SAFETY: the kernels fit this CPU.
            unsafe { kernel(&x[row * n..][..n], weight, epsilon, out) };
        });
    }

    /// `out = silu(gate) * up`, rows of `columns` in `out` and of `stride` in the inputs.
    pub fn silu_multiply(&mut self, gate: &[f32], up: &[f32], stride: usize, columns: usize, out: &mut [f32]) {
        let kernel = self.kernels.silu_multiply;
        self.rows_of(out, columns, &|row, out| {
            let (gate, up) = (&gate[row * stride..][..columns], &up[row * stride..][..columns]);
            // SAFETY: the kernels fit this CPU.
            unsafe { kernel(gate, up, out) };
        });
    }

    /// `out = sigmoid(gate) * up`, likewise.
    pub fn sigmoid_multiply(&mut self, gate: &[f32], up: &[f32], stride: usize, columns: usize, out: &mut [f32]) {
        let kernel = self.kernels.sigmoid_multiply;
        self.rows_of(out, columns, &|row, out| {
            let (gate, up) = (&gate[row * stride..][..columns], &up[row * stride..][..columns]);
            // SAFETY: the kernels fit this CPU.
            unsafe { kernel(gate, up, out) };
        });
    }

    /// Calls `work` for every row of `columns` elements of `data`, in parallel when there are many.
    pub fn rows_of(&mut self, data: &mut [f32], columns: usize, work: &(dyn Fn(usize, &mut [f32]) + Sync)) {
        let rows = data.len() / columns;
        let data = Shared(data.as_mut_ptr());
        self.each_row(rows, &|row| {
            // SAFETY: rows are disjoint and inside the slice, which outlives the call.
            work(row, unsafe { std::slice::from_raw_parts_mut(data.get().add(row * columns), columns) });
        });
    }

    fn each_row(&mut self, rows: usize, work: &(dyn Fn(usize) + Sync)) {
        if rows < 4 { (0..rows).for_each(work) } else { self.pool.run(rows, work) }
    }

    /// Attention of every query row over its sequence's cached positions, itself included.
    ///
    /// `queries` and `out` have `heads.count * head` floats per row; queries are already scaled and rotated.
    pub fn attention(
        &mut self,
        store: &KvStore,
        heads: Heads,
        sequences: &[Queries<'_>],
        queries: &[f32],
        out: &mut [f32],
    ) {
        let (head, width) = (store.layout.head, heads.count * store.layout.head);
        for s in sequences {
            assert!((s.row + s.count) * width <= queries.len().min(out.len()), "rows exist");
            assert!(s.start + s.count <= s.blocks.len() * crate::kv::BLOCK, "blocks cover the sequence");
        }
        self.plan(store, heads, sequences);
        let slot = QUERIES * (head + PARTIAL_HEAD);
        let slots = self.units.iter().filter_map(|u| u.span).map(|(_, at)| at + 1).max().unwrap_or(0);
        self.partials.resize(self.partials.len().max(slots * slot), 0.0);
        let (partials, result) = (Shared(self.partials.as_mut_ptr()), Shared(out.as_mut_ptr()));
        let (units, kernel) = (&self.units, self.kernels.span);
        let task = Task { store, heads, sequences, queries, kernel };
        self.pool.run(units.len(), &|chunk| {
            let unit = &units[chunk];
            match unit.span {
                // SAFETY: each unit has its own slot of the partial results.
                Some((span, at)) => task.one_span(unit, span, unsafe {
                    std::slice::from_raw_parts_mut(partials.get().add(at * slot), slot)
                }),
                None => {
                    let (mut one, mut all) = ([0.0; SLOT], [0.0; SLOT]);
                    task.all_spans(unit, &mut one[..slot], &mut all[..slot]);
                    task.finish(unit, &all[..slot], result.get());
                }
            }
        });
        let mut all = [0.0; SLOT];
        for unit in units {
            // Spans of a unit follow each other, so its partial results are merged in order.
            if let Some((span, at)) = unit.span {
                let one = &self.partials[at * slot..][..slot];
                merge(&mut all[..slot], one, unit.heads * unit.rows, head, span == 0);
                task.finish(unit, &all[..slot], result.get());
            }
        }
    }

    /// Cuts the attention of a step into units; single rows at depth are cut by span as well.
    fn plan(&mut self, store: &KvStore, heads: Heads, sequences: &[Queries<'_>]) {
        assert!(store.layout.head <= HEAD_MAX, "heads of at most {HEAD_MAX} elements");
        self.units.clear();
        let mut slots = 0;
        let group = heads.count / store.layout.heads;
        let (at_once, rows_at_once) = (group.min(QUERIES), (QUERIES / group).max(1));
        for (sequence, s) in sequences.iter().enumerate() {
            for kv_head in 0..store.layout.heads {
                for (first, row) in
                    (0..group).step_by(at_once).flat_map(|h| (0..s.count).step_by(rows_at_once).map(move |r| (h, r)))
                {
                    let (n, rows) = (at_once.min(group - first), rows_at_once.min(s.count - row));
                    let head = kv_head * group + first;
                    let unit = Unit { sequence, kv_head, head, heads: n, row, rows, span: None };
                    let spans = (s.start + row + rows).div_ceil(SPAN);
                    if s.count > 32 || spans == 1 {
                        self.units.push(unit);
                        continue;
                    }
                    for span in 0..spans {
                        self.units.push(Unit { span: Some((span, slots)), ..unit });
                        slots += 1;
                    }
                }
            }
        }
    }
}

fn quantised(x: &Activations, precision: Precision) -> bool {
    match precision {
        Precision::Float => true,
        Precision::Small => !x.small.quants.is_empty(),
        Precision::Super => !x.wide.quants.is_empty(),
    }
}

/// What the threads of an attention step share.
struct Task<'a> {
    store: &'a KvStore,
    heads: Heads,
    sequences: &'a [Queries<'a>],
    queries: &'a [f32],
    kernel: unsafe fn(&Span<'_>, &mut [f32]),
}

impl Task<'_> {
    /// Partial results of one span: per query row the largest score, the weight, and the weighted sum of values.
    fn one_span(&self, unit: &Unit, span: usize, slot: &mut [f32]) {
        let (s, head) = (&self.sequences[unit.sequence], self.store.layout.head);
        let count = unit.rows * unit.heads;
        let mut queries: [&[f32]; QUERIES] = [&[]; QUERIES];
        let mut limits = [0; QUERIES];
        for i in 0..count {
            let (row, h) = (unit.row + i / unit.heads, unit.head + i % unit.heads);
            queries[i] = &self.queries[((s.row + row) * self.heads.count + h) * head..][..head];
            limits[i] = s.start + row + 1;
        }
        let span = Span {
            layout: &self.store.layout,
            queries: &queries[..count],
            limits: &limits[..count],
            blocks: &|i| self.store.pointer(s.blocks[i] as usize, self.heads.layer, unit.kv_head),
            start: span * SPAN,
        };
        // SAFETY: the kernels fit this CPU, and the sequence's blocks cover every limit.
        unsafe { (self.kernel)(&span, slot) };
    }

    /// The same over all spans, merged in order.
    fn all_spans(&self, unit: &Unit, one: &mut [f32], all: &mut [f32]) {
        let s = &self.sequences[unit.sequence];
        for span in 0..(s.start + unit.row + unit.rows).div_ceil(SPAN) {
            self.one_span(unit, span, one);
            merge(all, one, unit.rows * unit.heads, self.store.layout.head, span == 0);
        }
    }

    /// Writes the finished rows of a unit.
    fn finish(&self, unit: &Unit, slot: &[f32], out: *mut f32) {
        let (s, head) = (&self.sequences[unit.sequence], self.store.layout.head);
        for (i, row) in slot.chunks_exact(head + PARTIAL_HEAD).take(unit.rows * unit.heads).enumerate() {
            let at = ((s.row + unit.row + i / unit.heads) * self.heads.count + unit.head + i % unit.heads) * head;
            // SAFETY: rows and heads of units are disjoint and were checked to be inside the output.
            let out = unsafe { std::slice::from_raw_parts_mut(out.add(at), head) };
            let scale = 1.0 / row[1];
            out.iter_mut().zip(&row[PARTIAL_HEAD..]).for_each(|(o, x)| *o = x * scale);
        }
    }
}

/// Adds the partial results of the next span to those of the spans before it.
fn merge(all: &mut [f32], one: &[f32], count: usize, head: usize, first: bool) {
    if first {
        return all.copy_from_slice(one);
    }
    for (a, b) in all.chunks_exact_mut(head + PARTIAL_HEAD).zip(one.chunks_exact(head + PARTIAL_HEAD)).take(count) {
        let largest = a[0].max(b[0]);
        let (scale_a, scale_b) = ((a[0] - largest).exp(), (b[0] - largest).exp());
        a[0] = largest;
        a[1..].iter_mut().zip(&b[1..]).for_each(|(a, b)| *a = *a * scale_a + b * scale_b);
    }
}

/// Multiplies the results of some tiles with the matrix's scale, where it has one.
///
/// # Safety
///
/// As for the kernel that computed them.
unsafe fn scale(p: &Product<'_>, tiles: std::ops::Range<usize>) {
    if p.matrix.scale == 1.0 {
        return;
    }
    for &row in p.output_rows {
        // SAFETY: rows of the output hold whole tiles, and these tiles' columns are this chunk's alone.
        let results = unsafe {
            let first = p.output.add(row as usize * p.output_stride + tiles.start * TILE);
            std::slice::from_raw_parts_mut(first, tiles.len() * TILE)
        };
        results.iter_mut().for_each(|result| *result *= p.matrix.scale);
    }
}

/// The raw form of one output.
fn product<'a>(o: &mut Output<'a>, x: &'a Activations) -> Product<'a> {
    Product {
        matrix: o.matrix,
        input: x,
        input_rows: o.rows.input,
        output_rows: o.rows.output,
        output: o.out.as_mut_ptr(),
        output_stride: output_stride(o.matrix.rows),
    }
}
