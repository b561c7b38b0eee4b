//! What a request asks to go away, by its name.
//!
//! A word like "remove" decides nothing by itself: it may be the name of a method, or what that method shall do. What goes
//! has to be the object of such a word in the same clause, written as it is in the code; and the answer has to leave it
//! out of what it shows (`edit::merge`).

/// Words that ask for something to go, as commands, with their objects behind them.
const BEFORE: &[&str] = &[
    "remove",
    "delete",
    "drop",
    "erase",
    "strip",
    "inline",
    "eliminate",
    "supprime",
    "supprimez",
    "retire",
    "retirez",
    "enlève",
    "enlevez",
    "elimina",
    "elimine",
    "borra",
    "borre",
    "quita",
    "quite",
    "rimuovi",
    "cancella",
    "togli",
    "entferne",
    "entfern",
    "lösche",
    "lösch",
    "streiche",
    "remova",
    "apague",
    "exclua",
    "удали",
    "удалите",
    "убери",
    "уберите",
    "删除",
    "移除",
    "去掉",
    "usuń",
];

/// Words whose objects may stand before them.
const BEHIND: &[&str] = &[
    "entfernen",
    "löschen",
    "streichen",
    "weg",
    "raus",
    "supprimer",
    "retirer",
    "eliminar",
    "borrar",
    "quitar",
    "remover",
    "удалить",
    "убрать",
    "を削除",
    "削除",
    "删掉",
    "삭제",
];

/// Words that say what stays: with them its object comes in the place of another.
const REPLACED: &[&str] =
    &["replace", "ersetze", "ersetzen", "remplace", "reemplaza", "sostituisci", "merge", "split", "move"];

/// Words behind which the object is over.
const OVER: &[&str] = &[
    "to", "from", "with", "by", "in", "into", "of", "that", "which", "who", "so", "when", "if", "where", "because",
    "for", "aus", "von", "durch", "mit", "der", "dass", "wenn", "de", "du", "par", "avec", "que", "qui", "con", "por",
    "da", "из", "but", "keep", "without", "not",
];

/// Words before a noun: what follows is no command.
const NOUN: &[&str] = &[
    "a", "an", "the", "method", "function", "called", "named", "command", "option", "ein", "eine", "une", "un", "not",
    "never", "don't",
];

/// Words between a command and the end of its object.
const OBJECT_WORDS_MAX: usize = 12;

/// Whether the request asks for something of this name to go away.
pub fn asks_to_remove(request: &str, name: &str) -> bool {
    !name.is_empty() && clauses(request).any(|clause| removes(&clause, name))
}

/// Its clauses, as words. What is called like a function keeps its bracket.
fn clauses(request: &str) -> impl Iterator<Item = Vec<&str>> {
    let ends = |(at, c): (usize, char)| {
        matches!(c, '\n' | ';' | '!' | '?' | '。' | '，')
            || c == '.' && request[at + 1..].chars().next().is_none_or(char::is_whitespace)
    };
    let mut cuts: Vec<usize> = request.char_indices().filter(|(at, c)| ends((*at, *c))).map(|(at, _)| at).collect();
    cuts.push(request.len());
    let mut from = 0;
    cuts.into_iter().map(move |to| {
        let clause = request.get(from..to).unwrap_or_default();
        from = to;
        clause.split_whitespace().collect()
    })
}

fn removes(clause: &[&str], name: &str) -> bool {
    let bare = |word: &&str| word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
    let is = |word: &str, list: &[&str]| list.contains(&bare(&word).as_str());
    let object = |words: &mut dyn Iterator<Item = &&str>| {
        let mut words = words.take(OBJECT_WORDS_MAX).take_while(|word| !is(word, OVER));
        words.any(|word| names(word, name))
    };
    for (at, word) in clause.iter().enumerate() {
        // `remove(id)` is code.
        if word.contains('(') || word.starts_with('`') {
            continue;
        }
        let noun = at > 0 && is(clause[at - 1], NOUN);
        let rid = bare(word) == "rid" && at > 0 && bare(&clause[at - 1]).starts_with("get");
        let behind = &clause[at + 1..];
        let behind = if rid { behind.get(1..).unwrap_or_default() } else { behind };
        if (!noun && (is(word, BEFORE) || is(word, REPLACED)) || rid) && object(&mut behind.iter()) {
            return true;
        }
        if is(word, BEHIND) && object(&mut clause[..at].iter()) {
            return true;
        }
    }
    false
}

/// Whether a word of a request is this name, perhaps behind that of its class.
fn names(word: &str, name: &str) -> bool {
    let word = word.trim_matches(|c: char| !c.is_alphanumeric() && c != '_');
    let word = word.split('(').next().unwrap_or_default();
    word == name || word.rsplit(['.', ':', '#']).next() == Some(name) && word.len() > name.len()
}

/// Whether a text has a name, as a whole word.
pub fn mentions(text: &str, name: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_is_named_and_the_object_of_the_word() {
        let asks = |request: &str, name: &str| assert!(asks_to_remove(request, name), "{request}: {name}");
        asks("Remove the method search from Catalog.", "search");
        asks("please delete `Cart.weight` and also old_total", "weight");
        asks("please delete `Cart.weight` and also old_total", "old_total");
        asks("Get rid of the helper fmt_price.", "fmt_price");
        asks("Entferne die Methode search aus Catalog.", "search");
        asks("Die Methode search bitte löschen.", "search");
        asks("Replace row and top with one function.", "top");
        asks("Supprime la fonction tax.", "tax");
        let keeps = |request: &str, name: &str| assert!(!asks_to_remove(request, name), "{request}: {name}");
        keeps("Add a method remove(id) to Store that deletes a todo.", "Store");
        keeps("Add a method remove to Store.", "Store");
        keeps("Add a method remove(id) to Store that deletes a Todo.", "Todo");
        keeps("Remove the method search from Catalog.", "Catalog");
        keeps("Drop the default of count in Cart.add", "add");
        keeps("Make total faster, and drop nothing. Keep search.", "search");
        keeps("Do not remove search.", "search");
        keeps("Strip the spaces from what parse gets.", "parse");
    }
}
