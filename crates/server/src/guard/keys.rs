//! API keys: read once from a file that only its owner can read, compared in constant time.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::guard::owner::Owner;

/// Keys in one file; more are refused with [`KeysError::TooMany`].
const KEYS_MAX: usize = 1024;
/// Bytes of the file; a larger one is no key file.
const FILE_BYTES_MAX: u64 = 256 << 10;

/// Why a key file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// It cannot be read.
    #[error("cannot read the key file {path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Others on this machine can read it.
    #[error("the key file {path} can be read by others (mode {mode:03o}); run `chmod 600 {path}`")]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It holds no key.
    #[error("the key file {0} holds no key; write one per line, for example with `openssl rand -hex 32 > {0}`")]
    Empty(PathBuf),
    /// It is larger than any list of keys should be.
    #[error("the key file {0} is too large; it may hold {KEYS_MAX} keys and 256 KiB")]
    TooMany(PathBuf),
    /// A key no client could send.
    #[error("line {line} of the key file {path} is not a key: one word of visible ASCII, then optionally ` # name`")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
    },
}

/// Why a request was not let in. Both are a 401.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// No key was sent.
    #[error("this server needs an API key: send `Authorization: Bearer KEY`")]
    Missing,
    /// A key was sent, not one of ours.
    #[error("the API key is not one this server knows")]
    Wrong,
}

/// The keys that open the server, kept as digests.
pub struct Keys {
    keys: Vec<Key>,
}

struct Key {
    name: String,
    digest: [u8; 32],
}

impl Keys {
    /// Reads one key per line; `#` begins a comment, which after a key is the key's name in logs.
    pub fn load(path: &Path) -> Result<Self, KeysError> {
        let io = |source| KeysError::Io { path: path.to_owned(), source };
        let file = std::fs::File::open(path).map_err(io)?;
        check_mode(path, &file.metadata().map_err(io)?)?;
        let mut text = String::new();
        file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(io)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(KeysError::TooMany(path.to_owned()));
        }
        Self::parse(&text, path)
    }

    fn parse(text: &str, path: &Path) -> Result<Self, KeysError> {
        let mut keys = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            // A key may hold a `#`; only one after a space begins a name.
            let (key, name) = line.split_once(" #").unwrap_or((line, ""));
            let (key, name) = (key.trim(), name.trim());
            if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(KeysError::Malformed { path: path.to_owned(), line: index + 1 });
            }
            let name = if name.is_empty() { format!("line {}", index + 1) } else { name.to_owned() };
            keys.push(Key { name, digest: Sha256::digest(key).into() });
        }
        match keys.len() {
            0 => Err(KeysError::Empty(path.to_owned())),
            count if count > KEYS_MAX => Err(KeysError::TooMany(path.to_owned())),
            _ => Ok(Self { keys }),
        }
    }

    /// The name of the key a request carries in `Authorization: Bearer`, `x-api-key` or `api-key`. Several may be sent;
    /// one that fits is enough.
    pub fn check(&self, headers: &HeaderMap) -> Result<&str, AuthError> {
        self.sent(headers).map(|key| key.name.as_str())
    }

    /// The owner that this key stands for.
    pub(crate) fn owner(&self, headers: &HeaderMap) -> Result<Owner, AuthError> {
        self.sent(headers).map(|key| Owner::of_key(&key.digest))
    }

    fn sent(&self, headers: &HeaderMap) -> Result<&Key, AuthError> {
        let bearer = headers.get_all(AUTHORIZATION).iter().filter_map(|value| bearer(value.as_bytes()));
        let plain = ["x-api-key", "api-key"].into_iter().flat_map(|name| headers.get_all(name)).map(|v| v.as_bytes());
        let mut answer = Err(AuthError::Missing);
        for sent in bearer.chain(plain).map(<[u8]>::trim_ascii).filter(|sent| !sent.is_empty()) {
            match self.find(sent) {
                Some(key) => return Ok(key),
                None => answer = Err(AuthError::Wrong),
            }
        }
        answer
    }

    /// Compares digests, with every key and to the last byte, so that the time taken says nothing about the keys.
    fn find(&self, sent: &[u8]) -> Option<&Key> {
        let digest: [u8; 32] = Sha256::digest(sent).into();
        let mut found = None;
        for key in &self.keys {
            if bool::from(key.digest.ct_eq(&digest)) {
                found = Some(key);
            }
        }
        found
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.keys.iter().map(|key| &key.name)).finish()
    }
}

