//! What is installed: the packages that code may import, and the names that they make.
//!
//! Which packages there are is a matter of listing folders; their sources are read only for those that are asked for, with
//! limits, once: the names are kept on disk by the folder and the time it was changed. Nothing is run, so an interpreter is
//! found by the files beside it. What has no sources (Python's builtins and modules of C, Rust's standard library, Node's)
//! comes as lists in this program.

mod find;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use boundary::file::Folder;

use crate::files;
use crate::names::scan::scan_masked;
use crate::outline::{self, Language};
use crate::record::hash;

/// Files of one package that are read, bytes of one of them, and bytes of all.
const FILES_MAX: usize = 4_000;
const FILE_BYTES_MAX: u64 = 2 << 20;
const BYTES_MAX: u64 = 64 << 20;

/// Packages that are loaded.
const PACKAGES_MAX: usize = 400;

/// Bytes of one kept list.
const KEPT_BYTES_MAX: u64 = 64 << 20;

/// Stands among the names of a module that may have others.
const OPEN: &str = "*";

/// Folders whose names nobody imports.
const ASIDE: &[&str] = &["tests", "test", "idlelib", "lib2to3", "node_modules", "benches", "examples", "turtledemo"];

const PYTHON: &str = include_str!("python.txt");
const RUST: &str = include_str!("rust.txt");
const SCRIPT: &str = include_str!("script.txt");

/// Where packages of one language lie.
#[derive(Clone, Debug, Default)]
pub struct Shelf {
    /// Each package by the name it is imported by, with its file or folder.
    pub packages: BTreeMap<String, PathBuf>,
}

/// The packages of one language that a project may use.
#[derive(Debug)]
pub struct Library {
    language: Language,
    shelf: Shelf,
    /// Where lists are kept.
    state: Option<PathBuf>,
    loaded: HashMap<String, Package>,
    /// What needs no import.
    builtins: HashSet<String>,
}

/// What one package makes.
#[derive(Debug, Default)]
struct Package {
    /// By the dotted name of the module.
    modules: HashMap<String, HashSet<String>>,
    all: HashSet<String>,
    /// First parts of what it imports itself.
    needs: HashSet<String>,
}

impl Library {
    /// The packages of a language for a project.
    pub fn of(language: Language, root: &Path, state: Option<&Path>) -> Self {
        Self::on(language, find::shelf(language, root), state)
    }

    /// The same, with these packages.
    pub fn on(language: Language, shelf: Shelf, state: Option<&Path>) -> Self {
        let mut library = Self {
            language,
            shelf,
            state: state.map(|state| state.join("library")),
            loaded: HashMap::new(),
            builtins: HashSet::new(),
        };
        let text = match language {
            Language::Python => PYTHON,
            Language::Rust => RUST,
            Language::Script => SCRIPT,
            _ => "",
        };
        for line in text.lines() {
            let Some((module, names)) = line.split_once(": ") else { continue };
            let names = names.split(' ').map(str::to_owned);
            match module {
                "builtins" | "std" | "node" => library.builtins.extend(names),
                "modules" => names.for_each(|name| {
                    library.loaded.entry(name).or_default();
                }),
                _ => {
                    let package = library.loaded.entry(module.to_owned()).or_default();
                    package.all.extend(names);
                }
            }
        }
        if language == Language::Rust {
            for name in ["std", "core", "alloc", "proc_macro", "test"] {
                library.loaded.entry(name.to_owned()).or_default();
            }
        }
        library
    }

    /// The packages that lie in these folders.
    pub fn in_folders(language: Language, folders: &[PathBuf], state: Option<&Path>) -> Self {
        let mut shelf = Shelf::default();
        for folder in folders {
            for (name, path) in find::folder(folder).packages {
                shelf.packages.entry(name).or_insert(path);
            }
        }
        Self::on(language, shelf, state)
    }

    /// The same without what the language itself has.
    pub fn without_language(mut self) -> Self {
        self.builtins.clear();
        self.loaded.clear();
        self
    }

    /// The same without one package, such as the project itself in another version.
    pub fn without(mut self, package: &str) -> Self {
        self.shelf.packages.remove(package);
        self
    }

    /// Its language.
    pub fn language(&self) -> Language {
        self.language
    }

    /// Whether there is a package that is imported by this name.
    pub fn has_package(&self, name: &str) -> bool {
        self.shelf.packages.contains_key(name) || self.loaded.contains_key(name)
    }

    /// Every package.
    pub fn packages(&self) -> impl Iterator<Item = &str> {
        self.shelf.packages.keys().map(String::as_str)
    }

