//! The Responses API: one state machine ([`run`]), carried by HTTP, server-sent events ([`routes`]) or a WebSocket
//! ([`socket`]).

mod carried;
pub mod compact;
pub mod count;
mod emit;
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

pub use carried::read_carried;
pub use live::Live;
pub use turn::{Turn, Turns};
