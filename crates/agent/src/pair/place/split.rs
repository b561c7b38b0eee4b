//! A block of an answer, divided by the files its definitions stand in.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use index::outline::{self, Item, Kind, Language};

use super::{Head, Surroundings, TALK, comment_path, existing, looks_like_path, split_info, tests_of as tests, words};
use crate::context::{Shown, definitions, files};
use crate::pair::request::mentions;

/// Files named in one reason.
const NAMED_MAX: usize = 6;

/// What becomes of a block.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// Files, and what of the block is about them.
    pub(super) parts: Vec<(PathBuf, String)>,
    /// What is placed nowhere: its name, and why.
    pub(super) left: Vec<(String, Nowhere)>,
}

/// Why something is placed nowhere, for the person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Nowhere {
    /// The first definition of it, where there is one.
    pub(super) name: Option<String>,
    pub(super) why: String,
    /// Files it could belong to.
    pub(super) could: Vec<PathBuf>,
}

impl From<&str> for Nowhere {
    fn from(why: &str) -> Self {
        Self { name: None, why: why.to_owned(), could: Vec::new() }
    }
}

/// Divides a block. The error says why it belongs nowhere.
pub(super) fn parts(head: &Head, text: &str, around: &Surroundings<'_>) -> Result<Parts, Nowhere> {
    if around.task.question {
        return Err("the message is a question".into());
    }
    let (language, rest) = split_info(&head.info);
    let named = rest.iter().chain([&language]).find_map(|word| existing(word, around));
    let named = named.or_else(|| words(&head.heading).iter().rev().find_map(|word| existing(word, around)));
    let named = named.or_else(|| comment_path(text).and_then(|path| existing(path, around)));
    if is_patch(head, text) {
        return patch(text, named, around);
    }
    let alone = match words(&head.heading)[..] {
        [word] => Some(word),
        _ => None,
    };
    let fresh = || rest.iter().copied().next().or(alone).or_else(|| comment_path(text));
    // A sentence above a block names a new file where the request wants that one made.
    let made = || {
        let written = words(&head.heading).into_iter().rev();
        let made = wanted(around);
        written.filter_map(|word| files::inside(around.root, word)).find(|path| made.contains(path))
    };
    let fresh = || -> Option<PathBuf> {
        fresh().filter(|name| looks_like_path(name)).and_then(|name| files::inside(around.root, name))
    };
    let fits = |path: &PathBuf| language_fits(language, path);
    let named = named.filter(fits).or_else(|| fresh().filter(fits)).or_else(|| made().filter(fits));
    let talk = TALK.contains(&language.to_lowercase().as_str());
    if talk && named.is_none() {
        return Err("it is a command or its output, which Flint does not run".into());
    }
    let kind = named.clone().filter(|path| Language::of(path).is_some()).or_else(|| like(language, around));
    match kind {
        Some(kind) => code(named, &kind, language, text, around),
        None => other(named, language, text, around),
    }
}

/// Whether what stands behind a fence can be the language of a file. A block of Python is not for a README.
fn language_fits(language: &str, path: &Path) -> bool {
    let of_fence = like_name(language);
    if TALK.contains(&of_fence.as_str()) {
        let ending = path.extension().and_then(|ending| ending.to_str());
        let prose = matches!(of_fence.as_str(), "text" | "txt" | "plaintext");
        return matches!(ending, None | Some("sh" | "bash" | "zsh")) || prose && Language::of(path).is_none();
    }
    let known = ENDINGS.iter().any(|ending| files::language(Path::new(&format!("a.{ending}"))) == of_fence);
    let family = |name: &str| match name {
        "typescript" | "javascript" => "script".to_owned(),
        "c" | "h" | "cpp" => "c".to_owned(),
        other => other.to_owned(),
    };
    !known || family(&of_fence) == family(files::language(path))
}

/// The endings of languages that blocks are in.
const ENDINGS: &[&str] = &[
    "py", "rs", "ts", "js", "go", "c", "h", "cpp", "java", "kt", "cs", "php", "swift", "scala", "dart", "md", "toml",
    "json",
];

