//! Options of a program that are known, to the letter. GNU programs and git accept any unambiguous beginning of a long
//! option, and short ones in a bundle, so nothing less than the exact name of a listed option is taken for it.

/// What may be given to a program.
#[derive(Clone, Copy)]
pub(super) struct Options<'l> {
    /// Letters of options without a value; these may be bundled.
    pub flags: &'static str,
    /// Letters of options with a value, in the same word or the next.
    pub values: &'static str,
    /// Long options, by blanks: `name`, `name=` with a value, `name?` with one behind `=` or none.
    pub long: &'l str,
    /// Whether `-5` is an option too.
    pub number: bool,
}

/// The arguments of a program, told apart.
#[derive(Debug, Default)]
pub(super) struct Given<'a> {
    /// Names of options, with their dashes.
    pub options: Vec<&'a str>,
    /// Their values.
    pub values: Vec<&'a str>,
    /// Everything else.
    pub words: Vec<&'a str>,
}

impl Options<'_> {
    /// Tells arguments apart. The error is the first that is not listed.
    pub fn tell_apart<'a>(&self, arguments: &'a [String]) -> Result<Given<'a>, &'a str> {
        let mut given = Given::default();
        let mut arguments = arguments.iter().map(String::as_str);
        while let Some(argument) = arguments.next() {
            let wants_value = match argument {
                "--" => {
                    given.words.extend(arguments.by_ref());
                    false
                }
                "-" => {
                    given.words.push(argument);
                    false
                }
                _ if argument.starts_with("--") => self.long(argument, &mut given).ok_or(argument)?,
                _ if argument.starts_with('-') => self.short(argument, &mut given).ok_or(argument)?,
                _ => {
                    given.words.push(argument);
                    false
                }
            };
            if wants_value {
                let value = arguments.next().ok_or(argument)?;
                // Programs of other makers may not expect a value here and take it for an option.
                let number = value.strip_prefix('-').is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()));
                if value.starts_with('-') && !number {
                    return Err(argument);
                }
                given.values.push(value);
            }
        }
        Ok(given)
    }

    /// None for an option that is not listed, else whether its value is the next word.
    fn long<'a>(&self, argument: &'a str, given: &mut Given<'a>) -> Option<bool> {
        let (name, value) = match argument.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (argument, None),
        };
        let listed = self.long.split(' ').find(|listed| listed.trim_end_matches(['=', '?']) == &name[2..])?;
        given.options.push(name);
        given.values.extend(value);
        match listed.as_bytes().last()? {
            b'=' => Some(value.is_none()),
            b'?' => Some(false),
            _ if value.is_some() => None,
            _ => Some(false),
        }
    }

    fn short<'a>(&self, argument: &'a str, given: &mut Given<'a>) -> Option<bool> {
        let letters = &argument[1..];
        if self.number && letters.bytes().all(|b| b.is_ascii_digit()) {
            return Some(false);
        }
        let first = letters.chars().next()?;
        if !first.is_ascii() {
            return None;
        }
        given.options.push(&argument[..2]);
        if self.values.contains(first) {
            let value = &letters[1..];
            given.values.extend((!value.is_empty()).then_some(value));
            return Some(value.is_empty());
        }
        letters.chars().all(|letter| self.flags.contains(letter)).then(|| {
            given.options.extend((2..argument.len()).map(|at| &argument[at..=at]));
            false
        })
    }
}
