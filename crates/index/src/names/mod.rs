//! Whether the names that a text uses exist: in the project, in what it imports, or because the text makes them.
//!
//! A name that nothing knows is what small models get wrong most believably, and finding it needs no model. Three levels, each
//! with what the ones before find: words (the name stands somewhere in the project, an installed package that the project
//! imports, or the language), imports (the package is installed or imported elsewhere in the project, and has what is taken
//! from it), members (a module has what stands behind its `.`, and a type what stands behind its `::` or `self.`). Where a level
//! does not know what something is, it leaves it to the words.

mod nearest;
pub mod scan;

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::path::Path;

use crate::contents::Index;
use crate::library::Library;
use crate::outline::{self, Item, Kind, Language};
use crate::terms;
use scan::{Receiver, Scan, Site, Use};

/// Unknown names of one text that are told.
const TOLD_MAX: usize = 64;

/// Bases of a class that are followed.
const BASES_MAX: usize = 16;

/// How much is known about a name before it passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// It stands somewhere.
    Words,
    /// Imports lead somewhere.
    Imports,
    /// Members belong to what they stand behind.
    #[default]
    Members,
}

/// A name that nothing knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// The name.
    pub name: String,
    /// Its line, from 0.
    pub line: usize,
    /// Where it stands in the text, in bytes.
    pub at: usize,
    /// What it was looked for in.
    pub missing: Missing,
    /// Names that exist and are nearly so, the nearest first.
    pub nearest: Vec<String>,
}

/// What has no such name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Nothing that is known.
    Anywhere,
    /// It is a package that is not installed, and nothing imports it.
    Package,
    /// This module, or type.
    In(String),
}

impl std::fmt::Display for Unknown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.missing {
            Missing::Anywhere => write!(f, "`{}` does not exist", self.name)?,
            Missing::Package => write!(f, "there is no package `{}` here", self.name)?,
            Missing::In(of) => write!(f, "`{of}` has no `{}`", self.name)?,
        }
        match &self.nearest[..] {
            [] => Ok(()),
            [one] => write!(f, "; there is `{one}`"),
            [before @ .., last] => write!(f, "; there are `{}` and `{last}`", before.join("`, `")),
        }
    }
}

/// What is known of the names of a project in one language.
pub struct Names<'a> {
    index: &'a Index,
    library: &'a Library,
    level: Level,
    /// First parts of what the project imports.
    imported: OnceCell<HashSet<String>>,
    /// Names that other files of the same change make.
    made: HashSet<&'a str>,
}

/// The first parts of what a project imports in a language: the packages that its library should load.
pub fn imported(index: &Index, language: Language) -> HashSet<String> {
    let of_language = index.live().filter(|(_, file)| Language::of(&file.path) == Some(language));
    of_language.flat_map(|(_, file)| &file.imports).flat_map(|import| packages(language, import)).collect()
}

/// The same, of one text.
pub fn imported_by(language: Language, text: &str) -> HashSet<String> {
    let items = outline::items(language, text).into_iter().filter(|item| item.kind == Kind::Import);
    items.flat_map(|item| packages(language, &item.name)).collect()
}

/// The packages that one import names.
fn packages(language: Language, import: &str) -> Vec<String> {
    let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let found: Vec<String> = match language {
        Language::Python => match import.strip_prefix("from ") {
            Some(rest) => vec![word(rest.trim_start())],
            None => {
                let rest = import.strip_prefix("import ").unwrap_or_default();
                rest.split(',').map(|part| word(part.trim_start())).collect()
            }
        },
        Language::Rust => {
            let rest = import.split_once("use ").map_or("", |(_, rest)| rest);
            vec![word(rest.trim_start_matches([':', ' ']))]
        }
        Language::Script => {
            let written = import.rsplit(['"', '\'']).nth(1).unwrap_or_default().trim_start_matches("node:");
            let parts = if written.starts_with('@') { 2 } else { 1 };
            let name = written.split('/').take(parts).collect::<Vec<&str>>().join("/");
            vec![if written.starts_with('.') { String::new() } else { name }]
        }
        _ => Vec::new(),
    };
    found.into_iter().filter(|name| !name.is_empty() && !matches!(name.as_str(), "crate" | "self" | "super")).collect()
}

/// Names of imports in a text: what they are called there, and the module each stands for.
struct Aliases {
    of: HashMap<String, String>,
}

impl<'a> Names<'a> {
    /// Checks against an index and the packages of one language.
    pub fn new(index: &'a Index, library: &'a Library, level: Level) -> Self {
        Self { index, library, level, imported: OnceCell::new(), made: HashSet::new() }
    }

    /// Other files of the same change make these names.
    pub fn with_made(mut self, made: impl IntoIterator<Item = &'a str>) -> Self {
        self.made.extend(made);
        self
    }

