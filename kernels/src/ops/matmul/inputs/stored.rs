//! Stored weights of every format.

use half::{bf16, f16};
use memra_contract::BlockFormat;
use memra_contract::order::QUANT_BLOCK;
use memra_contract::weights::{UnpackedRow, f32_to_e4m3, unpack_row};

use super::super::problem::{Segment, is_float};
use super::Family;
use crate::input::Stream;
use crate::parallel;
use crate::vector::avx2_loops::on_vectors;

/// What scales beside a weight are multiplied with, so that values of f8_e4m3 and nvfp4 weights are about one.
pub(super) const OUTER_FACTOR: f32 = 0.25;

/// A part of a stored block.
#[derive(Debug, Clone, Copy)]
enum Field {
    /// The f16 scale, in ordinary families multiplied with a factor that makes values about one.
    Scale(f32),
    /// The f16 minimum, in ordinary families a multiple of the scale between `.0` and `.0 + .1`.
    Minimum(f32, f32),
    /// Bytes of which any are valid: quants, their high bits, six-bit scales.
    Payload(u64),
    /// i8 scales.
    SubScales(u64),
    /// Unsigned E4M3 scales.
    Micro(u64),
}

use Field::{Micro, Minimum, Payload, Scale, SubScales};

/// The fields of a block in stored order; empty for formats of single elements.
///
/// Scales are of the size that trained weights have: a K block has `d` of about a thousandth and six-bit scales over their
/// whole range.
fn fields(format: BlockFormat) -> &'static [Field] {
    match format {
        BlockFormat::Q8_0 => &[Scale(1.0), Payload(32)],
        BlockFormat::Q4_0 => &[Scale(8.0), Payload(16)],
        BlockFormat::Q5_0 => &[Scale(4.0), Payload(20)],
        BlockFormat::Q4_1 => &[Scale(1.0), Minimum(-9.0, 3.0), Payload(16)],
        BlockFormat::Q5_1 => &[Scale(4.0), Minimum(-18.0, 6.0), Payload(20)],
        BlockFormat::Q4_K => &[Scale(0.125), Minimum(6.0, 3.0), Payload(140)],
        BlockFormat::Q5_K => &[Scale(0.0625), Minimum(12.0, 6.0), Payload(172)],
        BlockFormat::Q6_K => &[Payload(192), SubScales(16), Scale(0.015_625)],
        BlockFormat::IQ4_XS => &[Scale(0.015_625), Payload(134)],
        BlockFormat::IQ3_S => &[Scale(0.0625), Payload(108)],
        BlockFormat::NVFP4 => &[Micro(4), Payload(32)],
        _ => &[],
    }
}

impl Field {
    fn bytes(self) -> u64 {
        match self {
            Scale(_) | Minimum(..) => 2,
            Payload(bytes) | SubScales(bytes) | Micro(bytes) => bytes,
        }
    }
}

/// A stored weight; made on all CPUs at once.
pub(super) fn bytes(family: Family, segment: Segment, k: usize, stream: Stream) -> Vec<u8> {
    let format = segment.format;
    let mut bytes = vec![0; segment.bytes(k)];
    match format {
        BlockFormat::F32 => elements(&mut bytes, |i| family.float(stream, i).to_le_bytes()),
        BlockFormat::F16 => elements(&mut bytes, |i| f16::from_f32(family.half_float(stream, i)).to_le_bytes()),
        BlockFormat::BF16 => elements(&mut bytes, |i| bf16::from_f32(family.float(stream, i)).to_le_bytes()),
        BlockFormat::F8_E4M3 => elements(&mut bytes, |i| [e4m3(family, stream, i)]),
        BlockFormat::Q8_0 => q8_0(family, &mut bytes, stream),
        _ => blocks(family, fields(format), format.block_bytes as usize, &mut bytes, stream),
    }
    bytes
}

/// Fills with elements of so many bytes by their number.
fn elements<const N: usize>(bytes: &mut [u8], element: impl Fn(u64) -> [u8; N] + Sync) {
    parallel::fill(bytes, N, &|first, part| {
        for (i, place) in (first as u64..).zip(part.as_chunks_mut::<N>().0) {
            *place = element(i);
        }
    });
}

