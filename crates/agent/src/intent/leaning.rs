//! How much models lean to a change when nothing is asked for: measured once for each, kept in the state directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{EXAMPLES, INSTRUCTIONS};

/// Most that is read of the file.
const BYTES_MAX: u64 = 64 << 10;

/// Models that are kept; of more the first by name go.
const KEPT_MAX: usize = 64;

/// Leanings by model.
#[derive(Clone, Debug, Default)]
pub struct Leanings {
    path: Option<PathBuf>,
    /// Read from the file when first asked for.
    known: Option<BTreeMap<String, Leaning>>,
}

/// Of one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Leaning {
    /// The weights it was measured with.
    weights: String,
    /// The examples it was measured with.
    examples: u64,
    log_odds: f64,
}

impl Leanings {
    /// Those kept in a state directory.
    pub fn in_state(state: &Path) -> Self {
        Self { path: Some(state.join("leanings.json")), known: None }
    }

    /// That of a model, with the weights it was measured with.
    pub fn of(&mut self, model: &str) -> Option<(String, f64)> {
        let known = self.known().get(model)?;
        let holds = known.examples == examples() && known.log_odds.is_finite();
        holds.then(|| (known.weights.clone(), known.log_odds))
    }

    /// Keeps what was measured, here and in the file.
    pub fn keep(&mut self, model: &str, weights: &str, log_odds: f64) -> std::io::Result<()> {
        let leaning = Leaning { weights: weights.to_owned(), examples: examples(), log_odds };
        let known = self.known();
        known.insert(model.to_owned(), leaning);
        while known.len() > KEPT_MAX {
            known.pop_first();
        }
        let text = serde_json::to_string(known)?;
        let Some(path) = &self.path else { return Ok(()) };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        // Another process may read it at this moment.
        let new = path.with_extension(format!("json.{}", std::process::id()));
        std::fs::write(&new, text)?;
        std::fs::rename(&new, path)
    }

    fn known(&mut self) -> &mut BTreeMap<String, Leaning> {
        let path = self.path.as_deref();
        self.known.get_or_insert_with(|| {
            let read = path.and_then(|path| boundary::file::read(path, BYTES_MAX).ok());
            read.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
        })
    }
}

/// A number that changes when the examples do.
fn examples() -> u64 {
    crate::context::hash(&format!("{INSTRUCTIONS}{EXAMPLES}"))
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;

    #[test]
    fn a_leaning_is_kept_for_the_weights_it_was_measured_with() {
        let folder = tempfile::tempdir().unwrap();
        let mut leanings = Leanings::in_state(folder.path());
        assert_eq!(leanings.of("m"), None);
        leanings.keep("m", "w", -1.5).unwrap();
        let mut again = Leanings::in_state(folder.path());
        assert_eq!((again.of("m"), again.of("n")), (Some(("w".to_owned(), -1.5)), None));
        std::fs::write(folder.path().join("leanings.json"), "{").unwrap();
        assert_eq!(Leanings::in_state(folder.path()).of("m"), None);
    }
}
