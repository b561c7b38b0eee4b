//! Blocks as models write them, and where they belong.

mod generated;

use proptest::prelude::*;

use super::*;

const MODULE: &str = "from typing import List\n\n\ndef first(a):\n    return a[0]\n\n\ndef last(a):\n    return a[1]\n";
const TEST: &str = "from module import last\n\ndef check(f):\n    assert f([1, 2, 3]) == 3\n\ncheck(last)\n";

struct World {
    folder: tempfile::TempDir,
    files: Vec<Shown>,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let shown = |path: &str, text: &str| {
            std::fs::create_dir_all(folder.path().join(path).parent().unwrap()).unwrap();
            std::fs::write(folder.path().join(path), text).unwrap();
            Shown { path: path.into(), text: text.to_owned(), excerpt: None }
        };
        let files = vec![shown("src/module.py", MODULE), shown("test_module.py", TEST)];
        Self { folder, files }
    }

    fn around(&self) -> Surroundings<'_> {
        Surroundings { root: self.folder.path(), files: &self.files, task: Task::default(), request: "" }
    }

    fn target(&self, info: &str, heading: &str, text: &str) -> Option<String> {
        let head = Head { info: info.to_owned(), heading: heading.to_owned() };
        target(&head, text, &self.around()).map(|path| path.display().to_string())
    }

    fn rewrite(&self, text: &str) -> String {
        let head = Head { info: "python".to_owned(), heading: String::new() };
        super::all(&[(&head, text)], &self.around()).unwrap().files.remove(0).1
    }
}

#[test]
fn a_file_is_named_in_many_ways() {
    let world = World::new();
    let module = Some("src/module.py".to_owned());
    assert_eq!(world.target("python src/module.py", "", "x"), module);
    assert_eq!(world.target("python:src/module.py", "", "x"), module);
    assert_eq!(world.target("src/module.py", "", "x"), module);
    assert_eq!(world.target("python title=\"src/module.py\"", "", "x"), module);
    assert_eq!(world.target("python", "**src/module.py**", "x"), module);
    assert_eq!(world.target("python", "### File: `module.py`:", "x"), module);
    assert_eq!(world.target("python", "Here is the corrected `module.py`:", "x"), module);
    assert_eq!(world.target("python", "", "# src/module.py\nx = 1\n"), module);
    assert_eq!(world.target("python", "Here it is:", "def last(a):\n    return a[-1]\n"), module);
    assert_eq!(world.target("python", "new.py", "x = 1\n"), Some("new.py".to_owned()));
    assert_eq!(world.target("python", "docs/new.py", "def other(): pass\n"), Some("docs/new.py".to_owned()));
}

#[test]
fn something_new_goes_to_the_only_file_it_can_mean() {
    let mut world = World::new();
    let new = "def middle(a):\n    return a[len(a) // 2]\n";
    assert_eq!(world.target("python", "", new), Some("src/module.py".to_owned()));
    assert_eq!(world.target("rust", "", new), None);
    assert!(world.rewrite(new).ends_with("    return a[1]\n\n\ndef middle(a):\n    return a[len(a) // 2]\n"));
    world.files.push(Shown { path: "b.py".into(), text: "x = 1\n".to_owned(), excerpt: None });
    assert_eq!(world.target("python", "", new), None);
}

#[test]
fn examples_are_no_edits() {
    let world = World::new();
    let question = Surroundings { task: Task { question: true, ..Task::default() }, ..world.around() };
    assert_eq!(target(&Head::default(), "def last(a):\n    return a[-1]\n", &question), None);
    assert_eq!(world.target("sh", "Run the tests:", "python3 test_module.py\n"), None);
    assert_eq!(world.target("python", "Use it like this:", "print(last([1]))\n"), None);
    assert_eq!(world.target("", "../outside.py", "x\n"), None);
}

#[test]
fn a_function_goes_to_its_place_and_brings_its_imports() {
    let world = World::new();
    let new = world.rewrite("import math\n\ndef last(a):\n    return a[-1]\n\n# Example\nprint(last([1, 2]))\n");
    assert_eq!(new, MODULE.replace("List\n", "List\nimport math\n").replace("a[1]", "a[-1]"));
}

#[test]
fn what_belongs_to_the_test_does_not_come_along() {
    let world = World::new();
    let new = world.rewrite("def last(a):\n    return a[-1]\n\ndef check(f):\n    assert f([1]) == 1\n\ncheck(last)\n");
    assert_eq!(new, MODULE.replace("a[1]", "a[-1]"));
}

#[test]
fn a_whole_file_is_a_whole_file() {
    let world = World::new();
    let whole = MODULE.replace("a[1]", "a[-1]").replace("List", "Sequence");
    assert_eq!(world.rewrite(&whole), whole);
    let half = "from typing import List\n\n\ndef last(a):\n    return a[-1]\n";
    assert_eq!(world.rewrite(half), MODULE.replace("a[1]", "a[-1]"));
}

#[test]
fn a_diff_is_applied_whatever_its_numbers_say() {
    let world = World::new();
    let head = Head { info: "diff".to_owned(), heading: String::new() };
    let diff = "--- a/src/module.py\n+++ b/src/module.py\n@@ -70,2 +70,2 @@\n def last(a):\n-    return a[1]\n+    return a[-1]\n";
    let new = all(&[(&head, diff)], &world.around()).unwrap().files.remove(0).1;
    assert_eq!(new, MODULE.replace("a[1]", "a[-1]"));
}

#[test]
fn what_is_not_reached_yet_is_kept() {
    let world = World::new();
    let head = Head { info: "python".to_owned(), heading: String::new() };
    let grow = |text: &str| so_far(Path::new("src/module.py"), &head, text, &world.around());
    assert_eq!(grow("import math\n"), None);
    let (old, new) = grow("def last(a):\n    return a[-1]\n").unwrap();
    let (diff, lines) = workspace::diff::growing(&old, &new);
    assert_eq!(lines, (1, 0), "{diff}");
    let (old, new) = grow("def last(a):\n").unwrap();
    assert_eq!(workspace::diff::growing(&old, &new).1, (0, 0));
}

proptest! {
    /// Whatever a model writes, nothing breaks.
    #[test]
    fn no_answer_breaks_it(
        info in "(python|diff|markdown|toml|sh| src/module.py| new.toml|é){0,2}",
        text in "(def last\\(a\\):\n|class A:\n|    def b\\(self\\):\n|    x = 1\n|    return 1\n|# \\.\\.\\.\n|pass\n|\n|é\u{3000}\n|@@ -1 \\+1 @@\n|\\+x\n|-def last\\(a\\):\n|--- a/x\n|\\+\\+\\+ b/src/module.py\n|\\*\\*\\* Begin Patch\n|# A\n|\\[a\\]\n|k = 1\n|import os\n|\"\"\"){0,12}",
        request in "(remove |last| and |delete `first`|\\.|é|Entferne | module.py| löschen){0,6}",
    ) {
        let world = World::new();
        let around = Surroundings { request: &request, ..world.around() };
        let head = Head { info, heading: "`src/module.py`".to_owned() };
        let _ = all(&[(&head, &text), (&head, &text)], &around);
        let _ = so_far(Path::new("src/module.py"), &head, &text, &around);
        let _ = target(&head, &text, &around);
    }
}