/// The name of a language as `files::language` has it.
fn like_name(language: &str) -> String {
    match language.to_lowercase().as_str() {
        "py" | "python3" => "python",
        "rs" => "rust",
        "ts" | "tsx" => "typescript",
        "js" | "jsx" => "javascript",
        "golang" => "go",
        "c++" => "cpp",
        "md" => "markdown",
        other => return other.to_owned(),
    }
    .to_owned()
}

/// Whether a block is a diff or a patch.
pub(super) fn is_patch(head: &Head, text: &str) -> bool {
    matches!(split_info(&head.info).0, "diff" | "patch") || text.trim_start().starts_with("*** Begin Patch")
}

/// A path whose ending says the language of a block; with no language behind the fence, that of the first file.
fn like(language: &str, around: &Surroundings<'_>) -> Option<PathBuf> {
    let name = like_name(language);
    let by_name = ENDINGS.iter().map(|ending| PathBuf::from(format!("a.{ending}")));
    let mut by_name = by_name.filter(|path| Language::of(path).is_some());
    let by_name = by_name.find(|path| files::language(path) == name);
    let of_file = || around.files.iter().find(|file| Language::of(&file.path).is_some()).map(|file| file.path.clone());
    by_name.or_else(|| of_file().filter(|_| language.is_empty()))
}

/// A block of code. `kind` has the ending of its language.
fn code(
    named: Option<PathBuf>,
    kind: &Path,
    language: &str,
    text: &str,
    around: &Surroundings<'_>,
) -> Result<Parts, Nowhere> {
    let mut items = definitions(kind, text);
    if let Some(language) = Language::of(kind).filter(|_| items.is_empty()) {
        // The inside of a class: methods without their class.
        items = outline::members(language, text);
        items.retain(|item| item.kind == Kind::Function);
    }
    let tops: Vec<&Item> = items.iter().filter(|item| item.parents.is_empty() || !is_inside(item, &items)).collect();
    if tops.is_empty() {
        let path = named.or_else(|| fresh(kind, around)).or_else(|| tests::file(kind, &[], text, around));
        let path = path.ok_or_else(|| Nowhere {
            could: could(kind, around),
            ..Nowhere::from("it defines nothing, and no file is named")
        })?;
        return Ok(Parts { parts: vec![(path, text.to_owned())], left: Vec::new() });
    }
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mut parts = Parts::default();
    let mut owners: Vec<Option<PathBuf>> = Vec::new();
    let mut dropped: Vec<usize> = Vec::new();
    let mut several: Vec<(usize, Vec<PathBuf>)> = Vec::new();
    let here = |item: &Item| named.as_deref().is_some_and(|path| has(path, item, around));
    let some_here = tops.iter().any(|item| here(item));
    for (number, item) in tops.iter().enumerate() {
        if here(item) {
            owners.push(named.clone());
            continue;
        }
        let own = lines[item.lines.start..item.lines.end.min(lines.len())].concat();
        match owner(item, &own, named.as_deref().filter(|_| !some_here), around) {
            Owner::Several(paths) => {
                several.push((number, paths));
                owners.push(None);
            }
            Owner::New => owners.push(None),
            Owner::File(path) => owners.push(Some(path)),
            Owner::Left(why) => {
                if let Some(why) = why {
                    let name = Some(item.name.clone());
                    parts.left.push((format!("`{}`", item.name), Nowhere { name, why, could: Vec::new() }));
                }
                owners.push(None);
                dropped.push(number);
            }
        }
    }
    // What several files have goes to the one of them that the block is about anyway.
    let sure: Vec<PathBuf> = owners.iter().flatten().cloned().collect();
    for (number, paths) in several {
        let mut about = paths.iter().filter(|path| sure.contains(path) || named.as_ref() == Some(path));
        match (about.next(), about.next()) {
            (Some(path), None) => owners[number] = Some(path.clone()),
            _ => {
                let names: Vec<String> = paths.iter().take(NAMED_MAX).map(|path| path.display().to_string()).collect();
                let why = format!("it stands in {}; say which file is meant", names.join(" and in "));
                let name = tops[number].name.clone();
                parts.left.push((format!("`{name}`"), Nowhere { name: Some(name), why, could: paths }));
                dropped.push(number);
            }
        }
    }
    let known = |owners: &[Option<PathBuf>]| owners.iter().flatten().next().cloned();
    // What is new goes where it is named, else beside what it came with.
    let beside =
        |number: usize| known(&owners[number..]).or_else(|| owners[..number].iter().rev().flatten().next().cloned());
    let all_new = owners.iter().all(Option::is_none);
    let lone = if all_new && named.is_none() && dropped.len() < tops.len() {
        Some(meant(kind, language, &tops, text, around)?)
    } else {
        None
    };
    let mut of: Vec<Option<PathBuf>> = Vec::new();
    for number in 0..tops.len() {
        let path = owners[number].clone();
        let stays = named.clone().filter(|path| some_here || all_new || asked(path, around));
        let path = path.or(stays).or_else(|| lone.clone()).or_else(|| beside(number)).or_else(|| named.clone());
        of.push(path.filter(|_| !dropped.contains(&number)));
    }
    let mut paths: Vec<PathBuf> = Vec::new();
    for path in of.iter().flatten() {
        if !paths.contains(path) {
            paths.push(path.clone());
        }
    }
    for path in &paths {
        let foreign: Vec<&Item> =
            tops.iter().zip(&of).filter(|(_, of)| of.as_ref() != Some(path)).map(|(item, _)| *item).collect();
        let text = own_lines(kind, path, &lines, &foreign, paths.len() > 1, around);
        parts.parts.push((path.clone(), text));
    }
    Ok(parts)
}

