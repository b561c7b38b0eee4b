//! A terminal's cells as an SVG picture: text that stays text, in the colours of one theme.

use std::fmt::Write;

use vt100::{Cell, Color};

use crate::screen::Screen;

/// Size of a cell, and the margin around all of them.
const WIDTH: f32 = 8.4;
const HEIGHT: f32 = 18.0;
const MARGIN: f32 = 14.0;

/// The colours of the terminal itself, and the sixteen that programs name.
const BACKGROUND: &str = "#1b1e26";
const FOREGROUND: &str = "#d8dee9";
const PALETTE: [&str; 16] = [
    "#3b4252", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#d8dee9", "#4c566a", "#e06c75",
    "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#eceff4",
];

/// How a cell looks.
#[derive(Clone, Debug, PartialEq)]
struct Style {
    text: &'static str,
    behind: &'static str,
    bold: bool,
    dim: bool,
    italic: bool,
    underline: bool,
}

impl Style {
    fn of(cell: &Cell) -> Self {
        let (mut text, mut behind) = (color(cell.fgcolor(), FOREGROUND), color(cell.bgcolor(), BACKGROUND));
        if cell.inverse() {
            std::mem::swap(&mut text, &mut behind);
        }
        let (bold, dim) = (cell.bold(), cell.dim());
        Self { text, behind, bold, dim, italic: cell.italic(), underline: cell.underline() }
    }
}

/// Flint draws in the sixteen colours that every terminal has, and in no other.
fn color(color: Color, default: &'static str) -> &'static str {
    match color {
        Color::Default => default,
        Color::Idx(index) => PALETTE[usize::from(index)],
        Color::Rgb(..) => panic!("a colour outside of the sixteen: {color:?}"),
    }
}

/// Fails when a picture of the documents is not what these rows look like now; `FLINT_BLESS` writes it.
pub fn assert_current(name: &str, screen: &Screen, rows: std::ops::Range<u16>, about: &str) {
    let picture = screen.look(|screen| svg(screen, rows, about));
    let path = testkit::document::root().join("docs").join(name);
    if std::fs::read_to_string(&path).is_ok_and(|old| old == picture) {
        return;
    }
    if std::env::var_os("FLINT_BLESS").is_some() {
        return std::fs::write(&path, picture).unwrap();
    }
    panic!("docs/{name} is not what the screen looks like; FLINT_BLESS=1 and the same test draw it again");
}

/// Rows of a screen as a picture that `about` describes.
fn svg(screen: &vt100::Screen, rows: std::ops::Range<u16>, about: &str) -> String {
    let (_, columns) = screen.size();
    let (width, height) = (f32::from(columns) * WIDTH + 2.0 * MARGIN, rows.len() as f32 * HEIGHT + 2.0 * MARGIN);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\" role=\"img\">\n<title>{}</title>\n<rect width=\"100%\" height=\"100%\" rx=\"8\" \
         fill=\"{BACKGROUND}\"/>\n<g font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" \
         font-size=\"14\" fill=\"{FOREGROUND}\" xml:space=\"preserve\" \
         style=\"white-space:pre\">\n",
        escaped(about)
    );
    for (at, row) in rows.enumerate() {
        for (from, text, style) in runs(screen, row, columns) {
            draw(&mut out, at as f32, from, &text, &style);
        }
    }
    out + "</g>\n</svg>\n"
}

/// Cells of a row that look alike, together: where they begin, and their text.
fn runs(screen: &vt100::Screen, row: u16, columns: u16) -> Vec<(u16, String, Style)> {
    let mut runs: Vec<(u16, String, Style)> = Vec::new();
    for column in 0..columns {
        let Some(cell) = screen.cell(row, column).filter(|cell| !cell.is_wide_continuation()) else { continue };
        let (style, text) = (Style::of(cell), if cell.has_contents() { cell.contents() } else { " " });
        match runs.last_mut() {
            Some((_, run, of)) if *of == style => run.push_str(text),
            _ => runs.push((column, text.to_owned(), style)),
        }
    }
    // Blanks on the terminal's own background are nothing to draw.
    runs.retain(|(_, text, style)| !text.trim().is_empty() || style.behind != BACKGROUND);
    runs
}

fn draw(out: &mut String, row: f32, column: u16, text: &str, style: &Style) {
    let (x, y) = (MARGIN + f32::from(column) * WIDTH, MARGIN + row * HEIGHT);
    let length = text.chars().count() as f32 * WIDTH;
    if style.behind != BACKGROUND {
        let behind = style.behind;
        let _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{length:.1}\" height=\"{HEIGHT}\" fill=\"{behind}\"/>"
        );
    }
    let shown = text.trim();
    if shown.is_empty() {
        return;
    }
    let x = x + (text.chars().count() - text.trim_start().chars().count()) as f32 * WIDTH;
    let length = shown.chars().count() as f32 * WIDTH;
    let mut looks = String::new();
    if style.text != FOREGROUND {
        looks += &format!(" fill=\"{}\"", style.text);
    }
    for (has, look) in [
        (style.bold, " font-weight=\"bold\""),
        (style.dim, " opacity=\"0.6\""),
        (style.italic, " font-style=\"italic\""),
        (style.underline, " text-decoration=\"underline\""),
    ] {
        looks += if has { look } else { "" };
    }
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{:.1}\" textLength=\"{length:.1}\" lengthAdjust=\"spacingAndGlyphs\"{looks}>{}</text>",
        y + 13.5,
        escaped(shown)
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
