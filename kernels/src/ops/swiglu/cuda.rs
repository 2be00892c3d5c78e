//! The gated product on a card.

use memra_contract::order;
use memra_contract::{DType, Problem, TensorSet};

use super::{ID, Sizes};
use crate::contract::PrepareError;
use crate::form::{Arg, DeviceForm};
use crate::ops::device::{self, CudaVariant, cuda_variant};
use crate::ops::{input, shared};

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
        "swiglu",
        "cuda_row",
        "a block of threads a row, a column a thread; the CUDA baseline",
        order::SWIGLU,
        "cuda.cu",
        &[],
        Kernel::Row
    ),
    cuda_variant!(
        "swiglu",
        "cuda_quads",
        "four columns a thread over the whole card",
        order::SWIGLU,
        "cuda.cu",
        &[],
        Kernel::Quads
    ),
];

/// Whether a kernel takes rows of this length.
pub(super) fn check(kernel: Kernel, variant: &str, problem: &Problem, sizes: Sizes) -> Result<(), PrepareError> {
    if matches!(kernel, Kernel::Row) || sizes.ffn.is_multiple_of(4) {
        return Ok(());
    }
    let why = format!("four columns a thread need a multiple of 4, not {}", sizes.ffn);
    Err(shared::unsupported(ID, variant, problem, why))
}

/// `gate_up` rotates; every variant is one launch.
pub(super) fn form(kernel: Kernel, sizes: Sizes, inputs: &TensorSet) -> Result<DeviceForm, PrepareError> {
    let Sizes { m, ffn } = sizes;
    let gate_up = input(ID, inputs, "gate_up", DType::F32, m * 2 * ffn)?;
    let (entry, grid, threads, count) = match kernel {
        Kernel::Row => ("swiglu_row", [m, 1], 256, ffn),
        Kernel::Quads => ("swiglu_quads", [(ffn / 4).div_ceil(QUADS_THREADS), m], QUADS_THREADS, ffn / 4),
    };
    let args = vec![Arg::Rotating(0), Arg::Output(0), Arg::U32(count as u32)];
    Ok(DeviceForm {
        rotating: vec![gate_up.bytes.clone()],
        outputs: vec![device::output("out", DType::F32, &[m, ffn])],
        launches: vec![device::launch(entry, grid, threads, 0, args)],
        ..DeviceForm::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::header;

    #[test]
    fn the_header_has_the_constants_of_the_exponential() {
        let text = header("exp.cuh").unwrap().text;
        let mut wanted = vec![
            ("EXP_LOWEST".to_owned(), order::EXP_LOWEST),
            ("EXP_HIGHEST".to_owned(), order::EXP_HIGHEST),
            ("LOG2_E".to_owned(), std::f32::consts::LOG2_E),
            ("LN2_HIGH".to_owned(), order::LN2_HIGH),
            ("LN2_LOW".to_owned(), order::LN2_LOW),
        ];
        wanted.extend(order::EXP_COEFFICIENTS.iter().enumerate().map(|(i, c)| (format!("EXP_COEFFICIENT_{i}"), *c)));
        assert_eq!(text.matches("constexpr").count(), wanted.len());
        for (name, value) in &wanted {
            let line = format!("constexpr u32 {name} = 0x{:08x}u;\n", value.to_bits());
            assert!(text.contains(&line), "{line}");
        }
        // Every coefficient is used once, in falling order of powers.
        let uses: Vec<_> = text.split("__uint_as_float(EXP_COEFFICIENT_").skip(1).map(|rest| &rest[..1]).collect();
        assert_eq!(uses, ["0", "1", "2", "3", "4", "5"]);
        let flush = format!("constexpr u32 QUANT_FLUSH = 0x{:08x}u;\n", order::QUANT_FLUSH.to_bits());
        assert!(header("quantise_block.cuh").unwrap().text.contains(&flush));
    }
}
