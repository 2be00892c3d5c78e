//! `check --record`: the checks of a run as a receipt without a cell.

use std::path::PathBuf;

use memra_ledger::chain::{ReceiptName, ReceiptWriter};
use memra_ledger::record::{Body, GATES_ONLY, GateBody, SessionBody, SessionPlan};

use crate::cli::CheckArguments;
use crate::commands::session::{rig, seed_of_now, session_id};
use crate::commands::{now, privacy, today};
use crate::cuda::Card;
use crate::{checkout, facts, ui};

/// A receipt that checks are written to one by one, or none where none was asked for.
pub(super) struct Recorder(Option<Open>);

struct Open {
    root: PathBuf,
    writer: ReceiptWriter,
}

impl Recorder {
    /// Opens the receipt that the command line asks for. Checks on a card are the card's.
    pub(super) fn open(arguments: &CheckArguments, card: Option<&Card>) -> anyhow::Result<Self> {
        let Some(slug) = &arguments.record else { return Ok(Self(None)) };
        let root = checkout::evidence_root(arguments.root.root.as_deref())?;
        let rig = rig(card)?;
        let seed = seed_of_now();
        let name = ReceiptName::new(&rig.label, &today(), slug, &session_id(seed))?;
        let session = SessionBody {
            tool: facts::tool(),
            rig,
            clock: "free".to_owned(),
            threads: 1,
            plan: SessionPlan {
                stop: GATES_ONLY.to_owned(),
                quads: 0,
                aa_blocks: 0,
                replicates: 1,
                seed,
                smallest_ppm: 0,
                cells: Vec::new(),
            },
            command: command_line(arguments),
            started_utc: now(),
        };
        let mut writer = ReceiptWriter::create(&root, &name, privacy())?;
        writer.append(Body::Session(Box::new(session)))?;
        Ok(Self(Some(Open { root, writer })))
    }

    pub(super) fn add(&mut self, gate: &GateBody) -> anyhow::Result<()> {
        if let Some(Open { writer, .. }) = &mut self.0 {
            writer.append(Body::Gate(Box::new(gate.clone())))?;
        }
        Ok(())
    }

    /// Closes the receipt and makes the boards anew.
    pub(super) fn finish(self, code: u8) -> anyhow::Result<()> {
        let Some(Open { root, writer }) = self.0 else { return Ok(()) };
        let file = writer.name().to_owned();
        writer.finish(now(), code)?;
        ui::say(format_args!("receipt  {}", root.join(file).display()));
        #[cfg(feature = "boards")]
        crate::commands::board::refresh(&root)?;
        Ok(())
    }
}

/// The command line as it stands in the receipt.
fn command_line(arguments: &CheckArguments) -> Vec<String> {
    let mut line = vec!["check".to_owned()];
    line.extend(arguments.backend.kind().map(|kind| format!("--backend={kind}")));
    line.push(format!("--seeds={}", arguments.seeds));
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::KernelCheck;
    use crate::commands::receipts::verify_all;
    use clap::Parser as _;
    use memra_harness::arm::KernelArm;
    use memra_harness::check::CheckPlan;
    use memra_kernels::registry;
    use std::path::Path;

    fn record(root: &Path, slug: &str, cases: u32) -> anyhow::Result<()> {
        let root = root.to_str().unwrap();
        let words = ["kernel-check", "--record", slug, "--root", root];
        let arguments = KernelCheck::try_parse_from(words).unwrap().arguments;
        let mut recorder = Recorder::open(&arguments, None)?;
        let contract = registry::contract("argmax").unwrap();
        for variant in contract.variants().iter().take(2) {
            let mut gate = CheckPlan::default().checked(&KernelArm::explicit(contract, variant), Vec::new(), 0).gate;
            (gate.cases, gate.is_passed) = (cases, true);
            gate.failures.clear();
            recorder.add(&gate)?;
        }
        recorder.finish(0)
    }

    #[test]
    fn recorded_checks_are_a_receipt_that_the_board_counts() {
        let folder = tempfile::tempdir().unwrap();
        record(folder.path(), "all", 5).unwrap();
        let (_, report) = verify_all(folder.path());
        assert!(report.is_sound(), "{:?}", report.problems);
        assert_eq!(report.files, 1);
        if !cfg!(feature = "boards") {
            return;
        }
        let mut boards = std::fs::read_dir(folder.path().join("boards")).unwrap().map(|entry| entry.unwrap().path());
        let board = boards.find(|path| path.is_file()).unwrap();
        let text = std::fs::read_to_string(&board).unwrap();
        let found: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&found["checked"]["pairs"], &found["notes"]), (&serde_json::json!(10), &serde_json::json!([])));
        // Where the board said more, it stays, and so does the receipt.
        let more = text.replace("\"pairs\": 10", "\"pairs\": 11");
        std::fs::write(&board, &more).unwrap();
        let error = record(folder.path(), "fewer", 5).unwrap_err().to_string();
        assert!(error.contains("11 checked pairs") && error.contains("--allow-fewer-pairs"), "{error}");
        assert_eq!(std::fs::read_to_string(&board).unwrap(), more);
        let (_, report) = verify_all(folder.path());
        assert!(report.is_sound() && report.files == 2, "{:?}", report.problems);
    }

    #[test]
    fn what_is_recorded_is_everything_on_committed_cases() {
        for words in [&["matmul"][..], &["--weights", "m.gguf"]] {
            let words = [&["kernel-check", "--record", "all"], words].concat();
            assert!(KernelCheck::try_parse_from(words).is_err());
        }
        let folder = tempfile::tempdir().unwrap();
        assert!(record(folder.path(), "No Slug", 1).unwrap_err().to_string().contains("slug"));
    }
}
