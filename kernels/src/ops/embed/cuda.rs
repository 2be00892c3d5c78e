//! Rows of the embedding on a card.

use memra_contract::order;
use memra_contract::{BlockFormat, DType, TensorSet};

use super::{ID, Sizes, tokens_of};
use crate::contract::PrepareError;
use crate::form::{Arg, DeviceForm};
use crate::ops::device::{self, CudaVariant, cuda_variant};
use crate::ops::input;

/// Threads of a block.
const THREADS: usize = 128;

/// The variants, baseline first.
pub(super) static VARIANTS: &[CudaVariant<()>] = &[cuda_variant!(
    "embed",
    "cuda_stored",
    "stored rows, a token over several blocks of threads, four elements a thread of q8_0; the CUDA baseline",
    order::DEQUANTISE_EXACT,
    "cuda.cu",
    &[],
    ()
)];

/// The weight rotates, the tokens are fixed; one launch.
pub(super) fn form(sizes: Sizes, inputs: &TensorSet) -> Result<DeviceForm, PrepareError> {
    let Sizes { m, hidden, segment } = sizes;
    tokens_of(sizes, inputs)?;
    let tokens = input(ID, inputs, "tokens", DType::I32, m)?;
    let stored = input(ID, inputs, "weight", DType::U8, segment.bytes(hidden))?;
    let (entry, count) =
        if segment.format == BlockFormat::F32 { ("embed_f32", hidden) } else { ("embed_q8_0", hidden / 4) };
    let args = vec![Arg::Fixed(0), Arg::Rotating(0), Arg::Output(0), Arg::U32(count as u32)];
    Ok(DeviceForm {
        fixed: vec![tokens.bytes.clone()],
        rotating: vec![stored.bytes.clone()],
        outputs: vec![device::output("out", DType::F32, &[m, hidden])],
        launches: vec![device::launch(entry, [count.div_ceil(THREADS), m], THREADS, 0, args)],
        ..DeviceForm::default()
    })
}
