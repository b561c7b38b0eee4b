//! The source that fetches one file of a Hugging Face repository.
//!
//! The hub announces the sha256 of a large file in its first answer. A file that is not the one in the catalogue is
//! therefore refused before a byte of it is fetched, and a model whose digest the catalogue does not know is compared with
//! the hub's own word. Three seconds must be enough to connect: most machines that cannot reach the hub never will, and
//! the next source is waiting. Redirects are followed here rather than by the HTTP library, because the token belongs to
//! the endpoint alone and the files themselves lie on other hosts.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

use serde::de::DeserializeOwned;
use ureq::http::{HeaderMap, Response, StatusCode, Uri};
use ureq::{Agent, Body};

use crate::cache::HuggingFace;
use crate::catalogue::is_sha256;
use crate::disk;
use crate::error::{Error, SourceError};
use crate::progress::Event;
use crate::pull::{Fetched, Job};
use crate::verify;

/// Where Hugging Face is unless `HF_ENDPOINT` names a mirror.
const ENDPOINT: &str = "https://huggingface.co";
/// Longest wait for an address, and again for a connection with TLS.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);
/// Longest wait for the head of an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(15);
/// Longest silence within a body.
const STALL_LIMIT: Duration = Duration::from_secs(60);
/// The hub answers with one redirect, after a repository was renamed with two.
const REDIRECTS_MAX: usize = 5;
/// Connections in a row that bring next to nothing before the hub is given up.
const RETRIES_MAX: u32 = 5;
/// What a connection must bring to count as one that works.
const FRUITFUL_BYTES: u64 = 64 << 10;
const RETRY_WAIT: Duration = Duration::from_millis(300);
/// Bytes between two messages.
const REPORT_BYTES: u64 = 1 << 20;
const BUFFER_BYTES: usize = 128 << 10;

/// Fetches the file and compares it with the catalogue or, where that is silent, with the hub's own digest.
pub(crate) fn fetch(job: &mut Job<'_>, repo: &str, file: &str, revision: &str) -> Result<Fetched, SourceError> {
    let hub = Hub::at(&job.options.huggingface)?;
    let url = format!("{}/{repo}/resolve/{}/{file}", hub.base, revision.replace('/', "%2F"));
    let (bytes, sha256) = hub.describe(&url, repo, file)?;
    job.compare(bytes, &sha256)?;
    let part = job.staging.join(format!("{sha256}.part"));
    let kept = length(&part)?.min(bytes);
    job.progress.event(Event::Source { source: job.source, resumed: kept });
    job.require_disk(bytes - kept)?;
    hub.download(job, &url, &part, bytes)?;
    job.progress.event(Event::Verifying);
    let found = verify::sha256_of(&part)?;
    if found != sha256 {
        return Err(SourceError::Mismatch { what: "sha256", got: found, expected: sha256 });
    }
    Ok(Fetched { path: part, sha256 })
}

/// The endpoint and how to talk to it.
pub(crate) struct Hub {
    agent: Agent,
    /// Without a slash at its end.
    base: String,
    endpoint: Uri,
    /// The whole value of the header, for the endpoint only.
    authorization: Option<String>,
}

/// What the answers on the way to a file say of it.
#[derive(Default)]
struct Announced {
    bytes: Option<u64>,
    sha256: Option<String>,
}

impl Hub {
    /// The hub that these options name.
    pub(crate) fn at(options: &HuggingFace) -> Result<Hub, SourceError> {
        let base = options.endpoint.as_deref().unwrap_or(ENDPOINT).trim_end_matches('/').to_owned();
        let endpoint = parse(&base)?;
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_resolve(Some(CONNECT_LIMIT))
            .timeout_connect(Some(CONNECT_LIMIT))
            .timeout_recv_response(Some(ANSWER_LIMIT))
            .timeout_per_read(Some(STALL_LIMIT))
            .user_agent(concat!("flint/", env!("CARGO_PKG_VERSION")))
            .build()
            .into();
        let authorization = options.token.as_ref().map(|token| format!("Bearer {}", token.reveal()));
        Ok(Hub { agent, base, endpoint, authorization })
    }

