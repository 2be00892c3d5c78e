//! Model files: GGUF reading, writing and synthesis.
//!
//! # What this room holds
//!
//! - [`GgufHeader`]: the checked metadata and tensor list of a GGUF file (versions 2 and 3, little-endian), parsed from
//!   a plain byte slice.
//! - [`GgufFile`]: one memory-mapped file, with a byte slice for each tensor.
//! - [`GgufModel`]: a model in one file or in split shards, opened from any of its shards.
//! - [`GgufWriter`]: a streaming writer of version 3 files, for tests and for synthetic artifacts.
//! - [`fuzzing`]: the body of the fuzz target, with small seed files, so that plain tests run it too.
//!
//! A file is untrusted input: every fault is an error that names the file, the byte offset and the field, and no
//! allocation is larger than a small multiple of the bytes that are there.
//!
//! # What it must not hold
//!
//! No CUDA, no kernels and no dequantisation: block bytes are handed out as they are stored. No model families either:
//! what a key or a tensor means to an architecture is the engine's affair. The only `unsafe` is the one mapping call.

pub mod fuzzing;
mod gguf;
mod mmap;

pub use gguf::array::Array;
pub use gguf::error::{Fault, GgufError};
pub use gguf::file::{GgufFile, Tensor};
pub use gguf::header::GgufHeader;
pub use gguf::limits::{DEFAULT_ALIGNMENT, MAX_DIMS, MAX_HEADER_BYTES, MAX_KEY_BYTES, MAX_TENSOR_NAME_BYTES};
pub use gguf::metadata::{Metadata, MetadataEntry};
pub use gguf::model::{GgufModel, ShardName};
pub use gguf::strings::StringArray;
pub use gguf::tensor::TensorInfo;
pub use gguf::value::{Value, ValueType};
pub use gguf::writer::{GgufBody, GgufWriter, WriteError};