/// What follows `Bearer `, in any case.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked("bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(rest)
}

#[cfg(unix)]
fn check_mode(path: &Path, metadata: &std::fs::Metadata) -> Result<(), KeysError> {
    let mode = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o777;
    if mode & 0o077 == 0 { Ok(()) } else { Err(KeysError::Exposed { path: path.to_owned(), mode }) }
}

#[cfg(not(unix))]
fn check_mode(_: &Path, _: &std::fs::Metadata) -> Result<(), KeysError> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::tests::headers;

    fn keys(text: &str) -> Result<Keys, KeysError> {
        Keys::parse(text, Path::new("keys"))
    }

    #[test]
    fn where_a_key_may_stand() {
        let keys = keys("# ours\n\nsk-one # laptop\nsk-two\n  sk#three  #  the box\n").unwrap();
        for (sent, answer) in [
            (vec![], Err(AuthError::Missing)),
            (vec![("authorization", "Bearer sk-one")], Ok("laptop")),
            (vec![("authorization", "bearer   sk-two")], Ok("line 4")),
            (vec![("x-api-key", "sk#three")], Ok("the box")),
            (vec![("api-key", "sk-two")], Ok("line 4")),
            (vec![("authorization", "Bearer unset"), ("x-api-key", "sk-one")], Ok("laptop")),
            (vec![("authorization", "Bearer sk-on")], Err(AuthError::Wrong)),
            (vec![("authorization", "Bearer sk-one2")], Err(AuthError::Wrong)),
            (vec![("authorization", "Bearer SK-ONE")], Err(AuthError::Wrong)),
            (vec![("authorization", "Bearer ")], Err(AuthError::Missing)),
            (vec![("authorization", "Basic sk-one")], Err(AuthError::Missing)),
            (vec![("authorization", "sk-one")], Err(AuthError::Missing)),
            (vec![("x-api-key", "")], Err(AuthError::Missing)),
            (vec![("x-api-key", "laptop")], Err(AuthError::Wrong)),
        ] {
            assert_eq!(keys.check(&headers(&sent)), answer, "{sent:?}");
        }
    }

    #[test]
    fn files_that_are_no_key_files() {
        assert!(matches!(keys(""), Err(KeysError::Empty(_))));
        assert!(matches!(keys("# nothing\n\n"), Err(KeysError::Empty(_))));
        assert!(matches!(keys("good\ntwo words\n"), Err(KeysError::Malformed { line: 2, .. })));
        assert!(matches!(keys("clé\n"), Err(KeysError::Malformed { line: 1, .. })));
        assert!(matches!(keys(&"k\n".repeat(KEYS_MAX + 1)), Err(KeysError::TooMany(_))));
    }

    #[test]
    fn debugging_shows_names_only() {
        assert_eq!(format!("{:?}", keys("sk-secret # laptop").unwrap()), "[\"laptop\"]");
    }

    #[cfg(unix)]
    #[test]
    fn a_file_others_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        std::fs::write(&path, "sk-one\n").unwrap();
        for (mode, fine) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false), (0o622, false)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            match Keys::load(&path) {
                Ok(_) => assert!(fine, "{mode:o}"),
                Err(error) => {
                    assert!(!fine, "{mode:o}");
                    assert!(error.to_string().contains("chmod 600"), "{error}");
                }
            }
        }
        assert!(matches!(Keys::load(&folder.path().join("absent")), Err(KeysError::Io { .. })));
    }
}
