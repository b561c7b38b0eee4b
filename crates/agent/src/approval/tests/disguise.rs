//! Lines that write or execute in disguise, made by putting every way of doing it into every way of writing it down.
//! `M` is the file they make; bash is asked whether they do, so that the list stays honest.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::approval::only_reads;

/// Ways to make `M`, as words. All of them are live: alone they do it.
const LIVE: &[&[&str]] = &[
    &["touch", "M"],
    &["/usr/bin/touch", "M"],
    &["mkdir", "M"],
    &["cp", "a", "M"],
    &["ln", "a", "M"],
    &["tee", "M"],
    &["dd", "if=a", "of=M", "status=none"],
    &["tar", "cf", "M", "a"],
    &["sort", "-o", "M", "a"],
    &["sort", "-oM", "a"],
    &["sort", "-uoM", "a"],
    &["sort", "-nruo", "M", "a"],
    &["sort", "a", "-o", "M"],
    &["sort", "--output=M", "a"],
    &["sort", "--output", "M", "a"],
    &["sort", "--out=M", "a"],
    &["sort", "--o", "M", "a"],
    &["uniq", "a", "M"],
    &["uniq", "-c", "a", "M"],
    &["uniq", "--", "a", "M"],
    &["find", "a", "-exec", "touch", "M", ";"],
    &["find", "a", "-exec", "touch", "M", "{}", "+"],
    &["find", "a", "-execdir", "touch", "M", ";"],
    &["find", "a", "-name", "a", "-fprint", "M"],
    &["find", "a", "-fprint0", "M"],
    &["find", "a", "-fls", "M"],
    &["find", "a", "-fprintf", "M", "x"],
    &["find", "a", "(", "-true", "-fprint", "M", ")"],
    &["sed", "w M", "a"],
    &["sed", "-n", "w M", "a"],
    &["sed", "-n", "1p;1wM", "a"],
    &["sed", "1e touch M", "a"],
    &["sed", "s/one/touch M/e", "a"],
    &["sed", "s/one/x/wM", "a"],
    &["sed", "-n", "s/one/x/gpw M", "a"],
    &["sed", "-n", "/one/w M", "a"],
    &["sed", "-e", "w M", "a"],
    &["sed", "-ne", "w M", "a"],
    &["awk", "BEGIN{system(\"touch M\")}"],
    &["awk", "{print > \"M\"}", "a"],
    &["awk", "NR==1{print $1 > \"M\"}", "a"],
    &["awk", "{print | \"touch M\"}", "a"],
    &["git", "diff", "--no-index", "--output=M", "a", "b"],
    &["git", "diff", "--no-index", "--output", "M", "a", "b"],
    &["git", "--no-pager", "diff", "--no-index", "--output=M", "a", "b"],
    &["git", "-c", "alias.x=!touch M", "x"],
    &["git", "init", "-q", "M"],
    &["git", "-C", "evil", "status"],
    &["git", "-C", "evil", "diff"],
    &["git", "-C", "bare", "--work-tree=.", "status"],
    &["env", "touch", "M"],
    &["command", "touch", "M"],
    &["bash", "-c", "touch M"],
    &["sh", "-c", "touch M"],
    &["eval", "touch M"],
    &["builtin", "eval", "touch M"],
    &["exec", "touch", "M"],
    &["timeout", "9", "touch", "M"],
    &["nice", "touch", "M"],
    &["nohup", "touch", "M"],
    &["trap", "touch M", "EXIT"],
    &["source", "./script"],
    &[".", "./script"],
    &["./script"],
    &["printf", "-v", "x[$(touch M)]", "y"],
    &["printf", "-vx[$(touch M)]", "y"],
    &["test", "-v", "x[$(touch M)]"],
    &["test", "!", "-v", "x[$(touch M)]"],
    &["test", "-n", "", "-o", "-v", "x[$(touch M)]"],
    &["[", "-v", "x[$(touch M)]", "]"],
    &["let", "x[$(touch M)]=1"],
    &["declare", "x[$(touch M)]=1"],
    &["python3", "-c", "open('M','w')"],
    &["perl", "-e", "open(F,'>M')"],
    &["xargs", "-a", "a", "touch", "M"],
];

