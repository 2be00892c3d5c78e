//! Element types and block formats, with the numbers GGUF gives them.

use std::fmt;

/// The type of one element of a plain tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// The upper half of a binary32.
    Bf16,
    /// Signed byte.
    I8,
    /// Signed 16-bit integer.
    I16,
    /// Signed 32-bit integer.
    I32,
    /// Raw bytes of a block format, or of anything else that is not a plain array.
    U8,
}

impl DType {
    /// Size of one element in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::Bf16 | Self::I16 => 2,
            Self::I8 | Self::U8 => 1,
        }
    }

    /// Lower-case name, as it stands in receipts.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::U8 => "u8",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How the elements of a stored tensor are packed: `block_elems` elements take `block_bytes` bytes.
///
/// The list is the GGUF type table (`ggml_type`); plain types are blocks of one element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockFormat {
    /// The number GGUF stores for this type; `None` for what only other files hold.
    pub gguf_id: Option<u32>,
    /// Lower-case name, as it stands in problems, receipts and messages.
    pub name: &'static str,
    /// Elements in one block, always along the contiguous axis.
    pub block_elems: u64,
    /// Bytes in one block.
    pub block_bytes: u64,
}

impl BlockFormat {
    /// IEEE binary32.
    pub const F32: Self = Self::new(0, "f32", 1, 4);
    /// IEEE binary16.
    pub const F16: Self = Self::new(1, "f16", 1, 2);
    /// 32 signed nibbles with an f16 scale: `d` at byte 0, quants at 2, as in [`Self::Q4_1`].
    pub const Q4_0: Self = Self::new(2, "q4_0", 32, 18);
    /// 32 unsigned nibbles with an f16 scale and an f16 minimum: `d` at byte 0, `m` at 2, quants at 4; byte `j` holds element
    /// `j` in its low and `j + 16` in its high nibble.
    pub const Q4_1: Self = Self::new(3, "q4_1", 32, 20);
    /// 32 signed five-bit quants with an f16 scale: `d` at byte 0, fifth bits at 2, nibbles at 6.
    pub const Q5_0: Self = Self::new(6, "q5_0", 32, 22);
    /// 32 unsigned five-bit quants with an f16 scale and an f16 minimum: `d` at byte 0, `m` at 2, fifth bits at 4, nibbles at 8.
    pub const Q5_1: Self = Self::new(7, "q5_1", 32, 24);
    /// 32 signed bytes with one f16 scale: `d` at byte 0, quants at byte 2.
    pub const Q8_0: Self = Self::new(8, "q8_0", 32, 34);

    /// 256 unsigned nibbles, a six-bit scale and a six-bit minimum for 32: `d` at byte 0, `dmin` at 2, both packed at 4, quants
    /// at 16.
    pub const Q4_K: Self = Self::new(12, "q4_k", 256, 144);
    /// 256 unsigned five-bit quants, scales and minima as in [`Self::Q4_K`]: fifth bits at byte 16, nibbles at 48.
    pub const Q5_K: Self = Self::new(13, "q5_k", 256, 176);
    /// 256 signed six-bit quants, one i8 scale for 16: low nibbles at byte 0, high pairs of bits at 128, scales at 192, `d` at 208.
    pub const Q6_K: Self = Self::new(14, "q6_k", 256, 210);
    /// 256 magnitudes from a grid of 512 fours with signs, one scale for 32: `d` at byte 0, low bits of grid places at 2, their
    /// ninth bits at 66, signs at 74, scales at 106.
    pub const IQ3_S: Self = Self::new(21, "iq3_s", 256, 110);
    /// 256 places in a table of sixteen, one six-bit scale for 32: `d` at byte 0, high bits of the scales at 2, low at 4, places
    /// at 8.
    pub const IQ4_XS: Self = Self::new(23, "iq4_xs", 256, 136);
    /// The upper half of a binary32.
    pub const BF16: Self = Self::new(30, "bf16", 1, 2);
    /// 64 E2M1 values, one unsigned E4M3 scale for 16: scales at byte 0, values at 4; a scale for the whole weight lies beside it.
    pub const NVFP4: Self = Self::new(40, "nvfp4", 64, 36);
    /// OCP E4M3 without infinities; one scale for 128 rows by 128 elements lies beside the weight. Not in GGUF files.
    pub const F8_E4M3: Self = Self { gguf_id: None, name: "f8_e4m3", block_elems: 1, block_bytes: 1 };

