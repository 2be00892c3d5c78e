//! RMS norm and quantisation on a card.

use memra_contract::TensorSet;
use memra_contract::order;

use super::{ID, Sizes};
use crate::contract::PrepareError;
use crate::form::DeviceForm;
use crate::ops::device::{self, CudaVariant, cuda_variant};
use crate::ops::rms_norm::cuda::{Kernel, form_of};

/// The variants, baseline first.
pub(super) static VARIANTS: &[CudaVariant<Kernel>] = &[
    cuda_variant!(
        "rms_norm_quantise",
        "cuda_row",
        "128 threads a row, one chain each; the row is read again to be quantised; the CUDA baseline",
        order::RMS_CHAIN128_QUANTISE_BLOCK32,
        "cuda_row.cu",
        &[],
        Kernel::Row
    ),
    cuda_variant!(
        "rms_norm_quantise",
        "cuda_row_registers512",
        "512 threads a row: row and weight stay in registers, chains are added out of shared memory",
        order::RMS_CHAIN128_QUANTISE_BLOCK32,
        "cuda_row_registers.cu",
        &[("THREADS", "512")],
        Kernel::RowRegisters(512)
    ),
    cuda_variant!(
        "rms_norm_quantise",
        "cuda_row_registers1024",
        "1024 threads a row: row and weight stay in registers, chains are added out of shared memory",
        order::RMS_CHAIN128_QUANTISE_BLOCK32,
        "cuda_row_registers.cu",
        &[("THREADS", "1024")],
        Kernel::RowRegisters(1024)
    ),
];

/// One launch, a block of threads a row.
pub(super) fn form(kernel: Kernel, sizes: Sizes, inputs: &TensorSet) -> Result<DeviceForm, PrepareError> {
    let Sizes { m, hidden, epsilon } = sizes;
    let entries = ["rms_norm_quantise_row", "rms_norm_quantise_row_registers"];
    form_of(ID, kernel, entries, (m, hidden, epsilon), inputs, device::planes(m, hidden))
}
