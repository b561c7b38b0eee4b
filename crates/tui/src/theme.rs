//! Colours by meaning. Only the sixteen colours of the terminal are used, so that the person's own theme decides how they
//! look; with `NO_COLOR` the same meanings are told by weight alone and by the signs that stand in the text anyway.

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
}

impl Theme {
    /// With colours, or without.
    pub fn new(color: bool) -> Theme {
        let paint = |shade: Color| if color { Style::new().fg(shade) } else { Style::new() };
        Theme {
            asked: paint(Color::Cyan).add_modifier(Modifier::BOLD),
            answer: Style::new(),
            code: paint(Color::Yellow),
            strong: Style::new().add_modifier(Modifier::BOLD),
            quiet: Style::new().add_modifier(Modifier::DIM),
            added: paint(Color::Green),
            removed: paint(Color::Red),
            hunk: paint(Color::Magenta),
            good: paint(Color::Green),
            bad: paint(Color::Red).add_modifier(Modifier::BOLD),
            waiting: paint(Color::Yellow).add_modifier(Modifier::BOLD),
            chosen: Style::new().add_modifier(Modifier::REVERSED),
        }
    }
}
