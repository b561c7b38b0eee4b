//! Providers of models: where requests go, with which key, in which protocol.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use client::{ClientOptions, Transport, WireApi};
use serde::{Deserialize, Serialize};

use super::{Config, ConfigError};

/// The private server of this user, started when needed.
pub const LOCAL: &str = "flint";

/// One provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Provider {
    /// Its name for people.
    pub name: Option<String>,
    /// Where it is; none for the private server, whose socket is found when it is needed.
    pub base_url: Option<String>,
    /// The environment variable that holds its key.
    pub env_key: Option<String>,
    /// What to tell a person whose variable is empty.
    pub env_key_instructions: Option<String>,
    /// Which API it speaks.
    #[serde(default)]
    pub wire_api: WireApi,
    /// Whether to try a WebSocket; none tries.
    pub supports_websockets: Option<bool>,
    /// Tries after the first.
    pub request_max_retries: Option<u32>,
    /// Silence that means the peer is dead.
    pub stream_idle_timeout_ms: Option<u64>,
    /// Added to every address.
    #[serde(default)]
    pub query_params: BTreeMap<String, String>,
    /// Sent with every request.
    #[serde(default)]
    pub http_headers: BTreeMap<String, String>,
    /// Headers whose values are in these variables; left out where a variable is not set.
    #[serde(default)]
    pub env_http_headers: BTreeMap<String, String>,
}

impl Config {
    /// Whether requests go to the private server, whose address `local` finds.
    pub fn is_local(&self) -> bool {
        self.provider().base_url.is_none()
    }

    /// What a client of the provider in use is made from. `local_url` is the private server's address, used when the
    /// provider has none of its own.
    pub fn client_options(
        &self,
        local_url: Option<&str>,
        env: &HashMap<String, String>,
    ) -> Result<ClientOptions, ConfigError> {
        let provider = self.provider();
        let wrong = |problem: String| ConfigError::Provider { name: self.model_provider.clone(), problem };
        let url =
            provider.base_url.as_deref().or(local_url).ok_or_else(|| {
                wrong(format!("has no address; set model_providers.{}.base_url", self.model_provider))
            })?;
        let mut options = ClientOptions::new(url);
        let set = |name: &String| env.get(name).filter(|value| !value.is_empty()).cloned();
        if let Some(name) = &provider.env_key {
            options.api_key = Some(set(name).ok_or_else(|| {
                let help = provider.env_key_instructions.as_deref().unwrap_or("set it to your key");
                wrong(format!("takes its key from ${name}, which is not set; {help}"))
            })?);
        }
        options.headers = provider.http_headers.clone().into_iter().collect();
        options
            .headers
            .extend(provider.env_http_headers.iter().filter_map(|(header, name)| Some((header.clone(), set(name)?))));
        options.query = provider.query_params.clone().into_iter().collect();
        options.wire_api = provider.wire_api;
        if provider.supports_websockets == Some(false) {
            options.transport = Transport::Sse;
        }
        if let Some(retries) = provider.request_max_retries {
            options.limits.retries = retries;
        }
        if let Some(idle) = provider.stream_idle_timeout_ms {
            options.timeouts.sse_idle = Duration::from_millis(idle);
        }
        Ok(options)
    }
}

/// The providers everybody has. A user's own entry of the same name wins.
pub(crate) fn add_built_in(providers: &mut BTreeMap<String, Provider>) {
    let name = |name: &str| Provider { name: Some(name.to_owned()), ..Provider::default() };
    providers.entry(LOCAL.to_owned()).or_insert_with(|| name("Flint, on this machine"));
    providers.entry("openai".to_owned()).or_insert_with(|| Provider {
        base_url: Some("https://api.openai.com/v1".to_owned()),
        env_key: Some("OPENAI_API_KEY".to_owned()),
        ..name("OpenAI")
    });
}

pub(crate) fn unknown(config: &Config) -> ConfigError {
    let known: Vec<&str> = config.model_providers.keys().map(String::as_str).collect();
    let problem = format!("is not configured; there are {}. Add a table [model_providers.NAME]", known.join(", "));
    ConfigError::Provider { name: config.model_provider.clone(), problem }
}
