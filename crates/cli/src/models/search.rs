//! `flint models search` and files that the catalogue does not know: what Hugging Face says, and which file to take.

use anyhow::bail;
use hub::{HuggingFace, Reference, RepoFile, Store, format_bytes, is_part};
use serde_json::{Value, json};

/// Files of a repository that an error lists.
const LISTED_MAX: usize = 12;
/// Quantisations that suit most machines, best first.
const USUAL: [&str; 4] = ["q4_k_m", "ud-q4_k_xl", "mxfp4", "q4_0"];

/// Lists models by a word, or the files of `hf:OWNER/NAME`.
pub fn run(store: &Store, word: &str, json: bool) -> anyhow::Result<()> {
    let hub = HuggingFace::from_env();
    if let Some(reference) = Reference::parse(word) {
        return list_files(&hub, &reference?.repo, json);
    }
    let known: Vec<&hub::Entry> = store.catalogue().entries().iter().filter(|entry| matches(entry, word)).collect();
    let found = hub.search(word);
    if json {
        let rows = found?.into_iter().map(|found| {
            json!({"repo": found.repo, "downloads": found.downloads, "likes": found.likes, "licence": found.licence})
        });
        let names: Vec<&str> = known.iter().map(|entry| entry.name.as_str()).collect();
        return super::print_json(&json!({"catalogue": names, "huggingface": rows.collect::<Vec<Value>>()}));
    }
    for entry in &known {
        outln!("{:<24} known by name; `flint models pull {}`", entry.name, entry.name);
    }
    let found = found?;
    for found in &found {
        let licence = found.licence.as_deref().unwrap_or("licence not named");
        outln!("hf:{:<60} {:>10} downloads  {licence}", found.repo, found.downloads);
    }
    if found.is_empty() && known.is_empty() {
        bail!("nothing is called {word}; try one word of its name");
    }
    outln!(
        "`flint models search hf:OWNER/NAME` lists the files of one, `flint models pull hf:OWNER/NAME/FILE` takes one."
    );
    Ok(())
}

fn matches(entry: &hub::Entry, word: &str) -> bool {
    let word = word.to_lowercase();
    entry.name.contains(&word) || entry.aliases.iter().any(|alias| alias.contains(&word))
}

fn list_files(hub: &HuggingFace, repo: &str, json: bool) -> anyhow::Result<()> {
    let files = models(hub.files(repo)?);
    if json {
        let rows = files.iter().map(|file| json!({"file": file.file, "bytes": file.bytes}));
        return super::print_json(&Value::Array(rows.collect()));
    }
    if files.is_empty() {
        bail!("{repo} has no GGUF file; `flint models search` with its name finds one that has");
    }
    files.iter().for_each(|file| outln!("{}", described(repo, file)));
    Ok(())
}

fn described(repo: &str, file: &RepoFile) -> String {
    let size = file.bytes.map_or_else(String::new, |bytes| format!("  {}", format_bytes(bytes)));
    let note = if is_part(&file.file) { "  in parts, which Flint does not join" } else { "" };
    format!("hf:{repo}/{}{size}{note}", file.file)
}

/// The models among the files of a repository: not what shows them pictures or drafts for them.
fn models(files: Vec<RepoFile>) -> Vec<RepoFile> {
    let is_model = |file: &RepoFile| {
        let name = file.file.to_lowercase();
        name.ends_with(".gguf") && !name.contains("mmproj") && !name.contains("imatrix")
    };
    files.into_iter().filter(is_model).collect()
}

/// The file to fetch for a reference: the one it names, or the one there is.
pub fn file_of(reference: Reference) -> anyhow::Result<Reference> {
    if reference.file.as_deref().is_some_and(|file| file.to_lowercase().ends_with(".gguf")) {
        return Ok(reference);
    }
    choose(&HuggingFace::from_env(), reference)
}

fn choose(hub: &HuggingFace, reference: Reference) -> anyhow::Result<Reference> {
    let repo = &reference.repo;
    let files = models(hub.files(repo)?);
    match (files.as_slice(), &reference.file) {
        ([], _) => bail!("{repo} holds no GGUF file, and Flint reads nothing else. {}", instead(hub, repo)),
        (_, Some(named)) => {
            let list = listed(repo, &files);
            bail!("{named} is not a GGUF file, and Flint reads nothing else. Take one of these instead:{list}")
        }
        ([only], None) => Ok(Reference { file: Some(only.file.clone()), ..reference }),
        (_, None) => bail!("{repo} has several files; name one:{}", listed(repo, &files)),
    }
}

fn listed(repo: &str, files: &[RepoFile]) -> String {
    let mut files: Vec<&RepoFile> = files.iter().filter(|file| !is_part(&file.file)).collect();
    let rank = |file: &RepoFile| {
        let name = file.file.to_lowercase();
        USUAL.iter().position(|usual| name.contains(usual)).unwrap_or(USUAL.len())
    };
    files.sort_by_key(|file| rank(file));
    files.iter().take(LISTED_MAX).map(|file| format!("\n  {}", described(repo, file))).collect()
}

/// The GGUF of a model that is published in another format.
fn instead(hub: &HuggingFace, repo: &str) -> String {
    let name = repo.rsplit('/').next().unwrap_or(repo);
    let advice = || format!("`flint models search {name}` finds the same model as one.");
    let Ok(found) = hub.search(name) else { return advice() };
    let Some(found) = found.first() else { return advice() };
    let file = hub.files(&found.repo).ok().map(models).and_then(|files| {
        let usual = |usual: &&str| files.iter().find(|file| file.file.to_lowercase().contains(*usual));
        USUAL.iter().find_map(usual).or(files.first()).map(|file| file.file.clone())
    });
    match file {
        Some(file) => format!("Take hf:{}/{file} instead.", found.repo),
        None => format!("Take a file of hf:{} instead.", found.repo),
    }
}
