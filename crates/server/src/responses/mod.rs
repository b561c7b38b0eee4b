//! The Responses API: one state machine ([`run`]), carried by HTTP, server-sent events ([`routes`]) or a WebSocket
//! ([`socket`]).

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
mod watched;

pub use live::Live;
