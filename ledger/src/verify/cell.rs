//! A cell: its schedule, the gates of its arms, and the result its slots give.

use super::Checks;
use super::workload;
use crate::judge::{block_orders, block_quads, judge_cell, order_text};
use crate::record::{Arm, ArmKind, Block, Body, CellBody, GateBody, Record, SessionBody, Verdict};

/// Most quads a plan may declare; a file has no room for the slots of more.
pub(super) const MAX_PLAN_QUADS: usize = 65_536;

pub(super) fn check(cell: &CellBody, session: &SessionBody, earlier: &[Record], checks: &mut Checks<'_>) {
    check_plan(cell, session, earlier, checks);
    workload::check(cell, checks);
    check_arm("a", &cell.a, cell, earlier, checks);
    check_arm("b", &cell.b, cell, earlier, checks);
    if cell.a.gate.is_none() && !cell.aa.is_empty() {
        checks.field("aa", "was timed, but arm A has no passed gate");
    }
    if (cell.a.gate.is_none() || cell.b.gate.is_none()) && cell.ab.is_some() {
        checks.field("ab", "was timed, but an arm has no passed gate");
    }
    for (index, block) in cell.aa.iter().enumerate() {
        let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
        check_block(&format!("aa[{index}]"), block, number, cell, session, checks);
    }
    if let Some(block) = &cell.ab {
        check_block("ab", block, 0, cell, session, checks);
    }
    let computed = judge_cell(&cell.aa, cell.ab.as_ref(), &cell.plan, &cell.warm_up, session.plan.smallest_ppm);
    checks.result(&cell.result, &computed);
}

fn check_plan(cell: &CellBody, session: &SessionBody, earlier: &[Record], checks: &mut Checks<'_>) {
    if !session.plan.cells.contains(&cell.cell) {
        checks.field("cell", format!("`{}` is not in the plan of the session", cell.cell));
    }
    if cell.replicate >= session.plan.replicates {
        let planned = session.plan.replicates;
        checks.field("replicate", format!("is {}, but {planned} were planned", cell.replicate));
    }
    let (device, class) = (&cell.key.device_key, &session.rig.class.device_key);
    checks.equal("key.device_key", device, class, "the rig of the session is");
    checks.equal("key.clock", &cell.key.clock, &session.clock, "the session says");
    let is_repeated = earlier.iter().any(|record| match &record.body {
        Body::Cell(other) => {
            (&other.cell, other.replicate) == (&cell.cell, cell.replicate)
                && (&other.a.variant, &other.b.variant) == (&cell.a.variant, &cell.b.variant)
        }
        _ => false,
    });
    if is_repeated {
        checks.field("replicate", format!("{} of these arms stands in the file already", cell.replicate));
    }
    if cell.result.verdict != Verdict::Void && session.plan.stop == "fixed" {
        let (found, planned) = (cell.aa.len(), session.plan.aa_blocks);
        checks.equal("aa", &(found as u64), &u64::from(planned), "the plan says");
    }
}

/// The gate of an arm stands earlier in the file, passed, for this very text in this replicate.
fn check_arm(name: &str, arm: &Arm, cell: &CellBody, earlier: &[Record], checks: &mut Checks<'_>) {
    if arm.kind == ArmKind::Kernel && arm.source_sha256.is_none() {
        checks.field(format!("{name}.source_sha256"), "is null for a kernel arm");
    }
    let Some(id) = &arm.gate else { return };
    let field = format!("{name}.gate");
    let Some(record) = earlier.iter().find(|record| record.id == *id) else {
        checks.field(field, format!("{id} is no earlier record of this file"));
        return;
    };
    let Body::Gate(gate) = &record.body else {
        checks.field(field, format!("{id} is not a gate"));
        return;
    };
    for (what, fits) in gate_fits(gate, arm, cell) {
        if !fits {
            checks.field(field.clone(), format!("{id} {what}"));
        }
    }
}

fn gate_fits(gate: &GateBody, arm: &Arm, cell: &CellBody) -> [(&'static str, bool); 6] {
    [
        ("did not pass", gate.is_passed),
        ("belongs to another replicate", gate.replicate == cell.replicate),
        ("belongs to another contract", gate.contract == cell.key.contract),
        ("belongs to another revision of the contract", gate.revision == cell.key.revision),
        ("belongs to another variant", gate.variant == arm.variant),
        ("judged another source text", gate.source_sha256 == arm.source_sha256),
    ]
}

fn check_block(
    name: &str,
    block: &Block,
    number: u32,
    cell: &CellBody,
    session: &SessionBody,
    checks: &mut Checks<'_>,
) {
    let quads = match block_quads(block) {
        Ok(quads) => quads.len(),
        Err(fault) => {
            checks.field(format!("{name}.{}", fault.field), fault.message);
            return;
        }
    };
    let planned = session.plan.quads as usize;
    let is_fixed = session.plan.stop == "fixed";
    // A cell that turned out void may have been stopped in the middle of a block.
    let may_be_cut = cell.result.verdict == Verdict::Void && planned <= MAX_PLAN_QUADS;
    let is_cut = is_fixed && may_be_cut && quads < planned;
    if is_fixed && quads != planned && !is_cut {
        checks.field(format!("{name}.order"), format!("has {quads} quads, the plan says {planned}"));
    }
    match block_orders(cell.plan.seed, number, if is_cut { planned } else { quads }) {
        Ok(orders) if orders.get(..quads).is_none_or(|orders| order_text(orders) != block.order) => {
            let field = format!("{name}.order");
            checks.field(field, format!("is not the balanced order that the seed {} gives", cell.plan.seed));
        }
        Ok(_) => {}
        Err(error) => checks.field(format!("{name}.order"), error.to_string()),
    }
}
