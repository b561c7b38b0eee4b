//! Launching many rows through experts: who visits whom, and what the visits gave. The products are [`Kernels::packed`].

use super::prompts::TILE;
use super::{Kernels, Module, room};
use crate::arguments::*;
use crate::blocks::*;
use crate::device::{Device, Function};
use crate::error::Error;
use crate::memory::Slice;

/// The kernels.
pub(super) struct Visits {
    choose: Function,
    sort: Function,
    add: Function,
}

impl Visits {
    pub fn new(device: &Device, module: &Module) -> Result<Visits, Error> {
        Ok(Visits {
            choose: module.function(device, "choose_experts", false)?,
            sort: module.function(device, "sort_visits", false)?,
            add: module.function(device, "add_visits", false)?,
        })
    }
}

/// Most tiles that so many visits to so many experts have: full ones, and for each expert the last of its own.
pub fn visit_tiles(visits: usize, experts: usize) -> usize {
    visits / TILE + experts.min(visits)
}

impl VisitsCall<'_> {
    /// Tiles a step of so many rows has at most.
    pub(super) fn tiles_max(&self) -> usize {
        visit_tiles(self.rows * self.used, self.count)
    }
}

impl Kernels {
    /// Which experts rows visit, by their scores, and in which order the visits stand.
    pub fn visits(&self, call: &VisitsCall<'_>) -> Result<(), Error> {
        let VisitsCall { rows, count, used, .. } = *call;
        assert!(self.has_experts(count, used), "experts were checked");
        room(call.scores, rows * count, "scores");
        room(call.chosen, rows * used, "chosen experts");
        room(call.shares, rows * used, "shares");
        room(call.places, rows * used, "places");
        room(call.tiles, call.tiles_max(), "tiles");
        let mut a = Arguments::default();
        let params = ChooseBlock {
            scores: a.at(call.scores),
            chosen: a.at(call.chosen),
            shares: a.at(call.shares),
            rows: rows as u32,
            count: count as u32,
            used: used as u32,
            padding: 0,
        };
        let grid = (rows.div_ceil(8) as u32, 1, 1);
        self.launch("choose_experts", &self.visits.choose, grid, 256, 0, a, &params)?;
        let mut a = Arguments::default();
        let params = SortBlock {
            chosen: a.at(call.chosen),
            places: a.at(call.places),
            tiles: a.at(call.tiles),
            visits: (rows * used) as u32,
            tiles_max: call.tiles_max() as u32,
        };
        self.launch("sort_visits", &self.visits.sort, (count as u32, 1, 1), 256, 0, a, &params)
    }

    /// Adds to each row what its visits gave, by their shares: `visits` is `[visit][columns]` and `x` is `[row][columns]`.
    pub fn add_visits(&self, call: &VisitsCall<'_>, visits: Slice<'_, f32>, x: Slice<'_, f32>) -> Result<(), Error> {
        let columns = x.len / call.rows;
        assert!(x.len == call.rows * columns && columns.is_multiple_of(4), "rows are read four at a time");
        room(visits, call.rows * call.used * columns, "visits");
        room(call.shares, call.rows * call.used, "shares");
        let mut a = Arguments::default();
        let params = AddVisitsBlock {
            visits: a.at(visits),
            shares: a.at(call.shares),
            x: a.at(x),
            columns: columns as u32,
            used: call.used as u32,
        };
        self.launch("add_visits", &self.visits.add, (call.rows as u32, 1, 1), 256, 0, a, &params)
    }
}
