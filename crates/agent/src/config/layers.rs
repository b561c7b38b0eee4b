//! Layers of settings and where each value came from. Later layers win; a project's layer may only do what the table of
//! keys lets a project do, and what it may not is said.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use boundary::file::{self, FileError};

use serde::{Serialize, Serializer};
use toml::{Table, Value};

use super::error::{ConfigError, did_you_mean};
use super::keys::{self, ByProject, Key, Kind};

/// Files larger than this are no configuration.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody said anything.
    Default,
    /// The user's file.
    User(PathBuf),
    /// A project's file.
    Project(PathBuf),
    /// A profile of the user's file.
    Profile(String),
    /// An environment variable.
    Environment(String),
    /// `-c key=value`, or an option such as `-m` that stands for one.
    CommandLine,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::User(path) | Self::Project(path) => write!(f, "{}", path.display()),
            Self::Profile(name) => write!(f, "profile {name}"),
            Self::Environment(name) => write!(f, "${name}"),
            Self::CommandLine => f.write_str("command line"),
        }
    }
}

impl Serialize for Origin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A value and where it came from.
#[derive(Clone, Debug, Serialize)]
pub struct Setting {
    /// The value.
    pub value: Value,
    /// Who set it.
    pub origin: Origin,
}

/// A setting of a project that has no effect, because nobody said that the project is to be trusted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ignored {
    /// Its dotted key.
    pub key: String,
    /// What the project wants.
    pub value: Value,
    /// Where that stands.
    pub file: PathBuf,
}

/// Settings by path, and what was said about those that have no effect.
#[derive(Debug, Default)]
pub(crate) struct Layers {
    settings: BTreeMap<Vec<String>, Setting>,
    /// Whether the project's file that is added now is trusted.
    pub trusted: bool,
    /// What is not, and would have had an effect.
    pub ignored: Vec<Ignored>,
    pub warnings: Vec<String>,
}

impl Layers {
    /// The values that hold when nobody says anything.
    pub fn of_defaults() -> Self {
        let mut layers = Self::default();
        for key in keys::KEYS.iter().filter(|key| !key.default.is_empty() && !key.path.contains('*')) {
            let text = format!("value = {}", key.default);
            let mut table: Table = text.parse().expect("a test parses every default");
            if let Some(value) = table.remove("value") {
                layers.put(key.path.split('.').map(str::to_owned).collect(), value, Origin::Default);
            }
        }
        layers
    }

    /// Puts a table of settings over what is there.
    pub fn add(&mut self, table: &Table, origin: &Origin) -> Result<(), ConfigError> {
        self.add_below(&mut Vec::new(), table, origin)
    }

    fn add_below(&mut self, path: &mut Vec<String>, table: &Table, origin: &Origin) -> Result<(), ConfigError> {
        for (name, value) in table {
            path.push(name.clone());
            match (keys::find(path), value) {
                (Some(key), value) => self.set(key, path.clone(), value, origin)?,
                (None, Value::Table(inner)) if keys::is_group(path) => self.add_below(path, inner, origin)?,
                (None, _) if path[0] == "profiles" => self.profiles_elsewhere(path, origin),
                (None, _) => self.unknown(path, origin)?,
            }
            path.pop();
        }
        Ok(())
    }

    fn set(&mut self, key: &Key, path: Vec<String>, value: &Value, origin: &Origin) -> Result<(), ConfigError> {
        let name = path.join(".");
        if let Some(objection) = key.objection(value) {
            return Err(ConfigError::Value { key: name, objection, origin: origin.to_string() });
        }
        if let Origin::Project(file) = origin {
            if key.by_project == ByProject::Free && !self.trusted {
                self.ignored.push(Ignored { key: name, value: value.clone(), file: file.clone() });
                return Ok(());
            }
            let allowed = match key.by_project {
                ByProject::Free => true,
                ByProject::Never => false,
                ByProject::Stricter => !self.loosens(key, &path, value),
            };
            if !allowed {
                let what = if key.by_project == ByProject::Never { "set" } else { "loosen" };
                self.warnings.push(format!(
                    "{} may not {what} {name}, so that line has no effect; put it into your own config.toml",
                    file.display()
                ));
                return Ok(());
            }
        }
        self.put(path, value.clone(), origin.clone());
        Ok(())
    }

    /// Whether a value allows more than the one in force.
    fn loosens(&self, key: &Key, path: &[String], value: &Value) -> bool {
        let current = self.settings.get(path).map(|setting| &setting.value);
        match key.kind {
            Kind::Choice(choices) => {
                let rank = |value: &Value| choices.iter().position(|choice| value.as_str() == Some(choice));
                current.and_then(rank) < rank(value)
            }
            // `exclude_...` is stricter when true, everything else when false.
            Kind::Flag => {
                let strict = path.last().is_some_and(|last| last.starts_with("exclude"));
                value.as_bool() != Some(strict) && current != Some(value)
            }
            _ => true,
        }
    }

