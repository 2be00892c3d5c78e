//! Operands in the places that the matrix instructions take them from. A row or column of a step is 32 bytes for every type, so
//! one layout serves all.

use super::problem::{COLUMNS, Element, ROWS, TILE, TILES};

/// Bytes of a row or column of one step.
const LINE: usize = 32;
/// Bytes of a core matrix: eight lines of sixteen bytes.
const CORE: usize = 128;

/// A small whole number as the operand type has it, little-endian.
fn encode(element: Element, value: i8) -> ([u8; 2], usize) {
    match element {
        Element::Bf16 => (((f32::from(value).to_bits() >> 16) as u16).to_le_bytes(), 2),
        Element::F16 => (half::f16::from_f32(f32::from(value)).to_le_bytes(), 2),
        Element::Fp8 => ([e4m3(value), 0], 1),
        Element::Int8 => ([value.cast_unsigned(), 0], 1),
    }
}

/// A whole number of magnitude up to 16 in e4m3: sign, four bits of exponent with a bias of 7, three bits of fraction.
pub(super) fn e4m3(value: i8) -> u8 {
    let magnitude = value.unsigned_abs();
    if magnitude == 0 {
        return 0;
    }
    let exponent = magnitude.ilog2();
    // The fraction under the leading bit, in eighths.
    let fraction = (u32::from(magnitude) << 3 >> exponent) & 7;
    let sign = if value < 0 { 0x80 } else { 0 };
    sign | ((exponent + 7) << 3 | fraction) as u8
}

/// 32 bytes of values.
fn line(element: Element, values: impl Iterator<Item = i8>) -> [u8; LINE] {
    let mut line = [0; LINE];
    let mut at = 0;
    for value in values {
        let (bytes, size) = encode(element, value);
        line[at..at + size].copy_from_slice(&bytes[..size]);
        at += size;
    }
    line
}

/// Lines of the 64 rows of the input and of its 256 columns.
fn lines(element: Element, a: &[i8], b: &[i8]) -> (Vec<[u8; LINE]>, Vec<[u8; LINE]>) {
    let rows = a.chunks_exact(element.k()).map(|row| line(element, row.iter().copied())).collect();
    let columns = (0..COLUMNS).map(|column| line(element, b.iter().skip(column).step_by(COLUMNS).copied())).collect();
    (rows, columns)
}

/// Fragments of `mma.sync`: for each row tile and lane 16 bytes, then for each tile of eight columns and lane 8 bytes.
///
/// Lane `4 g + t` holds bytes `4 t` and `16 + 4 t` of rows `g` and `g + 8`, and of column `g`.
pub(super) fn fragments(element: Element, a: &[i8], b: &[i8]) -> Vec<u8> {
    let (rows, columns) = lines(element, a, b);
    let mut bytes = Vec::with_capacity((ROWS + COLUMNS) * LINE);
    for tile in rows.chunks_exact(TILE) {
        for (g, t) in lanes() {
            for (row, half) in [(g, 0), (g + 8, 0), (g, 16), (g + 8, 16)] {
                bytes.extend_from_slice(&tile[row][half + 4 * t..][..4]);
            }
        }
    }
    for tile in columns.chunks_exact(8) {
        for (g, t) in lanes() {
            for half in [0, 16] {
                bytes.extend_from_slice(&tile[g][half + 4 * t..][..4]);
            }
        }
    }
    bytes
}

fn lanes() -> impl Iterator<Item = (usize, usize)> {
    (0..32).map(|lane| (lane / 4, lane % 4))
}

/// Core matrices of `wgmma` without swizzle: four arrangements of the 64 rows, each with its tiles one turn on, then the columns.
pub(super) fn core_matrices(element: Element, a: &[i8], b: &[i8]) -> Vec<u8> {
    let (rows, columns) = lines(element, a, b);
    let mut bytes = Vec::with_capacity((TILES * ROWS + COLUMNS) * LINE);
    for turn in 0..TILES {
        let turned: Vec<_> = (0..ROWS).map(|row| rows[(row + turn * TILE) % ROWS]).collect();
        bytes.extend(cores(&turned));
    }
    bytes.extend(cores(&columns));
    bytes
}

