//! Finds the files a task is about when it names none.

use std::path::PathBuf;

use index::Index;

/// Words of tasks that say nothing about where, beside those of every question.
const COMMON: &[&str] = &[
    "fix", "bug", "add", "make", "new", "change", "write", "work", "works", "pass", "passes", "fail", "fails", "error",
    "files", "test", "tests",
];

/// Files that fit the task, best first.
pub fn search(index: &Index, task: &str) -> Vec<PathBuf> {
    let is_common = |word: &str| COMMON.contains(&word.to_lowercase().as_str());
    let words = index::terms::identifiers(task).map(|(_, word)| word).filter(|word| !is_common(word));
    let question = words.collect::<Vec<&str>>().join(" ");
    index.rank(&question).into_iter().map(|hit| hit.path.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_file_that_defines_the_thing_comes_first() {
        let mut index = Index::new(Path::new("/p"));
        index.put(Path::new("cart.py"), "def total_price(items):\n    return sum(items)\n");
        index.put(
            Path::new("view.py"),
            "from cart import total_price\n\n\ndef view():\n    print(total_price([]))\n    print(total_price([1]))\n",
        );
        index.put(Path::new("other.py"), "def unrelated():\n    fix()\n");
        let paths = search(&index, "total_price ignores the discount");
        assert_eq!(paths, [Path::new("cart.py"), Path::new("view.py")]);
        assert!(search(&index, "fix the bug").is_empty());
    }
}
