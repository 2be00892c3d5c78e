//! The block formats, one function each.

use half::f16;

use super::UnpackedRow;
use super::float8::{E2M1_DOUBLED, ue4m3_to_f32};
use super::iq3_s_grid::IQ3_S_GRID;

/// The sixteen values of IQ4_XS.
pub const IQ4_VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Unpacks a block of `BYTES`: quants and scales are appended.
type Scaled<const BYTES: usize> = fn(&[u8; BYTES], &mut Vec<i8>, &mut Vec<f32>);

/// Unpacks a block of `BYTES`: quants, scales and minima are appended.
type WithMinima<const BYTES: usize> = fn(&[u8; BYTES], &mut Vec<u8>, &mut Vec<f32>, &mut Vec<f32>);

pub(super) fn scaled<const BYTES: usize>(row: &[u8], unpack: Scaled<BYTES>) -> UnpackedRow {
    let (mut quants, mut scales) = (Vec::with_capacity(row.len() * 3), Vec::with_capacity(row.len() / 12));
    for block in row.as_chunks::<BYTES>().0 {
        unpack(block, &mut quants, &mut scales);
    }
    UnpackedRow::Scaled { quants, scales }
}

pub(super) fn with_minima<const BYTES: usize>(row: &[u8], unpack: WithMinima<BYTES>) -> UnpackedRow {
    let (mut quants, mut scales) = (Vec::with_capacity(row.len() * 2), Vec::with_capacity(row.len() / 16));
    let mut minima = Vec::with_capacity(row.len() / 16);
    for block in row.as_chunks::<BYTES>().0 {
        unpack(block, &mut quants, &mut scales, &mut minima);
    }
    UnpackedRow::Min { quants, scales, minima }
}

fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Low nibbles, then high ones.
fn nibbles(bytes: &[u8]) -> impl Iterator<Item = u8> {
    bytes.iter().map(|b| b & 15).chain(bytes.iter().map(|b| b >> 4))
}

/// Nibbles with their fifth bits, bit `i` of a little-endian word for element `i`.
fn five_bits(high: &[u8], low: &[u8]) -> impl Iterator<Item = u8> {
    let high = u32::from_le_bytes([high[0], high[1], high[2], high[3]]);
    nibbles(low).enumerate().map(move |(i, q)| q | ((high >> i & 1) as u8) << 4)
}

pub(super) fn q8_0(block: &[u8; 34], quants: &mut Vec<i8>, scales: &mut Vec<f32>) {
    scales.push(half_at(block, 0));
    quants.extend(block[2..].iter().map(|q| q.cast_signed()));
}

pub(super) fn q4_0(block: &[u8; 18], quants: &mut Vec<i8>, scales: &mut Vec<f32>) {
    scales.push(half_at(block, 0));
    quants.extend(nibbles(&block[2..]).map(|q| q.cast_signed() - 8));
}

pub(super) fn q5_0(block: &[u8; 22], quants: &mut Vec<i8>, scales: &mut Vec<f32>) {
    scales.push(half_at(block, 0));
    quants.extend(five_bits(&block[2..6], &block[6..]).map(|q| q.cast_signed() - 16));
}

pub(super) fn q4_1(block: &[u8; 20], quants: &mut Vec<u8>, scales: &mut Vec<f32>, minima: &mut Vec<f32>) {
    scales.push(half_at(block, 0));
    minima.push(half_at(block, 2));
    quants.extend(nibbles(&block[4..]));
}

pub(super) fn q5_1(block: &[u8; 24], quants: &mut Vec<u8>, scales: &mut Vec<f32>, minima: &mut Vec<f32>) {
    scales.push(half_at(block, 0));
    minima.push(half_at(block, 2));
    quants.extend(five_bits(&block[4..8], &block[8..]));
}

/// The eight six-bit scales and minima of a K block: the first four of each in the low six bits of bytes 0..8, the others in
/// nibbles of bytes 8..12 under the top two bits of bytes 0..8.
fn k_scales(packed: &[u8], j: usize) -> (u8, u8) {
    if j < 4 {
        return (packed[j] & 63, packed[j + 4] & 63);
    }
    let both = packed[j + 4];
    (both & 15 | packed[j - 4] >> 6 << 4, both >> 4 | packed[j] >> 6 << 4)
}

