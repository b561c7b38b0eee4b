//! The answer to a connection for which there is no place: a 503 that the client can read.
//!
//! A client that has not sent its request yet takes an early answer for a broken connection, and one that has sent more
//! than was read sees a reset instead of the answer. So the request is read first and what is left of it afterwards, both
//! within a short time and few bytes: those who are refused must not cost what those who are served do.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_rustls::TlsAcceptor;

use crate::shared::Shared;
use crate::telemetry::metrics::Rejection;

/// Time for the head of a request, and again for what comes after it. Afterwards: closed.
const PATIENCE: Duration = Duration::from_secs(1);

/// Bytes of a head. More: answered without having read the rest.
const HEAD_BYTES: usize = 16 << 10;

/// Bytes read after the answer. More: closed, and the client may see a reset.
const REST_BYTES: usize = 1 << 20;

/// Connections being refused at once. More: closed without a word.
const REFUSED_MAX: usize = 256;

static REFUSED: Semaphore = Semaphore::const_new(REFUSED_MAX);

const BODY: &str = r#"{"error":{"type":"server_error","code":"too_many_connections","message":"too many connections; close some or try again","param":null}}"#;

/// Refuses a connection that may begin with a TLS handshake.
pub async fn over_tcp(shared: &Shared, stream: TcpStream, tls: Option<TlsAcceptor>) {
    let Some(tls) = tls else { return refuse(shared, stream).await };
    let Some(_counted) = count(shared) else { return };
    if let Ok(Ok(stream)) = tokio::time::timeout(PATIENCE, tls.accept(stream)).await {
        say(stream).await;
    }
}

/// Says that there are too many connections, in a form every client reads.
pub async fn refuse(shared: &Shared, stream: impl AsyncRead + AsyncWrite + Unpin) {
    if let Some(_counted) = count(shared) {
        say(stream).await;
    }
}

/// Counts a refusal; `None` when there are too many at once.
fn count(shared: &Shared) -> Option<SemaphorePermit<'static>> {
    shared.metrics.rejected(Rejection::Connections);
    REFUSED.try_acquire().ok()
}

async fn say(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    if !matches!(tokio::time::timeout(PATIENCE, read_head(&mut stream)).await, Ok(Ok(()))) {
        return;
    }
    let head =
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close";
    let answer = format!("{head}\r\ncontent-length: {}\r\n\r\n{BODY}", BODY.len());
    let _ = tokio::time::timeout(PATIENCE, async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        read_rest(&mut stream).await
    })
    .await;
}

/// Reads to the end of a request's head, or of what the client had to say, or of patience with its length.
async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<()> {
    let mut head = Vec::with_capacity(1024);
    while head.len() < HEAD_BYTES {
        let before = head.len();
        if stream.read_buf(&mut head).await? == 0 {
            break;
        }
        let new = &head[before.saturating_sub(3)..];
        if new.windows(4).any(|end| end == b"\r\n\r\n") {
            break;
        }
    }
    Ok(())
}

async fn read_rest(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<()> {
    let mut rest = stream.take(REST_BYTES as u64);
    tokio::io::copy(&mut rest, &mut tokio::io::sink()).await.map(|_| ())
}
