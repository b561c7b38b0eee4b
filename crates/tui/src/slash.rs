//! The commands that begin with a slash: one table that help, completion and parsing are all made from.

use agent::{Command, Prompt, RewindWhat, Style};

/// Candidates of `/try` when no number is given.
const TRY_COUNT: usize = 5;
/// Candidates at most; each needs room in the model's memory.
const TRY_COUNT_MAX: usize = 16;

/// One command.
pub struct Spec {
    /// With the slash.
    pub name: &'static str,
    /// What may follow.
    pub arguments: &'static str,
    /// What it does.
    pub help: &'static str,
    /// Words that can follow, for completion.
    pub choices: &'static [&'static str],
}

/// All of them, in the order of the help.
pub const COMMANDS: &[Spec] = &[
    spec("/try", "[N] [--check \"CMD\"] TASK", "make N candidates, check each, offer the smallest that passes"),
    spec("/choose", "N", "apply candidate N of the last try"),
    spec("/diff", "", "what this session changed"),
    spec("/where", "QUESTION", "say in which file and line something is, without the model"),
    spec("/commit", "[MESSAGE]", "commit what Flint changed, and nothing else; no hook runs"),
    spec("/undo", "[force]", "take back the files of the last turn; what others changed since only with force"),
    spec("/redo", "[force]", "take back the last undo"),
    spec("/rewind", "[TURN]", "go back to a turn: files, conversation or both"),
    spec("/model", "[NAME]", "use another model, or list them with their sizes"),
    spec("/profile", "[NAME]", "use another profile, or list them"),
    spec("/fast", "", "switch the profile `fast` on or off"),
    spec("/overrule", "", "take the last message for a change, or for a question if it was taken for one; also Ctrl-O"),
    spec("/add", "[PATH]", "keep a file before the model in every turn, or list those that are kept"),
    spec("/drop", "[PATH]", "keep it no longer; without a path none"),
    spec("/init", "", "write AGENTS.md with the commands of this project"),
    Spec { choices: &["pair", "agent"], ..spec("/style", "pair|agent", "how the partner works with the model") },
    Spec {
        choices: &["untrusted", "on-request", "on-failure", "never"],
        ..spec("/approvals", "[POLICY]", "when you are asked before something is done")
    },
    spec("/status", "", "what really serves, how fast, and what is allowed"),
    spec("/compact", "", "make the conversation shorter"),
    spec("/clear", "", "forget what was said; files, turns and /undo stay"),
    spec("/new", "", "begin an empty session"),
    spec("/resume", "[SESSION]", "go on with an earlier session"),
    spec("/sessions", "[WORDS]", "find sessions that contain these words"),
    spec("/fork", "", "go on with a copy of this session"),
    Spec { choices: &["diff"], ..spec("/copy", "[diff]", "copy the last answer, or its changes, to the clipboard") },
    spec("/queue", "TEXT", "ask after the running turn, as Tab does"),
    spec("/stop", "", "stop the running turn, as Esc does"),
    spec("/help", "", "this list"),
    spec("/quit", "", "leave; the session stays"),
];

const fn spec(name: &'static str, arguments: &'static str, help: &'static str) -> Spec {
    Spec { name, arguments, help, choices: &[] }
}

/// What a line with a slash means.
#[derive(Debug, PartialEq)]
pub enum Slash {
    /// Something for the partner.
    Tell(Command),
    /// Show the figures.
    Status,
    /// Choose a turn to go back to.
    Rewind(Option<u32>),
    /// Go back to a turn without the picker.
    RewindTo(u32, RewindWhat),
    /// Choose a session.
    Sessions(String),
    /// Copy the last answer, or its changes.
    Copy {
        /// The changes.
        diff: bool,
    },
    /// Show the help.
    Help,
    /// Leave.
    Quit,
}

