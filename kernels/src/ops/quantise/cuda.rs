//! Quantisation on a card.

use memra_contract::order::{self, QUANT_BLOCK};
use memra_contract::{DType, TensorSet};

use super::{ID, Sizes};
use crate::contract::PrepareError;
use crate::form::{Arg, DeviceForm};
use crate::ops::device::{self, CudaVariant, cuda_variant};
use crate::ops::input;

/// Threads of a block of the variant that takes rows end to end.
const QUADS_THREADS: usize = 128;

#[derive(Debug, Clone, Copy)]
pub(super) enum Kernel {
    /// A block of threads a row.
    Row,
    /// Rows end to end, four elements a thread.
    Quads,
}

/// The variants, baseline first.
pub(super) static VARIANTS: &[CudaVariant<Kernel>] = &[
    cuda_variant!(
        "quantise",
        "cuda_row",
        "a block of threads a row, eight lanes a block of 32; the CUDA baseline",
        order::QUANTISE_BLOCK32,
        "cuda.cu",
        &[],
        Kernel::Row
    ),
    cuda_variant!(
        "quantise",
        "cuda_quads",
        "rows end to end over the whole card, four elements a thread, eight lanes a block of 32",
        order::QUANTISE_BLOCK32,
        "cuda.cu",
        &[],
        Kernel::Quads
    ),
];

/// `x` rotates; every variant is one launch.
pub(super) fn form(kernel: Kernel, sizes: Sizes, inputs: &TensorSet) -> Result<DeviceForm, PrepareError> {
    let Sizes { m, k } = sizes;
    let x = input(ID, inputs, "x", DType::F32, m * k)?;
    debug_assert!(k.is_multiple_of(QUANT_BLOCK));
    let quads = m * k / 4;
    let (entry, blocks, threads, count) = match kernel {
        Kernel::Row => ("quantise_row", m, 256, k / 4),
        Kernel::Quads => ("quantise_quads", quads.div_ceil(QUADS_THREADS), QUADS_THREADS, quads),
    };
    let mut args = vec![Arg::Rotating(0)];
    args.extend(device::PLANES);
    args.push(Arg::U32(count as u32));
    Ok(DeviceForm {
        rotating: vec![x.bytes.clone()],
        outputs: device::planes(m, k),
        launches: vec![device::launch(entry, [blocks, 1], threads, 0, args)],
        ..DeviceForm::default()
    })
}
