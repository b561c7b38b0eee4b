//! What a candidate must pass: the project's formatter, its compiler, and the command that was given.
//!
//! The formatter is not a judge here. Where the project's files are formatted, so is the candidate's; what a machine can
//! put right is no reason to throw an answer away. The compiler is, and it is cheaper to ask first than a test suite.

use std::path::{Path, PathBuf};
use std::time::Duration;

use workspace::edit::Written as NewFile;

use super::{Scratch, put};
use crate::CandidateState;
use crate::context::files::{FILE_BYTES_MAX, NAMED_BYTES_MAX, read_text};
use crate::failing::{Failing, talkative_python};
use crate::tools::{Commands, bounded};

/// Bytes of output kept of each check.
const OUTPUT_BYTES_MAX: usize = 8 << 10;

/// Bytes of a failed check that go into the table.
const TAIL_BYTES_MAX: usize = 2 << 10;

/// How long the check may take before anything was changed; whoever has longer ones should not wait for them twice.
const BEFORE_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs checks in copies of a workspace.
pub struct Checker {
    /// How commands are run.
    pub commands: Commands,
    /// The command that must succeed.
    pub command: Option<String>,
    /// For each check.
    pub timeout: Duration,
    /// A folder for what compilers produce, kept between candidates so that dependencies are built once.
    pub build: PathBuf,
    /// A folder for what makes Python say more.
    pub hooks: PathBuf,
}

/// What came of the checks.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Passed, failed or not applied.
    pub state: CandidateState,
    /// The files, formatted.
    pub files: Vec<NewFile>,
    /// What was run and what it printed.
    pub output: String,
}

impl Verdict {
    /// Something outside the candidate stood in the way.
    pub fn not_checked(files: Vec<NewFile>, why: String) -> Self {
        Self { state: CandidateState::NotApplied { why: why.clone() }, files, output: why }
    }
}

/// One command of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Step {
    name: &'static str,
    line: String,
    /// Relative to the workspace.
    folder: PathBuf,
}

impl Checker {
    /// Puts `files` into the copy at `root` and runs every check until one fails.
    pub async fn check(&self, root: &Path, mut files: Vec<NewFile>) -> Verdict {
        if let Err(error) = std::fs::create_dir_all(&self.build) {
            return Verdict::not_checked(files, format!("{}: {error}", self.build.display()));
        }
        // Which files were formatted is asked before they change.
        let mut fixes = Vec::new();
        for file in files.iter().filter(|file| file.new.is_some()) {
            if let Some(formatter) = Formatter::of(root, &file.path)
                && (file.old.is_none() || self.succeeds(root, &formatter.check).await)
            {
                fixes.push((file.path.clone(), formatter.fix));
            }
        }
        if let Err(error) = put(root, &files) {
            return Verdict::not_checked(files, format!("writing the copy: {error}"));
        }
        let mut output = String::new();
        for (path, fix) in fixes {
            // A formatter that fails met a syntax error, which the compiler says better.
            if self.succeeds(root, &fix).await
                && let Some(text) = read_text(root, &path, NAMED_BYTES_MAX)
                && let Some(file) = files.iter_mut().find(|file| file.path == path)
            {
                file.new = Some(text);
            }
        }
        for step in self.steps(root, &files) {
            let ran = match self.run(root, &step, self.timeout, None).await {
                Ok(ran) => ran,
                Err(why) => return Verdict::not_checked(files, why),
            };
            output.push_str(&format!("$ {}\n{}\n", step.line, bounded(&ran.output, OUTPUT_BYTES_MAX)));
            if ran.exit_code != Some(0) {
                let how = match ran.exit_code {
                    Some(code) => format!("exit code {code}"),
                    None if ran.timed_out => format!("not done after {:?}", self.timeout),
                    None => "killed".to_owned(),
                };
                output.push_str(&format!("[{how}]\n"));
                let tail = bounded(&format!("{}\n[{how}]", ran.output.trim_end()), TAIL_BYTES_MAX);
                let state = CandidateState::Failed { check: step.name.to_owned(), output: tail };
                return Verdict { state, files, output };
            }
        }
        Verdict { state: CandidateState::Passed, files, output }
    }

    /// What the given command says about the workspace as it is, tried in a copy at `place`; none when it succeeds, or says
    /// nothing in good time. Which assertion fails is worth more to a model than the word that one does.
    pub async fn failing(&self, workspace: &Path, place: PathBuf) -> Option<Failing> {
        let line = self.command.clone()?;
        std::fs::create_dir_all(&self.build).ok()?;
        let from = workspace.to_owned();
        let scratch = tokio::task::spawn_blocking(move || Scratch::copy(&from, place)).await.ok()?.ok()?;
        let step = Step { name: "check", line, folder: PathBuf::new() };
        let python = talkative_python(&self.hooks).ok()?;
        let ran = self.run(scratch.root(), &step, self.timeout.min(BEFORE_TIMEOUT), Some(&python)).await.ok()?;
        let failed = ran.exit_code.is_some_and(|code| code != 0) && !ran.output.trim().is_empty();
        failed.then(|| Failing::new(&step.line, &ran.output, scratch.root()))
    }

    async fn succeeds(&self, root: &Path, line: &str) -> bool {
        let step = Step { name: "format", line: line.to_owned(), folder: PathBuf::new() };
        self.run(root, &step, self.timeout, None).await.is_ok_and(|ran| ran.exit_code == Some(0))
    }

    async fn run(
        &self,
        root: &Path,
        step: &Step,
        timeout: Duration,
        more: Option<&(String, String)>,
    ) -> Result<crate::tools::Ran, String> {
        let build = self.build.display().to_string();
        let mut variables = vec![("CARGO_TARGET_DIR", build.as_str()), ("PYTHONDONTWRITEBYTECODE", "1")];
        variables.extend(more.map(|(name, value)| (name.as_str(), value.as_str())));
        let writable = [root, self.build.as_path()];
        self.commands.run_in(&writable, &root.join(&step.folder), &step.line, &variables, timeout).await
    }