    /// Reads packages that are not read yet, and what these import themselves, `depth` times.
    pub fn load(&mut self, names: impl IntoIterator<Item = String>, depth: usize) {
        let mut due: Vec<String> = names.into_iter().collect();
        for _ in 0..=depth {
            let mut next = Vec::new();
            for name in due {
                let Some(path) = self.shelf.packages.get(&name).cloned() else { continue };
                if self.loaded.get(&name).is_none_or(|package| package.modules.is_empty())
                    && self.loaded.len() < PACKAGES_MAX
                {
                    let mut package = self.read(&name, &path);
                    if let Some(listed) = self.loaded.remove(&name) {
                        package.all.extend(listed.all);
                    }
                    self.loaded.insert(name.clone(), package);
                }
                next.extend(self.loaded.get(&name).into_iter().flat_map(|package| package.needs.iter().cloned()));
            }
            due = next;
        }
    }

    /// Whether some package that was read, or the language itself, makes a name.
    pub fn has_name(&self, name: &str) -> bool {
        self.builtins.contains(name) || self.loaded.values().any(|package| package.all.contains(name))
    }

    /// Whether the language itself has a name.
    pub fn is_builtin(&self, name: &str) -> bool {
        self.builtins.contains(name)
    }

    /// Whether a module makes a name; none where the module was not read.
    pub fn module_has(&self, module: &str, name: &str) -> Option<bool> {
        let package = self.loaded.get(first(module))?;
        // A list has no modules: it is of one version, and says of a name only that there is one.
        let names = package.modules.get(module)?;
        let submodule = || package.modules.contains_key(&format!("{module}.{name}"));
        // `ssl` makes its constants from those of `_ssl` as it runs.
        let half = || self.loaded.get(&format!("_{module}")).is_some_and(|half| half.all.contains(name));
        if names.contains(name) || submodule() || half() {
            return Some(true);
        }
        // What passes on whole modules, or makes names as it runs, may have any name.
        (!names.contains(OPEN)).then_some(false)
    }

    /// Whether a module was read.
    pub fn has_module(&self, module: &str) -> bool {
        let package = self.loaded.get(first(module));
        package.is_some_and(|package| package.modules.contains_key(module))
    }

    /// The names of a module.
    pub fn names_of(&self, module: &str) -> impl Iterator<Item = &str> {
        let package = self.loaded.get(first(module));
        package.and_then(|package| package.modules.get(module)).into_iter().flatten().map(String::as_str)
    }

    /// Names of all that was read.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.builtins.iter().chain(self.loaded.values().flat_map(|package| &package.all)).map(String::as_str)
    }

    /// Reads a package, or the list that was kept of it.
    fn read(&self, name: &str, path: &Path) -> Package {
        let kept = self.state.as_ref().and_then(|state| {
            let facts = std::fs::metadata(path).ok()?;
            let changed = facts.modified().ok()?.duration_since(UNIX_EPOCH).ok()?.as_nanos();
            let key = format!("{:?} {name} {} {changed} {}", self.language, path.display(), facts.len());
            let key: String = hash(key.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
            Some(state.join(key))
        });
        let text = kept.as_ref().and_then(|kept| boundary::file::read(kept, KEPT_BYTES_MAX).ok());
        if let Some(package) = text.and_then(|text| String::from_utf8(text).ok()).and_then(|text| parse(&text)) {
            return package;
        }
        let package = self.read_sources(name, path);
        if let Some(kept) = kept {
            // What cannot be kept is read again.
            let _ = keep(&kept, &package);
        }
        package
    }

    fn read_sources(&self, name: &str, path: &Path) -> Package {
        let mut package = Package::default();
        let (root, mut paths) = match path.is_dir() {
            true => (path, sources(path, self.language)),
            false => match (path.parent(), path.file_name()) {
                (Some(folder), Some(file)) => (folder, vec![PathBuf::from(file)]),
                _ => return package,
            },
        };
        paths.sort();
        let Ok(folder) = Folder::open(root) else { return package };
        let mut left = BYTES_MAX;
        for file in paths {
            let Ok(bytes) = folder.read(&file, FILE_BYTES_MAX.min(left)) else { continue };
            left -= bytes.len() as u64;
            let Ok(text) = String::from_utf8(bytes) else { continue };
            let module = match path.is_dir() {
                true => dotted(name, &file, self.language),
                false => name.to_owned(),
            };
            let names = package.modules.entry(module).or_default();
            let masked = outline::code_lines(self.language, &text).join("\n");
            let items = outline::items(self.language, &text);
            let scan = scan_masked(self.language, &text, &masked, &items);
            names.extend(
                items
                    .iter()
                    .filter(|item| !matches!(item.kind, outline::Kind::Import | outline::Kind::Impl))
                    .map(|item| item.name.clone()),
            );
            names.extend(scan.made.iter().chain(&scan.imported).map(|name| (*name).to_owned()));
            if is_open(&masked) {
                names.insert(OPEN.to_owned());
            }
            for item in items.iter().filter(|item| item.kind == outline::Kind::Import) {
                let first = item.name.split([' ', '.', ',']).nth(1).unwrap_or_default();
                if !first.is_empty() && first != name {
                    package.needs.insert(first.to_owned());
                }
            }
            package.all.extend(names.iter().filter(|name| *name != OPEN).cloned());
        }
        package
    }
}

