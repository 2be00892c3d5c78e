//! The baseline: the order class, head by head.

use half::f16;
use memra_contract::order::{self, RotationKind};

pub(super) fn rotate(kind: RotationKind, table: &[f32], head_dim: usize, heads: &[f32], out: &mut [f32]) {
    for (head, out) in heads.chunks_exact(head_dim).zip(out.chunks_exact_mut(head_dim)) {
        order::rope_head(kind, table, head, out);
    }
}

pub(super) fn narrow(values: &[f32], out: &mut [f16]) {
    for (out, value) in out.iter_mut().zip(values) {
        *out = f16::from_f32(*value);
    }
}
