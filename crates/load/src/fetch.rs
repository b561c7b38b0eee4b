//! A model's file by its name, fetched when it is not here: the door for commands that do not care which of the two.

mod progress;

use std::path::PathBuf;

use hub::{Entry, Error, PullOptions, Store};

use progress::Shown;

/// The checked file of a model, fetched first if it is not here. A damaged file is an error and not a reason to spend
/// the user's connection: the error says how to repair it.
pub fn ensure(name_or_path: &str, offline: bool) -> anyhow::Result<PathBuf> {
    ensure_for(name_or_path, offline, &[])
}

/// The same, where the folder worked in is not the one this process is in: nothing in `workspace` takes part either.
pub fn ensure_for(name_or_path: &str, offline: bool, workspace: &[PathBuf]) -> anyhow::Result<PathBuf> {
    let store = Store::open()?;
    match store.resolve(name_or_path) {
        Ok(resolved) => Ok(resolved.path),
        Err(Error::NotInstalled { name }) => pull(&store, &store.find(&name)?, offline, workspace),
        Err(other) => Err(other.into()),
    }
}

/// The name of the model used when none is asked for.
pub fn default_name() -> anyhow::Result<String> {
    Ok(Store::open()?.catalogue().default_name().to_owned())
}

/// Fetches a model, showing how far it is. Nothing in `workspace` takes part.
pub fn pull(store: &Store, entry: &Entry, offline: bool, workspace: &[PathBuf]) -> anyhow::Result<PathBuf> {
    let mut options = PullOptions { offline, ..PullOptions::from_env() };
    options.never.extend_from_slice(workspace);
    let mut shown = Shown::new(&entry.name);
    let result = store.pull(entry, &options, &mut shown);
    shown.finish();
    Ok(result?)
}
