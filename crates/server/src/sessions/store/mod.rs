//! Stored responses that survive a restart: one SQLite file, written before a client hears that its response exists.
//!
//! A record holds the input of its own turn only; the turns before it are its ancestors, found through `parent`. What
//! holds at every moment, and what the schema enforces:
//!
//! - a record's parent is in the file: a chain is never broken in the middle, nor longer than [`CHAIN_MAX`];
//! - a deleted record with children stays as a tombstone, out of reach of [`Store::get`] but part of their chains; the
//!   last child takes it along;
//! - the sum of contents is at most `bytes_max` and their number at most `records_max`, tombstones included.
//!
//! Every call blocks (about 100 us to write and 10 us to read 8 KB): the server makes them on blocking threads.

mod evict;
mod schema;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crate::lock::lock;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

pub use schema::Notice;

/// Responses in one chain, the answer to more being [`StoreError::ChainTooLong`].
pub const CHAIN_MAX: usize = 10_000;

/// One response with what it answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// `resp_...`
    pub id: String,
    /// The response this one continues.
    pub parent: Option<String>,
    /// The model that was asked, by the name the client used.
    pub model: String,
    /// Names the weights, so that `tokens` are never read by another tokenizer.
    pub fingerprint: u64,
    /// Seconds since 1970.
    pub created: u64,
    /// The input of this turn: a JSON array of items.
    pub input: String,
    /// The response object as JSON.
    pub response: String,
    /// What the model generated.
    pub tokens: Vec<u32>,
    /// Whose it is; nobody else finds it.
    pub owner: u64,
}

/// Where records are kept and how much of them.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The file; `None` keeps everything in memory, gone at exit.
    pub path: Option<PathBuf>,
    /// Records kept. More make the conversations idle for longest go, last turn first.
    pub records_max: usize,
    /// Bytes of content kept. The same answer; a single conversation above it is refused.
    pub bytes_max: u64,
    /// Records older than this are deleted by [`Store::sweep`].
    pub age_max: Duration,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self { path: None, records_max: 50_000, bytes_max: 512 << 20, age_max: Duration::from_secs(30 * 24 * 60 * 60) }
    }
}

/// What the store holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records that [`Store::get`] finds.
    pub records: u64,
    /// Deleted records kept for the chains of their children.
    pub tombstones: u64,
    /// Bytes of content of both.
    pub bytes: u64,
}

/// Why the store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A record of this id exists.
    #[error("response {0} is stored already")]
    Exists(String),
    /// The parent is not in the store, so the chain would be broken.
    #[error("response {id} continues {parent}, which is not stored; store it with the whole input and no parent")]
    NoParent {
        /// The record refused.
        id: String,
        /// What it continues.
        parent: String,
    },
    /// No record of this id to update.
    #[error("response {0} is not stored")]
    Missing(String),
    /// The conversation has as many turns as a chain may have.
    #[error(
        "the conversation of {0} has {CHAIN_MAX} stored responses, which is the limit; compact it, or begin a new one"
    )]
    ChainTooLong(String),
    /// The record and its ancestors alone exceed the limits of the store.
    #[error(
        "the conversation of {id} does not fit the store ({bytes_max} bytes and {records_max} responses at most); \
         raise the limits or send `store: false`"
    )]
    TooLarge {
        /// The record refused.
        id: String,
        /// The limit on bytes.
        bytes_max: u64,
        /// The limit on records.
        records_max: usize,
    },
    /// A newer Flint wrote the file.
    #[error("{path} was written by a newer version (format {found}, this one knows {known}); update, or move it away")]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The newest format known.
        known: i64,
    },
    /// The file system said no.
    #[error("cannot use {path} as the response store")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// SQLite said no.
    #[error("the response store: {0}")]
    Sqlite(#[from] rusqlite::Error),
}

/// The stored responses. One connection behind a lock: a write takes about 100 us and there are two per turn.
pub struct Store {
    connection: Mutex<Connection>,
    options: StoreOptions,
    notice: Option<Notice>,
}

impl Store {
    /// Opens or creates the file and checks it whole (about a second per GiB). A damaged one is moved aside and a fresh
    /// one started; [`Store::notice`] then says so.
    pub fn open(options: StoreOptions) -> Result<Self, StoreError> {
        let (connection, notice) = schema::open(options.path.as_deref())?;
        Ok(Self { connection: Mutex::new(connection), options, notice })
    }

    /// What happened while opening that a person should hear of.
    pub fn notice(&self) -> Option<&Notice> {
        self.notice.as_ref()
    }

    /// Keeps a record. When this returns, it survives a crash of the process; a loss of power may take the last turns.
    pub fn put(&self, record: &Record) -> Result<(), StoreError> {
        self.write(|transaction, options| {
            let depth = match &record.parent {
                None => 0,
                Some(parent) => depth_of(transaction, parent)?
                    .ok_or_else(|| StoreError::NoParent { id: record.id.clone(), parent: parent.clone() })?
                    .saturating_add(1),
            };
            if depth >= CHAIN_MAX as i64 {
                return Err(StoreError::ChainTooLong(record.id.clone()));
            }
            if depth_of(transaction, &record.id)?.is_some() {
                return Err(StoreError::Exists(record.id.clone()));
            }
            insert(transaction, record, depth)?;
            evict::keep_within(transaction, options, &record.id)
        })
    }

    /// The owner's record of that id, unless it was deleted.
    pub fn get(&self, owner: u64, id: &str) -> Result<Option<Record>, StoreError> {
        let connection = self.lock();
        let mut statement = connection.prepare_cached(SELECT_VISIBLE)?;
        Ok(statement.query_row(params![id, owner.cast_signed()], read).optional()?)
    }

