//! Renaming a definition in every file that means it.
//!
//! Where a name comes from is followed by imports, not guessed by its letters: a variable, a keyword argument or a method
//! that happens to be called the same stays. Where that cannot be told (methods of several classes, a name that is taken)
//! nothing is renamed and the reason says what is there.

use std::path::{Path, PathBuf};

use crate::Source;
use crate::modules::{self, Reach};
use crate::outline::{Item, Kind, Language};
use crate::words::{File, Sort, has_word, is_letter, whole_words};

/// Places in one file that are looked at; no name of a person's code stands in it more often.
const IN_FILE_MAX: usize = 2_000;

/// Places named in a reason.
const PLACES_MAX: usize = 12;

/// What became of the files.
#[derive(Debug, Default)]
pub struct Renamed {
    /// Files that change, and what they become.
    pub files: Vec<(PathBuf, String)>,
    /// How many places changed.
    pub places: usize,
    /// Where the old name still stands in text: path and line, from 1.
    pub mentions: Vec<(PathBuf, usize)>,
}

/// Why nothing was renamed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unclear {
    /// Nothing is called so.
    #[error("nothing here defines `{0}`")]
    Absent(String),
    /// Several things are called so.
    #[error("`{name}` is defined in several places: {}; say which, with its class or file", places.join(", "))]
    Several {
        /// The name.
        name: String,
        /// Where.
        places: Vec<String>,
    },
    /// The new name stands for something else.
    #[error("`{name}` is taken already, at {place}; choose another name")]
    Taken {
        /// The new name.
        name: String,
        /// Where it stands.
        place: String,
    },
    /// The new name cannot be one.
    #[error("`{0}` cannot be a name")]
    NotAName(String),
    /// It stands in a file more often than is looked at.
    #[error("`{name}` stands in {file} more than {IN_FILE_MAX} times; rename it there with other means")]
    TooOften {
        /// The name.
        name: String,
        /// The file.
        file: String,
    },
    /// Names of this language are not followed.
    #[error("names in {0} are not followed from file to file")]
    Language(String),
}

/// A definition, and the file it stands in.
struct Definition<'a> {
    file: usize,
    item: &'a Item,
}

/// Renames what is called `from`, perhaps with its class before it (`Cart.add`), to `to`.
pub fn rename(sources: &[Source<'_>], from: &str, to: &str) -> Result<Renamed, Unclear> {
    let (owner, name) = match from.rsplit_once(['.', ':']) {
        Some((owner, name)) => (Some(owner.trim_end_matches(':')), name),
        None => (None, from),
    };
    let starts = to.chars().next().is_some_and(|c| c.is_alphabetic() || c == '_');
    if !starts || !to.chars().all(is_letter) || to == name {
        return Err(Unclear::NotAName(to.to_owned()));
    }
    // Files without either name cannot change.
    let code = |source: &Source<'_>| {
        Language::of(source.path).filter(|_| has_word(source.text, name) || has_word(source.text, to))
    };
    let files: Vec<File<'_>> =
        sources.iter().filter_map(|source| Some(File::new(source.path, source.text, code(source)?))).collect();
    if let Some(file) = files.iter().find(|file| file.places(name).len() > IN_FILE_MAX) {
        return Err(Unclear::TooOften { name: name.to_owned(), file: file.path.display().to_string() });
    }
    let of_owner = |definition: &Definition<'_>| {
        let module = modules::module_names(files[definition.file].path, sources);
        owner.is_none_or(|owner| {
            let owner = owner.rsplit(['.', ':']).next().unwrap_or(owner);
            definition.item.parents.last().is_some_and(|parent| has_word(parent, owner))
                || module.iter().any(|name| name == owner)
        })
    };
    let definitions: Vec<Definition<'_>> = definitions(&files, name).into_iter().filter(of_owner).collect();
    let one = only(&files, &definitions, name)?;
    let home = &files[one.file];
    if matches!(home.language, Language::CLike | Language::KotlinLike) {
        return Err(Unclear::Language(home.path.display().to_string()));
    }
    let is_member = is_member(home, one.item);
    let reach = modules::reach(&files, one.file, name, sources);
    check_free(&files, &reach, is_member.then_some(one), to)?;
    let mut renamed = Renamed::default();
    for (number, file) in files.iter().enumerate() {
        let means = |at: usize, sort: Sort| match is_member {
            true => means_member(file, one.item, at, name, sort, file.language == home.language),
            false => means_top(file, home, reach.bare[number], &reach, at, name, sort),
        };
        let mut text = String::new();
        let mut from = 0;
        for (at, sort) in file.places(name) {
            match means(at, sort) {
                true => {
                    text.push_str(&file.text[from..at]);
                    text.push_str(&replacement(file, at, name, to, sort));
                    from = at + name.len();
                    renamed.places += 1;
                }
                false if sort != Sort::Code && file.language == home.language => {
                    renamed.mentions.push((file.path.to_owned(), file.line(at) + 1));
                }
                false => {}
            }
        }
        if from > 0 {
            renamed.files.push((file.path.to_owned(), text + &file.text[from..]));
        }
    }
    for source in sources.iter().filter(|source| Language::of(source.path).is_none()) {
        let line = |at: usize| source.text[..at].matches('\n').count() + 1;
        renamed.mentions.extend(whole_words(source.text, name).map(|at| (source.path.to_owned(), line(at))));
    }
    renamed.mentions.dedup();
    Ok(renamed)
}

