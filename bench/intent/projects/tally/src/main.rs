use tally::count::{Counts, frequencies};
use tally::{options, report};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let options = match options::parse(&arguments) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("tally: {why}");
            std::process::exit(2);
        }
    };
    let mut sum = Counts::default();
    for file in &options.files {
        let text = std::fs::read_to_string(file).expect("the file can be read");
        let counts = Counts::of(&text);
        println!("{}", report::row(file, &counts));
        sum.add(&counts);
        if let Some(count) = options.top {
            for (word, times) in report::top(&frequencies(&text), count) {
                println!("{times:>8} {word}");
            }
        }
    }
    if options.files.len() > 1 && !options.quiet {
        println!("{}", report::row("total", &sum));
    }
}
