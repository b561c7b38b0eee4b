//! The pages of the reference that the binary writes about itself: every command with its options, every key of the
//! configuration, every metric.

use testkit::document::{assert_current, table};

use crate::serve::Served;
use crate::{flint, stdout, success};

#[test]
fn the_page_of_the_command_line_is_current() {
    let mut text = String::new();
    describe(&[], &mut text);
    assert!(text.contains("## `flint models pull`") && text.contains("Exit codes"), "{text}");
    assert_current("reference/command-line.md", &text);
}

/// The help of a command and of those below it.
fn describe(path: &[&str], text: &mut String) {
    let mut arguments = path.to_vec();
    arguments.push("--help");
    let mut command = flint(&arguments);
    for variable in
        std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).filter(|name| name.starts_with("FLINT_"))
    {
        // Help shows what they are set to.
        command.env_remove(variable);
    }
    let help = stdout(&success(command));
    let name = ["flint"].iter().chain(path).copied().collect::<Vec<_>>().join(" ");
    let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
    text.push_str(&format!("## `{name}`\n\n```text\n{}\n```\n\n", lines.join("\n").trim()));
    let commands = lines.iter().skip_while(|line| **line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // A command's name stands two columns in; what is further in goes on with its description.
    let names = commands.filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')));
    for name in names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help") {
        describe(&[path, &[name]].concat(), text);
    }
}

#[test]
fn the_page_of_the_configuration_is_current() {
    let text = stdout(&success(flint(&["config", "keys"])));
    let mut rows = Vec::new();
    let mut lines = text.lines();
    while let Some((key, takes)) = lines.next().and_then(|line| line.split_once(" = ")) {
        let about = lines.next().unwrap().trim();
        let (about, project) = about.rsplit_once("; ").unwrap();
        let project = match project {
            "not for projects" => "no",
            "a project may only make it stricter" => "stricter only",
            _ => "once trusted",
        };
        let (about, default) = about.rsplit_once("; default ").unwrap_or((about, ""));
        let code = |text: &str| if text.is_empty() { String::new() } else { format!("`{text}`") };
        let takes = match takes {
            words if words.contains('"') || words.contains("true") => code(words),
            words => words.to_owned(),
        };
        rows.push(vec![code(key), takes, code(default), about.to_owned(), project.to_owned()]);
    }
    assert!(rows.len() > 20, "{text}");
    assert_current(
        "reference/configuration.md",
        &table(&["key", "takes", "default", "what it does", "in a project's file"], rows),
    );
}

#[test]
fn the_page_of_the_metrics_is_current() {
    let page = Served::start().ask("/metrics", None);
    let mut rows = Vec::new();
    for line in page.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            rows.push(vec![format!("`{name}`"), String::new(), help.to_owned()]);
        } else if let Some((_, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            rows.last_mut().unwrap()[1] = kind.to_owned();
        }
    }
    assert!(rows.len() > 20, "{page}");
    assert_current("reference/metrics.md", &table(&["name", "kind", "what"], rows));
}