    fn profiles_elsewhere(&mut self, path: &[String], origin: &Origin) {
        let name = path.join(".");
        self.warnings.push(format!("{name} in {origin} has no effect: profiles belong into your own config.toml"));
    }

    /// A key nobody knows. In a file it is a warning, since files are shared between versions; on the command line, and
    /// where the nearest key is a safeguard, going on without it would not be what was asked.
    fn unknown(&mut self, path: &[String], origin: &Origin) -> Result<(), ConfigError> {
        let (key, nearest) = (path.join("."), keys::nearest(path));
        let safeguard =
            nearest.as_deref().is_some_and(|near| near.starts_with("sandbox") || near.starts_with("approval"));
        let from_outside = matches!(origin, Origin::Project(_));
        if keys::is_foreign(path) && *origin != Origin::CommandLine {
            self.warnings
                .push(format!("{key} in {origin} is a key of Codex that Flint does not have; it has no effect"));
            return Ok(());
        }
        if *origin == Origin::CommandLine || (safeguard && !from_outside) {
            return Err(ConfigError::Unknown { key, nearest, origin: origin.to_string() });
        }
        self.warnings.push(format!("there is no key {key} (from {origin}){}", did_you_mean(&nearest)));
        Ok(())
    }

    pub fn put(&mut self, path: Vec<String>, value: Value, origin: Origin) {
        self.settings.insert(path, Setting { value, origin });
    }

    /// The value at a path of one part.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.settings.get(&[key.to_owned()][..]).and_then(|setting| setting.value.as_str())
    }

    /// All values as one table, to be read as a whole.
    pub fn table(&self) -> Table {
        let mut root = Table::new();
        for (path, setting) in &self.settings {
            let (last, groups) = path.split_last().expect("a path has at least one part");
            let mut table = &mut root;
            for group in groups {
                let next = table.entry(group.clone()).or_insert_with(|| Value::Table(Table::new()));
                table = next.as_table_mut().expect("a path of the key table is either a group or a value");
            }
            table.insert(last.clone(), setting.value.clone());
        }
        root
    }

    /// Every value with its origin, by dotted key.
    pub fn settings(self) -> BTreeMap<String, Setting> {
        self.settings.into_iter().map(|(path, setting)| (path.join("."), setting)).collect()
    }
}

/// The table in a file; none when there is no such file.
pub(crate) fn read_file(path: &Path) -> Result<Option<Table>, ConfigError> {
    read_bytes(path, None)?.map(|bytes| parse(path, &bytes)).transpose()
}

/// What is in a file, which is what is judged and what is parsed; none when there is no such file. Where a root is given
/// the file must be in it.
pub(crate) fn read_bytes(path: &Path, root: Option<&Path>) -> Result<Option<Vec<u8>>, ConfigError> {
    let read = match root {
        Some(root) => file::read_below(root, path, FILE_BYTES_MAX),
        None => file::read(path, FILE_BYTES_MAX),
    };
    match read {
        Ok(bytes) => Ok(Some(bytes)),
        // Something is there when it is a link that leads nowhere, but nothing that could be read.
        Err(error) if error.is_missing() => Ok(None),
        Err(FileError::Io { path, source }) => Err(ConfigError::Read { path, source }),
        Err(error) => Err(ConfigError::Refused(error)),
    }
}

/// The table in the bytes of a file.
pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Table, ConfigError> {
    let syntax = |message: String| ConfigError::Syntax { origin: path.display().to_string(), message };
    let text = std::str::from_utf8(bytes).map_err(|error| syntax(error.to_string()))?;
    text.parse::<Table>().map_err(|error| syntax(error.to_string()))
}

/// The table in one `key=value`. What is no TOML value is taken as text, so that `-c model=name` needs no quotes.
pub(crate) fn read_override(text: &str) -> Result<Table, ConfigError> {
    let syntax = |message: &str| ConfigError::Syntax {
        origin: format!("-c {text}"),
        message: format!("{message}; write -c key=value, such as -c sandbox_mode=read-only"),
    };
    let (key, value) = text.split_once('=').ok_or_else(|| syntax("there is no ="))?;
    if value.contains('\n') || key.contains('\n') {
        return Err(syntax("it has more than one line"));
    }
    // A JSON string is a TOML string as well.
    let quoted = serde_json::Value::from(value.trim());
    let parsed = text.parse::<Table>().or_else(|_| format!("{key} = {quoted}").parse::<Table>());
    parsed.map_err(|_| syntax("the key is not one"))
}
