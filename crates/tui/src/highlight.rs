//! Colours for code: comments, strings, numbers, keywords, names of functions and types.
//!
//! One table of languages and one scanner that reads a line at a time and remembers only whether the next line begins
//! inside a comment or a string. It is meant for reading, not for editing: where a language is stranger than the table, a
//! word has the wrong colour and nothing else happens. A grammar per language would weigh megabytes.

use ratatui::style::Style;

use crate::flow::Styled;
use crate::theme::Theme;

/// What the scanner needs to know of a language.
#[derive(Debug, PartialEq)]
struct Language {
    /// Names in fences, and endings of files.
    names: &'static [&'static str],
    keywords: &'static str,
    line_comments: &'static [&'static str],
    block_comment: Option<(&'static str, &'static str)>,
    /// Quotes, the longest first: the mark at both ends, and whether the string may go on over the end of a line.
    strings: &'static [(&'static str, bool)],
}

const C_COMMENT: Option<(&str, &str)> = Some(("/*", "*/"));
const QUOTES: &[(&str, bool)] = &[("\"", false), ("'", false)];

const LANGUAGES: &[Language] = &[
    Language {
        names: &["python", "py", "pyi", "python3"],
        keywords: "and as assert async await break case class continue def del elif else except finally for from global \
                   if import in is lambda match nonlocal not or pass raise return try while with yield",
        line_comments: &["#"],
        block_comment: None,
        strings: &[("\"\"\"", true), ("'''", true), ("\"", false), ("'", false)],
    },
    Language {
        names: &["rust", "rs"],
        keywords: concat!(
            "as async await break const continue crate dyn else enum extern fn for if impl in let loop match mod move mut ",
            "pub ref return self static struct super trait type ",
            "unsafe",
            " use where while"
        ),
        line_comments: &["//"],
        block_comment: C_COMMENT,
        strings: &[("\"", true)],
    },
    Language {
        names: &["go", "golang"],
        keywords: "break case chan const continue default defer else fallthrough for func go goto if import interface \
                   map package range return select struct switch type var",
        line_comments: &["//"],
        block_comment: C_COMMENT,
        strings: &[("`", true), ("\"", false), ("'", false)],
    },
    Language {
        names: &["javascript", "js", "mjs", "cjs", "jsx", "typescript", "ts", "mts", "cts", "tsx"],
        keywords: "abstract as async await break case catch class const continue debugger declare default delete do \
                   else enum export extends finally for from function if implements import in instanceof interface \
                   keyof let new of private protected public readonly return static super switch this throw try type \
                   typeof var void while yield",
        line_comments: &["//"],
        block_comment: C_COMMENT,
        strings: &[("`", true), ("\"", false), ("'", false)],
    },
    Language {
        names: &[
            "c", "h", "cc", "cpp", "c++", "cxx", "hh", "hpp", "hxx", "cu", "cuh", "java", "cs", "csharp", "php", "dart",
        ],
        keywords: "abstract auto bool boolean break byte case catch char class const constexpr continue default delete \
                   do double else enum explicit extends extern final finally float for foreach friend function goto if \
                   implements import inline int interface internal long namespace new operator override package \
                   private protected public readonly return sealed short signed sizeof static struct super switch \
                   template this throw throws try typedef typename union unsigned using var virtual void volatile while",
        line_comments: &["//", "#include", "#define", "#if", "#endif", "#pragma"],
        block_comment: C_COMMENT,
        strings: QUOTES,
    },
    Language {
        names: &["kotlin", "kt", "kts", "swift", "scala"],
        keywords: "abstract actor as async await break by case catch class companion continue data def defer do else \
                   enum extends extension final finally for fun func guard if implicit import in init interface \
                   internal is lazy let match new object open override package private protocol public return sealed \
                   self static struct super switch this throw throws trait try type val var when where while with yield",
        line_comments: &["//"],
        block_comment: C_COMMENT,
        strings: &[("\"\"\"", true), ("\"", false), ("'", false)],
    },
    Language {
        names: &["shell", "sh", "bash", "zsh", "console", "dockerfile", "makefile"],
        keywords: "case do done elif else esac export fi for function if in local return set then unset until while",
        line_comments: &["#"],
        block_comment: None,
        strings: &[("\"", true), ("'", true)],
    },
    Language {
        names: &["toml", "yaml", "yml", "ini", "json", "jsonc"],
        keywords: "",
        line_comments: &["#", "//"],
        block_comment: None,
        strings: &[("\"\"\"", true), ("'''", true), ("\"", false), ("'", false)],
    },
    Language {
        names: &["sql"],
        keywords: "add alter and as asc by case create delete desc distinct drop else end exists from group having in \
                   index inner insert into is join key left like limit not on or order outer primary references right \
                   select set table then union unique update values when where with",
        line_comments: &["--"],
        block_comment: C_COMMENT,
        strings: QUOTES,
    },
];

