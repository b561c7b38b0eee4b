//! The files that answers are made about: of this repository, in five languages, and two that are not code.

use index::outline::{self, Item, Kind, Language};

/// One file.
pub(super) struct Sample {
    pub(super) path: &'static str,
    /// What it is called behind a fence.
    pub(super) fence: &'static str,
    pub(super) text: &'static str,
}

macro_rules! sample {
    ($path:literal, $fence:literal, $file:literal) => {
        Sample { path: $path, fence: $fence, text: include_str!(concat!("../../../../../../../", $file)) }
    };
}

pub(super) fn samples() -> Vec<Sample> {
    vec![
        sample!("shop/cart.py", "python", "bench/intent/projects/shop/shop/cart.py"),
        sample!("shop/catalog.py", "python", "bench/intent/projects/shop/shop/catalog.py"),
        sample!("shop/pricing.py", "python", "bench/intent/projects/shop/shop/pricing.py"),
        sample!("src/count.rs", "rust", "bench/intent/projects/tally/src/count.rs"),
        sample!("src/lines.rs", "rust", "crates/index/src/outline/check.rs"),
        sample!("src/store.ts", "typescript", "bench/intent/projects/todo/src/store.ts"),
        sample!("src/format.ts", "typescript", "bench/intent/projects/todo/src/format.ts"),
        sample!("ledger/ledger.go", "go", "crates/agent/src/pair/place/tests/generated/ledger.go"),
        sample!("CONTRIBUTING.md", "markdown", "CONTRIBUTING.md"),
        sample!("Cargo.toml", "toml", "crates/agent/Cargo.toml"),
        // For the recorded answers.
        sample!("shop/orders.py", "python", "bench/intent/projects/shop/shop/orders.py"),
        sample!("README.md", "markdown", "bench/intent/projects/shop/README.md"),
        sample!("src/report.rs", "rust", "bench/intent/projects/tally/src/report.rs"),
        sample!("src/options.rs", "rust", "bench/intent/projects/tally/src/options.rs"),
    ]
}

impl Sample {
    pub(super) fn lines(&self) -> Vec<&'static str> {
        self.text.lines().collect()
    }

    pub(super) fn language(&self) -> Option<Language> {
        Language::of(std::path::Path::new(self.path))
    }

    pub(super) fn items(&self) -> Vec<Item> {
        self.language().map(|language| outline::items(language, self.text)).unwrap_or_default()
    }

    /// The functions that can be changed: with a body on lines of its own, and in no other function.
    pub(super) fn functions(&self) -> Vec<Item> {
        let items = self.items();
        let inside = |item: &Item| {
            items.iter().any(|other| {
                other.kind == Kind::Function && other != item && other.lines.contains(&item.head) && other.has_body
            })
        };
        let fits = |item: &&Item| {
            item.kind == Kind::Function && item.lines.end - item.head > 1 && item.whole_lines && !inside(item)
        };
        items.iter().filter(fits).cloned().collect()
    }

    /// The lines of an item whose name and parents are unlike all others in the file.
    pub(super) fn is_unique(&self, item: &Item) -> bool {
        self.items().iter().filter(|other| other.name == item.name).count() == 1
    }

    /// Where its body begins.
    pub(super) fn body(&self, item: &Item) -> usize {
        let lines = self.lines();
        let opens = if self.fence == "python" { ':' } else { '{' };
        (item.head..item.lines.end).find(|at| lines[*at].trim_end().ends_with(opens)).unwrap_or(item.head) + 1
    }

    /// A statement that stands nowhere yet.
    pub(super) fn statement(&self, mark: &str) -> String {
        match self.fence {
            "python" => format!("{mark} = 1"),
            "rust" => format!("let {mark} = 1;"),
            "go" => format!("{mark} := 1"),
            _ => format!("const {mark} = 1;"),
        }
    }

    /// The sections of a file that is not code: their lines, headings first.
    pub(super) fn sections(&self) -> Vec<std::ops::Range<usize>> {
        let lines = self.lines();
        let mut fenced = false;
        let mut begins = Vec::new();
        for (at, line) in lines.iter().enumerate() {
            fenced ^= line.trim_start().starts_with("```");
            if !fenced
                && (line.starts_with('#') && self.fence == "markdown" || line.starts_with('[') && self.fence == "toml")
            {
                begins.push(at);
            }
        }
        let ends = begins.iter().skip(1).copied().chain([lines.len()]);
        begins.iter().zip(ends).map(|(from, to)| *from..to).collect()
    }
}
