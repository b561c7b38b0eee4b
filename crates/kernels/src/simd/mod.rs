//! Vector kernels and the table they are chosen from.
//!
//! [`Kernels::best`] looks at the CPU once; `FLINT_KERNELS` forces an entry by name, which is how tests run them all.

mod attention;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod delta_net;
mod matmul;
mod rows;
mod vector;

pub use attention::QUERIES;
pub(crate) use attention::{HEAD_MAX, PARTIAL_HEAD, Span};
pub(crate) use delta_net::{Correction, Recurrence};
pub(crate) use matmul::Product;

use crate::activations::QuantisedRow;
use crate::pack::Layout;
use crate::reference;
use std::ops::Range;

/// One implementation of every operation.
///
/// The functions are unsafe to call; each is reached only through the checked methods of [`crate::Runtime`].
pub struct Kernels {
    /// Name, as `FLINT_KERNELS` takes it.
    pub name: &'static str,
    /// The weight layout these kernels read.
    pub layout: Layout,
    pub(crate) product: unsafe fn(&Product<'_>, Range<usize>),
    pub(crate) rms_norm: unsafe fn(&[f32], &[f32], f32, &mut [f32]),
    pub(crate) silu_multiply: unsafe fn(&[f32], &[f32], &mut [f32]),
    pub(crate) sigmoid_multiply: unsafe fn(&[f32], &[f32], &mut [f32]),
    pub(crate) convolve: unsafe fn(&[&[f32]], &[f32], &mut [f32]),
    pub(crate) unit_heads: unsafe fn(&mut [f32], usize, f32, f32),
    pub(crate) recur: unsafe fn(&Recurrence<'_>, &mut [f32], &mut [f32], &mut [f32]),
    pub(crate) correct: unsafe fn(&Correction<'_>, &mut [f32]),
    pub(crate) quantize_small: unsafe fn(&[f32], &mut QuantisedRow<'_>),
    pub(crate) quantize_super: unsafe fn(&[f32], &mut QuantisedRow<'_>),
    pub(crate) span: unsafe fn(&Span<'_>, &mut [f32]),
}

static REFERENCE: Kernels = Kernels {
    name: "reference",
    layout: Layout::Rows,
    product: reference::product,
    rms_norm: reference::rms_norm,
    silu_multiply: reference::silu_multiply,
    sigmoid_multiply: reference::sigmoid_multiply,
    convolve: reference::convolve,
    unit_heads: reference::unit_heads,
    recur: reference::recur,
    correct: reference::correct,
    quantize_small: reference::quantize_small,
    quantize_super: reference::quantize_super,
    span: reference::span,
};

impl std::fmt::Debug for Kernels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Kernels {
    /// Plain scalar code; runs everywhere.
    pub fn reference() -> &'static Kernels {
        &REFERENCE
    }

    /// Everything this CPU can run, fastest first.
    pub fn available() -> Vec<&'static Kernels> {
        let mut all = Vec::new();
        #[cfg(target_arch = "x86_64")]
        all.extend([Self::avx512(), Self::avx2()].into_iter().flatten());
        all.push(&REFERENCE);
        all
    }

    /// The fastest, or the one named in `FLINT_KERNELS`.
    pub fn best() -> Result<&'static Kernels, UnknownKernels> {
        let available = Self::available();
        match std::env::var("FLINT_KERNELS") {
            Err(_) => Ok(available[0]),
            Ok(name) => available
                .iter()
                .copied()
                .find(|k| k.name == name)
                .ok_or_else(|| UnknownKernels { name, available: available.iter().map(|k| k.name).collect() }),
        }
    }
}

/// `FLINT_KERNELS` names something this CPU does not have.
#[derive(Debug)]
pub struct UnknownKernels {
    name: String,
    available: Vec<&'static str>,
}

impl std::fmt::Display for UnknownKernels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FLINT_KERNELS={} is not available on this CPU; choose one of {:?}", self.name, self.available)
    }
}

impl std::error::Error for UnknownKernels {}

/// Entry points of one instruction set: the generic code, compiled with its features.
#[cfg(target_arch = "x86_64")]
macro_rules! entry_points {
    ($module:ident, $vector:ty, $features:literal) => {
        mod $module {
            use super::*;
            // SAFETY (all): the table is handed out only after the CPU was seen to have the features; the rest of each
            // contract is the callee's own.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn product(p: &Product<'_>, tiles: Range<usize>) {
                // SAFETY: see above.
                unsafe { matmul::product::<$vector>(p, tiles) }
            }
            #[target_feature(enable = $features)]
            pub(super) unsafe fn rms_norm(x: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) {
                // SAFETY: see above.
                unsafe { rows::rms_norm::<$vector>(x, weight, epsilon, out) }
            }
            #[target_feature(enable = $features)]
            pub(super) unsafe fn silu_multiply(gate: &[f32], up: &[f32], out: &mut [f32]) {
                // SAFETY: see above.
                unsafe { rows::silu_multiply::<$vector>(gate, up, out) }
            }
            #[target_feature(enable = $features)]
            pub(super) unsafe fn sigmoid_multiply(gate: &[f32], up: &[f32], out: &mut [f32]) {
                // SAFETY: see above.
                unsafe { rows::sigmoid_multiply::<$vector>(gate, up, out) }
            }
            #[target_feature(enable = $features)]
            pub(super) unsafe fn convolve(rows: &[&[f32]], weights: &[f32], out: &mut [f32]) {
                // SAFETY: see above.
                unsafe { delta_net::convolve::<$vector>(rows, weights, out) }
            }
            #[target_feature(enable = $features)]
            pub(super) unsafe fn unit_heads(x: &mut [f32], head: usize, least: f32, scale: f32) {
                // SAFETY: see above.
                unsafe { delta_net::unit_heads::<$vector>(x, head, least, scale) }
            }
            #[target_feature(enable = $features)]
            pub(super) unsafe fn recur(r: &Recurrence<'_>, state: &mut [f32], d: &mut [f32], out: &mut [f32]) {
                // SAFETY: see above.
                unsafe { delta_net::recur::<$vector>(r, state, d, out) }
            }
            #[target_feature(enable = $features)]
            pub(super) unsafe fn correct(c: &Correction<'_>, state: &mut [f32]) {
                // SAFETY: see above.
                unsafe { delta_net::correct::<$vector>(c, state) }
            }
            #[target_feature(enable = $features)]
            pub(super) unsafe fn quantize_small(values: &[f32], row: &mut QuantisedRow<'_>) {
                // SAFETY: see above.
                unsafe { rows::quantize_small::<$vector>(values, row) }
            }
            #[target_feature(enable = $features)]
            pub(super) unsafe fn quantize_super(values: &[f32], row: &mut QuantisedRow<'_>) {
                // SAFETY: see above.
                unsafe { rows::quantize_super::<$vector>(values, row) }
            }
            #[target_feature(enable = $features)]
            pub(super) unsafe fn span(s: &Span<'_>, partials: &mut [f32]) {
                // SAFETY: see above.
                unsafe { attention::span::<$vector>(s, partials) }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
entry_points!(on_avx512, avx512::Avx512, "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c,bmi2");
#[cfg(target_arch = "x86_64")]
entry_points!(on_avx2, avx2::Avx2, "avx2,fma,f16c,bmi2");

#[cfg(target_arch = "x86_64")]
macro_rules! table {
    ($name:literal, $module:ident) => {
        Kernels {
            name: $name,
            layout: Layout::Tiles,
            product: $module::product,
            rms_norm: $module::rms_norm,
            silu_multiply: $module::silu_multiply,
            sigmoid_multiply: $module::sigmoid_multiply,
            convolve: $module::convolve,
            unit_heads: $module::unit_heads,
            recur: $module::recur,
            correct: $module::correct,
            quantize_small: $module::quantize_small,
            quantize_super: $module::quantize_super,
            span: $module::span,
        }
    };
}

#[cfg(target_arch = "x86_64")]
impl Kernels {
    /// AVX-512 with VNNI, if the CPU has it.
    pub fn avx512() -> Option<&'static Kernels> {
        static TABLE: Kernels = table!("avx512", on_avx512);
        let found = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vnni")
            && is_x86_feature_detected!("bmi2");
        found.then_some(&TABLE)
    }

    /// AVX2 with FMA and F16C, if the CPU has it.
    pub fn avx2() -> Option<&'static Kernels> {
        static TABLE: Kernels = table!("avx2", on_avx2);
        let found = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
            && is_x86_feature_detected!("bmi2");
        found.then_some(&TABLE)
    }
}
