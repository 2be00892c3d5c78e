//! Floats of eight and four bits.

/// E2M1 codes times two: eight magnitudes, then the same with a sign.
pub const E2M1_DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// OCP E4M3 (the form without infinities) as f32, exact: bias 7, subnormals of 2^-9, largest value 448, NaN at 0x7f and
/// 0xff.
pub fn e4m3_to_f32(code: u8) -> f32 {
    let magnitude = if code & 0x7f == 0x7f { f32::NAN } else { magnitude(code) };
    if code & 0x80 == 0 { magnitude } else { -magnitude }
}

/// The unsigned E4M3 of NVFP4 scales as f32, exact: 0x7f is 0, and the top bit is not part of the number. (0xff, which no
/// quantiser writes, is 480, as in the `gguf` package.)
pub fn ue4m3_to_f32(code: u8) -> f32 {
    if code == 0x7f { 0.0 } else { magnitude(code) }
}

/// The value of exponent and mantissa.
fn magnitude(code: u8) -> f32 {
    let (exponent, mantissa) = (u32::from(code >> 3 & 15), u32::from(code & 7));
    if exponent == 0 {
        return mantissa as f32 / 512.0;
    }
    f32::from_bits((exponent + 120) << 23 | mantissa << 20)
}

/// The E4M3 code nearest to a finite f32, ties to the even code, clamped to 448.
pub fn f32_to_e4m3(value: f32) -> u8 {
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    let wanted = value.abs().min(448.0);
    // Codes ascend with their values.
    let (mut low, mut high) = (0_u8, 0x7e_u8);
    while high - low > 1 {
        let middle = low.midpoint(high);
        if magnitude(middle) <= wanted {
            low = middle;
        } else {
            high = middle;
        }
    }
    let (below, above) = (wanted - magnitude(low), magnitude(high) - wanted);
    let is_low = below < above || below == above && low.is_multiple_of(2);
    sign | if is_low { low } else { high }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_codes() {
        assert_eq!((e4m3_to_f32(0x7e), e4m3_to_f32(0xfe), e4m3_to_f32(0x38)), (448.0, -448.0, 1.0));
        assert_eq!((e4m3_to_f32(1), e4m3_to_f32(7), e4m3_to_f32(8)), (1.0 / 512.0, 7.0 / 512.0, 1.0 / 64.0));
        assert!(e4m3_to_f32(0x7f).is_nan() && e4m3_to_f32(0xff).is_nan());
        assert_eq!(e4m3_to_f32(0x80).to_bits(), (-0.0_f32).to_bits());
        assert_eq!((ue4m3_to_f32(0x7f), ue4m3_to_f32(0), ue4m3_to_f32(0xb8)), (0.0, 0.0, 1.0));
    }

    #[test]
    fn every_code_comes_back_and_ties_are_even() {
        for code in (0..=0x7e_u8).chain(0x80..=0xfe) {
            assert_eq!(f32_to_e4m3(e4m3_to_f32(code)), code);
        }
        assert_eq!((f32_to_e4m3(1e9), f32_to_e4m3(-1e9), f32_to_e4m3(1e-9)), (0x7e, 0xfe, 0));
        assert_eq!((f32_to_e4m3(1.0625), f32_to_e4m3(1.1875)), (0x38, 0x3a));
    }

    #[test]
    fn e2m1_is_doubled() {
        let values: Vec<f32> = E2M1_DOUBLED[..8].iter().map(|v| f32::from(*v) / 2.0).collect();
        assert_eq!(values, [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]);
    }
}
