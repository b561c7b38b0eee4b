//! From an answer to the files: every block placed, all of it written or nothing, and what was not placed is told.

use std::path::{Path, PathBuf};

use workspace::edit::{Batch, Change, ChangeKind};

use super::NotApplied;
use super::draft::Draft;
use super::parser::Head;
use super::place::{self, Placed};
use crate::approval;
use crate::command::Decision;
use crate::context;
use crate::event::{ApprovalAsk, Event};
use crate::facts::Project;
use crate::names;
use crate::turn_context::TurnContext;

/// Writes every change of the answer, or none. `again` says that the model was asked for it a second time.
pub(super) async fn apply(ctx: &mut TurnContext, draft: &Draft, again: bool) -> Result<(), NotApplied> {
    if draft.blocks.is_empty() {
        return Ok(());
    }
    let placed = match placed(draft) {
        Ok(placed) => placed,
        Err((block, path, failed)) => {
            let edit = draft.blocks.get(block).and_then(|block| block.edit);
            if let (Some(edit), Some(path)) = (edit, path) {
                ctx.emit(Event::EditFailed { edit, path, why: failed.why() }).await;
            }
            return Err(failed);
        }
    };
    for left in &placed.left {
        ctx.notice(format!("not placed: {}: {}", left.what, left.why)).await;
    }
    let changes = changes(&placed);
    let edits = edits(ctx, draft, &placed).await;
    if let Some(failed) = nothing_to_write(draft, &placed, &changes) {
        for (edit, path) in edits {
            ctx.emit(Event::EditFailed { edit, path, why: failed.why() }).await;
        }
        return Err(failed);
    }
    if edits.is_empty() {
        return Ok(());
    }
    if let Some(why) = imports_nothing(ctx, draft, &placed).await {
        let path = placed.files.first().map(|(path, _)| path.clone());
        let failed = NotApplied::Unclear { why, path };
        for (edit, path) in edits {
            ctx.emit(Event::EditFailed { edit, path, why: failed.why() }).await;
        }
        return Err(failed);
    }
    if let Some(failed) = invents(ctx, draft, &placed, &edits, again).await {
        for (edit, path) in edits {
            ctx.emit(Event::EditFailed { edit, path, why: failed.why() }).await;
        }
        return Err(failed);
    }
    write(ctx, &changes, edits).await?;
    tell_of_uses(ctx).await;
    Ok(())
}

/// Why an answer is not written that uses names nothing knows: the model hears of them once, then the person decides.
async fn invents(
    ctx: &mut TurnContext,
    draft: &Draft,
    placed: &Placed,
    edits: &[(u64, PathBuf)],
    again: bool,
) -> Option<NotApplied> {
    let around = draft.around();
    let changed = |(path, new): &(PathBuf, String)| names::Changed {
        path: path.clone(),
        old: place::current(path, &around).unwrap_or_default(),
        new: new.clone(),
    };
    let files: Vec<names::Changed> = placed.files.iter().map(changed).collect();
    let found = names::unknown(ctx, files, draft.request.clone()).await;
    let path = found.first().map(|(path, _)| path.clone())?;
    let why = names::said(&found);
    if !again {
        return Some(NotApplied::Unclear { why, path: Some(path) });
    }
    ctx.notice(format!("unknown names:\n{why}")).await;
    let why = format!("it uses names that nothing knows: {}", why.replace('\n', "; "));
    if ctx.config().approval_policy == approval::Policy::Never {
        return Some(NotApplied::Refused(why));
    }
    let paths = edits.iter().map(|(_, path)| path.clone()).collect();
    let what = ApprovalAsk::Edits { edits: edits.iter().map(|(edit, _)| *edit).collect(), paths };
    match ctx.ask(what, why.clone()).await {
        Decision::Yes | Decision::Always => None,
        Decision::No | Decision::Stop => Some(NotApplied::Refused(why)),
    }
}