/// Lines of classes that are no list of words. All are live too.
const LINES: &[&str] = &[
    "echo x > M",
    "echo x >M",
    "echo x>>M",
    "echo x >| M",
    "echo x >& M",
    "echo x &> M",
    "echo x &>> M",
    "echo x 2>&1 >M",
    "echo x > /dev/null > M",
    "echo x > /dev/../proc/self/cwd/M",
    "echo x 1<>M",
    "echo x 9>M",
    "> M",
    "2>M ls",
    "cat <<E > M\nx\nE",
    "bash <<E\ntouch M\nE",
    "bash <<< 'touch M'",
    "echo $(touch M)",
    "echo `touch M`",
    "echo \"$(touch M)\"",
    "echo \"`touch M`\"",
    "echo ${x:=$(touch M)}",
    "echo $((x[$(touch M)]))",
    "echo $[x[$(touch M)]]",
    "echo \"${x[$(touch M)]}\"",
    "cat <(touch M) >/dev/null; sleep 0.1",
    "x=$(touch M)",
    "x[$(touch M)]=1",
    "x=1 touch M",
    "ls() { touch M; }; ls",
    "function ls { touch M; }; ls",
    "shopt -s expand_aliases\nalias ls='touch M'\nls",
    "{ touch M; }",
    "(touch M)",
    "((x[$(touch M)]))",
    "[[ -v x[$(touch M)] ]]",
    "[[ 'x[$(touch M)]' -eq 1 ]]",
    "if touch M; then :; fi",
    "for i in 1; do touch M; done",
    "while touch M; do break; done",
    "case x in x) touch M;; esac",
    "! touch M",
    "time touch M",
    "coproc touch M; wait",
    "touch M & wait",
    "true & touch M",
    "{touch,M}",
    "$'touch' M",
    "$'\\x74ouch' M",
    "t$'o'uch M",
    "t${x}ouch M",
    "t$@ouch M",
    "x=touch; $x M",
    "/usr/bin/tou?h M",
    "cd evil && git status",
    "cd evil; git diff",
    "cd ./evil/. && git status -s",
    "cd src && cd ../evil && git log && git status",
    "true | cd src; cd evil && git status",
    "cd bare && git --work-tree=. status",
    "cd worktree && git status",
    "cd hooked && touch -d 2001-01-01 f && git status",
    "cd filtered && git status",
    "cd drivered && git diff",
    "cd outer && git status",
    "ls;touch M",
    "ls\ntouch M",
    "ls |touch M",
    "ls||touch M;touch M",
    "ls # x \\\ntouch M",
    "ls '#' ; touch M",
    "echo \"a\\\\\"; touch M; echo \"b\"",
    "echo 'a\\'; touch M",
    "echo a\\\\; touch M",
    "echo \\\"; touch M; echo \\\"",
];

