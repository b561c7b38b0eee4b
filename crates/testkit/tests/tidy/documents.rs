//! The rules for documents: short pages, paths and links that lead somewhere, figures that were measured, and pages of the
//! reference that say what the code says. Other such pages are held by tests beside the code they describe.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::document::{assert_current, table};

use crate::{read, root, rust_files};

/// Longest line of prose. Tables and code may be longer.
const COLUMNS_MAX: usize = 120;
/// Folders at the top whose paths in a document must exist.
const FOLDERS: &[&str] = &[".ci/", "bench/", "crates/", "docs/", "examples/", "fuzz/", "packaging/"];

#[test]
fn prose_has_short_lines() {
    let mut long = Vec::new();
    for page in pages() {
        for (index, line) in prose(&read(&page)).filter(|(_, line)| line.chars().count() > COLUMNS_MAX) {
            long.push(format!("{}:{}: {}", name(&page), index + 1, line.chars().count()));
        }
    }
    assert!(long.is_empty(), "lines over {COLUMNS_MAX} columns:\n{}", long.join("\n"));
}

#[test]
fn the_first_pages_are_short() {
    for (page, lines_max) in [("README.md", 120), ("ARCHITECTURE.md", 260)] {
        let lines = read(&root().join(page)).lines().count();
        assert!(lines <= lines_max, "{page} has {lines} lines, and may have {lines_max}");
    }
}

#[test]
fn every_path_and_link_leads_somewhere() {
    let mut broken = Vec::new();
    for page in pages() {
        let text = read(&page);
        for target in links(&text) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let file = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            let there = file.exists() && (anchor.is_empty() || anchors(&read(&file)).contains(anchor));
            if !there {
                broken.push(format!("{}: ({target})", name(&page)));
            }
        }
        let missing = paths(&text).into_iter().filter(|path| !root().join(path).exists());
        broken.extend(missing.map(|path| format!("{}: `{path}`", name(&page))));
    }
    assert!(broken.is_empty(), "these lead nowhere:\n{}", broken.join("\n"));
}

#[test]
fn every_page_is_in_the_summary() {
    let summary = root().join("docs/SUMMARY.md");
    let text = read(&summary);
    let listed: BTreeSet<PathBuf> = links(&text).map(|target| summary.parent().unwrap().join(target)).collect();
    let lost: Vec<PathBuf> = markdown(&root().join("docs")).into_iter().filter(|page| !listed.contains(page)).collect();
    assert!(lost == [summary], "pages that no reader finds: {lost:?}");
}

/// That they exist is held by the test of all paths.
#[test]
fn the_reading_path_counts_its_files() {
    let page = read(&root().join("docs/internals/reading-path.md"));
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `crates/")).collect();
    let files: BTreeSet<&str> = rows.iter().map(|row| row.split('`').nth(1).unwrap()).collect();
    assert_eq!(rows.len(), files.len(), "a file is listed twice");
    assert!(page.contains(&format!("in order: {}\nfiles.", files.len())), "there are {} files", files.len());
}

/// Every number in the README's table of figures stands in the file of results that its row names.
#[test]
fn the_figures_of_the_readme_were_measured() {
    let text = read(&root().join("README.md"));
    let rows: Vec<&str> =
        text.lines().filter(|line| line.starts_with('|') && line.contains("](bench/results/")).collect();
    assert_eq!(rows.len(), 6, "the README has one table of six figures");
    for row in rows {
        let files: Vec<&str> = links(row).collect();
        let measured: Vec<f64> = files.iter().flat_map(|file| numbers(&read(&root().join(file)))).collect();
        let cells: Vec<&str> = row.split('|').collect();
        for figure in figures(&cells[2..cells.len() - 2].join(" ")) {
            let decimals = figure.split_once('.').map_or(0, |(_, digits)| digits.len());
            let shown = |number: &f64| format!("{number:.decimals$}") == figure;
            assert!(measured.iter().any(shown), "{figure} is not in {files:?}: {row}");
        }
    }
    let outside = prose(&text)
        .find(|(_, line)| ["tokens/s", "tok/s", "GB/s", " ms ", " % "].iter().any(|unit| line.contains(unit)));
    assert!(outside.is_none(), "a figure outside the table: {outside:?}");
}

