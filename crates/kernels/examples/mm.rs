//! dev
use kernels::cases::*;
use kernels::*;
use std::time::Instant;
fn main() {
    let mut rt = Runtime::new(Kernels::best().unwrap(), 1);
    let (rows, cols) = (512, 1536);
    for format in [Format::Q4_K, Format::Q6_K, Format::Q5_0, Format::Q8_0, Format::Q4_1] {
        print!("{:5}", format.name());
        for batch in [1usize, 2, 4, 8, 16, 64] {
            let shape = Shape { format, rows, columns: cols };
            let m = random_matrix(shape, 1, &rt);
            let mut x = Activations::new(batch, cols);
            x.values = floats(2, batch * cols);
            rt.quantize(&mut x, batch, format.precision());
            let idx: Vec<u32> = (0..batch as u32).collect();
            let mut out = vec![0.0; batch * output_stride(rows)];
            let mut best = f64::MAX;
            for _ in 0..300 {
                let t = Instant::now();
                rt.matmul(&x, &mut [Output { matrix: &m, rows: RowMap { input: &idx, output: &idx }, out: &mut out }]);
                best = best.min(t.elapsed().as_secs_f64());
            }
            print!(
                "  b{batch}: {:6.1} GMAC/s {:5.1} GB/s",
                (rows * cols * batch) as f64 / best / 1e9,
                m.bytes().len() as f64 / best / 1e9
            );
        }
        println!();
    }
    // attention
    for (depth, q) in [(512usize, 1usize), (4096, 1), (2048, 64)] {
        let c = Case::Attention { kind: KvType::F16, heads: 12, kv_heads: 2, head: 128, depth, queries: q };
        let mut f = c.prepare(&rt);
        let mut best = f64::MAX;
        for _ in 0..20 {
            let t = Instant::now();
            f(&mut rt);
            best = best.min(t.elapsed().as_secs_f64());
        }
        println!(
            "attention depth {depth} q {q}: {:.1} us {:.1} GMAC/s {:.1} GB/s",
            best * 1e6,
            c.operations() as f64 / best / 1e9,
            c.bytes() as f64 / best / 1e9
        );
    }
}
