//! In which files a name that one file defines means that definition, by their imports.

use std::path::{Path, PathBuf};

use crate::Source;
use crate::outline::Language;
use crate::words::{File, has_word};

/// Rounds in which a name is given on from file to file.
const ROUNDS_MAX: usize = 8;

/// Where a name of a file is known.
pub(crate) struct Reach {
    /// By file: the bare name means the definition.
    pub(crate) bare: Vec<bool>,
    /// Names of the modules that have it.
    pub(crate) modules: Vec<String>,
}

/// Follows the imports of a name from the file that defines it.
pub(crate) fn reach(files: &[File<'_>], home: usize, name: &str, sources: &[Source<'_>]) -> Reach {
    let language = files[home].language;
    let mut reach = Reach { bare: vec![false; files.len()], modules: module_names(files[home].path, sources) };
    reach.bare[home] = true;
    if language == Language::Go {
        let folder = files[home].path.parent();
        for (at, file) in files.iter().enumerate() {
            reach.bare[at] = file.language == Language::Go && file.path.parent() == folder;
        }
        return reach;
    }
    for _ in 0..ROUNDS_MAX {
        let mut grew = false;
        for (at, file) in files.iter().enumerate().filter(|(_, file)| file.language == language) {
            if reach.bare[at] {
                continue;
            }
            let brings = |text: &str| brings(file, text, name, &reach.modules);
            if file.imports().iter().any(|(_, text)| brings(text)) {
                reach.bare[at] = true;
                grew = true;
                for module in module_names(file.path, sources) {
                    if !reach.modules.contains(&module) {
                        reach.modules.push(module);
                    }
                }
            }
        }
        if !grew {
            break;
        }
    }
    reach
}

/// Whether an import brings in the name from one of the modules, under its own name.
fn brings(file: &File<'_>, import: &str, name: &str, modules: &[String]) -> bool {
    let from = modules.iter().any(|module| has_word(import, module));
    let relative = match file.language {
        Language::Python => import.starts_with("from . import"),
        Language::Rust => ["use super::", "use self::", "use crate::"].iter().any(|start| import.contains(start)),
        _ => false,
    };
    let all = import.trim_end_matches([';', '}']).trim_end().ends_with('*');
    if all {
        let inside = file.path.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
        let above = import.contains("super::*") && inside.is_some_and(|folder| modules.contains(&folder));
        return from && !import.contains("* as") || above;
    }
    let renamed = import
        .split(',')
        .any(|part| has_word(part, name) && has_word(part, "as") && !part.contains(&format!("as {name}")));
    has_word(import, name) && (from || relative) && !renamed
}

/// What a file is called where it is imported.
pub(crate) fn module_names(path: &Path, sources: &[Source<'_>]) -> Vec<String> {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let folder = path.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    match stem.as_str() {
        "__init__" | "mod" | "index" => folder.into_iter().collect(),
        "lib" | "main" => {
            let manifest = path.parent().and_then(Path::parent).unwrap_or(Path::new("")).join("Cargo.toml");
            let text = sources.iter().find(|source| source.path == manifest).map(|source| source.text);
            let named = |line: &str| {
                let (key, value) = line.split_once('=')?;
                (key.trim() == "name").then(|| value.trim().trim_matches('"').replace('-', "_"))
            };
            let of_manifest = text.and_then(|text| text.lines().find_map(named));
            std::iter::once("crate".to_owned()).chain(of_manifest).chain([stem]).collect()
        }
        _ if path.extension().is_some_and(|ending| ending == "go") => folder.into_iter().collect(),
        _ => vec![stem],
    }
}

/// The names under which a file imports one of these modules as a whole.
pub(crate) fn aliases(file: &File<'_>, modules: &[String]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (_, import) in file.imports() {
        for module in modules.iter().filter(|module| has_word(&import, module)) {
            let words: Vec<&str> = import.split(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
            let renamed = words.windows(2).find(|pair| pair[0] == "as").map(|pair| pair[1].to_owned());
            names.push(renamed.unwrap_or_else(|| module.clone()));
        }
    }
    names
}

/// The dotted name of a Python file.
pub(crate) fn dotted(path: &Path) -> String {
    let path: PathBuf = path.with_extension("");
    let parts: Vec<String> = path.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
    let parts: Vec<String> = parts.into_iter().filter(|part| part != "__init__").collect();
    parts.join(".")
}
