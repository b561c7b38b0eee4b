//! The card alone: known shapes with random weights, without the engine.

use kernels::KvType;
use model::{BLOCK, Backend, Chunk, ConfigOptions, CudaModel, CudaOptions, StateUse, Want};
use std::time::Instant;

fn median(mut v: Vec<f64>) -> f64 {
    v.sort_by(f64::total_cmp);
    v[v.len() / 2]
}

/// The slot of the one sequence, if there are states, with some state at a position.
fn place(card: &mut CudaModel, start: usize) -> Option<StateUse<'static>> {
    let states = card.info().states?;
    if start > 0 {
        card.import_state(0, start, &vec![0; states.bytes]).unwrap();
    }
    Some(StateUse { slot: 0, drafted: 0, saves: &[] })
}

/// Where the time of a step went.
fn print_times(card: &CudaModel, depth: usize) {
    let t = card.times().unwrap();
    let n = ::cuda::READINGS;
    let sms = card.card().multiprocessors as usize;
    println!("  at {depth}: us until asked, seen, ready, summed, done (mean over blocks with work), whole phase");
    let dense = ["qkv", "attention", "output", "gate", "down"];
    let mixture = ["qkv", "attention", "output", "route", "experts", "mix"];
    let names = if card.config().experts.is_some() { &mixture[..] } else { &dense[..] };
    let each = names.len();
    for (at, name) in names.iter().enumerate() {
        let mut parts = vec![0.0; n];
        let mut count = 0.0;
        for layer in 4..24 {
            for block in 0..sms {
                let r = &t[((layer * each + at + 1) * sms + block) * n..][..n];
                let before = &t[((layer * each + at) * sms + block) * n..][..n];
                // A block without work did not note everything.
                if r.windows(2).any(|two| two[1] < two[0]) {
                    continue;
                }
                for i in 0..n - 1 {
                    parts[i] += (r[i + 1] - r[i]) as f64 / 1000.0;
                }
                parts[n - 1] += (r[n - 1] - before[n - 1]) as f64 / 1000.0;
                count += 1.0;
            }
        }
        // From the last block's end of the phase before to the last one that has its input, its sums and its end; and from the
        // first block's to the last one's.
        let last = |op: usize, reading: usize| {
            let of = |block: usize| t[(op * sms + block) * n + reading] as f64 / 1000.0;
            (0..sms).map(of).fold(0.0, f64::max)
        };
        let mut path = [0.0; 4];
        let mut spread = 0.0;
        for layer in 4..24 {
            let (op, before) = (layer * each + at + 1, last(layer * each + at, n - 1));
            for (sum, reading) in path.iter_mut().zip([2, 3, 4, 5]) {
                *sum += (last(op, reading) - before) / 20.0;
            }
            let first = (0..sms).map(|block| t[(op * sms + block) * n + n - 1]).min().unwrap_or(0) as f64 / 1000.0;
            spread += (last(op, n - 1) - first) / 20.0;
        }
        if std::env::args().any(|a| a == "blocks") {
            // How long each block's sums took, in tenths of a microsecond, and when it ended them after the first.
            let mean = |block: usize, of: &dyn Fn(&[u64]) -> f64| {
                (4..24).map(|layer| of(&t[((layer * each + at + 1) * sms + block) * n..][..n])).sum::<f64>() / 20.0
            };
            let taken: Vec<String> = (0..sms)
                .map(|block| format!("{:.0}", mean(block, &|r| r[4].saturating_sub(r[3]) as f64 / 100.0)))
                .collect();
            println!("  {name} sums by block: {}", taken.join(" "));
        }
        let text: Vec<String> = parts.iter().map(|p| format!("{:6.2}", p / count)).collect();
        let path: Vec<String> = path.iter().map(|p| format!("{p:5.2}")).collect();
        println!("  {name:10} {}   path {} spread {spread:6.2}", text.join(" "), path.join(" "));
    }
    // From the last block's end of one phase to that of another.
    let ended = |op: usize| (0..sms).map(|block| t[(op * sms + block) * n + n - 1]).max().unwrap_or(0) as f64 / 1000.0;
    let ops = t.len() / sms / n;
    let layers = (ops - 3) / each;
    let began = (0..sms).map(|block| t[block * n]).min().unwrap_or(0) as f64 / 1000.0;
    print!("  from the first block's begin: embed {:.1}", ended(0) - began);
    for layer in [0, 1, 2, 3, layers - 4, layers - 3, layers - 2, layers - 1] {
        print!(", layer {layer} {:.1}", ended((layer + 1) * each) - ended(layer * each));
    }
    println!(", logits {:.1}, end {:.1}", ended(ops - 2) - ended(ops - 3), ended(ops - 1) - ended(ops - 2));
    let r = |op: usize, i: usize| t[op * sms * n + i] as f64;
    let last = ops - 1;
    let layer = |i: usize| t[(i * each + each) * sms * n + 5] as f64 / 1000.0;
    println!("  layer on block 0: {:.2} us", (layer(23) - layer(3)) / 20.0);
    println!(
        "  block 0: all {:.1} us, logits {:.1} us, embed {:.1}",
        (r(last, 5) - r(0, 0)) / 1000.0,
        (r(last - 1, 5) - r(last - 2, 5)) / 1000.0,
        (r(0, 5) - r(0, 0)) / 1000.0
    );
}

