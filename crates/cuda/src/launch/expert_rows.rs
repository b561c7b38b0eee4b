//! Launching many rows through experts: who visits whom, and what the visits gave. The products are [`Kernels::packed`].

use super::prompts::TILE;
use super::{Kernels, Module, room};
use crate::arguments::*;
use crate::blocks::*;
use crate::device::{Device, Function};
use crate::error::Error;

/// The kernels.
pub(super) struct ExpertRows {
    choose: Function,
    sort: Function,
    add: Function,
    scale: Function,
}

impl ExpertRows {
    pub fn new(device: &Device, module: &Module) -> Result<ExpertRows, Error> {
        Ok(ExpertRows {
            choose: module.function(device, "choose_experts", false)?,
            sort: module.function(device, "sort_visits", false)?,
            add: module.function(device, "add_parts", false)?,
            scale: module.function(device, "scale_rows", false)?,
        })
    }
}

/// Most tiles that so many visits to so many experts have: full ones, and for each expert the last of its own.
pub fn visit_tiles(visits: usize, experts: usize) -> usize {
    visits / TILE + experts.min(visits)
}

impl ExpertRowsCall<'_> {
    /// Tiles a step of so many rows has at most.
    pub(super) fn tiles_max(&self) -> usize {
        visit_tiles(self.rows * self.used, self.count)
    }
}

impl Kernels {
    /// Which experts rows visit, by their scores, and in which order the visits stand.
    pub fn expert_rows(&self, call: &ExpertRowsCall<'_>) -> Result<(), Error> {
        let ExpertRowsCall { rows, count, used, scores: (scores, parts), .. } = *call;
        assert!(self.has_experts(count, used), "experts were checked");
        room(scores, rows * parts * count, "scores");
        room(call.chosen, rows * used, "chosen experts");
        room(call.shares, rows * used, "shares");
        room(call.slots, rows * used, "slots");
        room(call.tiles, call.tiles_max(), "tiles");
        let mut a = Arguments::default();
        let params = ChooseBlock {
            scores: a.at(scores),
            chosen: a.at(call.chosen),
            shares: a.at(call.shares),
            rows: rows as u32,
            count: count as u32,
            used: used as u32,
            parts: parts as u32,
        };
        let grid = (rows.div_ceil(8) as u32, 1, 1);
        self.launch(&self.expert_rows_kernels.choose, grid, 256, 0, a, &params)?;
        let mut a = Arguments::default();
        let params = SortBlock {
            chosen: a.at(call.chosen),
            slots: a.at(call.slots),
            tiles: a.at(call.tiles),
            visits: (rows * used) as u32,
            tiles_max: call.tiles_max() as u32,
        };
        self.launch(&self.expert_rows_kernels.sort, (count as u32, 1, 1), 256, 0, a, &params)
    }

    /// Rows of an expert that all visit, by its share in each.
    pub fn scale_rows(&self, call: &ScaleRowsCall<'_>) -> Result<(), Error> {
        let ScaleRowsCall { rows, width, .. } = *call;
        let columns = call.gate.len;
        assert!(columns.is_multiple_of(2) && width.is_multiple_of(2), "rows are read two at a time");
        room(call.input, rows * columns, "input rows");
        room(call.x, rows * width, "rows");
        let mut a = Arguments::default();
        let params = ScaleRowsBlock {
            input: a.at(call.input),
            gate: a.at(call.gate),
            x: a.at(call.x),
            rows: rows as u32,
            columns: columns as u32,
            width: width as u32,
            padding: 0,
        };
        self.launch(&self.expert_rows_kernels.scale, (rows.div_ceil(8) as u32, 1, 1), 256, 0, a, &params)
    }

    /// Adds to rows what several blocks or experts have for them.
    pub fn add_parts(&self, call: &AddPartsCall<'_>) -> Result<(), Error> {
        let AddPartsCall { rows, each, x, .. } = *call;
        let columns = x.len / rows;
        assert!(x.len == rows * columns && columns.is_multiple_of(4), "rows are read four at a time");
        room(call.parts, rows * each * columns, "parts");
        call.shares.iter().for_each(|shares| room(*shares, rows * each, "shares"));
        let mut a = Arguments::default();
        let params = AddPartsBlock {
            parts: a.at(call.parts),
            shares: a.optional(call.shares),
            x: a.at(x),
            columns: columns as u32,
            each: each as u32,
            anew: u32::from(call.anew),
            padding: 0,
        };
        let grid = (rows as u32, columns.div_ceil(1024) as u32, 1);
        self.launch(&self.expert_rows_kernels.add, grid, 256, 0, a, &params)
    }
}
