//! What is gathered for a task, in small workspaces.

use super::*;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        for (path, text) in files {
            folder.write(path, text);
        }
        folder
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn gather(&self, text: &str, seen: &Seen) -> Gathered {
        gather(self.0.path(), &SharedIndex::new(self.0.path(), None), &Prompt::from(text), seen)
    }
}

fn names(shown: &[Shown]) -> Vec<&str> {
    shown.iter().map(|file| file.path.to_str().unwrap()).collect()
}

#[test]
fn a_small_folder_is_shown_whole_tests_last() {
    let folder =
        Folder::new(&[("test_module.py", "import module\n"), ("module.py", "def f(): pass\n"), ("a.png", "x")]);
    let gathered = folder.gather("fix the bug", &Seen::new());
    assert_eq!(names(&gathered.fresh), ["module.py", "test_module.py"]);
    assert_eq!(gathered.map, None);
}

#[test]
fn what_is_mentioned_is_shown_with_its_tests() {
    let long = "x = 1\n".repeat(2_000);
    let files =
        [("src/cart.py", "def total(): pass\n"), ("tests/test_cart.py", "t\n"), ("big.py", &long), ("b.py", "b\n")];
    let folder = Folder::new(&files);
    let gathered = folder.gather("In @src/cart.py, and @missing.py: fix b.py.", &Seen::new());
    assert_eq!(names(&gathered.fresh), ["src/cart.py", "b.py", "tests/test_cart.py"]);
    assert_eq!(gathered.notices.len(), 1);
    assert!(gathered.notices[0].contains("@missing.py"));
    let gathered = folder.gather("the total is wrong", &Seen::new());
    assert_eq!(names(&gathered.fresh), ["src/cart.py"]);
    assert!(gathered.map.unwrap().contains("src/cart.py: total"));
}

#[test]
fn a_file_is_shown_again_only_when_it_changed() {
    let folder = Folder::new(&[("a.py", "a\n"), ("b.py", "b\n")]);
    let first = folder.gather("do", &Seen::new());
    let seen: Seen = first.fresh.iter().map(|file| (file.path.clone(), hash(&file.text))).collect();
    folder.write("b.py", "c\n");
    let second = folder.gather("and now?", &seen);
    assert_eq!((names(&second.fresh), names(&second.known)), (vec!["b.py"], vec!["a.py"]));
}

#[test]
fn of_a_long_file_the_parts_that_fit_are_shown() {
    let mut text = String::from("import os\n\n");
    for number in 0..1_500 {
        text += &format!("def part_{number}(a):\n    return {number} + a + len(os.name)\n\n");
    }
    let folder = Folder::new(&[("long.py", &text)]);
    let gathered = folder.gather("part_700 in @long.py is wrong", &Seen::new());
    let excerpt = gathered.fresh[0].excerpt.as_deref().unwrap();
    assert!(excerpt.contains("return 700 + a") && !excerpt.contains("return 701 + a"));
    assert!(excerpt.len() < WHOLE_BYTES_MAX);
}
