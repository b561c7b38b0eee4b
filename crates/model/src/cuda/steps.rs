//! How a batch becomes steps: the length of a chunk decides its kind of step, and chunks of one kind are computed together.

use super::CudaModel;
use super::rows::{StepKind, groups, runs, wanted_rows};
use crate::backend::Chunk;
use ::cuda::Error;

impl CudaModel {
    /// Says how a chunk is computed.
    pub(super) fn kinds(&self) -> impl Fn(&Chunk<'_>) -> StepKind + use<> {
        let experts = self.config.experts.is_some();
        move |chunk| StepKind::of(chunk, experts)
    }

    pub(super) fn step(&mut self, batch: &[Chunk<'_>], logits: &mut Vec<f32>) -> Result<(), Error> {
        logits.clear();
        let kind_of = self.kinds();
        let kind = kind_of(&batch[0]);
        if batch.iter().all(|chunk| kind_of(chunk) == kind) {
            return self.steps(kind, batch, logits);
        }
        let mut of_kinds = [const { Vec::new() }; StepKind::ALL.len()];
        for (kind, logits) in StepKind::ALL.into_iter().zip(&mut of_kinds) {
            let own: Vec<Chunk<'_>> = batch.iter().filter(|chunk| kind_of(chunk) == kind).copied().collect();
            self.steps(kind, &own, logits)?;
        }
        let mut rows = of_kinds.each_ref().map(|logits| logits.chunks_exact(self.config.vocab));
        for chunk in batch {
            let from = &mut rows[kind_of(chunk) as usize];
            from.take(chunk.wanted().len()).for_each(|row| logits.extend_from_slice(row));
        }
        Ok(())
    }

    /// Chunks that are computed the same way; logits are added.
    fn steps(&mut self, kind: StepKind, batch: &[Chunk<'_>], logits: &mut Vec<f32>) -> Result<(), Error> {
        for group in groups(batch.iter(), kind.rows_max()) {
            match kind {
                StepKind::Decode => self.few_rows(&group, logits)?,
                StepKind::PrefillShort | StepKind::PrefillLong => self.prefill_rows(kind, &group, logits)?,
            }
        }
        Ok(())
    }

    /// A step of at most [`super::DECODE_ROWS_MAX`] rows; logits are added.
    fn few_rows(&mut self, batch: &[Chunk<'_>], logits: &mut Vec<f32>) -> Result<(), Error> {
        let rows: usize = batch.iter().map(|chunk| chunk.tokens.len()).sum();
        let wanted = wanted_rows(batch);
        let all = wanted.len() == rows;
        self.decode.run(&self.net, batch, all)?;
        if all {
            return self.take_logits(rows, logits);
        }
        if wanted.is_empty() {
            // Whoever sends the next inputs relies on these having arrived.
            return self.net.device.synchronize();
        }
        for (first, count) in runs(&wanted) {
            let width = self.config.embedding;
            let x = self.decode.residual().part(first * width..(first + count) * width);
            self.decode.head(&self.net, x, count)?;
            self.take_logits(count, logits)?;
        }
        Ok(())
    }

    /// A step of any number of rows, in half precision; logits are added.
    fn prefill_rows(&mut self, kind: StepKind, batch: &[Chunk<'_>], logits: &mut Vec<f32>) -> Result<(), Error> {
        self.prefill.run(&self.net, kind, batch)?;
        for (first, count) in runs(&wanted_rows(batch)) {
            let width = self.config.embedding;
            let x = self.prefill.residual().part(first * width..(first + count) * width);
            self.decode.head(&self.net, x, count)?;
            self.take_logits(count, logits)?;
        }
        Ok(())
    }

    /// Picks of a step in which not every row is wanted, such as the end of a prompt: 600 KB of logits stay where they are. False where
    /// nothing is wanted, or a step is several.
    pub(super) fn pick_wanted(
        &mut self,
        batch: &[Chunk<'_>],
        wanted: &[usize],
        picks: &mut Vec<u32>,
    ) -> Result<bool, Error> {
        let rows: usize = batch.iter().map(|chunk| chunk.tokens.len()).sum();
        let kind_of = self.kinds();
        let kind = kind_of(&batch[0]);
        let is_one = rows <= kind.rows_max() && batch.iter().all(|chunk| kind_of(chunk) == kind);
        if wanted.is_empty() || !is_one {
            return Ok(false);
        }
        self.ahead.forget();
        picks.clear();
        match kind {
            StepKind::Decode => self.decode.run(&self.net, batch, false)?,
            StepKind::PrefillShort | StepKind::PrefillLong => self.prefill.run(&self.net, kind, batch)?,
        }
        let width = self.config.embedding;
        for (first, count) in runs(wanted) {
            let residual = if kind == StepKind::Decode { self.decode.residual() } else { self.prefill.residual() };
            self.decode.head(&self.net, residual.part(first * width..(first + count) * width), count)?;
            self.decode.pick_head(&self.net, count, picks)?;
        }
        Ok(true)
    }

    fn take_logits(&mut self, rows: usize, logits: &mut Vec<f32>) -> Result<(), Error> {
        let values = self.logits.receive(self.decode.logits(0..rows * self.config.vocab))?;
        logits.extend_from_slice(values);
        Ok(())
    }
}
