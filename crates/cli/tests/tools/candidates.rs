//! Whole tries with written answers instead of a model's, and real commands as checks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agent::candidates::{Author, Checker, Sampling, Taken, Trial, Tried, Written, best, keep_evidence};
use agent::{CandidateRow, CandidateState, Event};
use tokio::sync::mpsc;
use workspace::edit::Written as NewFile;

use crate::commands;

/// Candidate N gets the Nth text for `a.py`; none is an answer that cannot be applied.
struct Scripted {
    texts: Vec<Option<&'static str>>,
    asked: Arc<AtomicUsize>,
}

impl Author for Scripted {
    async fn write(&self, sampling: Sampling, _taken: &Taken) -> Result<Written, String> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let text = self.texts[sampling.seed as usize - 1];
        let files = text
            .ok_or_else(|| "no code in the answer".to_owned())
            .map(|text| vec![NewFile { path: "a.py".into(), old: Some(OLD.to_owned()), new: Some(text.to_owned()) }]);
        Ok(Written { answer: text.unwrap_or("Sorry.").to_owned(), files, usage: Default::default() })
    }
}

const OLD: &str = "def f(a):\n    return a\n";
const SMALL: &str = "def f(a):\n    return 2 * a\n";
const LARGE: &str = "def f(a):\n    b = a\n    b += a\n    return b\n";
const WRONG: &str = "def f(a):\n    return 3 * a\n";
const BROKEN: &str = "def f(a)\n    return 2 * a\n";

async fn attempt(
    texts: &[Option<&'static str>],
    check: &str,
) -> (Vec<Tried>, Vec<Vec<CandidateRow>>, [tempfile::TempDir; 2]) {
    let (workspace, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(workspace.path().join("a.py"), OLD).unwrap();
    let (progress, mut heard) = mpsc::channel(1000);
    let trial = Trial {
        workspace: workspace.path().to_owned(),
        place: place.path().to_owned(),
        count: texts.len(),
        temperature: 0.0,
        checker: Checker {
            commands: commands(),
            command: Some(check.to_owned()),
            timeout: Duration::from_secs(20),
            build: place.path().join("build"),
            hooks: place.path().join("hooks"),
        },
        checks_at_once: 2,
    };
    let author = Scripted { texts: texts.to_vec(), asked: Arc::default() };
    let asked = Arc::clone(&author.asked);
    let tried = trial.run(author, progress).await;
    assert_eq!(asked.load(Ordering::Relaxed), texts.len());
    let mut rows = Vec::new();
    while let Ok(Event::Candidates { rows: now, .. }) = heard.try_recv() {
        rows.push(now);
    }
    assert_eq!(std::fs::read_to_string(workspace.path().join("a.py")).unwrap(), OLD, "the workspace is only read");
    assert_eq!(std::fs::read_dir(workspace.path()).unwrap().count(), 1, "and nothing is left in it");
    let left: Vec<_> = std::fs::read_dir(place.path())
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name() != "build")
        .collect();
    assert!(left.is_empty(), "copies are removed: {left:?}");
    (tried, rows, [workspace, place])
}

const CHECK: &str = "python3 -c 'from a import f; assert f(4) == 8'";

#[tokio::test]
async fn the_smallest_that_passes_is_offered() {
    let texts = [Some(WRONG), Some(LARGE), None, Some(BROKEN), Some(SMALL), Some(OLD)];
    let (tried, rows, _workspace) = attempt(&texts, CHECK).await;
    let states: Vec<_> = tried.iter().map(|tried| &tried.row.state).collect();
    assert!(
        matches!(states[0], CandidateState::Failed { check, output } if check == "check" && output.contains("AssertionError"))
    );
    assert_eq!((states[1], states[4]), (&CandidateState::Passed, &CandidateState::Passed));
    assert!(matches!(states[2], CandidateState::NotApplied { why } if why.contains("no code")));
    assert!(
        matches!(states[3], CandidateState::Failed { check, output } if check == "compile" && output.contains("SyntaxError"))
    );
    assert!(matches!(states[5], CandidateState::NotApplied { why } if why.contains("changes nothing")));
    assert_eq!(best(&tried).unwrap().row.candidate, 5);
    assert_eq!(tried[4].row.lines, (1, 1));
    assert!(tried[4].diff.contains("+    return 2 * a"), "{}", tried[4].diff);
    let first = &rows[0];
    assert!(first.len() == 6 && first.iter().all(|row| row.state == CandidateState::Writing));
    assert!(rows.iter().any(|rows| rows.iter().any(|row| row.state == CandidateState::Checking)));
}

#[tokio::test]
async fn equal_answers_are_checked_once_and_judged_alike() {
    // Of all folders that outlive a candidate, a check may write to this one alone.
    let check = format!("echo x >> $CARGO_TARGET_DIR/count; {CHECK}");
    let (tried, _, [_, place]) = attempt(&[Some(SMALL), Some(SMALL), Some(SMALL)], &check).await;
    assert!(tried.iter().all(|tried| tried.row.state == CandidateState::Passed));
    assert_eq!(std::fs::read_to_string(place.path().join("build/count")).unwrap(), "x\n");
    assert_eq!(best(&tried).unwrap().row.candidate, 1);
}

#[tokio::test]
async fn when_none_passes_the_evidence_is_kept() {
    let (tried, _, _workspace) = attempt(&[Some(WRONG), None], CHECK).await;
    assert!(best(&tried).is_none());
    let folder = tempfile::tempdir().unwrap();
    let here = keep_evidence(folder.path(), "Double it.", &tried).unwrap();
    let read = |name: &str| std::fs::read_to_string(here.join(name)).unwrap();
    assert_eq!(read("task.md"), "Double it.");
    assert!(read("candidate-1/change.diff").contains("+    return 3 * a"));
    assert!(read("candidate-1/checks.txt").contains("AssertionError"));
    assert_eq!(read("candidate-2/answer.md"), "Sorry.");
    assert!(read("candidates.json").contains("not_applied"));
}

#[tokio::test]
async fn a_check_that_hangs_is_ended() {
    let (workspace, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let checker = Checker {
        commands: commands(),
        command: Some("sleep 60".to_owned()),
        timeout: Duration::from_millis(300),
        build: place.path().join("build"),
        hooks: place.path().join("hooks"),
    };
    let files = vec![NewFile { path: "notes.md".into(), old: None, new: Some("x".to_owned()) }];
    let verdict = checker.check(workspace.path(), files).await;
    assert!(matches!(verdict.state, CandidateState::Failed { output, .. } if output.contains("not done after")));
}

#[tokio::test]
async fn a_formatted_project_gets_a_formatted_candidate() {
    let (workspace, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (old, new) = ("fn one() -> u8 {\n    1\n}\n", "fn one() -> u8 { 2 }\n");
    let checker = Checker {
        commands: commands(),
        command: None,
        timeout: Duration::from_secs(20),
        build: place.path().join("build"),
        hooks: place.path().join("hooks"),
    };
    for (old, want) in [(old, "fn one() -> u8 {\n    2\n}\n"), ("fn one()->u8{1}\n", new)] {
        std::fs::write(workspace.path().join("a.rs"), old).unwrap();
        let files = vec![NewFile { path: "a.rs".into(), old: Some(old.to_owned()), new: Some(new.to_owned()) }];
        let verdict = checker.check(workspace.path(), files).await;
        assert_eq!(verdict.state, CandidateState::Passed, "{}", verdict.output);
        assert_eq!(
            verdict.files[0].new.as_deref(),
            Some(want),
            "a file that was not formatted stays as it was written"
        );
    }
}
