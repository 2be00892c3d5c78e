//! A verdict: the cells it rests on, all of them, and the result they give.

use super::Checks;
use crate::judge::{key_difference, verdict_body};
use crate::record::{Body, CellBody, Record, SessionBody, VerdictBody};

pub(super) fn check(verdict: &VerdictBody, session: &SessionBody, earlier: &[Record], checks: &mut Checks<'_>) {
    let mut cited: Vec<(&memra_contract::digest::Digest, &CellBody)> = Vec::new();
    for (index, id) in verdict.replicates.iter().enumerate() {
        let field = format!("replicates[{index}]");
        match earlier.iter().find(|record| record.id == *id).map(|record| &record.body) {
            Some(Body::Cell(cell)) => {
                if cited.iter().any(|(other, _)| *other == id) {
                    checks.field(field, format!("{id} is cited twice"));
                }
                cited.push((id, cell));
            }
            Some(_) => checks.field(field, format!("{id} is not a cell")),
            None => checks.field(field, format!("{id} is no earlier record of this file")),
        }
    }
    check_complete(verdict, earlier, checks);
    let Some(computed) = verdict_body(&cited, session.plan.smallest_ppm) else {
        checks.field("replicates", "is empty");
        return;
    };
    checks.equal("cell", &verdict.cell, &computed.cell, "the first replicate says");
    checks.equal("a", &verdict.a, &computed.a, "the first replicate says");
    checks.equal("b", &verdict.b, &computed.b, "the first replicate says");
    if let Some(field) = key_difference(&verdict.key, &computed.key) {
        checks.field(field, "differs from that of the first replicate");
    }
    if cited.len() == verdict.replicates.len() {
        checks.equal("interval", &verdict.interval, &computed.interval, "this number of replicates has");
        checks.result(&verdict.result, &computed.result);
    }
}

/// Every replicate of the cell is cited, in the order of the file: a losing one cannot be left out.
fn check_complete(verdict: &VerdictBody, earlier: &[Record], checks: &mut Checks<'_>) {
    for record in earlier {
        let Body::Cell(cell) = &record.body else { continue };
        let is_of_cell = (&cell.cell, &cell.a.variant, &cell.b.variant) == (&verdict.cell, &verdict.a, &verdict.b);
        if is_of_cell && !verdict.replicates.contains(&record.id) {
            let message = format!("replicate {} of the cell, record {}, is left out", cell.replicate, record.id);
            checks.field("replicates", message);
        }
    }
}