/// Writes changes, all or none. `edits` are those that the person knows of already.
pub(super) async fn write(
    ctx: &mut TurnContext,
    changes: &[Change],
    mut edits: Vec<(u64, PathBuf)>,
) -> Result<(), NotApplied> {
    let batch = Batch::resolve(&ctx.root(), changes).map_err(|error| NotApplied::Refused(error.to_string()));
    let result = match batch {
        Ok(batch) => {
            for file in batch.files() {
                if !edits.iter().any(|(_, path)| *path == file.path) {
                    let edit = ctx.next_edit();
                    let (old, new) = (file.old.as_deref().unwrap_or(""), file.new.as_deref().unwrap_or(""));
                    let (diff, lines) = (workspace::diff::unified(old, new), file.lines());
                    ctx.emit(Event::EditStarted { edit, path: file.path.clone() }).await;
                    ctx.emit(Event::EditGrew { edit, diff: diff.into(), lines }).await;
                    edits.push((edit, file.path));
                }
            }
            match permitted(ctx, &edits).await {
                Ok(()) => {
                    ctx.history.ready().await;
                    let journal = ctx.history.journal();
                    batch.write(|step| journal.edit(step)).map_err(|error| NotApplied::Refused(error.to_string()))
                }
                Err(why) => Err(NotApplied::Refused(why)),
            }
        }
        Err(failed) => Err(failed),
    };
    let written = match result {
        Ok(written) => written,
        Err(failed) => {
            for (edit, path) in edits {
                ctx.emit(Event::EditFailed { edit, path, why: failed.why() }).await;
            }
            return Err(failed);
        }
    };
    for (edit, path) in edits {
        let lines = written.iter().find(|file| file.path == path).map_or((0, 0), workspace::edit::Written::lines);
        ctx.emit(Event::EditApplied { edit, path, lines }).await;
    }
    ctx.history.edited(&written);
    ctx.written = written;
    Ok(())
}

/// What an answer imports from a file of the project that has no such name, for the model.
async fn imports_nothing(ctx: &mut TurnContext, draft: &Draft, placed: &Placed) -> Option<String> {
    let old = |path: &Path| place::current(path, &draft.around()).unwrap_or_default();
    let files: Vec<(PathBuf, String, String)> =
        placed.files.iter().map(|(path, text)| (path.clone(), old(path), text.clone())).collect();
    // Only a line that is new can import what is not there.
    let imports =
        |line: &str| ["import ", "from ", "use ", "pub use "].iter().any(|word| line.trim_start().starts_with(word));
    let fresh = |(_, old, new): &(PathBuf, String, String)| {
        new.lines().any(|line| imports(line) && !old.lines().any(|known| known.trim() == line.trim()))
    };
    if !files.iter().any(fresh) {
        return None;
    }
    let root = ctx.root();
    let work = tokio::task::spawn_blocking(move || {
        let mut project = Project::read(&root);
        project.sources.retain(|source| files.iter().all(|(path, ..)| *path != source.path));
        let mut sources: Vec<index::Source<'_>> =
            project.sources.iter().map(|source| index::Source { path: &source.path, text: &source.text }).collect();
        sources.extend(files.iter().map(|(path, _, text)| index::Source { path, text }));
        files.iter().find_map(|(path, old, new)| {
            let squeezed = old.split_whitespace().collect::<Vec<&str>>().join(" ");
            let found = index::dangling(&sources, path, new, |import| squeezed.contains(import));
            found.first().map(|one| {
                format!("{} imports `{}` from {}, which has no such name", path.display(), one.name, one.from.display())
            })
        })
    });
    work.await.unwrap_or_default()
}

/// Tells of what is gone and still used elsewhere.
async fn tell_of_uses(ctx: &mut TurnContext) {
    let names = |path: &Path, text: &Option<String>| -> Vec<String> {
        let items = text.as_deref().map(|text| context::definitions(path, text)).unwrap_or_default();
        items.into_iter().filter(|item| item.parents.is_empty()).map(|item| item.name).collect()
    };
    let mut gone: Vec<(PathBuf, String)> = Vec::new();
    for file in &ctx.written {
        let left = names(&file.path, &file.new);
        let names = names(&file.path, &file.old).into_iter().filter(|name| !left.contains(name));
        gone.extend(names.map(|name| (file.path.clone(), name)));
    }
    if gone.is_empty() {
        return;
    }
    let root = ctx.root();
    let work = tokio::task::spawn_blocking(move || {
        let project = Project::read(&root);
        let sources: Vec<index::Source<'_>> =
            project.sources.iter().map(|source| index::Source { path: &source.path, text: &source.text }).collect();
        let used = gone.into_iter().map(|(path, name)| {
            let uses = index::uses(&sources, &path, &name);
            (path, name, uses)
        });
        used.filter(|(.., uses)| !uses.is_empty()).collect::<Vec<_>>()
    });
    for (path, name, uses) in work.await.unwrap_or_default() {
        let uses = super::direct::places(&uses);
        ctx.notice(format!("`{name}` is gone from {} and is still used: {uses}", path.display())).await;
    }
}

/// Where the blocks of an answer go. The error has the number of the block and its file.
pub(super) fn placed(draft: &Draft) -> Result<Placed, (usize, Option<PathBuf>, NotApplied)> {
    let cut = draft.blocks.iter().position(|block| !block.whole && block.path.is_some());
    if let Some((number, path)) = cut.and_then(|number| Some((number, draft.blocks[number].path.clone()?))) {
        let why = format!("the answer ended in the middle of {}; raise max_output_tokens", path.display());
        return Err((number, Some(path), NotApplied::Refused(why)));
    }
    let blocks: Vec<(&Head, &str)> = draft.blocks.iter().map(|block| (&block.head, block.text.as_str())).collect();
    place::all(&blocks, &draft.around()).map_err(|refused| {
        let failed = NotApplied::Unclear { why: refused.why.to_string(), path: refused.path.clone() };
        (refused.block, refused.path, failed)
    })
}

