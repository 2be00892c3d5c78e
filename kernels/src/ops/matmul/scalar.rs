//! Baselines: the order classes in plain loops over stored weights.

use std::ops::Range;

use half::f16;
use memra_contract::order::{self, QUANT_BLOCK};
use memra_contract::weights::unpack_row;

use super::layout::PackedSegment;
use super::row::{ActivationRow, dot};
use super::variants::Operands;
use crate::backend::host::Part;

/// Q8_0 weights, int8 activations.
pub(super) fn q8(operands: &Operands<'_>, weight: &PackedSegment, rows: Range<usize>, out: &mut Part<'_, f32>) {
    let (k, blocks) = (operands.k, operands.k / QUANT_BLOCK);
    let row_bytes = weight.segment.row_bytes(k);
    for (column, row) in rows.enumerate() {
        let stored = &weight.bytes.as_slice()[row * row_bytes..][..row_bytes];
        for m in 0..operands.m {
            let quants = &operands.planes.quants[m * k..][..k];
            let scales = &operands.planes.scales[m * blocks..][..blocks];
            let mut chains = [0.0_f32; 8];
            for (b, block) in stored.chunks_exact(34).enumerate() {
                let scale = f16::from_le_bytes([block[0], block[1]]).to_f32() * scales[b];
                let x = &quants[b * QUANT_BLOCK..][..QUANT_BLOCK];
                let isum: i32 = block[2..].iter().zip(x).map(|(w, x)| i32::from(w.cast_signed()) * i32::from(*x)).sum();
                chains[b % 8] = (isum as f32).mul_add(scale, chains[b % 8]);
            }
            out.row(m)[column] = order::pair_tree(chains);
        }
    }
}

/// Q4_1 weights, int8 activations.
pub(super) fn q4_1(operands: &Operands<'_>, weight: &PackedSegment, rows: Range<usize>, out: &mut Part<'_, f32>) {
    let (k, blocks) = (operands.k, operands.k / QUANT_BLOCK);
    let row_bytes = weight.segment.row_bytes(k);
    for (column, row) in rows.enumerate() {
        let stored = &weight.bytes.as_slice()[row * row_bytes..][..row_bytes];
        for m in 0..operands.m {
            let quants = &operands.planes.quants[m * k..][..k];
            let scales = &operands.planes.scales[m * blocks..][..blocks];
            let sums = &operands.planes.sums[m * blocks..][..blocks];
            let mut chains = [0.0_f32; 8];
            for (b, block) in stored.chunks_exact(20).enumerate() {
                let scale = f16::from_le_bytes([block[0], block[1]]).to_f32() * scales[b];
                let minimum = f16::from_le_bytes([block[2], block[3]]).to_f32();
                let (low, high) = quants[b * QUANT_BLOCK..][..QUANT_BLOCK].split_at(QUANT_BLOCK / 2);
                let isum: i32 = block[4..]
                    .iter()
                    .zip(low.iter().zip(high))
                    .map(|(w, (x, y))| i32::from(w & 15) * i32::from(*x) + i32::from(w >> 4) * i32::from(*y))
                    .sum();
                let chain = (isum as f32).mul_add(scale, chains[b % 8]);
                chains[b % 8] = minimum.mul_add(f32::from(sums[b]) * scales[b], chain);
            }
            out.row(m)[column] = order::pair_tree(chains);
        }
    }
}

/// f32 weights, f32 activations.
pub(super) fn f32(operands: &Operands<'_>, weight: &PackedSegment, rows: Range<usize>, out: &mut Part<'_, f32>) {
    let k = operands.k;
    let weights: &[f32] = bytemuck::cast_slice(weight.bytes.as_slice());
    for (column, row) in rows.enumerate() {
        let w = &weights[row * k..][..k];
        for m in 0..operands.m {
            out.row(m)[column] = order::dot_f32(w, &operands.floats[m * k..][..k], None);
        }
    }
}

/// Weights of any format: a row is unpacked once for all rows of the activation.
pub(super) fn unpacked(operands: &Operands<'_>, weight: &PackedSegment, rows: Range<usize>, out: &mut Part<'_, f32>) {
    let PackedSegment { segment, k, outer, .. } = weight;
    let row_bytes = segment.row_bytes(*k);
    for (column, row) in rows.enumerate() {
        let unpacked = unpack_row(segment.format, &weight.bytes.as_slice()[row * row_bytes..][..row_bytes]);
        let outer = segment.row_scales(*k, outer, row);
        for m in 0..operands.m {
            let activation = ActivationRow::new(*k, operands.floats, operands.planes.quants, operands.planes.scales, m);
            out.row(m)[column] = dot(segment.format, &unpacked, outer, activation, None);
        }
    }
}
