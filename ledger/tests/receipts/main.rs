//! Receipt files as a reader meets them: written, tampered with, removed, copied, cut.

mod forge;
mod property;
mod root;
mod tamper;
mod write;

use std::path::Path;

use memra_ledger::canonical;
use memra_ledger::chain::{ReadError, ReceiptFile, read_bytes};
use memra_ledger::record::VoidQuad;
use memra_ledger::synthetic::{Synthetic, SyntheticCell};
use memra_ledger::verify::{Problem, verify_root};

/// A small session with all that a session may hold: several cells and replicates, voids, a failed gate, an
/// unsteady cell.
fn session() -> Synthetic {
    let void = VoidQuad { quad: 3, reason: "clock".to_owned(), blamed: Some("B".to_owned()) };
    let cells = vec![
        SyntheticCell { void: vec![void], ..SyntheticCell::named("faster").with_theta(-30_000) },
        SyntheticCell { is_gate_passed: false, ..SyntheticCell::named("wrong") },
        SyntheticCell { is_steady: false, ..SyntheticCell::named("restless") },
    ];
    Synthetic { quads: 8, aa_blocks: 1, replicates: 2, cells, ..Synthetic::new(77) }
}

fn written(root: &Path, session: &Synthetic) -> String {
    session.write(root).expect("a synthetic session is written")
}

fn problems(root: &Path) -> Vec<String> {
    verify_root(root).problems.iter().map(Problem::to_string).collect()
}

/// The lines of a text with their line ends.
fn lines(text: &str) -> Vec<String> {
    text.split_inclusive('\n').map(str::to_owned).collect()
}

fn read(text: &str) -> Result<ReceiptFile, ReadError> {
    read_bytes("f", text.as_bytes())
}

/// The line with its content changed and its id made to fit.
fn rewritten(line: &str, change: impl FnOnce(&mut serde_json::Value)) -> String {
    let mut value = canonical::parse(line.trim_end()).expect("the line is JSON");
    change(&mut value);
    value["id"] = canonical::record_id(&value).expect("the record holds integers").as_str().into();
    canonical::text(&value).expect("the record holds integers") + "\n"
}
