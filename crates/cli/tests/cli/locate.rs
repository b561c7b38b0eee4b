//! `flint where`: lines and reasons, without a model.

use super::*;

#[test]
fn a_question_is_answered_with_a_line() {
    let (folder, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let write = |path: &str, text: &str| std::fs::write(folder.path().join(path), text).unwrap();
    write("retry.py", "class Retry:\n    def increment(self):\n        # one retry more\n        self.left -= 1\n");
    write("pool.py", "class Pool:\n    def get(self):\n        return self.queue.pop()\n");
    let find = |arguments: &[&str]| {
        let mut command = flint(&["where", "-C", folder.path().to_str().unwrap()]);
        command.args(arguments).env("FLINT_HOME", home.path());
        command.output().unwrap()
    };
    let found = find(&["who", "increments", "retries?"]);
    assert_eq!(stdout(&found), "retry.py:2  Retry.increment  (2 words: increment, retry)\n");
    assert_eq!((found.status.code(), stderr(&found).as_str()), (Some(0), ""));
    // The index was kept, and is brought up to date.
    assert_eq!(std::fs::read_dir(home.path().join("state/index")).unwrap().count(), 1);
    write("pool.py", "class Pool:\n    def evaporate(self):\n        pass\n");
    let found = find(&["--json", "-n", "1", "evaporate"]);
    let line: serde_json::Value = serde_json::from_str(&stdout(&found)).unwrap();
    assert_eq!((&line["places"][0]["path"], &line["places"][0]["line"]), (&"pool.py".into(), &2.into()));
    let nothing = find(&["the weather"]);
    assert_eq!(nothing.status.code(), Some(1));
    assert!(stderr(&nothing).contains("nothing in this folder has these words"), "{}", stderr(&nothing));
}