#[test]
fn tables_of_performance_are_those_of_the_results() {
    let output = Command::new("python3").arg(root().join("bench/tables.py")).arg("--check").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// `docs/reference/limits.md`, from the comments and defaults of the server's limits.
#[test]
fn the_page_of_limits_is_current() {
    let source = read(&root().join("crates/server/src/guard/limits.rs"));
    let (fields, defaults) = source.split_once("impl Default").unwrap();
    let mut about = String::new();
    let mut rows = Vec::new();
    for line in fields.lines().map(str::trim) {
        if let Some(more) = line.strip_prefix("/// ") {
            about = format!("{about} {more}").trim().to_owned();
        } else if let Some((field, _)) = line.strip_prefix("pub ").and_then(|field| field.split_once(": ")) {
            let start = format!("{field}: ");
            let value =
                defaults.lines().find_map(|line| line.trim().strip_prefix(&start)).unwrap().trim_end_matches(',');
            let (what, beyond) = about.split_once(". ").unwrap_or((&about, ""));
            let beyond = beyond.strip_prefix("More: ").unwrap_or(beyond);
            rows.push(vec![
                what.trim_end_matches('.').to_owned(),
                readable(value),
                beyond.trim_end_matches('.').to_owned(),
            ]);
            about.clear();
        } else {
            about.clear();
        }
    }
    assert!(rows.len() > 10, "{rows:?}");
    assert_current("reference/limits.md", &table(&["what", "limit", "beyond it"], rows));
}

/// Every variable that code reads is on the page of the environment, and no other.
#[test]
fn the_page_of_the_environment_is_complete() {
    let mut read_by_code = BTreeSet::new();
    for folder in std::fs::read_dir(root().join("crates")).unwrap() {
        for file in rust_files(&folder.unwrap().path().join("src")) {
            let text = read(&file);
            // Tests within a file use variables of their own.
            let code = text.split("mod tests {").next().unwrap().replace("env!(\"FLINT_VERSION\")", "");
            if !file.ends_with("tests.rs") && !file.iter().any(|part| part == "tests") {
                read_by_code.extend(variables(&code, '"'));
            }
        }
    }
    for file in std::fs::read_dir(root().join("crates/cuda/emulator")).unwrap() {
        read_by_code.extend(variables(&read(&file.unwrap().path()), '"'));
    }
    let keys = read(&root().join("crates/agent/src/config/keys.rs"));
    let key = |line: &str| Some(line.trim().strip_prefix("key(\"")?.split('"').next()?.to_owned());
    let of_keys = keys.lines().filter_map(key).filter(|path| !path.contains(['.', '*']));
    let of_keys: BTreeSet<String> = of_keys.map(|path| format!("FLINT_{}", path.to_uppercase())).collect();
    let page = read(&root().join("docs/reference/environment.md"));
    let documented = variables(&page, '`');
    let missing: Vec<&String> = read_by_code.iter().filter(|name| !documented.contains(*name)).collect();
    let invented: Vec<&String> =
        documented.iter().filter(|name| !read_by_code.contains(*name) && !of_keys.contains(*name)).collect();
    assert!(missing.is_empty() && invented.is_empty(), "not on the page: {missing:?}; not in the code: {invented:?}");
}

fn variables(text: &str, quote: char) -> BTreeSet<String> {
    let ours = |word: &&str| {
        ["FLINT_", "HF_", "EMULATED_"].iter().any(|start| word.starts_with(start) && word.len() > start.len())
    };
    let plain =
        |word: &&str| word.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_');
    // `FLINT_X=1` names it too.
    text.split(quote)
        .map(|word| word.split('=').next().unwrap())
        .filter(ours)
        .filter(plain)
        .map(str::to_owned)
        .collect()
}

/// A default as people write it.
fn readable(value: &str) -> String {
    let product =
        |text: &str| text.split('*').map(|n| n.trim().replace('_', "").parse::<u64>().unwrap()).product::<u64>();
    if let Some(seconds) = value.strip_prefix("Duration::from_secs(").and_then(|rest| rest.strip_suffix(')')) {
        return match product(seconds) {
            seconds if seconds % 60 == 0 => format!("{} min", seconds / 60),
            seconds => format!("{seconds} s"),
        };
    }
    match value.split_once(" << ") {
        Some((count, "20")) => format!("{count} MiB"),
        Some((count, "10")) => format!("{count} KiB"),
        Some(_) => panic!("teach this test to read {value}"),
        None => product(value).to_string(),
    }
}

/// The documents people read.
fn pages() -> Vec<PathBuf> {
    let top = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"];
    let mut pages: Vec<PathBuf> = top.iter().map(|page| root().join(page)).collect();
    pages.extend(markdown(&root().join("docs")));
    pages
}

fn markdown(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        match entry.unwrap().path() {
            path if path.is_dir() => found.extend(markdown(&path)),
            path if path.extension().is_some_and(|extension| extension == "md") => found.push(path),
            _ => {}
        }
    }
    found.sort();
    found
}

