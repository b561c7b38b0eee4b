//! dev
use kernels::*;
use model::*;
use std::time::Instant;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let t = Instant::now();
    let options = CpuOptions {
        threads: a.get(4).map_or(2, |x| x.parse().unwrap()),
        kv_tokens: 32768,
        kv_type: KvType::F16,
        config: Default::default(),
        kernels: Kernels::best().unwrap(),
    };
    let mut m = CpuModel::load(a[1].as_ref(), options).unwrap();
    println!("load {:?} {} bytes/token {}", t.elapsed(), m.kernels(), m.info().bytes_per_token);
    let blocks: Vec<u32> = (0..300).collect();
    let mut logits = vec![];
    if a[2] == "bench" {
        for _ in 0..3 {
            let depth: usize = a[3].parse().unwrap();
            let toks: Vec<u32> = (0..256).map(|i| 100 + i * 7 % 5000).collect();
            let t = Instant::now();
            for i in 0..2 {
                m.forward(&[Chunk { tokens: &toks, start: i * 256, blocks: &blocks, want: Want::Last }], &mut logits)
                    .unwrap();
            }
            println!("pp512 {:.1} tok/s", 512.0 / t.elapsed().as_secs_f64());
            for rows in [1usize, 2, 4, 8, 16] {
                let n = (64 / rows).max(8);
                let t = Instant::now();
                for i in 0..n {
                    m.forward(
                        &[Chunk { tokens: &toks[..rows], start: depth + i * rows, blocks: &blocks, want: Want::All }],
                        &mut logits,
                    )
                    .unwrap();
                }
                let s = t.elapsed().as_secs_f64();
                println!(
                    "rows {rows}: {:.2} ms/step, {:.1} tok/s, {:.1} GB/s",
                    s / n as f64 * 1e3,
                    (n * rows) as f64 / s,
                    m.info().bytes_per_token as f64 * n as f64 / s / 1e9
                );
            }
        }
        return;
    }
    let text = std::fs::read_to_string(&a[2]).unwrap();
    let (mut same, mut near, mut bad) = (0, 0, 0);
    for line in text.lines() {
        let v: serde_json::Value = serde_json::from_str(line).unwrap();
        let ids =
            |k: &str| -> Vec<u32> { v[k].as_array().unwrap().iter().map(|x| x.as_u64().unwrap() as u32).collect() };
        let (mut toks, out) = (ids("prompt_ids"), ids("ids"));
        let p = toks.len();
        toks.extend(&out[..63]);
        let mut all = vec![];
        for (c, part) in toks.chunks(200).enumerate() {
            m.forward(&[Chunk { tokens: part, start: c * 200, blocks: &blocks, want: Want::All }], &mut logits)
                .unwrap();
            all.extend(logits.chunks(m.info().vocab).map(|r| {
                let b =
                    r.iter().enumerate().fold((0, f32::NEG_INFINITY), |b, (i, &x)| if x > b.1 { (i, x) } else { b });
                (b.0 as u32, b.1)
            }));
        }
        let mut maxd = 0.0f32;
        for i in 0..64 {
            let got = all[p - 1 + i];
            let gap = v["top"][i][1].as_f64().unwrap() - v["top"][i][3].as_f64().unwrap();
            if got.0 == out[i] {
                same += 1;
                maxd = maxd.max((got.1 - v["top"][i][1].as_f64().unwrap() as f32).abs());
            } else if gap < 0.05 {
                near += 1
            } else {
                bad += 1;
                println!("differs: gap {gap:.3} at {i}");
            }
        }
        println!("max logit diff {maxd:.4}");
        if let Ok(f) = std::env::var("DUMP") {
            use std::io::Write;
            let mut o = std::fs::OpenOptions::new().append(true).create(true).open(f).unwrap();
            for i in 0..64 {
                writeln!(o, "{} {} {} {}", out[i], v["top"][i][1], all[p - 1 + i].0, all[p - 1 + i].1).unwrap();
            }
        }
    }
    println!("same {same} near {near} bad {bad}");
}
