//! Stored weights as floats.

use half::f16;

use super::{OrderClass, QUANT_BLOCK};

/// One product per element, which is exact.
pub const DEQUANTISE_EXACT: OrderClass = OrderClass {
    id: "dequantise_exact",
    text: "q8_0: f32(scale) * f32(quant), which is exact because eleven bits times eight fit a float; f32: as stored",
};

/// [`DEQUANTISE_EXACT`] for one block of `q8_0`.
pub fn dequantise_q8_0(scale: f16, quants: &[i8; QUANT_BLOCK]) -> [f32; QUANT_BLOCK] {
    let scale = scale.to_f32();
    quants.map(|quant| scale * f32::from(quant))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_product_is_exact() {
        for bits in (0..0x7c00_u16).step_by(7) {
            for scale in [f16::from_bits(bits), f16::from_bits(bits | 0x8000)] {
                let quants = std::array::from_fn(|i| (i as i16 * 8 - 128) as i8);
                for (value, quant) in dequantise_q8_0(scale, &quants).iter().zip(quants) {
                    assert_eq!(f64::from(*value), scale.to_f64() * f64::from(quant));
                }
            }
        }
    }
}
