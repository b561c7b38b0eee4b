//! `flint exec --check` as a pipeline runs it: the real binary, a folder, and a model whose first answer may be wrong.

use std::process::Output;

use crate::attempt::{LONG, OLD, RIGHT, WRONG, model, run};

/// What a run ended with: exit code, the file, and what was said about it.
async fn exec(texts: &'static [&'static str], arguments: &[&str]) -> (Option<i32>, String, Output) {
    let (folder, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = folder.path().join("a.py");
    std::fs::write(&file, OLD).unwrap();
    let port = model(texts).await;
    let output = run("exec", folder.path(), state.path(), port, arguments).await;
    (output.status.code(), std::fs::read_to_string(&file).unwrap(), output)
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test]
async fn an_answer_that_fails_its_check_is_taken_back_and_another_is_asked_for() {
    let (code, file, output) = exec(&[WRONG, RIGHT], &[]).await;
    let said = errors(&output);
    assert_eq!((code, file.as_str()), (Some(0), RIGHT), "{said}");
    assert_eq!(said.matches("check: ").count(), 2, "{said}");
    assert!(said.contains("Flint asks the model for another answer"), "{said}");
    let out = String::from_utf8_lossy(&output.stdout);
    let diff = &out[out.rfind("--- a/a.py").unwrap()..];
    assert!(diff.contains("-    return a\n+    return 2 * a\n") && !diff.contains("3 * a"), "from the start: {diff}");
}

#[tokio::test]
async fn a_check_that_fails_at_the_end_is_an_exit_code_and_the_last_answer_stays() {
    let (code, file, output) = exec(&[WRONG, "def double(a):\n    return 4 * a\n"], &[]).await;
    assert_eq!((code, file.as_str()), (Some(4), "def double(a):\n    return 4 * a\n"), "{}", errors(&output));
    assert!(errors(&output).contains("the check failed; the edits stay"));
    let (code, file, output) = exec(&[WRONG, RIGHT], &["--repairs", "0"]).await;
    assert_eq!((code, file.as_str()), (Some(4), WRONG), "one answer and no more: {}", errors(&output));
}

#[tokio::test]
async fn an_answer_that_was_refused_is_not_given_again() {
    // The same again, then what is there already, then something else.
    let (code, file, output) = exec(&[WRONG, WRONG, OLD, LONG], &[]).await;
    assert_eq!((code, file.as_str()), (Some(0), LONG), "{}", errors(&output));
    let (code, file, output) = exec(&[WRONG, "def double(a):\n    return 4 * a\n", RIGHT], &["--repairs", "2"]).await;
    assert_eq!((code, file.as_str()), (Some(0), RIGHT), "{}", errors(&output));
}

#[tokio::test]
async fn without_another_answer_the_files_are_as_they_were() {
    let (code, file, output) = exec(&[WRONG, ""], &["--json"]).await;
    assert_eq!((code, file.as_str()), (Some(1), OLD), "{}", errors(&output));
    let out = String::from_utf8_lossy(&output.stdout);
    let failed = out.lines().find(|line| line.contains("turn.failed")).unwrap_or_else(|| panic!("{out}"));
    assert!(failed.contains("no code for a file"), "{failed}");
}

#[tokio::test]
async fn a_model_with_tools_is_told_what_fails_and_goes_on() {
    // It changes nothing, so nothing but the check can be the reason to ask again.
    let (code, file, output) = exec(&[""], &["-c", "style=\"agent\"", "--repairs", "2"]).await;
    let said = errors(&output);
    assert_eq!((code, file.as_str()), (Some(4), OLD), "{said}");
    assert_eq!((said.matches("check: ").count(), said.matches("another answer").count()), (3, 2), "{said}");
    let out = String::from_utf8_lossy(&output.stdout);
    assert_eq!(out.matches("I would rather not.").count(), 3, "{out}");
}
