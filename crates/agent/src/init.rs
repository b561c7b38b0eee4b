//! `/init`: AGENTS.md with the commands of the project, and nothing else. They are read from the project's own files; what
//! a model would add about style or structure costs every conversation its tokens and ages.

use std::path::{Path, PathBuf};

use serde_json::Value;
use workspace::edit::{Batch, Change, ChangeKind};

use crate::context::files;
use crate::event::{Event, Outcome};
use crate::turn_context::TurnContext;

/// The file.
const NAME: &str = "AGENTS.md";

/// Bytes of one of the project's files.
const READ_BYTES_MAX: u64 = 1 << 20;

/// Commands of one kind; a package may have hundreds of scripts.
const COMMANDS_MAX: usize = 12;

/// Scripts and targets that say how a project is built and checked.
const TELLING: &[&str] =
    &["build", "test", "tests", "lint", "check", "typecheck", "format", "fmt", "dev", "start", "ci"];

/// Writes the file, unless there is one.
pub async fn run(ctx: &mut TurnContext) -> Outcome {
    let root = ctx.root();
    if root.join(NAME).symlink_metadata().is_ok() {
        return Outcome::Failed { why: format!("{NAME} is there already; ask for what is to change in it") };
    }
    let reader = root.clone();
    let commands = tokio::task::spawn_blocking(move || commands(&reader)).await.unwrap_or_default();
    if commands.is_empty() {
        let why =
            "no build file was found (Cargo.toml, package.json, pyproject.toml, go.mod, Makefile, CMakeLists.txt), so \
                   there are no commands to write down"
                .to_owned();
        return Outcome::Failed { why };
    }
    let rows: String = commands.iter().map(|(what, command)| format!("- {what}: `{command}`\n")).collect();
    let text = format!("# Commands\n\n{rows}");
    let (edit, path) = (ctx.next_edit(), PathBuf::from(NAME));
    ctx.emit(Event::EditStarted { edit, path: path.clone() }).await;
    let diff = workspace::diff::unified("", &text);
    let lines = workspace::diff::lines("", &text);
    ctx.emit(Event::EditGrew { edit, diff: diff.into(), lines }).await;
    let failed = match ctx.sandbox_policy().may_write(&root.join(NAME)) {
        Ok(()) => write(ctx, text).await.err(),
        Err(why) => Some(why),
    };
    match failed {
        None => {
            ctx.emit(Event::EditApplied { edit, path, lines }).await;
            ctx.notice("Flint reads it from the next start on.").await;
            Outcome::Done
        }
        Some(why) => {
            ctx.emit(Event::EditFailed { edit, path, why: why.clone() }).await;
            Outcome::Failed { why }
        }
    }
}

async fn write(ctx: &mut TurnContext, text: String) -> Result<(), String> {
    ctx.history.ready().await;
    let journal = ctx.history.journal();
    let change = Change { path: NAME.into(), kind: ChangeKind::Create { text } };
    let batch = Batch::resolve(&ctx.root(), &[change]).map_err(|error| error.to_string())?;
    let written = batch.write(|step| journal.edit(step)).map_err(|error| error.to_string())?;
    ctx.history.edited(&written);
    ctx.written = written;
    Ok(())
}

/// What is done, and the command that does it.
fn commands(root: &Path) -> Vec<(String, String)> {
    let read = |name: &str| files::read_text(root, Path::new(name), READ_BYTES_MAX);
    let there = |name: &str| root.join(name).is_file();
    let mut found: Vec<(String, String)> = Vec::new();
    let mut add = |what: &str, command: &str| found.push((what.to_owned(), command.to_owned()));
    if there("Cargo.toml") {
        add("build", "cargo build");
        add("test", "cargo test");
        add("lint", "cargo clippy --all-targets");
        add("format", "cargo fmt");
    }
    if there("go.mod") {
        add("build", "go build ./...");
        add("test", "go test ./...");
        add("lint", "go vet ./...");
    }
    let pyproject = read("pyproject.toml");
    if pyproject.is_some() || there("setup.py") || there("setup.cfg") || there("pytest.ini") {
        let mentions = |word: &str| pyproject.as_ref().is_some_and(|text| text.contains(word));
        let runner = if there("uv.lock") { "uv run " } else { "" };
        add(
            "test",
            &format!(
                "{runner}python -m {}",
                if mentions("pytest") || there("pytest.ini") { "pytest" } else { "unittest" }
            ),
        );
        if mentions("[tool.ruff") {
            add("lint", &format!("{runner}ruff check"));
        }
        if mentions("[tool.mypy") {
            add("types", &format!("{runner}mypy ."));
        }
    }
    if let Some(text) = read("package.json") {
        let manager = [("pnpm-lock.yaml", "pnpm"), ("yarn.lock", "yarn"), ("bun.lock", "bun")];
        let manager = manager.iter().find(|(lock, _)| there(lock)).map_or("npm", |(_, name)| name);
        let package: Value = serde_json::from_str(&text).unwrap_or_default();
        let scripts = package["scripts"].as_object().into_iter().flatten();
        for (name, _) in scripts.filter(|(name, _)| tells(name)).take(COMMANDS_MAX) {
            add(name, &format!("{manager} run {name}"));
        }
    }
    if there("CMakeLists.txt") {
        add("build", "cmake -B build && cmake --build build");
        add("test", "ctest --test-dir build");
    }
    if let Some(text) = read("Makefile") {
        let targets = text.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name);
        for name in targets.filter(|name| tells(name)).take(COMMANDS_MAX) {
            add(name, &format!("make {name}"));
        }
    }
    found
}

/// Whether a script is about building or checking, by a name that is safe to write down.
fn tells(name: &str) -> bool {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | ':');
    name.chars().all(plain) && name.split(['-', '_', ':']).any(|part| TELLING.contains(&part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_are_those_of_the_projects_own_files() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        assert!(commands(folder.path()).is_empty());
        write("package.json", r#"{"scripts": {"test:unit": "x", "build": "y", "release": "z", "build`rm`": "w"}}"#);
        write("yarn.lock", "");
        write("Makefile", "test: a\n\tx\nclean:\n\ty\n");
        let found = commands(folder.path());
        let named: Vec<&str> = found.iter().map(|(_, command)| command.as_str()).collect();
        assert_eq!(named, ["yarn run test:unit", "yarn run build", "make test"]);
    }
}
