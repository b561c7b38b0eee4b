//! What is kept of a try in which nothing passed: the task, each answer, each diff and what each check said. A deeper model,
//! or a person, can begin from there instead of from nothing.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::Tried;

/// Tries that are kept; the oldest goes first.
const KEPT_MAX: usize = 20;

/// Writes everything known about a try below `folder` and returns where.
pub fn keep(folder: &Path, task: &str, tried: &[Tried]) -> io::Result<PathBuf> {
    let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let here = folder.join(format!("{at:015}"));
    fs::create_dir_all(&here)?;
    fs::write(here.join("task.md"), task)?;
    let rows: Vec<_> = tried.iter().map(|tried| &tried.row).collect();
    fs::write(here.join("candidates.json"), serde_json::to_vec_pretty(&rows)?)?;
    for tried in tried {
        let candidate = here.join(format!("candidate-{}", tried.row.candidate));
        fs::create_dir_all(&candidate)?;
        fs::write(candidate.join("answer.md"), &tried.answer)?;
        fs::write(candidate.join("change.diff"), &tried.diff)?;
        fs::write(candidate.join("checks.txt"), &tried.output)?;
    }
    forget_old(folder);
    Ok(here)
}

fn forget_old(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let is_ours = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().bytes().all(|b| b.is_ascii_digit()))
    };
    let mut kept: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_ours).collect();
    kept.sort();
    for old in kept.iter().rev().skip(KEPT_MAX) {
        let _ = fs::remove_dir_all(old);
    }
}
