//! What is measured on our side: prompts, decoding at depth, steps of several rows, and single kernels.

use anyhow::Result;
use kernels::cases::Case;
use kernels::{Kernels, KvType, Runtime};
use load::device::{self, DeviceChoice, Opened};
use model::{BLOCK, Backend, Chunk, CpuOptions, StateInfo, StateUse, Want};
use std::path::Path;
use std::time::{Duration, Instant};

/// One thing to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Reading a prompt of this many tokens, logits for the last.
    Prompt { tokens: usize },
    /// Decoding one token at a time.
    Decode { depth: usize },
    /// Steps of this many rows with logits for each: what verifying a draft costs.
    Step { rows: usize },
}

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Tokens per second.
    pub tokens_per_s: f64,
    /// Weight bytes read per second.
    pub gb_per_s: f64,
    /// Hash of the most likely token of every wanted row: equal work gives equal answers.
    pub hash: u64,
}

/// Tokens decoded per measurement (more where the card picks them: it is that much faster), and the least number of steps.
const DECODE_TOKENS: usize = 64;
const PICKED_TOKENS: usize = 256;
const STEPS_MIN: usize = 8;

/// What to load.
#[derive(Clone, Copy)]
pub enum What<'a> {
    /// A file.
    File(&'a Path),
    /// A known shape, with random weights.
    Shape(&'a str),
}

/// A loaded model and one sequence to measure with.
pub struct Bench {
    /// The model.
    pub model: Box<dyn Backend>,
    /// The CPU kernels in use, or the card.
    pub kernels: String,
    /// Whether it is on a card.
    pub on_card: bool,
    /// How long loading took.
    pub load: Duration,
    /// Threads in use.
    pub threads: usize,
    blocks: Vec<u32>,
    logits: Vec<f32>,
}

impl Bench {
    /// Loads a model with room for a few sequences of `tokens` tokens.
    pub fn load(what: What<'_>, choice: DeviceChoice, threads: usize, kv_q8: bool, tokens: usize) -> Result<Bench> {
        let started = Instant::now();
        let options = CpuOptions {
            threads,
            kv_tokens: 4 * tokens,
            kv_type: if kv_q8 { KvType::Q8 } else { KvType::F16 },
            config: Default::default(),
            kernels: Kernels::best()?,
        };
        let Opened { backend, kernels, on_card } = match what {
            What::File(path) => device::open(path, choice, options)?,
            What::Shape(name) => device::open_random(device::shape(name)?, choice, options)?,
        };
        let blocks = (0..tokens.div_ceil(BLOCK) as u32).collect();
        Ok(Bench { model: backend, kernels, on_card, load: started.elapsed(), threads, blocks, logits: Vec::new() })
    }

    /// Reads a prompt of `depth` tokens, so that deeper figures find real keys and values.
    pub fn fill(&mut self, depth: usize) -> Result<()> {
        let tokens = self.tokens(depth);
        self.read(&tokens, 0, Want::Nothing).map(drop)
    }

    /// Measures one figure once.
    pub fn measure(&mut self, figure: Figure) -> Result<Sample> {
        if let Figure::Decode { depth } = figure
            && let Some(sample) = self.picked(depth)?
        {
            return Ok(sample);
        }
        let (rows, start, steps, want) = match figure {
            Figure::Prompt { tokens } => (tokens, 0, 1, Want::Last),
            Figure::Decode { depth } => (1, depth, DECODE_TOKENS, Want::Last),
            Figure::Step { rows } => (rows, 0, (DECODE_TOKENS / rows).max(STEPS_MIN), Want::All),
        };
        let tokens = self.tokens(rows * steps);
        let mut hash = 0xcbf2_9ce4_8422_2325;
        let mut elapsed = Duration::ZERO;
        let mut passes = 0;
        // The first step is not counted: it wakes the threads and brings the weights' pages in.
        self.begin(start)?;
        self.read(&tokens[..rows.min(self.model.info().rows_max)], start, want)?;
        self.begin(start)?;
        for step in tokens.chunks(rows).enumerate() {
            let started = Instant::now();
            passes += self.read(step.1, start + step.0 * rows, want)?;
            elapsed += started.elapsed();
            for row in self.logits.chunks_exact(self.model.info().vocab) {
                hash = (hash ^ best(row) as u64).wrapping_mul(0x100_0000_01b3);
            }
        }
        let bytes = self.model.info().bytes_per_token * passes;
        Ok(Sample {
            tokens_per_s: tokens.len() as f64 / elapsed.as_secs_f64(),
            gb_per_s: bytes as f64 / elapsed.as_secs_f64() / 1e9,
            hash,
        })
    }

    /// Decodes tokens that the backend picks itself, each fed to the next step; none where it does not pick.
    fn picked(&mut self, depth: usize) -> Result<Option<Sample>> {
        let mut tokens = self.tokens(1);
        let mut hash = 0xcbf2_9ce4_8422_2325;
        let mut started = Instant::now();
        self.begin(depth)?;
        let state = self.state(0);
        for i in 0..=PICKED_TOKENS {
            let mut picks = Vec::new();
            let chunk = Chunk { tokens: &tokens, start: depth + i, blocks: &self.blocks, want: Want::Last, state };
            if !self.model.pick(&[chunk], &mut picks)? {
                return Ok(None);
            }
            anyhow::ensure!(picks != [model::NOT_A_NUMBER], "the model produced logits that are not numbers");
            hash = (hash ^ u64::from(picks[0])).wrapping_mul(0x100_0000_01b3);
            tokens = picks;
            if i == 0 {
                started = Instant::now();
            }
        }
        let rate = PICKED_TOKENS as f64 / started.elapsed().as_secs_f64();
        let gb_per_s = rate * self.model.info().bytes_per_token as f64 / 1e9;
        Ok(Some(Sample { tokens_per_s: rate, gb_per_s, hash }))
    }

    /// Runs tokens through the model in as few steps as it takes, and says how many.
    fn read(&mut self, tokens: &[u32], start: usize, want: Want) -> Result<usize> {
        let mut passes = 0;
        let rows = self.model.info().rows_max;
        for (i, tokens) in tokens.chunks(rows).enumerate() {
            let start = start + i * rows;
            // Of the rows that verify a draft all but the first may be wrong.
            let state = self.state(if want == Want::All { tokens.len() - 1 } else { 0 });
            let last = Chunk { tokens, start, blocks: &self.blocks, want, state };
            self.model.forward(&[last], &mut self.logits)?;
            passes += 1;
        }
        Ok(passes)
    }

    /// The sequence's recurrent state, where the model has any.
    fn state(&self, drafted: usize) -> Option<StateUse<'static>> {
        self.model.info().states.map(|_| StateUse { slot: 0, drafted, saves: &[] })
    }

    /// Puts some state at a position: what it holds costs nothing.
    fn begin(&mut self, start: usize) -> Result<()> {
        if let Some(StateInfo { bytes, .. }) = self.model.info().states {
            self.model.import_state(0, start, &vec![0; bytes])?;
        }
        Ok(())
    }

    /// Repeatable tokens, spread over the vocabulary.
    pub fn tokens(&self, count: usize) -> Vec<u32> {
        let vocab = self.model.info().vocab as u64;
        let mut random = kernels::cases::Random(1);
        (0..count).map(|_| (random.next_u64() % vocab) as u32).collect()
    }
}

