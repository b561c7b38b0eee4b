//! Programs that only read when they are given nothing but what is listed here. What is missing from a list was either found
//! to write, to execute or to follow links out of a folder, or nobody has looked yet: both are asked about.

use super::folders::WorkingFolders;
use super::options::{Given, Options};

/// A program and what it may be given.
struct Reader {
    /// Its names.
    names: &'static [&'static str],
    options: Options<'static>,
    words: Takes,
}

/// What the words of a program that are no options mean.
#[derive(Clone, Copy)]
enum Takes {
    /// Files, which must be where reading is free.
    Files,
    /// At most so many files: the next would be written.
    AtMost(usize),
    /// A pattern, unless an option gives one, and files.
    PatternThenFiles,
    /// Text.
    Text,
    /// Nothing.
    Nothing,
}

use Takes::{AtMost, Files, Nothing, PatternThenFiles, Text};

const fn reader(
    names: &'static [&'static str],
    words: Takes,
    flags: &'static str,
    values: &'static str,
    long: &'static str,
) -> Reader {
    Reader { names, options: Options { flags, values, long, number: false }, words }
}

const fn numbered(mut reader: Reader) -> Reader {
    reader.options.number = true;
    reader
}

const GREP: &str = "extended-regexp fixed-strings basic-regexp perl-regexp ignore-case no-ignore-case invert-match \
    word-regexp line-regexp count color? colour? files-with-matches files-without-match max-count= only-matching quiet \
    silent no-messages byte-offset with-filename no-filename line-number initial-tab null after-context= before-context= \
    context= text binary-files= include= exclude= exclude-dir= recursive regexp= null-data";

const RG: &str = "line-number no-line-number ignore-case smart-case case-sensitive word-regexp line-regexp fixed-strings \
    files files-with-matches files-without-match count count-matches hidden no-ignore no-ignore-vcs no-heading heading \
    glob= iglob= type= type-not= context= after-context= before-context= max-count= max-depth= max-columns= color= sort= \
    sortr= json only-matching replace= multiline pcre2 no-filename with-filename stats trim vimgrep column type-list \
    no-config version null text invert-match quiet unrestricted regexp=";

