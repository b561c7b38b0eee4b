//! What a step costs by its number of rows, learned from the steps themselves.
//!
//! A cost is the machine's present pace (seconds of a step of one row) times a shape (how many times that a step of n
//! rows takes). Both follow what is measured; the pace faster, because it changes with the machine's mood and with the
//! length of the sequences, while the shape is a property of the backend. Decisions rest on the shape alone.
//!
//! Until a size was measured it is guessed as a roofline: reading the weights once, or computing each row as prompts
//! are computed, whichever takes longer.

/// Sizes with a cost of their own: 1, 2, 4, ... 256 rows. Between them it is a straight line.
const SIZES: usize = 9;
/// Rows above which a step that reads a prompt says what a row costs when arithmetic is the limit.
const PROMPT_ROWS: usize = 16;
/// How much of a measured difference the pace takes over, and the shape of a size once it was measured often; its first
/// measurements count for more.
const PACE_RATE: f64 = 0.15;
const SHAPE_RATE: f64 = 0.08;
/// One step is never believed to have been faster or slower than expected by more than this.
const SURPRISE_MAX: f64 = 2.0;
/// A step that took longer than expected by more than this was held up: the process was stopped, or the machine slept.
/// It says nothing about steps, unless the next one says the same.
const HELD_UP: f64 = 4.0;

/// The cost of steps.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepCosts {
    /// Seconds of a step of one row; none was measured yet when 0.
    pace: f64,
    /// Relative costs of the sizes that were measured, and how often they were.
    shape: [Option<(f64, f64)>; SIZES],
    /// Seconds of one row of a prompt.
    prompt_row: f64,
    /// Whether the last step was held up.
    held_up: bool,
}

impl StepCosts {
    /// Whether anything is known.
    pub fn known(&self) -> bool {
        self.pace > 0.0
    }

    /// Seconds that a step of `rows` rows with logits for each takes.
    pub fn seconds(&self, rows: usize) -> f64 {
        let (size, part) = split(rows);
        let low = self.of_size(size);
        if part == 0.0 { low } else { low + part * (self.of_size(size + 1) - low) }
    }

    /// Takes in a step of `rows` rows that all were decoded or drafted.
    pub fn observe(&mut self, rows: usize, seconds: f64) {
        if self.pace == 0.0 {
            if rows == 1 {
                (self.pace, self.shape[0]) = (seconds, Some((1.0, 1.0)));
            }
            return;
        }
        let expected = self.seconds(rows);
        let held_up = seconds > HELD_UP * expected;
        if held_up && !std::mem::replace(&mut self.held_up, held_up) {
            return;
        }
        self.held_up = held_up;
        let surprise = (seconds / expected).clamp(1.0 / SURPRISE_MAX, SURPRISE_MAX);
        let (size, part) = split(rows);
        for (size, weight) in [(size, 1.0 - part), (size + 1, part)] {
            // The size of one row is the measure of the others.
            if size > 0 && size < SIZES && weight > 0.0 {
                let times = self.shape[size].map_or(0.0, |(_, times)| times);
                let rate = weight * SHAPE_RATE.max(1.0 / (1.0 + times));
                let shape = self.of_size(size) / self.pace * surprise.powf(rate);
                self.shape[size] = Some((shape, times + weight));
            }
        }
        self.pace *= surprise.powf(PACE_RATE);
    }

    /// Takes in a step that read a prompt.
    pub fn observe_prompt(&mut self, rows: usize, seconds: f64) {
        if rows >= PROMPT_ROWS {
            self.prompt_row = seconds / rows as f64;
        }
    }

    fn of_size(&self, size: usize) -> f64 {
        let size = size.min(SIZES - 1);
        if let Some((shape, _)) = self.shape[size] {
            return self.pace * shape;
        }
        let below = (0..size).rev().find_map(|size| self.shape[size]).map_or(1.0, |(shape, _)| shape) * self.pace;
        below.max(self.prompt_row * (1u64 << size) as f64)
    }
}

/// The size at or below `rows`, and how far it is from there to the next.
fn split(rows: usize) -> (usize, f64) {
    let size = rows.max(1).ilog2() as usize;
    let least = 1usize << size;
    (size, (rows.max(1) - least) as f64 / least as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine that computes up to five rows while it reads the weights.
    fn real(rows: usize) -> f64 {
        0.030 * (0.2 * rows as f64).max(1.0)
    }

    #[test]
    fn guesses_are_rooflines_and_measurements_replace_them() {
        let mut costs = StepCosts::default();
        costs.observe_prompt(256, 256.0 * 0.005);
        costs.observe(4, 0.9);
        assert!(!costs.known(), "a pace comes from steps of one row");
        costs.observe(1, 0.030);
        assert_eq!((costs.seconds(2), costs.seconds(16)), (0.030, 0.080));
        for turn in 0..400 {
            let rows = 1 + turn % 40;
            costs.observe(rows, real(rows));
        }
        for rows in [1, 2, 4, 8, 16, 24, 32] {
            let error = costs.seconds(rows) / real(rows);
            assert!((0.8..1.25).contains(&error), "{rows} rows: {} for {}", costs.seconds(rows), real(rows));
        }
    }

    #[test]
    fn a_machine_that_slows_down_changes_the_pace_and_hardly_the_shape() {
        let mut costs = StepCosts::default();
        costs.observe(1, 0.030);
        (0..200).for_each(|turn| costs.observe(1 + turn % 20, real(1 + turn % 20)));
        let before = costs.seconds(16) / costs.seconds(1);
        (0..40).for_each(|_| costs.observe(1, 0.060));
        assert!((costs.seconds(1) - 0.060).abs() < 0.002);
        assert!((costs.seconds(16) / costs.seconds(1) - before).abs() < 1e-9);
        let before = costs.seconds(1);
        costs.observe(1, 60.0);
        assert_eq!(costs.seconds(1), before, "a step that was held up says nothing");
        (0..40).for_each(|_| costs.observe(1, 0.300));
        assert!((costs.seconds(1) - 0.300).abs() < 0.01, "many do: {}", costs.seconds(1));
    }
}