fn q8_0(family: Family, bytes: &mut [u8], stream: Stream) {
    let scales = Stream::new(stream.bits(0), "scale");
    parallel::fill(bytes, 34, &|first, part| {
        for (block, place) in (first as u64..).zip(part.as_chunks_mut::<34>().0) {
            let (scale, quants) = place.split_at_mut(2);
            scale.copy_from_slice(&family.scale(scales, block).to_le_bytes());
            fill_quants(family, stream, block * QUANT_BLOCK as u64, quants);
        }
    });
}

on_vectors!(fn fill_quants(family: Family, stream: Stream, first: u64, quants: &mut [u8]) = quants_from);

/// Quants by number.
#[inline(always)]
fn quants_from(family: Family, stream: Stream, first: u64, quants: &mut [u8]) {
    if family == Family::Normal {
        // Apart, so that the other families do not keep it from being vectors.
        for (i, quant) in quants.iter_mut().enumerate() {
            *quant = Family::Normal.quant(stream, first + i as u64).cast_unsigned();
        }
        return;
    }
    for (i, quant) in (first..).zip(quants) {
        *quant = family.quant(stream, i).cast_unsigned();
    }
}

fn blocks(family: Family, fields: &[Field], block_bytes: usize, bytes: &mut [u8], stream: Stream) {
    parallel::fill(bytes, block_bytes, &|first, part| {
        for (block, place) in (first as u64..).zip(part.chunks_exact_mut(block_bytes)) {
            fill_block(family, fields, block, place, stream);
        }
    });
}

/// Fills a field by the number of each byte.
fn each(place: &mut [u8], first: u64, byte: impl Fn(u64) -> u8) {
    for (i, place) in (first..).zip(place) {
        *place = byte(i);
    }
}

fn fill_block(family: Family, fields: &[Field], block: u64, mut bytes: &mut [u8], stream: Stream) {
    let part = |name| Stream::new(stream.bits(0), name);
    let (scales, minima, subs, micros) = (part("scale"), part("minimum"), part("sub_scale"), part("micro_scale"));
    let is_ordinary = matches!(family, Family::Normal | Family::Uniform);
    let has_minimum = fields.iter().any(|field| matches!(field, Minimum(..)));
    let scaled = |factor: f32| match family {
        Family::Normal | Family::Uniform | Family::Extremes => {
            f16::from_f32(family.scale(scales, block).to_f32() * factor)
        }
        _ => family.scale(scales, block),
    };
    let mut scale = f16::ZERO;
    for field in fields {
        let (place, rest) = std::mem::take(&mut bytes).split_at_mut(field.bytes() as usize);
        bytes = rest;
        let first = block * field.bytes();
        match *field {
            Scale(factor) => {
                scale = scaled(factor);
                place.copy_from_slice(&scale.to_le_bytes());
            }
            Minimum(low, range) => {
                // A block of trained weights reaches to both sides of zero.
                let minimum = if is_ordinary {
                    f16::from_f32(scale.to_f32() * (low + range * minima.unit(block)))
                } else {
                    family.scale(minima, block + 1)
                };
                place.copy_from_slice(&minimum.to_le_bytes());
            }
            Payload(_) => each(place, first, |i| match family {
                Family::Extremes => [0x00, 0xFF, 0xF0, 0x0F][(stream.bits(i / 5) % 4) as usize],
                // Quants of one sign and size, so that the signs of scales decide.
                Family::Cancel if !has_minimum => 0xCC | stream.bits(i) as u8 & 0x11,
                _ => stream.bits(i) as u8,
            }),
            SubScales(_) => each(place, first, |i| match family {
                Family::Extremes => [0x80, 0x7F, 0x81][(subs.bits(i / 3) % 3) as usize],
                Family::Cancel => [100, 0x9C][(i / 2 % 2) as usize] ^ (subs.bits(i) as u8 & 1),
                _ => subs.bits(i) as u8,
            }),
            Micro(_) => each(place, first, |i| match family {
                Family::Normal => 0x28 + (micros.bits(i) % 24) as u8,
                Family::Uniform => (micros.bits(i) % 0x7F) as u8,
                Family::Extremes => [0x7E, 0x01, 0x00, 0x7F][(micros.bits(i / 3) % 4) as usize],
                Family::Cancel => 0x38 + (micros.bits(i) % 3) as u8,
                Family::Spike if i.is_multiple_of(16) => 0x7E,
                Family::Spike => 0x01,
                Family::Zeros => 0x00,
            }),
        }
    }
}

