//! The tasks of a set, and the folder each becomes.

use std::fs;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::Language;

/// One broken function.
pub struct Task {
    /// Its name in the set.
    pub id: String,
    /// The broken module.
    pub module: String,
    /// The test file.
    pub tests: String,
    /// What kind of mistake was made.
    pub bug: String,
    language: Language,
    /// Only for judging the set itself.
    reference: String,
}

#[derive(Deserialize)]
struct Line {
    task_id: String,
    prompt: String,
    declaration: String,
    canonical_solution: String,
    buggy_solution: String,
    test: String,
    bug_type: String,
}

/// Reads a set.
pub fn read(path: &Path, language: Language, docstring: bool) -> Result<Vec<Task>> {
    let file = fs::File::open(path).with_context(|| format!("opening {}", path.display()))?;
    let mut text = String::new();
    flate2::read::GzDecoder::new(file)
        .read_to_string(&mut text)
        .with_context(|| format!("reading {}", path.display()))?;
    text.lines()
        .map(|line| {
            let line: Line = serde_json::from_str(line).context("a line of the set")?;
            Ok(Task::new(line, language, docstring))
        })
        .collect()
}

impl Task {
    fn new(line: Line, language: Language, docstring: bool) -> Self {
        // `prompt` is the declaration with a docstring; the set's own rule for repairs is to leave the docstring out.
        let head = if docstring { line.prompt } else { line.declaration };
        let head = head.replace("fn main(){}", "");
        let module = |body: &str| language.whole_module(&head, body);
        Self {
            module: module(&line.buggy_solution),
            reference: module(&line.canonical_solution),
            tests: language.test_file(&line.test),
            id: line.task_id,
            bug: line.bug_type,
            language,
        }
    }

    /// The module as it should be.
    pub fn reference(&self) -> String {
        self.reference.clone()
    }

    /// Makes the folder, with `module` as the module and `lock` as the versions of its crates.
    pub fn write(&self, folder: &Path, module: &str, lock: Option<&str>) -> Result<()> {
        let write = |name: &str, text: &str| -> Result<()> {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().context("a file is in a folder")?)?;
            fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
        };
        write(self.language.module(), module)?;
        write(self.language.tests(), &self.tests)?;
        if self.language == Language::Rust {
            write("Cargo.toml", MANIFEST)?;
        }
        if let Some(lock) = lock {
            write("Cargo.lock", lock)?;
        }
        Ok(())
    }
}

/// The crates that the set's modules name at their top. Two test files call `gen_range` as it was before rand 0.8.
pub const MANIFEST: &str = "[package]\nname = \"functions\"\nversion = \"0.1.0\"\nedition = \"2018\"\n\n[dependencies]\n\
    md5 = \"0.7\"\nrand = \"0.7\"\nregex = \"1\"\n\n[workspace]\n";

impl Language {
    /// Where the broken module is.
    pub fn module(self) -> &'static str {
        match self {
            Self::Python => "functions.py",
            Self::Rust => "src/lib.rs",
        }
    }

    fn tests(self) -> &'static str {
        match self {
            Self::Python => "test_functions.py",
            Self::Rust => "src/tests.rs",
        }
    }

    /// The command that runs the tests. Generated code likes to run for ever and to fill the memory; compilers reserve
    /// more of it than they use.
    pub fn check(self) -> &'static str {
        match self {
            Self::Python => "ulimit -v 2000000; timeout 20 python3 test_functions.py",
            Self::Rust => "cargo test --offline --quiet",
        }
    }

    /// What a person would say. Chosen once, before the first run.
    pub fn prompt(self) -> &'static str {
        match self {
            Self::Python => "The tests in @test_functions.py fail. Fix the bug in @functions.py.",
            Self::Rust => "The tests in @src/tests.rs fail. Fix the bug in @src/lib.rs.",
        }
    }

    fn whole_module(self, head: &str, body: &str) -> String {
        let text = format!("{}\n{}\n", head.trim_end_matches('\n'), body.trim_end().trim_start_matches('\n'));
        let text = text.trim_start_matches('\n');
        match self {
            Self::Python => text.to_owned(),
            Self::Rust => format!("{text}\n#[cfg(test)]\nmod tests;\n"),
        }
    }

    fn test_file(self, test: &str) -> String {
        let test = test.trim();
        match self {
            Self::Python => format!("from functions import *\n\n\n{test}\n"),
            Self::Rust => {
                // The set has the tests as a module inside the file; here it is a file of its own.
                let inside = test.split_once('{').map_or(test, |(_, rest)| rest);
                let inside = inside.rsplit_once('}').map_or(inside, |(inside, _)| inside);
                let line = |line: &str| format!("{}\n", line.strip_prefix("    ").unwrap_or(line).trim_end());
                inside.trim_matches('\n').lines().map(line).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> Line {
        let fields = serde_json::json!({"task_id": "X/0", "prompt": "def f(a):\n    \"\"\" Doubles. \"\"\"\n", "declaration": "def f(a):\n",
            "canonical_solution": "    return 2 * a\n", "buggy_solution": "    return 3 * a\n",
            "test": "\n\ndef check(f):\n    assert f(1) == 2\n\ncheck(f)", "bug_type": "value misuse"});
        serde_json::from_value(fields).unwrap()
    }

    #[test]
    fn a_task_is_a_folder_without_its_answer() {
        let folder = tempfile::tempdir().unwrap();
        let task = Task::new(line(), Language::Python, false);
        task.write(folder.path(), &task.module, None).unwrap();
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!(read("functions.py"), "def f(a):\n    return 3 * a\n");
        assert_eq!(
            read("test_functions.py"),
            "from functions import *\n\n\ndef check(f):\n    assert f(1) == 2\n\ncheck(f)\n"
        );
        let files = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(files, 2);
        assert!(Task::new(line(), Language::Python, true).module.contains("Doubles"));
    }

    #[test]
    fn rust_tests_become_a_file() {
        let test = "\n#[cfg(test)]\nmod tests {\n    use super::*;\n\n    #[test]\n    fn f_() {\n        assert!(true);\n    }\n}\n";
        assert_eq!(Language::Rust.test_file(test), "use super::*;\n\n#[test]\nfn f_() {\n    assert!(true);\n}\n");
        assert_eq!(
            Language::Rust.whole_module("\nfn f(){\n", "\n    g()\n}\n"),
            "fn f(){\n    g()\n}\n\n#[cfg(test)]\nmod tests;\n"
        );
    }
}