/// Whether single rows give the bits that steps of several give, near the start and where attention is cut into parts.
fn check(card: &mut CudaModel, blocks: &[u32], tokens: &[u32]) {
    let (mut together, mut alone) = (Vec::new(), Vec::new());
    let vocab = card.info().vocab;
    for start in [0, 250, 700, 5000] {
        let state = place(card, start);
        let chunk = Chunk { tokens: &tokens[..16], start, blocks, want: Want::All, state };
        card.forward(&[chunk], &mut together).unwrap();
        let state = place(card, start);
        let (mut equal, mut worst) = (0, 0.0f32);
        for (row, expected) in together.chunks(vocab).enumerate() {
            let chunk = Chunk { tokens: &tokens[row..=row], start: start + row, blocks, want: Want::Last, state };
            card.forward(&[chunk], &mut alone).unwrap();
            equal += usize::from(alone == expected);
            worst = alone.iter().zip(expected).fold(worst, |worst, (a, b)| worst.max((a - b).abs()));
        }
        let size = together.iter().fold(0.0f32, |size, x| size.max(x.abs()));
        println!("  rows at {start}: {equal} of 16 equal bit for bit, worst difference {worst:e} of {size:e}");
    }
}

/// The first token of a turn: rows that come once, of which the last is wanted, on a card that rested before and on one that did not.
fn turns(card: &mut CudaModel, blocks: &[u32], tokens: &[u32]) {
    let mut picks = Vec::new();
    for (start, rest) in [(600, 100), (1200, 0), (2400, 100), (4800, 0)] {
        let mut times = Vec::new();
        for rows in 18..=24 {
            std::thread::sleep(std::time::Duration::from_millis(rest));
            let state = place(card, start);
            let begun = Instant::now();
            let chunk = Chunk { tokens: &tokens[..rows], start, blocks, want: Want::Last, state };
            assert!(card.pick(&[chunk], &mut picks).unwrap());
            times.push(format!("{:.0}", begun.elapsed().as_secs_f64() * 1e6));
        }
        println!("  18 to 24 rows at {start} after {rest} ms of rest: {} us", times.join(" "));
    }
}

/// Prompts of so many tokens, whose last is answered.
fn prompts(card: &mut CudaModel, blocks: &[u32], tokens: &[u32], rows: &str) {
    let mut picks = Vec::new();
    for rows in rows.split(',').map(|rows| rows.parse::<usize>().unwrap()) {
        let mut times = Vec::new();
        for _ in 0..9 {
            let state = place(card, 0);
            let begun = Instant::now();
            let chunk = Chunk { tokens: &tokens[..rows], start: 0, blocks, want: Want::Last, state };
            assert!(card.pick(&[chunk], &mut picks).unwrap());
            times.push(begun.elapsed().as_secs_f64());
        }
        let t = median(times);
        println!("  prompt of {rows}: {:.2} ms, {:.0} tok/s", t * 1e3, rows as f64 / t);
    }
}

