//! What the partner says while it works. Everything a screen shows and everything `flint exec --json` prints is here.

use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;
use workspace::session::SessionLine;

use crate::intent::Decided;

/// Files named in one line; of more the number is told.
const READ_NAMED: usize = 6;

/// What happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// A turn began.
    TurnStarted {
        /// Its number in the session, from 1.
        turn: u32,
        /// What was asked.
        text: String,
    },
    /// What the message asks for. `Command::Overrule` decides otherwise.
    Intent(Decided),
    /// Files, or parts of them, that the model is shown for this turn.
    FilesRead(Vec<FileRead>),
    /// The request left for the model, this long after the command came in.
    Requested {
        /// Milliseconds.
        after_ms: f64,
    },
    /// The model reads the prompt: tokens done and in all.
    Reading {
        /// Done.
        done: usize,
        /// In all.
        total: usize,
    },
    /// The model wrote prose.
    Text {
        /// What is new.
        delta: String,
    },
    /// The model began to change a file.
    EditStarted {
        /// Number of the edit in the session.
        edit: u64,
        /// The file, relative to the workspace.
        path: PathBuf,
    },
    /// The change so far. Sent at most about 30 times a second, and once when whole.
    EditGrew {
        /// Which edit.
        edit: u64,
        /// Unified diff of what is known, `@@` hunks with three lines of context, without file headers.
        diff: Arc<str>,
        /// Lines added and removed so far.
        lines: (usize, usize),
    },
    /// The file was written.
    EditApplied {
        /// Which edit.
        edit: u64,
        /// The file.
        path: PathBuf,
        /// Lines added and removed.
        lines: (usize, usize),
    },
    /// The change was not made; the file is as it was.
    EditFailed {
        /// Which edit.
        edit: u64,
        /// The file.
        path: PathBuf,
        /// Why, and what to do.
        why: String,
    },
    /// A tool began.
    ToolStarted {
        /// Number of the call in the session.
        call: u64,
        /// The tool.
        tool: String,
        /// One line that says what it does, such as the command.
        title: String,
    },
    /// A tool printed something.
    ToolOutput {
        /// Which call.
        call: u64,
        /// What is new.
        delta: String,
    },
    /// A tool ended.
    ToolEnded {
        /// Which call.
        call: u64,
        /// Exit code of a command.
        exit_code: Option<i32>,
        /// Whether it did what it should.
        ok: bool,
        /// How long it took.
        ms: f64,
    },
    /// The model's plan.
    Plan(Vec<PlanStep>),
    /// A person must decide; answer with `Command::Decide`.
    ApprovalAsked(Approval),
    /// The approval is no longer waited for.
    ApprovalSettled {
        /// Which.
        ask: u64,
    },
    /// The model's server has the steer.
    SteerAccepted {
        /// Milliseconds since the key press.
        after_ms: f64,
    },
    /// The first token after the steer arrived.
    SteerApplied {
        /// Milliseconds since the key press.
        after_ms: f64,
    },
    /// The steer could not be applied; its text is given back.
    SteerFailed {
        /// The text.
        text: String,
        /// Why.
        why: String,
    },
    /// A prompt waits for the running turn to end.
    Queued {
        /// The text.
        text: String,
        /// How many wait now.
        waiting: usize,
    },
    /// The turn is over.
    TurnEnded {
        /// Its number.
        turn: u32,
        /// How.
        outcome: Outcome,
        /// What it cost.
        usage: TurnUsage,
    },
    /// How the candidates stand; sent whenever one changes.
    Candidates {
        /// One row each.
        rows: Vec<CandidateRow>,
        /// The candidate offered, once all are done.
        best: Option<usize>,
    },
    /// Files went back or forth.
    Restored {
        /// `undo`, `redo` or `rewind`.
        what: &'static str,
        /// Files that changed.
        paths: Vec<PathBuf>,
        /// The turn the session stands before now, when the conversation went back too.
        turn: Option<u32>,
    },
    /// Answer to `PreviewRewind`.
    RewindPreview(RewindPreview),
    /// Answer to `Turns`.
    Turns(Vec<TurnLine>),
    /// Answer to `Diff`: unified diff with file headers.
    Diff {
        /// The text; empty when nothing changed.
        text: String,
    },
    /// The conversation was made shorter.
    Compacted {
        /// What was kept, for the person to read.
        kept: String,
        /// Tokens before and after.
        tokens: (usize, usize),
    },
    /// Answer to `Sessions`.
    Sessions(Vec<SessionLine>),
    /// Another session is open now; what was said in it so far, oldest first.
    SessionOpened {
        /// Its id.
        session: String,
        /// Turns so far.
        turns: Vec<PastTurn>,
    },
    /// What was said is forgotten; the session and its files go on.
    Cleared,
    /// How things stand.
    Status(Box<Status>),
    /// Something worth a line, such as a setting that has no effect.
    Notice {
        /// The line.
        text: String,
    },
    /// Something went wrong outside a turn; the partner goes on.
    Trouble {
        /// What happened and what to do.
        text: String,
    },
    /// Last event after `Shutdown`.
    Closed,
}

/// A request for approval.
#[derive(Clone, Debug)]
pub struct Approval {
    /// Its number, to answer with.
    pub ask: u64,
    /// What is to be approved.
    pub what: ApprovalAsk,
    /// Why it is asked.
    pub why: String,
}

