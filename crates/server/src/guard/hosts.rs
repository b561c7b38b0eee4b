//! Host and Origin: a web page must not use the local server.
//!
//! Two ways lead from a page to loopback. A plain cross-site request carries the page's `Origin`; DNS rebinding gives
//! the page's own name our address, and then carries that name as `Host`. Native clients send no `Origin` and name the
//! host they were given. The same rules hold for a WebSocket upgrade, which browsers allow to any site.

use axum::http::HeaderMap;
use axum::http::header::{HOST, ORIGIN};

/// What the server listens on, as far as the rules differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listener {
    /// 127.0.0.1 or ::1: `Host` must be a loopback name or the configured host.
    Loopback,
    /// Any other address: keys are required there, which a page does not have, so `Host` may be anything.
    Network,
    /// A Unix socket: no browser can reach it and clients send any `Host`.
    Unix,
}

/// Why a request was refused, before anything else of it was read. All are 403 but [`HostError::NoHost`], a 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// No `Host`, or several.
    #[error("the request must have exactly one Host header")]
    NoHost,
    /// A name that is not ours, as in DNS rebinding.
    #[error(
        "the Host header names {0}, which is not this server; use localhost, 127.0.0.1 or [::1], or start with --host"
    )]
    WrongHost(String),
    /// A web page that nobody allowed.
    #[error("requests from web pages are refused; {0} can be allowed with --allow-origin if it is on this machine")]
    WrongOrigin(String),
    /// A web page of another site, in a request that hides its origin.
    #[error("requests from other web sites are refused")]
    CrossSite,
}

/// Why an `--allow-origin` cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OriginError {
    /// Not `scheme://host[:port]`.
    #[error("{0} is not an origin; write it as http://localhost:3000, without a path")]
    NotAnOrigin(String),
    /// A site elsewhere.
    #[error("{0} is not on this machine; only loopback origins can be allowed, as http://localhost:3000")]
    NotLoopback(String),
}

/// Which hosts and origins are ours.
#[derive(Clone, Debug)]
pub struct HostRules {
    listener: Listener,
    host: Option<String>,
    origins: Vec<String>,
}

impl HostRules {
    /// `host` is what `--host` said, `origins` what `--allow-origin` said.
    pub fn new(listener: Listener, host: Option<&str>, origins: &[String]) -> Result<Self, OriginError> {
        let origins = origins.iter().map(|origin| allowed_origin(origin)).collect::<Result<_, _>>()?;
        let host = host.map(|host| host.trim_matches(['[', ']']).to_ascii_lowercase());
        Ok(Self { listener, host, origins })
    }

    /// Passes or refuses the head of a request. `Some` is the allowed origin it came from, which the answer must name
    /// in `Access-Control-Allow-Origin`.
    pub fn check(&self, headers: &HeaderMap) -> Result<Option<&str>, HostError> {
        self.check_host(headers)?;
        let mut origins = headers.get_all(ORIGIN).iter();
        match (origins.next(), origins.next()) {
            (None, _) if headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site") => {
                Err(HostError::CrossSite)
            }
            (None, _) => Ok(None),
            (Some(origin), None) => {
                let text = String::from_utf8_lossy(origin.as_bytes());
                let known = normal_origin(&text).and_then(|origin| self.origins.iter().find(|known| **known == origin));
                known.map(|known| Some(known.as_str())).ok_or_else(|| HostError::WrongOrigin(shown(&text)))
            }
            (Some(_), Some(_)) => Err(HostError::WrongOrigin("more than one origin".to_owned())),
        }
    }

    fn check_host(&self, headers: &HeaderMap) -> Result<(), HostError> {
        if self.listener != Listener::Loopback {
            return Ok(());
        }
        let mut hosts = headers.get_all(HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else { return Err(HostError::NoHost) };
        let text = String::from_utf8_lossy(host.as_bytes());
        match host_of(&text) {
            Some(name) if is_loopback_name(&name) || self.host.as_ref() == Some(&name) => Ok(()),
            _ => Err(HostError::WrongHost(shown(&text))),
        }
    }
}

/// The names every machine has for itself. Lower case, without brackets.
fn is_loopback_name(name: &str) -> bool {
    matches!(name, "localhost" | "127.0.0.1" | "::1")
}

/// The name in `name[:port]` or `[v6][:port]`, lower case and without brackets; `None` for anything else.
fn host_of(authority: &str) -> Option<String> {
    let (name, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (name, after) = rest.split_once(']')?;
            let port = if after.is_empty() { None } else { Some(after.strip_prefix(':')?) };
            // Brackets hold an address of version 6 and nothing else.
            (name.parse::<std::net::Ipv6Addr>().ok().map(|_| name)?, port)
        }
        None => match authority.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (authority, None),
        },
    };
    let fine = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:".contains(&byte))
    };
    let port_fine = port.is_none_or(|port| port.parse::<u16>().is_ok() && !port.starts_with('+'));
    (fine(name) && port_fine).then(|| name.to_ascii_lowercase())
}

/// `scheme://host[:port]` in lower case without the scheme's own port; `None` for anything else, `null` included.
fn normal_origin(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let (scheme, authority) = lower.split_once("://")?;
    let default_port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => return None,
    };
    host_of(authority)?;
    Some(format!("{scheme}://{}", authority.strip_suffix(default_port).unwrap_or(authority)))
}

