//! Answers as models write them, right and wrong: functions, classes in part, whole files with holes, several files in one
//! block, headings that lie.

use std::ops::Range;

use index::outline::{Item, Kind};

use super::files::Sample;
use super::{Case, Dice};

/// Words for what is left out. None decides anything.
const ELISIONS: &[&str] = &[
    "...",
    "... existing code ...",
    "your implementation here",
    "rest of the code",
    "unchanged",
    "as it was",
    "(the remaining lines do not change)",
    "hier bleibt alles, wie es war",
    "le reste ne change pas",
    "ここは変更なし",
    "snip",
    "etc.",
    "keep going as you were",
    "[...]",
    "TODO",
    "same body as above",
];

const PROSE: &[&str] = &[
    "Here is the updated code:",
    "Sure! I changed what you asked for.",
    "This is what it looks like now, see below.",
    "The other functions in shop/orders.py and src/store.ts stay as they are.",
    "**Changes**",
    "1. First, the function.",
    "Note that nothing else has to change.",
];

/// Requests with words that once decided about removals. `{}` is the name of what is changed.
const REQUESTS: &[&str] = &[
    "Add a method remove(id) to Store that deletes a todo.",
    "Change {}.",
    "Fix the bug in {}.",
    "Drop the default in {}, and strip what is not needed.",
    "Make {} faster.",
    "Move the check in {} to its beginning.",
    "Replace the loop in {} with something shorter.",
    "{} should merge both, split by comma and delete duplicates.",
    "Rename the variable in {}.",
    "Ändere {}, und entferne das Unnötige.",
];

pub(super) fn case(dice: &mut Dice, samples: &[Sample]) -> Case {
    let file = dice.roll(10);
    let mut files = vec![file];
    for _ in 0..dice.roll(3) {
        let other = dice.roll(10);
        if !files.contains(&other) && samples[other].path != samples[file].path {
            files.push(other);
        }
    }
    let at = dice.roll(files.len());
    files.swap(0, at);
    let mut case = Case { files, ..Case::default() };
    match samples[file].language() {
        Some(_) => code(dice, samples, file, &mut case),
        None => text(dice, &samples[file], file, &mut case),
    }
    if dice.once_in(3) {
        case.answer.insert_str(0, &format!("{}\n\n", dice.pick(PROSE)));
        case.plain = false;
    }
    if dice.once_in(4) {
        case.answer.push_str(&format!("\n{}\n\n```sh\nmake test\n```\n", dice.pick(PROSE)));
    }
    case
}

/// A function with a new statement, and perhaps without one of its old lines. Its lines, the head's indentation kept.
fn changed(dice: &mut Dice, sample: &Sample, file: usize, item: &Item, block: usize, case: &mut Case) -> Vec<String> {
    let mark = format!("mark_{}", dice.roll(1_000_000));
    let body = sample.body(item);
    let lines = sample.lines();
    let first = lines[body..item.lines.end].iter().find(|line| !line.trim().is_empty()).copied().unwrap_or_default();
    let indent = &first[..first.len() - first.trim_start().len()];
    let indent = if first.trim().starts_with('}') { format!("{indent}    ") } else { indent.to_owned() };
    let mut new: Vec<String> = lines[item.lines.clone()].iter().map(|line| (*line).to_owned()).collect();
    new.insert(body - item.lines.start, format!("{indent}{}", sample.statement(&mark)));
    case.may_go.extend(item.lines.clone().map(|at| (file, at)));
    case.marks.push((mark, file, block));
    new
}

fn comment(dice: &mut Dice, sample: &Sample, indent: &str) -> String {
    let words = dice.pick(ELISIONS);
    match sample.fence {
        "python" | "toml" => format!("{indent}# {words}"),
        "markdown" => format!("{indent}<!-- {words} -->"),
        _ if dice.once_in(3) => format!("{indent}/* {words} */"),
        _ => format!("{indent}// {words}"),
    }
}

fn fenced(sample: &Sample, heading: &str, lines: &[String]) -> String {
    let fence = if sample.fence == "markdown" { "````" } else { "```" };
    let heading = if heading.is_empty() { String::new() } else { format!("{heading}\n") };
    format!("{heading}{fence}{}\n{}\n{fence}\n", sample.fence, lines.join("\n"))
}

fn heading(dice: &mut Dice, sample: &Sample) -> String {
    match dice.roll(4) {
        0 => format!("**{}**", sample.path),
        1 => format!("### `{}`", sample.path),
        2 => format!("File: {}", sample.path),
        _ => sample.path.to_owned(),
    }
}

