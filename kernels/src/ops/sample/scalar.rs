//! The baseline: the order class as it stands.

use memra_contract::order::{self, RowParams};

use super::TaskScratch;

pub(super) fn kernel(logits: &[f32], params: &RowParams, _: &mut TaskScratch) -> u32 {
    order::sample(logits, params)
}
