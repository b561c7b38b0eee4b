//! Every key the configuration knows, in one table: what kind of value it takes, what it is when nobody says, and whether a
//! project may say it. Validation, the nearest valid key, the environment and `flint config` all read this table, so a key
//! that is not here does not exist.

use toml::Value;

/// What a value must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Any text.
    Text,
    /// One of these.
    Choice(&'static [&'static str]),
    /// A whole number from 0.
    Count,
    /// A number in this range.
    Number(f64, f64),
    /// `true` or `false`.
    Flag,
    /// A list of texts.
    Texts,
}

/// What the file of a project may do with a key. A repository is other people's text: opening it must not send code to
/// another server or take a safeguard away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByProject {
    /// Set it, once its user trusts the folder; see [`crate::trust`].
    Free,
    /// Only make it stricter than the user has it.
    Stricter,
    /// Nothing.
    Never,
}

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its path; `*` stands for a name the user chooses.
    pub path: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// What a project may do with it.
    pub by_project: ByProject,
    /// Its value, as TOML, when nobody sets it. Empty when there is none.
    pub default: &'static str,
    /// What it does.
    pub about: &'static str,
}

const fn key(path: &'static str, kind: Kind, by_project: ByProject, default: &'static str, about: &'static str) -> Key {
    Key { path, kind, by_project, default, about }
}

/// Modes of the sandbox, the strictest first.
pub(crate) const SANDBOX_MODES: &[&str] = &["read-only", "workspace-write", "danger-full-access"];
/// When a person is asked, the strictest first.
pub(crate) const APPROVAL_POLICIES: &[&str] = &["untrusted", "on-request", "on-failure", "never"];
const STYLES: &[&str] = &["pair", "agent"];
const WIRE_APIS: &[&str] = &["responses", "chat"];
const INTENTS: &[&str] = &["auto", "answer", "change"];
const NAMES: &[&str] = &["off", "words", "imports", "members"];
const SCREENS: &[&str] = &["full", "inline"];
const COMMITS: &[&str] = &["off", "turn"];
const HISTORY: &[&str] = &["save-all", "none"];

use ByProject::{Free, Never, Stricter};
use Kind::{Choice, Count, Flag, Number, Text, Texts};