    /// The record and all it continues, the first turn first; deleted ancestors too. `None` when `get` has none.
    pub fn chain(&self, owner: u64, id: &str) -> Result<Option<Vec<Record>>, StoreError> {
        let mut connection = self.lock();
        // One read transaction: nothing of the chain can go between two steps.
        let transaction = connection.transaction()?;
        let Some(last) =
            transaction.prepare_cached(SELECT_VISIBLE)?.query_row(params![id, owner.cast_signed()], read).optional()?
        else {
            return Ok(None);
        };
        let mut chain = vec![last];
        while let Some(parent) = chain.last().and_then(|record| record.parent.clone()) {
            chain.push(transaction.prepare_cached(SELECT)?.query_row([parent], read)?);
        }
        chain.reverse();
        Ok(Some(chain))
    }

    /// Replaces what a response came to, for one that was stored while it ran. A tombstone is updated too: its children
    /// read it.
    pub fn update_response(&self, id: &str, response: &str, tokens: &[u32]) -> Result<(), StoreError> {
        self.write(|transaction, options| {
            let tokens = to_bytes(tokens);
            let changed = transaction.prepare_cached(UPDATE)?.execute(params![
                id,
                response,
                tokens,
                (response.len() + tokens.len()) as i64
            ])?;
            if changed == 0 {
                return Err(StoreError::Missing(id.to_owned()));
            }
            evict::keep_within(transaction, options, id)
        })
    }

    /// Makes an owner's record disappear; `false` when there was none. Its content stays while stored responses continue
    /// it.
    pub fn delete(&self, owner: u64, id: &str) -> Result<bool, StoreError> {
        self.write(|transaction, _| {
            let hidden = transaction.prepare_cached(HIDE)?.execute(params![id, owner.cast_signed()])?;
            if hidden > 0 {
                evict::remove_tombstones_from(transaction, id)?;
            }
            Ok(hidden > 0)
        })
    }

    /// Deletes what is too old at `now` (seconds since 1970) or above the limits. Gives how many records disappeared.
    pub fn sweep(&self, now: u64) -> Result<usize, StoreError> {
        self.write(|transaction, options| evict::sweep(transaction, options, now))
    }

    /// How much there is.
    pub fn counts(&self) -> Result<Counts, StoreError> {
        evict::counts(&self.lock())
    }

    /// All of `work` or nothing of it.
    fn write<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>, &StoreOptions) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut connection = self.lock();
        let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        let result = work(&transaction, &self.options)?;
        transaction.commit()?;
        Ok(result)
    }

    /// A panic under the lock leaves a rolled-back transaction, so what it guards is still good.
    fn lock(&self) -> MutexGuard<'_, Connection> {
        lock(&self.connection)
    }
}

const SELECT: &str =
    "SELECT id, parent, model, fingerprint, created, input, response, tokens, owner FROM responses WHERE id = ?1";
// By the index that has both, so that a record of another owner is not touched: it takes as long as one that never was.
const SELECT_VISIBLE: &str = "SELECT id, parent, model, fingerprint, created, input, response, tokens, owner \
    FROM responses INDEXED BY responses_owner WHERE id = ?1 AND owner = ?2 AND deleted = 0";
const HIDE: &str = "UPDATE responses INDEXED BY responses_owner SET deleted = 1 \
    WHERE id = ?1 AND owner = ?2 AND deleted = 0";
const INSERT: &str = "INSERT INTO responses \
    (id, parent, depth, model, fingerprint, created, input, response, tokens, bytes, owner) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
const UPDATE: &str = "UPDATE responses SET response = ?2, tokens = ?3, \
    bytes = bytes - octet_length(response) - octet_length(tokens) + ?4 WHERE id = ?1";

fn depth_of(transaction: &Transaction<'_>, id: &str) -> Result<Option<i64>, rusqlite::Error> {
    let mut statement = transaction.prepare_cached("SELECT depth FROM responses WHERE id = ?1")?;
    statement.query_row([id], |row| row.get(0)).optional()
}

fn insert(transaction: &Transaction<'_>, record: &Record, depth: i64) -> Result<(), rusqlite::Error> {
    let tokens = to_bytes(&record.tokens);
    let Record { id, parent, model, fingerprint, created, input, response, .. } = record;
    let bytes = id.len() + model.len() + input.len() + response.len() + tokens.len();
    // SQLite has no unsigned integers: the fingerprint keeps its bits, a time past the year 292 billion is cut.
    let (fingerprint, created) = (fingerprint.cast_signed(), i64::try_from(*created).unwrap_or(i64::MAX));
    transaction.prepare_cached(INSERT)?.execute(params![
        id,
        parent,
        depth,
        model,
        fingerprint,
        created,
        input,
        response,
        tokens,
        bytes as i64,
        record.owner.cast_signed()
    ])?;
    Ok(())
}

fn read(row: &Row<'_>) -> Result<Record, rusqlite::Error> {
    Ok(Record {
        id: row.get(0)?,
        parent: row.get(1)?,
        model: row.get(2)?,
        fingerprint: row.get::<_, i64>(3)?.cast_unsigned(),
        created: row.get::<_, i64>(4)?.cast_unsigned(),
        input: row.get(5)?,
        response: row.get(6)?,
        tokens: from_bytes(row.get_ref(7)?.as_blob()?),
        owner: row.get::<_, i64>(8)?.cast_unsigned(),
    })
}

fn to_bytes(tokens: &[u32]) -> Vec<u8> {
    tokens.iter().flat_map(|token| token.to_le_bytes()).collect()
}

fn from_bytes(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks().0.iter().map(|chunk| u32::from_le_bytes(*chunk)).collect()
}
