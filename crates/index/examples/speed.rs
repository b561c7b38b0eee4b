//! How long the index of many files takes: from nothing, from disk, a question, and after a save.
//!
//! `cargo run --release -p index --example speed -- [FILES] [ROUNDS]` makes a folder of FILES (10,000) Python files of about
//! 6 KB, whose names are made of 2,000 words, and prints the least and the median of ROUNDS (5).
#![allow(clippy::unwrap_used, reason = "a laboratory, run by hand")]

use std::fmt::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use index::Index;

/// A small generator of numbers: the same folder every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }

    /// Some words are common, most are rare.
    fn word(&mut self, words: &[String]) -> String {
        let among = words.len() >> self.roll(8);
        words[self.roll(among.max(1))].clone()
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<usize>().unwrap());
    let (files, rounds) = (arguments.next().unwrap_or(10_000), arguments.next().unwrap_or(5));
    let (folder, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let bytes = fill(folder.path(), files);
    println!("{files} files, {:.1} MB", bytes as f64 / 1e6);
    let mut figures: [Vec<f64>; 5] = Default::default();
    for round in 0..rounds {
        let _ = std::fs::remove_dir_all(state.path().join("index"));
        let mut index = Index::new(folder.path());
        figures[0].push(ms(|| assert_eq!(index.refresh().files, files)));
        index.save(state.path()).unwrap();
        let mut kept = Index::new(folder.path());
        figures[1].push(ms(|| {
            kept = Index::load(state.path(), folder.path());
            assert!(kept.refresh().read <= rounds);
        }));
        for question in ["who owns the retries of a closed pool?", "where is word17_word40 counted and sent again"] {
            figures[2].push(ms(|| assert!(!index.locate(question, 10).locations.is_empty())));
        }
        let path = PathBuf::from(format!("part0/module{round}.py"));
        std::fs::write(folder.path().join(&path), format!("def saved_{round}():\n    pass\n")).unwrap();
        figures[3].push(ms(|| index.update(std::slice::from_ref(&path))));
        assert!(index.has_name(&format!("saved_{round}")));
        figures[4].push(ms(|| {
            kept.refresh();
        }));
        assert!(kept.has_name(&format!("saved_{round}")));
    }
    let names = [
        "cold",
        "from disk, checked",
        "a question, warm",
        "after a save, told which file",
        "after a save, found by a walk",
    ];
    for (name, figures) in names.iter().zip(&mut figures) {
        figures.sort_by(f64::total_cmp);
        println!("{name:<32} {:>8.1} ms least {:>8.1} ms median", figures[0], figures[figures.len() / 2]);
    }
}

fn ms(work: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    work();
    begun.elapsed().as_secs_f64() * 1e3
}

fn fill(root: &std::path::Path, files: usize) -> usize {
    let mut dice = Dice(7);
    let endings = ["", "s", "ed", "er"];
    let mut words: Vec<String> =
        ["retry", "pool", "close", "owner", "count", "send", "again"].map(str::to_owned).into();
    words.extend((0..2_000).map(|number| format!("word{}{}", number, endings[number % endings.len()])));
    let mut bytes = 0;
    for file in 0..files {
        let mut text = String::from("\"\"\"What this module does.\"\"\"\nimport os\n\n");
        while text.len() < 6_000 {
            let (class, method) = (dice.word(&words), dice.word(&words));
            writeln!(text, "\nclass {class}_{method}:").unwrap();
            for _ in 0..4 {
                let mut name = || format!("{}_{}", dice.word(&words), dice.word(&words));
                let (method, first, second, third) = (name(), name(), name(), name());
                writeln!(text, "    def {method}(self, {first}, {second}=None):").unwrap();
                writeln!(text, "        # The {first} is {} before it is {}.", dice.word(&words), dice.word(&words))
                    .unwrap();
                writeln!(text, "        if self.{third} and not {first}.{second}(\"text\"):").unwrap();
                writeln!(text, "            return {first} + self.{method}({second})").unwrap();
                writeln!(text, "        self.{third} = [{first} for _ in range(10)]\n").unwrap();
            }
        }
        let path = root.join(format!("part{}/module{file}.py", file % 100));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &text).unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
        bytes += text.len();
    }
    bytes
}
