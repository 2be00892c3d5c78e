//! RMS norm on a card, and what the contract that quantises its rows shares with it.

use memra_contract::order;
use memra_contract::{DType, Problem, TensorSet};

use super::{ID, Sizes};
use crate::contract::PrepareError;
use crate::form::{Arg, DeviceForm, OutputForm};
use crate::ops::device::{self, CudaVariant, cuda_variant};
use crate::ops::{input, shared};

/// Longest row that is held in registers.
pub(crate) const REGISTERS_HIDDEN: usize = 20_480;

/// Chains of the order class, and threads of the baseline.
const CHAINS: usize = 128;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Kernel {
    /// 128 threads a row, which is read twice.
    Row,
    /// So many threads a row, which stays in registers.
    RowRegisters(usize),
}

/// The variants, baseline first.
pub(super) static VARIANTS: &[CudaVariant<Kernel>] = &[
    cuda_variant!(
        "rms_norm",
        "cuda_row",
        "128 threads a row, one chain each; the CUDA baseline",
        order::RMS_CHAIN128,
        "cuda_row.cu",
        &[],
        Kernel::Row
    ),
    cuda_variant!(
        "rms_norm",
        "cuda_row_registers512",
        "512 threads a row: row and weight stay in registers, chains are added out of shared memory",
        order::RMS_CHAIN128,
        "cuda_row_registers.cu",
        &[("THREADS", "512")],
        Kernel::RowRegisters(512)
    ),
    cuda_variant!(
        "rms_norm",
        "cuda_row_registers1024",
        "1024 threads a row: row and weight stay in registers, chains are added out of shared memory",
        order::RMS_CHAIN128,
        "cuda_row_registers.cu",
        &[("THREADS", "1024")],
        Kernel::RowRegisters(1024)
    ),
];

/// Whether a kernel takes rows of this length.
pub(crate) fn check(
    contract: &'static str,
    kernel: Kernel,
    variant: &str,
    problem: &Problem,
    hidden: usize,
) -> Result<(), PrepareError> {
    if matches!(kernel, Kernel::Row) || hidden.is_multiple_of(4) && hidden <= REGISTERS_HIDDEN {
        return Ok(());
    }
    let why = format!("a row in registers is a multiple of 4 up to {REGISTERS_HIDDEN}, not {hidden}");
    Err(shared::unsupported(contract, variant, problem, why))
}

/// The launch of a kernel with the given outputs: `x` rotates, the weight is fixed.
pub(crate) fn form_of(
    contract: &'static str,
    kernel: Kernel,
    entries: [&str; 2],
    (m, hidden, epsilon): (usize, usize, f32),
    inputs: &TensorSet,
    outputs: Vec<OutputForm>,
) -> Result<DeviceForm, PrepareError> {
    let x = input(contract, inputs, "x", DType::F32, m * hidden)?;
    let weight = input(contract, inputs, "weight", DType::F32, hidden)?;
    let (entry, threads, shared_bytes) = match kernel {
        Kernel::Row => (entries[0], CHAINS, 0),
        Kernel::RowRegisters(threads) => (entries[1], threads, hidden.next_multiple_of(CHAINS) * 4),
    };
    let mut args = vec![Arg::Rotating(0), Arg::Fixed(0)];
    args.extend((0..outputs.len()).map(Arg::Output));
    args.extend([Arg::U32(hidden as u32), Arg::F32(epsilon)]);
    Ok(DeviceForm {
        fixed: vec![weight.bytes.clone()],
        rotating: vec![x.bytes.clone()],
        outputs,
        launches: vec![device::launch(entry, [m, 1], threads, shared_bytes, args)],
        ..DeviceForm::default()
    })
}

/// One launch, a block of threads a row.
pub(super) fn form(kernel: Kernel, sizes: Sizes, inputs: &TensorSet) -> Result<DeviceForm, PrepareError> {
    let Sizes { m, hidden, epsilon } = sizes;
    let outputs = vec![device::output("out", DType::F32, &[m, hidden])];
    form_of(ID, kernel, ["rms_norm_row", "rms_norm_row_registers"], (m, hidden, epsilon), inputs, outputs)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The factor as the registers variant takes it: the row in quads of threads, lines of 128 in shared memory, a chain a
    /// thread, two sums a lane and a butterfly.
    fn factor_by_threads(row: &[f32], epsilon: f32, threads: usize) -> f32 {
        let hidden = row.len();
        let lines = hidden.div_ceil(CHAINS);
        let mut shared = vec![f32::NAN; lines * CHAINS];
        for thread in 0..threads {
            for i in 0..REGISTERS_HIDDEN / 4 / threads {
                let quad = thread + i * threads;
                if quad < lines * CHAINS / 4 {
                    for e in 0..4 {
                        shared[quad * 4 + e] = if quad < hidden / 4 { row[quad * 4 + e] } else { 0.0 };
                    }
                }
            }
        }
        let chains: Vec<f32> = (0..CHAINS)
            .map(|thread| {
                (0..lines).map(|line| shared[line * CHAINS + thread]).fold(0.0_f32, |chain, v| v.mul_add(v, chain))
            })
            .collect();
        let mut lanes: [f32; 32] =
            std::array::from_fn(|l| (chains[l] + chains[l + 64]) + (chains[l + 32] + chains[l + 96]));
        for distance in [16, 8, 4, 2, 1] {
            let before = lanes;
            for (lane, value) in lanes.iter_mut().enumerate() {
                *value = before[lane] + before[lane ^ distance];
            }
        }
        assert!(lanes.iter().all(|lane| lane.to_bits() == lanes[0].to_bits()));
        1.0 / (lanes[0] / hidden as f32 + epsilon).sqrt()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn threads_own_the_chains_of_the_order_class(quads in 1_usize..=REGISTERS_HIDDEN / 4, seed: u64) {
            let stream = crate::input::Stream::new(seed, "x");
            let row: Vec<f32> = (0..quads as u64 * 4).map(|i| stream.normal(i)).collect();
            let wanted = order::rms_factor(&row, 1e-6);
            for threads in [512, 1024] {
                prop_assert_eq!(factor_by_threads(&row, 1e-6, threads).to_bits(), wanted.to_bits());
            }
        }
    }

    #[test]
    fn rows_that_registers_do_not_hold_are_named() {
        let problem: Problem = "m=1,hidden=7".parse().unwrap();
        for hidden in [7, REGISTERS_HIDDEN + 4] {
            let error = check(ID, Kernel::RowRegisters(512), "v", &problem, hidden).unwrap_err().to_string();
            assert!(error.contains(&format!("up to 20480, not {hidden}")), "{error}");
            assert!(check(ID, Kernel::Row, "v", &problem, hidden).is_ok());
        }
    }
}