/// What is to be approved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalAsk {
    /// Running a command.
    Command {
        /// The command line.
        command: String,
        /// What `Always` would remember.
        prefix: String,
    },
    /// Writing files.
    Edits {
        /// The edits, by number; their diffs were sent.
        edits: Vec<u64>,
        /// The files.
        paths: Vec<PathBuf>,
    },
    /// Whether to change files for a message that can be read either way: yes changes, no answers without changing any.
    Change,
}

/// A file that was read, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileRead {
    /// Relative to the workspace.
    pub path: PathBuf,
    /// First and last line of each part, from 1; empty when it was read whole.
    pub lines: Vec<(usize, usize)>,
}

impl FileRead {
    /// The files that were read, in a line.
    pub fn line(files: &[Self]) -> String {
        let part = |(first, last): &(usize, usize)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        };
        let mut line = String::from("read");
        for (index, file) in files.iter().enumerate() {
            if index == READ_NAMED {
                line += &format!(" and {} more", files.len() - index);
                break;
            }
            let parts: Vec<String> = file.lines.iter().map(part).collect();
            let colon = if parts.is_empty() { "" } else { ":" };
            line += &format!("{} {}{colon}{}", if index == 0 { "" } else { "," }, file.path.display(), parts.join(","));
        }
        line
    }
}

/// A turn of an earlier session, as a screen shows it again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PastTurn {
    /// What was asked.
    pub asked: String,
    /// What was answered, without the code that was written to files.
    pub answered: String,
    /// The files it changed: path, lines added and removed, and the diff where the session has it.
    pub edits: Vec<(PathBuf, (usize, usize), String)>,
}

/// How a turn ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The model finished.
    Done,
    /// The person stopped it.
    Stopped,
    /// No file was changed, and it was asked how to go on. The next message is taken for the answer.
    Asked {
        /// The question, which the conversation has too.
        question: String,
    },
    /// It broke.
    Failed {
        /// What happened and what to do next.
        why: String,
    },
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlanStep {
    /// What.
    pub text: String,
    /// Whether it is done.
    pub done: bool,
}

/// What a turn cost, added up over its requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TurnUsage {
    /// Requests sent.
    pub requests: usize,
    /// Tokens of the prompts.
    pub input_tokens: usize,
    /// Of those, not computed again.
    pub cached_tokens: usize,
    /// Tokens generated.
    pub output_tokens: usize,
    /// Predicted tokens that were right.
    pub accepted_prediction_tokens: usize,
    /// Predicted tokens that were wrong.
    pub rejected_prediction_tokens: usize,
    /// From the command to the first token of the first request.
    pub first_token_ms: Option<f64>,
    /// Tokens per second while decoding, of the last request.
    pub decode_rate: Option<f64>,
    /// The whole turn.
    pub total_ms: f64,
}

/// Where a candidate stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CandidateState {
    /// The model writes it.
    Writing,
    /// It is applied in a scratch copy and checked.
    Checking,
    /// All checks passed.
    Passed,
    /// A check failed: which, and the end of its output.
    Failed {
        /// The check.
        check: String,
        /// The end of what it printed.
        output: String,
    },
    /// The answer could not be applied.
    NotApplied {
        /// Why.
        why: String,
    },
}

/// One candidate of a try.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CandidateRow {
    /// Its number, from 1.
    pub candidate: usize,
    /// Where it stands.
    pub state: CandidateState,
    /// Lines added and removed.
    pub lines: (usize, usize),
    /// Milliseconds spent on it.
    pub ms: u64,
}

/// What a rewind would do.
#[derive(Clone, Debug, Default)]
pub struct RewindPreview {
    /// To the beginning of this turn.
    pub turn: u32,
    /// Files that would change: path, and lines added and removed.
    pub files: Vec<(PathBuf, (usize, usize))>,
    /// Turns that the conversation would lose.
    pub turns_lost: usize,
}

/// One turn, for a list.
#[derive(Clone, Debug, Serialize)]
pub struct TurnLine {
    /// Its number.
    pub turn: u32,
    /// What was asked.
    pub text: String,
    /// Files it changed.
    pub files: usize,
    /// Unix seconds.
    pub at: u64,
}

/// How things stand: what really serves, how fast, and what is allowed.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Status {
    /// The session's id.
    pub session: String,
    /// The model asked for.
    pub model: String,
    /// What the server says it served, when it says so.
    pub served_model: Option<String>,
    /// Identity of the weights.
    pub weights: Option<String>,
    /// Such as `Q4_K_M`.
    pub quantisation: Option<String>,
    /// Where requests go.
    pub provider: String,
    /// `websocket` or `sse`, once known.
    pub transport: Option<String>,
    /// The server's lane that served the last request, such as `priority`, when it says so.
    pub lane: Option<String>,
    /// `pair` or `agent`.
    pub style: &'static str,
    /// The profile in use.
    pub profile: Option<String>,
    /// Sandbox mode, and how it is enforced here.
    pub sandbox: String,
    /// Approval policy.
    pub approvals: String,
    /// Tokens the context may hold.
    pub context: usize,
    /// Tokens in it.
    pub context_used: usize,
    /// The last turn.
    pub last: TurnUsage,
    /// Instruction files read.
    pub instructions: Vec<PathBuf>,
    /// Files that stay before the model.
    pub pinned: Vec<PathBuf>,
}
