//! Reaching the server: TCP, TLS over TCP, or the private Unix socket of a local server. Above this all are the same.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use hyper::Uri;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use crate::error::ClientError;
use crate::options::ClientOptions;
use crate::tls;

/// A connection of any kind.
pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// Where the server is.
pub(crate) struct Target {
    place: Endpoint,
    /// What stands before every path, such as `/v1`.
    pub prefix: String,
    /// What stands behind every path, with its `?` or `&` still to come; empty when there is nothing.
    query: String,
    /// The value of the `Host` header.
    pub host: String,
    timeout: Duration,
}

enum Endpoint {
    Tcp { host: String, port: u16, tls: Option<TlsConnector> },
    Unix(PathBuf),
}

impl Target {
    /// Reads the address in the options.
    pub fn new(options: &ClientOptions) -> Result<Self, ClientError> {
        let timeout = options.timeouts.connect;
        let query = query(&options.query);
        if let Some(path) = options.base_url.strip_prefix("unix:") {
            let place = Endpoint::Unix(PathBuf::from(path));
            return Ok(Self { place, prefix: "/v1".to_owned(), query, host: "localhost".to_owned(), timeout });
        }
        let wrong = |why: &str| ClientError::Options {
            message: format!("the address {:?} {why}; write http://host:port/v1 or unix:/path", options.base_url),
        };
        let uri: Uri = options.base_url.parse().map_err(|_| wrong("is not a URL"))?;
        let authority = uri.authority().ok_or_else(|| wrong("names no host"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("has a user name in it; use api_key"));
        }
        let (port, tls) = match uri.scheme_str() {
            Some("http" | "ws") => (80, None),
            Some("https" | "wss") => (443, Some(tls::connector(options.certificates.as_deref())?)),
            _ => return Err(wrong("has a scheme other than http and https")),
        };
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let place = Endpoint::Tcp { host, port: authority.port_u16().unwrap_or(port), tls };
        let prefix = uri.path().trim_end_matches('/').to_owned();
        Ok(Self { place, prefix, query, host: authority.to_string(), timeout })
    }

    /// The whole path of a call.
    pub fn path(&self, call: &str) -> String {
        let join = match (self.query.is_empty(), call.contains('?')) {
            (true, _) => "",
            (false, false) => "?",
            (false, true) => "&",
        };
        format!("{}{call}{join}{}", self.prefix, self.query)
    }

    /// Opens a connection.
    pub async fn dial(&self) -> Result<Box<dyn Io>, ClientError> {
        let late = ClientError::Timeout { what: "connection", after: self.timeout };
        tokio::time::timeout(self.timeout, self.open()).await.map_err(|_| late)?
    }

    async fn open(&self) -> Result<Box<dyn Io>, ClientError> {
        match &self.place {
            Endpoint::Unix(path) => match UnixStream::connect(path).await {
                Ok(stream) => Ok(Box::new(stream)),
                Err(error) => Err(refused(format!("{}", path.display()), &error)),
            },
            Endpoint::Tcp { host, port, tls } => {
                let address = format!("{host}:{port}");
                let stream = TcpStream::connect((host.as_str(), *port)).await;
                let stream = stream.map_err(|error| refused(address.clone(), &error))?;
                // Every message is a whole one: waiting for more to send would only add delay.
                stream.set_nodelay(true).map_err(|error| refused(address.clone(), &error))?;
                match tls {
                    None => Ok(Box::new(stream)),
                    Some(tls) => secure(tls, host, address, stream).await,
                }
            }
        }
    }
}

/// Names and values as they stand in an address.
fn query(pairs: &[(String, String)]) -> String {
    let pairs = pairs.iter().map(|(name, value)| format!("{}={}", escape(name), escape(value)));
    pairs.collect::<Vec<_>>().join("&")
}

/// Whatever is not a letter, a digit or one of `_-.~` must not become part of an address by itself.
pub(crate) fn escape(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

async fn secure(
    tls: &TlsConnector,
    host: &str,
    address: String,
    stream: TcpStream,
) -> Result<Box<dyn Io>, ClientError> {
    let wrong = |message: String| ClientError::Tls { address: address.clone(), message };
    let name = ServerName::try_from(host.to_owned()).map_err(|error| wrong(error.to_string()))?;
    let stream = tls.connect(name, stream).await.map_err(|error| wrong(error.to_string()))?;
    Ok(Box::new(stream))
}

fn refused(address: String, error: &std::io::Error) -> ClientError {
    let hint = match error.kind() {
        ErrorKind::ConnectionRefused | ErrorKind::NotFound => {
            "nothing listens there; start the server with `flint serve`"
        }
        ErrorKind::PermissionDenied => "the socket belongs to another user",
        _ => "check the address and the network",
    };
    ClientError::Connect { address, message: error.to_string(), hint }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_stands_behind_every_path() {
        let mut options = ClientOptions::new("http://h/v1");
        assert_eq!(Target::new(&options).unwrap().path("/a"), "/v1/a");
        options.query = vec![("api version".to_owned(), "1&2".to_owned()), ("b".to_owned(), "c".to_owned())];
        let target = Target::new(&options).unwrap();
        assert_eq!(target.path("/a"), "/v1/a?api%20version=1%262&b=c");
        assert_eq!(target.path("/a?x=y"), "/v1/a?x=y&api%20version=1%262&b=c");
    }

    #[test]
    fn addresses_are_read() {
        let cases = [
            ("http://localhost:8080/v1/", "/v1", "localhost:8080", Some(("localhost", 8080, false))),
            ("http://[::1]/v1", "/v1", "[::1]", Some(("::1", 80, false))),
            ("https://example.com", "", "example.com", Some(("example.com", 443, true))),
            ("unix:/run/flint.sock", "/v1", "localhost", None),
        ];
        for (url, prefix, host, tcp) in cases {
            let target = Target::new(&ClientOptions::new(url)).unwrap();
            assert_eq!((target.prefix.as_str(), target.host.as_str()), (prefix, host), "{url}");
            let place = match &target.place {
                Endpoint::Tcp { host, port, tls } => Some((host.as_str(), *port, tls.is_some())),
                Endpoint::Unix(_) => None,
            };
            assert_eq!(place, tcp, "{url}");
        }
        for url in ["", "localhost:8080", "ftp://host/", "http:///v1", "http://key@host/v1"] {
            assert!(Target::new(&ClientOptions::new(url)).is_err(), "{url}");
        }
    }
}
