//! Changes that follow from the message alone, without the model: a name that changes everywhere, a file that gets another
//! name, a file that goes.
//!
//! Only a message that says nothing else is taken for one: a word that is not known here leaves it to the model.

use std::path::{Path, PathBuf};

use index::Source;
use workspace::edit::{Change, ChangeKind};

use super::{ask, write};
use crate::command::Prompt;
use crate::context::{Several, files};
use crate::event::{Event, Outcome};
use crate::facts::Project;
use crate::turn_context::TurnContext;

/// Words for giving something another name.
const RENAME: &[&str] = &[
    "rename",
    "benenne",
    "umbenennen",
    "renomme",
    "renommer",
    "renommez",
    "renombra",
    "renombrar",
    "renomeie",
    "renomear",
    "rinomina",
    "rinominare",
    "переименуй",
    "переименуйте",
    "переименовать",
    "重命名",
    "改名",
    "リネーム",
];

/// The same in several words.
const RENAME_PHRASES: &[&str] = &[
    "change the name of",
    "ändere den namen von",
    "change le nom de",
    "cambia el nombre de",
    "cambiar el nombre de",
    "mude o nome de",
    "muda o nome de",
    "altere o nome de",
    "измени имя",
    "の名前を",
];

/// Words for a file that is to go.
const DELETE: &[&str] = &[
    "delete",
    "remove",
    "lösche",
    "löschen",
    "entferne",
    "entfernen",
    "supprime",
    "supprimer",
    "supprimez",
    "borra",
    "borrar",
    "elimina",
    "eliminar",
    "apague",
    "apagar",
    "cancella",
    "cancellare",
    "удали",
    "удалить",
    "удалите",
    "删除",
    "移除",
];

/// Words that add nothing.
const FILLING: &[&str] = &[
    "please",
    "the",
    "a",
    "function",
    "method",
    "class",
    "struct",
    "type",
    "interface",
    "enum",
    "trait",
    "constant",
    "variable",
    "module",
    "file",
    "to",
    "into",
    "as",
    "in",
    "everywhere",
    "all",
    "files",
    "across",
    "project",
    "its",
    "and",
    "uses",
    "every",
    "of",
    "whole",
    "throughout",
    "code",
    "repository",
    "bitte",
    "die",
    "das",
    "den",
    "der",
    "funktion",
    "methode",
    "klasse",
    "datei",
    "in",
    "zu",
    "nach",
    "um",
    "überall",
    "allen",
    "dateien",
    "la",
    "le",
    "les",
    "fonction",
    "méthode",
    "classe",
    "fichier",
    "en",
    "par",
    "partout",
    "función",
    "método",
    "clase",
    "archivo",
    "el",
    "por",
    "todas",
    "partes",
    "a",
    "função",
    "arquivo",
    "para",
    "em",
    "todo",
    "lugar",
    "funzione",
    "metodo",
    "in",
    "tutto",
    "ovunque",
    "il",
    "file",
    "функцию",
    "метод",
    "класс",
    "файл",
    "в",
    "на",
    "везде",
    "can",
    "could",
    "you",
    "using",
    "it",
    "callers",
    "references",
    "usages",
    "把",
    "将",
    "请",
    "函数",
    "方法",
    "类",
    "变量",
    "文件",
    "这个",
    "为",
    "成",
    "到",
    "在",
    "里",
    "中",
    "的",
    "都",
    "所有",
    "全部",
    "地方",
    "を",
    "に",
    "へ",
    "の",
    "関数",
    "メソッド",
    "クラス",
    "ファイル",
    "変数",
    "すべて",
    "全て",
    "変更",
    "して",
    "ください",
];

/// Mentions that are named; of more only the count is told.
const MENTIONS_NAMED: usize = 8;

/// What a message asks for.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    /// From one name to another, which may be files.
    Rename(String, String),
    /// Files that go.
    Delete(Vec<String>),
}