#[rustfmt::skip] // A line each is easier to check against a manual.
const READERS: &[Reader] = &[
    reader(&["ls"], Files, "aAbBcCdfFgGhHiklmnNopqQrRsStuUvxX1", "", "all almost-all color? human-readable recursive reverse sort= time= size directory inode group-directories-first full-time time-style="),
    reader(&["cat"], Files, "AbeEnstTuv", "", "number number-nonblank show-all show-ends show-tabs squeeze-blank"),
    numbered(reader(&["head"], Files, "qvz", "nc", "lines= bytes= quiet silent verbose")),
    numbered(reader(&["tail"], Files, "qvz", "nc", "lines= bytes= quiet silent verbose")),
    reader(&["wc"], Files, "clLmw", "", "lines words bytes chars max-line-length"),
    numbered(reader(&["grep", "egrep", "fgrep"], PatternThenFiles, "EFGPivwxycLloqshHnbTaIUzrZ", "eABCm", GREP)),
    reader(&["rg"], PatternThenFiles, "inlcvwxFsSoHNIqUPua0p", "egtTABCmMdr", RG),
    reader(&["cut"], Files, "snz", "bcdf", "delimiter= fields= characters= bytes= only-delimited complement output-delimiter="),
    reader(&["nl"], Files, "p", "bdfhilnsvw", "body-numbering= number-width= number-format="),
    reader(&["tr"], Text, "cCdst", "", "complement delete squeeze-repeats"),
    reader(&["sort"], Files, "bdfghiMnrRVcCmsuz", "kt", "reverse numeric-sort human-numeric-sort version-sort general-numeric-sort month-sort unique key= field-separator= ignore-case ignore-leading-blanks stable check? zero-terminated"),
    reader(&["uniq"], AtMost(1), "cdDiuz", "fsw", "count repeated unique ignore-case skip-fields= skip-chars= check-chars="),
    reader(&["stat"], Files, "Lft", "c", "format= printf= dereference terse file-system"),
    reader(&["file"], Files, "bikhN", "", "brief mime mime-type mime-encoding"),
    reader(&["which"], Text, "a", "", ""),
    reader(&["basename"], Text, "az", "s", "suffix= multiple"),
    reader(&["dirname"], Text, "z", "", "zero"),
    reader(&["realpath"], Files, "emLPsqz", "", "relative-to= relative-base= canonicalize-existing canonicalize-missing no-symlinks"),
    reader(&["readlink"], Files, "femnqsvz", "", "canonicalize canonicalize-existing canonicalize-missing"),
    reader(&["du"], Files, "abchklmsSx0", "d", "max-depth= human-readable summarize all apparent-size total exclude="),
    reader(&["df"], Files, "ahHiklPT", "tx", "human-readable inodes local total type= print-type portability"),
    reader(&["uname"], Nothing, "asnrvmpio", "", "all kernel-name kernel-release machine operating-system"),
    reader(&["whoami", "nproc", "arch", "uptime", "groups", "lscpu"], Nothing, "", "", "all pretty"),
    reader(&["hostname"], Nothing, "sfI", "", "short fqdn"),
    reader(&["free"], Nothing, "bkmghtw", "", "human mega giga total wide"),
    reader(&["id"], Text, "aGgnruz", "", "group groups name user real"),
    reader(&["cmp"], AtMost(2), "bls", "ni", "print-bytes verbose silent quiet bytes= ignore-initial="),
    reader(&["diff"], AtMost(2), "abBcdeEinNpqstTuwyZ", "UCIWLx", "brief unified? context? ignore-all-space ignore-space-change ignore-blank-lines ignore-case side-by-side color? suppress-common-lines new-file text minimal report-identical-files strip-trailing-cr width= label= ignore-matching-lines="),
    reader(&["seq"], Text, "w", "sf", "separator= format= equal-width"),
    reader(&["sleep"], Text, "", "", ""),
    reader(&["md5sum", "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum", "b2sum", "cksum"], Files, "bt", "", "binary text tag"),
    reader(&["tree"], Files, "adfhpugsDFinNCJ", "LIP", "dirsfirst filesfirst noreport prune gitignore"),
    reader(&["column"], Files, "tx", "soc", "table separator= output-separator="),
    reader(&["fold"], Files, "bs", "w", "width= spaces bytes"),
    reader(&["paste"], Files, "sz", "d", "delimiters= serial"),
    reader(&["comm"], AtMost(2), "123iz", "", "check-order nocheck-order total"),
    reader(&["join"], AtMost(2), "i", "12toeavj", ""),
    reader(&["rev"], Files, "", "", ""),
    reader(&["tac"], Files, "br", "s", "separator="),
    reader(&["expand", "unexpand"], Files, "ia", "t", "tabs= initial all"),
    reader(&["od"], Files, "bcdxvao", "AtNj", "format= address-radix= read-bytes= skip-bytes="),
    reader(&["hexdump"], Files, "bcCdovx", "ns", ""),
    reader(&["xxd"], AtMost(1), "abipu", "lscg", ""),
    reader(&["strings"], Files, "a", "nte", "all bytes= radix="),
    reader(&["base64", "base32"], AtMost(1), "di", "w", "decode wrap= ignore-garbage"),
    // These are the shell's own.
    reader(&["pwd"], Nothing, "LP", "", ""),
    reader(&["true", "false", ":"], Text, "", "", ""),
];

/// Commands that the shell does itself, so that no file of that name is looked for.
pub(super) const BUILTINS: &[&str] = &["echo", "printf", "test", "[", "pwd", "true", "false", ":", "cd"];

/// Programs whose version may be asked for: they look at nothing in the folder for that. Those that are missing do: a
/// `rust-toolchain.toml`, `go.mod` or `.yarnrc.yml` can name the program that answers.
const VERSIONED: &[&str] = &["bash", "clang", "cmake", "g++", "gcc", "git", "grep", "make", "node", "python3", "rg"];

/// Tests of `find` without a value, and with one. Every other, such as `-exec`, `-delete` or `-fprint`, is asked about.
const FIND_PLAIN: &[&str] = &[
    "!",
    "(",
    ")",
    ",",
    "-a",
    "-and",
    "-daystart",
    "-depth",
    "-empty",
    "-executable",
    "-false",
    "-ls",
    "-mount",
    "-nogroup",
    "-not",
    "-nouser",
    "-o",
    "-or",
    "-print",
    "-print0",
    "-prune",
    "-quit",
    "-readable",
    "-true",
    "-writable",
    "-xdev",
];
const FIND_VALUED: &[&str] = &[
    "-amin",
    "-atime",
    "-cmin",
    "-ctime",
    "-group",
    "-iname",
    "-inum",
    "-ipath",
    "-iregex",
    "-links",
    "-maxdepth",
    "-mindepth",
    "-mmin",
    "-mtime",
    "-name",
    "-newer",
    "-path",
    "-perm",
    "-printf",
    "-regex",
    "-regextype",
    "-size",
    "-type",
    "-user",
    "-wholename",
];

