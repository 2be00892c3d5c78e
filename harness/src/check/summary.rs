//! The figures of a gate record, gathered case by case.

use memra_contract::digest::Digest;
use sha2::{Digest as _, Sha256};

use super::case::CaseId;

/// Errors above this print as this: a record holds integers, and an infinite error is far beyond any tolerance.
const LARGEST_PPB: f64 = 1e15;

/// That error as a fraction.
pub(super) const LARGEST: f64 = LARGEST_PPB / 1e9;

/// What a gate record says over all cases.
#[derive(Debug, Clone)]
pub(crate) struct Summary {
    problems: Vec<String>,
    cases: u32,
    repeats: Option<usize>,
    worst: (f64, f64),
    hash: Sha256,
}

impl Default for Summary {
    fn default() -> Self {
        Self { problems: Vec::new(), cases: 0, repeats: None, worst: (0.0, 0.0), hash: Sha256::new() }
    }
}

impl Summary {
    /// Adds a case: outputs of its first run, its worst error with the allowed one, and its runs.
    pub(super) fn add(&mut self, id: &CaseId, outputs: Option<&Digest>, worst: (f64, f64), runs: usize) {
        if !self.problems.contains(&id.problem) {
            self.problems.push(id.problem.clone());
        }
        self.cases = self.cases.saturating_add(1);
        self.repeats = Some(self.repeats.map_or(runs, |repeats| repeats.min(runs)));
        self.hash.update(format!("{id} {}\n", outputs.map_or("nothing", Digest::as_str)));
        if share(worst) > share(self.worst) || self.worst.1 == 0.0 {
            self.worst = worst;
        }
    }

    pub(super) fn problems(&self) -> Vec<String> {
        self.problems.clone()
    }

    pub(super) fn cases(&self) -> u32 {
        self.cases
    }

    pub(super) fn repeats(&self) -> u32 {
        u32::try_from(self.repeats.unwrap_or(0)).unwrap_or(u32::MAX)
    }

    /// Worst error of the case with the largest share of its allowance.
    pub(super) fn max_error_ppb(&self) -> u64 {
        ppb(self.worst.0)
    }

    /// Allowance of that case.
    pub(super) fn allowed_error_ppb(&self) -> u64 {
        ppb(self.worst.1)
    }

    pub(super) fn digest(&self) -> Digest {
        Digest::from_bytes(&self.hash.clone().finalize().into())
    }
}

fn share((error, allowed): (f64, f64)) -> f64 {
    if allowed > 0.0 { error / allowed } else { error }
}

/// Parts per billion, rounded up.
fn ppb(fraction: f64) -> u64 {
    (fraction * 1e9).ceil().clamp(0.0, LARGEST_PPB) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_per_billion_round_up_and_stay_integers() {
        assert_eq!((ppb(0.0), ppb(1.2e-9), ppb(0.5)), (0, 2, 500_000_000));
        assert_eq!(ppb(f64::INFINITY), 1_000_000_000_000_000);
        assert_eq!(ppb(f64::NAN), 0);
    }
}
