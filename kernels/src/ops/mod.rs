//! The contracts, one folder each.

pub mod argmax;
pub mod attention;
pub(crate) mod device;
pub mod embed;
pub mod empty;
pub mod matmul;
pub mod matrix_peak;
pub mod quantise;
pub mod rms_norm;
pub mod rms_norm_quantise;
pub mod rope_append;
pub mod sample;
pub(crate) mod shared;
pub mod stream;
pub mod swiglu;
pub mod swiglu_quantise;

use memra_contract::{DType, Tensor, TensorSet};

use crate::contract::{Contract, PrepareError};

/// Every contract, in the order they are listed.
pub static CONTRACTS: &[&dyn Contract] = &[
    &quantise::Quantise,
    &matmul::Matmul,
    &rms_norm::RmsNorm,
    &rms_norm_quantise::RmsNormQuantise,
    &rope_append::RopeAppend,
    &attention::Attention,
    &swiglu::Swiglu,
    &swiglu_quantise::SwigluQuantise,
    &embed::Embed,
    &argmax::Argmax,
    &sample::Sample,
    &stream::Stream,
    &empty::Empty,
    &matrix_peak::MatrixPeak,
];

/// An input tensor of the expected type and size.
pub(crate) fn input<'a>(
    contract: &'static str,
    inputs: &'a TensorSet,
    name: &str,
    dtype: DType,
    elements: usize,
) -> Result<&'a Tensor, PrepareError> {
    let refuse = |why: String| PrepareError::Input { contract, tensor: name.to_owned(), why };
    let tensor = inputs.get(name).ok_or_else(|| refuse("is missing".to_owned()))?;
    if tensor.dtype != dtype || tensor.bytes.len() != elements * dtype.bytes() {
        return Err(refuse(format!(
            "holds {} bytes of {}, and {elements} elements of {dtype} are needed",
            tensor.bytes.len(),
            tensor.dtype
        )));
    }
    Ok(tensor)
}
