//! Why a model could not be loaded.

use memra_artifact::GgufError;
use memra_kernels::memory::MemoryError;
use memra_kernels::select::SelectError;

/// A model that cannot be loaded, with the thing that stands in the way.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file is not there, is no GGUF file, or a key is missing or of another type.
    #[error(transparent)]
    Artifact(#[from] GgufError),
    /// No family file for this architecture.
    #[error("{file}: architecture `{architecture}` is not supported; there is {known}")]
    Architecture {
        /// The model file.
        file: String,
        /// Value of `general.architecture`.
        architecture: String,
        /// What is supported.
        known: String,
    },
    /// A metadata value that this engine cannot serve.
    #[error("{file}: `{key}` is {value}: {why}")]
    Key {
        /// The model file.
        file: String,
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// What is wrong with it.
        why: String,
    },
    /// A tensor is missing, has another shape, or is of a format nothing serves.
    #[error("{file}: tensor `{tensor}` {why}")]
    Tensor {
        /// The model file.
        file: String,
        /// The tensor.
        tensor: String,
        /// What is wrong with it.
        why: String,
    },
    /// No variant serves a step.
    #[error("step `{step}`: {source}")]
    Select {
        /// The step.
        step: String,
        /// Why.
        source: SelectError,
    },
    /// A registered variant cannot take the place it was selected for.
    #[error("step `{step}`: {why}")]
    Step {
        /// The step.
        step: String,
        /// Why.
        why: String,
    },
    /// No memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// Threads could not be started.
    #[error("the worker threads could not be started: {0}")]
    Threads(std::io::Error),
    /// The tokenizer cannot be built.
    #[error("{file}: {why}")]
    Tokenizer {
        /// The model file.
        file: String,
        /// Why.
        why: String,
    },
}