/// A way to write words down, by name.
type Disguise = (&'static str, fn(&[&str]) -> String);

fn disguises() -> Vec<Disguise> {
    fn quoted(words: &[&str]) -> String {
        let quote = |word: &&str| match word.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./=%".contains(&b)) {
            true if !word.is_empty() => (*word).to_owned(),
            _ => format!("'{}'", word.replace('\'', "'\\''")),
        };
        words.iter().map(quote).collect::<Vec<_>>().join(" ")
    }
    /// The first word in two halves with something between them that a shell does not see.
    fn split(words: &[&str], between: &str) -> String {
        let (first, second) = words[0].split_at(words[0].len() / 2);
        format!("{first}{between}{second} {}", quoted(&words[1..]))
    }
    /// As [`quoted`], with the second word in two halves.
    fn split_second(words: &[&str], between: &str) -> String {
        let second = quoted(words.get(1..2).unwrap_or_default());
        match second.starts_with('\'') || second.len() < 2 {
            true => quoted(words),
            false => format!("{} {}{between}{} {}", words[0], &second[..1], &second[1..], quoted(&words[2..])),
        }
    }
    vec![
        ("plain", quoted),
        ("continued name", |words| split(words, "\\\n")),
        ("continued twice", |words| split(words, "\\\n\\\n")),
        ("continued option", |words| split_second(words, "\\\n")),
        ("continued line", |words| quoted(words).replacen(' ', " \\\n ", 1)),
        ("empty quotes", |words| split(words, "''")),
        ("empty double quotes", |words| split(words, "\"\"")),
        ("quoted option", |words| split_second(words, "''")),
        ("quoted name", |words| format!("'{}' {}", words[0], quoted(&words[1..]))),
        ("double-quoted name", |words| format!("\"{}\" {}", words[0], quoted(&words[1..]))),
        ("continued in quotes", |words| {
            let (first, second) = words[0].split_at(words[0].len() / 2);
            format!("\"{first}\\\n{second}\" {}", quoted(&words[1..]))
        }),
        ("backslashes", |words| {
            let name: String = words[0].chars().flat_map(|c| ['\\', c]).collect();
            format!("{name} {}", quoted(&words[1..]))
        }),
        ("tabs", |words| quoted(words).replacen(' ', "\t", 1)),
        ("blanks", |words| format!("   {}   ", quoted(words))),
        ("after a reader", |words| format!("ls; {}", quoted(words))),
        ("after and", |words| format!("ls && {}", quoted(words))),
        ("after or", |words| format!("false || {}", quoted(words))),
        ("in a pipe", |words| format!("cat a | {}", quoted(words))),
        ("on the next line", |words| format!("ls\n{}", quoted(words))),
        ("after a comment", |words| format!("# only a look\n{}", quoted(words))),
        ("behind a comment", |words| format!("ls # '\n{}", quoted(words))),
        ("silenced", |words| format!("{} 2>/dev/null", quoted(words))),
        ("silenced first", |words| format!("2>/dev/null {}", quoted(words))),
        ("joined", |words| format!("{} 2>&1 | cat", quoted(words))),
        ("in braces", |words| format!("{{ {}; }}", quoted(words))),
        ("in a shell below", |words| format!("( {} )", quoted(words))),
        ("with a variable", |words| format!("X=1 {}", quoted(words))),
        ("substituted", |words| format!("echo $( {} )", quoted(words))),
        ("in a folder", |words| format!("cd . && {}", quoted(words))),
    ]
}

/// Every line: how it came about, and itself.
fn lines() -> Vec<(String, String)> {
    let mut lines: Vec<(String, String)> = LINES.iter().map(|line| ("line".to_owned(), (*line).to_owned())).collect();
    for (name, disguise) in disguises() {
        lines.extend(LIVE.iter().map(|words| (format!("{name}: {words:?}"), disguise(words))));
    }
    // Not all versions of bash and git obey these, and nobody may rely on that.
    for line in [
        "printf %n 'x[$(touch M)]'",
        "printf %5n 'x[$(touch M)]'",
        "unset 'x[$(touch M)]'",
        "read 'x[$(touch M)]'",
        "git diff --no-index --outpu=M a b",
        "git log --outp M",
        "git grep -Oless x",
        "git grep --open-files-in-pager=touch x",
        "git diff --ext-diff",
        "git show --textconv",
        "git log --show-signature",
        "git log --format=%G?",
        "git branch M",
        "git branch -v M",
        "git tag M",
        "git remote add M x",
        "git config core.fsmonitor x",
        "git symbolic-ref HEAD refs/heads/M",
        "git reflog expire --all",
        "git stash",
        "rg --pre touch M",
        "rg --pre=touch M",
        "rg --hostname-bin touch M",
        "sort --compress-program=touch a",
        "sort --comp touch a",
        "date -s 2001-01-01",
        "date --set=2001-01-01",
        "date 01010101",
        "hostname M",
        "hostname -F a",
        "file -C -m a",
        "tree -o M",
        "tree -R -H x",
        "xxd a M",
        "xxd -r a M",
        "tail -f a",
        "less a",
        "man ls",
        "cargo --version",
        "go version",
        "yarn --version",
        "test 'x[$(touch M)]' -eq 1",
        "mapfile -C 'touch M' -c 1 x",
        "compgen -C 'touch M'",
        "enable -f ./x x",
        "hash -p ./script ls",
    ] {
        lines.push(("perhaps".to_owned(), line.to_owned()));
    }
    // Blanks that only look like ones: the name is another then, and nobody may take it for the reader it begins with.
    for blank in ["\u{a0}", "\u{2003}", "\u{3000}", "\r", "\u{b}", "\u{c}", "\u{85}", "\u{200b}", "\u{2028}", "\0"] {
        lines.push(("blank".to_owned(), format!("ls{blank}-o M")));
        lines.push(("blank".to_owned(), format!("sort a{blank}-o M")));
        lines.push(("blank".to_owned(), format!("ls;{blank}touch M")));
    }
    lines
}