    /// The names that a text uses in lines that are new and that nothing knows. The index must not have the text yet.
    pub fn unknown(&self, path: &Path, text: &str, is_new: impl Fn(usize) -> bool) -> Vec<Unknown> {
        let language = self.library.language();
        let masked = outline::code_lines(language, text).join("\n");
        let items = outline::items(language, text);
        let found = scan::scan_masked(language, text, &masked, &items);
        let mut unknown = Vec::new();
        if self.level >= Level::Imports {
            self.packages(language, text, &items, (&found, &is_new), &mut unknown);
        }
        let aliases = self.aliases(language, &items);
        for site in found.sites.iter().filter(|site| is_new(site.line)) {
            if unknown.len() >= TOLD_MAX {
                break;
            }
            if unknown.iter().any(|other| other.name == site.name) {
                continue;
            }
            let missing = match self.is_word(&found, site.name) {
                false => {
                    let owner = self.owner(&found, &aliases, site).filter(|owner| self.library.has_module(owner));
                    Some(owner.map_or(Missing::Anywhere, Missing::In))
                }
                true if self.level >= Level::Imports && site.how == Use::Import => self.import(language, &items, site),
                true if self.level >= Level::Members => self.member(path, &found, &items, &aliases, site),
                true => None,
            };
            if let Some(missing) = missing {
                unknown.push(self.told(&found, site, missing));
            }
        }
        unknown.sort_by_key(|one| one.at);
        unknown
    }

    /// Whether a name, as prose has it, stands anywhere.
    pub fn has(&self, name: &str) -> bool {
        self.index.has_name(name) || self.library.has_name(name)
    }

    /// Names that are nearly so.
    pub fn nearest(&self, name: &str) -> Vec<String> {
        // What the project has is meant more often than what the world has.
        let mut found = nearest::of(name, self.index.names());
        if found.is_empty() {
            found = nearest::of(name, self.library.names());
        }
        found
    }

    fn is_word(&self, found: &Scan<'_>, name: &str) -> bool {
        found.made.contains(name)
            || found.aliases.contains(name)
            || self.made.contains(name)
            || name.chars().all(|c| c == '_')
            || self.has(name)
            || self.library.has_package(name)
    }

    fn told(&self, found: &Scan<'_>, site: &Site<'_>, missing: Missing) -> Unknown {
        let nearest = match &missing {
            Missing::Package => nearest::of(site.name, self.library.packages()),
            Missing::In(of) => nearest::of(site.name, self.library.names_of(of)),
            Missing::Anywhere => match nearest::of(site.name, self.index.names().chain(found.made.iter().copied())) {
                found if found.is_empty() => self.nearest(site.name),
                found => found,
            },
        };
        Unknown { name: site.name.to_owned(), line: site.line, at: site.at, missing, nearest }
    }