/// All keys, in the order `flint config show` prints them.
pub const KEYS: &[Key] = &[
    key("model", Text, Free, "", "the model; empty takes the provider's default"),
    key("style", Choice(STYLES), Free, "", "how to work with the model; when not set the model's entry decides"),
    key("model_provider", Text, Never, "\"flint\"", "who serves the model; `flint` is the private server"),
    key("model_context_window", Count, Free, "", "tokens the model's context holds; when not set the server says"),
    key("model_auto_compact_token_limit", Count, Free, "", "tokens in the context at which it is made shorter"),
    key("temperature", Number(0.0, 2.0), Free, "", "randomness of answers; when not set the server's default"),
    key("max_output_tokens", Count, Free, "", "longest answer in tokens"),
    key(
        "intent",
        Choice(INTENTS),
        Never,
        "\"auto\"",
        "whether messages change files: decided for each, never, or always",
    ),
    key(
        "names",
        Choice(NAMES),
        Never,
        "\"members\"",
        "what a name in an answer must be known by before it is written: any word, an import that leads somewhere, a member of its owner",
    ),
    key("check", Text, Free, "", "a shell command that must succeed after an edit"),
    key("commit", Choice(COMMITS), Never, "\"off\"", "`turn` commits what a turn changed, and nothing else, in git"),
    key("try.count", Count, Free, "5", "candidates of `/try`"),
    key("try.check", Text, Free, "", "the check of `/try`; when not set it is `check`"),
    key("approval_policy", Choice(APPROVAL_POLICIES), Stricter, "\"on-request\"", "when a person is asked"),
    key("sandbox_mode", Choice(SANDBOX_MODES), Stricter, "\"workspace-write\"", "what commands may touch"),
    key("sandbox_workspace_write.writable_roots", Texts, Never, "[]", "folders that may be written as well"),
    key("sandbox_workspace_write.network_access", Flag, Stricter, "false", "whether commands reach the network"),
    key("sandbox_workspace_write.exclude_slash_tmp", Flag, Stricter, "false", "/tmp may not be written"),
    key("sandbox_workspace_write.exclude_tmpdir_env_var", Flag, Stricter, "false", "$TMPDIR may not be written"),
    key("sandbox_workspace_write.environment", Texts, Never, "[]", "variables that commands get as well"),
    key("project_doc_max_bytes", Count, Free, "32768", "how much of the AGENTS.md files is read, in all"),
    key("history.persistence", Choice(HISTORY), Never, "\"save-all\"", "whether sessions are kept"),
    key("history.max_bytes", Count, Never, "", "size of the kept sessions above which the oldest go"),
    key(
        "screen",
        Choice(SCREENS),
        Never,
        "\"full\"",
        "draw on the whole screen, or inline: below what the terminal shows, whose scrollback keeps the conversation",
    ),
    key("tui.plain", Flag, Never, "false", "lines of text without a drawn screen, for screen readers"),
    key("tui.alternate_screen", Flag, Never, "true", "draw on the terminal's second screen"),
    key("profile", Text, Never, "", "the profile in use when no --profile is given"),
    key("model_providers.*.name", Text, Never, "", "its name for people"),
    key("model_providers.*.base_url", Text, Never, "", "such as http://host:port/v1 or unix:/path/to.sock"),
    key("model_providers.*.env_key", Text, Never, "", "the environment variable that holds the key"),
    key("model_providers.*.env_key_instructions", Text, Never, "", "what to tell a person whose variable is empty"),
    key("model_providers.*.wire_api", Choice(WIRE_APIS), Never, "\"responses\"", "which API it speaks"),
    key("model_providers.*.supports_websockets", Flag, Never, "", "whether to try a WebSocket; when not set, try"),
    key("model_providers.*.request_max_retries", Count, Never, "", "tries after the first"),
    key("model_providers.*.stream_idle_timeout_ms", Count, Never, "", "silence that means the peer is dead"),
    key("model_providers.*.query_params.*", Text, Never, "", "added to every address"),
    key("model_providers.*.http_headers.*", Text, Never, "", "sent with every request"),
    key("model_providers.*.env_http_headers.*", Text, Never, "", "headers whose values are in these variables"),
];

/// Keys people bring from Codex that have no meaning here. They are named, not obeyed.
const FOREIGN: &[&str] = &[
    "agents",
    "analytics",
    "approvals_reviewer",
    "compact_prompt",
    "default_permissions",
    "developer_instructions",
    "features",
    "feedback",
    "file_opener",
    "hide_agent_reasoning",
    "hooks",
    "mcp_servers",
    "memories",
    "model_catalog_json",
    "model_instructions_file",
    "model_reasoning_effort",
    "model_reasoning_summary",
    "model_verbosity",
    "notify",
    "otel",
    "permissions",
    "personality",
    "projects",
    "review_model",
    "service_tier",
    "shell_environment_policy",
    "show_raw_agent_reasoning",
    "skills",
    "tool_output_token_limit",
    "tools",
    "web_search",
];

/// The key with this path, names filled in.
pub(crate) fn find(path: &[String]) -> Option<&'static Key> {
    KEYS.iter().find(|key| {
        let mut parts = key.path.split('.');
        path.iter().all(|part| parts.next().is_some_and(|known| known == "*" || known == part))
            && parts.next().is_none()
    })
}

/// Whether something may stand below this path.
pub(crate) fn is_group(path: &[String]) -> bool {
    KEYS.iter().any(|key| {
        let parts: Vec<&str> = key.path.split('.').collect();
        parts.len() > path.len() && path.iter().zip(&parts).all(|(part, known)| *known == "*" || known == part)
    })
}

/// Whether Codex has this key and we do not.
pub(crate) fn is_foreign(path: &[String]) -> bool {
    path.first().is_some_and(|first| FOREIGN.contains(&first.as_str()))
}