/// Files to work on, and repositories that run something as soon as git looks at them.
fn hostile_workspace() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    std::fs::write(at.join("a"), "one\ntwo\n").unwrap();
    std::fs::write(at.join("b"), "one\n").unwrap();
    std::fs::create_dir(at.join("src")).unwrap();
    std::fs::write(at.join("script"), "#!/bin/sh\ntouch M\n").unwrap();
    let make = "
        chmod +x script; R=$PWD; printf '#!/bin/sh\\ntouch %s/M\\n' $R > run; chmod +x run
        export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
        g() { git -c user.name=n -c user.email=e@x -C $1 ${@:2}; }
        repo() { git init -q $1; echo x > $1/f; g $1 add f; g $1 commit -qm one; }
        repo evil; g evil config core.fsmonitor $R/run
        repo main; g main worktree add -q ../worktree; g main config core.fsmonitor $R/run
        repo hooked; mkdir -p hooked/.git/hooks; cp run hooked/.git/hooks/post-index-change
        repo filtered; g filtered config filter.x.clean $R/run; echo '* filter=x' > filtered/.gitattributes; echo y > filtered/f
        repo drivered; g drivered config diff.x.command $R/run; echo '* diff=x' > drivered/.gitattributes; echo y > drivered/f
        repo outer; repo outer/sub; g outer add sub 2>/dev/null; g outer commit -qm sub; g outer/sub config core.fsmonitor $R/run
        git init -q --bare bare; g bare config core.bare false; g bare config core.fsmonitor $R/run; rm -f M";
    let made = Command::new("bash").args(["-c", make]).current_dir(at).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    folder
}

/// Whether bash makes `M` of a line.
fn does_it(line: &str, at: &Path) -> bool {
    let marker = at.join("M");
    let _ = std::fs::remove_file(&marker);
    let _ = std::fs::remove_dir_all(&marker);
    let mut bash = Command::new("bash");
    bash.args(["-c", line]).current_dir(at).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let _ = bash.env("GIT_CONFIG_NOSYSTEM", "1").status();
    std::fs::symlink_metadata(&marker).is_ok()
}

#[test]
fn no_line_in_disguise_only_reads() {
    let work = hostile_workspace();
    let all = lines();
    assert!(all.len() >= 2_000, "{} lines", all.len());
    let unasked: Vec<&(String, String)> =
        all.iter().filter(|(_, line)| only_reads(line.as_bytes(), work.path()).is_ok()).collect();
    assert!(unasked.is_empty(), "{} of {} would run unasked: {unasked:#?}", unasked.len(), all.len());
}

/// A list of lines that do nothing would prove nothing. Every line is tried with FLINT_TEST_ALL_LINES=1, else every way of
/// doing it once and of the rest every eleventh.
#[test]
fn the_lines_do_what_they_are_said_to_do() {
    let all_wanted = std::env::var_os("FLINT_TEST_ALL_LINES").is_some();
    let work = hostile_workspace();
    let mut idle = Vec::new();
    let mut tried = 0;
    for (at, (how, line)) in lines().iter().enumerate() {
        let chosen = all_wanted || how == "line" || how.starts_with("plain") || at % 11 == 0;
        if how != "blank" && how != "perhaps" && chosen {
            tried += 1;
            if !does_it(line, work.path()) {
                idle.push((how.clone(), line.clone()));
            }
        }
    }
    assert!(tried > 250, "{tried}");
    assert!(idle.is_empty(), "{} of {tried} lines do nothing: {idle:#?}", idle.len());
}

#[test]
fn any_bytes_are_judged_without_a_panic() {
    let work = hostile_workspace();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let signs = b" \t\n'\"\\$`(){}<>|&;*?[]~!#=:-abs120\xc3\xa9\xff\0";
    for _ in 0..20_000 {
        let line: Vec<u8> = (0..next() % 24).map(|_| signs[(next() % signs.len() as u64) as usize]).collect();
        let _ = only_reads(&line, work.path());
        let mut known = b"git log -n".to_vec();
        known.extend(&line);
        let _ = only_reads(&known, work.path());
    }
}
