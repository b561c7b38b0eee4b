//! Who may talk to the server, and how much of it one client may take.
//!
//! Everything here is a decision without side effects: [`check_bind`] before listening, [`HostRules`] and [`Keys`] on
//! the head of a request, [`json_depth`] on its body before a parser sees it, and the numbers of [`Limits`]. How a
//! refusal looks on the wire is for the routes to say, since each API has its own shape of errors.

pub mod owner;
pub mod refusal;

mod bind;
mod depth;
mod hosts;
mod keys;
mod limits;

pub use bind::{BindError, check_bind};
pub use depth::json_depth;
pub use hosts::{HostError, HostRules, Listener, OriginError};
pub use keys::{AuthError, Keys, KeysError};
pub use limits::Limits;

#[cfg(test)]
mod tests {
    //! What the tests of this module share.

    use axum::http::{HeaderMap, HeaderName, HeaderValue};

    pub fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        }
        map
    }
}