/// An f8_e4m3 weight; its blocks reach the largest code, as quantisers make them.
fn e4m3(family: Family, stream: Stream, i: u64) -> u8 {
    match family {
        Family::Normal => f32_to_e4m3(stream.normal(i) * 100.0),
        Family::Uniform => f32_to_e4m3(stream.plus_minus_one(i) * 448.0),
        Family::Extremes => [0x7E, 0xFE, 0x01][(stream.bits(i / 5) % 3) as usize],
        Family::Cancel => f32_to_e4m3([400.0, -400.0][(i / 3 % 2) as usize] + 40.0 * stream.plus_minus_one(i)),
        Family::Spike if i.is_multiple_of(61) => 0x7E,
        Family::Spike => (stream.bits(i) % 8) as u8,
        Family::Zeros => (stream.bits(i) % 2 * 0x80) as u8,
    }
}

/// Refuses a stored scale, minimum or element that is not finite; says where it is.
pub(super) fn check_finite(format: BlockFormat, k: usize, weights: &[u8]) -> Result<(), String> {
    if is_float(format) {
        let UnpackedRow::Floats(values) = unpack_row(format, weights) else { return Ok(()) };
        return match values.iter().position(|value| !value.is_finite()) {
            Some(i) => Err(format!("element {} of row {} is not finite", i % k, i / k)),
            None => Ok(()),
        };
    }
    let (row_blocks, mut at) = (k / format.block_elems as usize, 0);
    for field in fields(format) {
        let name = match field {
            Scale(_) => Some("scale"),
            Minimum(..) => Some("minimum"),
            _ => None,
        };
        if let Some(name) = name {
            for (block, bytes) in weights.chunks_exact(format.block_bytes as usize).enumerate() {
                let value = f16::from_le_bytes([bytes[at], bytes[at + 1]]);
                if !value.is_finite() {
                    let (row, block) = (block / row_blocks, block % row_blocks);
                    return Err(format!("the {name} of row {row}, block {block} is {value}"));
                }
            }
        }
        at += field.bytes() as usize;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::super::problem::FORMATS;
    use super::*;

    #[test]
    fn fields_fill_a_block_and_ordinary_values_are_about_one() {
        for format in FORMATS {
            let filled: u64 = fields(*format).iter().map(|field| field.bytes()).sum();
            assert!(filled == format.block_bytes || is_float(*format), "{format}");
            let segment = Segment { format: *format, n: 4 };
            for family in [Family::Normal, Family::Uniform] {
                let stored = bytes(family, segment, 1024, Stream::new(3, "weight0"));
                assert_eq!(stored.len(), segment.bytes(1024), "{format}");
                let values = unpack_row(*format, &stored).values();
                let largest = values.iter().fold(0.0_f32, |a, v| a.max(v.abs()));
                // f8_e4m3 and nvfp4 lack the scales beside the weight.
                let bound = if segment.outer_scales(1024) > 0 { 3000.0 } else { 20.0 };
                assert!(0.05 < largest && largest < bound, "{format}: {largest}");
                assert!(values.iter().any(|v| *v < 0.0) && values.iter().any(|v| *v > 0.0), "{format}");
                assert_eq!(check_finite(*format, 1024, &stored), Ok(()));
            }
        }
    }

    #[test]
    fn what_is_not_finite_is_named() {
        let mut stored = vec![0; 4 * 210];
        stored[3 * 210 + 208..].copy_from_slice(&f16::INFINITY.to_le_bytes());
        let refused = check_finite(BlockFormat::Q6_K, 512, &stored);
        assert_eq!(refused, Err("the scale of row 1, block 1 is inf".to_owned()));
        let mut stored = vec![0; 144];
        stored[2..4].copy_from_slice(&f16::NAN.to_le_bytes());
        assert!(check_finite(BlockFormat::Q4_K, 256, &stored).is_err_and(|why| why.contains("minimum of row 0")));
        let mut stored = vec![0; 64];
        stored[33] = 0xFF;
        let refused = check_finite(BlockFormat::F8_E4M3, 32, &stored);
        assert_eq!(refused, Err("element 1 of row 1 is not finite".to_owned()));
    }
}
