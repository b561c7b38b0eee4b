//! The file itself: opening, its format, and what happens to a damaged one.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode};

use super::StoreError;

/// Something a person should hear of, though the store works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The file was damaged; it lies elsewhere now and a fresh one is in use.
    MovedAside {
        /// Where the damaged file is.
        to: PathBuf,
        /// What was wrong with it.
        reason: String,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Notice::MovedAside { to, reason } = self;
        write!(f, "the response store was damaged ({reason}); it was moved to {} and a new one started", to.display())
    }
}

/// One step per format version, applied in order; `user_version` counts those done. Never edit one that was released.
const MIGRATIONS: &[&str] = &[
    "
CREATE TABLE responses (
    id          TEXT PRIMARY KEY,
    parent      TEXT REFERENCES responses (id),
    depth       INTEGER NOT NULL,
    model       TEXT NOT NULL,
    fingerprint INTEGER NOT NULL,
    created     INTEGER NOT NULL,
    input       TEXT NOT NULL,
    response    TEXT NOT NULL,
    tokens      BLOB NOT NULL,
    bytes       INTEGER NOT NULL,
    deleted     INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX responses_parent ON responses (parent);
CREATE INDEX responses_created ON responses (created) WHERE deleted = 0;
CREATE INDEX responses_deleted ON responses (id) WHERE deleted = 1;

-- Counting rows reads them all, so the sums are kept as they change.
CREATE TABLE totals (
    one        INTEGER PRIMARY KEY CHECK (one = 1),
    records    INTEGER NOT NULL,
    tombstones INTEGER NOT NULL,
    bytes      INTEGER NOT NULL
) STRICT;
INSERT INTO totals VALUES (1, 0, 0, 0);
CREATE TRIGGER added AFTER INSERT ON responses BEGIN
    UPDATE totals SET records = records + 1 - new.deleted, tombstones = tombstones + new.deleted,
        bytes = bytes + new.bytes;
END;
CREATE TRIGGER removed AFTER DELETE ON responses BEGIN
    UPDATE totals SET records = records - 1 + old.deleted, tombstones = tombstones - old.deleted,
        bytes = bytes - old.bytes;
END;
CREATE TRIGGER changed AFTER UPDATE OF bytes, deleted ON responses BEGIN
    UPDATE totals SET records = records + old.deleted - new.deleted,
        tombstones = tombstones - old.deleted + new.deleted, bytes = bytes - old.bytes + new.bytes;
END;
",
    "
ALTER TABLE responses ADD COLUMN owner INTEGER NOT NULL DEFAULT 0;
CREATE UNIQUE INDEX responses_owner ON responses (owner, id);
",
];

/// How long a write waits for another process that has the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Opens the file, or memory, at the newest format.
pub(super) fn open(path: Option<&Path>) -> Result<(Connection, Option<Notice>), StoreError> {
    let Some(path) = path else {
        let mut connection = Connection::open_in_memory()?;
        prepare(&mut connection, Path::new(":memory:"))?;
        return Ok((connection, None));
    };
    make_private(path).map_err(|source| StoreError::Io { path: path.to_owned(), source })?;
    match open_file(path) {
        Err(StoreError::Sqlite(error)) if is_damage(&error) => {
            let to = move_aside(path).map_err(|source| StoreError::Io { path: path.to_owned(), source })?;
            make_private(path).map_err(|source| StoreError::Io { path: path.to_owned(), source })?;
            Ok((open_file(path)?, Some(Notice::MovedAside { to, reason: error.to_string() })))
        }
        other => Ok((other?, None)),
    }
}

fn open_file(path: &Path) -> Result<Connection, StoreError> {
    let mut connection = Connection::open(path)?;
    prepare(&mut connection, path)?;
    Ok(connection)
}

fn prepare(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // A crash of the process loses nothing; a loss of power may lose the last turns but damages nothing.
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "journal_size_limit", 16 << 20)?;
    check(connection)?;
    migrate(connection, path)
}

/// Reads every page once. Without this a damaged page would be found by whoever asks for the response on it.
fn check(connection: &Connection) -> Result<(), StoreError> {
    let verdict: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if verdict == "ok" {
        return Ok(());
    }
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
    Err(rusqlite::Error::SqliteFailure(code, Some(verdict)).into())
}

fn migrate(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let known = MIGRATIONS.len() as i64;
    // Immediate: of two processes that start at once, one migrates and the other finds it done.
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let found: i64 = transaction.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if found > known {
        return Err(StoreError::Newer { path: path.to_owned(), found, known });
    }
    for step in MIGRATIONS.iter().skip(usize::try_from(found).unwrap_or(0)) {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "user_version", known)?;
    Ok(transaction.commit()?)
}

fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

/// Conversations are nobody else's to read. SQLite gives its other files the mode of this one.
fn make_private(path: &Path) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.create(true).append(true);
    let mut folder = std::fs::DirBuilder::new();
    folder.recursive(true);
    #[cfg(unix)]
    {
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        std::os::unix::fs::DirBuilderExt::mode(&mut folder, 0o700);
    }
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        folder.create(parent)?;
    }
    options.open(path).map(drop)
}

/// Renames the file and its log to the first free `name.damaged-N`.
fn move_aside(path: &Path) -> std::io::Result<PathBuf> {
    let with = |path: &Path, suffix: &str| {
        let mut name = OsString::from(path);
        name.push(suffix);
        PathBuf::from(name)
    };
    let mut to = with(path, ".damaged-1");
    for number in 2.. {
        if !to.try_exists()? {
            break;
        }
        to = with(path, &format!(".damaged-{number}"));
    }
    std::fs::rename(path, &to)?;
    for suffix in ["-wal", "-shm"] {
        match std::fs::rename(with(path, suffix), with(&to, suffix)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(to)
}
