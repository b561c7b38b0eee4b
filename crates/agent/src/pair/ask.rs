//! What comes of an answer that changes nothing: another request to the model, and then one question to the person.
//!
//! A question names what is unclear and what would settle it, in the language of the request. The next message is taken for
//! the answer to it (`intent`), so a name or a value is enough.

use std::path::PathBuf;

use super::NotApplied;
use super::request::mentions;
use crate::command::Prompt;
use crate::context::Several;
use crate::event::{Event, Outcome};
use crate::intent::language::Language;
use crate::turn_context::{Open, TurnContext};

/// Files and names of one question.
const NAMED_MAX: usize = 4;

/// What the model is told after an answer that could not be brought in.
pub(super) fn once_more(failed: &NotApplied) -> String {
    let why = failed.why();
    match failed {
        NotApplied::Nowhere { could, .. } if !could.is_empty() => format!(
            "{why}\n\nIs it for {}, or a new file? Write the path of the file alone on a line, and below it the code block \
             again.",
            list(&paths(could), " or ")
        ),
        _ => format!("{why}\n\nWrite the whole function again in one code block."),
    }
}

/// Ends the turn with a question about what could not be done.
pub(super) async fn person(ctx: &mut TurnContext, prompt: &Prompt, failed: &NotApplied) -> Outcome {
    let offered = match failed {
        NotApplied::Nowhere { could, .. } => paths(could),
        _ => Vec::new(),
    };
    let question = question(failed, &prompt.text);
    ask(ctx, question, Open { prompt: prompt.clone(), offered, instead_of: None }).await
}

/// Ends the turn with a question that says itself what could be meant. The answer takes the place of the name in the message.
pub(super) async fn which(
    ctx: &mut TurnContext,
    prompt: &Prompt,
    question: String,
    several: Option<&Several>,
) -> Outcome {
    let offered = several.map(|several| several.could.clone()).unwrap_or_default();
    let instead_of = several.map(|several| several.name.clone());
    ask(ctx, question, Open { prompt: prompt.clone(), offered, instead_of }).await
}

async fn ask(ctx: &mut TurnContext, question: String, open: Open) -> Outcome {
    let item = ctx.conversation.push_assistant(&question);
    ctx.history.item(&item);
    ctx.emit(Event::Text { delta: format!("\n{question}\n") }).await;
    ctx.open = Some(open);
    Outcome::Asked { question }
}

fn paths(paths: &[PathBuf]) -> Vec<String> {
    paths.iter().take(NAMED_MAX).map(|path| path.display().to_string()).collect()
}

fn list(names: &[String], between: &str) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(between)
}

fn question(failed: &NotApplied, request: &str) -> String {
    let language = Language::of(request);
    match failed {
        NotApplied::Unchanged { names, paths: files } => {
            let asked: Vec<&String> = names.iter().filter(|name| mentions(request, name)).collect();
            let names = if asked.is_empty() { names.iter().collect() } else { asked };
            let names: Vec<String> = names.into_iter().take(NAMED_MAX).cloned().collect();
            let files = list(&paths(files), ", ");
            let what = if names.is_empty() { files } else { format!("{} ({files})", list(&names, ", ")) };
            different(&what, language)
        }
        NotApplied::Nowhere { what, could, .. } => belongs(what, &list(&paths(could), ", "), language),
        NotApplied::Unclear { path: Some(path), why } => {
            format!("{}\n{}", one_function(&path.display().to_string(), language), first_line(why))
        }
        failed => format!("{}\n{}", file_and_function(language), first_line(&failed.why())),
    }
}

/// Reasons are written for the model, with code behind them.
fn first_line(why: &str) -> String {
    format!("({})", why.lines().next().unwrap_or_default())
}

/// The answers left something as it is.
fn different(what: &str, language: Language) -> String {
    match language {
        Language::English => format!(
            "What should be different in {what}? The answers left it as it is. Say what goes in and what should come out, \
             or let `try` make five answers."
        ),
        Language::German => format!(
            "Was soll in {what} anders werden? Die Antworten ließen es, wie es ist. Sag, was hineingeht und was \
             herauskommen soll, oder lass `try` fünf Antworten machen."
        ),
        Language::French => format!(
            "Qu'est-ce qui doit changer dans {what} ? Les réponses l'ont laissé tel quel. Dis ce qui entre et ce qui doit \
             sortir, ou laisse `try` faire cinq réponses."
        ),
        Language::Spanish => format!(
            "¿Qué debe cambiar en {what}? Las respuestas lo dejaron igual. Di qué entra y qué debe salir, o deja que `try` \
             haga cinco respuestas."
        ),
        Language::Portuguese => format!(
            "O que deve mudar em {what}? As respostas deixaram tudo igual. Diga o que entra e o que deve sair, ou deixe o \
             `try` fazer cinco respostas."
        ),
        Language::Chinese => {
            format!(
                "{what} 里应该改什么？模型的回答没有改变它。请说明输入什么、应该得到什么，或者用 `try` 生成五个回答。"
            )
        }
        Language::Japanese => format!(
            "{what} の何を変えますか？回答では変わりませんでした。何を渡すと何が返るべきかを書くか、`try` で五つの回答を作ってください。"
        ),
        Language::Russian => format!(
            "Что должно измениться в {what}? Ответы оставили всё как есть. Скажите, что подаётся и что должно получиться, \
             или пусть `try` даст пять ответов."
        ),
    }
}

