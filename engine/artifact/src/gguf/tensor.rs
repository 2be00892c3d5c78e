//! One entry of the tensor list.

use std::ops::Range;

use memra_contract::BlockFormat;

use super::limits::MAX_DIMS;

/// Name, dimensions, format and place of one tensor. Made by the reader only, so it always keeps the checked rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    pub(crate) name: String,
    pub(crate) dim_count: u8,
    pub(crate) shape: [u64; MAX_DIMS],
    pub(crate) format: BlockFormat,
    pub(crate) offset: u64,
    pub(crate) data_start: u64,
    pub(crate) byte_len: u64,
}

impl TensorInfo {
    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The dimensions as stored, fastest first: a linear layer of `i` inputs and `o` outputs has `[i, o]`.
    ///
    /// A file may store a single element with no dimensions; the slice is then empty.
    pub fn dims(&self) -> &[u64] {
        &self.shape[..usize::from(self.dim_count)]
    }

    /// The dimensions, fastest first, with 1 for those that are not stored.
    pub fn shape(&self) -> [u64; MAX_DIMS] {
        self.shape
    }

    /// The number of elements, at least 1 and less than 2^63.
    pub fn elems(&self) -> u64 {
        self.shape.iter().product()
    }

    /// How the elements are packed.
    pub fn format(&self) -> BlockFormat {
        self.format
    }

    /// Bytes from the start of the data section to the tensor.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes that the tensor takes.
    pub fn byte_len(&self) -> u64 {
        self.byte_len
    }

    /// The tensor's bytes, counted from the start of its file; checked to lie inside the file.
    pub fn file_range(&self) -> Range<u64> {
        let start = self.data_start + self.offset;
        start..start + self.byte_len
    }
}