fn code(dice: &mut Dice, samples: &[Sample], file: usize, case: &mut Case) {
    let sample = &samples[file];
    let functions = sample.functions();
    let item = dice.pick(&functions).clone();
    case.request = dice.pick(REQUESTS).replace("{}", &item.name);
    let shape = dice.roll(11);
    match shape {
        0 => {
            let lines = changed(dice, sample, file, &item, 0, case);
            case.shape = "a function";
            case.plain = sample.is_unique(&item) && item.parents.is_empty();
            case.answer = fenced(sample, &heading(dice, sample), &lines);
        }
        1 => several(dice, sample, file, &functions, case),
        2 => wrong_heading(dice, samples, file, &item, case),
        3 | 4 => partial_class(dice, sample, file, &item, case),
        5 => elided(dice, sample, file, &item, case),
        6 => two_files(dice, samples, file, &item, case),
        7 => removal(dice, sample, file, case),
        _ => whole(dice, sample, file, &item, case),
    }
}

/// Two or three functions in any order, in one block or one each.
fn several(dice: &mut Dice, sample: &Sample, file: usize, functions: &[Item], case: &mut Case) {
    case.shape = "functions, reordered";
    let mut chosen: Vec<&Item> = Vec::new();
    for _ in 0..2 + dice.roll(2) {
        let item = dice.pick(functions);
        if !chosen.iter().any(|other| other.name == item.name) && sample.is_unique(item) && item.parents.is_empty() {
            chosen.insert(dice.roll(chosen.len() + 1), item);
        }
    }
    case.plain = !chosen.is_empty();
    let apart = dice.once_in(2);
    let mut lines: Vec<String> = Vec::new();
    let count = chosen.len();
    for (number, item) in chosen.into_iter().enumerate() {
        let new = changed(dice, sample, file, item, if apart { number } else { 0 }, case);
        lines.extend(new);
        if apart || number + 1 == count {
            let heading = if dice.once_in(2) { heading(dice, sample) } else { String::new() };
            case.answer.push_str(&fenced(sample, &heading, &std::mem::take(&mut lines)));
        } else {
            lines.push(String::new());
        }
    }
}

fn wrong_heading(dice: &mut Dice, samples: &[Sample], file: usize, item: &Item, case: &mut Case) {
    case.shape = "a function under a wrong heading";
    let lines = changed(dice, &samples[file], file, item, 0, case);
    let other = *dice.pick(&case.files);
    // Where the other file has a function of that name, the answer says that it means that one.
    for same in samples[other].items().iter().filter(|other| other.name == item.name) {
        case.may_go.extend(same.lines.clone().map(|at| (other, at)));
        case.marks.clear();
    }
    let wrong = ["src/main.py", "lib/helpers.ts", "main.go", "app.rs"];
    let name = if dice.once_in(2) { samples[other].path } else { *dice.pick(&wrong) };
    case.answer = fenced(&samples[file], &format!("**{name}**"), &lines);
}

/// A class or block with the changed member, and perhaps some others; between them a comment, or a body left out.
fn partial_class(dice: &mut Dice, sample: &Sample, file: usize, item: &Item, case: &mut Case) {
    let items = sample.items();
    let holds = |other: &&Item| {
        matches!(other.kind, Kind::Type | Kind::Impl)
            && other.lines.contains(&item.head)
            && other.lines.end > item.head + 1
    };
    let Some(class) = items.iter().find(holds) else { return whole(dice, sample, file, item, case) };
    case.shape = "a class in part";
    case.plain = true;
    let lines = sample.lines();
    let members: Vec<&Item> =
        items.iter().filter(|other| other.kind == Kind::Function && class.lines.contains(&other.head)).collect();
    let mut new: Vec<String> = lines[class.head..sample.body(class)].iter().map(|line| (*line).to_owned()).collect();
    if dice.once_in(3) {
        new.push(comment(dice, sample, &item.indent));
        new.push(String::new());
    }
    for member in members {
        if member.head == item.head {
            let with_mark = changed(dice, sample, file, item, 0, case);
            new.extend(with_mark);
            new.push(String::new());
        } else if dice.once_in(3) {
            new.extend(lines[member.lines.clone()].iter().map(|line| (*line).to_owned()));
            new.push(String::new());
        } else if dice.once_in(3) && member.lines.end - member.head > 1 {
            case.shape = "a class with bodies left out";
            let body = sample.body(member);
            new.extend(lines[member.head..body].iter().map(|line| (*line).to_owned()));
            new.push(comment(dice, sample, &format!("{}    ", member.indent)));
            new.push(match sample.fence {
                "python" => format!("{}    pass", member.indent),
                _ => format!("{}}}", member.indent),
            });
            new.push(String::new());
        } else if dice.once_in(3) {
            new.push(comment(dice, sample, &item.indent));
            new.push(String::new());
        }
    }
    if sample.fence != "python" {
        new.push(format!("{}}}", class.indent));
    }
    let heading = if dice.once_in(2) { heading(dice, sample) } else { String::new() };
    case.plain &= sample.fence != "go" && !heading.is_empty();
    case.answer = fenced(sample, &heading, &new);
}