/// What is written.
pub(super) fn changes(placed: &Placed) -> Vec<Change> {
    let change = |(path, text): &(PathBuf, String)| Change {
        path: path.clone(),
        kind: ChangeKind::WholeFile { text: text.clone() },
    };
    placed.files.iter().map(change).collect()
}

/// The edits the person knows of, and those that a block turned out to make beside: one for each file.
async fn edits(ctx: &mut TurnContext, draft: &Draft, placed: &Placed) -> Vec<(u64, PathBuf)> {
    let mut edits: Vec<(u64, PathBuf)> = Vec::new();
    for block in &draft.blocks {
        let Some((edit, path)) = block.edit.zip(block.path.clone()) else { continue };
        if placed.files.iter().any(|(placed, _)| *placed == path) {
            edits.push((edit, path));
        } else {
            let why = "what the answer shows belongs to another file, or stands there already".to_owned();
            ctx.emit(Event::EditFailed { edit, path, why }).await;
        }
    }
    for (path, text) in &placed.files {
        if edits.iter().any(|(_, known)| known == path) {
            continue;
        }
        let edit = ctx.next_edit();
        let old = place::current(path, &draft.around()).unwrap_or_default();
        let (diff, lines) = (workspace::diff::unified(&old, text), workspace::diff::lines(&old, text));
        ctx.emit(Event::EditStarted { edit, path: path.clone() }).await;
        ctx.emit(Event::EditGrew { edit, diff: diff.into(), lines }).await;
        edits.push((edit, path.clone()));
    }
    edits
}

/// Why nothing is to be written, where code came that was placed nowhere or changes nothing.
pub(super) fn nothing_to_write(draft: &Draft, placed: &Placed, changes: &[Change]) -> Option<NotApplied> {
    if !placed.files.is_empty() {
        return unchanged(draft, changes);
    }
    // Of several the one that a file is known for is the easiest to answer.
    let left = placed.left.iter().find(|left| !left.could.is_empty()).or(placed.left.first());
    let Some(left) = left else {
        // All of it stands in other files already, such as the tests that were shown.
        let about = draft.files.iter().find(|file| !context::files::is_test(&file.path));
        let paths = about.map(|file| file.path.clone()).into_iter().collect();
        return (!draft.blocks.is_empty()).then_some(NotApplied::Unchanged { names: Vec::new(), paths });
    };
    Some(NotApplied::Nowhere { what: left.what.clone(), why: left.why.clone(), could: left.could.clone() })
}

/// Whether every file would stay as it is.
fn unchanged(draft: &Draft, changes: &[Change]) -> Option<NotApplied> {
    let around = draft.around();
    let stays = |change: &Change| match &change.kind {
        ChangeKind::WholeFile { text } => place::current(&change.path, &around).as_ref() == Some(text),
        _ => false,
    };
    if !changes.iter().all(stays) {
        return None;
    }
    let blocks = draft.blocks.iter().filter_map(|block| Some((block.path.as_ref()?, &block.text)));
    let items = blocks.flat_map(|(path, text)| context::definitions(path, text));
    let names: Vec<String> = items.filter(|item| item.parents.is_empty()).map(|item| item.name).collect();
    let paths = changes.iter().map(|change| change.path.clone()).collect();
    Some(NotApplied::Unchanged { names, paths })
}

/// Whether the files may be written. The person is asked where the configuration wants that; the reason is for them.
async fn permitted(ctx: &mut TurnContext, edits: &[(u64, PathBuf)]) -> Result<(), String> {
    let policy = ctx.sandbox_policy();
    let paths: Vec<PathBuf> = edits.iter().map(|(_, path)| path.clone()).collect();
    let refused = paths.iter().find_map(|path| policy.may_write(&ctx.root().join(path)).err());
    let why = match (refused, ctx.config().approval_policy) {
        (None, approval::Policy::Untrusted) => "approval_policy is untrusted".to_owned(),
        (None, _) => return Ok(()),
        (Some(why), approval::Policy::Never) => return Err(why),
        (Some(why), _) => why,
    };
    let what = ApprovalAsk::Edits { edits: edits.iter().map(|(edit, _)| *edit).collect(), paths };
    match ctx.ask(what, why).await {
        Decision::Yes | Decision::Always => Ok(()),
        Decision::No | Decision::Stop => Err("not written, as you decided".to_owned()),
    }
}
