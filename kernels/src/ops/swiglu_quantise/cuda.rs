//! The gated product and its quantisation on a card.

use memra_contract::order;
use memra_contract::{DType, TensorSet};

use super::{ID, Sizes};
use crate::contract::PrepareError;
use crate::form::{Arg, DeviceForm};
use crate::ops::device::{self, CudaVariant, cuda_variant};
use crate::ops::input;

/// Threads of a block of the variant that spreads a row over the card.
const QUADS_THREADS: usize = 128;

#[derive(Debug, Clone, Copy)]
pub(super) enum Kernel {
    /// A block of threads a row.
    Row,
    /// Four columns a thread, a row over several blocks.
    Quads,
}

/// The variants, baseline first.
pub(super) static VARIANTS: &[CudaVariant<Kernel>] = &[
    cuda_variant!(
        "swiglu_quantise",
        "cuda_row",
        "a block of threads a row, eight lanes a block of 32; the CUDA baseline",
        order::SWIGLU_QUANTISE_BLOCK32,
        "cuda.cu",
        &[],
        Kernel::Row
    ),
    cuda_variant!(
        "swiglu_quantise",
        "cuda_quads",
        "four columns a thread over the whole card, eight lanes a block of 32",
        order::SWIGLU_QUANTISE_BLOCK32,
        "cuda.cu",
        &[],
        Kernel::Quads
    ),
];

/// `gate_up` rotates; every variant is one launch.
pub(super) fn form(kernel: Kernel, sizes: Sizes, inputs: &TensorSet) -> Result<DeviceForm, PrepareError> {
    let Sizes { m, ffn } = sizes;
    let gate_up = input(ID, inputs, "gate_up", DType::F32, m * 2 * ffn)?;
    let quads = ffn / 4;
    let (entry, grid, threads) = match kernel {
        Kernel::Row => ("swiglu_quantise_row", [m, 1], 256),
        Kernel::Quads => ("swiglu_quantise_quads", [quads.div_ceil(QUADS_THREADS), m], QUADS_THREADS),
    };
    let mut args = vec![Arg::Rotating(0)];
    args.extend(device::PLANES);
    args.push(Arg::U32(quads as u32));
    Ok(DeviceForm {
        rotating: vec![gate_up.bytes.clone()],
        outputs: device::planes(m, ffn),
        launches: vec![device::launch(entry, grid, threads, 0, args)],
        ..DeviceForm::default()
    })
}
