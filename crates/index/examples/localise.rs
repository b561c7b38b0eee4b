//! Whether the index finds the file that mends an issue: SWE-bench Lite, without a model.
//!
//! `bench/where/README.md` says where the data comes from. `cargo run --release -p index --example localise -- LOC_OUTPUTS
//! REPOSITORIES [--small] [--sources]` prints for each repository how often the right file is first, among three, five and ten, over all
//! files of the tree as `flint where` ranks them (with `--sources` over its Python files alone, without tests, documents and
//! examples), and what it is right in where it says that it is sure.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a laboratory, run by hand on data of the one who runs it"
)]

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::time::Instant;

use index::{Index, files};
use serde_json::Value;

#[path = "git/mod.rs"]
mod git;

use git::{Blobs, run};

/// The repositories of the 57 instances of the first table.
const SMALL: [&str; 7] = [
    "psf/requests",
    "pallets/flask",
    "pytest-dev/pytest",
    "mwaskom/seaborn",
    "pydata/xarray",
    "pylint-dev/pylint",
    "sphinx-doc/sphinx",
];

#[derive(Default)]
struct Score {
    all: usize,
    at: [usize; 4],
    sure: usize,
    sure_right: usize,
    ms: Vec<f64>,
    files: usize,
}

const RANKS: [usize; 4] = [1, 3, 5, 10];

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let small = arguments.iter().any(|argument| argument == "--small");
    let sources = arguments.iter().any(|argument| argument == "--sources");
    arguments.retain(|argument| !argument.starts_with("--"));
    let [data, repositories] = &arguments[..] else {
        panic!("localise LOC_OUTPUTS REPOSITORIES [--small] [--sources]")
    };
    let text = std::fs::read_to_string(data).unwrap();
    let mut instances: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for line in text.lines() {
        let facts = serde_json::from_str::<Value>(line).unwrap()["meta_data"].clone();
        let repository = facts["repo"].as_str().unwrap().to_owned();
        if !small || SMALL.contains(&repository.as_str()) {
            instances.entry(repository).or_default().push(facts);
        }
    }
    let mut total = Score::default();
    for (repository, instances) in &instances {
        let git = Path::new(repositories).join(repository.replace('/', "+"));
        let score = measure(&git, instances, sources);
        print(repository, &score);
        total.all += score.all;
        (0..4).for_each(|at| total.at[at] += score.at[at]);
        total.sure += score.sure;
        total.sure_right += score.sure_right;
        total.ms.extend(score.ms);
        total.files = total.files.max(score.files);
    }
    print("all", &total);
}

fn print(name: &str, score: &Score) {
    let share = |count: usize, all: usize| count as f64 / all.max(1) as f64;
    let at: Vec<String> =
        RANKS.iter().zip(score.at).map(|(rank, count)| format!("@{rank} {:.2}", share(count, score.all))).collect();
    let mut ms = score.ms.clone();
    ms.sort_by(f64::total_cmp);
    println!(
        "{name:<26} {:>3} instances, {:>5} files at most: {}; sure {:>3}, right {:.2}; a query {:.1} ms (median), {:.1} (most)",
        score.all,
        score.files,
        at.join(" "),
        score.sure,
        share(score.sure_right, score.sure),
        ms[ms.len() / 2],
        ms[ms.len() - 1],
    );
}

fn measure(repository: &Path, instances: &[Value], sources: bool) -> Score {
    let git = if repository.join("repo").is_dir() { repository.join("repo") } else { repository.to_owned() };
    let mut instances: Vec<&Value> = instances.iter().collect();
    let time = |one: &&Value| {
        let said = run(&git, &["show", "-s", "--format=%ct", one["base_commit"].as_str().unwrap()]);
        said.trim().parse::<u64>().unwrap()
    };
    // Neighbours in time share most files.
    instances.sort_by_cached_key(time);
    let mut index = Index::new(Path::new("/nowhere"));
    let mut known: HashMap<PathBuf, String> = HashMap::new();
    let mut blobs = Blobs::new(&git);
    let mut score = Score::default();
    for one in instances {
        let mut tree = HashMap::new();
        for line in run(&git, &["ls-tree", "-r", "-l", one["base_commit"].as_str().unwrap()]).lines() {
            let Some((facts, path)) = line.split_once('\t') else { continue };
            let facts: Vec<&str> = facts.split_whitespace().collect();
            let bytes = facts[3].parse::<u64>().unwrap_or(u64::MAX);
            if facts[0].starts_with("100") && bytes <= files::FILE_BYTES_MAX && is_indexed(Path::new(path), sources) {
                tree.insert(PathBuf::from(path), facts[2].to_owned());
            }
        }
        known.retain(|path, _| {
            let stays = tree.contains_key(path);
            if !stays {
                index.remove(path);
            }
            stays
        });
        for (path, blob) in &tree {
            if known.get(path) == Some(blob) {
                continue;
            }
            known.insert(path.clone(), blob.clone());
            match String::from_utf8(blobs.read(blob)).ok().filter(|text| !text.contains('\0')) {
                Some(text) => index.put(path, &text),
                None => index.remove(path),
            }
        }
        let begun = Instant::now();
        let found = index.locate(one["problem_statement"].as_str().unwrap(), 10);
        score.ms.push(begun.elapsed().as_secs_f64() * 1e3);
        let gold = gold(one["patch"].as_str().unwrap());
        let rank = found.locations.iter().position(|location| gold.contains(&location.path));
        score.all += 1;
        for (at, limit) in RANKS.into_iter().enumerate() {
            score.at[at] += usize::from(rank.is_some_and(|rank| rank < limit));
        }
        score.sure += usize::from(found.sure);
        score.sure_right += usize::from(found.sure && rank == Some(0));
        score.files = score.files.max(index.len());
    }
    score
}

/// Whether the file is among those that are ranked: what a walk of the folder would have found, or Python without tests.
fn is_indexed(path: &Path, sources: bool) -> bool {
    match sources {
        true => {
            path.extension().is_some_and(|ending| ending == "py") && !files::is_test(path) && !files::is_example(path)
        }
        false => files::would_read(path),
    }
}

/// The files that a patch changes.
fn gold(patch: &str) -> Vec<PathBuf> {
    patch.lines().filter_map(|line| line.strip_prefix("--- a/")).map(PathBuf::from).collect()
}