/// Whether an item stands in another one of the block.
fn is_inside(item: &Item, items: &[Item]) -> bool {
    items.iter().any(|other| {
        other != item
            && other.lines.start <= item.lines.start
            && other.lines.end >= item.lines.end
            && other.parents.len() < item.parents.len()
    })
}

enum Owner {
    /// No file has it.
    New,
    File(PathBuf),
    /// Several files have it.
    Several(Vec<PathBuf>),
    /// It is placed nowhere; the reason, unless it stands there already.
    Left(Option<String>),
}

/// The file that has a definition. `named` is what the answer names without having anything of that file.
fn owner(item: &Item, own: &str, named: Option<&Path>, around: &Surroundings<'_>) -> Owner {
    let mut having: Vec<&Shown> = around.files.iter().filter(|file| has(&file.path, item, around)).collect();
    if having.is_empty() || named.is_some_and(|path| asked(path, around)) {
        return Owner::New;
    }
    for keeps in [&|file: &&Shown| !files::is_test(&file.path), &|file: &&Shown| asked(&file.path, around)]
        as [&dyn Fn(&&Shown) -> bool; 2]
    {
        if having.len() > 1 && having.iter().any(keeps) {
            having.retain(|file| keeps(file));
        }
    }
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<&str>>().join(" ");
    let stands = || having.iter().any(|file| squeezed(&file.text).contains(&squeezed(own)));
    match having[..] {
        [file] if files::is_test(&file.path) && !asked(&file.path, around) => {
            let why = format!("it stands in {}, a test that was not asked to change", file.path.display());
            Owner::Left(Some(why).filter(|_| !stands()))
        }
        [file] => Owner::File(file.path.clone()),
        _ if stands() => Owner::Left(None),
        _ => Owner::Several(having.iter().map(|file| file.path.clone()).collect()),
    }
}

/// Whether a file has a definition: one beside others, or a method that came without its class.
fn has(path: &Path, item: &Item, around: &Surroundings<'_>) -> bool {
    let Some(text) = super::current(path, around) else { return false };
    let items = definitions(path, &text);
    let top = items.iter().any(|other| other.name == item.name && other.parents.is_empty() && item.parents.is_empty());
    let member = || items.iter().any(|other| other.name == item.name && other.parents.ends_with(&item.parents));
    let is_member = item.takes_self() || !item.indent.is_empty() || !item.parents.is_empty();
    top || (is_member || item.kind == Kind::Function) && member()
}

/// Whether the request names a file, by its path or its name.
fn asked(path: &Path, around: &Surroundings<'_>) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    around.request.contains(&name)
        || path.file_stem().is_some_and(|stem| stem.len() > 3 && mentions(around.request, &stem.to_string_lossy()))
}