/// A function with a run of its lines left out, in whatever words.
fn elided(dice: &mut Dice, sample: &Sample, file: usize, item: &Item, case: &mut Case) {
    case.shape = "a function with lines left out";
    let mut lines = changed(dice, sample, file, item, 0, case);
    let body = sample.body(item) - item.lines.start + 1;
    let end = lines.len() - usize::from(sample.fence != "python");
    let code: Vec<usize> = (body..end).filter(|at| lines[*at].chars().any(char::is_alphanumeric)).collect();
    if code.is_empty() {
        case.answer = fenced(sample, &heading(dice, sample), &lines);
        return;
    }
    let from = dice.roll(code.len());
    let to = from + 1 + dice.roll(code.len() - from);
    let indent: String = lines[code[from]].chars().take_while(|c| c.is_whitespace()).collect();
    let note = comment(dice, sample, &indent);
    let gone: Range<usize> = code[from]..code[to - 1] + 1;
    // Comments and documentation may go with their function, code may not.
    let is_code = |line: &str| !["#", "//", "/*", "*", "\"\"\""].iter().any(|mark| line.trim().starts_with(mark));
    let all = sample.lines();
    let kept = |at: &usize| !gone.contains(&(at - item.lines.start + 1)) || !is_code(all[*at]);
    case.may_go = item.lines.clone().filter(kept).map(|at| (file, at)).collect();
    lines.splice(gone, [note]);
    case.answer = fenced(sample, &heading(dice, sample), &lines);
}

/// A block that holds functions of two files, under one name or none.
fn two_files(dice: &mut Dice, samples: &[Sample], file: usize, item: &Item, case: &mut Case) {
    case.shape = "two files in one block";
    let sample = &samples[file];
    let other = (0..10).find(|at| *at != file && samples[*at].fence == sample.fence);
    let Some(other) = other.filter(|_| item.parents != ["tests"]) else { return whole(dice, sample, file, item, case) };
    if !case.files.contains(&other) {
        case.files.push(other);
    }
    let functions = samples[other].functions();
    let fits = |one: &&Item| {
        one.parents != ["tests"]
            && samples[other].is_unique(one)
            && sample.items().iter().all(|item| item.name != one.name)
    };
    let Some(second) = functions.iter().find(fits) else { return whole(dice, sample, file, item, case) };
    let mut lines = in_class(sample, item, changed(dice, sample, file, item, 0, case));
    // Where both have the name, one of them may be meant.
    for same in samples[other].items().iter().filter(|other| other.name == item.name) {
        case.may_go.extend(same.lines.clone().map(|at| (other, at)));
        case.marks.clear();
    }
    lines.push(String::new());
    lines.extend(in_class(&samples[other], second, changed(dice, &samples[other], other, second, 0, case)));
    let name = if dice.once_in(2) { heading(dice, sample) } else { String::new() };
    case.answer = fenced(sample, &name, &lines);
}

/// A method inside the head of its class.
fn in_class(sample: &Sample, item: &Item, method: Vec<String>) -> Vec<String> {
    let items = sample.items();
    let holds = |other: &&Item| {
        matches!(other.kind, Kind::Type | Kind::Impl) && other.lines.contains(&item.head) && other.head != item.head
    };
    let Some(class) = items.iter().find(holds) else { return method };
    let head = sample.lines()[class.head].to_owned();
    let end = (sample.fence != "python").then(|| format!("{}}}", class.indent));
    std::iter::once(head).chain(method).chain(end).collect()
}

/// Somebody asks for something to go, and it is gone from the answer.
fn removal(dice: &mut Dice, sample: &Sample, file: usize, case: &mut Case) {
    case.shape = "a removal by name";
    let functions: Vec<Item> = sample.functions().into_iter().filter(|item| sample.is_unique(item)).collect();
    let item = dice.pick(&functions);
    let requests = ["Remove the function {}.", "Please delete `{}` from the file.", "Entferne {}.", "Get rid of {}."];
    case.request = dice.pick(&requests).replace("{}", &item.name);
    case.may_go = item.lines.clone().map(|at| (file, at)).collect();
    let lines = sample.lines();
    let kept = (0..lines.len()).filter(|at| !item.lines.contains(at)).map(|at| lines[at].to_owned());
    let kept: Vec<String> = kept.collect();
    case.answer = fenced(sample, &heading(dice, sample), &kept);
}

