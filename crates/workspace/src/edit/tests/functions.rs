//! Answers that are functions, in each language, as models write them.

use proptest::prelude::*;

use super::*;

fn put(path: &str, old: &str, text: &str) -> Result<String, EditError> {
    resolve(&change(path, ChangeKind::Function { text: text.to_owned() }), Some(old))
}

/// The diff of what came of it, without the surroundings.
fn changed(path: &str, old: &str, text: &str) -> String {
    let new = put(path, old, text).unwrap();
    let diff = crate::diff::unified(old, &new);
    diff.lines().filter(|line| line.starts_with(['+', '-'])).map(|line| format!("{line}\n")).collect()
}

const PY: &str = r#"import os

LIMIT = 3


# Adds two numbers.
@cache
def add(a, b):
    """Adds."""
    return a - b


class Stack:
    """A stack."""

    def __init__(self):
        self.items = []

    @property
    def size(self):
        return len(self.items)

    def pop(self):
        return self.items.pop(0)


class Queue:
    def __init__(self):
        self.items = []

    def pop(self):
        return self.items.pop()


if __name__ == "__main__":
    add(1, 2)
"#;

#[test]
fn a_function_takes_the_place_of_its_namesake() {
    let answer = "def add(a, b):\n    \"\"\"Adds.\"\"\"\n    return a + b\n";
    assert_eq!(changed("a.py", PY, answer), "-    return a - b\n+    return a + b\n");
    // With its own comment, the old decorator stays.
    let commented = format!("# Sums.\n{answer}");
    assert_eq!(
        changed("a.py", PY, &commented),
        "-# Adds two numbers.\n+# Sums.\n-    return a - b\n+    return a + b\n"
    );
    // With its own decorator, the old comment stays.
    let decorated = format!("@lru_cache(8)\n{answer}");
    assert_eq!(changed("a.py", PY, &decorated), "-@cache\n+@lru_cache(8)\n-    return a - b\n+    return a + b\n");
    // Taking the decorator away is a change when it is the only one.
    let bare = "# Adds two numbers.\ndef add(a, b):\n    \"\"\"Adds.\"\"\"\n    return a - b\n";
    assert_eq!(changed("a.py", PY, bare), "-@cache\n");
}

#[test]
fn a_method_is_found_and_indented() {
    let expected = "-        return len(self.items)\n+        return len(self.items) + 0\n";
    let flat = "@property\ndef size(self):\n    return len(self.items) + 0\n";
    assert_eq!(changed("a.py", PY, flat), expected);
    let indented = "    @property\n    def size(self):\n        return len(self.items) + 0\n";
    assert_eq!(changed("a.py", PY, indented), expected);
    let within = "class Stack:\n    @property\n    def size(self):\n        return len(self.items) + 0\n";
    assert_eq!(changed("a.py", PY, within), expected);
    let elided = "class Stack:\n    # ... other methods unchanged ...\n\n    @property\n    def size(self):\n        return len(self.items) + 0\n";
    assert_eq!(changed("a.py", PY, elided), expected);
}

#[test]
fn two_methods_of_one_name_are_never_chosen_between() {
    let flat = "def pop(self):\n    return 1\n";
    let error = put("a.py", PY, flat).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, EditError::Ambiguous { .. }), "{text}");
    assert!(text.contains("Stack.pop (line 23)") && text.contains("Queue.pop (line 31)"), "{text}");
    let within = "class Queue:\n    def pop(self):\n        return self.items.pop(0)\n";
    let new = put("a.py", PY, within).unwrap();
    assert_eq!(new.matches("pop(0)").count(), 2);
    assert_eq!(new.matches("__init__").count(), 2, "what the answer leaves out stays");
}

