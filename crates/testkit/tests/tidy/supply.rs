//! What others wrote and Flint ships: no version with a known vulnerability, and a notice for everything in the binary.
//! Both checks work offline, from `.ci/advisories.tsv` and the packages cargo has already fetched.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use semver::{Version, VersionReq};
use serde_json::Value;

use crate::{list, root};

/// Advisories that do not touch Flint, each with the reason.
const ACCEPTED: &[(&str, &str)] = &[];

struct Advisory<'a> {
    package: &'a str,
    id: &'a str,
    kind: &'a str,
    /// Versions that do not have the problem, whether repaired or from before it.
    good: Vec<VersionReq>,
    title: &'a str,
}

impl<'a> Advisory<'a> {
    fn parse(line: &'a str) -> Self {
        let [package, id, kind, patched, unaffected, title] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("a line of the advisories has not six fields: {line}");
        };
        let ranges = patched.split("; ").chain(unaffected.split("; ")).filter(|range| !range.is_empty());
        Self { package, id, kind, good: ranges.map(|range| VersionReq::parse(range).unwrap()).collect(), title }
    }

    fn concerns(&self, package: &str, version: &Version) -> bool {
        self.package == package && !self.good.iter().any(|range| range.matches(version))
    }
}

#[test]
fn no_package_has_a_known_vulnerability() {
    let text = std::fs::read_to_string(root().join(".ci/advisories.tsv")).unwrap();
    let advisories: Vec<Advisory> = text.lines().filter(|line| !line.starts_with('#')).map(Advisory::parse).collect();
    assert!(advisories.len() > 1000, "only {} advisories: the file is cut", advisories.len());
    let snapshot = text.lines().next().unwrap().trim_start_matches("# ");
    let mut bad = Vec::new();
    let packages = locked();
    for (name, version) in &packages {
        for advisory in advisories.iter().filter(|advisory| advisory.concerns(name, version)) {
            let line = format!("{name} {version}: {} ({}) {}", advisory.id, advisory.kind, advisory.title);
            match ACCEPTED.iter().find(|(id, _)| *id == advisory.id) {
                Some((_, why)) => println!("accepted: {line}; {why}"),
                None if advisory.kind == "unmaintained" || advisory.kind == "notice" => println!("note: {line}"),
                None => bad.push(line),
            }
        }
    }
    println!("{} packages against {} advisories ({snapshot}): {} bad", packages.len(), advisories.len(), bad.len());
    println!("what was found since that day is not looked for; .ci/advisories.py brings a newer list");
    assert!(bad.is_empty(), "update these, or say in ACCEPTED why they do no harm:\n{}", bad.join("\n"));
}

#[test]
fn the_search_for_vulnerabilities_finds_one() {
    let line = "tokio\tRUSTSEC-0\tvulnerability\t>= 1.8.4, < 1.9.0; >= 1.13.1\t< 0.1.14\tdata race";
    let advisory = Advisory::parse(line);
    let concerns = |version: &str| advisory.concerns("tokio", &Version::parse(version).unwrap());
    assert!(concerns("1.8.3") && concerns("1.12.0") && concerns("0.2.0"));
    assert!(!concerns("1.8.4") && !concerns("1.13.1") && !concerns("0.1.13"));
    assert!(!advisory.concerns("toktrie", &Version::parse("1.8.3").unwrap()));
}

/// `FLINT_BLESS=1 cargo test -p testkit --test supply` writes the notices anew.
#[test]
fn every_package_in_the_binary_has_its_notice() {
    let shipped = Shipped::read();
    let path = root().join("crates/cli/third-party.txt");
    if std::env::var_os("FLINT_BLESS").is_some() {
        std::fs::write(&path, shipped.notices()).unwrap();
    }
    let text = std::fs::read_to_string(&path).unwrap();
    let noticed: BTreeSet<&str> = text.lines().filter_map(|line| line.strip_prefix("package ")).collect();
    let lines = shipped.lines();
    let missing: Vec<&String> = lines.iter().filter(|line| !noticed.contains(line.as_str())).collect();
    let gone: Vec<&&str> = noticed.iter().filter(|line| !lines.contains(**line)).collect();
    assert!(
        missing.is_empty() && gone.is_empty(),
        "without notice: {missing:?}; noticed but gone: {gone:?}; to repair it: FLINT_BLESS=1 cargo test -p testkit --test supply"
    );
}