/// Reads a message.
fn read(text: &str) -> Option<Asked> {
    let text = apart(text);
    let words: Vec<&str> = text
        .split_whitespace()
        .map(|word| word.trim_matches(|c: char| "\"'`,;!?()@:".contains(c)).trim_end_matches('.'))
        .filter(|word| !word.is_empty())
        .collect();
    let is = |word: &str, list: &[&str]| list.contains(&word.to_lowercase().as_str());
    let asks = |list: &[&str]| words.iter().any(|word| is(word, list));
    let rest: Vec<String> = words
        .iter()
        .filter(|word| !is(word, RENAME) && !is(word, DELETE) && !is(word, FILLING))
        .map(|word| word.trim_end_matches("()").to_owned())
        .collect();
    // Names in code are written in Latin letters; other words say something that is not known here.
    if rest.iter().any(|word| word.contains(is_spaceless)) {
        return None;
    }
    match (&rest[..], asks(RENAME), asks(DELETE)) {
        ([from, to], true, false) => Some(Asked::Rename(from.clone(), to.clone())),
        // `rename discount in shop/pricing.py to rebate`: the file says which one is meant.
        ([from, path, to], true, false) if path.contains(['.', '/']) => {
            let stem = Path::new(path).file_stem()?.to_string_lossy().into_owned();
            Some(Asked::Rename(format!("{stem}.{from}"), to.clone()))
        }
        ([_, ..], false, true) if rest.iter().all(|word| word.contains(['.', '/'])) => Some(Asked::Delete(rest)),
        _ => None,
    }
}

/// Whether a letter is of a script that writes no spaces between words.
fn is_spaceless(letter: char) -> bool {
    letter as u32 >= 0x2e80
}

/// The message with spaces around the words that are known of languages which have none, and a word for each phrase.
fn apart(text: &str) -> String {
    let mut text = text.to_owned();
    let lower = text.to_lowercase();
    let phrase = RENAME_PHRASES.iter().find_map(|phrase| Some((lower.find(phrase)?, phrase.len())));
    // Where lower case has other lengths the place is not known.
    if let Some((at, length)) =
        phrase.filter(|(at, length)| lower.len() == text.len() && text.get(*at..at + length).is_some())
    {
        text.replace_range(at..at + length, " rename ");
    }
    let mut known: Vec<&str> = [RENAME, DELETE, FILLING].concat();
    known.retain(|word| word.chars().all(is_spaceless));
    known.sort_by_key(|word| std::cmp::Reverse(word.len()));
    let (mut spaced, mut rest) = (String::new(), text.as_str());
    while let Some(letter) = rest.chars().next() {
        let word = known.iter().find(|word| rest.starts_with(**word));
        match word {
            Some(word) => spaced.extend([" ", word, " "]),
            None if matches!(letter, '。' | '、' | '，' | '「' | '」' | '！' | '？') => spaced.push(' '),
            None => spaced.push(letter),
        }
        rest = &rest[word.map_or(letter.len_utf8(), |word| word.len())..];
    }
    spaced
}

/// Whether a message asks for a name to be another one and for nothing else, and the project has that name.
pub(crate) async fn is_rename(root: PathBuf, text: &str) -> bool {
    let Some(Asked::Rename(from, to)) = read(text) else { return false };
    let found = tokio::task::spawn_blocking(move || {
        let project = Project::read(&root);
        rename(&project, &from, &to).is_some()
    });
    found.await.unwrap_or_default()
}