#[test]
fn new_functions_and_imports_find_a_place() {
    let answer = "import os\nimport math\n\ndef add(a, b):\n    \"\"\"Adds.\"\"\"\n    return a - b\n\ndef sub(a, b):\n    return math.fabs(a - b)\n";
    let new = put("a.py", PY, answer).unwrap();
    assert!(new.starts_with("import os\nimport math\n\nLIMIT"), "{new}");
    assert!(
        new.contains("    return a - b\n\n\ndef sub(a, b):\n    return math.fabs(a - b)\n\n\nclass Stack"),
        "{new}"
    );
    let alone = put("a.py", PY, "def mul(a, b):\n    return a * b\n").unwrap();
    assert!(alone.contains("self.items.pop()\n\n\ndef mul(a, b):\n    return a * b\n\n\nif __name__"), "{alone}");
    let member = put("a.py", PY, "class Stack:\n    def push(self, x):\n        self.items.append(x)\n").unwrap();
    assert!(
        member.contains("pop(0)\n\n    def push(self, x):\n        self.items.append(x)\n\n\nclass Queue"),
        "{member}"
    );
    let lost = put("a.py", PY, "def push(self, x):\n    self.items.append(x)\n").unwrap_err().to_string();
    assert!(lost.contains("there is no `push`") && lost.contains("Stack.pop"), "{lost}");
}

#[test]
fn what_would_lose_work_is_refused() {
    let elided = "def add(a, b):\n    # ... existing code ...\n    return a + b\n";
    assert!(matches!(put("a.py", PY, elided), Err(EditError::Fragment { line: 2, .. })));
    let usage = "def add(a, b):\n    return a + b\n\nprint(add(1, 2))\n";
    let error = put("a.py", PY, usage).unwrap_err().to_string();
    assert!(error.contains("line 4") && error.contains("print"), "{error}");
    // Lines the file has are only surroundings.
    let surroundings = "def add(a, b):\n    return a + b\n\nif __name__ == \"__main__\":\n    add(1, 2)\n";
    assert!(put("a.py", PY, surroundings).is_ok());
    let half = "class Stack:\n    limit = 5\n\n    def pop(self):\n        return self.items.pop()\n";
    let new = put("a.py", PY, half).unwrap();
    assert!(
        new.contains("    \"\"\"A stack.\"\"\"\n    limit = 5\n\n    def __init__"),
        "what is not mentioned stays: {new}"
    );
    let stub = "class Stack:\n    def __init__(self):\n        # your code here\n        pass\n\n    def pop(self):\n        return self.items.pop()\n";
    assert_eq!(changed("a.py", PY, stub), "-        return self.items.pop(0)\n+        return self.items.pop()\n");
    let any_words = "def add(a, b):\n    # Here it goes on as it did.\n";
    assert!(matches!(put("a.py", PY, any_words), Err(EditError::Unclear { .. })), "there is nothing in it");
    assert!(matches!(put("a.txt", "a\n", "def f(): pass"), Err(EditError::Unclear { .. })));
    assert!(matches!(put("a.py", PY, "just words"), Err(EditError::Unclear { .. })));
}

#[test]
fn a_whole_class_is_replaced() {
    let answer = "class Queue:\n    \"\"\"A queue.\"\"\"\n\n    def __init__(self):\n        self.items = []\n\n    def pop(self):\n        return self.items.pop(0)\n\n    def push(self, x):\n        self.items.append(x)\n";
    let new = put("a.py", PY, answer).unwrap();
    assert!(new.contains("class Queue:\n    \"\"\"A queue.\"\"\"\n"), "{new}");
    assert!(new.contains("        self.items.append(x)\n\n\nif __name__"), "{new}");
}

const RS: &str = r#"use std::fmt;

/// A point.
#[derive(Debug)]
pub struct Point {
    x: i32,
}

impl Point {
    /// Makes one.
    pub fn new(x: i32) -> Self {
        Self { x: 0 }
    }

    #[must_use]
    fn len(&self) -> i32 {
        self.x
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.x)
    }
}

pub struct Other;

impl Other {
    pub fn new(x: i32) -> Self {
        Self
    }
}
"#;