/// The steps of a recorded run on the CPU (client.rs, 294 lines, one function changed, the old file as prediction: results of
/// 2026-11-15): 2,353 tokens after a prompt of 3,101 in 201 steps with 2,168 drafted tokens, 2,142 of them accepted, and 10
/// plain ones. The steps are the card's, their sizes and what they accepted are replayed; the engine is not in it.
fn edit(card: &mut CudaModel, blocks: &[u32], tokens: &[u32]) {
    let mut picks = Vec::new();
    let mut rates = Vec::new();
    for _ in 0..4 {
        let (mut position, mut drafted, mut accepted) = (3101, 0, 0);
        let state = place(card, position);
        let begun = Instant::now();
        for step in 0..211 {
            let plain = step % 21 == 20;
            let draft = if plain { 0 } else { 10 + usize::from(drafted < (step + 1) * 2168 / 211) };
            let kept = if plain { 0 } else { draft - usize::from(step % 8 == 3) };
            let state = state.map(|state| StateUse { drafted: draft, ..state });
            let chunk = Chunk { tokens: &tokens[..draft + 1], start: position, blocks, want: Want::All, state };
            card.pick(&[chunk], &mut picks).unwrap();
            position += kept + 1;
            (drafted, accepted) = (drafted + draft, accepted + kept);
        }
        let seconds = begun.elapsed().as_secs_f64();
        rates.push((position - 3101) as f64 / seconds);
        println!(
            "  edit replayed: {drafted} drafted, {accepted} accepted, {} tokens in {:.0} ms",
            position - 3101,
            seconds * 1e3
        );
    }
    println!("  edit replayed: {:.0} tok/s (median of 4, the first records graphs)", median(rates));
}

