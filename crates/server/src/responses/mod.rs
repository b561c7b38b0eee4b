//! The Responses API: one state machine ([`run`]), carried by HTTP, server-sent events ([`routes`]) or a WebSocket
//! ([`socket`]).

pub mod compact;
pub mod count;
mod emit;
mod input_tools;
mod lanes;
mod live;
mod prepare;
pub mod routes;
mod run;
mod settings;
pub mod socket;
mod steer;
mod turn;
mod watched;

pub use input_tools::read_input_tools;
pub use live::Live;
pub use turn::{Turn, Turns};
