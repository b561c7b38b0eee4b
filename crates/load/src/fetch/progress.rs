//! How a pull looks to the person waiting for it.
//!
//! On a terminal it is one bar with rate and time left. Elsewhere (a log, a pipe) it is a line every few seconds, because
//! a bar drawn into a file is noise. Both go to stderr: stdout is for data.

use std::time::{Duration, Instant};

use hub::{Event, Progress, format_bytes};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Time between two lines where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);
const BAR: &str = "{msg} [{bar:30}] {decimal_bytes} of {decimal_total_bytes}, {decimal_bytes_per_sec}, {eta} left";
const BAR_WITHOUT_TOTAL: &str = "{msg} {decimal_bytes}, {decimal_bytes_per_sec}";

/// Shows the events of one pull on stderr.
pub struct Shown {
    name: String,
    bar: Option<ProgressBar>,
    meter: Meter,
}

impl Shown {
    /// For a pull of the model with this name.
    pub fn new(name: &str) -> Shown {
        let bar = boundary::print::stderr_is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
            bar.set_message(boundary::terminal::clean_line(name).into_owned());
            bar
        });
        Shown { name: name.to_owned(), bar, meter: Meter::new(0) }
    }

    /// Takes the bar off the terminal.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| errln!("{text}")),
            None => errln!("{text}"),
        }
    }

    fn started(&mut self, source: &str, resumed: u64) {
        self.line(&format!("{}: from {source}", self.name));
        if resumed > 0 {
            self.line(&format!("{}: going on after {}", self.name, format_bytes(resumed)));
        }
        self.meter = Meter::new(resumed);
        if let Some(bar) = &self.bar {
            // What was kept from an earlier pull must not count as speed.
            bar.set_position(resumed);
            bar.reset_eta();
        }
    }

    fn bytes(&mut self, done: u64, total: Option<u64>) {
        let Some(bar) = &self.bar else {
            if let Some(line) = self.meter.line(done, total) {
                errln!("{}: {line}", self.name);
            }
            return;
        };
        if bar.length() != total || bar.position() == 0 {
            let template = if total.is_some() { BAR } else { BAR_WITHOUT_TOTAL };
            bar.set_style(ProgressStyle::with_template(template).expect("the template is a constant"));
            if let Some(total) = total {
                bar.set_length(total);
            }
        }
        bar.set_position(done);
    }
}

impl Progress for Shown {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Waiting => self.line(&format!("{}: another process is pulling it; waiting for that one", self.name)),
            Event::Damaged { reason } => {
                self.line(&format!("{}: the file that is here is damaged: {reason}; fetching it again", self.name));
            }
            Event::Source { source, resumed } => self.started(source, resumed),
            Event::Bytes { done, total } => self.bytes(done, total),
            Event::SourceFailed { source, why } => {
                self.line(&format!("{}: {source}: {why}; trying the next source", self.name))
            }
            Event::Verifying => self.line(&format!("{}: comparing with its sha256", self.name)),
        }
    }
}

/// Rate and time left for lines of text, over the whole pull: steady enough to read, honest about pauses.
struct Meter {
    start: Instant,
    start_bytes: u64,
    shown: Instant,
}

impl Meter {
    fn new(start_bytes: u64) -> Meter {
        let now = Instant::now();
        Meter { start: now, start_bytes, shown: now }
    }

    fn line(&mut self, done: u64, total: Option<u64>) -> Option<String> {
        if self.shown.elapsed() < LINE_INTERVAL {
            return None;
        }
        self.shown = Instant::now();
        let rate = done.saturating_sub(self.start_bytes) as f64 / self.start.elapsed().as_secs_f64();
        let mut text = format_bytes(done);
        if let Some(total) = total {
            text += &format!(" of {}", format_bytes(total));
        }
        text += &format!(", {}/s", format_bytes(rate as u64));
        if let Some(total) = total
            && rate >= 1.0
        {
            text += &format!(", {:.0} s left", total.saturating_sub(done) as f64 / rate);
        }
        Some(text)
    }
}
