//! What the command line says.

#[derive(Debug, Default)]
pub struct Options {
    pub files: Vec<String>,
    pub top: Option<usize>,
    pub quiet: bool,
}

pub fn parse(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options::default();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--top" => {
                let count = arguments.next().unwrap();
                options.top = Some(count.parse().map_err(|_| format!("{count} is not a number"))?);
            }
            "--quiet" => options.quiet = true,
            file => options.files.push(file.to_string()),
        }
    }
    Ok(options)
}