/// Values that every language has its own spelling of.
const CONSTANTS: &[&str] = &["true", "false", "True", "False", "None", "null", "nil", "undefined", "NULL", "nullptr"];

/// Where a line begins.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Inside {
    #[default]
    Code,
    Comment(&'static str),
    Text(&'static str),
}

/// Colours one text, line by line.
#[derive(Clone, Debug, Default)]
pub struct Highlighter {
    language: Option<&'static Language>,
    inside: Inside,
}

impl Highlighter {
    /// For a fence's info string or the ending of a file's name. Code of an unknown language has no colours.
    pub fn new(name: &str) -> Highlighter {
        let name = name.split([' ', ',', '{', ':']).next().unwrap_or_default().to_lowercase();
        let language = LANGUAGES.iter().find(|language| language.names.contains(&name.as_str()));
        Highlighter { language, inside: Inside::Code }
    }

    /// One line, without its end.
    pub fn line(&mut self, line: &str, theme: &Theme) -> Vec<Styled> {
        let Some(language) = self.language else { return vec![(line.to_owned(), theme.answer)] };
        let mut spans: Vec<Styled> = Vec::new();
        let mut rest = line;
        while !rest.is_empty() {
            let (length, style) = self.token(language, rest, line.len() - rest.len(), line, theme);
            let (token, after) = rest.split_at(length);
            match spans.last_mut().filter(|(_, last)| *last == style) {
                Some((text, _)) => text.push_str(token),
                None => spans.push((token.to_owned(), style)),
            }
            rest = after;
        }
        spans
    }

    /// The bytes of the next token, at least one character, and its style.
    fn token(&mut self, language: &Language, rest: &str, at: usize, line: &str, theme: &Theme) -> (usize, Style) {
        match self.inside {
            Inside::Comment(end) => return (self.up_to(rest, end, false), theme.comment),
            Inside::Text(end) => return (self.up_to(rest, end, true), theme.string),
            Inside::Code => {}
        }
        if let Some((open, close)) = language.block_comment.filter(|(open, _)| rest.starts_with(open)) {
            self.inside = Inside::Comment(close);
            return (open.len() + self.up_to(&rest[open.len()..], close, false), theme.comment);
        }
        if language.line_comments.iter().any(|mark| rest.starts_with(mark) && comment_may_begin(mark, at, line)) {
            return (rest.len(), theme.comment);
        }
        if let Some(&(mark, goes_on)) = language.strings.iter().find(|(mark, _)| rest.starts_with(mark)) {
            self.inside = Inside::Text(mark);
            let length = mark.len() + self.up_to(&rest[mark.len()..], mark, true);
            if !goes_on {
                self.inside = Inside::Code;
            }
            return (length, theme.string);
        }
        if let Some(length) = character(rest) {
            return (length, theme.string);
        }
        word(language, rest, theme)
    }

    /// Bytes up to and with the end of a comment or string; all of the line where it does not end there.
    fn up_to(&mut self, rest: &str, end: &str, escapes: bool) -> usize {
        let mut from = 0;
        while let Some(c) = rest[from..].chars().next() {
            if rest[from..].starts_with(end) {
                self.inside = Inside::Code;
                return from + end.len();
            }
            from += c.len_utf8();
            if escapes && c == '\\' {
                from += rest[from..].chars().next().map_or(0, char::len_utf8);
            }
        }
        rest.len()
    }
}

/// `#` begins a comment at the beginning of a word only, so that `$#` and `a#b` are none; `//` not behind a colon, so that
/// addresses in configuration are none.
fn comment_may_begin(mark: &str, at: usize, line: &str) -> bool {
    let before = line[..at].chars().next_back();
    match mark {
        "#" => before.is_none_or(char::is_whitespace),
        "//" => before != Some(':'),
        _ => before.is_none_or(|c| !c.is_alphanumeric()),
    }
}

/// The length of a character between quotes, `'x'` or `'\n'`; what is no such thing is a lifetime or a lone quote.
fn character(rest: &str) -> Option<usize> {
    let mut inside = rest.strip_prefix('\'')?.chars();
    let first = inside.next()?;
    let length = match first {
        '\\' => {
            let skip = 2 + inside.next()?.len_utf8();
            skip + rest[skip..].find('\'').filter(|&end| end <= 8)? + 1
        }
        c => 1 + c.len_utf8() + usize::from(inside.next() == Some('\'')),
    };
    rest[..length].ends_with('\'').then_some(length).filter(|&length| length > 2)
}

/// A word, a number, or one other character.
fn word(language: &Language, rest: &str, theme: &Theme) -> (usize, Style) {
    let first = rest.chars().next().unwrap_or(' ');
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let length = |from: usize| from + rest[from..].find(|c: char| !is_word(c)).unwrap_or(rest.len() - from);
    match first {
        '0'..='9' => (length(0), theme.number),
        '@' | '$' if rest[1..].starts_with(is_word) => (length(1), theme.kind),
        '#' if rest.starts_with("#[") || rest.starts_with("#![") => {
            (rest.find(']').map_or(rest.len(), |end| end + 1), theme.kind)
        }
        c if is_word(c) => {
            let length = length(0);
            let (word, after) = rest.split_at(length);
            let is_keyword = |word: &str| language.keywords.split(' ').any(|keyword| keyword == word);
            let style = if is_keyword(word) || (language.names[0] == "sql" && is_keyword(&word.to_lowercase())) {
                theme.keyword
            } else if CONSTANTS.contains(&word) {
                theme.number
            } else if after.starts_with('(') || after.starts_with("!(") {
                theme.function
            } else if c.is_uppercase() {
                theme.kind
            } else {
                theme.answer
            };
            (length, style)
        }
        c => (c.len_utf8(), theme.answer),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Each span as `text` with the letter of its kind before it.
    fn shown(name: &str, text: &str) -> Vec<String> {
        let theme = Theme::new(true);
        let letter = |style: Style| {
            let kinds = [
                (theme.keyword, 'k'),
                (theme.string, 's'),
                (theme.number, 'n'),
                (theme.comment, 'c'),
                (theme.function, 'f'),
                (theme.kind, 't'),
            ];
            kinds.iter().find(|(known, _)| *known == style).map_or('-', |(_, letter)| *letter)
        };
        let mut highlighter = Highlighter::new(name);
        let lines = text.lines().flat_map(|line| highlighter.line(line, &theme));
        lines
            .filter(|(text, _)| !text.trim().is_empty())
            .map(|(text, style)| format!("{}{}", letter(style), text.trim()))
            .collect()
    }

    #[test]
    fn each_kind_of_word_has_its_colour() {
        assert_eq!(
            shown("python", "def add(a: int) -> Cart:  # sum\n    return f(a, 1.5, 'x#\\'y', None)"),
            [
                "kdef",
                "fadd",
                "-(a: int) ->",
                "tCart",
                "-:",
                "c# sum",
                "kreturn",
                "ff",
                "-(a,",
                "n1",
                "-.",
                "n5",
                "-,",
                "s'x#\\'y'",
                "-,",
                "nNone",
                "-)"
            ]
        );
        assert_eq!(
            shown("rs", "#[test]\nfn a<'b>(c: &'b str) { vec!['\\n', 'x', b'\"'] } // end"),
            [
                "t#[test]",
                "kfn",
                "-a<'b>(c: &'b str) { vec![",
                "s'\\n'",
                "-,",
                "s'x'",
                "-, b",
                "s'\"'",
                "-] }",
                "c// end"
            ]
        );
        assert_eq!(shown("sql", "SELECT a FROM b -- x"), ["kSELECT", "-a", "kFROM", "-b", "c-- x"]);
        assert_eq!(shown("nothing", "if a"), ["-if a"]);
    }

    #[test]
    fn comments_and_strings_go_on_over_lines() {
        assert_eq!(shown("c", "a /* b\nif */ if"), ["-a", "c/* b", "cif */", "kif"]);
        assert_eq!(
            shown("py", "x = \"\"\"if\nfor\n\"\"\" or 1"),
            ["-x =", "s\"\"\"if", "sfor", "s\"\"\"", "kor", "n1"]
        );
        assert_eq!(shown("js", "'open\nif"), ["s'open", "kif"], "a string that must end with its line does");
        assert_eq!(shown("yaml", "url: http://x # y"), ["-url: http://x", "c# y"]);
    }

    proptest! {
        #[test]
        fn no_text_is_lost(name in "(python|rs|go|ts|c|kt|sh|toml|sql|x)", text in "[ -~é日\n]{0,120}") {
            let theme = Theme::new(true);
            let mut highlighter = Highlighter::new(&name);
            for line in text.lines() {
                let joined: String = highlighter.line(line, &theme).into_iter().map(|(text, _)| text).collect();
                prop_assert_eq!(joined, line);
            }
        }
    }
}