/// Reads a line that begins with a slash, or with `!` before a command of the shell. A path such as `/etc/hosts is empty, why?` is no command and gives `None`.
pub fn parse(line: &str) -> Option<Result<Slash, String>> {
    let line = line.trim();
    if let Some(command) = line.strip_prefix('!') {
        let line = command.trim().to_owned();
        let usage = "say what to run, as in `!ls`";
        return Some(if line.is_empty() { Err(usage.to_owned()) } else { Ok(Slash::Tell(Command::Shell { line })) });
    }
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    if !name.starts_with('/') || name[1..].contains('/') {
        return None;
    }
    let rest = rest.trim();
    Some(match name {
        "/try" => parse_try(rest),
        "/choose" => number(rest, name).map(|candidate| Slash::Tell(Command::Choose { candidate })),
        "/diff" => Ok(Slash::Tell(Command::Diff)),
        "/where" if rest.is_empty() => Err("say what to look for, as in `/where who owns retries?`".to_owned()),
        "/where" => Ok(Slash::Tell(Command::Where { question: rest.to_owned() })),
        "/undo" => force(name, rest).map(|force| Slash::Tell(Command::Undo { force })),
        "/redo" => force(name, rest).map(|force| Slash::Tell(Command::Redo { force })),
        "/rewind" => parse_rewind(rest),
        "/model" => Ok(Slash::Tell(Command::Model { name: rest.to_owned() })),
        "/profile" => Ok(Slash::Tell(Command::Profile { name: rest.to_owned() })),
        "/fast" => Ok(Slash::Tell(Command::Fast)),
        "/style" => match rest {
            "pair" => Ok(Slash::Tell(Command::SetStyle(Style::Pair))),
            "agent" => Ok(Slash::Tell(Command::SetStyle(Style::Agent))),
            _ => Err("say `/style pair` or `/style agent`".to_owned()),
        },
        "/approvals" => Ok(Slash::Tell(Command::Approvals { policy: rest.to_owned() })),
        "/overrule" => Ok(Slash::Tell(Command::Overrule)),
        "/add" => Ok(Slash::Tell(Command::Add { path: rest.to_owned() })),
        "/drop" => Ok(Slash::Tell(Command::Drop { path: rest.to_owned() })),
        "/commit" => Ok(Slash::Tell(Command::Commit { message: rest.to_owned() })),
        "/init" => Ok(Slash::Tell(Command::Init)),
        "/clear" => Ok(Slash::Tell(Command::Clear)),
        "/status" => Ok(Slash::Status),
        "/compact" => Ok(Slash::Tell(Command::Compact)),
        "/new" => Ok(Slash::Tell(Command::New)),
        "/resume" if rest.is_empty() => Ok(Slash::Sessions(String::new())),
        "/resume" => Ok(Slash::Tell(Command::Resume { session: rest.to_owned() })),
        "/sessions" => Ok(Slash::Sessions(rest.to_owned())),
        "/fork" => Ok(Slash::Tell(Command::Fork)),
        "/copy" => match rest {
            "" => Ok(Slash::Copy { diff: false }),
            "diff" => Ok(Slash::Copy { diff: true }),
            _ => Err("say `/copy` for the last answer or `/copy diff` for its changes".to_owned()),
        },
        "/queue" if rest.is_empty() => Err("say what to ask, as in `/queue now add a test`".to_owned()),
        "/queue" => Ok(Slash::Tell(Command::Queue(prompt(rest)))),
        "/stop" => Ok(Slash::Tell(Command::Stop)),
        "/help" | "/?" => Ok(Slash::Help),
        "/quit" | "/exit" => Ok(Slash::Quit),
        other => Err(unknown(other)),
    })
}

fn force(name: &str, rest: &str) -> Result<bool, String> {
    match rest {
        "" => Ok(false),
        "force" => Ok(true),
        _ => Err(format!("say `{name}`, or `{name} force` to take back what others changed since as well")),
    }
}

fn parse_try(rest: &str) -> Result<Slash, String> {
    let usage = "say `/try 5 --check \"cargo test\" what to do`";
    let (mut count, mut check, mut rest) = (TRY_COUNT, None, rest);
    loop {
        let (word, after) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        if let Ok(number) = word.parse::<usize>() {
            if number == 0 || number > TRY_COUNT_MAX {
                return Err(format!("between 1 and {TRY_COUNT_MAX} candidates can be made, not {number}"));
            }
            count = number;
            rest = after.trim_start();
        } else if word == "--check" {
            let (command, after) = quoted(after.trim_start()).ok_or(usage)?;
            check = Some(command.to_owned());
            rest = after.trim_start();
        } else {
            break;
        }
    }
    if rest.is_empty() {
        return Err(usage.to_owned());
    }
    Ok(Slash::Tell(Command::Try { count, check, prompt: prompt(rest) }))
}

/// The first word, or what stands between quotes, and the rest.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next()?;
    if quote == '"' || quote == '\'' {
        text[1..].split_once(quote)
    } else {
        Some(text.split_once(char::is_whitespace).unwrap_or((text, "")))
    }
}