/// Everything of a name that is not inside of a function.
fn definitions<'a>(files: &'a [File<'_>], name: &str) -> Vec<Definition<'a>> {
    let mut found = Vec::new();
    for (number, file) in files.iter().enumerate() {
        for item in
            file.items.iter().filter(|item| item.name == name && !matches!(item.kind, Kind::Import | Kind::Impl))
        {
            let inside = file.function_at(item.head).is_some_and(|function| function != item);
            if !inside {
                found.push(Definition { file: number, item });
            }
        }
    }
    found
}

/// The one definition that is meant: one that stands beside others before one that is a member.
fn only<'a, 'b>(files: &[File<'_>], all: &'b [Definition<'a>], name: &str) -> Result<&'b Definition<'a>, Unclear> {
    let tops: Vec<&Definition<'_>> = all.iter().filter(|one| !is_member(&files[one.file], one.item)).collect();
    let mut chosen: Vec<&Definition<'_>> = if tops.is_empty() { all.iter().collect() } else { tops };
    // A variable of that name is meant only where nothing else is.
    if chosen.iter().any(|one| one.item.kind != Kind::Value) {
        chosen.retain(|one| one.item.kind != Kind::Value);
    }
    let Some(first) = chosen.first() else { return Err(Unclear::Absent(name.to_owned())) };
    let same = |other: &&&Definition<'_>| other.file == first.file && other.item.parents == first.item.parents;
    if chosen.iter().all(|other| same(&other)) {
        return Ok(first);
    }
    let place = |one: &&Definition<'_>| {
        format!("{}:{} (`{}`)", files[one.file].path.display(), one.item.head + 1, one.item.path())
    };
    let places = chosen.iter().take(PLACES_MAX).map(place).collect();
    Err(Unclear::Several { name: name.to_owned(), places })
}

/// Whether something is called on an object or a type rather than by itself.
fn is_member(file: &File<'_>, item: &Item) -> bool {
    let Some(parent) = item.parents.last() else { return false };
    let holder = file.items.iter().find(|other| other.name == *parent && other.lines.contains(&item.head));
    match file.language {
        // An inline module is no type.
        Language::Rust => !holder.is_some_and(|holder| holder.signature.contains("mod ") && holder.kind == Kind::Type),
        _ => true,
    }
}

/// Whether the new name is free wherever the old one is known.
fn check_free(files: &[File<'_>], reach: &Reach, member: Option<&Definition<'_>>, to: &str) -> Result<(), Unclear> {
    for (number, file) in files.iter().enumerate() {
        let taken = file.items.iter().find(|item| match member {
            Some(one) => item.name == to && item.parents == one.item.parents && number == one.file,
            None => reach.bare[number] && item.name == to && item.parents.is_empty() && item.kind != Kind::Import,
        });
        let imported = || {
            let imports = file.imports();
            imports.into_iter().find(|(_, text)| member.is_none() && reach.bare[number] && has_word(text, to))
        };
        let line = taken.map(|item| item.head).or_else(|| imported().map(|(lines, _)| lines.start));
        if let Some(line) = line {
            let place = format!("{}:{}", file.path.display(), line + 1);
            return Err(Unclear::Taken { name: to.to_owned(), place });
        }
    }
    Ok(())
}

/// Whether a place means a definition that stands beside others.
fn means_top(file: &File<'_>, home: &File<'_>, bare: bool, reach: &Reach, at: usize, name: &str, sort: Sort) -> bool {
    let end = at + name.len();
    if sort != Sort::Code && !file.in_format(at) {
        return means_in_text(file, home, bare, at, name, sort);
    }
    if let Some(import) = file.import_at(at) {
        let words = import.name.split(|c: char| !is_letter(c)).collect::<Vec<&str>>();
        let relative =
            words.iter().any(|word| matches!(*word, "super" | "self" | "crate")) || import.name.starts_with("from . ");
        return file.language == home.language
            && (reach.modules.iter().any(|module| words.contains(&module.as_str()))
                && is_imported(&import.name, name)
                || relative && bare);
    }
    if let Some((sign, qualifier)) = file.qualifier(at) {
        let known = |name: &str| modules::aliases(file, &reach.modules).iter().any(|alias| alias == name);
        return match (file.language, sign) {
            (Language::Rust, "::") => {
                matches!(qualifier, "crate" | "self" | "super")
                    || reach.modules.iter().any(|module| module == qualifier)
            }
            (Language::Rust, _) => false,
            _ => file.language == home.language && known(qualifier),
        };
    }
    if !bare {
        // `pub use a::X;` and `export { X } from` are no items everywhere.
        return file.imports().iter().any(|(lines, text)| {
            lines.contains(&file.line(at)) && reach.modules.iter().any(|module| has_word(text, module))
        });
    }
    let behind = file.behind(end);
    let assigned = behind.starts_with('=') && !behind.starts_with("==") && !behind.starts_with("=>");
    let typed = file.language == Language::Rust || matches!(file.before(at), Some('{' | ',' | '('));
    let field = behind.starts_with(':') && !behind.starts_with("::") && typed;
    if (file.language == Language::Python && assigned && file.in_brackets(at))
        || (file.language != Language::Python && field)
    {
        return false;
    }
    let line = file.line(at);
    match file.function_at(line).filter(|function| file.line(at) != function.head || function.name != name) {
        Some(function) if binds(file, function, name) => {
            file.language != Language::Python && behind.starts_with('(') && !declares(file, at)
        }
        _ => true,
    }
}

/// Whether an import brings in the name, and not something of a module that is called so.
fn is_imported(import: &str, name: &str) -> bool {
    match import.split_once(" import ") {
        Some((_, names)) => has_word(names, name),
        None => !import.starts_with("import ") || import.contains('{') || import.contains('"'),
    }
}

/// Whether a function has a variable of that name of its own.
fn binds(file: &File<'_>, function: &Item, name: &str) -> bool {
    let bytes = file.bytes(&(function.head..function.lines.end));
    let own = whole_words(&file.masked[bytes.clone()], name).map(|at| at + bytes.start);
    let head_end = file.masked[bytes.clone()].find([')', '{']).map_or(bytes.end, |at| bytes.start + at);
    own.into_iter().any(|at| {
        let behind = file.behind(at + name.len());
        let assigned = behind.starts_with('=') && !behind.starts_with("==") && !behind.starts_with("=>")
            || behind.starts_with(":=");
        let parameter = at < head_end && matches!(file.before(at), Some('(' | ',' | '*' | '&' | '{'));
        let statement = file.qualifier(at).is_none() && !file.in_brackets(at);
        parameter && function.name != name || declares(file, at) || assigned && statement
    })
}

/// Whether a word that makes variables stands before a place.
fn declares(file: &File<'_>, at: usize) -> bool {
    let before = file.masked[..at].trim_end();
    let word = before.rsplit(|c: char| !is_letter(c)).next().unwrap_or_default();
    match file.language {
        Language::Python => matches!(word, "for" | "as" | "lambda" | "global" | "nonlocal"),
        _ => matches!(word, "let" | "mut" | "const" | "var" | "for" | "ref" | "static") || before.ends_with('|'),
    }
}

/// Whether a comment or a string speaks of the definition: as `name`, as a call, or by its whole path.
fn means_in_text(file: &File<'_>, home: &File<'_>, bare: bool, at: usize, name: &str, sort: Sort) -> bool {
    let (before, behind) = (&file.text[..at], &file.text[at + name.len()..]);
    let path = format!("{}.", modules::dotted(home.path));
    match sort {
        _ if file.language != home.language => false,
        Sort::Comment => bare && (behind.starts_with('(') || before.ends_with('`') && behind.starts_with('`')),
        _ if file.language != Language::Python => false,
        _ => {
            let line = file.line(at);
            let exported = file.items.iter().any(|item| item.name == "__all__" && item.lines.contains(&line));
            exported && bare || before.ends_with(&path)
        }
    }
}

/// Whether a place means a member of the only type that has one of that name.
fn means_member(file: &File<'_>, item: &Item, at: usize, name: &str, sort: Sort, same: bool) -> bool {
    if !same || sort != Sort::Code && !file.in_format(at) {
        return false;
    }
    let defines = file
        .items
        .iter()
        .any(|other| other.name == name && other.parents == item.parents && other.head == file.line(at));
    let behind = file.behind(at + name.len());
    defines
        || file.qualifier(at).is_some()
            && (item.kind != Kind::Function || !behind.starts_with('=') || behind.starts_with("=="))
}

/// What stands in the place of the name.
fn replacement(file: &File<'_>, at: usize, name: &str, to: &str, sort: Sort) -> String {
    // `{ name }` of a script is `{ name: name }`.
    let short = file.language == Language::Script
        && sort == Sort::Code
        && matches!(file.before(at), Some('{' | ','))
        && file.behind(at + name.len()).starts_with([',', '}'])
        && !file.in_brackets(at)
        && file.imports().iter().all(|(lines, _)| !lines.contains(&file.line(at)))
        && !file.text.lines().nth(file.line(at)).is_some_and(|line| line.trim_start().starts_with("export {"));
    if short { format!("{name}: {to}") } else { to.to_owned() }
}

/// The places that use what a file defines, or once defined, under this name: path and line, from 1. Its own are not among
/// them.
pub fn uses(sources: &[Source<'_>], path: &Path, name: &str) -> Vec<(PathBuf, usize)> {
    let code =
        |source: &Source<'_>| Language::of(source.path).filter(|_| source.path == path || has_word(source.text, name));
    let files: Vec<File<'_>> =
        sources.iter().filter_map(|source| Some(File::new(source.path, source.text, code(source)?))).collect();
    let Some(home) = files.iter().position(|file| file.path == path) else { return Vec::new() };
    let reach = modules::reach(&files, home, name, sources);
    let mut found = Vec::new();
    for (number, file) in files.iter().enumerate().filter(|(number, _)| *number != home) {
        let means = |at: usize, sort: Sort| means_top(file, &files[home], reach.bare[number], &reach, at, name, sort);
        let places = file
            .places(name)
            .into_iter()
            .take(IN_FILE_MAX)
            .filter(|(at, sort)| *sort != Sort::Comment && means(*at, *sort));
        found.extend(places.map(|(at, _)| (file.path.to_owned(), file.line(at) + 1)));
    }
    found.dedup();
    found
}

#[cfg(test)]
mod tests;
