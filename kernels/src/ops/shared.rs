//! What several contracts do in the same words: refusals, integer tensors and the split of a launch into tasks.

use memra_contract::{DType, Problem, ProblemError, Tensor};

use crate::backend::host::Pool;
use crate::contract::{InputError, PrepareError};

/// The variant is not one of the contract.
pub(crate) fn unregistered(contract: &'static str, variant: &str, problem: &Problem) -> PrepareError {
    unsupported(contract, variant, problem, "it is not registered".to_owned())
}

/// The variant does not serve the problem.
pub(crate) fn unsupported(contract: &'static str, variant: &str, problem: &Problem, why: String) -> PrepareError {
    PrepareError::Unsupported { contract, variant: variant.to_owned(), problem: problem.to_string(), why }
}

/// The contract has no such family.
pub(crate) fn no_family(contract: &'static str, family: &str, families: &[(&str, &str)]) -> InputError {
    InputError::Family {
        contract,
        family: family.to_owned(),
        known: families.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
    }
}

/// A size that must be whole blocks of 32.
pub(crate) fn whole_blocks(contract: &str, axis: &str, size: usize) -> Result<(), ProblemError> {
    if size.is_multiple_of(memra_contract::order::QUANT_BLOCK) {
        return Ok(());
    }
    Err(ProblemError::Value {
        contract: contract.to_owned(),
        axis: axis.to_owned(),
        value: size.to_string(),
        why: "it must be a multiple of 32".to_owned(),
    })
}

/// A tensor of 32-bit integers, given as unsigned.
pub(crate) fn integers(name: &str, shape: &[usize], values: &[u32]) -> Tensor {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Tensor { name: name.to_owned(), dtype: DType::I32, shape: shape.to_vec(), bytes }
}

/// The contents of a tensor of 32-bit integers.
pub(crate) fn to_integers(tensor: &Tensor) -> Vec<u32> {
    tensor.bytes.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect()
}

/// How many tasks a launch is cut into: one where the work is too little to wake a thread for, else about four a thread.
///
/// `work` and `least` count the same thing; a task gets about `least` of it or more.
pub(crate) fn tasks(pool: &Pool, work: usize, least: usize) -> usize {
    let threads = pool.threads();
    if threads == 1 { 1 } else { (threads * 4).min(work / least).max(1) }
}