/// Eight lines make two core matrices: their first sixteen bytes, then their last.
fn cores(lines: &[[u8; LINE]]) -> Vec<u8> {
    let mut bytes = vec![0; lines.len() * LINE];
    for (n, line) in lines.iter().enumerate() {
        for (half, part) in line.as_chunks::<16>().0.iter().enumerate() {
            bytes[(n / 8 * 2 + half) * CORE + n % 8 * 16..][..16].copy_from_slice(part);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What e4m3 bits mean, by their definition.
    fn decode(bits: u8) -> f64 {
        let sign = if bits & 0x80 == 0 { 1.0 } else { -1.0 };
        let (exponent, fraction) = (i32::from(bits >> 3 & 15), f64::from(bits & 7) / 8.0);
        sign * if exponent == 0 { fraction * 2_f64.powi(-6) } else { (1.0 + fraction) * 2_f64.powi(exponent - 7) }
    }

    #[test]
    fn eight_bit_floats_hold_small_whole_numbers() {
        for value in -16..=16_i8 {
            assert_eq!(decode(e4m3(value)), f64::from(value), "{value}");
        }
        assert_eq!((e4m3(1), e4m3(-3)), (0x38, 0xC4));
    }

    /// Products of the packed fragments, by the fragment layouts of the PTX manual read element by element.
    #[test]
    fn fragments_multiply_to_the_product() {
        let element = Element::Int8;
        let k = element.k();
        let a: Vec<i8> = (0..ROWS * k).map(|i| (i * 7 % 11) as i8 - 5).collect();
        let b: Vec<i8> = (0..COLUMNS * k).map(|i| (i * 5 % 13) as i8 - 6).collect();
        let bytes = fragments(element, &a, &b);
        assert_eq!(bytes.len(), (ROWS + COLUMNS) * LINE);
        // Element (row, k) of a 16 x 32 tile of bytes is byte k mod 4 of register 2 (k / 16) + row / 8 of lane
        // 4 (row mod 8) + k mod 16 / 4.
        let of_a = |tile: usize, row: usize, k: usize| {
            let lane = row % 8 * 4 + k % 16 / 4;
            bytes[(tile * 32 + lane) * 16 + (k / 16 * 2 + row / 8) * 4 + k % 4].cast_signed()
        };
        let of_b = |column: usize, k: usize| {
            let lane = column % 8 * 4 + k % 16 / 4;
            bytes[ROWS * LINE + (column / 8 * 32 + lane) * 8 + k / 16 * 4 + k % 4].cast_signed()
        };
        for i in 0..k {
            assert!((0..ROWS).all(|row| of_a(row / TILE, row % TILE, i) == a[row * k + i]));
            assert!((0..COLUMNS).all(|column| of_b(column, i) == b[i * COLUMNS + column]));
        }
    }

    #[test]
    fn core_matrices_turn_the_tiles() {
        for element in [Element::Bf16, Element::F16] {
            let k = element.k();
            let a: Vec<i8> = (0..ROWS * k).map(|i| (i % 16) as i8).collect();
            let b = vec![1_i8; COLUMNS * k];
            let bytes = core_matrices(element, &a, &b);
            assert_eq!(bytes.len(), (TILES * ROWS + COLUMNS) * LINE);
            for (turn, row, i) in [(0, 0, 0), (1, 17, 9), (3, 63, 15), (2, 8, 7)] {
                let at = turn * ROWS * LINE + (row / 8 * 2 + i / 8) * CORE + row % 8 * 16 + i % 8 * 2;
                let source = (row + turn * TILE) % ROWS;
                let (wanted, _) = encode(element, a[source * k + i]);
                assert_eq!(bytes[at..at + 2], wanted, "{turn} {row} {i}");
            }
        }
    }
}
