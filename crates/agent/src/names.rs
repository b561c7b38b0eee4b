//! Names in an answer that nothing knows, found before a file is written.
//!
//! The model is told once, with what exists instead, and answers again. What is still unknown then is shown and written only if
//! the person says so: a name that nobody knows may be right, as one of a package that is installed elsewhere.

mod prose;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use index::library::Library;
use index::names::{Level, Names, Unknown, imported, imported_by};
use index::outline::Language;
use index::{Index, terms};
use serde::{Deserialize, Serialize};

use crate::turn_context::TurnContext;

/// Names that are told of one answer.
const TOLD_MAX: usize = 5;

/// Files in which projects say what they use, and bytes of one that are read.
const MANIFESTS: &[&str] = &[
    "pyproject.toml",
    "requirements.txt",
    "requirements-dev.txt",
    "setup.py",
    "setup.cfg",
    "Pipfile",
    "environment.yml",
    "Cargo.toml",
    "Cargo.lock",
    "package.json",
];
const MANIFEST_BYTES_MAX: u64 = 4 << 20;

/// What is done about unknown names, as configured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Setting {
    /// They are not looked for.
    Off,
    /// Names must stand somewhere in the project, in what it imports, or in the language.
    Words,
    /// Imports must lead somewhere, too.
    Imports,
    /// And members must belong to their module or class.
    #[default]
    Members,
}

impl Setting {
    fn level(self) -> Option<Level> {
        match self {
            Self::Off => None,
            Self::Words => Some(Level::Words),
            Self::Imports => Some(Level::Imports),
            Self::Members => Some(Level::Members),
        }
    }
}

/// The installed packages of the workspace, by language. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Libraries(Arc<Mutex<HashMap<Language, Library>>>);

/// A file that an answer changes.
#[derive(Clone, Debug)]
pub struct Changed {
    /// Relative to the workspace.
    pub path: PathBuf,
    /// As it is; empty where it is new.
    pub old: String,
    /// As it would be.
    pub new: String,
}

/// Unknown names, and where.
pub type Found = Vec<(PathBuf, Unknown)>;

/// Reads what is installed, beside the model's answer, so that nobody waits for it afterwards.
pub fn prepare(ctx: &TurnContext) {
    if ctx.config().names == Setting::Off {
        return;
    }
    let (index, libraries, root, state) = parts(ctx);
    // Nobody waits: what is not read by then is read when names are looked for.
    drop(tokio::task::spawn_blocking(move || {
        index.with(|index| {
            let languages: HashSet<Language> =
                index.paths().filter_map(Language::of).filter(|one| is_checked(*one)).collect();
            for language in languages {
                libraries.with(language, &root, state.as_deref(), |library| library.load(imported(index, language), 1));
            }
        });
    }));
}

/// The names in new lines of an answer that nothing knows. `request` is what was asked for: its names are known.
pub async fn unknown(ctx: &TurnContext, files: Vec<Changed>, request: String) -> Found {
    let Some(level) = ctx.config().names.level() else { return Vec::new() };
    let (index, libraries, root, state) = parts(ctx);
    let work = tokio::task::spawn_blocking(move || {
        index.with(|index| {
            let mut found = Vec::new();
            for language in [Language::Python, Language::Rust] {
                let here: Vec<&Changed> =
                    files.iter().filter(|file| Language::of(&file.path) == Some(language)).collect();
                if here.is_empty() {
                    continue;
                }
                libraries.with(language, &root, state.as_deref(), |library| {
                    // Where nothing is installed nothing is known about what the project imports.
                    if library.packages().next().is_some() {
                        found.extend(of_language(index, library, level, &here, &request));
                    }
                });
            }
            found
        })
    });
    work.await.unwrap_or_default()
}

/// Languages whose names were measured: few real ones are called unknown.
fn is_checked(language: Language) -> bool {
    matches!(language, Language::Python | Language::Rust)
}

fn parts(ctx: &TurnContext) -> (crate::shared_index::SharedIndex, Libraries, PathBuf, Option<PathBuf>) {
    let state = (!ctx.options.ephemeral).then(|| ctx.options.state.clone());
    (ctx.index.clone(), ctx.libraries.clone(), ctx.root(), state)
}

impl Libraries {
    fn with(
        &self,
        language: Language,
        root: &std::path::Path,
        state: Option<&std::path::Path>,
        work: impl FnOnce(&mut Library),
    ) {
        // Whoever panicked in it has left lists that are right as far as they go.
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        work(held.entry(language).or_insert_with(|| Library::of(language, root, state)));
    }
}

fn of_language(index: &Index, library: &mut Library, level: Level, files: &[&Changed], request: &str) -> Found {
    let language = library.language();
    library.load(imported(index, language), 1);
    for file in files {
        library.load(imported_by(language, &file.new), 1);
    }
    // What one file of the change makes is known in the others, and so is what the person spoke of.
    let mut made: Vec<String> = Vec::new();
    for file in files {
        made.extend(index::names::scan::scan(language, &file.new).made.into_iter().map(str::to_owned));
        made.extend(index::outline::items(language, &file.new).into_iter().map(|item| item.name));
        made.extend(terms::identifiers(&file.path.to_string_lossy()).map(|(_, name)| name.to_owned()));
    }
    let asked = terms::identifiers(request).map(|(_, name)| name);
    let names = Names::new(index, library, level).with_made(made.iter().map(String::as_str).chain(asked));
    let mut found = Vec::new();
    for file in files {
        let old: HashSet<&str> = file.old.lines().map(str::trim).collect();
        let lines: Vec<&str> = file.new.lines().collect();
        let is_new = |line: usize| lines.get(line).is_some_and(|line| !old.contains(line.trim()));
        found.extend(names.unknown(&file.path, &file.new, is_new).into_iter().map(|one| (file.path.clone(), one)));
    }
    found
}

