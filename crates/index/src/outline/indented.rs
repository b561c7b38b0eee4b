//! Items of languages whose blocks are made by indentation.

use super::{Item, Kind, Language, mask, squeezed, with_comments_above};

/// One statement that may hold others: its lines, and how deep it stands.
pub(super) struct Statement {
    pub(super) lines: std::ops::Range<usize>,
    pub(super) depth: usize,
}

pub(super) fn items(text: &str) -> Vec<Item> {
    let (masked, in_strings) = mask::mask_with_strings(Language::Python, text);
    let lines: Vec<&str> = text.split('\n').collect();
    let code: Vec<&str> = masked.split('\n').collect();
    let statements = statements(&code, &in_strings);
    let mut items: Vec<Item> = Vec::new();
    let mut open: Vec<(usize, String)> = Vec::new();
    let mut decorated: Option<usize> = None;
    for (number, statement) in statements.iter().enumerate() {
        let first = statement.lines.start;
        let words = code[statement.lines.clone()].join(" ");
        let words = words.trim();
        open.retain(|(depth, _)| *depth < statement.depth);
        if words.starts_with('@') {
            decorated.get_or_insert(first);
            continue;
        }
        let above = decorated.take();
        let Some((kind, name)) = head(words, statement.depth) else { continue };
        let begin = above.unwrap_or(first);
        let start = with_comments_above(begin, &lines, &code);
        let end = match kind {
            Kind::Function | Kind::Type => end_of_block(&statements[number..], &lines, &code),
            _ => statement.lines.end,
        };
        let indent = super::indent(lines[first]).to_owned();
        let shown = match kind {
            // The path of an import may be a string elsewhere, never here.
            Kind::Import => squeezed(words),
            _ => squeezed(words.split(" #").next().unwrap_or(words)).trim_end_matches(':').to_owned(),
        };
        items.push(Item {
            kind,
            name: name.clone(),
            signature: shown,
            parents: open.iter().map(|(_, name)| name.clone()).collect(),
            lines: start..end,
            head: first,
            indent,
            has_body: true,
            whole_lines: !words.contains(';'),
        });
        if matches!(kind, Kind::Function | Kind::Type) {
            open.push((statement.depth, name));
        }
    }
    items
}

fn head(words: &str, depth: usize) -> Option<(Kind, String)> {
    let name = |rest: &str| {
        let name: String = rest.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        (!name.is_empty()).then_some(name)
    };
    let words = words.strip_prefix("async ").map_or(words, str::trim_start);
    if let Some(rest) = words.strip_prefix("def ") {
        return Some((Kind::Function, name(rest)?));
    }
    if let Some(rest) = words.strip_prefix("class ") {
        return Some((Kind::Type, name(rest)?));
    }
    if words.starts_with("import ") || words.starts_with("from ") {
        return Some((Kind::Import, squeezed(words)));
    }
    let target = name(words)?;
    let rest = words[target.len()..].trim_start();
    let assigns = rest.starts_with('=') && !rest.starts_with("==") || rest.starts_with(':') && rest.contains('=');
    (depth == 0 && assigns).then_some((Kind::Value, target))
}

/// Statements by line: one goes on while a bracket is open, a string is unfinished, or its line ends with a backslash.
pub(super) fn statements(code: &[&str], in_strings: &[usize]) -> Vec<Statement> {
    let mut statements: Vec<Statement> = Vec::new();
    let (mut brackets, mut goes_on) = (0usize, false);
    for (number, line) in code.iter().enumerate() {
        let blank = line.trim().is_empty();
        if blank && brackets == 0 && !goes_on {
            continue;
        }
        match statements.last_mut() {
            Some(last) if brackets > 0 || goes_on => last.lines.end = number + 1,
            _ => statements.push(Statement { lines: number..number + 1, depth: depth(line) }),
        }
        for byte in line.bytes() {
            match byte {
                b'(' | b'[' | b'{' => brackets += 1,
                b')' | b']' | b'}' => brackets = brackets.saturating_sub(1),
                _ => {}
            }
        }
        goes_on = line.ends_with('\\') || in_strings.binary_search(&(number + 1)).is_ok();
    }
    statements
}

fn depth(line: &str) -> usize {
    line.bytes().take_while(|byte| matches!(byte, b' ' | b'\t')).map(|byte| if byte == b'\t' { 8 } else { 1 }).sum()
}

/// The line after the last one that belongs to the first statement.
fn end_of_block(statements: &[Statement], lines: &[&str], code: &[&str]) -> usize {
    let head = &statements[0];
    let inside = statements[1..].iter().take_while(|statement| statement.depth > head.depth);
    let mut end = inside.last().map_or(head.lines.end, |last| last.lines.end);
    // Comments below that are indented like the body belong to it.
    for at in end..lines.len() {
        match (lines[at].trim().is_empty(), code[at].trim().is_empty()) {
            (true, _) => {}
            (false, true) if depth(lines[at]) > head.depth => end = at + 1,
            _ => break,
        }
    }
    end
}
