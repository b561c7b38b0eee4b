//! The rules of the repository that a compiler does not check, as tests: which crate may know which, that every module
//! says why it exists, that files stay readable, and where unsafe code may be.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test whose surroundings fail should fail")]

mod documents;
mod supply;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Longest file before asking whether it is two things.
const LINES_MAX: usize = 600;

/// What each crate must never reach through its normal dependencies, however indirectly. See ARCHITECTURE.md for why.
const FORBIDDEN: &[(&str, &[&str])] = &[
    (
        "boundary",
        &["serde_json", "tokio", "kernels", "model", "engine", "text", "hub", "api", "server", "client", "agent"],
    ),
    ("kernels", &["serde_json", "tokio", "model", "engine", "text", "hub", "api", "server", "client", "cli"]),
    ("cuda", &["serde_json", "tokio", "model", "engine", "text", "hub", "api", "server", "client", "cli"]),
    ("model", &["tokio", "engine", "text", "hub", "api", "server", "client", "cli"]),
    ("engine", &["serde_json", "tokio", "text", "hub", "api", "server", "client", "cli"]),
    ("text", &["tokio", "hub", "engine", "api", "server", "client", "cli"]),
    ("hub", &["tokio", "kernels", "model", "engine", "text", "api", "server", "client", "cli"]),
    ("api", &["tokio", "kernels", "model", "engine", "text", "hub", "server", "client", "cli"]),
    (
        "index",
        &["tokio", "kernels", "model", "engine", "text", "hub", "api", "server", "client", "agent", "tui", "cli"],
    ),
    ("server", &["hub", "client", "cli"]),
    (
        "workspace",
        &["tokio", "kernels", "model", "engine", "text", "hub", "api", "server", "client", "agent", "tui", "cli"],
    ),
    (
        "sandbox",
        &["kernels", "model", "engine", "text", "hub", "api", "server", "client", "workspace", "agent", "tui", "cli"],
    ),
    ("agent", &["kernels", "model", "engine", "text", "hub", "server", "tui", "cli"]),
    ("load", &["tokio", "api", "server", "client", "index", "workspace", "sandbox", "agent", "tui", "bench", "cli"]),
    ("bench", &["cli"]),
    ("client", &["kernels", "model", "engine", "text", "hub", "server", "cli"]),
    ("tui", &["kernels", "model", "engine", "text", "hub", "server", "cli"]),
];

#[test]
fn no_crate_reaches_what_it_must_not_know() {
    let graph = Graph::read();
    let mut broken = Vec::new();
    for (from, forbidden) in FORBIDDEN {
        let reached = graph.reached_from(from);
        let found = forbidden.iter().filter(|name| reached.contains(**name));
        broken.extend(found.map(|name| format!("{from} -> {name}")));
    }
    for member in graph.members.iter().filter(|member| *member != "testkit") {
        if graph.reached_from(member).contains("testkit") {
            broken.push(format!("{member} -> testkit"));
        }
    }
    assert!(broken.is_empty(), "forbidden dependencies: {broken:?}");
}

#[test]
fn every_module_begins_by_saying_why_it_exists() {
    let silent: Vec<PathBuf> = sources().filter(|path| !read(path).starts_with("//! ")).collect();
    assert!(silent.is_empty(), "files without a `//!` comment in the first line: {silent:?}");
}

#[test]
fn files_stay_readable() {
    let is_tests = |path: &PathBuf| path.file_name().is_some_and(|name| name == "tests.rs");
    let long: Vec<(PathBuf, usize)> = sources()
        .filter(|path| !is_tests(path))
        .map(|path| (path.clone(), read(&path).lines().count()))
        .filter(|(_, lines)| *lines > LINES_MAX)
        .collect();
    assert!(long.is_empty(), "files over {LINES_MAX} lines: {long:?}");
}

#[test]
fn unsafe_code_stays_in_kernels_and_cuda() {
    let allowed =
        |path: &PathBuf| ["kernels", "cuda"].iter().any(|name| path.starts_with(root().join("crates").join(name)));
    let others: Vec<PathBuf> = sources().filter(|path| has_unsafe(&read(path)) && !allowed(path)).collect();
    assert!(others.is_empty(), "unsafe code outside kernels and cuda: {others:?}");
}

#[test]
fn the_search_for_unsafe_code_finds_it() {
    assert!(has_unsafe("fn a() {\n    unsafe { b() }\n}"));
    assert!(has_unsafe("#![allow(unsafe_code)]"));
    assert!(!has_unsafe("// unsafe { b() }\n//! no unsafe here\nlet a = is_unsafe();"));
}