    fn steps(&self, root: &Path, files: &[NewFile]) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::new();
        for file in files.iter().filter(|file| file.new.is_some()) {
            let step = compile(root, &file.path, self.command.as_deref());
            steps.extend(step.filter(|step| !steps.contains(step)));
        }
        let given = self.command.iter().map(|line| Step { name: "check", line: line.clone(), folder: PathBuf::new() });
        steps.extend(given);
        steps
    }
}

/// The command that says whether a file can be compiled, where there is a cheap one.
fn compile(root: &Path, path: &Path, given: Option<&str>) -> Option<Step> {
    let quoted = shell_word(path);
    let extension = path.extension()?.to_str()?;
    let step = |line: String, folder: &Path| Some(Step { name: "compile", line, folder: folder.to_owned() });
    match extension {
        "py" => {
            let python = tool(root, "python3")?;
            let program = "import sys; p = sys.argv[1]; compile(open(p, \"rb\").read(), p, \"exec\")";
            step(format!("{python} -I -c '{program}' {quoted}"), Path::new(""))
        }
        "js" | "mjs" | "cjs" => step(format!("{} --check {quoted}", tool(root, "node")?), Path::new("")),
        // A given cargo command compiles anyway.
        "rs" if !given.is_some_and(|line| line.trim_start().starts_with("cargo ")) => {
            let folder = above(root, path, "Cargo.toml")?;
            step(format!("{} check --quiet --offline --all-targets", tool(root, "cargo")?), &folder)
        }
        "go" => step(format!("{} vet ./...", tool(root, "go")?), &above(root, path, "go.mod")?),
        _ => None,
    }
}

/// How a project formats a file.
struct Formatter {
    /// Succeeds when the file is formatted.
    check: String,
    /// Formats it.
    fix: String,
}

impl Formatter {
    fn of(root: &Path, path: &Path) -> Option<Self> {
        let file = shell_word(path);
        let with = |check: String, fix: String| Some(Self { check, fix });
        match path.extension()?.to_str()? {
            "rs" => {
                let (rustfmt, edition) = (tool(root, "rustfmt")?, edition(root, path));
                with(
                    format!("{rustfmt} --check --edition {edition} {file}"),
                    format!("{rustfmt} --edition {edition} {file}"),
                )
            }
            "go" => {
                let gofmt = tool(root, "gofmt")?;
                with(format!("test -z \"$({gofmt} -l {file})\""), format!("{gofmt} -w {file}"))
            }
            "py" => {
                let project = read_text(root, Path::new("pyproject.toml"), FILE_BYTES_MAX).unwrap_or_default();
                let used = |name: &str| tool(root, name).filter(|_| project.contains(&format!("[tool.{name}")));
                if let Some(ruff) = used("ruff") {
                    with(format!("{ruff} format --check {file}"), format!("{ruff} format {file}"))
                } else if let Some(black) = used("black") {
                    with(format!("{black} --quiet --check {file}"), format!("{black} --quiet {file}"))
                } else {
                    None
                }
            }
            _ => None,
        }
    }
}

/// The edition of the crate a file is in; the newest that every rustfmt in use knows when none is said.
fn edition(root: &Path, path: &Path) -> String {
    let manifest = above(root, path, "Cargo.toml").map(|folder| folder.join("Cargo.toml"));
    let text = manifest.and_then(|path| read_text(root, &path, FILE_BYTES_MAX)).unwrap_or_default();
    let said = |line: &str| line.trim_start().strip_prefix("edition")?.split('"').nth(1).map(str::to_owned);
    text.lines().find_map(said).unwrap_or_else(|| "2021".to_owned())
}

/// The nearest folder above a file that has `name`, relative to the workspace.
fn above(root: &Path, path: &Path, name: &str) -> Option<PathBuf> {
    path.ancestors().skip(1).find(|folder| root.join(folder).join(name).is_file()).map(Path::to_owned)
}

/// A program as a word of a shell line: by its own path, and never one that the workspace or a copy of it brings along.
fn tool(root: &Path, name: &str) -> Option<String> {
    let mut never = boundary::program::current_workspace();
    never.push(root.to_owned());
    let path = boundary::program::find(name.as_ref(), &never)?;
    Some(format!("'{}'", path.to_str()?.replace('\'', "'\\''")))
}

/// A path as one word of a shell line, which cannot be taken for an option.
fn shell_word(path: &Path) -> String {
    format!("'./{}'", path.display().to_string().replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compiler_that_fits_the_file() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("a/src")).unwrap();
        std::fs::write(root.path().join("a/Cargo.toml"), "[package]\nedition = \"2024\"\n").unwrap();
        let line =
            |path: &str, given| compile(root.path(), Path::new(path), given).map(|step| (step.line, step.folder));
        let rust = line("a/src/lib.rs", None).unwrap();
        assert!(
            rust.0.starts_with("'/") && rust.0.ends_with("/cargo' check --quiet --offline --all-targets"),
            "{rust:?}"
        );
        assert_eq!(rust.1, PathBuf::from("a"));
        assert_eq!(line("a/src/lib.rs", Some("cargo test")), None, "cargo test compiles anyway");
        assert_eq!(line("b/src/lib.rs", None), None, "no crate");
        assert_eq!(edition(root.path(), Path::new("a/src/lib.rs")), "2024");
        assert!(line("it's.py", None).unwrap().0.ends_with(r"'./it'\''s.py'"));
        assert_eq!(line("notes.md", None), None);
    }
}
