//! Flint's own sentences in the language of the question.

use super::Missing;
use super::cite::Citation;
use crate::intent::language::Language;

/// Says what is not there, and what is called nearly so.
pub fn absent(missing: &[Missing], language: Language) -> String {
    let mut text = String::new();
    for Missing { written, is_path, near } in missing {
        text += &match is_path {
            true => no_file(written, language),
            false => no_name(written, language),
        };
        if !near.is_empty() {
            let near: Vec<String> = near.iter().map(|name| format!("`{name}`")).collect();
            text += &format!(" {} {}", similar(language), near.join(", "));
        }
        text.push('\n');
    }
    text
}

fn no_file(name: &str, language: Language) -> String {
    match language {
        Language::English => format!("There is no `{name}` in this project: the file or folder does not exist."),
        Language::German => {
            format!("`{name}` gibt es in diesem Projekt nicht: die Datei oder der Ordner existiert nicht.")
        }
        Language::French => format!("`{name}` n'existe pas dans ce projet : il n'y a ni fichier ni dossier de ce nom."),
        Language::Spanish => format!("`{name}` no existe en este proyecto: no hay archivo ni carpeta con ese nombre."),
        Language::Portuguese => format!("`{name}` não existe neste projeto: não há arquivo nem pasta com esse nome."),
        Language::Chinese => format!("这个项目里没有 `{name}`：该文件或目录不存在。"),
        Language::Japanese => {
            format!("このプロジェクトに `{name}` はありません。そのファイルやフォルダーは存在しません。")
        }
        Language::Russian => format!("В этом проекте нет `{name}`: такого файла или папки не существует."),
    }
}

fn no_name(name: &str, language: Language) -> String {
    match language {
        Language::English => format!("There is no `{name}` in this project: the name does not exist in any file."),
        Language::German => format!("`{name}` gibt es in diesem Projekt nicht: der Name existiert in keiner Datei."),
        Language::French => format!("`{name}` n'existe pas dans ce projet : ce nom n'apparaît dans aucun fichier."),
        Language::Spanish => format!("`{name}` no existe en este proyecto: el nombre no aparece en ningún archivo."),
        Language::Portuguese => format!("`{name}` não existe neste projeto: o nome não aparece em nenhum arquivo."),
        Language::Chinese => format!("这个项目里没有 `{name}`：任何文件中都不存在这个名称。"),
        Language::Japanese => {
            format!("このプロジェクトに `{name}` はありません。その名前はどのファイルにも存在しません。")
        }
        Language::Russian => format!("В этом проекте нет `{name}`: такого имени не существует ни в одном файле."),
    }
}

fn similar(language: Language) -> &'static str {
    match language {
        Language::English => "Similar:",
        Language::German => "Ähnlich:",
        Language::French => "Similaire :",
        Language::Spanish => "Parecido:",
        Language::Portuguese => "Parecido:",
        Language::Chinese => "类似：",
        Language::Japanese => "似た名前：",
        Language::Russian => "Похожее:",
    }
}

/// The citations of an answer, in a line.
pub fn citations(citations: &[Citation]) -> String {
    let told = citations.iter().map(|Citation { path, line, name }| match name {
        Some(name) => format!("{}:{line} `{name}`", path.display()),
        None => format!("{}:{line}", path.display()),
    });
    told.collect::<Vec<_>>().join(", ")
}
