//! Files that get another name: the imports that lead to them.

use std::path::{Path, PathBuf};

use crate::Source;
use crate::modules::dotted;
use crate::outline::Language;
use crate::words::{File, Sort, has_word, whole_words};

/// Places of one file that are looked at.
const PLACES_MAX: usize = 2_000;

/// The files that import a file, and the lines where they do, from 1.
pub fn importers(sources: &[Source<'_>], path: &Path) -> Vec<(PathBuf, usize)> {
    let mut found = Vec::new();
    for (file, at) in places(sources, path) {
        found.push((file.path.to_owned(), file.line(at) + 1));
    }
    found.dedup();
    found
}

/// What files become when one of them gets another name in its folder. The error says why that is not known.
pub fn moved(sources: &[Source<'_>], from: &Path, to: &Path) -> Result<Vec<(PathBuf, String)>, String> {
    let places = places(sources, from);
    let stem = |path: &Path| path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let (old, new) = (stem(from), stem(to));
    if !places.is_empty() && from.parent() != to.parent() {
        let (file, at) = &places[0];
        return Err(format!(
            "{}:{} imports {}; imports are followed only when a file stays in its folder",
            file.path.display(),
            file.line(*at) + 1,
            from.display()
        ));
    }
    let mut changed: Vec<(PathBuf, String, usize)> = Vec::new();
    for (file, at) in places {
        if !changed.iter().any(|(path, ..)| path == file.path) {
            changed.push((file.path.to_owned(), String::new(), 0));
        }
        let Some((_, text, done)) = changed.iter_mut().find(|(path, ..)| path == file.path) else { continue };
        text.push_str(&file.text[*done..at]);
        text.push_str(&new);
        *done = at + old.len();
    }
    let rest = |path: &Path, done: usize| {
        let text = sources.iter().find(|source| source.path == path).map_or("", |source| source.text);
        text[done..].to_owned()
    };
    Ok(changed.into_iter().map(|(path, text, done)| (path.clone(), text + &rest(&path, done))).collect())
}

/// Every place that names a file as a module, in the order of the files.
fn places<'a>(sources: &[Source<'a>], path: &Path) -> Vec<(std::rc::Rc<File<'a>>, usize)> {
    let Some(language) = Language::of(path) else { return Vec::new() };
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let mut found = Vec::new();
    for source in sources.iter().filter(|source| source.path != path && has_word(source.text, &stem)) {
        if Language::of(source.path) != Some(language) {
            continue;
        }
        let file = std::rc::Rc::new(File::new(source.path, source.text, language));
        let imports = file.imports();
        let imported =
            |line: usize| imports.iter().find(|(lines, _)| lines.contains(&line)).map(|(_, text)| text.as_str());
        let leads = imports.iter().any(|(_, text)| leads_to(language, source.path, text, path, &stem));
        let all: std::collections::HashSet<(usize, Sort)> = file.places(&stem).into_iter().collect();
        for at in whole_words(source.text, &stem).take(PLACES_MAX) {
            let import = imported(file.line(at));
            let code = all.contains(&(at, Sort::Code));
            let behind = &source.text[at + stem.len()..];
            let means = match (language, import) {
                (Language::Script, Some(text)) => {
                    leads_to(language, source.path, text, path, &stem) && source.text[..at].ends_with('/')
                }
                (_, Some(text)) => leads_to(language, source.path, text, path, &stem),
                (Language::Rust, None) => {
                    let before = source.text[..at].trim_end();
                    code && (behind.starts_with("::") || before.ends_with("mod") && behind.starts_with(';'))
                }
                (Language::Python, None) => {
                    let qualified = file.qualifier(at).is_some_and(|(_, before)| !dotted(path).contains(before));
                    code && leads && behind.starts_with('.') && !qualified
                }
                _ => false,
            };
            if means {
                found.push((file.clone(), at));
            }
        }
    }
    found
}

/// Whether an import leads to a file.
fn leads_to(language: Language, from: &Path, import: &str, path: &Path, stem: &str) -> bool {
    let folder = path.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    match language {
        Language::Python => {
            let whole = dotted(path);
            let module = import.split_whitespace().nth(1).unwrap_or_default();
            let near = from.parent() == path.parent();
            let by_name = import.split(" import ").nth(1).is_some_and(|names| has_word(names, stem));
            let package = folder.is_some_and(|folder| module.ends_with(&folder)) || module == "." && near;
            has_word(import, stem)
                && (module == whole
                    || import.contains(&format!(" {whole}"))
                    || module == format!(".{stem}") && near
                    || module == stem && near
                    || package && by_name)
        }
        Language::Script => {
            let written = import.rsplit(['"', '\'']).nth(1).unwrap_or_default();
            let mut target: PathBuf = from.parent().unwrap_or(Path::new("")).to_owned();
            for part in Path::new(written).components() {
                match part {
                    std::path::Component::ParentDir => drop(target.pop()),
                    std::path::Component::Normal(name) => target.push(name),
                    _ => {}
                }
            }
            written.starts_with('.')
                && (target.with_extension("") == path.with_extension("") || target == path.with_extension(""))
        }
        Language::Rust => has_word(import, stem),
        _ => false,
    }
}
