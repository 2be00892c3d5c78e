//! The baseline: the order class, row by row.

use memra_contract::order;

use super::Operands;

pub(super) fn kernel(operands: &Operands<'_>, out: &mut [f32]) {
    let rows = operands.x.chunks_exact(operands.hidden).zip(out.chunks_exact_mut(operands.hidden));
    for (x, out) in rows {
        let factor = order::rms_factor(x, operands.epsilon);
        for ((out, x), w) in out.iter_mut().zip(x).zip(operands.weight) {
            *out = (x * factor) * w;
        }
    }
}
