//! Names in what a model says: those in backticks that nothing knows, and packages that a command would install.

use index::terms;

/// Names and packages that are told of one answer.
const TOLD_MAX: usize = 5;

/// Programs that install packages, and the words behind which these are named.
const INSTALLERS: &[(&[&str], &[&str])] = &[
    (&["pip", "pip3"], &["install"]),
    (&["uv", "poetry", "pdm", "cargo", "yarn", "pnpm", "npm"], &["add", "install", "i"]),
];

/// The names in backticks that can only be names of code: called, with `_`, or with a capital inside.
pub fn names(text: &str) -> Vec<&str> {
    let mut found: Vec<&str> = Vec::new();
    let mut fenced = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            continue;
        }
        if fenced {
            continue;
        }
        for quoted in line.split('`').skip(1).step_by(2) {
            // A path or a command is no name.
            if quoted.contains(['/', ' ', '-', '$', '"', '\'', '=']) {
                continue;
            }
            for (at, name) in terms::identifiers(quoted) {
                let called = quoted[at + name.len()..].starts_with('(');
                let inner = name.trim_matches('_');
                let letters: Vec<char> = inner.chars().collect();
                let camel = letters.windows(2).any(|pair| pair[0].is_lowercase() && pair[1].is_uppercase());
                let telling = called || inner.contains('_') || camel;
                if telling
                    && inner.len() > 2
                    && !name.starts_with(|c: char| c.is_ascii_digit())
                    && !found.contains(&name)
                {
                    found.push(name);
                }
            }
        }
    }
    found
}

/// The packages that commands in a text would install, as they are written, without versions.
pub fn installed(text: &str) -> Vec<&str> {
    let mut found: Vec<&str> = Vec::new();
    for line in text.lines().flat_map(|line| line.split(['`', ';', '|', '&'])) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let begins = words.iter().enumerate().find_map(|(at, word)| {
            let program = word.rsplit('/').next().unwrap_or(word);
            let (_, verbs) = INSTALLERS.iter().find(|(programs, _)| programs.contains(&program))?;
            words.get(at + 1).filter(|verb| verbs.contains(verb)).map(|_| at + 2)
        });
        let Some(begins) = begins else { continue };
        for word in &words[begins..] {
            // Prose goes on behind a command, and files are no packages.
            let name = word
                .trim_matches(['\'', '"', ',', '.', ')'])
                .split(['=', '<', '>', '~', '[', '!', ';'])
                .next()
                .unwrap_or("");
            let name = match name.rsplit_once('@') {
                Some((name, _)) if !name.is_empty() => name,
                _ => name,
            };
            let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_./@".contains(c));
            if word.starts_with('-') {
                continue;
            }
            if !plain || name.starts_with('.') || name.ends_with(".txt") || name.ends_with(".whl") {
                break;
            }
            if !found.contains(&name) {
                found.push(name);
            }
            if word.ends_with(['.', ',', ')']) {
                break;
            }
        }
    }
    found.truncate(TOLD_MAX);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_a_name_is_taken_for_one() {
        let text = "Call `Cart.total_price()` or `run()`, see `src/a_b.py`, `the_rest` and `word`.\n```python\nnot_this()\n```\n\
                    `HTTPAdapter` and `HttpAdapter`, `git commit_this`.";
        assert_eq!(names(text), ["total_price", "run", "the_rest", "HttpAdapter"]);
    }

    #[test]
    fn packages_of_install_commands_are_found() {
        let check = |text: &str, expected: &[&str]| assert_eq!(installed(text), expected, "{text}");
        check("Run `pip install requests[socks]==2.0 'numpy>=1'` first.", &["requests", "numpy"]);
        check("$ python -m pip install -U left_pad\n", &["left_pad"]);
        check("pip install -r requirements.txt", &[]);
        check("npm install --save-dev @types/node lodash@4 && npm test", &["@types/node", "lodash"]);
        check("cargo add serde, then build.", &["serde"]);
        check("You can pip the install.", &[]);
        check("`uv add httpx` and `pip install .`", &["httpx"]);
    }
}
