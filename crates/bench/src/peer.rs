//! Other people's llama-bench binaries, asked for the same figures on the same file.

use super::figures::Figure;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// A binary to alternate with.
pub struct Peer {
    /// How it is called in the table.
    pub name: String,
    program: PathBuf,
    arguments: Vec<String>,
    model: PathBuf,
    threads: usize,
}

impl Peer {
    /// Reads `NAME=PATH [ARGUMENTS]`.
    pub fn parse(spec: &str, model: &Path, threads: usize) -> Result<Peer> {
        let Some((name, command)) = spec.split_once('=') else {
            bail!("--peer {spec}: give a name first, as in --peer llama.cpp=path/to/llama-bench");
        };
        let mut words = command.split_whitespace().map(str::to_string);
        let program = PathBuf::from(words.next().with_context(|| format!("--peer {name}= names no program"))?);
        if !program.is_file() {
            bail!("--peer {name}: {} is not a file", program.display());
        }
        let program = program.canonicalize()?;
        Ok(Peer { name: name.to_string(), program, arguments: words.collect(), model: model.to_path_buf(), threads })
    }

    /// One measurement in tokens per second; none where the peer has no such figure.
    pub fn measure(&self, figure: Figure) -> Result<Option<f64>> {
        let (prompt, generate, depth, repeats) = match figure {
            Figure::Prompt { tokens } => (tokens, 0, 0, 1),
            Figure::Decode { depth } => (0, 64, depth, 1),
            Figure::Step { rows } => (rows, 0, 0, 8),
        };
        // The user named it on the command line, so it may be anywhere.
        let also = ["CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"];
        let mut command = boundary::program::command(&self.program, &std::env::current_dir()?, &also);
        command.arg("-m").arg(&self.model).args(["-o", "json", "-t", &self.threads.to_string()]);
        command.args(["-p", &prompt.to_string(), "-n", &generate.to_string(), "-r", &repeats.to_string()]);
        if depth > 0 {
            command.args(["-d", &depth.to_string()]);
        }
        let output = command.args(&self.arguments).output().with_context(|| format!("running {}", self.name))?;
        if !output.status.success() {
            // A peer without depths says so by failing; that is a missing figure, not a failed benchmark.
            return Ok(None);
        }
        let results: serde_json::Value = serde_json::from_slice(&output.stdout)
            .with_context(|| format!("{} did not print JSON; is it a llama-bench?", self.name))?;
        let rate = results.as_array().and_then(|all| all.last()).and_then(|result| result["avg_ts"].as_f64());
        Ok(Some(rate.with_context(|| format!("{}: no avg_ts in its answer", self.name))?))
    }
}