/// The files a request names that do not exist yet.
fn wanted(around: &Surroundings<'_>) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for word in around.request.split_whitespace() {
        let word = word.trim_matches(|letter: char| "\"'`()[]{}<>,;:!?*@".contains(letter)).trim_end_matches('.');
        let path = Some(word).filter(|word| looks_like_path(word)).and_then(|word| files::inside(around.root, word));
        if let Some(path) = path.filter(|path| !around.root.join(path).exists() && !found.contains(path)) {
            found.push(path);
        }
    }
    found
}

/// Where a block goes that no name leads to: the one file of its language that the request wants made, or names; tests
/// beside other tests; else the only file that was shown and is not a test, or the one whose names the request has.
fn meant(
    kind: &Path,
    language: &str,
    tops: &[&Item],
    text: &str,
    around: &Surroundings<'_>,
) -> Result<PathBuf, Nowhere> {
    if let Some(path) = fresh(kind, around).or_else(|| tests::file(kind, tops, text, around)) {
        return Ok(path);
    }
    let same = |path: &Path| is_like(kind, path);
    let shown: Vec<&Shown> = around.files.iter().filter(|file| same(&file.path)).collect();
    let asked: Vec<&&Shown> = shown.iter().filter(|file| asked(&file.path, around)).collect();
    if let [file] = asked[..] {
        return Ok(file.path.clone());
    }
    let mut code = around.files.iter().filter(|file| !files::is_test(&file.path));
    match (code.next(), code.next()) {
        (Some(file), None) if same(&file.path) || language.is_empty() => Ok(file.path.clone()),
        _ => tests::subject(kind, around.request, around).ok_or_else(|| Nowhere {
            name: tops.first().map(|item| item.name.clone()),
            could: could(kind, around),
            ..Nowhere::from("it is new, and nothing says which file it belongs to; name the file")
        }),
    }
}

/// Files of a block's language that were shown.
fn could(kind: &Path, around: &Surroundings<'_>) -> Vec<PathBuf> {
    around.files.iter().filter(|file| is_like(kind, &file.path)).map(|file| file.path.clone()).collect()
}

/// The one file of a block's language that the request wants made.
fn fresh(kind: &Path, around: &Surroundings<'_>) -> Option<PathBuf> {
    let taken = |path: &PathBuf| around.files.iter().any(|file| file.path == *path);
    let mut fresh = wanted(around).into_iter().filter(|path| is_like(kind, path) && !taken(path));
    fresh.next().filter(|_| fresh.next().is_none())
}

pub(super) fn is_like(kind: &Path, path: &Path) -> bool {
    files::language(path) == files::language(kind) || path.extension() == kind.extension()
}

/// A block that is not code: by its name, else by its language.
fn other(named: Option<PathBuf>, language: &str, text: &str, around: &Surroundings<'_>) -> Result<Parts, Nowhere> {
    let is = |path: &Path| {
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase()).unwrap_or_default();
        !language.is_empty() && (files::language(path) == like_name(language) || ending == language)
    };
    let one = |paths: Vec<PathBuf>| match &paths[..] {
        [path] => Some(path.clone()),
        _ => None,
    };
    let fresh = || one(wanted(around).into_iter().filter(|path| is(path)).collect());
    let shown = || around.files.iter().filter(|file| is(&file.path)).map(|file| file.path.clone());
    let asked = || one(shown().filter(|path| asked(path, around)).collect());
    let path = named.or_else(fresh).or_else(asked).or_else(|| one(shown().collect()));
    let path = path.ok_or_else(|| Nowhere {
        could: shown().collect(),
        ..Nowhere::from("nothing says which file it belongs to; name the file")
    })?;
    Ok(Parts { parts: vec![(path, text.to_owned())], left: Vec::new() })
}