    const fn new(gguf_id: u32, name: &'static str, block_elems: u64, block_bytes: u64) -> Self {
        Self { gguf_id: Some(gguf_id), name, block_elems, block_bytes }
    }

    /// Every format a GGUF file may name, by GGUF number.
    pub const ALL: &'static [Self] = &[
        Self::F32,
        Self::F16,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::new(9, "q8_1", 32, 36),
        Self::new(10, "q2_k", 256, 84),
        Self::new(11, "q3_k", 256, 110),
        Self::Q4_K,
        Self::Q5_K,
        Self::Q6_K,
        Self::new(15, "q8_k", 256, 292),
        Self::new(16, "iq2_xxs", 256, 66),
        Self::new(17, "iq2_xs", 256, 74),
        Self::new(18, "iq3_xxs", 256, 98),
        Self::new(19, "iq1_s", 256, 50),
        Self::new(20, "iq4_nl", 32, 18),
        Self::IQ3_S,
        Self::new(22, "iq2_s", 256, 82),
        Self::IQ4_XS,
        Self::new(24, "i8", 1, 1),
        Self::new(25, "i16", 1, 2),
        Self::new(26, "i32", 1, 4),
        Self::new(27, "i64", 1, 8),
        Self::new(28, "f64", 1, 8),
        Self::new(29, "iq1_m", 256, 56),
        Self::BF16,
        Self::new(34, "tq1_0", 256, 54),
        Self::new(35, "tq2_0", 256, 66),
        Self::new(39, "mxfp4", 32, 17),
        Self::NVFP4,
        Self::new(41, "q1_0", 128, 18),
        Self::new(42, "q2_0", 64, 18),
    ];

    /// What is stored in other files than GGUF.
    pub const BEYOND_GGUF: &'static [Self] = &[Self::F8_E4M3];

    /// The format GGUF calls `id`, if there is one.
    pub fn from_gguf_id(id: u32) -> Option<Self> {
        Self::ALL.iter().copied().find(|f| f.gguf_id == Some(id))
    }

    /// The format of this lower-case name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().chain(Self::BEYOND_GGUF).copied().find(|f| f.name == name)
    }

    /// Bytes of `elems` elements; `None` where `elems` is no whole number of blocks or the size overflows.
    pub fn bytes_of(self, elems: u64) -> Option<u64> {
        if !elems.is_multiple_of(self.block_elems) {
            return None;
        }
        (elems / self.block_elems).checked_mul(self.block_bytes)
    }
}

impl fmt::Display for BlockFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_names_are_unique_and_round_trip() {
        for f in BlockFormat::ALL {
            assert_eq!(f.gguf_id.and_then(BlockFormat::from_gguf_id), Some(*f));
            assert_eq!(BlockFormat::from_name(f.name), Some(*f));
        }
        for f in BlockFormat::BEYOND_GGUF {
            assert_eq!((f.gguf_id, BlockFormat::from_name(f.name)), (None, Some(*f)));
        }
    }

    #[test]
    fn partial_blocks_and_overflow_have_no_size() {
        assert_eq!(BlockFormat::Q8_0.bytes_of(64), Some(68));
        assert_eq!(BlockFormat::Q8_0.bytes_of(33), None);
        assert_eq!(BlockFormat::F32.bytes_of(u64::MAX), None);
    }
}