#[test]
fn rust_functions() {
    assert_eq!(
        changed("a.rs", RS, "fn len(&self) -> i32 {\n    self.x.abs()\n}\n"),
        "-        self.x\n+        self.x.abs()\n"
    );
    let within = "impl Point {\n    pub fn new(x: i32) -> Self {\n        Self { x }\n    }\n}\n";
    assert_eq!(changed("a.rs", RS, within), "-        Self { x: 0 }\n+        Self { x }\n");
    let error = put("a.rs", RS, "pub fn new(x: i32) -> Self {\n    Self { x }\n}\n").unwrap_err().to_string();
    assert!(error.contains("impl Point.new (line 11)") && error.contains("impl Other.new"), "{error}");
    let type_and_new = "/// A point.\n#[derive(Debug)]\npub struct Point {\n    x: i32,\n    y: i32,\n}\n\nimpl Point {\n    /// How far up.\n    fn y(&self) -> i32 {\n        self.y\n    }\n}\n";
    let new = put("a.rs", RS, type_and_new).unwrap();
    assert!(new.contains("    x: i32,\n    y: i32,\n}"), "{new}");
    assert!(new.contains("        self.x\n    }\n\n    /// How far up.\n    fn y(&self)"), "{new}");
    assert_eq!(new.matches("fn new").count(), 2);
    let import = "use std::collections::HashMap;\n\nfn map() -> HashMap<u8, u8> {\n    HashMap::new()\n}\n";
    let new = put("a.rs", RS, import).unwrap();
    assert!(new.starts_with("use std::fmt;\nuse std::collections::HashMap;\n\n"), "{new}");
    assert!(new.ends_with("}\n\nfn map() -> HashMap<u8, u8> {\n    HashMap::new()\n}\n"), "{new}");
}

#[test]
fn script_functions() {
    let old = "import a from 'a'\n\n/** Adds. */\nexport function add(a, b) {\n  return a - b\n}\n\nexport class Cart {\n  #items = []\n\n  total() {\n    return 0\n  }\n\n  async load(id) {\n    return id\n  }\n}\n\nexport const twice = (x) => x * 3\n";
    assert_eq!(
        changed("a.ts", old, "export function add(a, b) {\n  return a + b\n}\n"),
        "-  return a - b\n+  return a + b\n"
    );
    assert_eq!(changed("a.ts", old, "total() {\n  return 1\n}\n"), "-    return 0\n+    return 1\n");
    assert_eq!(
        changed("a.ts", old, "  async load(id) {\n    return id + 1\n  }\n"),
        "-    return id\n+    return id + 1\n"
    );
    assert_eq!(
        changed("a.ts", old, "const twice = (x) => {\n  return x * 2\n}\n"),
        "-export const twice = (x) => x * 3\n+export const twice = (x) => {\n+  return x * 2\n+}\n"
    );
    assert_eq!(
        changed("a.ts", old, "const twice = (x) => x * 3\n"),
        "-export const twice = (x) => x * 3\n+const twice = (x) => x * 3\n"
    );
    let class = "class Cart {\n  total() {\n    return this.#items.length\n  }\n  // ... rest of the class ...\n}\n";
    assert_eq!(changed("a.ts", old, class), "-    return 0\n+    return this.#items.length\n");
}

#[test]
fn go_functions() {
    let old = "package main\n\nimport \"fmt\"\n\n// Push adds.\nfunc (s *Stack) Push(x int) {\n\ts.items = nil\n}\n\nfunc (q *Queue) Push(x int) {\n\tfmt.Println(x)\n}\n";
    let answer = "package main\n\nfunc (s *Stack) Push(x int) {\n    if x > 0 {\n        s.items = append(s.items, x)\n    }\n}\n";
    assert_eq!(
        changed("a.go", old, answer),
        "-\ts.items = nil\n+\tif x > 0 {\n+\t\ts.items = append(s.items, x)\n+\t}\n"
    );
    let new = put("a.go", old, "func (s *Stack) Pop() int {\n\treturn 0\n}\n").unwrap();
    assert!(new.ends_with("}\n\nfunc (s *Stack) Pop() int {\n\treturn 0\n}\n"), "{new}");
}

