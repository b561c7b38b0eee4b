//! `flint selftest`: every kernel of a device against its oracle, over the case tables, and whole steps of a card.

use anyhow::ensure;
use clap::Args;
use cuda::selftest::Cases;
use kernels::cases::{Case, normalised_error};
use kernels::{Kernels, Runtime};
use load::device::{DeviceChoice, device_choice};

/// Arguments of `flint selftest`.
#[derive(Args)]
pub struct SelftestArgs {
    /// What to test: cpu, cuda or cuda:N
    #[arg(long, default_value = "cpu", value_parser = device_choice)]
    device: DeviceChoice,
    /// Print every case, not only what failed
    #[arg(long)]
    all: bool,
    /// Only small cases of a card, for tools that watch every access
    #[arg(long)]
    small: bool,
}

/// Runs all cases; an error when one of them fails.
pub fn run(args: SelftestArgs) -> anyhow::Result<()> {
    let outcomes = match args.device {
        DeviceChoice::Cuda(card) => {
            let device = cuda::Device::open(card)?;
            outln!("{}", device.facts().name);
            let cases = if args.small { Cases::Small } else { Cases::All };
            let mut outcomes = cuda::selftest::selftest(&device, cases)?;
            outcomes.extend(model::cuda::selftest(card, cases)?);
            outcomes
        }
        DeviceChoice::Cpu | DeviceChoice::Auto => {
            ensure!(!args.small, "--small is for cards; leave it out, the CPU's cases take seconds");
            cpu()
        }
    };
    for outcome in outcomes.iter().filter(|outcome| args.all || !outcome.passed()) {
        let verdict = if outcome.passed() { "ok    " } else { "FAILED" };
        outln!("{verdict} {}: error {:.1e}, {:.1e} is allowed", outcome.name, outcome.error, outcome.bound);
    }
    let failed = outcomes.iter().filter(|outcome| !outcome.passed()).count();
    outln!("{} cases, {failed} failed", outcomes.len());
    ensure!(failed == 0, "the kernels compute something else than their oracle; do not trust answers of this device");
    Ok(())
}

fn cpu() -> Vec<cuda::selftest::Outcome> {
    let mut outcomes = Vec::new();
    let mut oracle = Runtime::new(Kernels::reference(), 1);
    for table in Kernels::available().into_iter().filter(|table| table.name != "reference") {
        let mut runtime = Runtime::new(table, 1);
        for case in Case::all() {
            let expected = case.prepare(&oracle)(&mut oracle);
            let error = normalised_error(&case.prepare(&runtime)(&mut runtime), &expected);
            let name = format!("{} {case:?}", table.name);
            outcomes.push(cuda::selftest::Outcome { name, error, bound: case.bound() });
        }
    }
    outcomes
}