/// Whether a program is one of those described here.
pub(super) fn is_known(name: &str) -> bool {
    BUILTINS.contains(&name) || ["find", "sed", "awk", "date", "ps"].contains(&name) || find(name).is_some()
}

fn find(name: &str) -> Option<&'static Reader> {
    READERS.iter().find(|reader| reader.names.contains(&name))
}

/// Whether a program only reads with these arguments, and only where reading is free. The error says what it does instead.
pub(super) fn only_reads(name: &str, arguments: &[String], folders: &WorkingFolders) -> Result<(), String> {
    let unknown = |argument: &str| doubt(name, argument);
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match (name, words.as_slice()) {
        (_, ["--version"]) if VERSIONED.contains(&name) || find(name).is_some() => return Ok(()),
        // What it does not know it prints.
        ("echo", _) => return Ok(()),
        ("test", words) | ("[", [words @ .., "]"]) => return test(words, folders).ok_or_else(|| unknown("")),
        ("printf", words) => return printf(words).ok_or_else(|| unknown(words.first().unwrap_or(&""))),
        ("find", words) => return find_only_looks(words, folders),
        ("date", words) => {
            let options =
                Options { flags: "uR", values: "dr", long: "utc universal iso-8601? rfc-3339= date=", number: false };
            let given = options.tell_apart(arguments).map_err(unknown)?;
            let shows = given.words.len() <= 1 && given.words.iter().all(|word| word.starts_with('+'));
            return if shows { Ok(()) } else { Err(format!("`date {}` sets the clock", words.join(" "))) };
        }
        ("ps", [] | ["aux" | "-ef" | "-e" | "-aux"]) => return Ok(()),
        ("sed" | "awk", _) => {
            let (flags, values) = if name == "sed" { ("nEr", "") } else { ("", "F") };
            let given = Options { flags, values, long: "", number: false }.tell_apart(arguments).map_err(unknown)?;
            let [script, files @ ..] = given.words.as_slice() else { return Err(unknown("")) };
            let harmless = if name == "sed" { sed_prints(script) } else { awk_prints(script) };
            return if harmless { folders.free(files) } else { Err(unknown(script)) };
        }
        _ => {}
    }
    let reader = find(name).ok_or_else(|| unknown(""))?;
    let given = reader.options.tell_apart(arguments).map_err(unknown)?;
    match reader.words {
        Files => folders.free(&given.words),
        AtMost(most) if given.words.len() > most => Err(format!("`{name}` may write `{}`", given.words[most])),
        // In folders it would follow links, wherever they lead.
        AtMost(_) if folders.any_folder(&given.words) => Err(format!("`{name}` may follow links out of a folder")),
        AtMost(_) => folders.free(&given.words),
        PatternThenFiles => folders.free(&given.words[usize::from(takes_pattern(&given)).min(given.words.len())..]),
        Text => Ok(()),
        Nothing if given.words.is_empty() => Ok(()),
        Nothing => Err(unknown(given.words[0])),
    }
}

fn takes_pattern(given: &Given<'_>) -> bool {
    !given.options.iter().any(|option| ["-e", "--regexp", "--files", "--type-list"].contains(option))
}

/// What is known of an option that makes a reader do more, or that nothing is known.
fn doubt(name: &str, argument: &str) -> String {
    let does = match (name, argument.split('=').next().unwrap_or_default()) {
        ("sort", "--compress-program") | ("rg", "--pre" | "--hostname-bin") => "runs a program",
        ("find", "-exec" | "-execdir" | "-ok" | "-okdir") => "runs a program",
        ("sort", option) if option.starts_with("-o") || option.starts_with("--o") => "writes a file",
        ("find", "-delete") => "deletes files",
        ("find", option) if option.starts_with("-f") => "writes a file",
        ("sed", option) if option.starts_with("-i") || option.starts_with("--in") => "writes files",
        ("printf", option) if option.starts_with("-v") => "sets a variable, which can run a program",
        ("test" | "[", _) => "may evaluate its words",
        _ => "is not known to only read",
    };
    format!("`{}` {does}", format!("{name} {argument}").trim_end())
}