fn allowed_origin(text: &str) -> Result<String, OriginError> {
    let origin = normal_origin(text).ok_or_else(|| OriginError::NotAnOrigin(text.to_owned()))?;
    let host = origin.split_once("://").and_then(|(_, authority)| host_of(authority));
    if host.is_some_and(|host| is_loopback_name(&host)) { Ok(origin) } else { Err(OriginError::NotLoopback(origin)) }
}

/// At most 100 characters of what a stranger sent, without control characters, for an error or a log line.
fn shown(text: &str) -> String {
    text.chars().take(100).map(|character| if character.is_control() { '\u{fffd}' } else { character }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::tests::headers;

    #[test]
    fn host_on_loopback() {
        let rules = HostRules::new(Listener::Loopback, Some("Box.local"), &[]).unwrap();
        for (host, passes) in [
            ("localhost", true),
            ("LOCALHOST:1234", true),
            ("127.0.0.1", true),
            ("127.0.0.1:8080", true),
            ("[::1]", true),
            ("[::1]:8080", true),
            ("box.local:1", true),
            ("evil.example", false),
            ("evil.example:8080", false),
            ("localhost.evil.example", false),
            ("localhost.", false),
            ("127.0.0.1.evil.example", false),
            ("127.0.0.2", false),
            ("[::2]:80", false),
            ("[localhost]", false),
            ("[::1]evil", false),
            ("user@localhost", false),
            ("localhost:evil", false),
            ("localhost:+80", false),
            ("localhost:99999", false),
            ("", false),
            (":80", false),
        ] {
            assert_eq!(rules.check(&headers(&[("host", host)])).is_ok(), passes, "{host:?}");
        }
        assert_eq!(rules.check(&headers(&[])), Err(HostError::NoHost));
        assert_eq!(rules.check(&headers(&[("host", "localhost"), ("host", "evil")])), Err(HostError::NoHost));
    }

    #[test]
    fn an_address_as_the_configured_host() {
        let rules = HostRules::new(Listener::Loopback, Some("127.0.0.2"), &[]).unwrap();
        assert_eq!(rules.check(&headers(&[("host", "127.0.0.2:9")])), Ok(None));
        assert!(rules.check(&headers(&[("host", "127.0.0.3:9")])).is_err());
    }

    #[test]
    fn elsewhere_any_host_passes_but_no_origin() {
        for listener in [Listener::Network, Listener::Unix] {
            let rules = HostRules::new(listener, None, &[]).unwrap();
            assert_eq!(rules.check(&headers(&[("host", "gpu.example")])), Ok(None));
            assert_eq!(rules.check(&headers(&[])), Ok(None));
            assert!(rules.check(&headers(&[("host", "x"), ("origin", "http://localhost")])).is_err());
        }
    }

    #[test]
    fn origins() {
        let allowed = ["http://localhost:3000".to_owned(), "https://127.0.0.1:443".to_owned()];
        let rules = HostRules::new(Listener::Loopback, None, &allowed).unwrap();
        for (origin, passes) in [
            ("http://localhost:3000", Some("http://localhost:3000")),
            ("HTTP://LocalHost:3000", Some("http://localhost:3000")),
            ("https://127.0.0.1", Some("https://127.0.0.1")),
            ("https://127.0.0.1:443", Some("https://127.0.0.1")),
            ("http://127.0.0.1", None),
            ("http://localhost", None),
            ("http://localhost:30001", None),
            ("https://localhost:3000", None),
            ("http://localhost:3000.evil.example", None),
            ("http://localhost:3000/", None),
            ("http://evil.example", None),
            ("null", None),
            ("", None),
            ("file://", None),
        ] {
            let headers = headers(&[
                ("host", "localhost"),
                ("origin", origin),
                ("sec-fetch-site", "cross-site"),
                ("upgrade", "websocket"),
            ]);
            assert_eq!(rules.check(&headers).ok().flatten(), passes, "{origin:?}");
        }
        let twice = headers(&[("host", "localhost"), ("origin", &allowed[0]), ("origin", "http://evil.example")]);
        assert!(rules.check(&twice).is_err());
    }

    #[test]
    fn no_origin_is_allowed_unless_asked_for() {
        let rules = HostRules::new(Listener::Loopback, None, &[]).unwrap();
        assert!(rules.check(&headers(&[("host", "localhost"), ("origin", "http://localhost")])).is_err());
    }

    #[test]
    fn a_page_that_hides_its_origin() {
        let rules = HostRules::new(Listener::Loopback, None, &[]).unwrap();
        let from = |site| rules.check(&headers(&[("host", "localhost"), ("sec-fetch-site", site)]));
        assert_eq!(from("cross-site"), Err(HostError::CrossSite));
        assert_eq!(from("none"), Ok(None));
        assert_eq!(from("same-origin"), Ok(None));
    }

    #[test]
    fn what_cannot_be_allowed() {
        let refused = |origin: &str| HostRules::new(Listener::Loopback, None, &[origin.to_owned()]).unwrap_err();
        assert!(matches!(refused("https://evil.example"), OriginError::NotLoopback(_)));
        for origin in ["*", "null", "localhost:3000", "http://localhost/app", "ftp://localhost", ""] {
            assert!(matches!(refused(origin), OriginError::NotAnOrigin(_)), "{origin:?}");
        }
    }
}
