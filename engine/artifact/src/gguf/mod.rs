//! The GGUF container.
//!
//! Layout, all integers little-endian: magic `GGUF`, `u32` version, `u64` tensor count, `u64` metadata count, the
//! metadata, the tensor list, padding to the alignment, the data section. A string is a `u64` byte length and that many
//! bytes of UTF-8.

pub(crate) mod array;
mod check;
mod cursor;
pub(crate) mod error;
pub(crate) mod file;
pub(crate) mod header;
pub(crate) mod limits;
pub(crate) mod metadata;
pub(crate) mod model;
pub(crate) mod strings;
pub(crate) mod tensor;
pub(crate) mod value;
pub(crate) mod writer;
