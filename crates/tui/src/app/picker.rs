//! Lists to choose from: turns to go back to, with what that would change, and sessions to go on with.

use agent::{Command, RewindPreview, RewindWhat, SessionLine, TurnLine};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::text::Line;

use crate::conversation::shown;
use crate::flow::fit;
use crate::theme::Theme;

/// Files of a preview that are named.
const FILES_SHOWN: usize = 8;

/// A list to choose from.
#[derive(Debug)]
pub struct Picker {
    rows: Rows,
    /// Unix seconds when the list was made.
    now: u64,
    chosen: usize,
    filter: String,
}

#[derive(Debug)]
enum Rows {
    Turns { turns: Vec<TurnLine>, preview: Option<RewindPreview> },
    Sessions(Vec<SessionLine>),
}

/// What a key did to a picker.
#[derive(Debug, PartialEq)]
pub enum Picked {
    /// It stays, and the partner is asked something.
    Stays(Option<Command>),
    /// It closes, and the partner is told something.
    Closes(Option<Command>),
}

impl Picker {
    /// Turns, oldest first; the wanted one or the last is chosen.
    pub fn turns(turns: Vec<TurnLine>, wanted: Option<u32>) -> Picker {
        let at = wanted.and_then(|wanted| turns.iter().position(|line| line.turn == wanted));
        let chosen = at.unwrap_or(turns.len().saturating_sub(1));
        Picker { rows: Rows::Turns { turns, preview: None }, now: now(), chosen, filter: String::new() }
    }

    /// Sessions, as they come.
    pub fn sessions(rows: Vec<SessionLine>) -> Picker {
        Picker { rows: Rows::Sessions(rows), now: now(), chosen: 0, filter: String::new() }
    }

    /// The preview that is missing.
    pub fn preview_wanted(&self) -> Option<Command> {
        match &self.rows {
            Rows::Turns { turns, .. } => turns.get(self.chosen).map(|line| Command::PreviewRewind { turn: line.turn }),
            Rows::Sessions(_) => None,
        }
    }

    /// What going back would do.
    pub fn set_preview(&mut self, new: RewindPreview) {
        if let Rows::Turns { preview, .. } = &mut self.rows {
            *preview = Some(new);
        }
    }

    /// A key.
    pub fn key(&mut self, key: KeyEvent) -> Picked {
        let plain = !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT);
        match key.code {
            KeyCode::Esc => return Picked::Closes(None),
            KeyCode::Up => return self.choose(self.chosen.saturating_sub(1)),
            KeyCode::Down => return self.choose((self.chosen + 1).min(self.count().saturating_sub(1))),
            _ => {}
        }
        match (&self.rows, key.code) {
            (Rows::Turns { .. }, KeyCode::Enter) => self.rewind(RewindWhat::Both),
            (Rows::Turns { .. }, KeyCode::Char('f')) if plain => self.rewind(RewindWhat::Files),
            (Rows::Turns { .. }, KeyCode::Char('c')) if plain => self.rewind(RewindWhat::Conversation),
            (Rows::Turns { .. }, KeyCode::Char('q')) if plain => Picked::Closes(None),
            (Rows::Sessions(_), KeyCode::Enter) => {
                let session = self.sessions_shown().get(self.chosen).map(|line| line.session.clone());
                Picked::Closes(session.map(|session| Command::Resume { session }))
            }
            (Rows::Sessions(_), KeyCode::Char(c)) if plain => {
                self.filter.push(c);
                self.choose(0)
            }
            (Rows::Sessions(_), KeyCode::Backspace) => {
                self.filter.pop();
                self.choose(0)
            }
            _ => Picked::Stays(None),
        }
    }

    fn choose(&mut self, chosen: usize) -> Picked {
        self.chosen = chosen;
        if let Rows::Turns { preview, .. } = &mut self.rows {
            *preview = None;
        }
        Picked::Stays(self.preview_wanted())
    }

    fn rewind(&self, what: RewindWhat) -> Picked {
        let Rows::Turns { turns, .. } = &self.rows else { return Picked::Stays(None) };
        Picked::Closes(turns.get(self.chosen).map(|line| Command::Rewind { turn: line.turn, what }))
    }

    fn count(&self) -> usize {
        match &self.rows {
            Rows::Turns { turns, .. } => turns.len(),
            Rows::Sessions(_) => self.sessions_shown().len(),
        }
    }

    fn sessions_shown(&self) -> Vec<&SessionLine> {
        let Rows::Sessions(rows) = &self.rows else { return Vec::new() };
        let wanted = self.filter.to_lowercase();
        let fits = |line: &&SessionLine| {
            [&line.title, &line.session, &shown(&line.folder)].iter().any(|text| text.to_lowercase().contains(&wanted))
        };
        rows.iter().filter(fits).collect()
    }

    /// Its rows, no more than fit.
    pub fn lines(&self, width: usize, height: usize, theme: &Theme) -> Vec<Line<'static>> {
        let (title, rows, below) = match &self.rows {
            Rows::Turns { turns, preview } => {
                let rows: Vec<String> = turns.iter().map(|line| turn_row(line, self.now)).collect();
                ("Go back to the beginning of a turn", rows, preview_lines(preview.as_ref(), width, theme))
            }
            Rows::Sessions(_) => {
                let rows = self.sessions_shown().into_iter().map(|line| session_row(line, self.now)).collect();
                let keys = "Enter goes on with it · typing filters · Esc leaves";
                let filter = format!("{keys}{}{}", if self.filter.is_empty() { "" } else { ": " }, self.filter);
                ("Go on with a session", rows, vec![Line::styled(fit(&filter, width), theme.quiet)])
            }
        };
        let room = height.saturating_sub(below.len() + 2).max(1);
        let from = (self.chosen + 1).saturating_sub(room);
        let mut lines = vec![Line::styled(fit(title, width), theme.strong)];
        for (at, row) in rows.iter().enumerate().skip(from).take(room) {
            let style = if at == self.chosen { theme.chosen } else { theme.answer };
            lines.push(Line::styled(fit(row, width), style));
        }
        lines.push(Line::default());
        lines.extend(below);
        lines
    }
}

