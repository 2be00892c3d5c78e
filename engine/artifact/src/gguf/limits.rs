//! Bounds that a well-formed file keeps.

/// The four bytes that a file starts with.
pub(crate) const MAGIC: [u8; 4] = *b"GGUF";

/// The version that the writer writes.
pub(crate) const WRITTEN_VERSION: u32 = 3;

/// The metadata key that sets the alignment of the data section and of every tensor in it.
pub(crate) const ALIGNMENT_KEY: &str = "general.alignment";

/// Bytes to which tensors are aligned where `general.alignment` is absent.
pub const DEFAULT_ALIGNMENT: u32 = 32;

/// Most bytes that metadata and tensor list may take together, 256 MiB.
///
/// A vocabulary of a million entries with merges takes less than a fifth of it. The bound keeps a damaged count in a
/// large file from making the reader copy the weights.
pub const MAX_HEADER_BYTES: u64 = 256 << 20;

/// Most bytes in a metadata key.
pub const MAX_KEY_BYTES: usize = 65_535;

/// Most bytes in a tensor name (63: other readers keep names in 64 bytes with a closing NUL).
pub const MAX_TENSOR_NAME_BYTES: usize = 63;

/// Most dimensions of a tensor.
pub const MAX_DIMS: usize = 4;

/// Most elements or bytes of a tensor: what a signed 64-bit number counts.
pub(crate) const MAX_TENSOR_SIZE: u64 = i64::MAX as u64;

/// Fewest bytes one metadata entry takes: key length, one byte of key, value type, one byte of value.
pub(crate) const MIN_METADATA_BYTES: u64 = 8 + 1 + 4 + 1;

/// Fewest bytes one tensor entry takes: name length, one byte of name, dimension count, type, offset.
pub(crate) const MIN_TENSOR_BYTES: u64 = 8 + 1 + 4 + 4 + 8;