    /// What its interface answers, at most `bytes_max` of it.
    pub(crate) fn ask<T: DeserializeOwned>(&self, path: &str, bytes_max: u64) -> Result<T, SourceError> {
        let (response, _) = self.get(&format!("{}/api/{path}", self.base), "bytes=0-", |_| false)?;
        let status = response.status();
        if status == StatusCode::NOT_FOUND || status == StatusCode::UNAUTHORIZED {
            let name = path.trim_start_matches("models/").split('?').next().unwrap_or_default();
            return Err(SourceError::Hub(format!("{} shows no model {name} ({status})", self.host())));
        }
        if !status.is_success() {
            return Err(SourceError::Hub(format!("{} answered {status}", self.host())));
        }
        let mut text = Vec::new();
        let mut body = response.into_body().into_reader().take(bytes_max);
        body.read_to_end(&mut text).map_err(|error| self.unreachable(error.to_string()))?;
        let wrong = |error| SourceError::Hub(format!("{} gave an answer that is not understood: {error}", self.host()));
        serde_json::from_slice(&text).map_err(wrong)
    }

    /// Size and digest of the file.
    fn describe(&self, url: &str, repo: &str, file: &str) -> Result<(u64, String), SourceError> {
        let enough = |announced: &Announced| announced.bytes.is_some() && announced.sha256.is_some();
        let (response, announced) = self.get(url, "bytes=0-0", enough)?;
        let status = response.status();
        if status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN {
            let advice = if self.authorization.is_some() { "the token may not read it" } else { "set HF_TOKEN" };
            return Err(SourceError::Hub(format!("{} does not give out {repo}: {advice} ({status})", self.host())));
        }
        if status == StatusCode::NOT_FOUND {
            return Err(SourceError::Hub(format!("{} has no file {file} in {repo}", self.host())));
        }
        if !status.is_success() && !status.is_redirection() {
            return Err(SourceError::Hub(format!("{} answered {status}", self.host())));
        }
        match (announced.bytes, announced.sha256) {
            (Some(bytes), Some(sha256)) => Ok((bytes, sha256)),
            (_, None) => {
                Err(SourceError::Hub(format!("the hub gives no sha256 for {file}, so it could not be checked")))
            }
            (None, _) => Err(SourceError::Hub(format!("the hub does not say how large {file} is"))),
        }
    }

    /// Brings the rest of the file, over as many connections as it takes.
    fn download(&self, job: &mut Job<'_>, url: &str, part: &Path, bytes: u64) -> Result<(), SourceError> {
        let mut fruitless = 0;
        loop {
            let have = length(part)?;
            if have == bytes {
                return Ok(());
            }
            if have > bytes {
                disk::remove(part)?;
                continue;
            }
            let ended = self.download_from(job, url, part, have, bytes);
            let gained = length(part)?.saturating_sub(have);
            fruitless = if gained >= FRUITFUL_BYTES { 0 } else { fruitless + 1 };
            match ended {
                Err(error @ (SourceError::Unreachable { .. } | SourceError::Stalled { .. }))
                    if fruitless > RETRIES_MAX =>
                {
                    return Err(error);
                }
                Ok(()) if fruitless > RETRIES_MAX => {
                    return Err(SourceError::Hub("the connection kept closing early".to_owned()));
                }
                Ok(()) | Err(SourceError::Unreachable { .. } | SourceError::Stalled { .. }) => {}
                Err(other) => return Err(other),
            }
            if fruitless > 0 && length(part)? < bytes {
                std::thread::sleep(RETRY_WAIT * fruitless);
            }
        }
    }