    /// Packages that are imported and exist nowhere.
    fn packages(
        &self,
        language: Language,
        text: &str,
        items: &[Item],
        (found, is_new): (&Scan<'_>, &impl Fn(usize) -> bool),
        unknown: &mut Vec<Unknown>,
    ) {
        let starts: Vec<usize> = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        for item in items.iter().filter(|item| item.kind == Kind::Import && item.lines.clone().any(is_new)) {
            for name in packages(language, &item.name) {
                let made = found.made.contains(name.as_str()) || self.made.contains(name.as_str());
                let known = made || self.library.has_package(&name) || self.is_of_project(language, &name);
                if known || unknown.iter().any(|other| other.name == name) {
                    continue;
                }
                let from = starts.get(item.head).copied().unwrap_or_default();
                let at = text[from..].find(name.as_str()).map_or(from, |at| from + at);
                let nearest = nearest::of(&name, self.library.packages());
                unknown.push(Unknown { name, line: item.head, at, missing: Missing::Package, nearest });
            }
        }
    }

    /// Whether the project has a module of that name, or imports it elsewhere.
    fn is_of_project(&self, language: Language, name: &str) -> bool {
        let imported = self.imported.get_or_init(|| imported(self.index, language));
        imported.contains(name)
            || self.index.paths().any(|path| {
                path.file_stem().is_some_and(|stem| stem == name)
                    || path.components().any(|part| part.as_os_str() == name)
            })
            || language == Language::Rust && self.index.has_name(name)
    }

    fn aliases(&self, language: Language, items: &[Item]) -> Aliases {
        let mut of = HashMap::new();
        if language == Language::Python {
            for item in items.iter().filter(|item| item.kind == Kind::Import) {
                if let Some((module, list)) =
                    item.name.strip_prefix("from ").and_then(|rest| rest.split_once(" import "))
                {
                    let module = module.trim();
                    for part in list.trim_matches(['(', ')', ' ']).split(',') {
                        let (name, alias) = part.trim().split_once(" as ").unwrap_or((part.trim(), part.trim()));
                        if !module.starts_with('.') && !name.is_empty() {
                            of.insert(alias.trim().to_owned(), format!("{module}.{}", name.trim()));
                        }
                    }
                } else if let Some(list) = item.name.strip_prefix("import ") {
                    for part in list.split(',') {
                        match part.trim().split_once(" as ") {
                            Some((module, alias)) => of.insert(alias.trim().to_owned(), module.trim().to_owned()),
                            None => {
                                let first = part.trim().split('.').next().unwrap_or_default();
                                of.insert(first.to_owned(), first.to_owned())
                            }
                        };
                    }
                }
            }
        }
        Aliases { of }
    }

    /// The module that a site takes a name from, by its imports.
    fn owner(&self, found: &Scan<'_>, aliases: &Aliases, site: &Site<'_>) -> Option<String> {
        let Receiver::Path(path) = &site.receiver else { return None };
        let (first, rest) = path.split_first()?;
        // A variable of that name may stand before the module.
        if found.made.contains(first) {
            return None;
        }
        let mut module = aliases.of.get(*first)?.clone();
        for part in rest {
            module.push('.');
            module.push_str(part);
        }
        Some(module)
    }

    /// What has not the name that is imported from it.
    fn import(&self, language: Language, items: &[Item], site: &Site<'_>) -> Option<Missing> {
        if language != Language::Python {
            return None;
        }
        let item = items.iter().find(|item| item.kind == Kind::Import && item.lines.contains(&site.line))?;
        let (module, list) = item.name.strip_prefix("from ")?.split_once(" import ")?;
        let module = module.trim();
        let listed = terms::identifiers(list).any(|(_, name)| name == site.name);
        if !listed || module.starts_with('.') || self.is_module_of_project(module) {
            return None;
        }
        (self.library.module_has(module, site.name) == Some(false)).then(|| Missing::In(module.to_owned()))
    }

    fn is_module_of_project(&self, module: &str) -> bool {
        let first = module.split('.').next().unwrap_or(module);
        self.index.paths().any(|path| {
            path.file_stem().is_some_and(|stem| stem == first)
                || path.components().any(|part| part.as_os_str() == first)
        })
    }

    /// What has not the name that stands behind it.
    fn member(
        &self,
        path: &Path,
        found: &Scan<'_>,
        items: &[Item],
        aliases: &Aliases,
        site: &Site<'_>,
    ) -> Option<Missing> {
        let Receiver::Path(receiver) = &site.receiver else { return None };
        // Every object has `__class__` and its like.
        if site.name.starts_with("__") && self.library.is_builtin(site.name) {
            return None;
        }
        match self.library.language() {
            Language::Python if matches!(receiver[..], ["self" | "cls"]) => self.of_class(path, found, items, site),
            Language::Python => {
                let module = self.owner(found, aliases, site)?;
                if self.is_module_of_project(&module) {
                    return None;
                }
                (self.library.module_has(&module, site.name) == Some(false)).then_some(Missing::In(module))
            }
            Language::Rust => self.of_type(found, receiver.last()?, site),
            _ => None,
        }
    }

    /// The class around a site that has no such member, and whose bases have none.
    fn of_class(&self, path: &Path, found: &Scan<'_>, items: &[Item], site: &Site<'_>) -> Option<Missing> {
        if found.made.contains(site.name) || self.made.contains(site.name) || self.index.file_has(path, site.name) {
            return None;
        }
        let class = items.iter().rfind(|item| item.kind == Kind::Type && item.lines.contains(&site.line))?;
        let mut due = vec![class.signature.clone()];
        let mut seen = HashSet::new();
        while let Some(head) = due.pop() {
            let bases = head.split_once('(').map_or("", |(_, bases)| bases.trim_end_matches([')', ':']));
            for base in bases.split(',').map(str::trim).filter(|base| !base.is_empty() && *base != "object") {
                if base.contains('=') || !seen.insert(base.to_owned()) {
                    continue;
                }
                let name = base.split('[').next().unwrap_or(base);
                let name = name.rsplit('.').next().unwrap_or(name);
                if let Some(own) = items.iter().find(|item| item.kind == Kind::Type && item.name == name) {
                    due.push(own.signature.clone());
                    continue;
                }
                let homes = self.index.definitions_of(name);
                // A base that nobody here knows may have anything.
                if homes.is_empty()
                    || seen.len() > BASES_MAX
                    || homes.iter().any(|(home, ..)| self.index.file_has(home, site.name))
                {
                    return None;
                }
                // Its own bases stand in another file: whatever they are, the words have to do.
                return None;
            }
        }
        Some(Missing::In(class.name.clone()))
    }

    /// The type of the project that has no such member: no file has both names.
    fn of_type(&self, found: &Scan<'_>, name: &str, site: &Site<'_>) -> Option<Missing> {
        let is_type = name.starts_with(char::is_uppercase) && name.len() > 1 && name != "Self";
        if !is_type
            || self.made.contains(site.name)
            || found.made.contains(site.name)
            || found.made.contains(name)
            || self.library.has_name(site.name)
        {
            return None;
        }
        if self.index.definitions_of(name).is_empty() {
            return None;
        }
        let files = self.index.files_with(name);
        (!files.iter().any(|file| self.index.file_has(file, site.name))).then(|| Missing::In(name.to_owned()))
    }
}

#[cfg(test)]
mod tests;
