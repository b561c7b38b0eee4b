//! What people and models ordinarily look with, which must go on running unasked.

use std::process::Command;

use crate::approval::only_reads;

const COMMANDS: &str = r#"
ls
ls -la
ls -l src
ls -1 src tests
ls -lah --color=never
ls -R src
ls -lt | head -5
ls -d src
ls --all
ls -lS src/
ls ./src
ls missing 2>/dev/null
ls src 2>&1
cat README.md
cat -n src/main.rs
cat src/main.rs src/lib.rs
cat 'with blank.txt'
cat with\ blank.txt
cat "with blank.txt"
cat Cargo.toml | head -20
cat src/lib.rs | wc -l
cat -A README.md
cat /etc/os-release
cat /proc/cpuinfo
/bin/cat README.md
/usr/bin/wc -l README.md
head README.md
head -5 README.md
head -n 20 src/main.rs
head -n20 src/main.rs
head -c 100 README.md
head --lines=3 README.md
head --lines 3 README.md
tail README.md
tail -20 README.md
tail -n 5 src/main.rs
tail -n +3 src/main.rs
tail -c 50 README.md
wc README.md
wc -l src/main.rs src/lib.rs
wc -lw README.md
grep main src/main.rs
grep -n main src/main.rs
grep -rn main src
grep -rn "fn main" src
grep -rn 'fn .*main' src
grep -ri todo .
grep -rnE 'TODO|FIXME' src
grep -c main src/main.rs
grep -l main src/main.rs src/lib.rs
grep -rl main src
grep -v '^#' README.md
grep -A3 main src/main.rs
grep -A 3 -B 2 main src/main.rs
grep -C2 main src/main.rs
grep -2 main src/main.rs
grep -rn --include='*.rs' main src
grep -rn --include "*.rs" main .
grep -rn --exclude-dir=target main .
grep -w main src/main.rs
grep -F 'a[b' README.md
grep -oE '[a-z]+' README.md
grep -q main src/main.rs && echo yes
grep -e main -e lib src/main.rs
grep -n "main$" src/main.rs
grep -n / README.md
grep -i -n main src/main.rs | head -3
grep -m1 main src/main.rs
grep -P '\d+' README.md
grep --color=never -n main src/main.rs
egrep 'a|b' README.md
fgrep main src/main.rs
rg main
rg -n main src
rg -i main
rg -l main
rg --files
rg --files src
rg -t rust main
rg -g '*.rs' main
rg --glob '!target' main
rg -C 3 main src
rg -A2 -B2 main
rg --hidden main
rg -uu main
rg -F 'main()' src
rg -w main
rg -c main
rg --no-heading -n main
rg --json main
rg -e main src
rg --type-list
rg -S main | head
find .
find . -name '*.rs'
find src -type f
find . -type f -name '*.rs' -not -path './target/*'
find . -maxdepth 2 -type d
find . -name '*.rs' -o -name '*.toml'
find . \( -name a -o -name b \) -print
find . -type f -size +10k
find . -mtime -7
find . -path ./target -prune -o -name '*.rs' -print
find src -name '*.rs' | wc -l
find . -newer README.md
find . -iname '*readme*'
find . -empty
find . -type f -printf '%s %p\n'
find . ! -name x -maxdepth 1
find src tests -name '*.rs' | sort
find . -perm -111 -type f
sed -n 1,20p src/main.rs
sed -n '1,20p' src/main.rs
sed -n '5p' src/main.rs
sed -n '$p' src/main.rs
sed -n '1,5p;10,12p' src/main.rs
sed -n '/main/p' src/main.rs
sed -n '/a/,/b/p' src/main.rs
sed 's/a/b/' README.md
sed 's/a/b/g' README.md
sed -E 's/a+/b/g' README.md
sed '1d' README.md
cat README.md | sed -n '1,3p'
awk '{print $1}' README.md
awk '{print $1, $3}' README.md
awk -F: '{print $1}' /etc/passwd
awk -F, '{ print $2 }' README.md
awk 'NR==5' README.md
awk 'NR>=2 && NR<=4' README.md
awk 'NR==1{print $NF}' README.md
sort README.md
sort -u README.md
sort -rn README.md
sort -k2 -n README.md
sort -t, -k 2,2 README.md
sort README.md | uniq -c | sort -rn | head
sort --reverse README.md
uniq README.md
uniq -c README.md
uniq -d README.md
cut -d: -f1 /etc/passwd
cut -d ' ' -f 2 README.md
cut -d / -f 2 README.md
cut -c1-10 README.md
tr a-z A-Z
cat README.md | tr '[:lower:]' '[:upper:]'
tr -d '\n'
nl README.md
nl -ba README.md
stat README.md
stat -c %s README.md
stat --format=%y README.md
file README.md
file -b README.md
file --mime-type README.md
which python3
which -a sh
basename src/main.rs
basename src/main.rs .rs
dirname src/main.rs
realpath src
readlink -f src
du -sh .
du -h src
du -h --max-depth=1 .
du -d 1 -h
df -h
df -h .
uname -a
uname -sr
whoami
id
id -u
hostname
nproc
uptime
free -h
date
date +%F
date -u
date '+%Y-%m-%d %H:%M'
pwd
pwd -P
echo hello
echo "hello world"
echo -n hello
echo done; ls
echo 'it costs $5'
printf 'hello\n'
printf '%s\n' a b
printf "%5d\n" 3
true
false || echo no
test -f README.md
test -d src && echo yes
test ! -f missing
test a = b
test 3 -gt 2
[ -f README.md ]
[ -d src ] && ls src
[ "a" = "b" ] || echo no
cmp README.md src/main.rs
diff README.md src/main.rs
diff -u README.md src/main.rs
diff -q README.md src/main.rs
diff --unified=5 README.md src/main.rs
diff -y -W 80 README.md src/main.rs
comm -12 README.md src/main.rs
paste -d, README.md src/main.rs
join README.md src/main.rs
fold -w 80 README.md
column -t README.md
tac README.md
rev README.md
od -c README.md
od -An -tx1 README.md
hexdump -C README.md
xxd README.md
xxd -l 16 README.md
strings -n 8 README.md
base64 README.md
base64 -d README.md
md5sum README.md
sha256sum README.md src/main.rs
seq 5
seq 1 2 9
seq -s, 3
sleep 0
tree
tree -L 2
tree -a -I target
tree --dirsfirst src
ps
ps aux
ps -ef | grep flint
python3 --version
node --version
gcc --version
make --version
bash --version
git --version
grep --version
cd src
cd src && ls
cd src && grep -n main main.rs
cd ./src && cat main.rs
git status
git status -s
git status --short --branch
git status --porcelain
git status -sb
git status -uno
git log
git log --oneline
git log --oneline -5
git log -3
git log -n 5
git log -n5 --stat
git log --oneline --graph --all
git log --oneline | head -20
git log -p -1
git log --since='2 weeks ago' --author=me
git log --format='%h %s' -3
git log --pretty=format:%h
git log --follow README.md
git log -- src
git log --name-only -1
git log -S main
git log --grep fix -i
git log main..HEAD
git log -L 1,3:src/main.rs
git diff
git diff HEAD
git diff HEAD~1
git diff HEAD~1 HEAD
git diff HEAD^
git diff --stat
git diff --cached
git diff --staged --name-only
git diff --name-status HEAD
git diff -- src/main.rs
git diff -w
git diff -U5
git diff --no-color
git diff HEAD -- README.md
git show
git show HEAD
git show HEAD:README.md
git show --stat HEAD
git show --name-only
git show -s --format=%B HEAD
git blame README.md
git blame -L 1,5 README.md
git rev-parse HEAD
git rev-parse --show-toplevel
git rev-parse --abbrev-ref HEAD
git rev-parse --short HEAD
git ls-files
git ls-files src
git ls-files --others --exclude-standard
git ls-tree -r HEAD
git ls-tree --name-only HEAD
git describe --tags --always
git branch
git branch -a
git branch -vv
git branch --show-current
git branch --list 'a*'
git tag
git tag -l
git tag -l 'v*'
git remote
git remote -v
git stash list
git shortlog -sn HEAD
git rev-list --count HEAD
git cat-file -p HEAD
git merge-base HEAD HEAD
git grep main
git grep -n main
git reflog
git worktree list
git --no-pager log -1
git --no-pager diff --stat
git -C src status
git -C . log -1
cd src && git status
git status && git diff --stat
git log --oneline -3 && echo --- && git status -s
"#;