/// The valid key most like this one, with the user's own names kept. None when nothing is alike.
pub(crate) fn nearest(path: &[String]) -> Option<String> {
    let written = path.join(".");
    let candidates = KEYS.iter().map(|key| {
        let mut own = path.iter();
        let parts: Vec<&str> =
            key.path.split('.').map(|part| (part, own.next())).map(|(part, own)| fill(part, own)).collect();
        parts.join(".")
    });
    let last = path.last().map(String::as_str).unwrap_or_default();
    let score = |candidate: &str| {
        let end = candidate.rsplit('.').next().unwrap_or_default();
        // A key in the wrong place counts as well as a misspelt one.
        strsim::jaro_winkler(&written, candidate).max(strsim::jaro_winkler(last, end) - 0.02)
    };
    let best = candidates.map(|candidate| (score(&candidate), candidate)).max_by(|a, b| a.0.total_cmp(&b.0))?;
    (best.0 > 0.82).then_some(best.1)
}

fn fill<'a>(part: &'a str, own: Option<&'a String>) -> &'a str {
    if part == "*" { own.map_or("NAME", String::as_str) } else { part }
}

impl Key {
    /// Why this value cannot be, in words that say what can.
    pub(crate) fn objection(&self, value: &Value) -> Option<String> {
        let wants = |what: &str| Some(format!("is {}, and must be {what}", describe(value)));
        match (self.kind, value) {
            (Kind::Text, Value::String(_)) | (Kind::Flag, Value::Boolean(_)) => None,
            (Kind::Choice(choices), Value::String(text)) if choices.contains(&text.as_str()) => None,
            (Kind::Choice(choices), _) => wants(&format!("one of {}", choices.join(", "))),
            (Kind::Count, Value::Integer(0..)) => None,
            (Kind::Count, _) => wants("a whole number from 0"),
            (Kind::Number(low, high), Value::Float(number)) if (low..=high).contains(number) => None,
            (Kind::Number(low, high), Value::Integer(number)) if (low..=high).contains(&(*number as f64)) => None,
            (Kind::Number(low, high), _) => wants(&format!("a number from {low} to {high}")),
            (Kind::Texts, Value::Array(list)) if list.iter().all(Value::is_str) => None,
            (Kind::Texts, _) => wants("a list of texts such as [\"a\", \"b\"]"),
            (Kind::Text, _) => wants("a text in quotes"),
            (Kind::Flag, _) => wants("true or false"),
        }
    }

    /// Whether the environment may set it: `FLINT_` and the key in capitals.
    pub(crate) fn variable(&self) -> Option<String> {
        let single = !self.path.contains(['.', '*']) && self.kind != Kind::Texts;
        single.then(|| format!("FLINT_{}", self.path.to_uppercase()))
    }
}

fn describe(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text:?}"),
        Value::Table(_) => "a table".to_owned(),
        other => serde_json::to_string(other).unwrap_or_else(|_| "something else".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Vec<String> {
        text.split('.').map(str::to_owned).collect()
    }

    #[test]
    fn misspelt_and_misplaced_keys_find_their_own() {
        let cases = [
            ("modle", Some("model")),
            ("sandbox-mode", Some("sandbox_mode")),
            ("approval_polcy", Some("approval_policy")),
            ("network_access", Some("sandbox_workspace_write.network_access")),
            ("model_providers.mine.baseurl", Some("model_providers.mine.base_url")),
            ("try.checks", Some("try.check")),
            ("zebra", None),
        ];
        for (written, expected) in cases {
            assert_eq!(nearest(&path(written)).as_deref(), expected, "{written}");
        }
    }

    #[test]
    fn every_default_is_a_value_its_key_takes() {
        for key in KEYS.iter().filter(|key| !key.default.is_empty()) {
            let value: toml::Table = format!("value = {}", key.default).parse().unwrap();
            assert_eq!(key.objection(&value["value"]), None, "{}", key.path);
            assert!(find(&path(key.path)).is_some() && !is_foreign(&path(key.path)), "{}", key.path);
        }
    }
}