/// The whole file, with holes: functions, fields, comments or imports are missing, or stand in another order.
fn whole(dice: &mut Dice, sample: &Sample, file: usize, item: &Item, case: &mut Case) {
    let lines = sample.lines();
    let with_mark = changed(dice, sample, file, item, 0, case);
    let mut pieces: Vec<Vec<String>> = Vec::new();
    let items = sample.items();
    let tops: Vec<&Item> = items
        .iter()
        .filter(|top| {
            !items.iter().any(|o| {
                o != *top
                    && o.lines.start <= top.lines.start
                    && o.lines.end >= top.lines.end
                    && o.parents.len() < top.parents.len()
            })
        })
        .collect();
    let (holes, shuffles) = (dice.once_in(2), dice.once_in(4));
    case.shape = match (holes, shuffles) {
        (false, false) => "a whole file",
        (true, false) => "a whole file with holes",
        (false, true) => "a whole file, reordered",
        (true, true) => "a whole file with holes, reordered",
    };
    case.plain = !holes && !shuffles;
    let mut at = 0;
    let keeps = |dice: &mut Dice| !holes || !dice.once_in(3);
    for top in tops {
        let gap = at..top.lines.start.max(at);
        if keeps(dice) {
            pieces.push(lines[gap].iter().map(|line| (*line).to_owned()).collect());
        }
        let own = top.lines.start.max(at)..top.lines.end;
        at = at.max(top.lines.end);
        let mut piece: Vec<String> = Vec::new();
        let mut line = own.start;
        while line < own.end {
            if line == item.lines.start {
                piece.extend(with_mark.clone());
                line = item.lines.end;
            } else {
                piece.push(lines[line].to_owned());
                line += 1;
            }
        }
        if top.lines.contains(&item.head) || keeps(dice) {
            pieces.push(piece);
        } else if dice.once_in(2) {
            pieces.push(vec![String::new(), comment(dice, sample, ""), String::new()]);
        }
    }
    pieces.push(lines[at..].iter().map(|line| (*line).to_owned()).collect());
    if shuffles {
        for at in (1..pieces.len()).rev() {
            pieces.swap(at, dice.roll(at + 1));
        }
    }
    let heading = if dice.once_in(2) { heading(dice, sample) } else { String::new() };
    case.answer = fenced(sample, &heading, &pieces.concat());
}

/// A file that is not code: a section, some of them, or all with holes.
fn text(dice: &mut Dice, sample: &Sample, file: usize, case: &mut Case) {
    let (lines, sections) = (sample.lines(), sample.sections());
    let chosen = dice.roll(sections.len());
    let mark = format!("mark_{}", dice.roll(1_000_000));
    case.request = format!("Change the section {}.", lines[sections[chosen].start].trim_matches(['#', '[', ']', ' ']));
    let own =
        |section: &Range<usize>| lines[section.clone()].iter().map(|line| (*line).to_owned()).collect::<Vec<String>>();
    let mut new = own(&sections[chosen]);
    let end = new.iter().rposition(|line| !line.trim().is_empty()).map_or(new.len(), |at| at + 1);
    let line = if sample.fence == "toml" { format!("{mark} = {{ workspace = true }}") } else { format!("See {mark}.") };
    new.insert(end, line);
    case.marks.push((mark, file, 0));
    let shape = dice.roll(3);
    let mut out: Vec<String> = Vec::new();
    match shape {
        0 => {
            (case.shape, case.plain) = ("a section", true);
            out = new;
        }
        1 => {
            (case.shape, case.plain) = ("all sections", true);
            sections
                .iter()
                .enumerate()
                .for_each(|(at, section)| out.extend(if at == chosen { new.clone() } else { own(section) }));
        }
        _ => {
            case.shape = "sections with holes";
            for (at, section) in sections.iter().enumerate() {
                if at == chosen {
                    out.extend(new.clone());
                } else if dice.once_in(2) {
                    out.extend(own(section));
                } else if dice.once_in(3) {
                    out.extend([
                        lines[section.start].to_owned(),
                        String::new(),
                        comment(dice, sample, ""),
                        String::new(),
                    ]);
                }
            }
        }
    }
    case.answer = fenced(sample, &heading(dice, sample), &out);
}
