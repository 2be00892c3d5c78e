//! Sessions of any shape verify, and stray bytes never pass.

use memra_ledger::chain::read_bytes;
use memra_ledger::synthetic::{Synthetic, SyntheticCell};
use memra_ledger::verify::verify_file;
use proptest::prelude::*;

use super::session;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn sessions_of_any_shape_verify(
        seed: u64,
        quads in 0_u32..14,
        aa_blocks in 0_u32..4,
        replicates in 1_u32..7,
        smallest_ppm in 0_i64..20_000,
        cells in prop::collection::vec((-40_000_i64..40_000, 0_i64..30_000, any::<[bool; 2]>(), 0_u32..8), 1..4),
    ) {
        let cells = cells.into_iter().enumerate().map(|(index, (theta_ppm, noise_ppm, gates, voids))| {
            let [is_gate_passed, is_steady] = gates;
            let mut cell = SyntheticCell { theta_ppm, noise_ppm, is_gate_passed, is_steady,
                ..SyntheticCell::named(&format!("cell-{index}")) };
            for quad in 0..voids.min(quads) {
                cell = cell.with_void_quad(quad, "steal");
            }
            cell
        }).collect();
        let session = Synthetic { quads, aa_blocks, replicates, smallest_ppm, cells, ..Synthetic::new(seed) };
        let name = session.name().unwrap().relative_path();
        let file = read_bytes(&name, session.text().unwrap().as_bytes()).unwrap();
        let report = verify_file(&file);
        prop_assert_eq!(report.problems, []);
        prop_assert_eq!(report.cells as usize, session.cells.len() * replicates as usize);
    }

    #[test]
    fn stray_bytes_never_pass(place in 0_usize..100_000, bytes in prop::collection::vec(any::<u8>(), 0..4)) {
        let text = session().text().unwrap();
        let mut edited = text.clone().into_bytes();
        let start = place % edited.len();
        let end = (start + bytes.len().max(1)).min(edited.len());
        edited.splice(start..end, bytes.iter().copied());
        prop_assume!(edited != text.as_bytes());
        if let Ok(file) = read_bytes("f", &edited) {
            prop_assert!(file.records.len() < 23 && file.skipped_tail.is_some());
        }
    }
}
