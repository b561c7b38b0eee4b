//! What of git only reads: subcommands with exact options, in a repository that runs nothing by itself.

use super::folders::WorkingFolders;
use super::options::Options;
use super::repository;

/// A subcommand, its options, and how many words that are no options it may have.
struct Subcommand {
    name: &'static str,
    flags: &'static str,
    values: &'static str,
    long: &'static [&'static str],
    words_max: usize,
}

const ANY: usize = usize::MAX;

const fn takes(
    name: &'static str,
    flags: &'static str,
    values: &'static str,
    long: &'static [&'static str],
    words_max: usize,
) -> Subcommand {
    Subcommand { name, flags, values, long, words_max }
}

/// Options of everything that shows differences. `--output`, `--ext-diff`, `--textconv` and `--submodule` are not here.
const DIFF: &str = "patch no-patch stat? numstat shortstat name-only name-status summary raw full-index check color? no-color \
    word-diff? ignore-all-space ignore-space-change ignore-blank-lines ignore-space-at-eol unified= diff-filter= find-renames? \
    find-copies? no-renames no-ext-diff no-textconv exit-code quiet minimal patience histogram diff-algorithm= pickaxe-all \
    pickaxe-regex function-context inter-hunk-context= abbrev? compact-summary dirstat? no-prefix";

/// Options of everything that lists commits. `--show-signature` runs a program.
const LOG: &str = "oneline graph decorate? no-decorate all branches? tags? remotes? since= until= after= before= author= \
    committer= grep= invert-grep format= pretty? abbrev-commit date= reverse merges no-merges first-parent follow topo-order \
    date-order max-count= skip= left-right cherry-pick source full-history simplify-merges count regexp-ignore-case \
    extended-regexp fixed-strings no-walk relative-date parents children boundary all-match ancestry-path";

const LIST: &str = "list all remotes verbose show-current merged= no-merged= contains= no-contains= points-at= sort= format= \
    column? color? no-color ignore-case";

#[rustfmt::skip]
const SUBCOMMANDS: &[Subcommand] = &[
    takes("status", "sbvz", "", &["short branch porcelain? long untracked-files? ignored? show-stash no-renames ahead-behind no-ahead-behind"], ANY),
    takes("log", "pusiEFwbzWmMC", "nSGLU", &[LOG, DIFF], ANY),
    takes("show", "pusiEFwbzWmMC", "nSGLU", &[LOG, DIFF], ANY),
    takes("diff", "pusbwzRWaMC", "SGU", &["cached staged merge-base", DIFF], ANY),
    takes("shortlog", "sne", "", &[LOG, "summary numbered email"], ANY),
    takes("rev-list", "", "n", &[LOG], ANY),
    takes("blame", "welstnfpcMC", "L", &["since= porcelain line-porcelain date= abbrev="], ANY),
    takes("grep", "niIlcwEFPhHqvzW", "eABC", &["line-number ignore-case files-with-matches count word-regexp extended-regexp fixed-strings perl-regexp cached untracked heading break show-function function-context max-depth= context= after-context= before-context= and or not all-match quiet name-only color? no-color"], ANY),
    takes("rev-parse", "q", "", &["show-toplevel abbrev-ref? short? verify git-dir absolute-git-dir git-common-dir is-inside-work-tree is-bare-repository symbolic-full-name symbolic show-prefix show-cdup quiet all branches? tags?"], ANY),
    takes("ls-files", "cdmoistuvzk", "x", &["cached deleted modified others stage exclude-standard unmerged killed full-name error-unmatch directory exclude="], ANY),
    takes("ls-tree", "rdtlz", "", &["name-only name-status full-tree full-name long abbrev?"], ANY),
    takes("describe", "", "", &["tags always all long abbrev= exact-match dirty? contains match= exclude= first-parent"], ANY),
    takes("branch", "arv", "", &[LIST], 0),
    takes("tag", "", "", &[LIST], 0),
    takes("remote", "v", "", &["verbose"], 0),
    takes("cat-file", "tspe", "", &[""], 1),
    takes("merge-base", "a", "", &["all is-ancestor octopus fork-point"], ANY),
    takes("for-each-ref", "", "", &["format= sort= count= points-at= contains= merged="], ANY),
    takes("show-ref", "ds", "", &["heads branches tags head hash? abbrev? verify dereference"], ANY),
    takes("name-rev", "", "", &["name-only tags"], ANY),
    takes("symbolic-ref", "q", "", &["short quiet"], 1),
    takes("count-objects", "vH", "", &["verbose human-readable"], 0),
    takes("check-ignore", "vnq", "", &["verbose non-matching quiet"], ANY),
    takes("reflog", "", "n", &[LOG], 0),
    takes("version", "", "", &[""], 0),
];

