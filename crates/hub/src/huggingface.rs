//! The source that fetches one file of a Hugging Face repository, through the hf-hub crate.
//!
//! What the hub says of a large file includes its sha256, so a file that is not the one in the catalogue is refused
//! before a byte of it is fetched, and a model whose digest the catalogue does not know is compared with the hub's own
//! word. hf-hub resumes a partial file by itself and sets no time limit, so it runs on a thread of its own and is given
//! up when it falls silent; its own file lock keeps an abandoned thread from disturbing a later attempt.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use hf_hub::api::sync::{Api, ApiBuilder};
use hf_hub::{Cache, Repo, RepoType};

use crate::catalogue::is_sha256;
use crate::error::{Error, SourceError};
use crate::progress::Event;
use crate::pull::{Fetched, Job};
use crate::verify;

/// Longest silence before the hub is given up.
const STALL_LIMIT: Duration = Duration::from_secs(60);
const RETRIES_MAX: usize = 5;
/// Messages from the download that may wait to be shown.
const QUEUE_MAX: usize = 16;
/// Bytes between two messages.
const REPORT_BYTES: u64 = 1 << 20;

enum Message {
    /// What the hub says of the file.
    Described {
        bytes: u64,
        sha256: String,
    },
    /// Bytes on disk so far.
    Bytes(u64),
    /// All of it is in this file.
    Done(PathBuf),
    Failed(String),
}

/// The file asked for.
struct Request {
    api: Api,
    cache: Cache,
    repo: Repo,
    file: String,
}

/// Fetches the file and compares it with the catalogue or, where that is silent, with the hub's own digest.
pub(crate) fn fetch(job: &mut Job<'_>, repo: &str, file: &str, revision: &str) -> Result<Fetched, SourceError> {
    let request = Request::new(job, repo, file, revision)?;
    let (sender, messages) = mpsc::sync_channel(QUEUE_MAX);
    let (go, may_go) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let end = match request.run(&sender, &may_go) {
            Ok(Some(path)) => Message::Done(path),
            Ok(None) => return,
            Err(reason) => Message::Failed(reason),
        };
        // Nobody listens any more when the wait was given up.
        let _ = sender.send(end);
    });

    let Message::Described { bytes, sha256 } = next(&messages)? else {
        return Err(SourceError::Hub("the hub did not describe the file".to_owned()));
    };
    job.compare(bytes, &sha256)?;
    let kept = crate::disk::bytes_below(job.staging).min(bytes);
    job.progress.event(Event::Source { source: job.source, resumed: kept });
    job.require_disk(bytes - kept)?;
    // The thread has not ended: it waits for this.
    let _ = go.send(());

    let path = loop {
        match next(&messages)? {
            Message::Bytes(done) => job.progress.event(Event::Bytes { done: done.min(bytes), total: Some(bytes) }),
            Message::Done(path) => break path,
            Message::Described { .. } | Message::Failed(_) => {
                unreachable!("sent once, and turned into an error")
            }
        }
    };
    job.progress.event(Event::Verifying);
    let found = verify::sha256_of(&path)?;
    if found != sha256 {
        return Err(SourceError::Mismatch { what: "sha256", got: found, expected: sha256 });
    }
    Ok(Fetched { path, sha256 })
}

fn next(messages: &Receiver<Message>) -> Result<Message, SourceError> {
    match messages.recv_timeout(STALL_LIMIT) {
        Ok(Message::Failed(reason)) => Err(SourceError::Hub(reason)),
        Ok(message) => Ok(message),
        Err(RecvTimeoutError::Timeout) => Err(SourceError::Stalled { seconds: STALL_LIMIT.as_secs() }),
        Err(RecvTimeoutError::Disconnected) => Err(SourceError::Hub("the download ended unexpectedly".to_owned())),
    }
}

impl Request {
    fn new(job: &Job<'_>, repo: &str, file: &str, revision: &str) -> Result<Request, SourceError> {
        let mut builder = ApiBuilder::from_env()
            .with_cache_dir(job.staging.to_owned())
            .with_progress(false)
            .with_retries(RETRIES_MAX)
            .with_user_agent("flint", env!("CARGO_PKG_VERSION"));
        if let Some(endpoint) = &job.options.huggingface_endpoint {
            builder = builder.with_endpoint(endpoint.clone());
        }
        if let Ok(token) = std::env::var("HF_TOKEN") {
            builder = builder.with_token(Some(token));
        }
        Ok(Request {
            api: builder.build().map_err(|error| SourceError::Hub(error.to_string()))?,
            cache: Cache::new(job.staging.to_owned()),
            repo: Repo::with_revision(repo.to_owned(), RepoType::Model, revision.to_owned()),
            file: file.to_owned(),
        })
    }

    /// The whole exchange, on the download's own thread. `None` when nobody wants the file after all.
    fn run(&self, sender: &SyncSender<Message>, may_go: &Receiver<()>) -> Result<Option<PathBuf>, String> {
        let repo = self.api.repo(self.repo.clone());
        let described = self.api.metadata(&repo.url(&self.file)).map_err(|error| error.to_string())?;
        // The tag also becomes the name of a file, so nothing else is let through.
        let sha256 = described.etag().to_owned();
        if !is_sha256(&sha256) {
            return Err(format!("the hub gives no sha256 for {}, so it could not be checked", self.file));
        }
        let bytes = described.size() as u64;
        if sender.send(Message::Described { bytes, sha256: sha256.clone() }).is_err() || may_go.recv().is_err() {
            return Ok(None);
        }
        let blob = self.cache.repo(self.repo.clone()).blob_path(&sha256);
        if let Some(whole) = finished(&blob, bytes).map_err(|error| error.to_string())? {
            return Ok(Some(whole));
        }
        let progress = Reporter { sender: sender.clone(), done: 0, reported: 0 };
        repo.download_with_progress(&self.file, progress).map_err(|error| error.to_string())?;
        Ok(Some(blob))
    }
}

/// The bytes of an earlier attempt, if they are all there. Killed between its last byte and its rename, hf-hub would ask
/// for the bytes after the last one, and be refused for ever.
fn finished(blob: &Path, bytes: u64) -> Result<Option<PathBuf>, Error> {
    for path in [blob.to_owned(), blob.with_extension("part")] {
        match std::fs::metadata(&path) {
            Ok(meta) if meta.len() == bytes => return Ok(Some(path)),
            Ok(meta) if meta.len() > bytes => crate::disk::remove(&path)?,
            _ => {}
        }
    }
    Ok(None)
}

/// Passes the bytes on, thinned out.
struct Reporter {
    sender: SyncSender<Message>,
    done: u64,
    reported: u64,
}

impl hf_hub::api::Progress for Reporter {
    fn init(&mut self, _: usize, _: &str) {
        (self.done, self.reported) = (0, 0);
    }

    fn update(&mut self, bytes: usize) {
        self.done += bytes as u64;
        if self.done - self.reported >= REPORT_BYTES {
            self.reported = self.done;
            let _ = self.sender.send(Message::Bytes(self.done));
        }
    }

    fn finish(&mut self) {}
}