fn parse_rewind(rest: &str) -> Result<Slash, String> {
    let mut words = rest.split_whitespace();
    let Some(turn) = words.next() else {
        return Ok(Slash::Rewind(None));
    };
    let turn = number(turn, "/rewind")?;
    let turn = u32::try_from(turn).map_err(|_| format!("there is no turn {turn}"))?;
    match words.next() {
        None => Ok(Slash::Rewind(Some(turn))),
        Some("files") => Ok(Slash::RewindTo(turn, RewindWhat::Files)),
        Some("conversation") => Ok(Slash::RewindTo(turn, RewindWhat::Conversation)),
        Some("both") => Ok(Slash::RewindTo(turn, RewindWhat::Both)),
        Some(other) => Err(format!("a rewind brings back `files`, `conversation` or `both`, not `{other}`")),
    }
}

fn number(text: &str, name: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("{name} needs a number, not `{text}`"))
}

fn unknown(name: &str) -> String {
    let near = COMMANDS.iter().min_by_key(|spec| distance(name, spec.name)).filter(|s| distance(name, s.name) <= 2);
    match near {
        Some(spec) => format!("there is no {name}; did you mean {}?", spec.name),
        None => format!("there is no {name}; /help lists what there is"),
    }
}

/// Letters to change, add or leave out.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for j in 0..b.len() {
            let change = corner + usize::from(letter != b[j]);
            corner = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(corner + 1);
        }
    }
    row[b.len()]
}

/// A prompt; `@path:10-20` in it points at lines of a file.
pub fn prompt(text: &str) -> Prompt {
    let selection = text.split_whitespace().find_map(|word| {
        let (path, lines) = word.strip_prefix('@')?.trim_end_matches([',', '.', ';']).rsplit_once(':')?;
        let (first, last) = lines.split_once('-').unwrap_or((lines, lines));
        let (first, last) = (first.parse().ok()?, last.parse().ok()?);
        (first >= 1 && first <= last && !path.is_empty()).then(|| (path.into(), first, last))
    });
    Prompt { text: text.to_owned(), selection, ..Prompt::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_in_the_table_is_understood() {
        for spec in COMMANDS {
            let line = match spec.name {
                "/try" => "/try fix it".to_owned(),
                "/choose" => "/choose 2".to_owned(),
                "/style" => "/style pair".to_owned(),
                "/queue" => "/queue more".to_owned(),
                "/where" => "/where are retries counted?".to_owned(),
                name => name.to_owned(),
            };
            assert!(matches!(parse(&line), Some(Ok(_))), "{line}");
        }
    }

    #[test]
    fn a_try_has_a_count_a_check_and_a_task() {
        let told = |count, check: Option<&str>, task: &str| {
            Some(Ok(Slash::Tell(Command::Try { count, check: check.map(str::to_owned), prompt: task.into() })))
        };
        assert_eq!(parse("/try fix it"), told(5, None, "fix it"));
        assert_eq!(parse("/try 3 --check \"cargo test -q\" fix 2 bugs"), told(3, Some("cargo test -q"), "fix 2 bugs"));
        assert_eq!(parse("/try --check make 8 go"), told(8, Some("make"), "go"));
        assert!(matches!(parse("/try 99 go"), Some(Err(why)) if why.contains("16")));
        assert!(matches!(parse("/try 3"), Some(Err(_))));
        assert!(matches!(parse("/try --check \"open"), Some(Err(_))));
    }

    #[test]
    fn what_is_no_command_is_a_prompt_and_a_slip_is_named() {
        assert_eq!(parse("/etc/hosts is empty, why?"), None);
        assert_eq!(parse("fix /undo"), None);
        assert!(matches!(parse("/udno"), Some(Err(why)) if why.contains("/undo")));
        assert!(matches!(parse("/nothing-like-it"), Some(Err(why)) if why.contains("/help")));
    }

    #[test]
    fn lines_of_a_file_can_be_pointed_at() {
        assert_eq!(prompt("fix @src/a.rs:10-20, please").selection, Some(("src/a.rs".into(), 10, 20)));
        assert_eq!(prompt("fix @src/a.rs:7").selection, Some(("src/a.rs".into(), 7, 7)));
        assert_eq!(prompt("fix @src/a.rs and @b:0-3 @c:9-2").selection, None);
    }

    #[test]
    fn a_rewind_may_say_what() {
        assert_eq!(parse("/rewind"), Some(Ok(Slash::Rewind(None))));
        assert_eq!(parse("/rewind 3"), Some(Ok(Slash::Rewind(Some(3)))));
        assert_eq!(parse("/rewind 3 files"), Some(Ok(Slash::RewindTo(3, RewindWhat::Files))));
        assert!(matches!(parse("/rewind x"), Some(Err(_))));
    }
}
