//! The baseline: the order class, column by column.

use memra_contract::order;

pub(super) fn kernel(gate: &[f32], up: &[f32], out: &mut [f32]) {
    for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
        *out = order::swiglu(*gate, *up);
    }
}