/// Unix seconds.
pub fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// How long ago that was, in one word a person reads at a glance.
pub fn ago(at: u64, now: u64) -> String {
    match now.saturating_sub(at) {
        seconds @ 0..60 => format!("{seconds} s ago"),
        seconds @ 60..3_600 => format!("{} min ago", seconds / 60),
        seconds @ 3_600..86_400 => format!("{} h ago", seconds / 3_600),
        seconds => format!("{} d ago", seconds / 86_400),
    }
}

fn turn_row(line: &TurnLine, now: u64) -> String {
    let files = match line.files {
        0 => "no files".to_owned(),
        1 => "1 file".to_owned(),
        count => format!("{count} files"),
    };
    format!("{:>3}  {:<10} {files:<9} {}", line.turn, ago(line.at, now), line.text)
}

fn session_row(line: &SessionLine, now: u64) -> String {
    let turns = if line.turns == 1 { "1 turn".to_owned() } else { format!("{} turns", line.turns) };
    format!("{:<10} {turns:<9} {}  {}", ago(line.at, now), line.title, shown(&line.folder))
}

fn preview_lines(preview: Option<&RewindPreview>, width: usize, theme: &Theme) -> Vec<Line<'static>> {
    let keys = Line::styled(fit("Enter both · f files · c conversation · Esc leaves all as it is", width), theme.quiet);
    let Some(preview) = preview else {
        return vec![Line::styled(fit("finding out what it would change …", width), theme.quiet), keys];
    };
    let told = match preview.files.len() {
        0 => "no file would change".to_owned(),
        1 => "1 file would change".to_owned(),
        count => format!("{count} files would change"),
    };
    let turns = if preview.turns_lost == 1 { "1 turn".to_owned() } else { format!("{} turns", preview.turns_lost) };
    let mut lines = vec![Line::raw(fit(&format!("{told}; {turns} would be forgotten"), width))];
    for (path, (added, removed)) in preview.files.iter().take(FILES_SHOWN) {
        lines.push(Line::styled(fit(&format!("  {} +{added} -{removed}", shown(path)), width), theme.code));
    }
    if preview.files.len() > FILES_SHOWN {
        lines.push(Line::raw(format!("  … and {} more", preview.files.len() - FILES_SHOWN)));
    }
    lines.push(keys);
    lines
}