pub fn run(args: &[String]) {
    if args.iter().any(|a| a == "selftest" || a == "decode_batch") {
        let device = ::cuda::Device::open(0).unwrap();
        println!("{:?} nvrtc {:?}", device.facts(), ::cuda::nvrtc_version());
        let begun = Instant::now();
        use ::cuda::selftest::{Cases, selftest, selftest_of_several};
        let cases = if args.iter().any(|a| a == "small") { Cases::Small } else { Cases::All };
        let all = args.iter().any(|a| a == "selftest");
        let outcomes = if all { selftest(&device, cases) } else { selftest_of_several(&device) }.unwrap();
        let failed: Vec<_> = outcomes.iter().filter(|o| !o.passed()).collect();
        println!("selftest {} cases, {} failed, {:?}", outcomes.len(), failed.len(), begun.elapsed());
        for o in failed.iter().take(40) {
            println!("FAILED {} {:e} > {:e}", o.name, o.error, o.bound);
        }
        for kind in ["product", "expand", "embed", "decode", "prefill"] {
            let worst = outcomes.iter().filter(|o| o.name.starts_with(kind)).map(|o| o.error).fold(0.0, f32::max);
            println!("worst {kind}: {worst:e}");
        }
    }
    for shape in args.iter().filter(|a| model::cuda::SHAPES.contains(&a.as_str())) {
        let begun = Instant::now();
        let config = model::cuda::shape(shape).unwrap();
        let options = CudaOptions {
            card: 0,
            kv_tokens: args.iter().find_map(|a| a.strip_prefix("kv=")).map_or(70_000, |k| k.parse().unwrap()),
            kv_type: if args.iter().any(|a| a == "kv8") { KvType::Q8 } else { KvType::F16 },
            config: ConfigOptions::default(),
            threads: 16,
            times: args.iter().any(|a| a == "times"),
            placements: args.iter().find_map(|a| a.strip_prefix("places=")).map_or(16, |n| n.parse().unwrap()),
        };
        let mut card = CudaModel::random(config, options).unwrap();
        let gb = card.info().bytes_per_token as f64 / 1e9;
        println!("{shape}: {gb:.3} GB per token, loaded in {:?}", begun.elapsed());
        let blocks: Vec<u32> = (0..(40_000 / BLOCK) as u32).collect();
        let mut logits = Vec::new();
        let mut picks = Vec::new();
        let tokens: Vec<u32> = (0..2048).map(|i| (i * 7919) % 150_000).collect();
        let decode = |card: &mut CudaModel, depth: usize, picks: &mut Vec<u32>| {
            let mut token = 11;
            let mut rates = Vec::new();
            for _ in 0..5 {
                let state = place(card, depth);
                let begun = Instant::now();
                for i in 0..256 {
                    let chunk = Chunk { tokens: &[token], start: depth + i, blocks: &blocks, want: Want::Last, state };
                    card.pick(&[chunk], picks).unwrap();
                    token = picks[0].min(150_000);
                }
                rates.push(256.0 / begun.elapsed().as_secs_f64());
            }
            median(rates)
        };
        if args.iter().any(|a| a == "check") {
            check(&mut card, &blocks, &tokens);
        }
        let rate = if args.iter().any(|a| a.starts_with("only=")) { 1.0 } else { decode(&mut card, 0, &mut picks) };
        println!("  decode at 0: {rate:.0} tok/s, {:.0} us, {:.2} TB/s", 1e6 / rate, rate * gb / 1e3);
        if args.iter().any(|a| a == "times") {
            for depth in [100, 1000, 32_000] {
                let state = place(&mut card, depth);
                for i in 0..3 {
                    let chunk = Chunk { tokens: &[5], start: depth + i, blocks: &blocks, want: Want::Last, state };
                    card.pick(&[chunk], &mut picks).unwrap();
                }
                card.synchronize().unwrap();
                print_times(&card, depth);
            }
        }
        if args.iter().any(|a| a == "short") {
            continue;
        }
        if let Some(rows) = args.iter().find_map(|a| a.strip_prefix("prompts=")) {
            prompts(&mut card, &blocks, &tokens, rows);
            continue;
        }
        if args.iter().any(|a| a == "logits") {
            let state = place(&mut card, 0);
            let begun = Instant::now();
            for i in 0..64 {
                let chunk = Chunk { tokens: &[5], start: i, blocks: &blocks, want: Want::Last, state };
                card.forward(&[chunk], &mut logits).unwrap();
            }
            println!("  decode with logits to the host: {:.0} tok/s", 64.0 / begun.elapsed().as_secs_f64());
        }
        if args.iter().any(|a| a == "edit") {
            edit(&mut card, &blocks, &tokens);
            continue;
        }
        if args.iter().any(|a| a == "turn") {
            turns(&mut card, &blocks, &tokens);
            continue;
        }
        let only = args.iter().find_map(|a| a.strip_prefix("only="));
        let steps: Vec<usize> = only.unwrap_or("2,4,8,16,32").split(',').map(|rows| rows.parse().unwrap()).collect();
        for start in [0, 600, 2400, 4000] {
            for &rows in &steps {
                let mut times = Vec::new();
                for _ in 0..20 {
                    let state = place(&mut card, start);
                    let begun = Instant::now();
                    let chunk = Chunk { tokens: &tokens[..rows], start, blocks: &blocks, want: Want::All, state };
                    card.pick(&[chunk], &mut picks).unwrap();
                    times.push(begun.elapsed().as_secs_f64());
                }
                // The first is launched kernel by kernel, later ones are recorded.
                let (once, t) = (times[0], median(times));
                let rate = rows as f64 / t;
                println!(
                    "  step of {rows} at {start}: once {:.0}, then {:.0} us, {rate:.0} rows/s",
                    once * 1e6,
                    t * 1e6
                );
            }
        }
        let states = card.info().states.map_or(0, |states| states.slots);
        for sequences in [4, 16, 32].into_iter().filter(|&sequences| states == 0 || sequences <= states) {
            let mut times = Vec::new();
            let mut next = vec![11; sequences];
            for i in 0..200 {
                let begun = Instant::now();
                let batch: Vec<Chunk<'_>> = next
                    .chunks(1)
                    .enumerate()
                    .map(|(s, token)| Chunk {
                        tokens: token,
                        start: if states > 0 { i } else { 64 + i },
                        blocks: &blocks[s * 32..][..32],
                        want: Want::Last,
                        state: (states > 0).then_some(StateUse { slot: s as u32, drafted: 0, saves: &[] }),
                    })
                    .collect();
                card.pick(&batch, &mut picks).unwrap();
                next = picks.iter().map(|&token| token.min(150_000)).collect();
                times.push(begun.elapsed().as_secs_f64());
            }
            let whole: f64 = times[50..].iter().sum();
            let rate = (150 * sequences) as f64 / whole;
            println!("  {sequences} sequences: {:.0} us a step, {rate:.0} tok/s", whole / 150.0 * 1e6);
        }
        if args.iter().any(|a| a == "rows") || only.is_some() {
            continue;
        }
        prompts(&mut card, &blocks, &tokens, "128,512,2048");
        for depth in [4096, 32_768] {
            if args.iter().any(|a| a == "depth") {
                let rate = decode(&mut card, depth, &mut picks);
                println!("  decode at {depth}: {rate:.0} tok/s, {:.0} us", 1e6 / rate);
            }
        }
    }
}
