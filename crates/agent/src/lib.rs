//! The coding partner without a screen: it turns what a person asks into edits of their files.
//!
//! [`Command`] goes in, [`Event`] comes out; the terminal, `flint exec` and editors are all drawn from the same events.
//! Below it stands `client`, so any Responses or Chat provider can be the model; above it stand `tui` and `cli`. It knows
//! tasks, files, checkpoints and permission, and nothing of terminals.

pub mod checkpoint;
pub mod diff;
pub mod edit;
pub mod outline;
pub mod session;

mod command;
mod event;

pub use command::{Command, Decision, Prompt, RewindWhat, Style};
pub use event::{
    Approval, ApprovalAsk, CandidateRow, CandidateState, Event, Outcome, PlanStep, RewindPreview, SessionLine, Status,
    TurnLine, TurnUsage,
};