/// Does what a message asks for, if it asks for one of these. None leaves it to the model.
pub(super) async fn turn(ctx: &mut TurnContext, prompt: &Prompt) -> Option<Outcome> {
    if prompt.failing.is_some() {
        return None;
    }
    let asked = read(&prompt.text)?;
    let root = ctx.root();
    let project = tokio::task::spawn_blocking(move || Project::read(&root)).await.ok()?;
    let found = match asked {
        // A name may be used where nobody looked.
        Asked::Rename(..) if project.unread.is_some() => Err(too_much(&project).into()),
        Asked::Rename(from, to) => rename(&project, &from, &to)?,
        Asked::Delete(paths) => delete(&project, &paths)?,
    };
    ctx.say(&prompt.text).await;
    let (text, outcome) = match found {
        Ok((changes, text)) => match write(ctx, &changes, Vec::new()).await {
            Ok(()) => (text, Outcome::Done),
            Err(failed) => (failed.why(), Outcome::Failed { why: failed.why() }),
        },
        Err(Refused { why, several: Some(several) }) => {
            return Some(ask::which(ctx, prompt, why, Some(&several)).await);
        }
        Err(Refused { why, .. }) => (why.clone(), Outcome::Failed { why }),
    };
    let item = ctx.conversation.push_assistant(&text);
    ctx.history.item(&item);
    if outcome == Outcome::Done {
        ctx.emit(Event::Text { delta: format!("{text}\n") }).await;
    }
    Some(outcome)
}

/// The changes and what is told of them, or why there are none.
type Found = Result<(Vec<Change>, String), Refused>;

/// Why nothing is done.
struct Refused {
    /// For the person.
    why: String,
    /// The name that would have to be another one.
    several: Option<Several>,
}

impl From<String> for Refused {
    fn from(why: String) -> Self {
        Self { why, several: None }
    }
}

impl From<Several> for Refused {
    fn from(several: Several) -> Self {
        Self { why: several.to_string(), several: Some(several) }
    }
}

fn sources(project: &Project) -> Vec<Source<'_>> {
    project.sources.iter().map(|source| Source { path: &source.path, text: &source.text }).collect()
}

fn rename(project: &Project, from: &str, to: &str) -> Option<Found> {
    if let Some(path) = existing(project, from) {
        return Some(path.map_err(Refused::from).and_then(|path| rename_file(project, &path, to)));
    }
    match index::rename(&sources(project), from, to) {
        // What is not there may be written otherwise, and what is in another language the model knows.
        Err(index::Unclear::Absent(_) | index::Unclear::Language(_) | index::Unclear::NotAName(_)) => None,
        Err(unclear) => {
            let why = unclear.to_string();
            let several = match unclear {
                index::Unclear::Several { name: _, places } => {
                    let named = |place: &String| place.split('`').nth(1).map(str::to_owned);
                    Some(Several { name: from.to_owned(), could: places.iter().filter_map(named).collect() })
                }
                index::Unclear::Taken { name, .. } => Some(Several { name, could: Vec::new() }),
                _ => None,
            };
            Some(Err(Refused { why, several }))
        }
        Ok(renamed) => {
            let files = renamed.files.len();
            let mut text = format!(
                "Renamed `{from}` to `{to}`: {} place{} in {files} file{}.",
                renamed.places,
                if renamed.places == 1 { "" } else { "s" },
                if files == 1 { "" } else { "s" }
            );
            if !renamed.mentions.is_empty() {
                text += &format!(
                    " The old name still stands in text or means something else: {}.",
                    places(&renamed.mentions)
                );
            }
            let whole = |(path, text): (PathBuf, String)| Change { path, kind: ChangeKind::WholeFile { text } };
            Some(Ok((renamed.files.into_iter().map(whole).collect(), text)))
        }
    }
}

fn too_much(project: &Project) -> String {
    let file = project.unread.as_deref().unwrap_or(Path::new(""));
    let what =
        if file.as_os_str().is_empty() { "the rest of the folder".to_owned() } else { file.display().to_string() };
    format!("{what} is too much to follow names in; start Flint in a folder further down, or have it ignored")
}