/// What tells others which Flint it is has one version, which the newest entry of the change log has too.
#[test]
fn those_who_say_a_version_say_the_same() {
    let version = |name: &str| {
        let text = read(&root().join("crates").join(name).join("Cargo.toml"));
        text.lines().find_map(|line| line.strip_prefix("version = \"")).unwrap().trim_end_matches('"').to_owned()
    };
    assert_eq!(version("server"), version("cli"));
    assert_eq!(version("hub"), version("cli"));
    let log = read(&root().join("CHANGELOG.md"));
    let released =
        log.lines().find_map(|line| line.strip_prefix("## ").filter(|title| *title != "Unreleased")).unwrap();
    assert!(released.starts_with(&version("cli")), "the newest release in CHANGELOG.md is {released}");
}

/// Looking for examples in a crate that has none takes seconds each time; one that gets some must say so.
#[test]
fn examples_in_comments_are_run() {
    for folder in std::fs::read_dir(root().join("crates")).unwrap() {
        let folder = folder.unwrap().path();
        if !read(&folder.join("Cargo.toml")).contains("doctest = false") {
            continue;
        }
        let has_example = |path: &PathBuf| {
            read(path).lines().any(|line| ["//! ```", "/// ```"].iter().any(|mark| line.trim_start().starts_with(mark)))
        };
        let with: Vec<PathBuf> = rust_files(&folder.join("src")).into_iter().filter(has_example).collect();
        assert!(with.is_empty(), "these have examples, and the crate does not run them: {with:?}");
    }
}

/// `cargo run` has one program to run, whatever other programs the workspace gets.
#[test]
fn the_first_command_of_the_readme_is_flint() {
    let metadata = metadata();
    let [only] = metadata["workspace_default_members"].as_array().unwrap().as_slice() else {
        panic!("one default member")
    };
    let package = list(&metadata["packages"]).find(|package| package["id"] == *only).unwrap();
    let is_program = |target: &&Value| list(&target["kind"]).any(|kind| kind == "bin");
    let programs: Vec<&str> =
        list(&package["targets"]).filter(is_program).map(|target| target["name"].as_str().unwrap()).collect();
    assert_eq!(programs, ["flint"]);
    assert!(read(&root().join("README.md")).contains("cargo run --release -- exec"));
}

/// The workspace's packages and who depends on whom, normal dependencies only.
struct Graph {
    members: BTreeSet<String>,
    edges: BTreeMap<String, BTreeSet<String>>,
}

impl Graph {
    fn read() -> Graph {
        let metadata = metadata();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let names: BTreeMap<String, String> =
            list(&metadata["packages"]).map(|package| (text(&package["id"]), text(&package["name"]))).collect();
        let normal = |dependency: &Value| list(&dependency["dep_kinds"]).any(|kind| kind["kind"].is_null());
        let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for node in list(&metadata["resolve"]["nodes"]) {
            let from = edges.entry(names[&text(&node["id"])].clone()).or_default();
            from.extend(list(&node["deps"]).filter(|d| normal(d)).map(|d| names[&text(&d["pkg"])].clone()));
        }
        let members = list(&metadata["workspace_members"]).map(|id| names[&text(id)].clone()).collect();
        Graph { members, edges }
    }

    fn reached_from(&self, name: &str) -> BTreeSet<&str> {
        assert!(self.members.contains(name), "there is no crate `{name}`; correct the list in this test");
        let mut reached = BTreeSet::new();
        let mut open = vec![name];
        while let Some(next) = open.pop() {
            for dependency in self.edges.get(next).into_iter().flatten() {
                if reached.insert(dependency.as_str()) {
                    open.push(dependency);
                }
            }
        }
        reached
    }
}

/// Only packages for this machine are looked at, because those of others need not have been downloaded.
fn metadata() -> Value {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--format-version", "1", "--locked", "--filter-platform", &host()]);
    let output = command.current_dir(root()).output().unwrap();
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().expect("cargo metadata has a list here").iter()
}

fn host() -> String {
    let output = Command::new("rustc").arg("-vV").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().find_map(|line| line.strip_prefix("host: ")).unwrap().to_owned()
}

/// The word `unsafe`, or the lint's name, outside comments.
fn has_unsafe(text: &str) -> bool {
    // The word in quotes is data: a scanner of Rust has to know it.
    let text = text.replace("\"unsafe\"", "");
    let code = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    let mut words = code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_'));
    words.any(|word| word == "unsafe" || word == "unsafe_code")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Every Rust file in the `src` of every crate.
fn sources() -> impl Iterator<Item = PathBuf> {
    let crates = std::fs::read_dir(root().join("crates")).unwrap();
    let found: Vec<PathBuf> = crates.flat_map(|entry| rust_files(&entry.unwrap().path().join("src"))).collect();
    assert!(!found.is_empty(), "no sources were found");
    found.into_iter()
}

fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    let nested = entries.map(|entry| match entry.unwrap().path() {
        path if path.is_dir() => rust_files(&path),
        path if path.extension().is_some_and(|extension| extension == "rs") => vec![path],
        _ => Vec::new(),
    });
    nested.flatten().collect()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}