fn best(row: &[f32]) -> usize {
    let pick = |best: (usize, f32), (i, &x): (usize, &f32)| if x > best.1 { (i, x) } else { best };
    row.iter().enumerate().fold((0, f32::NEG_INFINITY), pick).0
}

/// Times every case of the kernel table and checks it against the reference.
pub fn kernels(threads: usize, json: bool) -> Result<()> {
    let mut reference = Runtime::new(Kernels::reference(), threads);
    for table in Kernels::available().into_iter().filter(|table| table.name != "reference") {
        let mut runtime = Runtime::new(table, threads);
        for case in Case::all() {
            let error = {
                let expected = case.prepare(&reference)(&mut reference);
                kernels::cases::normalised_error(&case.prepare(&runtime)(&mut runtime), &expected)
            };
            anyhow::ensure!(error <= case.bound(), "{case:?} on {}: error {error:e}", table.name);
            let mut run = case.prepare(&runtime);
            let mut fastest = Duration::MAX;
            for _ in 0..20 {
                let started = Instant::now();
                std::hint::black_box(run(&mut runtime));
                fastest = fastest.min(started.elapsed());
            }
            let (us, s) = (fastest.as_secs_f64() * 1e6, fastest.as_secs_f64());
            let (gb, gops) = (case.bytes() as f64 / s / 1e9, case.operations() as f64 / s / 1e9);
            if json {
                let line = serde_json::json!({"kernels": table.name, "case": format!("{case:?}"), "us": us,
                    "gb_per_s": gb, "gop_per_s": gops, "error": error});
                outln!("{line}");
            } else {
                outln!("{:8} {us:9.1} us {gb:7.1} GB/s {gops:7.1} Gop/s  error {error:7.1e}  {case:?}", table.name);
            }
        }
    }
    Ok(())
}
