//! Which addresses may be listened on.

use std::net::IpAddr;

/// Refuses to serve strangers. The text is for the person who typed `--host`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// The address can be reached from elsewhere and there are no keys.
    #[error(
        "refusing to listen on {0} without keys: whoever reaches that address could read and use everything here\n\
         write keys into a file, one per line, `chmod 600` it and pass `--api-key-file FILE`\n\
         keys and prompts cross the network in the clear unless there is TLS: pass `--tls-cert FILE --tls-key FILE`, \
         or stay on 127.0.0.1 behind a reverse proxy that has it"
    )]
    NoKeys(IpAddr),
}

/// Loopback is free to use; any other address, the unspecified ones included, needs keys.
pub fn check_bind(address: IpAddr, has_keys: bool) -> Result<(), BindError> {
    // `::ffff:127.0.0.1` is loopback as well.
    if has_keys || address.to_canonical().is_loopback() { Ok(()) } else { Err(BindError::NoKeys(address)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_goes_without_keys() {
        for (address, free) in [
            ("127.0.0.1", true),
            ("127.8.9.10", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("0.0.0.0", false),
            ("::", false),
            ("192.168.1.5", false),
            ("10.0.0.1", false),
            ("169.254.1.1", false),
            ("::ffff:10.0.0.1", false),
            ("fe80::1", false),
        ] {
            let parsed: IpAddr = address.parse().unwrap();
            assert_eq!(check_bind(parsed, false).is_ok(), free, "{address}");
            assert_eq!(check_bind(parsed, true), Ok(()), "{address}");
        }
    }

    #[test]
    fn the_refusal_says_what_to_do() {
        let text = check_bind("0.0.0.0".parse().unwrap(), false).unwrap_err().to_string();
        for part in ["0.0.0.0", "--api-key-file", "chmod 600", "--tls-cert", "--tls-key", "reverse proxy"] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
    }
}
