//! Colours. The sixteen that every terminal's user has chosen for themselves, and nothing else; without colours, the same
//! meanings are told by weight alone and by the signs that stand in the text anyway.

use ratatui::style::{Color, Modifier, Style};

/// How each kind of text looks.
#[derive(Clone, Debug)]
pub struct Theme {
    /// What the person wrote.
    pub asked: Style,
    /// What the model wrote.
    pub answer: Style,
    /// Code inside prose.
    pub code: Style,
    /// Headings and names.
    pub strong: Style,
    /// The large headings of an answer.
    pub heading: Style,
    /// Links.
    pub link: Style,
    /// Hints and figures.
    pub quiet: Style,
    /// Lines that a change adds.
    pub added: Style,
    /// Lines that a change takes away.
    pub removed: Style,
    /// Where in the file a change is.
    pub hunk: Style,
    /// What went well.
    pub good: Style,
    /// What went wrong.
    pub bad: Style,
    /// What waits for the person.
    pub waiting: Style,
    /// The chosen line of a list.
    pub chosen: Style,
    /// Words of a language: `fn`, `if`, `return`.
    pub keyword: Style,
    /// Strings in code.
    pub string: Style,
    /// Numbers in code, and constants such as `true`.
    pub number: Style,
    /// Comments in code.
    pub comment: Style,
    /// Names of functions.
    pub function: Style,
    /// Names of types, and attributes.
    pub kind: Style,
}

impl Theme {
    /// With colours, or without.
    pub fn new(color: bool) -> Theme {
        let paint = |shade: Color| if color { Style::new().fg(shade) } else { Style::new() };
        Theme {
            asked: paint(Color::Cyan).add_modifier(Modifier::BOLD),
            answer: Style::new(),
            code: if color { Style::new().fg(Color::Yellow) } else { Style::new().add_modifier(Modifier::BOLD) },
            strong: Style::new().add_modifier(Modifier::BOLD),
            heading: paint(Color::Blue).add_modifier(Modifier::BOLD),
            link: paint(Color::Blue).add_modifier(Modifier::UNDERLINED),
            quiet: Style::new().add_modifier(Modifier::DIM),
            added: paint(Color::Green),
            removed: paint(Color::Red),
            hunk: paint(Color::Magenta),
            good: paint(Color::Green),
            bad: paint(Color::Red).add_modifier(Modifier::BOLD),
            waiting: paint(Color::Yellow).add_modifier(Modifier::BOLD),
            chosen: Style::new().add_modifier(Modifier::REVERSED),
            keyword: paint(Color::Magenta),
            string: paint(Color::Green),
            number: paint(Color::Cyan),
            comment: Style::new().add_modifier(Modifier::DIM | Modifier::ITALIC),
            function: paint(Color::Blue),
            kind: paint(Color::Yellow),
        }
    }

    /// The same text, where it is what a changed line changes.
    pub fn marked(style: Style) -> Style {
        style.add_modifier(Modifier::REVERSED)
    }
}