fn name(page: &Path) -> String {
    page.strip_prefix(root()).unwrap().display().to_string()
}

/// Lines that are neither table nor code, with their numbers from 0.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut code = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence && !line.starts_with('|') && !line.starts_with("    ")
    })
}

/// What links point at, addresses elsewhere left out.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    targets.filter(|target| !target.contains("://"))
}

fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let kept = |c: char| (c.is_alphanumeric() || "-_ ".contains(c)).then_some(if c == ' ' { '-' } else { c });
    headings.map(|heading| heading.to_lowercase().chars().filter_map(kept).collect()).collect()
}

/// What stands in backquotes and begins like a path of this repository.
fn paths(text: &str) -> Vec<String> {
    let spans =
        text.lines().filter(|line| !line.starts_with("    ")).flat_map(|line| line.split('`').skip(1).step_by(2));
    let words = spans.flat_map(|span| span.split_whitespace()).map(|word| word.trim_end_matches([',', ':', ';']));
    let ours = words.filter(|word| FOLDERS.iter().any(|folder| word.starts_with(folder)));
    ours.filter(|word| !word.contains(['*', '{', '<', '$']))
        .map(|word| word.split("::").next().unwrap().to_owned())
        .collect()
}

/// Every number in lines of JSON.
fn numbers(text: &str) -> Vec<f64> {
    let other = |c: char| !(c.is_ascii_digit() || c == '.' || c == '-');
    text.split(other).filter_map(|word| word.parse().ok()).collect()
}

/// The numbers of a cell, without the commas of thousands.
fn figures(cell: &str) -> Vec<String> {
    let cell: String = cell.chars().filter(|c| *c != ',').collect();
    let words = cell.split(|c: char| !(c.is_ascii_digit() || c == '.')).map(|word| word.trim_matches('.').to_owned());
    words.filter(|word| !word.is_empty()).collect()
}

#[test]
fn the_searches_find_what_they_look_for() {
    assert_eq!(links("[a](b.md#c) [d](https://e)").collect::<Vec<_>>(), ["b.md#c"]);
    assert_eq!(paths("see `crates/none/src` and `bench/x.py --all`, not `a/b`"), ["crates/none/src", "bench/x.py"]);
    assert!(anchors("## Keys, and TLS\n").contains("keys-and-tls"));
    assert_eq!(figures("1,902.8 (x2.30)"), ["1902.8", "2.30"]);
    assert_eq!(prose("a\n```\nb\n```\n| c |\nd").map(|(_, line)| line).collect::<Vec<_>>(), ["a", "d"]);
    assert_eq!(
        (readable("16 << 20"), readable("Duration::from_secs(60 * 60)")),
        ("16 MiB".to_owned(), "60 min".to_owned())
    );
    assert!(
        variables("var(\"FLINT_A\")", '"').contains("FLINT_A") && variables("`FLINT_A=1`", '`').contains("FLINT_A")
    );
}