/// Scales `d * sc` and minima `-(dmin * m)` of a K block.
fn k_header(block: &[u8], scales: &mut Vec<f32>, minima: &mut Vec<f32>) {
    let (d, dmin) = (half_at(block, 0), half_at(block, 2));
    for j in 0..8 {
        let (scale, minimum) = k_scales(&block[4..16], j);
        scales.push(d * f32::from(scale));
        minima.push(-(dmin * f32::from(minimum)));
    }
}

pub(super) fn q4_k(block: &[u8; 144], quants: &mut Vec<u8>, scales: &mut Vec<f32>, minima: &mut Vec<f32>) {
    k_header(block, scales, minima);
    for pair in block[16..].chunks_exact(32) {
        quants.extend(nibbles(pair));
    }
}

pub(super) fn q5_k(block: &[u8; 176], quants: &mut Vec<u8>, scales: &mut Vec<f32>, minima: &mut Vec<f32>) {
    k_header(block, scales, minima);
    let high = &block[16..48];
    for (p, pair) in block[48..].chunks_exact(32).enumerate() {
        quants.extend(nibbles(pair).enumerate().map(|(i, q)| q | (high[i % 32] >> (2 * p + i / 32) & 1) << 4));
    }
}

pub(super) fn q6_k(row: &[u8]) -> UnpackedRow {
    let (mut quants, mut sub_scales, mut scales) = (Vec::new(), Vec::new(), Vec::new());
    for block in row.as_chunks::<210>().0 {
        for (low, high) in block[..128].chunks_exact(64).zip(block[128..192].chunks_exact(32)) {
            quants.extend(nibbles(low).enumerate().map(|(i, q)| {
                let pair = high[i % 32] >> (i / 32 * 2) & 3;
                (q | pair << 4).cast_signed() - 32
            }));
        }
        sub_scales.extend(block[192..208].iter().map(|s| s.cast_signed()));
        scales.extend([half_at(block, 208); 8]);
    }
    UnpackedRow::Sub16 { quants, sub_scales, scales }
}

pub(super) fn iq4_xs(block: &[u8; 136], quants: &mut Vec<i8>, scales: &mut Vec<f32>) {
    let (d, high) = (half_at(block, 0), u16::from_le_bytes([block[2], block[3]]));
    for (b, places) in block[8..].chunks_exact(16).enumerate() {
        let low = block[4 + b / 2] >> (b % 2 * 4) & 15;
        let scale = low | ((high >> (2 * b) & 3) as u8) << 4;
        scales.push(d * f32::from(scale.cast_signed() - 32));
        quants.extend(nibbles(places).map(|place| IQ4_VALUES[usize::from(place)]));
    }
}

pub(super) fn iq3_s(block: &[u8; 110], quants: &mut Vec<i8>, scales: &mut Vec<f32>) {
    let d = half_at(block, 0);
    for b in 0..8 {
        let scale = block[106 + b / 2] >> (b % 2 * 4) & 15;
        scales.push(d * f32::from(1 + 2 * scale));
        let (low, ninth, signs) = (&block[2 + 8 * b..][..8], block[66 + b], &block[74 + 4 * b..][..4]);
        for (four, low) in low.iter().enumerate() {
            let place = usize::from(*low) | usize::from(ninth >> four & 1) << 8;
            let signs = signs[four / 2] >> (four % 2 * 4);
            let magnitudes = IQ3_S_GRID[place].to_le_bytes().into_iter().enumerate();
            quants
                .extend(magnitudes.map(|(j, q)| if signs >> j & 1 == 0 { q.cast_signed() } else { -q.cast_signed() }));
        }
    }
}

pub(super) fn nvfp4(row: &[u8]) -> UnpackedRow {
    let (mut quants, mut scales) = (Vec::with_capacity(row.len() * 2), Vec::with_capacity(row.len() / 9));
    for block in row.as_chunks::<36>().0 {
        scales.extend(block[..4].iter().map(|code| ue4m3_to_f32(*code) * 0.5));
        for group in block[4..].chunks_exact(8) {
            quants.extend(nibbles(group).map(|code| E2M1_DOUBLED[usize::from(code)]));
        }
    }
    UnpackedRow::Micro16 { quants, scales }
}
