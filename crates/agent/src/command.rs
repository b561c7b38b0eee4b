//! What a person can tell the partner. One closed list, so that a screen, a script and a test say the same things.

use crate::failing::Failing;
use crate::intent::Intent;

/// What the user wrote, and what it refers to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompt {
    /// The words, in which `@path` mentions a file.
    pub text: String,
    /// A part of a file the user pointed at: path, first and last line (from 1).
    pub selection: Option<(std::path::PathBuf, usize, usize)>,
    /// The check that is to succeed and does not yet.
    pub failing: Option<Failing>,
    /// What it asks for, where the person said so; else it is decided.
    pub intent: Option<Intent>,
    /// Files that the model keeps before it, beside those that the words mention. The partner fills this in.
    pub pinned: Vec<std::path::PathBuf>,
}

impl From<&str> for Prompt {
    fn from(text: &str) -> Self {
        Self { text: text.to_owned(), ..Self::default() }
    }
}

/// How the partner works with a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Style {
    /// The model answers with text and whole functions or files; nothing is run unless asked.
    #[default]
    Pair,
    /// The model works through tools until it is done.
    Agent,
}

/// An answer to a request for approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// This once.
    Yes,
    /// And whatever begins alike, for the rest of the session.
    Always,
    /// Not this; the model is told and goes on.
    No,
    /// Not this, and the turn ends.
    Stop,
}

/// What a rewind brings back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RewindWhat {
    /// The files.
    Files,
    /// The conversation.
    Conversation,
    /// Both.
    Both,
}

/// What a person can tell the partner.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Begins a turn. While one runs it is queued.
    Ask(Prompt),
    /// The answer to the last [`Command::Ask`] did not pass its check. In the pair style it is taken back, files and
    /// words, and another one is given; in the agent style the model hears what fails and goes on.
    Repair {
        /// The task, as it was asked.
        prompt: Prompt,
        /// What the check says now.
        failing: Option<Failing>,
    },
    /// Redirects the running turn now; begins one when none runs.
    Steer(Prompt),
    /// Asks after the running turn.
    Queue(Prompt),
    /// Ends the running turn and keeps what there is.
    Stop,
    /// Answers [`Event::ApprovalAsked`].
    Decide {
        /// Which.
        ask: u64,
        /// What.
        decision: Decision,
    },
    /// Only decides what a message asks for, and says so by [`Event::Intent`].
    DecideIntent(Prompt),
    /// The last message was taken for something else than it is: its turn ends, what it wrote is taken back, and the same
    /// words are worked on again as a change, or as a question when they were taken for a change.
    Overrule,
    /// Makes `count` candidates, checks each and offers the smallest that passes.
    Try {
        /// How many.
        count: usize,
        /// A shell command that must succeed.
        check: Option<String>,
        /// The task.
        prompt: Prompt,
    },
    /// Applies a candidate of the last try.
    Choose {
        /// Its number, from 1.
        candidate: usize,
    },
    /// Takes back the files of the last turn that changed any. Who changed one of them since is asked about.
    Undo {
        /// Do not ask.
        force: bool,
    },
    /// Takes back the last undo.
    Redo {
        /// Do not ask.
        force: bool,
    },
    /// Says what a rewind to the beginning of a turn would change.
    PreviewRewind {
        /// The turn.
        turn: u32,
    },
    /// Goes back to the beginning of a turn.
    Rewind {
        /// The turn.
        turn: u32,
        /// What to bring back.
        what: RewindWhat,
    },
    /// Lists the turns of this session.
    Turns,
    /// Shows what this session changed.
    Diff,
    /// Says where in the workspace something is, by [`Event::Notice`].
    Where {
        /// What is looked for.
        question: String,
    },
    /// Makes the conversation shorter.
    Compact,
    /// Forgets what was said. The session, its turns and the way back stay.
    Clear,
    /// Keeps a file before the model from the next turn on.
    Add {
        /// Its path; empty lists the files that are kept.
        path: String,
    },
    /// Keeps it no longer.
    Drop {
        /// Its path; empty means all of them.
        path: String,
    },
    /// Runs a command line of the person in the sandbox; what it prints becomes part of the conversation.
    Shell {
        /// The line.
        line: String,
    },
    /// Commits what Flint changed and has not committed yet.
    Commit {
        /// Its message; an empty one is made from what was asked.
        message: String,
    },
    /// Writes AGENTS.md with the commands of the project, unless there is one.
    Init,
    /// Begins an empty session.
    New,
    /// Goes on with an earlier session.
    Resume {
        /// Its id, or a unique beginning of it.
        session: String,
    },
    /// Goes on with a copy of this session.
    Fork,
    /// Lists sessions that contain these words; all when empty.
    Sessions {
        /// What to look for.
        query: String,
    },
    /// Uses another model from the next turn on.
    Model {
        /// Its name; empty lists what there is.
        name: String,
    },
    /// Uses another profile of the configuration.
    Profile {
        /// Its name; empty lists what there is.
        name: String,
    },
    /// Changes `approval_policy`.
    Approvals {
        /// `untrusted`, `on-request`, `on-failure` or `never`; empty says which is in force.
        policy: String,
    },
    /// Changes the working style.
    SetStyle(Style),
    /// Switches the profile `fast` on or off.
    Fast,
    /// Asks for [`Event::Status`].
    Status,
    /// Ends the partner after writing what is open.
    Shutdown,
}
