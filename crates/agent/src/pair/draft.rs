//! The changes of an answer while it is being written: which file each block is about, and its diff as far as it is known.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use workspace::diff;

use super::parser::{Head, Parser, Part};
use super::place::{self, Surroundings};
use super::prompt::Task;
use crate::context::Shown;
use crate::event::Event;
use crate::turn_context::TurnContext;

/// A growing diff is drawn at most this often.
const GROW_EVERY: Duration = Duration::from_millis(33);

/// One block of an answer.
#[derive(Debug)]
pub struct Block {
    /// What stood around its fence.
    pub head: Head,
    /// Its lines.
    pub text: String,
    /// The file it is about, once known.
    pub path: Option<PathBuf>,
    /// The number of the edit, once the file is known.
    pub edit: Option<u64>,
    /// Its end was seen.
    pub whole: bool,
}

/// An answer as far as it has come.
pub struct Draft {
    /// What blocks are matched against.
    pub root: PathBuf,
    /// Files the model has seen.
    pub files: Vec<Shown>,
    /// What the task says about its answer.
    pub task: Task,
    /// What was asked.
    pub request: String,
    /// Blocks so far.
    pub blocks: Vec<Block>,
    parser: Parser,
    open: bool,
    grown: Option<Instant>,
}

impl Draft {
    /// An empty answer about these files.
    pub fn new(root: PathBuf, files: Vec<Shown>, task: Task, request: &str) -> Self {
        let request = request.to_owned();
        Self { root, files, task, request, blocks: Vec::new(), parser: Parser::default(), open: false, grown: None }
    }

    /// What blocks are matched against.
    pub fn around(&self) -> Surroundings<'_> {
        Surroundings { root: &self.root, files: &self.files, task: self.task, request: &self.request }
    }

    /// Takes what the model wrote and tells the person.
    pub async fn push(&mut self, ctx: &mut TurnContext, delta: &str) {
        let parts = self.parser.push(delta);
        self.take(ctx, parts).await;
        if self.open && self.grown.is_none_or(|at| at.elapsed() >= GROW_EVERY) {
            self.grow(ctx).await;
        }
    }

    /// The answer is over. `whole` says that the model had said all, so an open block only lacks its fence.
    pub async fn finish(&mut self, ctx: &mut TurnContext, whole: bool) {
        let parts = self.parser.finish();
        self.take(ctx, parts).await;
        if let Some(last) = self.blocks.last_mut().filter(|_| whole) {
            last.whole = true;
        }
    }

    /// A steer turned the answer: what was finished stays, an unfinished change is given up.
    pub async fn turn(&mut self, ctx: &mut TurnContext) {
        self.finish(ctx, false).await;
        self.parser = Parser::default();
        if self.blocks.last().is_some_and(|block| !block.whole) {
            let block = self.blocks.pop();
            if let Some((edit, path)) = block.and_then(|block| block.edit.zip(block.path)) {
                ctx.emit(Event::EditFailed { edit, path, why: "given up for what you said".to_owned() }).await;
            }
        }
    }

    async fn take(&mut self, ctx: &mut TurnContext, parts: Vec<Part>) {
        for part in parts {
            match part {
                Part::Text(delta) => ctx.emit(Event::Text { delta }).await,
                Part::Opened(head) => {
                    self.open = true;
                    self.grown = None;
                    self.blocks.push(Block { head, text: String::new(), path: None, edit: None, whole: false });
                }
                Part::Line(line) => self.line(ctx, &line).await,
                Part::Closed { whole } => {
                    if whole {
                        self.show(ctx).await
                    } else {
                        self.grow(ctx).await
                    }
                    self.open = false;
                    if let Some(block) = self.blocks.last_mut() {
                        block.whole = whole;
                        if block.path.is_none() {
                            // Nothing to change: it is part of what the model says.
                            let text = format!("```{}\n{}```\n", block.head.info, block.text);
                            ctx.emit(Event::Text { delta: text }).await;
                        }
                    }
                }
            }
        }
    }

    async fn line(&mut self, ctx: &mut TurnContext, line: &str) {
        let Some(block) = self.blocks.last_mut() else { return };
        block.text.push_str(line);
        if block.path.is_some() {
            return;
        }
        let around = Surroundings { root: &self.root, files: &self.files, task: self.task, request: &self.request };
        if let Some(path) = place::target(&block.head, &block.text, &around) {
            let edit = ctx.next_edit();
            block.path = Some(path.clone());
            block.edit = Some(edit);
            ctx.emit(Event::EditStarted { edit, path }).await;
        }
    }

    /// Sends the diff of the last block, which is whole.
    async fn show(&mut self, ctx: &mut TurnContext) {
        let Some(block) = self.blocks.last() else { return };
        let (Some(path), Some(edit)) = (&block.path, block.edit) else { return };
        if let Some((old, new)) = place::shown(path, &block.head, &block.text, &self.around()) {
            let (diff, lines) = (diff::unified(&old, &new), diff::lines(&old, &new));
            ctx.emit(Event::EditGrew { edit, diff: diff.into(), lines }).await;
        }
    }

    /// Sends the diff of the last block as far as it is known.
    async fn grow(&mut self, ctx: &mut TurnContext) {
        self.grown = Some(Instant::now());
        let Some(block) = self.blocks.last() else { return };
        let (Some(path), Some(edit)) = (&block.path, block.edit) else { return };
        if let Some((old, so_far)) = place::so_far(path, &block.head, &block.text, &self.around()) {
            let (diff, lines) = diff::growing(&old, &so_far);
            ctx.emit(Event::EditGrew { edit, diff: diff.into(), lines }).await;
        }
    }
}