fn rename_file(project: &Project, from: &Path, to: &str) -> Found {
    let target =
        files::inside(&project.root, to).ok_or_else(|| format!("{to} leads out of the folder; name a file in it"))?;
    // A bare name is one beside the file.
    let target = match (target.parent(), from.parent()) {
        (Some(parent), Some(folder)) if parent.as_os_str().is_empty() => folder.join(&target),
        _ => target,
    };
    if project.root.join(&target).exists() {
        let why = format!("{} exists already; choose another name", target.display());
        return Err(Refused { why, several: Some(Several { name: to.to_owned(), could: Vec::new() }) });
    }
    let moved = index::moved(&sources(project), from, &target)?;
    let mut text = format!("Renamed {} to {}", from.display(), target.display());
    if !moved.is_empty() {
        let paths: Vec<String> = moved.iter().map(|(path, _)| path.display().to_string()).collect();
        text += &format!(", and its imports in {}", paths.join(", "));
    }
    let whole = |(path, text): (PathBuf, String)| Change { path, kind: ChangeKind::WholeFile { text } };
    let mut changes: Vec<Change> = moved.into_iter().map(whole).collect();
    changes.push(Change { path: from.to_owned(), kind: ChangeKind::Move { to: target } });
    Ok((changes, text + "."))
}

fn delete(project: &Project, written: &[String]) -> Option<Found> {
    let mut changes = Vec::new();
    let mut text = String::new();
    for word in written {
        let path = match existing(project, word)? {
            Ok(path) => path,
            Err(several) => return Some(Err(several.into())),
        };
        let importers = index::importers(&sources(project), &path);
        text += &format!("Deleted {}.", path.display());
        if !importers.is_empty() {
            text += &format!(" It is still imported: {}.", places(&importers));
        }
        text.push(' ');
        changes.push(Change { path, kind: ChangeKind::Delete });
    }
    Some(Ok((changes, text.trim_end().to_owned())))
}

/// The file that a word names: by its path, or by its end where only one ends so. The error names those that could be meant.
fn existing(project: &Project, word: &str) -> Option<Result<PathBuf, Several>> {
    let path = files::inside(&project.root, word).filter(|_| word.contains(['.', '/']))?;
    if project.root.join(&path).is_file() {
        return Some(Ok(path));
    }
    let alike: Vec<&PathBuf> = project.paths.iter().filter(|known| known.ends_with(&path)).collect();
    match alike[..] {
        [] => None,
        [one] => Some(Ok(one.clone())),
        _ => {
            let could = alike.iter().take(MENTIONS_NAMED).map(|path| path.display().to_string()).collect();
            Some(Err(Several { name: word.to_owned(), could }))
        }
    }
}

/// Places as they are told: a few by name, of the rest the count.
pub(super) fn places(all: &[(PathBuf, usize)]) -> String {
    let named = all.iter().take(MENTIONS_NAMED).map(|(path, line)| format!("{}:{line}", path.display()));
    let mut text = named.collect::<Vec<String>>().join(", ");
    if all.len() > MENTIONS_NAMED {
        text += &format!(" and {} more", all.len() - MENTIONS_NAMED);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_says_nothing_else_is_done_without_the_model() {
        let rename = |text: &str, from: &str, to: &str| {
            assert_eq!(read(text), Some(Asked::Rename(from.to_owned(), to.to_owned())), "{text}");
        };
        rename("Rename the function discount to rebate everywhere.", "discount", "rebate");
        rename("please rename `Cart.add` to `put`", "Cart.add", "put");
        rename("Benenne die Funktion discount überall in rebate um.", "discount", "rebate");
        rename("rename discount in shop/pricing.py to rebate", "pricing.discount", "rebate");
        rename("Rename shop/pricing.py to rates.py.", "shop/pricing.py", "rates.py");
        rename("把 discount 重命名为 rebate", "discount", "rebate");
        rename("请把函数discount在所有文件里改名为rebate。", "discount", "rebate");
        rename("discount を rebate にリネームしてください", "discount", "rebate");
        rename("関数 discount の名前を rebate に変更して", "discount", "rebate");
        rename("Cambia el nombre de discount a rebate", "discount", "rebate");
        rename("Change the name of name to title", "name", "title");
        assert_eq!(read("Delete the file old.py."), Some(Asked::Delete(vec!["old.py".to_owned()])));
        for text in [
            "Rename discount to rebate and add a test.",
            "Rename the variables in total so that they say what they are.",
            "Delete the loop.",
            "Add a method rename(a) to b.",
            "Remove the function tax from shop/pricing.py.",
            "把 discount 改名的时候写日志",
            "名前を変更",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
