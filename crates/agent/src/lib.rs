//! The coding partner without a screen: it turns what a person asks into edits of their files.
//!
//! [`Command`] goes in, [`Event`] comes out; the terminal, `flint exec` and editors are all drawn from the same events.
//! Below it stands `client`, so any Responses or Chat provider can be the model; above it stand `tui` and `cli`. It knows
//! tasks, files, checkpoints and permission, and nothing of terminals.
#![cfg_attr(not(test), deny(clippy::disallowed_macros, clippy::disallowed_methods))]
#![cfg_attr(test, allow(clippy::disallowed_macros, clippy::disallowed_methods))]

pub mod approval;
mod back;
pub mod candidates;
pub mod check;
mod command;
pub mod commit;
mod compact;
pub mod config;
pub mod context;
pub mod conversation;
mod event;
pub mod facts;
pub mod failing;
pub mod history;
mod idle_commands;
mod init;
pub mod instructions;
pub mod intent;
pub mod local;
mod models;
pub mod names;
pub mod pair;
mod partner;
mod pinned;
pub mod shared_index;
mod shell;
pub mod tool_loop;
pub mod tools;
pub mod trust;
pub mod turn;
pub mod turn_context;

pub use command::{Command, Decision, Prompt, RewindWhat, Style};
pub use event::{
    Approval, ApprovalAsk, CandidateRow, CandidateState, Event, FileRead, Outcome, PastTurn, PlanStep, RewindPreview,
    Status, TurnLine, TurnUsage,
};
pub use failing::Failing;
pub use intent::{Decided, Intent};
pub use models::KnownModel;
pub use partner::{Partner, PartnerOptions};
pub use shell::TOOL as OWN_COMMAND;
pub use workspace::session::SessionLine;
