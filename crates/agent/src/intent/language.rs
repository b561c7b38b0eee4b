//! The language of a message, as far as it decides in which one to answer.
//!
//! By script where that tells, else by words that are frequent in one language and rare in the others. Names in code are
//! no evidence, and without evidence it is English.

/// A language that Flint's own sentences are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// English.
    English,
    /// German.
    German,
    /// French.
    French,
    /// Spanish.
    Spanish,
    /// Portuguese.
    Portuguese,
    /// Chinese.
    Chinese,
    /// Japanese.
    Japanese,
    /// Russian.
    Russian,
}

use Language::{Chinese, English, French, German, Japanese, Portuguese, Russian, Spanish};

const GERMAN: &[&str] = &[
    "der", "die", "das", "und", "ist", "nicht", "ein", "eine", "wie", "was", "wo", "warum", "welche", "welcher", "mir",
    "ich", "du", "zu", "im", "den", "dem", "wird", "werden", "gibt", "es", "kannst", "bitte", "mit", "auf", "für",
    "von", "macht", "danke", "hallo", "guten", "wenn", "oder", "noch", "auch", "mal", "schau", "zeig",
];
const FRENCH: &[&str] = &[
    "le", "la", "les", "est", "et", "un", "une", "des", "du", "dans", "où", "comment", "pourquoi", "quel", "quelle",
    "que", "qui", "peux", "tu", "ce", "cette", "pas", "avec", "sur", "fait", "merci", "bonjour", "salut", "à", "au",
    "je", "il", "c'est", "est-ce", "quoi", "moi", "ça",
];
const SPANISH: &[&str] = &[
    "el", "la", "los", "las", "es", "y", "un", "una", "qué", "cómo", "dónde", "por", "cuál", "en", "del", "que", "se",
    "hace", "hay", "puedes", "me", "con", "esta", "este", "gracias", "hola", "buenas", "para", "si", "función",
    "archivo", "está", "cuando", "tiene",
];
const PORTUGUESE: &[&str] = &[
    "o", "os", "as", "é", "e", "um", "uma", "como", "onde", "porque", "qual", "em", "do", "da", "no", "na", "que",
    "não", "faz", "você", "pode", "me", "com", "esta", "este", "obrigado", "oi", "valeu", "para", "são", "função",
    "arquivo", "está", "quando", "tem", "existe", "dá",
];
const ENGLISH: &[&str] = &[
    "the", "is", "and", "a", "an", "of", "to", "in", "what", "how", "where", "why", "which", "does", "do", "can",
    "you", "me", "this", "that", "it", "for", "with", "are", "if", "when", "there", "not", "show", "explain", "thanks",
    "hello",
];

impl Language {
    /// The language of a text.
    pub fn of(text: &str) -> Self {
        let count = |test: fn(char) -> bool| text.chars().filter(|letter| test(*letter)).count();
        let kana = count(|letter| matches!(letter, '\u{3040}'..='\u{30ff}'));
        let han = count(|letter| matches!(letter, '\u{4e00}'..='\u{9fff}'));
        if kana > 0 && kana * 8 >= han {
            return Japanese;
        }
        if han > 0 {
            return Chinese;
        }
        if count(|letter| matches!(letter, '\u{0400}'..='\u{04ff}')) > 1 {
            return Russian;
        }
        let lower = text.to_lowercase();
        let words: Vec<&str> = lower
            .split(|letter: char| !(letter.is_alphabetic() || letter == '\'' || letter == '-' || letter == '_'))
            .filter(|word| !word.is_empty())
            .collect();
        let has = |letters: &str| usize::from(lower.contains(|letter: char| letters.contains(letter))) * 2;
        let score = |known: &[&str]| words.iter().filter(|word| known.contains(word)).count();
        let scored = [
            (English, score(ENGLISH)),
            (German, score(GERMAN) + has("äöüß")),
            (French, score(FRENCH) + has("èêëùûîôœ")),
            (Spanish, score(SPANISH) + has("¿¡ñ")),
            (Portuguese, score(PORTUGUESE) + has("ãõ")),
        ];
        // Of equals the first, which is English.
        scored.into_iter().rev().max_by_key(|(_, score)| *score).map_or(English, |(language, _)| language)
    }

    /// Its English name, for a model.
    pub fn name(self) -> &'static str {
        match self {
            English => "English",
            German => "German",
            French => "French",
            Spanish => "Spanish",
            Portuguese => "Portuguese",
            Chinese => "Chinese",
            Japanese => "Japanese",
            Russian => "Russian",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_language_is_told_by_script_and_small_words() {
        let cases = [
            ("What does total do?", English),
            ("tax", English),
            ("Was macht die Funktion tax?", German),
            ("wo wird parse aufgerufen", German),
            ("Où est définie la classe Cart ?", French),
            ("¿Qué hace place?", Spanish),
            ("Onde são lidos os argumentos?", Portuguese),
            ("购物车是怎么计算小计的？", Chinese),
            ("送料はどうやって決まりますか？", Japanese),
            ("Как считается налог?", Russian),
        ];
        for (text, language) in cases {
            assert_eq!(Language::of(text), language, "{text}");
        }
    }
}
