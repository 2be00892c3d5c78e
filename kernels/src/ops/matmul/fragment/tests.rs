//! The layouts read back as the device text reads them.

use half::f16;
use memra_contract::weights::{E2M1_DOUBLED, UnpackedRow, ue4m3_to_f32, unpack_row};
use proptest::prelude::*;

use super::*;

/// What a lane of the device sees of a block: four words of four codes for rows `g` and `g + 8`.
fn codes_of(fragment: &Fragment, unit: &[u8], i: usize, lane: usize) -> [[u8; 4]; 4] {
    let bytes = |at: usize| -> [u8; 4] { unit[at..at + 4].try_into().unwrap() };
    if fragment.format == BlockFormat::Q8_0 {
        return std::array::from_fn(|register| bytes(i * 512 + lane * 16 + 4 * register));
    }
    let word = |w: usize| bytes(i / 2 * 512 + lane * 16 + i % 2 * 8 + 4 * w);
    std::array::from_fn(|register| {
        let stored = word(register / 2);
        let mut codes: [u8; 4] = if matches!(fragment.format, BlockFormat::IQ4_XS | BlockFormat::NVFP4) {
            let half = &stored[2 * (register % 2)..][..2];
            std::array::from_fn(|e| half[e / 2] >> (4 * (e % 2)) & 15)
        } else {
            stored.map(|byte| if register % 2 == 0 { byte & 15 } else { byte >> 4 })
        };
        match fragment.format {
            BlockFormat::Q5_0 | BlockFormat::Q5_1 | BlockFormat::Q5_K => {
                let high = bytes(1024 + lane * 8 + i / 2 * 4);
                for (code, high) in codes.iter_mut().zip(high) {
                    *code |= (high >> (4 * (i % 2) + register) & 1) << 4;
                }
            }
            BlockFormat::Q6_K => {
                let high = bytes(1024 + lane * 16 + i * 4);
                for (code, high) in codes.iter_mut().zip(high) {
                    *code |= (high >> (2 * register) & 3) << 4;
                }
            }
            _ => {}
        }
        codes
    })
}

/// Scale and minimum of rows `g` and `g + 8` as the lane that keeps them computes them; for halves the second scale stands in the
/// place of the minimum.
fn scales_of(fragment: &Fragment, unit: &[u8], shared: &[u8], lane: usize, upper: usize) -> (f32, f32) {
    let half = |bytes: &[u8], at: usize| f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32();
    match fragment.format {
        BlockFormat::Q8_0 => (half(unit, 2048 + lane * 4 + 2 * upper), 0.0),
        BlockFormat::Q4_0 => (half(unit, 1024 + lane * 4 + 2 * upper), 0.0),
        BlockFormat::Q5_0 => (half(unit, 1280 + lane * 4 + 2 * upper), 0.0),
        BlockFormat::Q4_1 => (half(unit, 1024 + lane * 8 + 2 * upper), half(unit, 1024 + lane * 8 + 4 + 2 * upper)),
        BlockFormat::Q5_1 => (half(unit, 1280 + lane * 8 + 2 * upper), half(unit, 1280 + lane * 8 + 4 + 2 * upper)),
        BlockFormat::Q4_K | BlockFormat::Q5_K => {
            let at = if fragment.format == BlockFormat::Q5_K { 1280 } else { 1024 };
            let packed = u32::from(unit[at + 2 * lane])
                | u32::from(unit[at + 2 * lane + 1]) << 8
                | u32::from(unit[at + 64 + lane]) << 16;
            let packed = packed >> (12 * upper);
            let (d, m) = (half(shared, lane * 8 + 4 * upper), half(shared, lane * 8 + 4 * upper + 2));
            (d * (packed & 63) as f32, -(m * (packed >> 6 & 63) as f32))
        }
        BlockFormat::Q6_K => (half(shared, lane * 4 + 2 * upper), 0.0),
        BlockFormat::IQ4_XS => {
            let low = unit[1024 + lane] >> (4 * upper) & 15;
            let high = unit[1056 + lane / 2] >> (4 * (lane % 2)) >> (2 * upper) & 3;
            (half(shared, lane * 4 + 2 * upper) * (f32::from(low | high << 4) - 32.0), 0.0)
        }
        _ => {
            let at = 1024 + lane * 4 + 2 * upper;
            (ue4m3_to_f32(unit[at]) * 0.5, ue4m3_to_f32(unit[at + 1]) * 0.5)
        }
    }
}