/// The files of a diff, and their hunks.
fn patch(text: &str, named: Option<PathBuf>, around: &Surroundings<'_>) -> Result<Parts, Nowhere> {
    let mut parts = Parts::default();
    let mut at: Option<PathBuf> = named;
    for line in text.split_inclusive('\n') {
        let path = ["+++ ", "*** Update File:", "*** Add File:"].iter().find_map(|mark| line.strip_prefix(mark));
        let path = path.map(|path| path.split('\t').next().unwrap_or_default().trim());
        if let Some(path) = path.filter(|path| *path != "/dev/null") {
            let bare = path.strip_prefix("b/").unwrap_or(path);
            let path = existing(bare, around).or_else(|| existing(path, around));
            at = path.or_else(|| files::inside(around.root, bare)).or(at);
            continue;
        }
        if line.starts_with("--- ")
            || line.starts_with("diff ")
            || line.starts_with("index ")
            || line.starts_with("*** ")
        {
            continue;
        }
        let Some(path) = &at else { return Err("the diff names no file".into()) };
        match parts.parts.iter_mut().find(|(other, _)| other == path) {
            Some((_, hunks)) => hunks.push_str(line),
            None => parts.parts.push((path.clone(), line.to_owned())),
        }
    }
    Ok(parts)
}

/// The lines of a block for one of its files: without what stands in others, and without imports of itself. With several
/// files each gets only the imports it uses.
fn own_lines(
    kind: &Path,
    path: &Path,
    lines: &[&str],
    foreign: &[&Item],
    several: bool,
    around: &Surroundings<'_>,
) -> String {
    let away = |at: usize| foreign.iter().any(|item| item.lines.contains(&at));
    let Some(language) = Language::of(kind) else { return lines.concat() };
    let imports: Vec<Item> =
        outline::items(language, &lines.concat()).into_iter().filter(|item| item.kind == Kind::Import).collect();
    let imported = |at: usize| imports.iter().find(|item| item.lines.contains(&at) && item.parents.is_empty());
    let code: String =
        (0..lines.len()).filter(|at| !away(*at) && imported(*at).is_none()).map(|at| lines[at]).collect();
    let keeps = |at: usize| match imported(at) {
        None => true,
        Some(import) if of_itself(path, import, around) => false,
        Some(import) => !several || uses(&code, import),
    };
    (0..lines.len()).filter(|at| !away(*at) && keeps(*at)).map(|at| lines[at]).collect()
}

/// Whether code uses what an import brings in.
fn uses(code: &str, import: &Item) -> bool {
    let names = import.name.split(|c: char| !c.is_alphanumeric() && c != '_');
    names
        .filter(|name| !name.is_empty() && !matches!(*name, "from" | "import" | "use" | "as"))
        .any(|name| mentions(code, name))
}

/// Whether an import brings in the very file it would stand in.
fn of_itself(path: &Path, import: &Item, around: &Surroundings<'_>) -> bool {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    // One the file has already is its author's.
    if super::current(path, around).is_some_and(|text| text.contains(&import.name)) {
        return false;
    }
    match Language::of(path) {
        Some(Language::Python) => {
            let mut words = import.name.split_whitespace();
            let (first, module) = (words.next(), words.next().unwrap_or_default());
            let folders = path
                .with_extension("")
                .components()
                .map(|part| part.as_os_str().to_string_lossy().into_owned())
                .collect::<Vec<_>>()
                .join(".");
            matches!(first, Some("from" | "import"))
                && (module == stem
                    || module == format!(".{stem}")
                    || folders == module
                    || folders.ends_with(&format!(".{module}")))
        }
        Some(Language::Rust) => import.name.starts_with(&format!("use crate::{stem}::")),
        Some(Language::Script) => {
            let from = import.name.rsplit(['"', '\'']).nth(1).unwrap_or_default();
            let file = from.rsplit('/').next().unwrap_or_default();
            from.starts_with("./") && file.split('.').next() == Some(stem.as_str())
        }
        _ => false,
    }
}

/// The block up to its last definition: behind that stand examples of use, unless the file has such lines too.
pub(super) fn definitions_only(path: &Path, text: &str, old: &str) -> String {
    let items = definitions(path, text);
    let Some(end) = items.iter().map(|item| item.lines.end).max() else { return text.to_owned() };
    let stands: HashSet<&str> = old.lines().map(str::trim).collect();
    let known = |line: &str| stands.contains(line.trim());
    let lines = text.lines().enumerate().filter(|(at, line)| *at < end || known(line));
    lines.map(|(_, line)| format!("{line}\n")).collect()
}