/// Nothing says which file something belongs to.
fn belongs(what: &str, could: &str, language: Language) -> String {
    let could = if could.is_empty() { String::new() } else { format!(": {could}") };
    match language {
        Language::English => format!("Which file does {what} belong to{could}? The name of a new file works too."),
        Language::German => {
            format!("In welche Datei gehört {what}{could}? Auch der Name einer neuen Datei ist möglich.")
        }
        Language::French => format!("Dans quel fichier va {what}{could} ? Le nom d'un nouveau fichier convient aussi."),
        Language::Spanish => {
            format!("¿En qué archivo va {what}{could}? También vale el nombre de un archivo nuevo.")
        }
        Language::Portuguese => {
            format!("Em qual arquivo fica {what}{could}? O nome de um arquivo novo também serve.")
        }
        Language::Chinese => format!("{what} 应该放进哪个文件{could}？也可以写一个新文件的名字。"),
        Language::Japanese => {
            format!("{what} はどのファイルに入れますか{could}？新しいファイルの名前でもかまいません。")
        }
        Language::Russian => format!("В какой файл поместить {what}{could}? Подойдёт и имя нового файла."),
    }
}

/// An answer could not be brought into a file.
fn one_function(path: &str, language: Language) -> String {
    match language {
        Language::English => format!("Which function of `{path}` should change? The answer could not be brought in."),
        Language::German => {
            format!("Welche Funktion in `{path}` soll sich ändern? Die Antwort ließ sich nicht einfügen.")
        }
        Language::French => {
            format!("Quelle fonction de `{path}` doit changer ? La réponse n'a pas pu être intégrée.")
        }
        Language::Spanish => {
            format!("¿Qué función de `{path}` debe cambiar? La respuesta no se pudo incorporar.")
        }
        Language::Portuguese => {
            format!("Qual função de `{path}` deve mudar? A resposta não pôde ser incorporada.")
        }
        Language::Chinese => format!("`{path}` 里应该修改哪个函数？模型的回答无法写入文件。"),
        Language::Japanese => format!("`{path}` のどの関数を変えますか？回答をファイルに反映できませんでした。"),
        Language::Russian => format!("Какая функция в `{path}` должна измениться? Ответ не удалось внести в файл."),
    }
}

/// Nothing is known but that nothing could be done.
fn file_and_function(language: Language) -> &'static str {
    match language {
        Language::English => "Which file and which function should change?",
        Language::German => "Welche Datei und welche Funktion soll sich ändern?",
        Language::French => "Quel fichier et quelle fonction doivent changer ?",
        Language::Spanish => "¿Qué archivo y qué función deben cambiar?",
        Language::Portuguese => "Qual arquivo e qual função devem mudar?",
        Language::Chinese => "应该修改哪个文件的哪个函数？",
        Language::Japanese => "どのファイルのどの関数を変えますか？",
        Language::Russian => "Какой файл и какая функция должны измениться?",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_names_what_is_unclear_in_the_language_of_the_request() {
        let unchanged =
            NotApplied::Unchanged { names: vec!["load".to_owned()], paths: vec![PathBuf::from("src/store.ts")] };
        let asked = question(&unchanged, "Make it start with an empty list.");
        assert!(asked.starts_with("What should be different in `load` (`src/store.ts`)?"), "{asked}");
        assert!(
            question(&unchanged, "Mach das bitte schneller.")
                .starts_with("Was soll in `load` (`src/store.ts`) anders werden?")
        );
        let could = vec![PathBuf::from("a.py"), PathBuf::from("b.py")];
        let nowhere = NotApplied::Nowhere { what: "`tax`".to_owned(), why: "it is new".to_owned(), could };
        let asked = question(&nowhere, "Add a tax.");
        assert_eq!(asked, "Which file does `tax` belong to: `a.py`, `b.py`? The name of a new file works too.");
        assert!(once_more(&nowhere).contains("Is it for `a.py` or `b.py`, or a new file?"));
    }
}
