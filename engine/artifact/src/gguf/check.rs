//! Rules that reader and writer share.

use memra_contract::BlockFormat;

use super::error::Fault;
use super::limits::{MAX_DIMS, MAX_KEY_BYTES, MAX_TENSOR_NAME_BYTES, MAX_TENSOR_SIZE};
use super::value::Value;

/// A metadata key: 1 to 65535 bytes, no NUL.
pub(crate) fn key(key: &str) -> Result<(), Fault> {
    text(key, MAX_KEY_BYTES)
}

/// A tensor name: 1 to 63 bytes, no NUL.
pub(crate) fn tensor_name(name: &str) -> Result<(), Fault> {
    text(name, MAX_TENSOR_NAME_BYTES)
}

fn text(text: &str, limit: usize) -> Result<(), Fault> {
    if text.is_empty() {
        Err(Fault::Empty)
    } else if text.len() > limit {
        Err(Fault::TooLong { length: text.len() as u64, limit: limit as u64 })
    } else if text.contains('\0') {
        Err(Fault::ContainsNul)
    } else {
        Ok(())
    }
}

/// The value of `general.alignment`: a u32 and a power of two.
pub(crate) fn alignment(value: &Value) -> Result<u32, Fault> {
    match value {
        Value::U32(alignment) if alignment.is_power_of_two() => Ok(*alignment),
        Value::U32(alignment) => Err(Fault::AlignmentValue(*alignment)),
        other => Err(Fault::AlignmentType(other.value_type())),
    }
}

/// The number of dimensions: 0 (a single element) to 4.
pub(crate) fn dim_count(count: u64) -> Result<usize, Fault> {
    if count > MAX_DIMS as u64 { Err(Fault::TooManyDims(count)) } else { Ok(count as usize) }
}

/// One dimension: 1 to 2^63 - 1, and with the elements so far (`elems`) no more than that in all.
///
/// Returns the elements including this dimension.
pub(crate) fn dim(elems: u64, dim: u64) -> Result<u64, Fault> {
    if dim == 0 {
        return Err(Fault::ZeroDim);
    }
    elems.checked_mul(dim).filter(|product| *product <= MAX_TENSOR_SIZE).ok_or(Fault::TooManyElements)
}

/// Bytes of a tensor with rows of `row` elements and `elems` elements in all.
pub(crate) fn byte_len(format: BlockFormat, row: u64, elems: u64) -> Result<u64, Fault> {
    if !row.is_multiple_of(format.block_elems) {
        return Err(Fault::PartialBlock { row, format });
    }
    format.bytes_of(elems).filter(|bytes| *bytes <= MAX_TENSOR_SIZE).ok_or(Fault::SizeOverflow)
}

/// The next multiple of `alignment` (a power of two) at or after `position`; `None` on overflow.
pub(crate) fn align_up(position: u64, alignment: u32) -> Option<u64> {
    position.checked_next_multiple_of(u64::from(alignment))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_bounds() {
        assert_eq!(tensor_name(""), Err(Fault::Empty));
        assert_eq!(tensor_name(&"x".repeat(63)), Ok(()));
        assert_eq!(tensor_name(&"x".repeat(64)), Err(Fault::TooLong { length: 64, limit: 63 }));
        assert_eq!(key("a\0b"), Err(Fault::ContainsNul));
        assert_eq!(key(&"k".repeat(65_535)), Ok(()));
        assert_eq!(key(&"k".repeat(65_536)), Err(Fault::TooLong { length: 65_536, limit: 65_535 }));
    }

    #[test]
    fn the_product_of_dimensions_stays_below_two_to_the_63() {
        assert_eq!(dim(1, 0), Err(Fault::ZeroDim));
        assert_eq!(dim(1 << 31, 1 << 31), Ok(1 << 62));
        assert_eq!(dim(1 << 31, 1 << 32), Err(Fault::TooManyElements));
        assert_eq!(dim(1 << 32, 1 << 32), Err(Fault::TooManyElements));
        assert_eq!(dim(1, u64::MAX), Err(Fault::TooManyElements));
    }

    #[test]
    fn rows_are_whole_blocks() {
        let q8 = BlockFormat::Q8_0;
        assert_eq!(byte_len(q8, 32, 64), Ok(68));
        // 16 x 2 elements are one block's worth, but no row is.
        assert_eq!(byte_len(q8, 16, 32), Err(Fault::PartialBlock { row: 16, format: q8 }));
        assert_eq!(byte_len(BlockFormat::F32, 1 << 62, 1 << 62), Err(Fault::SizeOverflow));
    }

    #[test]
    fn alignment_rounds_up_and_overflows_to_none() {
        assert_eq!(align_up(0, 32), Some(0));
        assert_eq!(align_up(1, 32), Some(32));
        assert_eq!(align_up(64, 32), Some(64));
        assert_eq!(align_up(u64::MAX, 32), None);
    }
}
