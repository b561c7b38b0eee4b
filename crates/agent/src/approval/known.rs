//! What is known about commands: which only read, and how much of one must be remembered so that "always" means what the
//! person saw.

/// Commands that only read, whatever their options.
const READERS: &[&str] = &[
    "ls",
    "cat",
    "pwd",
    "head",
    "tail",
    "wc",
    "grep",
    "cut",
    "nl",
    "tr",
    "stat",
    "file",
    "which",
    "echo",
    "printf",
    "true",
    "false",
    "test",
    "basename",
    "dirname",
    "realpath",
    "readlink",
    "du",
    "df",
    "uname",
    "whoami",
    "id",
    "cmp",
    "diff",
    "cd",
    "seq",
    "sleep",
    "md5sum",
    "sha256sum",
];

/// What `git` does that only reads.
const GIT_READERS: &[&str] =
    &["status", "log", "diff", "show", "blame", "rev-parse", "ls-files", "ls-tree", "describe"];

/// Tools whose second word says what they do.
const WITH_SUBCOMMANDS: &[&str] = &[
    "git", "cargo", "npm", "pnpm", "yarn", "npx", "bun", "deno", "go", "pip", "pip3", "uv", "poetry", "make", "just",
    "docker", "kubectl", "gh", "apt", "apt-get", "brew", "rustup", "dotnet", "mvn", "gradle", "bundle", "mix", "swift",
    "zig",
];

/// Programs that run or undo anything, so that their name alone says nothing.
const OPEN_ENDED: &[&str] = &[
    "sh", "bash", "zsh", "fish", "dash", "env", "sudo", "doas", "su", "xargs", "nohup", "setsid", "timeout", "time",
    "nice", "exec", "eval", "source", ".", "command", "python", "python3", "node", "ruby", "perl", "php", "awk",
    "gawk", "sed", "tee", "rm", "mv", "cp", "ln", "dd", "chmod", "chown", "truncate", "kill", "pkill", "killall",
    "curl", "wget", "ssh", "scp", "rsync", "nc", "find", "fd", "ed", "vi", "vim", "emacs",
];

/// Whether a simple command only reads.
pub(crate) fn only_reads(words: &[String]) -> bool {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let has = |refused: &[&str]| words.iter().any(|word| refused.iter().any(|no| is_option(word, no)));
    match words.as_slice() {
        [] => false,
        ["git", subcommand, ..] => {
            // These write a file or run a program.
            GIT_READERS.contains(subcommand) && !has(&["--output", "--ext-diff", "--textconv", "--open-files-in-pager"])
        }
        ["find", ..] => {
            !has(&["-exec", "-execdir", "-ok", "-okdir", "-delete", "-fls", "-fprint", "-fprint0", "-fprintf"])
        }
        ["rg", ..] => !has(&["--pre", "--hostname-bin", "--search-zip", "-z"]),
        ["sort", ..] => !has(&["-o", "--output", "--compress-program"]) && !words.iter().any(|w| w.starts_with("-o")),
        ["uniq", rest @ ..] => rest.iter().filter(|word| !word.starts_with('-')).count() < 2,
        ["sed", "-n", script, files @ ..] => {
            let script = script.strip_suffix('p');
            let numbers = script.is_some_and(|s| s.chars().all(|c| c.is_ascii_digit() || c == ',' || c == '$'));
            numbers && files.iter().all(|file| !file.starts_with('-'))
        }
        ["cargo", "--version" | "-V"] | ["rustc", "--version" | "-V" | "-vV"] => true,
        [first, ..] => READERS.contains(first),
    }
}

fn is_option(word: &str, option: &str) -> bool {
    word == option || (option.starts_with("--") && word.strip_prefix(option).is_some_and(|rest| rest.starts_with('=')))
}

/// How many of the words "always" remembers: the program, the program and what it is told to do, or all.
pub(crate) fn prefix_length(words: &[String]) -> usize {
    let Some(first) = words.first() else { return 0 };
    let name = first.rsplit('/').next().unwrap_or(first);
    let subcommand = words.get(1).is_some_and(|second| !second.starts_with('-'));
    match name {
        name if OPEN_ENDED.contains(&name) => words.len(),
        name if WITH_SUBCOMMANDS.contains(&name) && subcommand => 2,
        name if WITH_SUBCOMMANDS.contains(&name) => words.len(),
        _ => 1,
    }
}
