//! How a batch becomes steps: each chunk is computed the way its own length says, and those of one way together.

use super::CudaModel;
use super::rows::{Way, groups, runs, wanted_rows};
use crate::backend::Chunk;
use ::cuda::Error;

impl CudaModel {
    /// Says how a chunk is computed.
    pub(super) fn ways(&self) -> impl Fn(&Chunk<'_>) -> Way + use<> {
        let experts = self.config.experts.is_some();
        move |chunk| Way::of(chunk, experts)
    }

    pub(super) fn step(&mut self, batch: &[Chunk<'_>], logits: &mut Vec<f32>) -> Result<(), Error> {
        logits.clear();
        let way_of = self.ways();
        let way = way_of(&batch[0]);
        if batch.iter().all(|chunk| way_of(chunk) == way) {
            return self.steps(way, batch, logits);
        }
        let mut of_ways = [const { Vec::new() }; Way::ALL.len()];
        for (way, logits) in Way::ALL.into_iter().zip(&mut of_ways) {
            let own: Vec<Chunk<'_>> = batch.iter().filter(|chunk| way_of(chunk) == way).copied().collect();
            self.steps(way, &own, logits)?;
        }
        let mut rows = of_ways.each_ref().map(|logits| logits.chunks_exact(self.config.vocab));
        for chunk in batch {
            let from = &mut rows[way_of(chunk) as usize];
            from.take(chunk.wanted().len()).for_each(|row| logits.extend_from_slice(row));
        }
        Ok(())
    }

    /// Chunks that are computed the same way; logits are added.
    fn steps(&mut self, way: Way, batch: &[Chunk<'_>], logits: &mut Vec<f32>) -> Result<(), Error> {
        for group in groups(batch.iter(), way.rows_max()) {
            match way {
                Way::Few => self.few_rows(&group, logits)?,
                Way::Medium | Way::Many => self.many_rows(way, &group, logits)?,
            }
        }
        Ok(())
    }

    /// A step of at most [`super::FEW`] rows; logits are added.
    fn few_rows(&mut self, batch: &[Chunk<'_>], logits: &mut Vec<f32>) -> Result<(), Error> {
        let rows: usize = batch.iter().map(|chunk| chunk.tokens.len()).sum();
        let wanted = wanted_rows(batch);
        let all = wanted.len() == rows;
        self.few.run(&self.net, batch, all)?;
        if all {
            return self.take_logits(rows, logits);
        }
        if wanted.is_empty() {
            // Whoever sends the next inputs relies on these having arrived.
            return self.net.device.synchronize();
        }
        for (first, count) in runs(&wanted) {
            let width = self.config.embedding;
            let x = self.few.residual().part(first * width..(first + count) * width);
            self.few.head(&self.net, x, count)?;
            self.take_logits(count, logits)?;
        }
        Ok(())
    }

    /// A step of any number of rows, in half precision; logits are added.
    fn many_rows(&mut self, way: Way, batch: &[Chunk<'_>], logits: &mut Vec<f32>) -> Result<(), Error> {
        self.many.run(&self.net, way, batch)?;
        for (first, count) in runs(&wanted_rows(batch)) {
            let width = self.config.embedding;
            let x = self.many.residual().part(first * width..(first + count) * width);
            self.few.head(&self.net, x, count)?;
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
        let way_of = self.ways();
        let way = way_of(&batch[0]);
        let is_one = rows <= way.rows_max() && batch.iter().all(|chunk| way_of(chunk) == way);
        if wanted.is_empty() || !is_one {
            return Ok(false);
        }
        self.ahead.forget();
        picks.clear();
        match way {
            Way::Few => self.few.run(&self.net, batch, false)?,
            Way::Medium | Way::Many => self.many.run(&self.net, way, batch)?,
        }
        let width = self.config.embedding;
        for (first, count) in runs(wanted) {
            let residual = if way == Way::Few { self.few.residual() } else { self.many.residual() };
            self.few.head(&self.net, residual.part(first * width..(first + count) * width), count)?;
            self.few.pick_head(&self.net, count, picks)?;
        }
        Ok(true)
    }

    fn take_logits(&mut self, rows: usize, logits: &mut Vec<f32>) -> Result<(), Error> {
        let values = self.logits.receive(self.few.logits(0..rows * self.config.vocab))?;
        logits.extend_from_slice(values);
        Ok(())
    }
}
