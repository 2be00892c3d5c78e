//! Stored rows of weights, unpacked into the integers and exact scales that order classes speak of.
//!
//! Layouts and formulas are those of the GGUF block formats. Every scale here is exact in f32: a binary16 times a small
//! integer has at most seventeen significant bits.

mod blocks;
mod float8;
mod iq3_s_grid;

pub use blocks::IQ4_VALUES;
pub use float8::{E2M1_DOUBLED, e4m3_to_f32, f32_to_e4m3, ue4m3_to_f32};
pub use iq3_s_grid::IQ3_S_GRID;

use crate::format::BlockFormat;

/// A stored row, unpacked. Element `i` of the row has place `i`.
#[derive(Debug, Clone, PartialEq)]
pub enum UnpackedRow {
    /// `value = scale * quant`: q8_0, q4_0, q5_0, iq4_xs and iq3_s.
    Scaled {
        /// Signed quants.
        quants: Vec<i8>,
        /// One for 32.
        scales: Vec<f32>,
    },
    /// `value = scale * quant + minimum`: q4_1, q5_1, q4_k and q5_k.
    Min {
        /// Unsigned quants of four or five bits.
        quants: Vec<u8>,
        /// One for 32.
        scales: Vec<f32>,
        /// One for 32.
        minima: Vec<f32>,
    },
    /// `value = scale * sub_scale * quant`: q6_k.
    Sub16 {
        /// Quants in -32..=31.
        quants: Vec<i8>,
        /// One for 16.
        sub_scales: Vec<i8>,
        /// One for 32; the same for all 256 of a stored block.
        scales: Vec<f32>,
    },
    /// `value = scale * quant`, times the outer scale that is stored beside the weight: nvfp4.
    Micro16 {
        /// Doubled E2M1 values, integers in -12..=12.
        quants: Vec<i8>,
        /// One for 16, halved, because the quants are doubled.
        scales: Vec<f32>,
    },
    /// The values: f32, f16 and bf16; f8_e4m3 without the block scales that are stored beside the weight.
    Floats(Vec<f32>),
}

/// The formats that [`unpack_row`] unpacks.
pub const UNPACKED: &[BlockFormat] = &[
    BlockFormat::F32,
    BlockFormat::F16,
    BlockFormat::BF16,
    BlockFormat::F8_E4M3,
    BlockFormat::Q8_0,
    BlockFormat::Q4_0,
    BlockFormat::Q4_1,
    BlockFormat::Q5_0,
    BlockFormat::Q5_1,
    BlockFormat::Q4_K,
    BlockFormat::Q5_K,
    BlockFormat::Q6_K,
    BlockFormat::IQ4_XS,
    BlockFormat::IQ3_S,
    BlockFormat::NVFP4,
];

/// Unpacks a stored row: any bytes, a whole number of blocks of them.
///
/// # Panics
/// When the format is not in [`UNPACKED`].
pub fn unpack_row(format: BlockFormat, row: &[u8]) -> UnpackedRow {
    debug_assert!(row.len().is_multiple_of(format.block_bytes as usize), "a row is whole blocks of {format}");
    match format {
        BlockFormat::F32 => UnpackedRow::Floats(row.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()),
        BlockFormat::F16 => {
            UnpackedRow::Floats(row.as_chunks().0.iter().map(|b| half::f16::from_le_bytes(*b).to_f32()).collect())
        }
        BlockFormat::BF16 => {
            UnpackedRow::Floats(row.as_chunks().0.iter().map(|b| half::bf16::from_le_bytes(*b).to_f32()).collect())
        }
        BlockFormat::F8_E4M3 => UnpackedRow::Floats(row.iter().map(|b| e4m3_to_f32(*b)).collect()),
        BlockFormat::Q8_0 => blocks::scaled(row, blocks::q8_0),
        BlockFormat::Q4_0 => blocks::scaled(row, blocks::q4_0),
        BlockFormat::Q5_0 => blocks::scaled(row, blocks::q5_0),
        BlockFormat::IQ4_XS => blocks::scaled(row, blocks::iq4_xs),
        BlockFormat::IQ3_S => blocks::scaled(row, blocks::iq3_s),
        BlockFormat::Q4_1 => blocks::with_minima(row, blocks::q4_1),
        BlockFormat::Q5_1 => blocks::with_minima(row, blocks::q5_1),
        BlockFormat::Q4_K => blocks::with_minima(row, blocks::q4_k),
        BlockFormat::Q5_K => blocks::with_minima(row, blocks::q5_k),
        BlockFormat::Q6_K => blocks::q6_k(row),
        BlockFormat::NVFP4 => blocks::nvfp4(row),
        _ => panic!("rows of {format} are not unpacked"),
    }
}

impl UnpackedRow {
    /// The values in f32, without a scale that is stored beside the weight. A product of scale and quant rounds once, the
    /// sum with a minimum once more.
    pub fn values(&self) -> Vec<f32> {
        match self {
            Self::Scaled { quants, scales } => {
                quants.iter().enumerate().map(|(i, q)| scales[i / 32] * f32::from(*q)).collect()
            }
            Self::Min { quants, scales, minima } => {
                quants.iter().enumerate().map(|(i, q)| scales[i / 32] * f32::from(*q) + minima[i / 32]).collect()
            }
            Self::Sub16 { quants, sub_scales, scales } => {
                let scale = |i: usize| scales[i / 32] * f32::from(sub_scales[i / 16]);
                quants.iter().enumerate().map(|(i, q)| scale(i) * f32::from(*q)).collect()
            }
            Self::Micro16 { quants, scales } => {
                quants.iter().enumerate().map(|(i, q)| scales[i / 16] * f32::from(*q)).collect()
            }
            Self::Floats(values) => values.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_unpacked_whole(format in 0..UNPACKED.len(), blocks in 0_usize..5, fill in any::<[u8; 32]>()) {
            let format = UNPACKED[format];
            let block = format.block_elems.next_multiple_of(32);
            let bytes = format.bytes_of(block).unwrap_or_default() as usize;
            let row: Vec<u8> = (0..blocks * bytes).map(|i| fill[i % 32].wrapping_mul(i as u8 | 1)).collect();
            let elements = blocks * block as usize;
            let row = unpack_row(format, &row);
            prop_assert_eq!(row.values().len(), elements);
            match row {
                UnpackedRow::Scaled { quants, scales } => {
                    prop_assert_eq!((quants.len(), scales.len()), (elements, elements / 32));
                }
                UnpackedRow::Min { quants, scales, minima } => {
                    prop_assert_eq!((scales.len(), minima.len()), (elements / 32, elements / 32));
                    prop_assert!(quants.iter().all(|q| *q < 32));
                }
                UnpackedRow::Sub16 { quants, sub_scales, scales } => {
                    prop_assert_eq!((scales.len(), sub_scales.len()), (elements / 32, elements / 16));
                    prop_assert!(quants.iter().all(|q| (-32..32).contains(q)));
                }
                UnpackedRow::Micro16 { quants, scales } => {
                    prop_assert_eq!(scales.len(), elements / 16);
                    prop_assert!(quants.iter().all(|q| q.abs() <= 12));
                    prop_assert!(scales.iter().all(|scale| scale.is_finite()));
                }
                UnpackedRow::Floats(_) => (),
            }
        }
    }

    #[test]
    #[should_panic(expected = "rows of q2_k are not unpacked")]
    fn other_formats_are_refused() {
        unpack_row(BlockFormat::from_name("q2_k").unwrap_or(BlockFormat::F32), &[0; 84]);
    }
}