/// Tells of names and packages in what the model said that nothing knows. `request` is what was asked: its names are known.
pub async fn tell(ctx: &mut TurnContext, said: &str, request: &str) {
    let request: HashSet<&str> = terms::identifiers(request).map(|(_, name)| name).collect();
    let is_asked = |name: &str| terms::identifiers(name).all(|(_, part)| request.contains(part));
    let names = prose::names(said).into_iter().filter(|name| !is_asked(name));
    let names: Vec<String> = names.take(TOLD_MAX).map(str::to_owned).collect();
    let packages: Vec<String> =
        prose::installed(said).into_iter().filter(|name| !is_asked(name)).map(str::to_owned).collect();
    if ctx.config().names == Setting::Off || names.is_empty() && packages.is_empty() {
        return;
    }
    let (index, libraries, root, state) = parts(ctx);
    let work = tokio::task::spawn_blocking(move || {
        index.with(|index| {
            let (mut names, mut packages) = (names, packages);
            let languages: HashSet<Language> = index.paths().filter_map(Language::of).collect();
            // Where there is code whose packages are not read, nobody can say that a name does not exist.
            if languages.is_empty() || !languages.iter().all(|language| is_checked(*language)) {
                names.clear();
            }
            names.retain(|name| index.files_with(name).is_empty());
            packages.retain(|name| !manifests_have(&root, name));
            let mut nearest: HashMap<String, Vec<String>> = HashMap::new();
            for language in [Language::Python, Language::Rust, Language::Script] {
                libraries.with(language, &root, state.as_deref(), |library| {
                    packages.retain(|name| !library.has_package(name) && !library.has_package(&name.replace('-', "_")));
                    if !languages.contains(&language) {
                        return;
                    }
                    library.load(imported(index, language), 1);
                    if library.packages().next().is_none() {
                        names.clear();
                    }
                    let known = Names::new(index, library, Level::Words);
                    names.retain(|name| !known.has(name));
                    nearest = names.iter().map(|name| (name.clone(), known.nearest(name))).collect();
                });
            }
            let near = |name: &String| nearest.remove(name).unwrap_or_default();
            let near: Vec<Vec<String>> = names.iter().map(near).collect();
            (names.into_iter().zip(near).collect::<Vec<_>>(), packages)
        })
    });
    let (names, packages) = work.await.unwrap_or_default();
    for (name, nearest) in names {
        let near = if nearest.is_empty() { String::new() } else { format!("; there is `{}`", nearest.join("`, `")) };
        ctx.notice(format!("nothing here knows `{name}`, which the answer names{near}")).await;
    }
    for package in packages {
        ctx.notice(format!("nothing here knows the package `{package}`: see that it exists before you install it"))
            .await;
    }
}

/// Whether the project says that it uses a package.
fn manifests_have(root: &std::path::Path, package: &str) -> bool {
    MANIFESTS.iter().any(|name| {
        let text = boundary::file::read_below(root, std::path::Path::new(name), MANIFEST_BYTES_MAX).unwrap_or_default();
        String::from_utf8_lossy(&text).contains(package)
    })
}

/// Unknown names in a sentence each, with where they stand.
pub fn said(found: &Found) -> String {
    let told = found.iter().take(TOLD_MAX).map(|(path, one)| format!("{}:{}: {one}", path.display(), one.line + 1));
    let mut text = told.collect::<Vec<String>>().join("\n");
    if found.len() > TOLD_MAX {
        text += &format!("\nand {} more", found.len() - TOLD_MAX);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_new_lines_are_looked_at_and_what_was_asked_for_is_known() {
        let shelf = tempfile::tempdir().unwrap();
        std::fs::write(shelf.path().join("wire.py"), "def send(request):\n    pass\n").unwrap();
        let mut library = Library::in_folders(Language::Python, &[shelf.path().to_owned()], None);
        let mut index = Index::new(std::path::Path::new("/p"));
        let old = "import wire\n\n\ndef f():\n    odd_one()\n";
        index.put(std::path::Path::new("b.py"), "def helper():\n    pass\n");
        let new = format!(
            "{old}    wire.send(helper())\n    wire.post(1)\n    made_here()\n    zyxwv()\n\n\ndef made_here():\n    pass\n"
        );
        let files = [Changed { path: "a.py".into(), old: old.to_owned(), new }];
        let files: Vec<&Changed> = files.iter().collect();
        let found = of_language(&index, &mut library, Level::Members, &files, "call zyxwv()");
        assert_eq!(said(&found), "a.py:7: `wire` has no `post`");
        let found = of_language(&index, &mut library, Level::Members, &files, "");
        assert_eq!(said(&found), "a.py:7: `wire` has no `post`\na.py:9: `zyxwv` does not exist");
    }
}
