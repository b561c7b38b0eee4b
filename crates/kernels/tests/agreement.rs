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