#[test]
fn ordinary_looks_run_unasked() {
    let work = tempfile::tempdir().unwrap();
    let at = work.path();
    for folder in ["src", "tests", "target"] {
        std::fs::create_dir(at.join(folder)).unwrap();
    }
    for file in ["README.md", "Cargo.toml", "with blank.txt", "src/main.rs", "src/lib.rs"] {
        std::fs::write(at.join(file), "fn main() {}\nlib\n").unwrap();
    }
    let make = "git init -q . && git add -A && git -c user.name=n -c user.email=e@x commit -qm one && \
                git remote add origin /somewhere && git config user.name me";
    assert!(Command::new("bash").args(["-c", make]).current_dir(at).status().unwrap().success());
    let all: Vec<&str> = COMMANDS.lines().filter(|line| !line.is_empty()).collect();
    assert!(all.len() >= 200, "{} commands", all.len());
    let asked: Vec<(&str, String)> =
        all.iter().filter_map(|line| Some((*line, only_reads(line.as_bytes(), at).err()?))).collect();
    assert!(asked.is_empty(), "{} of {} are asked about: {asked:#?}", asked.len(), all.len());
}

#[test]
fn reading_elsewhere_or_what_could_block_is_asked_about() {
    let work = tempfile::tempdir().unwrap();
    let at = work.path();
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("secret"), "x").unwrap();
    std::os::unix::fs::symlink(home.path(), at.join("out")).unwrap();
    std::os::unix::fs::symlink(home.path().join("secret"), at.join("link")).unwrap();
    std::os::unix::fs::symlink("/nowhere", at.join("dangling")).unwrap();
    std::fs::create_dir(at.join("folder")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, at.join("fifo"), rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let secret = home.path().join("secret");
    let lines = [
        format!("cat {}", secret.display()),
        format!("grep -r x {}", home.path().display()),
        format!("git diff --stat -- {}", secret.display()),
        "cat link".to_owned(),
        "cat out/secret".to_owned(),
        "ls ..".to_owned(),
        "cd out && ls".to_owned(),
        "cd .. && ls".to_owned(),
        "cd / && ls".to_owned(),
        "cat fifo".to_owned(),
        "head -c 10 /dev/zero".to_owned(),
        "cat /proc/self/environ".to_owned(),
        "cat /etc/shadow".to_owned(),
        "find / -name x".to_owned(),
        "test -f link".to_owned(),
        "tail -f a".to_owned(),
        "cat /dev/fd/3".to_owned(),
        "cat /proc/self/fd/99".to_owned(),
        "cat dangling".to_owned(),
        "diff folder folder2".to_owned(),
        "git -C folder diff ../../x ../../y".to_owned(),
        "cat ../not-there-yet".to_owned(),
        "cat /not-there-yet".to_owned(),
        "git diff -M link -M link".to_owned(),
        "printenv".to_owned(),
        "env".to_owned(),
    ];
    for line in lines {
        assert!(only_reads(line.as_bytes(), at).is_err(), "{line}");
    }
}
