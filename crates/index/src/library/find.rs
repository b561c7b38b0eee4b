//! Where packages are installed, found by files alone: nothing is run and nothing outside of the known folders is read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::Shelf;
use crate::outline::Language;

/// Entries of one folder of packages.
const ENTRIES_MAX: usize = 20_000;

/// Bytes of a manifest.
const MANIFEST_BYTES_MAX: u64 = 8 << 20;

/// The packages of a language that a project may import.
pub(super) fn shelf(language: Language, root: &Path) -> Shelf {
    match language {
        Language::Python => python(root),
        Language::Rust => rust(root),
        Language::Script => script(root),
        _ => Shelf::default(),
    }
}

/// Modules and packages of Python in one folder.
pub(super) fn folder(path: &Path) -> Shelf {
    let mut packages = BTreeMap::new();
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten().take(ENTRIES_MAX) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(kind) = entry.file_type() else { continue };
        let stem = name.split('.').next().unwrap_or_default().to_owned();
        let ending = name[stem.len()..].to_owned();
        let module = match kind.is_dir() {
            true => ending.is_empty() && !matches!(name.as_str(), "__pycache__" | "site-packages" | "dist-packages"),
            false => matches!(ending.as_str(), ".py" | ".pyi") || ending.ends_with(".so"),
        };
        let plain = !stem.is_empty() && stem.chars().all(|c| c.is_alphanumeric() || c == '_');
        // A package comes before a stub of it.
        if module && plain && (kind.is_dir() || !packages.contains_key(&stem)) {
            packages.insert(stem, entry.path());
        }
    }
    Shelf { packages }
}

fn python(root: &Path) -> Shelf {
    let mut shelf = Shelf::default();
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let environments = [".venv", "venv", "env"].map(|name| root.join(name)).into_iter();
    let mut environments = environments.chain(variable("VIRTUAL_ENV")).chain(variable("CONDA_PREFIX"));
    let mut prefixes: Vec<PathBuf> = Vec::new();
    let is_one = |path: &PathBuf| path.join("pyvenv.cfg").is_file() || path.join("conda-meta").is_dir();
    if let Some(environment) = environments.find(is_one) {
        let text = boundary::file::read(&environment.join("pyvenv.cfg"), MANIFEST_BYTES_MAX).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let home =
            text.lines().find_map(|line| line.strip_prefix("home")?.trim_start().strip_prefix('=').map(str::trim));
        prefixes.push(environment);
        // The interpreter it was made from has the standard library.
        prefixes.extend(home.and_then(|home| Path::new(home).parent()).map(Path::to_owned));
    }
    if prefixes.is_empty() {
        let never = boundary::program::workspace_of(root);
        let found = boundary::program::find("python3".as_ref(), &never).and_then(|path| path.canonicalize().ok());
        let prefix = found.as_deref().and_then(Path::parent).and_then(Path::parent).map(Path::to_owned);
        // A shim of pyenv stands for the version that is written in a file beside it.
        let version = prefix.as_ref().and_then(|prefix| {
            let text = boundary::file::read(&prefix.join("version"), 1_000).ok()?;
            Some(prefix.join("versions").join(String::from_utf8(text).ok()?.lines().next()?.trim()))
        });
        prefixes.extend(version.filter(|path| path.is_dir()).or(prefix));
    }
    for prefix in prefixes {
        let folders = std::fs::read_dir(prefix.join("lib")).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut folders: Vec<PathBuf> = folders
            .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python3")))
            .collect();
        folders.sort();
        for lib in folders {
            for part in ["site-packages", "dist-packages", "", "lib-dynload"] {
                for (name, path) in folder(&lib.join(part)).packages {
                    shelf.packages.entry(name).or_insert(path);
                }
            }
        }
    }
    shelf
}

fn rust(root: &Path) -> Shelf {
    let mut shelf = Shelf::default();
    let lock = root
        .ancestors()
        .take(4)
        .find_map(|folder| boundary::file::read(&folder.join("Cargo.lock"), MANIFEST_BYTES_MAX).ok());
    let lock = String::from_utf8(lock.unwrap_or_default()).unwrap_or_default();
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")));
    let registries = home.map(|home| home.join("registry/src")).into_iter();
    let registries = registries.flat_map(|path| std::fs::read_dir(path).into_iter().flatten().flatten());
    let mut folders: Vec<PathBuf> = registries.map(|entry| entry.path()).collect();
    folders.push(root.join("vendor"));
    let value = |line: &str, key: &str| {
        Some(line.strip_prefix(key)?.trim().trim_start_matches('=').trim().trim_matches('"').to_owned())
    };
    for part in lock.split("[[package]]").skip(1).take(ENTRIES_MAX) {
        let Some(name) = part.lines().find_map(|line| value(line, "name ")) else { continue };
        let Some(version) = part.lines().find_map(|line| value(line, "version ")) else { continue };
        let plain = |text: &str| text.chars().all(|c| c.is_alphanumeric() || "-_.+".contains(c));
        if !plain(&name) || !plain(&version) {
            continue;
        }
        let here = folders.iter().flat_map(|folder| [folder.join(format!("{name}-{version}")), folder.join(&name)]);
        if let Some(path) = here.map(|path| path.join("src")).find(|path| path.is_dir()) {
            shelf.packages.insert(name.replace('-', "_"), path);
        } else if !part.contains("source = ") {
            // A crate of the project itself.
            shelf.packages.entry(name.replace('-', "_")).or_default();
        }
    }
    shelf
}

fn script(root: &Path) -> Shelf {
    let mut shelf = Shelf::default();
    for modules in root.ancestors().take(4).map(|folder| folder.join("node_modules")) {
        for entry in std::fs::read_dir(&modules).into_iter().flatten().flatten().take(ENTRIES_MAX) {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with('@') {
                for inner in std::fs::read_dir(entry.path()).into_iter().flatten().flatten().take(ENTRIES_MAX) {
                    let inner_name = inner.file_name().to_string_lossy().into_owned();
                    // Declarations of a package that has none count as its own.
                    let key = if name == "@types" { inner_name } else { format!("{name}/{inner_name}") };
                    shelf.packages.entry(key).or_insert(inner.path());
                }
            } else if !name.starts_with('.') {
                shelf.packages.entry(name).or_insert(entry.path());
            }
        }
    }
    shelf
}