/// The tests that look at a file or compare texts and numbers. `-v` and the comparison of anything but numbers evaluate.
fn test(words: &[&str], folders: &WorkingFolders) -> Option<()> {
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
    match words.strip_prefix(&["!"]).unwrap_or(words) {
        ["-n" | "-z", _] => Some(()),
        ["-e" | "-f" | "-d" | "-s" | "-r" | "-w" | "-x" | "-L" | "-h", file] => folders.free(&[file]).ok(),
        [_, "=" | "==" | "!=", _] => Some(()),
        [a, "-eq" | "-ne" | "-lt" | "-le" | "-gt" | "-ge", b] if is_number(a) && is_number(b) => Some(()),
        _ => None,
    }
}

/// A format without `%n`, which sets a variable, and without `*`.
fn printf(words: &[&str]) -> Option<()> {
    let format = words.first().filter(|format| !format.starts_with('-'))?;
    let mut characters = format.chars();
    while let Some(c) = characters.next() {
        if c == '%' {
            let mut kind = characters.next()?;
            while matches!(kind, '-' | '+' | ' ' | '#' | '.' | '0'..='9') {
                kind = characters.next()?;
            }
            if !matches!(kind, '%' | 's' | 'd' | 'i' | 'u' | 'x' | 'X' | 'o' | 'c' | 'b' | 'q' | 'f' | 'e' | 'g') {
                return None;
            }
        }
    }
    Some(())
}

fn find_only_looks(words: &[&str], folders: &WorkingFolders) -> Result<(), String> {
    let begins_tests = |word: &&&str| word.starts_with('-') || ["(", ")", "!", ","].contains(*word);
    let words = words.strip_prefix(&["-P"]).unwrap_or(words);
    let starts = words.iter().take_while(|word| !begins_tests(word)).count();
    folders.free(&words[..starts])?;
    let mut tests = words[starts..].iter();
    while let Some(test) = tests.next() {
        if FIND_VALUED.contains(test) {
            tests.next();
        } else if !FIND_PLAIN.contains(test) {
            return Err(doubt("find", test));
        }
    }
    Ok(())
}

/// Lines by number or by a simple pattern that are printed or deleted from what is printed, and plain replacements. `w`, `r`
/// and `e` are commands and flags too, so everything is spelled out.
fn sed_prints(script: &str) -> bool {
    script.split(';').all(|command| {
        let command = command.trim_matches(' ');
        let plain = |text: &str| !text.contains(['\\', '\n', '[']);
        if let Some(rest) = command.strip_prefix("s/") {
            let parts: Vec<&str> = rest.split('/').collect();
            return parts.len() == 3 && plain(rest) && parts[2].bytes().all(|b| matches!(b, b'g' | b'p' | b'0'..=b'9'));
        }
        let Some(address) = command.strip_suffix(['p', 'd']) else { return false };
        let one = |part: &str| {
            let pattern = part.strip_prefix('/').and_then(|part| part.strip_suffix('/'));
            part == "$"
                || (!part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
                || pattern.is_some_and(|inner| plain(inner) && !inner.contains(['/', ',']))
        };
        address.is_empty() || address.split(',').count() <= 2 && address.split(',').all(one)
    })
}

/// `{print $1, $NF}`, with or without a choice of lines by number.
fn awk_prints(script: &str) -> bool {
    let script = script.trim_matches(' ');
    let (lines, action) = match script.split_once('{') {
        Some((lines, action)) => (lines, action.strip_suffix('}')),
        None => (script, Some("print")),
    };
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let chosen = |test: &str| {
        let test = test.trim_matches(' ').strip_prefix("NR").map(|test| test.trim_matches(' '));
        test.and_then(|test| ["==", ">=", "<="].iter().find_map(|sign| test.strip_prefix(sign)))
            .is_some_and(|n| number(n.trim_matches(' ')))
    };
    let field = |text: &str| {
        let text = text.trim_matches(' ');
        ["NR", "NF", "$NF"].contains(&text) || text.strip_prefix('$').is_some_and(number)
    };
    let prints = action.and_then(|action| action.trim_matches(' ').strip_prefix("print"));
    let lines = lines.trim_matches(' ');
    (lines.is_empty() || lines.split("&&").all(chosen))
        && prints.is_some_and(|fields| fields.is_empty() || fields.starts_with(' ') && fields.split(',').all(field))
        && !script.is_empty()
}
