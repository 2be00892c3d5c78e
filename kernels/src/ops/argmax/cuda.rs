//! Argmax on a card.

use memra_contract::order;
use memra_contract::{DType, TensorSet};

use super::{ID, Sizes};
use crate::contract::PrepareError;
use crate::form::{Arg, DeviceForm};
use crate::ops::device::{self, CudaVariant, cuda_variant};
use crate::ops::input;

#[derive(Debug, Clone, Copy)]
pub(super) enum Kernel {
    /// A block of threads a row.
    Row,
    /// A row in pieces of so many elements; the block that ends last writes the index.
    Pieces(usize),
}

/// The variants, baseline first.
pub(super) static VARIANTS: &[CudaVariant<Kernel>] = &[
    cuda_variant!(
        "argmax",
        "cuda_row",
        "1024 threads a row, each in rising order of indices; the CUDA baseline",
        order::ARGMAX_LOWEST,
        "cuda.cu",
        &[],
        Kernel::Row
    ),
    cuda_variant!(
        "argmax",
        "cuda_pieces2048",
        "a row in pieces of 2048, merged by an integer maximum; the block that ends last writes the index",
        order::ARGMAX_LOWEST,
        "cuda.cu",
        &[("PIECE", "2048")],
        Kernel::Pieces(2048)
    ),
    cuda_variant!(
        "argmax",
        "cuda_pieces8192",
        "a row in pieces of 8192, merged by an integer maximum; the block that ends last writes the index",
        order::ARGMAX_LOWEST,
        "cuda.cu",
        &[("PIECE", "8192")],
        Kernel::Pieces(8192)
    ),
];

/// `logits` rotate; every variant is one launch. Keys and counts of pieces are zero between launches.
pub(super) fn form(kernel: Kernel, sizes: Sizes, inputs: &TensorSet) -> Result<DeviceForm, PrepareError> {
    let Sizes { m, n } = sizes;
    let logits = input(ID, inputs, "logits", DType::F32, m * n)?;
    let (input, out, length) = (Arg::Rotating(0), Arg::Output(0), Arg::U32(n as u32));
    let (launch, scratch) = match kernel {
        Kernel::Row => (device::launch("argmax_row", [m, 1], 1024, 0, vec![input, out, length]), vec![]),
        Kernel::Pieces(piece) => {
            let args = vec![input, out, Arg::Scratch(0), Arg::Scratch(1), length];
            (device::launch("argmax_pieces", [n.div_ceil(piece), m], 256, 0, args), vec![m * 8, m * 4])
        }
    };
    Ok(DeviceForm {
        rotating: vec![logits.bytes.clone()],
        outputs: vec![device::output("out", DType::I32, &[m])],
        scratch,
        launches: vec![launch],
        ..DeviceForm::default()
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The key of a value at an index, as the text makes it.
    fn key(value: f32, index: u32) -> u64 {
        let bits = value.to_bits();
        let rank = if bits & 0x7fff_ffff > 0x7f80_0000 {
            return 0;
        } else if bits == 0x8000_0000 || bits >> 31 == 0 {
            bits | 0x8000_0000
        } else {
            !bits
        };
        u64::from(rank) << 32 | u64::from(!index)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn the_largest_key_is_the_order_class(
            values in prop::collection::vec(
                prop_oneof![
                    any::<u32>().prop_map(f32::from_bits),
                    prop::sample::select(vec![f32::NAN, f32::NEG_INFINITY, f32::INFINITY, -0.0, 0.0, -1.0, 1.0]),
                ],
                1..200,
            ),
        ) {
            let keys = values.iter().enumerate().map(|(i, value)| key(*value, i as u32));
            let largest = keys.max().unwrap_or_default();
            let index = if largest == 0 { 0 } else { !(largest as u32) };
            prop_assert_eq!(index, order::argmax(&values));
        }
    }
}
