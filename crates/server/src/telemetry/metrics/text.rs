//! The Prometheus text format, version 0.0.4.

use std::fmt::Write;

use super::cells::Histogram;

/// What a family is, as its `TYPE` line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Label names with their values.
pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

/// A scrape being written. Writing to a `String` cannot fail, so results are dropped here and nowhere else.
#[derive(Default)]
pub(super) struct Page {
    text: String,
}

impl Page {
    /// TokenHealing a family; its samples must follow before the next one begins.
    pub(super) fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// One line.
    pub(super) fn sample(&mut self, name: &str, labels: Labels<'_>, value: f64) {
        self.text.push_str(name);
        self.labels(labels, None);
        let _ = writeln!(self.text, " {value}");
    }

    /// All lines of one histogram.
    pub(super) fn histogram(&mut self, name: &str, labels: Labels<'_>, histogram: &Histogram) {
        let (buckets, sum) = histogram.read();
        let count = buckets.last().map_or(0, |(_, count)| *count);
        for (bound, below) in buckets {
            let bound = if bound.is_finite() { bound.to_string() } else { "+Inf".to_owned() };
            let _ = write!(self.text, "{name}_bucket");
            self.labels(labels, Some(&bound));
            let _ = writeln!(self.text, " {below}");
        }
        self.sample(&format!("{name}_sum"), labels, sum);
        self.sample(&format!("{name}_count"), labels, count as f64);
    }

    pub(super) fn finish(self) -> String {
        self.text
    }

    fn labels(&mut self, labels: Labels<'_>, bound: Option<&str>) {
        let all = labels.iter().copied().chain(bound.map(|bound| ("le", bound)));
        let mut open = '{';
        for (name, value) in all {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.text, "{open}{name}=\"{value}\"");
            open = ',';
        }
        if open == ',' {
            self.text.push('}');
        }
    }
}
