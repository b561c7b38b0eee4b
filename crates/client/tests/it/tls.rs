//! TLS with a certificate made for the test by the openssl program, where there is one.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use client::{Client, ClientError, ClientOptions};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::support::*;

#[tokio::test]
async fn websocket_and_http_go_over_tls_with_a_trusted_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let Some(acceptor) = acceptor(folder.path()) else {
        eprintln!("skipped: there is no openssl program to make a certificate with");
        return;
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut options = ClientOptions::new(format!("https://localhost:{}/v1", listener.local_addr().unwrap().port()));
    let untrusting = Client::new(options.clone()).unwrap();
    options.certificates = Some(folder.path().join("certificate.pem"));
    let client = Client::new(options).unwrap();
    let script = async {
        let accept = || async { acceptor.accept(listener.accept().await.unwrap().0).await };
        assert!(accept().await.is_err(), "the first client does not trust us");
        let request = Exchange::read(Box::new(accept().await.unwrap())).await.unwrap();
        request.upgrade(Kind::Flint).await.answer("resp_1", &["a"]).await;
        let mut models = Exchange::read(Box::new(accept().await.unwrap())).await.unwrap();
        models.reply(200, "", "{}").await;
    };
    let user = async {
        let error = untrusting.respond(ask("q")).await.err().unwrap();
        assert!(matches!(error, ClientError::Tls { .. }), "{error}");
        assert_eq!(text(&mut client.respond(ask("q")).await.unwrap()).await.unwrap(), "a");
        client.models().await.unwrap();
    };
    play(script, user).await;
}

fn acceptor(folder: &Path) -> Option<TlsAcceptor> {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"])
        .args(["-addext", "subjectAltName=DNS:localhost", "-keyout", "key.pem", "-out", "certificate.pem"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .current_dir(folder)
        .output()
        .ok()?;
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let certificate = CertificateDer::from_pem_file(folder.join("certificate.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(folder.join("key.pem")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    Some(TlsAcceptor::from(Arc::new(config)))
}