/// Whether git does nothing but read with these arguments. The error says what it may do instead.
pub(super) fn only_reads(arguments: &[String], folders: &WorkingFolders) -> Result<(), String> {
    let mut rest = arguments;
    let mut folders = folders.clone();
    loop {
        match rest {
            [first, after @ ..] if ["--no-pager", "-P", "--no-optional-locks"].contains(&first.as_str()) => {
                rest = after
            }
            [first, folder, after @ ..] if first == "-C" => {
                folders.enter(folder)?;
                rest = after;
            }
            _ => break,
        }
    }
    let [name, arguments @ ..] = rest else { return Err("`git` alone is not known to only read".to_owned()) };
    subcommand(name, arguments, &folders)?;
    folders.all().iter().try_for_each(|folder| repository::runs_nothing(folder))
}

/// Whether a subcommand is one that can be made to only read, so that "always" must not widen it.
pub(super) fn is_known(name: &str) -> bool {
    ["stash", "worktree", "-C", "--no-pager", "-P"].contains(&name)
        || SUBCOMMANDS.iter().any(|known| known.name == name)
}

fn subcommand(name: &str, arguments: &[String], folders: &WorkingFolders) -> Result<(), String> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match (name, words.as_slice()) {
        ("stash" | "worktree", ["list"]) | ("remote", ["get-url", "origin"]) => return Ok(()),
        ("stash", ["show", ..]) => return subcommand("show", &arguments[1..], folders),
        ("reflog", ["show", ..]) => return subcommand("log", &arguments[1..], folders),
        // With `--list` words are patterns, without it they are names of what is made.
        ("tag", ["-l" | "--list", pattern]) | ("branch", ["--list", pattern]) if !pattern.starts_with('-') => {
            return Ok(());
        }
        ("tag", ["-l" | "-n"]) | ("status", ["-uno" | "-uall" | "-u"]) => return Ok(()),
        _ => {}
    }
    let unknown = |argument: &str| doubt(name, argument);
    let known = SUBCOMMANDS.iter().find(|known| known.name == name).ok_or_else(|| unknown(""))?;
    let long = known.long.join(" ");
    let options = Options { flags: known.flags, values: known.values, long: &long, number: true };
    let given = options.tell_apart(arguments).map_err(unknown)?;
    if given.values.iter().any(|value| value.contains("%G") || value.contains("signature")) {
        return Err(format!("`git {name}` checks signatures, which runs a program"));
    }
    let given_words = given.words;
    if given_words.len() > known.words_max {
        return Err(unknown(given_words[known.words_max]));
    }
    folders.free(&given_words)
}

fn doubt(name: &str, argument: &str) -> String {
    let does = match (name, argument.split('=').next().unwrap_or_default()) {
        ("fetch" | "pull" | "push" | "clone" | "ls-remote", _) => "uses the network",
        (_, option) if option.starts_with("--o") => "may write a file or run a program",
        (_, "--ext-diff" | "--textconv" | "--show-signature") => "runs a program",
        ("grep", option) if option.starts_with("-O") => "runs a program",
        ("commit" | "add" | "checkout" | "reset" | "merge" | "rebase" | "branch" | "tag" | "stash", _) => {
            "changes the repository"
        }
        _ => "is not known to only read",
    };
    format!("`{}` {does}", format!("git {name} {argument}").trim_end())
}
