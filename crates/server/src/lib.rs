//! `flint serve`: routes, streams, sessions and pools over the engine.
