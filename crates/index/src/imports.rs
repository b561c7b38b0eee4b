//! Imports of names that the project's own files do not have.

use std::path::{Component, Path, PathBuf};

use crate::Source;
use crate::modules::dotted;
use crate::outline::Language;
use crate::words::{File, has_word};

/// An import that leads nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dangling {
    /// The name that is imported.
    pub name: String,
    /// The file it should be in.
    pub from: PathBuf,
}

/// Names that a text imports from files of the project in which they never stand. `known` says of an import whether it is
/// none of the caller's business, such as one that was there before.
pub fn dangling(sources: &[Source<'_>], path: &Path, text: &str, known: impl Fn(&str) -> bool) -> Vec<Dangling> {
    let Some(language) = Language::of(path) else { return Vec::new() };
    let file = File::new(path, text, language);
    let mut found = Vec::new();
    for (_, import) in file.imports().into_iter().filter(|(_, import)| !known(import)) {
        let read = match language {
            Language::Python => python(sources, path, &import),
            Language::Script => script(sources, path, &import),
            Language::Rust => rust(sources, &import),
            _ => None,
        };
        let Some((source, names)) = read else { continue };
        // A package has its modules as names too.
        let folder = source.path.parent().unwrap_or(Path::new(""));
        let module = |name: &str| {
            sources.iter().any(|other| {
                other.path.starts_with(folder.join(name)) || other.path.with_extension("") == folder.join(name)
            })
        };
        let missing = names.into_iter().filter(|name| !has_word(source.text, name) && !module(name));
        found.extend(missing.map(|name| Dangling { name: name.to_owned(), from: source.path.to_owned() }));
    }
    found
}

/// The names in a list, as the file they come from calls them.
fn names(list: &str) -> Vec<&str> {
    list.split(',')
        .map(|part| part.trim().trim_start_matches("type "))
        .map(|part| part.split(" as ").next().unwrap_or_default().trim())
        .filter(|name| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_'))
        .filter(|name| !matches!(*name, "self" | "default"))
        .collect()
}

/// The one source of which this is true.
fn only<'a, 'b>(sources: &'b [Source<'a>], fits: impl Fn(&Path) -> bool) -> Option<&'b Source<'a>> {
    let mut fitting = sources.iter().filter(|source| fits(source.path));
    fitting.next().filter(|_| fitting.next().is_none())
}

fn python<'a, 'b, 'c>(
    sources: &'b [Source<'a>],
    path: &Path,
    import: &'c str,
) -> Option<(&'b Source<'a>, Vec<&'c str>)> {
    let (module, list) = import.strip_prefix("from ")?.split_once(" import ")?;
    let module = module.trim();
    let source = match module.strip_prefix('.') {
        Some(rest) if rest.starts_with('.') => return None,
        Some("") => return None,
        Some(rest) => {
            let target = path.parent()?.join(rest.replace('.', "/"));
            only(sources, |path| path.with_extension("") == target && Language::of(path) == Some(Language::Python))?
        }
        None => only(sources, |path| {
            let name = dotted(path);
            Language::of(path) == Some(Language::Python) && (name == module || name.ends_with(&format!(".{module}")))
        })?,
    };
    Some((source, names(list.trim_matches(['(', ')', ' ']))))
}

fn script<'a, 'b, 'c>(
    sources: &'b [Source<'a>],
    path: &Path,
    import: &'c str,
) -> Option<(&'b Source<'a>, Vec<&'c str>)> {
    let written = import.rsplit(['"', '\'']).nth(1).filter(|written| written.starts_with('.'))?;
    let mut target = path.parent()?.to_owned();
    for part in Path::new(written).components() {
        match part {
            Component::ParentDir => drop(target.pop()),
            Component::Normal(name) => target.push(name),
            _ => {}
        }
    }
    let source = only(sources, |path| {
        Language::of(path) == Some(Language::Script)
            && (path == target
                || path.with_extension("") == target
                || path.with_extension("") == target.with_extension(""))
    })?;
    let list = import.split_once('{')?.1.split_once('}')?.0;
    Some((source, names(list)))
}

fn rust<'a, 'b, 'c>(sources: &'b [Source<'a>], import: &'c str) -> Option<(&'b Source<'a>, Vec<&'c str>)> {
    let path = import.split_once("use crate::")?.1.trim_end_matches(';');
    let (module, list) = path.rsplit_once("::").filter(|_| !path.contains('{')).or_else(|| path.split_once("::{"))?;
    let list = list.trim_end_matches('}');
    let file = module.replace("::", "/");
    let source =
        only(sources, |path| path.ends_with(format!("src/{file}.rs")) || path.ends_with(format!("src/{file}/mod.rs")))?;
    Some((source, names(list)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_file_has_is_found_and_nothing_else() {
        let files = [
            ("shop/__init__.py", ""),
            ("shop/catalog.py", "class Item:\n    pass\n"),
            ("src/store.ts", "export interface Todo {}\n"),
            ("src/count.rs", "pub struct Counts;\n"),
        ];
        let sources: Vec<Source<'_>> =
            files.iter().map(|(path, text)| Source { path: Path::new(path), text }).collect();
        let check = |path: &str, text: &str, expected: &[&str]| {
            let found = dangling(&sources, Path::new(path), text, |_| false);
            let found: Vec<String> = found.iter().map(|one| format!("{} {}", one.from.display(), one.name)).collect();
            assert_eq!(found, expected, "{text}");
        };
        check("shop/cart.py", "from shop.catalog import Item, Cart\n", &["shop/catalog.py Cart"]);
        check(
            "shop/cart.py",
            "from .catalog import (\n    Item as I,\n    Nope as Item,\n)\n",
            &["shop/catalog.py Nope"],
        );
        check(
            "shop/cart.py",
            "from shop import catalog\nfrom os import nothing\nimport shop.nope\nfrom shop.catalog import *\n",
            &[],
        );
        check(
            "src/a.ts",
            "import { Todo, type List } from \"./store.js\"\nimport x from 'y'\n",
            &["src/store.ts List"],
        );
        check(
            "src/a.rs",
            "use crate::count::{self, Counts, Words};\nuse crate::count::Lines;\nuse std::fmt::Nope;\n",
            &["src/count.rs Words", "src/count.rs Lines"],
        );
        assert_eq!(dangling(&sources, Path::new("a.py"), "from shop.catalog import Nope\n", |_| true), []);
    }
}