#[test]
fn c_and_java_functions() {
    let c = "#include <stdio.h>\n\nint add(int a, int b);\n\n/* Adds. */\nstatic int\nadd(int a, int b)\n{\n    return a - b;\n}\n";
    assert_eq!(
        changed("a.c", c, "static int\nadd(int a, int b)\n{\n    return a + b;\n}\n"),
        "-    return a - b;\n+    return a + b;\n"
    );
    let java = "class Shop {\n    /** Adds. */\n    @Override\n    public int add(int a) {\n        return a;\n    }\n\n    public int add(int a, int b) {\n        return a;\n    }\n}\n";
    assert_eq!(
        changed("A.java", java, "public int add(int a, int b) {\n    return a + b;\n}\n"),
        "-        return a;\n+        return a + b;\n"
    );
    let other = put("A.java", java, "public long add(long a, long b) {\n    return a + b;\n}\n");
    assert!(matches!(other, Err(EditError::Ambiguous { .. })), "{other:?}");
    let cpp = "struct A {\n    A(int a) : a_{a} {}\n    int get() const;\n    int a_;\n};\n\nint A::get() const {\n    return 0;\n}\n";
    assert_eq!(changed("a.cpp", cpp, "int A::get() const {\n    return a_;\n}\n"), "-    return 0;\n+    return a_;\n");
}

#[test]
fn code_on_shared_lines_is_left_alone() {
    let old = "class A { f() { return 1 } g() { return 2 } }\n";
    assert!(matches!(put("a.js", old, "class A {\n  f() {\n    return 3\n  }\n}\n"), Err(EditError::Unclear { .. })));
}

fn function() -> impl Strategy<Value = String> {
    ("[a-d]", proptest::collection::vec("[x-z]{1,2} = [0-9]{1,2}", 0..3)).prop_map(|(name, body)| {
        let body: String = body.iter().map(|line| format!("    {line}\n")).collect();
        format!("def {name}():\n{body}    return 1\n")
    })
}

proptest! {
    /// Every function of the answer is in the result, and every other function of the file is as it was.
    #[test]
    fn the_answer_arrives_and_the_rest_stays(file in proptest::collection::vec(function(), 0..6), answer in function()) {
        let text = file.join("\n\n");
        let name = |function: &str| function[..5].to_owned();
        match put("a.py", &text, &answer) {
            Ok(new) => {
                prop_assert!(new.contains(answer.trim_end()));
                for other in file.iter().filter(|other| name(other) != name(&answer)) {
                    prop_assert!(new.contains(other.as_str()));
                }
                prop_assert_eq!(put("a.py", &new, &answer).unwrap(), new, "a second time changes nothing");
            }
            Err(error) => {
                let times = file.iter().filter(|other| name(other) == name(&answer)).count();
                prop_assert!(times > 1, "{}", error);
            }
        }
    }

    #[test]
    fn no_answer_breaks_it(answer in "(def a\\(\\):\n|class A:\n|    def a\\(self\\):\n|    x = 1\n|@b\n|# ... rest unchanged\n|\n|import x\n|fn a\\(\\) \\{\n|\\}\n|impl A \\{\n|a\\(\\) \\{ \\}\n){0,8}") {
        for (path, old) in [("a.py", PY), ("a.rs", RS), ("a.ts", "a() {}\n"), ("a.py", "")] {
            let _ = put(path, old, &answer);
        }
    }
}

/// Every function of real code, sent back as it is, changes nothing; only names that stand twice are refused.
#[test]
fn real_code_sent_back_stays_as_it_is() {
    let mut folders: Vec<PathBuf> = match std::env::var_os("FLINT_TEST_SOURCES") {
        Some(folder) => vec![folder.into()],
        None => vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src")],
    };
    let (mut same, mut refused) = (0, 0);
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let Some(language) = index::outline::Language::of(&path) else { continue };
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            let text = with_line_feeds(&text);
            let lines: Vec<&str> = text.split_inclusive('\n').collect();
            let items = index::outline::items(language, &text);
            for item in items.iter().filter(|item| item.kind == index::outline::Kind::Function && item.whole_lines) {
                let answer = lines[item.lines.start..item.lines.end.min(lines.len())].concat();
                match put(path.to_str().unwrap(), &text, &answer) {
                    Ok(new) if new == text => same += 1,
                    Ok(new) => {
                        let diff = crate::diff::unified(&text, &new);
                        panic!("{} of {} came back differently:\n{diff}", item.path(), path.display());
                    }
                    Err(EditError::Ambiguous { .. }) => refused += 1,
                    Err(error) => panic!("{} of {}: {error}", item.path(), path.display()),
                }
            }
        }
    }
    println!("{same} stayed, {refused} have namesakes");
    assert!(same > 100 && refused * 3 < same, "{same} stayed, {refused} have namesakes");
}