    /// One connection's worth of the file, appended to what is there. That it ended early is for the caller to see.
    fn download_from(
        &self,
        job: &mut Job<'_>,
        url: &str,
        part: &Path,
        have: u64,
        bytes: u64,
    ) -> Result<(), SourceError> {
        let (response, _) = self.get(url, &format!("bytes={have}-"), |_| false)?;
        let status = response.status();
        if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
            return Err(self.unreachable(format!("it answered {status}")));
        }
        let resumes = status == StatusCode::PARTIAL_CONTENT
            && header(response.headers(), "content-range")
                .is_some_and(|range| range.starts_with(&format!("bytes {have}-")));
        if !resumes && status != StatusCode::OK {
            return Err(SourceError::Hub(format!("the download was answered with {status}")));
        }
        let mut file = File::options().create(true).append(true).open(part).map_err(Error::io("open", part))?;
        let mut done = if resumes { have } else { 0 };
        // A server that ignores the range sends the file from its first byte.
        file.set_len(done).map_err(Error::io("cut", part))?;
        let mut body = response.into_body().into_reader().take(bytes - done);
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut reported = 0;
        loop {
            if done - reported >= REPORT_BYTES || done == bytes {
                job.progress.event(Event::Bytes { done, total: Some(bytes) });
                reported = done;
            }
            match body.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => {
                    file.write_all(&buffer[..count]).map_err(Error::io("write", part))?;
                    done += count as u64;
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) if is_timeout(&error) => {
                    return Err(SourceError::Stalled { seconds: STALL_LIMIT.as_secs() });
                }
                Err(error) => return Err(self.unreachable(error.to_string())),
            }
        }
    }

    /// Follows redirects until there is a body, or until what was announced is enough.
    fn get(
        &self,
        url: &str,
        range: &str,
        enough: impl Fn(&Announced) -> bool,
    ) -> Result<(Response<Body>, Announced), SourceError> {
        let mut url = parse(url)?;
        let mut announced = Announced::default();
        for _ in 0..=REDIRECTS_MAX {
            let ours = origin(&url) == origin(&self.endpoint);
            let mut request = self.agent.get(url.clone()).header("Range", range);
            if ours && let Some(value) = &self.authorization {
                request = request.header("Authorization", value);
            }
            let response = request.call().map_err(|error| unreachable(&url, &error))?;
            announced.read(response.headers(), ours);
            let to = header(response.headers(), "location");
            let Some(to) = to.filter(|_| response.status().is_redirection() && !enough(&announced)) else {
                return Ok((response, announced));
            };
            url = redirected(&url, to)?;
        }
        Err(SourceError::Hub(format!("the hub redirected more than {REDIRECTS_MAX} times")))
    }

    fn host(&self) -> &str {
        self.endpoint.host().unwrap_or_default()
    }

    fn unreachable(&self, why: String) -> SourceError {
        SourceError::Unreachable { host: self.host().to_owned(), why }
    }
}

impl Announced {
    /// Sizes are compared anyway; the digest counts only from the endpoint, since it may be all that is known.
    fn read(&mut self, headers: &HeaderMap, from_endpoint: bool) {
        if from_endpoint && self.sha256.is_none() {
            let tag = header(headers, "x-linked-etag").or_else(|| header(headers, "etag"));
            self.sha256 = tag.map(|tag| tag.trim_matches('"').to_owned()).filter(|tag| is_sha256(tag));
        }
        if self.bytes.is_none() {
            let total =
                header(headers, "content-range").and_then(|range| range.rsplit_once('/')).map(|(_, total)| total);
            self.bytes = header(headers, "x-linked-size").or(total).and_then(|bytes| bytes.parse().ok());
        }
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn parse(url: &str) -> Result<Uri, SourceError> {
    let uri: Option<Uri> = url.parse().ok();
    let usable = |uri: &Uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some();
    uri.filter(usable).ok_or_else(|| SourceError::Hub(format!("`{url}` is not an address of a hub")))
}

/// Scheme, host and port: who a token may be shown to.
fn origin(url: &Uri) -> (Option<&str>, Option<String>, u16) {
    let usual = if url.scheme_str() == Some("https") { 443 } else { 80 };
    (url.scheme_str(), url.host().map(str::to_lowercase), url.port_u16().unwrap_or(usual))
}

/// Where a redirect leads. It may not leave TLS.
fn redirected(from: &Uri, to: &str) -> Result<Uri, SourceError> {
    let refused = || SourceError::Hub(format!("the hub redirected to `{to}`, which is not followed"));
    let url = match (to.starts_with("//"), to.starts_with('/'), from.scheme_str(), from.authority()) {
        (false, true, Some(scheme), Some(authority)) => format!("{scheme}://{authority}{to}"),
        (false, false, ..) => to.to_owned(),
        _ => return Err(refused()),
    };
    let url = parse(&url).map_err(|_| refused())?;
    if from.scheme_str() == Some("https") && url.scheme_str() != Some("https") {
        return Err(refused());
    }
    Ok(url)
}

fn unreachable(url: &Uri, error: &ureq::Error) -> SourceError {
    let why = match error {
        ureq::Error::Timeout(ureq::Timeout::Resolve | ureq::Timeout::Connect) => {
            format!("no connection within {} seconds", CONNECT_LIMIT.as_secs())
        }
        ureq::Error::Timeout(_) => "no answer".to_owned(),
        ureq::Error::HostNotFound => "the name is not known here".to_owned(),
        other => other.to_string(),
    };
    SourceError::Unreachable { host: url.host().unwrap_or_default().to_owned(), why }
}

/// The HTTP library wraps its own error.
fn is_timeout(error: &std::io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<ureq::Error>());
    matches!(inner, Some(ureq::Error::Timeout(_)))
}

/// Bytes in a file that may not be there yet.
fn length(path: &Path) -> Result<u64, Error> {
    match std::fs::metadata(path) {
        Ok(meta) => Ok(meta.len()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(Error::io("read", path)(error)),
    }
}
