//! What is known about commands: what they are likely to do, and how much of one must be remembered so that "always" means
//! what the person saw.

use super::{git, programs};

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
    "builtin", "ionice", "stdbuf", "chroot", "unshare", "strace", "gdb", "parallel", "watch", "flock", "script", "lua",
    "curl", "wget", "ssh", "scp", "rsync", "nc", "find", "fd", "ed", "vi", "vim", "emacs",
];

/// Second words that run whatever comes after them.
const RUNS_ANYTHING: &[&str] = &["run", "exec", "x", "dlx", "run-script"];

/// What programs that do not only read are known for.
const KNOWN_FOR: &[(&str, &[&str])] = &[
    ("deletes files", &["rm", "rmdir", "unlink", "shred"]),
    (
        "writes files",
        &[
            "touch", "mkdir", "cp", "mv", "ln", "tee", "dd", "chmod", "chown", "truncate", "install", "patch", "tar",
            "unzip",
        ],
    ),
    (
        "uses the network",
        &[
            "builtin", "ionice", "stdbuf", "chroot", "unshare", "strace", "gdb", "parallel", "watch", "flock",
            "script", "lua", "curl", "wget", "ssh", "scp", "rsync", "nc", "gh", "ping",
        ],
    ),
    (
        "runs programs",
        &[
            "sh", "bash", "zsh", "dash", "env", "xargs", "eval", "exec", "source", ".", "command", "builtin", "time",
            "timeout", "nohup", "sudo", "python", "python3", "node", "perl", "ruby", "make", "cargo", "npm", "npx",
            "go", "pip", "uv", "just", "gradle", "mvn", "docker", "awk",
        ],
    ),
    (
        "changes what later commands mean",
        &["alias", "export", "declare", "read", "set", "shopt", "unset", "trap", "let"],
    ),
];

/// Commands of the shell that change what comes after them in a line. They are remembered with the whole line only.
pub(crate) fn changes_the_rest(name: &str) -> bool {
    const CHANGING: &[&str] = &[
        "cd", "pushd", "popd", "source", ".", "eval", "exec", "command", "builtin", "enable", "hash", "alias",
        "unalias", "export", "declare", "typeset", "local", "readonly", "read", "mapfile", "set", "shopt", "unset",
        "trap", "let",
    ];
    CHANGING.contains(&name)
}

/// What a program is known for, for the question.
pub(crate) fn known_for(name: &str) -> &'static str {
    let found = KNOWN_FOR.iter().find(|(_, names)| names.contains(&name));
    found.map_or("is not known to only read", |(what, _)| what)
}

/// How many of the words "always" remembers: the program, the program and what it is told to do, or all.
pub(crate) fn prefix_length(words: &[String]) -> usize {
    let Some(first) = words.first() else { return 0 };
    let name = first.rsplit('/').next().unwrap_or(first);
    let subcommand = words.get(1).is_some_and(|second| !second.starts_with('-'));
    let runs_anything = words.get(1).is_some_and(|second| RUNS_ANYTHING.contains(&second.as_str()));
    match name {
        // What was asked about is an option of a program that else only reads: another must be asked about again.
        name if programs::is_known(name) => words.len(),
        "git" if words.get(1).is_some_and(|second| git::is_known(second)) => words.len(),
        name if WITH_SUBCOMMANDS.contains(&name) && runs_anything => words.len(),
        name if OPEN_ENDED.contains(&name) => words.len(),
        name if WITH_SUBCOMMANDS.contains(&name) && subcommand => 2,
        name if WITH_SUBCOMMANDS.contains(&name) => words.len(),
        _ => 1,
    }
}
