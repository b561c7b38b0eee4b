//! Whom to trust: the certificates of `SSL_CERT_FILE`, else of the system, else those of Mozilla's list, built in.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use crate::error::ClientError;

/// Where systems keep their bundle.
const BUNDLES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
];

/// What makes a connection private; `file` overrides every other source of certificates.
pub(crate) fn connector(file: Option<&Path>) -> Result<TlsConnector, ClientError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| ClientError::Options { message: format!("TLS cannot be set up: {error}") })?;
    let mut config = builder.with_root_certificates(roots(file)?).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

fn roots(file: Option<&Path>) -> Result<RootCertStore, ClientError> {
    let named = file.map(Path::to_path_buf).or_else(|| std::env::var_os("SSL_CERT_FILE").map(PathBuf::from));
    if let Some(path) = named {
        return read(&path).map_err(|why| ClientError::Options {
            message: format!("cannot use the certificates in {}: {why}", path.display()),
        });
    }
    let system = BUNDLES.iter().find_map(|path| read(Path::new(path)).ok());
    Ok(system.unwrap_or_else(|| webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect()))
}

fn read(path: &Path) -> Result<RootCertStore, String> {
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    let mut store = RootCertStore::empty();
    let certificates = CertificateDer::pem_slice_iter(&bytes).filter_map(Result::ok);
    let (added, _) = store.add_parsable_certificates(certificates);
    if added == 0 { Err("it has none that can be read".to_owned()) } else { Ok(store) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_certificates_is_named_in_the_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "nothing").unwrap();
        let error = connector(Some(file.path())).err().unwrap().to_string();
        assert!(error.contains(file.path().to_str().unwrap()), "{error}");
    }
}
