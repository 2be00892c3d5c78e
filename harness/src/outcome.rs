//! What a session ends with, as an exit code.

use memra_ledger::record::Verdict;

/// Every cell is EQUIVALENT or FASTER.
pub const PASSED: u8 = 0;
/// A cell is SLOWER.
pub const SLOWER: u8 = 10;
/// A cell is UNDECIDED.
pub const UNDECIDED: u8 = 11;
/// A cell is VOID.
pub const VOID: u8 = 12;
/// A cell is INCOMPARABLE.
pub const INCOMPARABLE: u8 = 13;
/// An arm did not pass its check.
pub const GATE_FAILED: u8 = 14;
/// A record is not what it was when it was written.
pub const INTEGRITY: u8 = 15;

/// The exit code of a session.
///
/// What makes evidence worthless precedes what it says: record integrity, a failed gate, INCOMPARABLE, VOID; then
/// SLOWER before UNDECIDED. A session without verdict, gate or fault has code 0.
pub fn exit_code(verdicts: &[Verdict], is_gate_failed: bool, is_integrity_failed: bool) -> u8 {
    let has = |verdict| verdicts.contains(&verdict);
    if is_integrity_failed {
        INTEGRITY
    } else if is_gate_failed {
        GATE_FAILED
    } else if has(Verdict::Incomparable) {
        INCOMPARABLE
    } else if has(Verdict::Void) {
        VOID
    } else if has(Verdict::Slower) {
        SLOWER
    } else if has(Verdict::Undecided) {
        UNDECIDED
    } else {
        PASSED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_outcome_is_the_exit_code() {
        use Verdict::{Equivalent, Faster, Incomparable, Slower, Undecided, Void};
        assert_eq!(exit_code(&[], false, false), 0);
        // From harmless to worst: each precedes all before it.
        let ranked = [(Equivalent, 0), (Faster, 0), (Undecided, 11), (Slower, 10), (Void, 12), (Incomparable, 13)];
        let mut verdicts = Vec::new();
        for (verdict, code) in ranked {
            verdicts.push(verdict);
            assert_eq!(exit_code(&verdicts, false, false), code);
            let backwards: Vec<Verdict> = verdicts.iter().rev().copied().collect();
            assert_eq!(exit_code(&backwards, false, false), code);
        }
        assert_eq!(exit_code(&verdicts, true, false), 14);
        assert_eq!(exit_code(&[Faster], true, false), 14);
        assert_eq!(exit_code(&verdicts, true, true), 15);
        assert_eq!(exit_code(&[Faster], false, true), 15);
    }
}