/// Whether a module of Python may have names that do not stand in it.
fn is_open(masked: &str) -> bool {
    let dynamic = ["globals()", "__getattr__", "exec(", "sys.modules[", "vars()", "locals()", "setattr("];
    dynamic.iter().any(|sign| masked.contains(sign)) || masked.lines().any(|line| line.trim_end().ends_with("import *"))
}

fn first(module: &str) -> &str {
    module.split('.').next().unwrap_or(module)
}

/// The source files of a package.
fn sources(root: &Path, language: Language) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let entries = crate::walk::of(root, |entry| {
        let folder = entry.file_type().is_some_and(|kind| kind.is_dir());
        !(folder && entry.depth() > 0 && ASIDE.iter().any(|name| entry.file_name() == *name))
    })
    .git_ignore(false)
    .ignore(false)
    .parents(false)
    .build();
    for entry in entries.flatten() {
        let Ok(path) = entry.path().strip_prefix(root) else { continue };
        let name = path.to_string_lossy();
        let wanted = match language {
            Language::Script => name.ends_with(".d.ts") || name.ends_with(".d.mts") || name.ends_with(".d.cts"),
            _ => Language::of(path) == Some(language) && !(language == Language::Python && files::is_test(path)),
        };
        if wanted && entry.file_type().is_some_and(|kind| kind.is_file()) {
            found.push(path.to_owned());
        }
        if found.len() == FILES_MAX {
            break;
        }
    }
    found
}

/// The dotted name of a module of a package.
fn dotted(package: &str, file: &Path, language: Language) -> String {
    if language != Language::Python {
        return package.to_owned();
    }
    let mut name = package.to_owned();
    for part in file.with_extension("").components() {
        let part = part.as_os_str().to_string_lossy();
        if part != "__init__" {
            name.push('.');
            name.push_str(&part);
        }
    }
    name
}

fn keep(path: &Path, package: &Package) -> std::io::Result<()> {
    let mut text = String::from("flint library 1\n");
    let mut needs: Vec<&str> = package.needs.iter().map(String::as_str).collect();
    needs.sort_unstable();
    text += &format!("{}\n", needs.join(" "));
    for (module, names) in &package.modules {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        text += &format!("{module}: {}\n", names.join(" "));
    }
    text += "end\n";
    let folder = path.parent().unwrap_or(path);
    std::fs::create_dir_all(folder)?;
    let new = path.with_extension(format!("{}.new", std::process::id()));
    std::fs::write(&new, text)?;
    std::fs::rename(&new, path)
}

fn parse(text: &str) -> Option<Package> {
    let text = text.strip_prefix("flint library 1\n")?.strip_suffix("end\n")?;
    let (needs, rest) = text.split_once('\n')?;
    let mut package = Package { needs: needs.split_whitespace().map(str::to_owned).collect(), ..Package::default() };
    for line in rest.lines() {
        let (module, names) = line.split_once(": ")?;
        let names: HashSet<String> = names.split_whitespace().map(str::to_owned).collect();
        package.all.extend(names.iter().filter(|name| *name != OPEN).cloned());
        package.modules.insert(module.to_owned(), names);
    }
    Some(package)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_read_when_they_are_asked_for_and_kept() {
        let (shelf, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let write = |path: &str, text: &str| {
            let path = shelf.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("shop/__init__.py", "from .cart import *\nimport base\n");
        write("shop/cart.py", "class Cart:\n    def add(self, item, count=1):\n        self.items = []\n");
        write("shop/tests/test_cart.py", "def test_nothing(): pass\n");
        write("base.py", "LIMIT = 3\n");
        let packages = find::folder(shelf.path());
        assert_eq!(packages.packages.keys().collect::<Vec<_>>(), ["base", "shop"]);
        let check = |library: &Library| {
            assert_eq!(library.module_has("shop.cart", "Cart"), Some(true));
            assert_eq!(library.module_has("shop.cart", "items"), Some(true));
            assert_eq!(library.module_has("shop.cart", "LIMIT"), Some(false));
            assert_eq!(library.module_has("shop", "Cart"), None, "a star passes names on");
            assert_eq!(library.module_has("shop", "cart"), Some(true), "a module is a name");
            assert_eq!(library.module_has("shop", "Basket"), None, "and nobody knows which");
            assert_eq!(library.module_has("other", "Cart"), None);
            assert!(library.has_name("count") && library.has_name("LIMIT") && !library.has_name("test_nothing"));
            assert!(library.is_builtin("isinstance") && library.has_package("_socket") && !library.has_package("none"));
        };
        for _ in 0..2 {
            let mut library = Library::on(Language::Python, packages.clone(), Some(state.path()));
            assert!(!library.has_name("LIMIT"));
            library.load(["shop".to_owned(), "none".to_owned()], 1);
            check(&library);
        }
        assert!(parse("flint library 1\nx\na: b\n").is_none(), "half a list is none");
    }
}
