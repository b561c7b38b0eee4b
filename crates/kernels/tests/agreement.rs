//! Every entry of the kernel table against the reference, over the case table.

use kernels::cases::{Case, normalised_error};
use kernels::{Kernels, Runtime};

#[test]
fn simd_agrees_with_the_reference() {
    let mut reference = Runtime::new(Kernels::reference(), 2);
    let mut others: Vec<Runtime> =
        Kernels::available().into_iter().filter(|k| k.name != "reference").map(|k| Runtime::new(k, 2)).collect();
    println!("tables: {:?}", others.iter().map(Runtime::name).collect::<Vec<_>>());
    let mut worst = (0.0, None);
    for case in Case::all() {
        let expected = case.prepare(&reference)(&mut reference);
        for runtime in &mut others {
            let error = normalised_error(&case.prepare(runtime)(runtime), &expected);
            assert!(error <= case.bound(), "{case:?} on {}: error {error:e} above {:e}", runtime.name(), case.bound());
            if error / case.bound() > worst.0 {
                worst = (error / case.bound(), Some(case));
            }
        }
    }
    println!("worst: {:.2} of its bound, {:?}", worst.0, worst.1);
}

#[test]
fn rows_together_equal_rows_alone() {
    use kernels::cases::{floats, random_matrix};
    use kernels::{Activations, Format, Output, RowMap, Shape, output_stride};
    for kernels in Kernels::available() {
        let mut runtime = Runtime::new(kernels, 2);
        for format in Format::ALL {
            let shape = Shape { format, rows: 32, columns: 512 };
            let matrix = random_matrix(shape, 1, &runtime);
            let batch = 19;
            let mut x = Activations::new(batch, shape.columns);
            x.values.copy_from_slice(&floats(2, batch * shape.columns));
            runtime.quantize(&mut x, batch, format.precision());
            let rows: Vec<u32> = (0..batch as u32).collect();
            let stride = output_stride(shape.rows);
            let (mut together, mut alone) = (vec![0.0; batch * stride], vec![0.0; batch * stride]);
            let all = RowMap { input: &rows, output: &rows };
            runtime.matmul(&x, &mut [Output { matrix: &matrix, rows: all, out: &mut together }]);
            for row in rows.chunks(1) {
                let one = RowMap { input: row, output: row };
                runtime.matmul(&x, &mut [Output { matrix: &matrix, rows: one, out: &mut alone }]);
            }
            assert_eq!(together, alone, "{} on {}", format.name(), kernels.name);
        }
    }
}

/// Sums of bytes are formed in 16 bits where they fit: here every weight and every activation is as large as it can be.
#[test]
fn the_largest_numbers_fit() {
    use kernels::cases::random_weights;
    use kernels::{Activations, Format, Matrix, Output, Region, RowMap, Shape, output_stride};
    use std::ops::Range;
    let formats: [(Format, Range<usize>); 10] = [
        (Format::Q4_0, 0..2),
        (Format::Q4_1, 0..4),
        (Format::Q5_0, 0..2),
        (Format::Q5_1, 0..4),
        (Format::Q8_0, 0..2),
        (Format::Q2_K, 80..84),
        (Format::Q3_K, 108..110),
        (Format::Q4_K, 0..4),
        (Format::Q5_K, 0..4),
        (Format::Q6_K, 208..210),
    ];
    for (format, factors) in formats {
        let shape = Shape { format, rows: 32, columns: 512 };
        let mut weights = random_weights(shape, 5);
        for block in weights.chunks_exact_mut(format.block_bytes()) {
            for (at, byte) in block.iter_mut().enumerate().filter(|(at, _)| !factors.contains(at)) {
                // Signed numbers: all of Q8_0 and the scales of Q6_K.
                let signed = format == Format::Q8_0 || format == Format::Q6_K && at >= 192;
                *byte = if signed { 0x7f } else { 0xff };
            }
        }
        let outputs = Kernels::available().into_iter().map(|kernels| {
            let mut runtime = Runtime::new(kernels, 2);
            let mut region = Region::new(shape.packed_bytes(runtime.layout()));
            shape.pack(runtime.layout(), &weights, region.as_mut_slice());
            let matrix = Matrix::new(std::sync::Arc::new(region), 0, shape, runtime.layout());
            let mut x = Activations::new(9, shape.columns);
            for (i, row) in x.values.chunks_exact_mut(shape.columns).enumerate() {
                row.fill(if i.is_multiple_of(2) { 3.0 } else { -3.0 });
            }
            runtime.quantize(&mut x, 9, format.precision());
            let rows: Vec<u32> = (0..9).collect();
            let mut out = vec![0.0; 9 * output_stride(shape.rows)];
            let all = RowMap { input: &rows, output: &rows };
            runtime.matmul(&x, &mut [Output { matrix: &matrix, rows: all, out: &mut out }]);
            (kernels.name, out)
        });
        let outputs: Vec<_> = outputs.collect();
        let (_, expected) = &outputs[outputs.len() - 1];
        for (name, out) in &outputs {
            let error = normalised_error(out, expected);
            assert!(error < 1e-5, "{} on {name}: {error:e}", format.name());
        }
    }
}
