//! How likely the next token of a text that is being followed is right, by how long it has been followed.
//!
//! Every token generated is a trial, whether it was drafted or not: a text that is followed in silence is judged for
//! free, so a drafter that stopped to pay is found to pay again without any probing.

/// Lengths of the runs that are told apart: 0, 1, 2, 3, 4 to 5, 6 to 8, 9 to 16, 17 to 32, more.
pub(super) const CLASSES: usize = 9;

/// Trials that the first guess counts for.
const PRIOR_TRIALS: f32 = 6.0;
/// Trials after which old ones begin to fade.
const TRIALS_MAX: f32 = 128.0;

/// What is believed of one drafter of one sequence.
#[derive(Clone, Debug)]
pub(super) struct Belief {
    right: [f32; CLASSES],
    trials: [f32; CLASSES],
}

impl Belief {
    /// Begins with a guess for each class.
    pub fn new(guess: [f32; CLASSES]) -> Self {
        Self { right: guess.map(|chance| chance * PRIOR_TRIALS), trials: [PRIOR_TRIALS; CLASSES] }
    }

    /// How likely the token after a run of this length is right.
    pub fn chance(&self, run: usize) -> f32 {
        let class = class(run);
        self.right[class] / self.trials[class]
    }

    /// Takes in whether the token after a run of this length was right.
    pub fn hear(&mut self, run: usize, right: bool) {
        let class = class(run);
        self.trials[class] += 1.0;
        self.right[class] += f32::from(u8::from(right));
        if self.trials[class] > TRIALS_MAX {
            self.trials[class] /= 2.0;
            self.right[class] /= 2.0;
        }
    }
}

fn class(run: usize) -> usize {
    match run {
        0..=3 => run,
        4..=5 => 4,
        6..=8 => 5,
        9..=16 => 6,
        17..=32 => 7,
        _ => 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn belief_follows_what_happens_and_turns_around() {
        let mut belief = Belief::new([0.5; CLASSES]);
        (0..200).for_each(|_| belief.hear(20, true));
        assert!(belief.chance(30) > 0.97 && belief.chance(5) == 0.5);
        (0..200).for_each(|_| belief.hear(20, false));
        assert!(belief.chance(17) < 0.25, "{}", belief.chance(17));
    }
}
