//! Whose request this is: the API key it carries, or without keys the door it came through.
//!
//! Settled once, where a request is let in, and handed on from there by name: whatever is kept (cached KV, recalled
//! answers, stored, parked and running responses) says whose it is, and nobody else finds it. There is no owner by
//! default, so nothing can be kept or looked for without saying for whom.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use sha2::{Digest, Sha256};

use crate::error::ApiError;

/// Who something belongs to. Stable over restarts, since stored responses and KV on disk are kept under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner(u64);

impl Owner {
    /// Whoever reaches the port of a server without keys: all of them together, since nothing tells them apart. What
    /// was stored before there were owners is theirs as well.
    pub const KEYLESS: Self = Self(0);

    /// Whoever sends this key, by the key's digest.
    pub fn of_key(digest: &[u8; 32]) -> Self {
        Self::hashed(b"flint owner", digest)
    }

    /// A user of this machine, at the other end of a Unix socket.
    pub fn of_user(id: u32) -> Self {
        Self::hashed(b"flint user", &id.to_le_bytes())
    }

    fn hashed(kind: &[u8], bytes: &[u8]) -> Self {
        let hash: [u8; 32] = Sha256::new().chain_update(kind).chain_update(bytes).finalize().into();
        let mut first = [0; 8];
        first.copy_from_slice(&hash[..8]);
        Self(u64::from_le_bytes(first).max(1))
    }

    /// As the engine and the store know it.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// Put there by whoever let the request in; a request that nobody let in is not served.
impl<S: Sync> FromRequestParts<S> for Owner {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let owner = parts.extensions.get().copied();
        owner.ok_or_else(|| ApiError::internal("the request reached its endpoint without having been let in"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_of_every_kind_differ() {
        let digest = |key: &str| -> [u8; 32] { Sha256::digest(key).into() };
        let all = [
            Owner::KEYLESS,
            Owner::of_key(&digest("a")),
            Owner::of_key(&digest("b")),
            Owner::of_user(0),
            Owner::of_user(1000),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(!all[..index].contains(one), "{one:?}");
        }
    }
}
