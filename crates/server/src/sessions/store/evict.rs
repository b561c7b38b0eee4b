//! What leaves the store: tombstones nobody needs, what is too old, and whole conversations when it is full.
//!
//! Only a record without children can leave, so a full store takes the conversation idle for longest and peels it from
//! its last turn. Taking first turns instead would break the chains of later ones.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::{Counts, StoreError, StoreOptions};

/// Removes `id` if it is a tombstone without children, then its parent if that now is one, and so on up.
pub(super) fn remove_tombstones_from(transaction: &Transaction<'_>, id: &str) -> Result<(), rusqlite::Error> {
    let mut next = Some(id.to_owned());
    while let Some(id) = next {
        let gone = transaction
            .prepare_cached(
                "DELETE FROM responses WHERE id = ?1 AND deleted = 1 \
                 AND NOT EXISTS (SELECT 1 FROM responses AS child WHERE child.parent = ?1) RETURNING parent",
            )?
            .query_row([&id], |row| row.get::<_, Option<String>>(0))
            .optional()?;
        next = gone.flatten();
    }
    Ok(())
}

/// Hides what is older than allowed, removes what that leaves without a reader, and brings a store whose limits were
/// lowered within them. Gives how many records disappeared.
pub(super) fn sweep(transaction: &Transaction<'_>, options: &StoreOptions, now: u64) -> Result<usize, StoreError> {
    let before = counts(transaction)?;
    let oldest = i64::try_from(now.saturating_sub(options.age_max.as_secs())).unwrap_or(i64::MAX);
    transaction.execute("UPDATE responses SET deleted = 1 WHERE deleted = 0 AND created < ?1", [oldest])?;
    let leaves: Vec<String> = transaction
        .prepare_cached(
            "SELECT id FROM responses WHERE deleted = 1 \
             AND NOT EXISTS (SELECT 1 FROM responses AS child WHERE child.parent = responses.id)",
        )?
        .query_map([], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    for leaf in leaves {
        remove_tombstones_from(transaction, &leaf)?;
    }
    keep_within(transaction, options, "")?;
    Ok(usize::try_from(before.records - counts(transaction)?.records).unwrap_or(usize::MAX))
}

/// Makes room after `newest` was written. Goes a tenth below the limits, so that the next writes need not come here;
/// never takes `newest` or what it continues. An empty `newest` protects nothing.
pub(super) fn keep_within(
    transaction: &Transaction<'_>,
    options: &StoreOptions,
    newest: &str,
) -> Result<(), StoreError> {
    let (records_max, bytes_max) = (options.records_max as u64, options.bytes_max);
    let mut counts = counts(transaction)?;
    let above = |counts: &Counts, records: u64, bytes: u64| {
        counts.records + counts.tombstones > records || counts.bytes > bytes
    };
    if !above(&counts, records_max, bytes_max) {
        return Ok(());
    }
    let mut leaves = Leaves::read(transaction)?;
    while above(&counts, records_max - records_max / 10, bytes_max - bytes_max / 10) {
        let Some((id, bytes, deleted)) = leaves.take_oldest(newest) else { break };
        transaction.prepare_cached("DELETE FROM responses WHERE id = ?1")?.execute(params![id])?;
        counts.bytes = counts.bytes.saturating_sub(bytes);
        let kind = if deleted { &mut counts.tombstones } else { &mut counts.records };
        *kind = kind.saturating_sub(1);
    }
    if above(&counts, records_max, bytes_max) {
        return Err(StoreError::TooLarge { id: newest.to_owned(), bytes_max, records_max: options.records_max });
    }
    Ok(())
}

/// Reads the sums the triggers keep.
pub(super) fn counts(connection: &Connection) -> Result<Counts, StoreError> {
    let mut statement = connection.prepare_cached("SELECT records, tombstones, bytes FROM totals")?;
    let counts = statement.query_row([], |row| {
        let at = |column| row.get::<_, i64>(column).map(|count| u64::try_from(count).unwrap_or(0));
        Ok(Counts { records: at(0)?, tombstones: at(1)?, bytes: at(2)? })
    })?;
    Ok(counts)
}

/// All records without children, the oldest first; taking one may make its parent the next. Reading them all costs a
/// few milliseconds per ten thousand, once per tenth of the store written.
struct Leaves {
    rows: HashMap<String, Node>,
    oldest_first: BinaryHeap<Reverse<(i64, String)>>,
}

struct Node {
    parent: Option<String>,
    created: i64,
    bytes: u64,
    deleted: bool,
    children: usize,
}

impl Leaves {
    fn read(transaction: &Transaction<'_>) -> Result<Self, StoreError> {
        let mut statement = transaction.prepare_cached(
            "SELECT id, parent, created, bytes, deleted, \
             (SELECT count(*) FROM responses AS child WHERE child.parent = responses.id) FROM responses",
        )?;
        let rows: HashMap<String, Node> = statement
            .query_map([], |row| {
                let bytes = u64::try_from(row.get::<_, i64>(3)?).unwrap_or(0);
                let children = usize::try_from(row.get::<_, i64>(5)?).unwrap_or(0);
                let (parent, created, deleted) = (row.get(1)?, row.get(2)?, row.get(4)?);
                Ok((row.get(0)?, Node { parent, created, bytes, deleted, children }))
            })?
            .collect::<Result<_, _>>()?;
        let oldest_first = rows
            .iter()
            .filter(|(_, node)| node.children == 0)
            .map(|(id, node)| Reverse((node.created, id.clone())))
            .collect();
        Ok(Self { rows, oldest_first })
    }

    /// The oldest leaf but `keep`: its id, bytes, and whether it is a tombstone.
    fn take_oldest(&mut self, keep: &str) -> Option<(String, u64, bool)> {
        let id = loop {
            let Reverse((_, id)) = self.oldest_first.pop()?;
            if id != keep {
                break id;
            }
        };
        let node = self.rows.remove(&id)?;
        if let Some(parent) = node.parent
            && let Some(above) = self.rows.get_mut(&parent)
        {
            above.children -= 1;
            if above.children == 0 {
                self.oldest_first.push(Reverse((above.created, parent)));
            }
        }
        Some((id, node.bytes, node.deleted))
    }
}
