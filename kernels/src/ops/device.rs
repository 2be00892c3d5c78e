//! What the CUDA variants of several contracts share: the entry of a variant, refusals, outputs and grids.

use memra_contract::order::QUANT_BLOCK;
use memra_contract::{DType, Problem};

use super::shared;
use crate::contract::{PrepareError, Target, Variant};
use crate::form::{Arg, LaunchForm, OutputForm};

/// A CUDA variant with what only its contract knows of it.
#[derive(Debug)]
pub(crate) struct CudaVariant<K: 'static> {
    /// What every contract knows.
    pub(crate) listed: Variant,
    /// Which entry is launched, and how.
    pub(crate) kernel: K,
}

/// An entry of a list of CUDA variants: contract folder, name, summary, order class, file, definitions, kernel.
macro_rules! cuda_variant {
    ($folder:literal, $name:literal, $summary:literal, $class:expr, $file:literal, $defines:expr, $kernel:expr) => {
        $crate::ops::device::CudaVariant {
            listed: $crate::contract::Variant {
                name: $name,
                summary: $summary,
                target: $crate::contract::Target::Cuda($crate::contract::CudaBuild {
                    archs: &memra_contract::device::CudaArch::ALL,
                    defines: $defines,
                }),
                layout: "stored",
                order_class: $class,
                rows: (1, 4096),
                source: $crate::contract::Source {
                    path: concat!("kernels/src/ops/", $folder, "/", $file),
                    text: include_str!($file),
                },
            },
            kernel: $kernel,
        }
    };
}
pub(crate) use cuda_variant;

/// The kernel of a variant, if the variant is in the list.
pub(crate) fn kernel_of<K: Copy>(list: &'static [CudaVariant<K>], variant: &Variant) -> Option<K> {
    list.iter().find(|entry| entry.listed.name == variant.name).map(|entry| entry.kernel)
}

/// Refuses a variant that runs on a card.
pub(crate) fn refuse_on_host(contract: &'static str, variant: &Variant, problem: &Problem) -> Result<(), PrepareError> {
    if matches!(variant.target, Target::Host(_)) {
        return Ok(());
    }
    let why = "it runs on a CUDA device, not on the host".to_owned();
    Err(shared::unsupported(contract, variant.name, problem, why))
}

/// An output of a contract.
pub(crate) fn output(name: &str, dtype: DType, shape: &[usize]) -> OutputForm {
    OutputForm { name: name.to_owned(), dtype, shape: shape.to_vec() }
}

/// Int8 planes of `m` rows of `k` as outputs.
pub(crate) fn planes(m: usize, k: usize) -> Vec<OutputForm> {
    let blocks = [m, k / QUANT_BLOCK];
    vec![
        output("quants", DType::I8, &[m, k]),
        output("scales", DType::F32, &blocks),
        output("sums", DType::I16, &blocks),
    ]
}

/// A launch on one axis of threads.
pub(crate) fn launch(entry: &str, grid: [usize; 2], threads: usize, shared_bytes: usize, args: Vec<Arg>) -> LaunchForm {
    LaunchForm {
        entry: entry.to_owned(),
        grid: [grid[0] as u32, grid[1] as u32, 1],
        block: [threads as u32, 1, 1],
        shared_bytes: shared_bytes as u32,
        args,
        persistent: None,
    }
}

/// The three planes, as arguments.
pub(crate) const PLANES: [Arg; 3] = [Arg::Output(0), Arg::Output(1), Arg::Output(2)];

#[cfg(test)]
#[path = "device_tests.rs"]
mod tests;