/// The row `n` of a packed weight, as the order class speaks of it.
fn row_of(fragment: &Fragment, k: usize, packed: &[u8], n: usize) -> UnpackedRow {
    const CODEBOOK: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
    let units = Fragment::units(k);
    let tile = &packed[n / TILE * fragment.tile_bytes(k)..][..fragment.tile_bytes(k)];
    let (g, upper) = (n % TILE % 8, n % TILE / 8);
    let (mut codes, mut scales, mut minima, mut subs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for block in 0..k / 32 {
        let (chain, unit, i) = (block % 8, block / 8 / 4, block / 8 % 4);
        let shared = &tile[unit * fragment.shared_bytes..][..fragment.shared_bytes];
        let at = units * fragment.shared_bytes + (chain * units + unit) * fragment.unit_bytes;
        let unit = &tile[at..at + fragment.unit_bytes];
        let mut of_block = [0; 32];
        for t in 0..4 {
            let words = codes_of(fragment, unit, i, 4 * g + t);
            for (word, bytes) in [words[upper], words[2 + upper]].iter().enumerate() {
                for (byte, code) in bytes.iter().enumerate() {
                    of_block[fragment.element(t, word, byte)] = *code;
                }
            }
        }
        codes.extend(of_block);
        let lane = 4 * g + i;
        let (scale, minimum) = scales_of(fragment, unit, shared, lane, upper);
        scales.push(scale);
        minima.push(minimum);
        if fragment.format == BlockFormat::Q6_K {
            subs.extend(unit[1536 + lane * 4 + 2 * upper..][..2].iter().map(|b| b.cast_signed()));
        }
    }
    let signed = |map: &dyn Fn(u8) -> i8| codes.iter().map(|code| map(*code)).collect::<Vec<_>>();
    match fragment.format {
        BlockFormat::Q8_0 => UnpackedRow::Scaled { quants: signed(&u8::cast_signed), scales },
        BlockFormat::Q4_0 => UnpackedRow::Scaled { quants: signed(&|c| c.cast_signed() - 8), scales },
        BlockFormat::Q5_0 => UnpackedRow::Scaled { quants: signed(&|c| c.cast_signed() - 16), scales },
        BlockFormat::IQ4_XS => UnpackedRow::Scaled { quants: signed(&|c| CODEBOOK[usize::from(c)]), scales },
        BlockFormat::Q6_K => UnpackedRow::Sub16 { quants: signed(&|c| c.cast_signed() - 32), sub_scales: subs, scales },
        BlockFormat::NVFP4 => {
            let scales = scales.into_iter().zip(minima).flat_map(|(a, b)| [a, b]).collect();
            UnpackedRow::Micro16 { quants: signed(&|c| E2M1_DOUBLED[usize::from(c)]), scales }
        }
        _ => UnpackedRow::Min { quants: codes, scales, minima },
    }
}

/// Bits of everything in a row, so that not-a-number scales of random bytes compare.
fn bits(row: &UnpackedRow) -> String {
    let floats = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    match row {
        UnpackedRow::Min { quants, scales, minima } => format!("{quants:?} {:?} {:?}", floats(scales), floats(minima)),
        UnpackedRow::Sub16 { quants, sub_scales, scales } => format!("{quants:?} {sub_scales:?} {:?}", floats(scales)),
        UnpackedRow::Scaled { quants, scales } | UnpackedRow::Micro16 { quants, scales } => {
            format!("{quants:?} {:?}", floats(scales))
        }
        UnpackedRow::Floats(values) => format!("{:?}", floats(values)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn every_row_reads_back(n in 1_usize..40, super_blocks in 1_usize..6, seed: u64) {
        let k = super_blocks * 256;
        for fragment in FRAGMENTS {
            let segment = Segment { format: fragment.format, n };
            let stream = crate::input::Stream::new(seed, fragment.define);
            // Finite halves: the top exponent bit is clear wherever a scale may stand.
            let stored: Vec<u8> = (0..segment.bytes(k) as u64).map(|i| stream.bits(i) as u8 & 0xBF).collect();
            let packed = fragment.pack(segment, k, &stored);
            for (row, stored) in stored.chunks_exact(segment.row_bytes(k)).enumerate() {
                let read = row_of(fragment, k, &packed, row);
                prop_assert_eq!(bits(&read), bits(&unpack_row(fragment.format, stored)), "{} row {}", fragment.format, row);
            }
        }
    }

    #[test]
    fn every_float_stands_once_in_its_place(n in 1_usize..40, blocks in 1_usize..20) {
        let k = blocks * 32;
        for format in [BlockFormat::F16, BlockFormat::BF16, BlockFormat::F8_E4M3] {
            let (segment, size) = (Segment { format, n }, format.block_bytes as usize);
            let stored: Vec<u8> = (0..segment.bytes(k)).map(|i| (i * 7 + i / 251) as u8).collect();
            let packed = pack_float(segment, k, &stored);
            let unit = float_unit(format);
            let units = k.div_ceil(unit);
            for row in 0..n {
                let (tile, g, upper) = (row / TILE, row % TILE % 8, row % TILE / 8);
                for e in 0..k {
                    // Lane t has a run of a quarter of the unit; step s of it is elements 4 s.. 4 s + 4: two words of two.
                    let (t, run) = (e % unit / (unit / 4), e % unit % (unit / 4));
                    let (step, word, byte) = (run / 4, run % 4 / 2, run % 2);
                    let place = if size == 1 { step / 2 * 512 + step % 2 * 8 } else { step * 512 };
                    let at = (tile * units + e / unit) * FLOAT_UNIT_BYTES + (4 * g + t) * 16 + place;
                    let at = at + ((2 * word + upper) * 2 + byte) * size;
                    prop_assert_eq!(&packed[at..at + size], &stored[(row * k + e) * size..][..size]);
                }
            }
        }
    }
}

#[test]
fn sizes_are_those_of_the_stored_format_where_units_are_full() {
    for fragment in FRAGMENTS {
        let segment = Segment { format: fragment.format, n: 32 };
        assert_eq!(2 * fragment.tile_bytes(4096), segment.bytes(4096), "{}", fragment.format);
    }
}
