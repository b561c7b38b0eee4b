//! Crashes in the middle of a change, and work of others that undo must not take.

mod kills;
mod merged;
mod others;
mod world;
