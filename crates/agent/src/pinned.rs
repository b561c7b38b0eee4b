//! Files that the person keeps before the model: shown with the next turn, and again whenever they have changed.

use std::path::{Path, PathBuf};

use crate::context::files;
use crate::turn_context::TurnContext;

/// Files at most; each costs its whole text in every conversation.
const PINNED_MAX: usize = 16;
/// Names less alike than this (0 to 1, Jaro-Winkler) are not offered.
const LIKENESS_MIN: f64 = 0.8;

/// Keeps a file; without a path it lists those that are kept.
pub async fn add(ctx: &mut TurnContext, path: &str) {
    if path.is_empty() {
        let text = match ctx.pinned.is_empty() {
            true => "No file is kept before the model; `/add PATH` keeps one.".to_owned(),
            false => format!("kept before the model: {}", named(&ctx.pinned)),
        };
        return ctx.notice(text).await;
    }
    let (root, written) = (ctx.root(), path.to_owned());
    let checked = tokio::task::spawn_blocking(move || check(&root, &written)).await;
    let path = match checked.unwrap_or_else(|error| Err(error.to_string())) {
        Ok(path) => path,
        Err(why) => return ctx.trouble(why).await,
    };
    if ctx.pinned.contains(&path) {
        return ctx.notice(format!("{} is kept already.", path.display())).await;
    }
    if ctx.pinned.len() == PINNED_MAX {
        return ctx.trouble(format!("{PINNED_MAX} files are kept already; /drop one of them first")).await;
    }
    ctx.pinned.push(path);
    ctx.history.pinned(&ctx.pinned);
    ctx.notice(format!("kept before the model from the next message on: {}", named(&ctx.pinned))).await;
    ctx.emit_status().await;
}

/// Keeps a file no longer; without a path all of them.
pub async fn drop(ctx: &mut TurnContext, path: &str) {
    let written = path.trim_start_matches('@');
    let wanted = files::inside(&ctx.root(), written);
    let before = ctx.pinned.len();
    ctx.pinned.retain(|path| !written.is_empty() && Some(path) != wanted.as_ref());
    if ctx.pinned.len() < before {
        ctx.history.pinned(&ctx.pinned);
    }
    let text = match (before - ctx.pinned.len(), ctx.pinned.is_empty()) {
        (0, true) => "No file is kept before the model.".to_owned(),
        (0, false) => format!("{written} is not kept; these are: {}", named(&ctx.pinned)),
        (_, true) => "No file is kept any more. What the model has read stays in the conversation.".to_owned(),
        (_, false) => format!("still kept: {}", named(&ctx.pinned)),
    };
    ctx.notice(text).await;
    ctx.emit_status().await;
}

/// The path, where it names a text file of the workspace.
fn check(root: &Path, written: &str) -> Result<PathBuf, String> {
    let written = written.trim_start_matches('@');
    let path = files::inside(root, written).ok_or_else(|| format!("{written} is outside of the workspace"))?;
    let full = root.join(&path);
    if full.is_dir() {
        return Err(format!("{written} is a folder; add the files in it that matter"));
    }
    if !full.exists() {
        return Err(match nearest(root, &path) {
            Some(near) => format!("there is no file {written}; did you mean {}?", near.display()),
            None => format!("there is no file {written}"),
        });
    }
    files::text_or_why(root, &path, files::NAMED_BYTES_MAX).map(|_| path)
}

fn nearest(root: &Path, path: &Path) -> Option<PathBuf> {
    let wanted = path.to_string_lossy();
    let likeness = |path: &Path| {
        let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        strsim::jaro_winkler(&path.to_string_lossy(), &wanted).max(strsim::jaro_winkler(&name, &wanted))
    };
    let found = files::walk(root).files.into_iter().map(|(path, _)| (likeness(&path), path));
    found.filter(|(likeness, _)| *likeness >= LIKENESS_MIN).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, path)| path)
}

fn named(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}