/// Every package from elsewhere in Cargo.lock.
fn locked() -> Vec<(String, Version)> {
    let text = std::fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let field = |block: &str, name: &str| {
        let start = format!("{name} = \"");
        block.lines().find_map(|line| Some(line.strip_prefix(&start)?.trim_end_matches('"').to_owned()))
    };
    let blocks = text.split("[[package]]").filter(|block| field(block, "source").is_some());
    blocks.map(|block| (field(block, "name").unwrap(), field(block, "version").unwrap().parse().unwrap())).collect()
}

/// The packages that are in the binary, by cargo's word.
struct Shipped(Vec<Value>);

impl Shipped {
    fn read() -> Self {
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        // What is shipped is the Linux binary; packages for other systems need not have been fetched.
        let arguments =
            ["metadata", "--format-version", "1", "--locked", "--filter-platform", "x86_64-unknown-linux-gnu"];
        let output = Command::new(cargo).args(arguments).current_dir(root()).output().unwrap();
        assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
        let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
        let packages: BTreeMap<&str, &Value> =
            list(&metadata["packages"]).map(|package| (package["id"].as_str().unwrap(), package)).collect();
        let nodes: BTreeMap<&str, &Value> =
            list(&metadata["resolve"]["nodes"]).map(|node| (node["id"].as_str().unwrap(), node)).collect();
        let start = packages.iter().find(|(_, package)| package["name"] == "cli").unwrap().0;
        let (mut open, mut reached) = (vec![*start], BTreeSet::new());
        while let Some(id) = open.pop() {
            if !reached.insert(id) {
                continue;
            }
            let normal = |edge: &&Value| list(&edge["dep_kinds"]).any(|kind| kind["kind"].is_null());
            open.extend(list(&nodes[id]["deps"]).filter(normal).map(|edge| edge["pkg"].as_str().unwrap()));
        }
        let foreign = reached.iter().map(|id| packages[id]).filter(|package| !package["source"].is_null());
        Self(foreign.cloned().collect())
    }

    fn lines(&self) -> BTreeSet<String> {
        self.0.iter().map(line).collect()
    }

    /// Each licence text once, under the packages that have it.
    fn notices(&self) -> String {
        let mut by_text: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for package in &self.0 {
            let folder = Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap();
            let texts = licence_texts(folder);
            let text = if texts.is_empty() { spoken_for(package) } else { texts.join("\n\n") };
            by_text.entry(text).or_default().insert(line(package));
        }
        let mut out = "Flint contains these packages of others, under their licences.\n".to_owned();
        for (text, packages) in by_text {
            let _ = write!(out, "\n{}\n", "=".repeat(80));
            packages.iter().for_each(|package| _ = writeln!(out, "package {package}"));
            let _ = write!(out, "\n{}\n", text.trim_end());
        }
        out
    }
}

fn line(package: &Value) -> String {
    let field = |name: &str| package[name].as_str().unwrap_or("see its file");
    format!("{} {} ({})", field("name"), field("version"), field("license"))
}

/// A package without a licence file states its licence and authors in its manifest.
fn spoken_for(package: &Value) -> String {
    let authors: Vec<&str> = list(&package["authors"]).filter_map(Value::as_str).collect();
    let by = if authors.is_empty() { "its authors".to_owned() } else { authors.join(", ") };
    format!("Copyright {by}. The package has no licence file; its manifest names the licence above.")
}

/// The files of a package that a distributor must pass on. Of two licences to choose from, where one is MIT, its text is
/// enough.
fn licence_texts(folder: &Path) -> Vec<String> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| {
        let name = path.file_name().unwrap().to_string_lossy().to_uppercase();
        path.is_file()
            && ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"].iter().any(|start| name.starts_with(start))
    });
    found.sort();
    let name_has =
        |path: &PathBuf, word: &str| path.file_name().unwrap().to_string_lossy().to_uppercase().contains(word);
    if found.iter().any(|path| name_has(path, "MIT")) {
        found.retain(|path| !name_has(path, "APACHE") && !name_has(path, "UNLICENSE"));
    }
    let read = |path: &PathBuf| String::from_utf8_lossy(&std::fs::read(path).unwrap()).replace("\r\n", "\n");
    found.iter().map(read).collect()
}
