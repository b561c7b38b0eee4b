//! What the lines of a run add up to.

use serde_json::{Value, json};

use super::IntentArgs;

/// The exit code of `flint exec` when it could not tell whether files should change, and changed none.
pub const ASKED: i32 = 5;

/// Categories in the order of the description.
const CATEGORIES: [&str; 7] = ["talk", "question", "review", "polite", "change", "command", "unclear"];

/// A message in one line.
pub fn row(line: &Value) -> String {
    let mark = if line["right"] == true { " " } else { "X" };
    let change = line["odds"]["change"].as_f64().map_or("    -".to_owned(), |change| format!("{:5.1}", change * 100.0));
    let did = match (line["changes"] == true, line["asked"] == true) {
        (true, _) => "changes",
        (_, true) => "asks",
        _ => "-",
    };
    let word = |key: &str| line[key].as_str().unwrap_or("?").to_owned();
    let text: String = word("text").replace('\n', " ").chars().take(60).collect();
    format!("{mark} {:<8} {:<8} {:<8} {change} % {did:<7} {text}", word("id"), word("category"), word("intent"))
}

/// Counts over all lines.
pub struct Tally<'a> {
    lines: &'a [Value],
}

impl<'a> Tally<'a> {
    /// Of these.
    pub fn of(lines: &'a [Value]) -> Self {
        Self { lines }
    }

    fn count(&self, test: impl Fn(&Value) -> bool) -> usize {
        self.lines.iter().filter(|line| test(line)).count()
    }

    fn categories(&self) -> impl Iterator<Item = (&'static str, [usize; 4])> + '_ {
        CATEGORIES.into_iter().map(|category| {
            let of = |line: &Value| line["category"] == category;
            let counts = [
                self.count(of),
                self.count(|line| of(line) && line["right"] == true),
                self.count(|line| of(line) && line["changes"] == true),
                self.count(|line| of(line) && line["asked"] == true),
            ];
            (category, counts)
        })
    }

    /// Share of the right ones among the lines of a kind, in percent.
    fn share(&self, of: impl Fn(&Value) -> bool) -> f64 {
        let (all, right) = (self.count(&of), self.count(|line| of(line) && line["right"] == true));
        percent(right, all)
    }

    /// The shares the sets are made for: talk, the rest of what asks for no change, what asks for one, and how much of that
    /// was made.
    fn shares(&self) -> [(&'static str, f64); 4] {
        let wants = |line: &Value| line["category"] == "polite" || line["category"] == "change";
        [
            ("talk that changes nothing", self.share(|line| line["category"] == "talk")),
            ("other messages that change nothing", self.share(|line| !wants(line) && line["category"] != "talk")),
            ("requested changes made or asked about", self.share(wants)),
            (
                "requested changes made",
                percent(self.count(|line| wants(line) && line["changes"] == true), self.count(wants)),
            ),
        ]
    }

    fn mean(&self, key: &str) -> f64 {
        let values: Vec<f64> = self.decided().filter_map(|line| line[key].as_f64()).collect();
        values.iter().sum::<f64>() / values.len().max(1) as f64
    }

    fn largest(&self, key: &str) -> f64 {
        self.decided().filter_map(|line| line[key].as_f64()).fold(0.0, f64::max)
    }

    /// What the model decided, not a rule.
    fn decided(&self) -> impl Iterator<Item = &Value> {
        self.lines.iter().filter(|line| line["odds"].is_object())
    }

    fn misses(&self) -> Vec<&Value> {
        self.lines.iter().filter(|line| line["right"] != true).collect()
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = format!("\n{:<10} {:>4} {:>6} {:>8} {:>6}\n", "", "all", "right", "changes", "asks");
        for (category, [all, right, changes, asked]) in self.categories() {
            text += &format!("{category:<10} {all:>4} {right:>6} {changes:>8} {asked:>6}\n");
        }
        for (what, share) in self.shares() {
            text += &format!("{what}: {share:.1} %\n");
        }
        text += &format!(
            "a decision: {:.1} prompt tokens on average, {:.0} at most; {:.0} ms on average\n",
            self.mean("prompt_tokens"),
            self.largest("prompt_tokens"),
            self.mean("ms")
        );
        for line in self.misses() {
            text += &format!("miss: {}\n      said: {}\n", row(line), line["said"].as_str().unwrap_or_default());
        }
        text
    }

    /// For programs.
    pub fn json(&self, args: &IntentArgs) -> Value {
        let categories: serde_json::Map<String, Value> = self
            .categories()
            .map(|(category, [all, right, changes, asked])| {
                (category.to_owned(), json!({"all": all, "right": right, "changes": changes, "asks": asked}))
            })
            .collect();
        let shares: serde_json::Map<String, Value> =
            self.shares().into_iter().map(|(what, share)| (format!("{what} %"), json!(share))).collect();
        json!({"set": args.set.file_name().unwrap_or_default().to_string_lossy(), "model": args.model,
            "decide_only": args.decide_only, "categories": categories, "shares": shares,
            "prompt tokens mean": self.mean("prompt_tokens"), "prompt tokens max": self.largest("prompt_tokens"),
            "ms mean": self.mean("ms"), "misses": self.misses(),
            "cpu": load::machine::cpu_name(), "cores": load::cores()})
    }
}

fn percent(part: usize, of: usize) -> f64 {
    if of == 0 { 100.0 } else { (part as f64 * 1000.0 / of as f64).round() / 10.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_their_kind_and_misses_are_named() {
        let line = |category: &str, right: bool| json!({"id": "a", "category": category, "right": right, "changes": category == "change", "text": "t"});
        let lines = [
            line("talk", true),
            line("question", true),
            line("review", false),
            line("polite", true),
            line("change", true),
        ];
        let tally = Tally::of(&lines);
        assert_eq!(tally.shares().map(|(_, share)| share), [100.0, 50.0, 100.0, 50.0]);
        assert_eq!(tally.misses().len(), 1);
        assert!(tally.text().contains("miss: X a        review"), "{}", tally.text());
    }
}
