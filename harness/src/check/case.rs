//! What the judges say of a case, computed once and shared by every arm that is checked on it.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use memra_contract::digest::Digest;
use memra_contract::{Problem, ProblemError, TensorSet, Tolerance};
use memra_kernels::contract::{InputError, PeerReference};
use memra_kernels::{Contract, Reference};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::compare::{first_non_finite, worst_error};

/// A problem with its inputs, named.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CaseId {
    /// Problem in canonical text.
    pub problem: String,
    /// Input family.
    pub family: String,
    /// Seed.
    pub seed: u64,
    /// sha256 of the weights, where they come from a file.
    pub weights: Option<Digest>,
}

impl fmt::Display for CaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} seed {}", self.problem, self.family, self.seed)?;
        match &self.weights {
            Some(weights) => write!(f, " weights {}", weights.short()),
            None => Ok(()),
        }
    }
}

/// A case could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    /// The problem is wrong.
    #[error(transparent)]
    Problem(#[from] ProblemError),
    /// The inputs could not be made.
    #[error(transparent)]
    Input(#[from] InputError),
}

/// How far outputs stand from a reference.
#[derive(Debug, Clone)]
pub(super) struct ErrorJudgement {
    /// Largest error, as a fraction of the scale; infinite where an output is not finite.
    pub(super) worst: f64,
    /// Largest error that is allowed.
    pub(super) allowed: f64,
    /// The worst element, where its error is more than allowed.
    pub(super) failure: Option<String>,
}

/// What is known of one set of outputs, whoever made them.
#[derive(Debug, Clone)]
pub(super) struct Judged {
    /// sha256 of the outputs.
    pub(super) digest: Digest,
    /// Their error.
    pub(super) error: ErrorJudgement,
    /// The first element that is not finite.
    pub(super) non_finite: Option<String>,
}

/// A case with its inputs, the outputs of the order class and the f64 reference.
pub struct JudgedCase {
    contract: &'static dyn Contract,
    problem: Problem,
    id: CaseId,
    inputs: TensorSet,
    ordered: TensorSet,
    ordered_judged: Judged,
    reference: Reference,
    tolerance: Tolerance,
}

impl fmt::Debug for JudgedCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JudgedCase")
            .field("contract", &self.contract.info().id)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl JudgedCase {
    /// Runs both judges on inputs, side by side. `problem` is normalised first.
    ///
    /// # Errors
    /// [`CaseError`] when the problem is not one of the contract.
    pub fn new(
        contract: &'static dyn Contract,
        problem: &Problem,
        family: &str,
        seed: u64,
        weights: Option<Digest>,
        inputs: TensorSet,
    ) -> Result<Self, CaseError> {
        let problem = contract.normalise(problem)?;
        let tolerance = contract.tolerance(&problem)?;
        let (ordered, reference) = std::thread::scope(|scope| {
            let ordered = scope.spawn(|| contract.ordered_outputs(&problem, &inputs));
            let reference = contract.reference(&problem, &inputs);
            (ordered.join().unwrap_or_else(|payload| resume_unwind(payload)), reference)
        });
        let (ordered, reference) = (ordered?, reference?);
        let ordered_judged = judge(contract, &ordered, &reference, &tolerance);
        let id = CaseId { problem: problem.to_string(), family: family.to_owned(), seed, weights };
        Ok(Self { contract, problem, id, inputs, ordered, ordered_judged, reference, tolerance })
    }

    /// Generates inputs and runs both judges on them.
    ///
    /// # Errors
    /// [`CaseError`] when the problem or the family is not one of the contract.
    pub fn generated(
        contract: &'static dyn Contract,
        problem: &Problem,
        family: &str,
        seed: u64,
    ) -> Result<Self, CaseError> {
        let problem = contract.normalise(problem)?;
        let inputs = contract.inputs(&problem, family, seed)?;
        Self::new(contract, &problem, family, seed, None, inputs)
    }

    /// The contract.
    pub fn contract(&self) -> &'static dyn Contract {
        self.contract
    }

    /// Bytes of what it holds.
    fn bytes(&self) -> usize {
        let tensors = self.inputs.iter().chain(self.ordered.iter()).map(|tensor| tensor.bytes.len());
        tensors.sum::<usize>() + 16 * self.reference.values.len()
    }

    /// The problem, normalised.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// Its name.
    pub fn id(&self) -> &CaseId {
        &self.id
    }

    /// The inputs.
    pub fn inputs(&self) -> &TensorSet {
        &self.inputs
    }

    /// The outputs of the order class: names, types and shapes of every right answer, and its bits.
    pub fn ordered(&self) -> &TensorSet {
        &self.ordered
    }

    pub(super) fn ordered_judged(&self) -> &Judged {
        &self.ordered_judged
    }

    /// Judges outputs that differ from those of the order class.
    pub(super) fn judge(&self, outputs: &TensorSet) -> Judged {
        judge(self.contract, outputs, &self.reference, &self.tolerance)
    }

    /// The right answer for a process arm, where the contract has one for the problem. Slow.
    ///
    /// # Errors
    /// [`ProblemError`] when the problem is not one of the contract.
    pub(super) fn peer_reference(&self) -> Result<Option<PeerReference>, ProblemError> {
        self.contract.peer_reference(&self.problem, &self.inputs)
    }
}

pub(super) fn judge(
    contract: &dyn Contract,
    outputs: &TensorSet,
    reference: &Reference,
    tolerance: &Tolerance,
) -> Judged {
    Judged {
        digest: outputs_digest(outputs),
        error: worst_error(&contract.output_values(outputs), reference, tolerance),
        non_finite: first_non_finite(outputs),
    }
}

/// sha256 over names, types, shapes and bytes.
pub fn outputs_digest(outputs: &TensorSet) -> Digest {
    let mut hash = Sha256::new();
    for tensor in outputs.iter() {
        hash.update(format!("{} {} {:?} {}\n", tensor.name, tensor.dtype, tensor.shape, tensor.bytes.len()));
        hash.update(&tensor.bytes);
    }
    Digest::from_bytes(&hash.finalize().into())
}

/// Cases by contract, seed and place in the list of committed problems and families.
type Committed = BTreeMap<(&'static str, u64, usize), Arc<JudgedCase>>;

/// Bytes of the inputs and outputs of the last cases that are kept.
const RECENT_BYTES: usize = 6 << 30;

/// Judged cases of the contracts, kept for the arms that come later.
#[derive(Debug, Default)]
pub struct JudgeCache {
    committed: Mutex<Committed>,
    recent: Mutex<Recent>,
}

/// The last cases of cells, the least recently asked for first.
#[derive(Debug, Default)]
struct Recent(Vec<Arc<JudgedCase>>);

impl Recent {
    fn get(&mut self, contract: &dyn Contract, id: &CaseId) -> Option<Arc<JudgedCase>> {
        let is_it = |case: &Arc<JudgedCase>| case.contract.info().id == contract.info().id && case.id == *id;
        let case = self.0.remove(self.0.iter().position(is_it)?);
        self.0.push(Arc::clone(&case));
        Some(case)
    }

    /// Keeps a case, and as many of those before it as there is room for.
    fn keep(&mut self, case: &Arc<JudgedCase>, most_bytes: usize) {
        self.0.push(Arc::clone(case));
        let mut left = most_bytes;
        let newest = self.0.iter().rev().take_while(|case| {
            let fits = left.checked_sub(case.bytes());
            left = fits.unwrap_or_default();
            fits.is_some()
        });
        let keep = newest.count();
        self.0.drain(..self.0.len() - keep);
    }
}

impl JudgeCache {
    /// A case with generated inputs: the same one for every cell and arm that asks for it, as long as it is among the last.
    ///
    /// # Errors
    /// [`CaseError`] when the problem or the family is not one of the contract.
    pub fn generated(
        &self,
        contract: &'static dyn Contract,
        problem: &Problem,
        family: &str,
        seed: u64,
    ) -> Result<Arc<JudgedCase>, CaseError> {
        let problem = contract.normalise(problem)?;
        let id = CaseId { problem: problem.to_string(), family: family.to_owned(), seed, weights: None };
        self.recent(contract, &id, || JudgedCase::generated(contract, &problem, family, seed))
    }

    /// A case of this name, made where it is not among the last.
    ///
    /// # Errors
    /// What making it fails with.
    pub fn recent<E>(
        &self,
        contract: &'static dyn Contract,
        id: &CaseId,
        make: impl FnOnce() -> Result<JudgedCase, E>,
    ) -> Result<Arc<JudgedCase>, E> {
        // A poisoned lock only says that a judge panicked; what stands in the list is whole.
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(case) = recent.get(contract, id) {
            return Ok(case);
        }
        let case = Arc::new(make()?);
        recent.keep(&case, RECENT_BYTES);
        Ok(case)
    }

    /// The committed cases of a contract under a seed whose problem is served, every family of each; those that were not judged
    /// before are judged side by side by `workers` threads.
    ///
    /// # Errors
    /// [`CaseError`] when a committed case is not one of the contract.
    pub fn committed(
        &self,
        contract: &'static dyn Contract,
        seed: u64,
        workers: usize,
        serves: &dyn Fn(&Problem) -> bool,
    ) -> Result<Vec<Arc<JudgedCase>>, CaseError> {
        // A poisoned lock only says that a judge panicked; what stands in the map is whole.
        let mut committed = self.committed.lock().unwrap_or_else(PoisonError::into_inner);
        let key = |place: usize| (contract.info().id, seed, place);
        let (mut places, mut missing, mut place) = (Vec::new(), Vec::new(), 0);
        for case in &contract.cases().cases {
            let problem = contract.normalise(&case.problem()?)?;
            let is_served = serves(&problem);
            for family in &case.families {
                if is_served {
                    places.push(place);
                    if !committed.contains_key(&key(place)) {
                        missing.push((place, problem.clone(), family.as_str()));
                    }
                }
                place += 1;
            }
        }
        for (place, case) in judged(contract, seed, workers, &missing) {
            committed.insert(key(place), Arc::new(case?));
        }
        Ok(places.into_iter().filter_map(|place| committed.get(&key(place)).cloned()).collect())
    }
}

/// Judges cases side by side.
fn judged(
    contract: &'static dyn Contract,
    seed: u64,
    workers: usize,
    recipes: &[(usize, Problem, &str)],
) -> Vec<(usize, Result<JudgedCase, CaseError>)> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut judged = Vec::new();
        while let Some((place, problem, family)) = recipes.get(next.fetch_add(1, Ordering::Relaxed)) {
            judged.push((*place, JudgedCase::generated(contract, problem, family, seed)));
        }
        judged
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..workers.min(recipes.len()).max(1)).map(|_| scope.spawn(work)).collect();
        let mut judged = work();
        for other in others {
            judged.extend(other.join().unwrap_or_else(|payload| resume_unwind(payload)));
        }
        judged
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use memra_kernels::registry;

    #[test]
    fn a_case_is_judged_once_as_long_as_it_is_among_the_last() {
        let contract = registry::contract("rms_norm").unwrap();
        let problem = |text: &str| text.parse::<Problem>().unwrap();
        let cache = JudgeCache::default();
        let first = cache.generated(contract, &problem("m=2,hidden=64"), "normal", 3).unwrap();
        // The same problem in other words.
        let again = cache.generated(contract, &problem("hidden=64,m=2"), "normal", 3).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        for (text, family, seed) in
            [("m=2,hidden=64", "normal", 4), ("m=2,hidden=64", "outlier", 3), ("m=1,hidden=64", "normal", 3)]
        {
            assert!(!Arc::ptr_eq(&first, &cache.generated(contract, &problem(text), family, seed).unwrap()));
        }
        assert!(cache.generated(contract, &problem("m=2,hidden=64"), "none", 3).is_err());
        assert!(cache.generated(contract, &problem("m=2"), "normal", 3).is_err());
        assert_eq!(cache.recent.lock().unwrap().0.len(), 4);

        let mut recent = Recent::default();
        let others = [4, 5].map(|seed| cache.generated(contract, &problem("m=2,hidden=64"), "normal", seed).unwrap());
        recent.keep(&first, usize::MAX);
        recent.keep(&others[0], 2 * first.bytes());
        assert!(recent.get(contract, first.id()).is_some());
        recent.keep(&others[1], 2 * first.bytes());
        assert!(recent.get(contract, others[0].id()).is_none(), "the least recently asked for goes first");
        assert!(recent.get(registry::contract("matmul").unwrap(), first.id()).is_none());
        recent.keep(&others[0], first.bytes() - 1);
        assert!(recent.0.is_empty(), "what is too large is not kept");
    }

    #[test]
    fn committed_cases_come_in_order_and_are_judged_once() {
        let contract = registry::contract("rms_norm").unwrap();
        let cache = JudgeCache::default();
        let cases = cache.committed(contract, 3, 3, &|_| true).unwrap();
        let recipes: Vec<(String, String)> = contract
            .cases()
            .cases
            .iter()
            .flat_map(|case| {
                let problem = contract.normalise(&case.problem().unwrap()).unwrap().to_string();
                case.families.iter().map(move |family| (problem.clone(), family.clone()))
            })
            .collect();
        let judged: Vec<_> = cases.iter().map(|case| (case.id().problem.clone(), case.id().family.clone())).collect();
        assert_eq!(judged, recipes);
        let again = cache.committed(contract, 3, 1, &|_| true).unwrap();
        assert!(cases.iter().zip(&again).all(|(a, b)| Arc::ptr_eq(a, b)));
        assert!(!Arc::ptr_eq(&cases[0], &cache.committed(contract, 4, 1, &|_| true).unwrap()[0]));
        for case in &cases {
            assert!(case.ordered_judged().error.failure.is_none() && case.ordered_judged().non_finite.is_none());
        }
    }

    #[test]
    fn only_served_cases_are_judged() {
        let contract = registry::contract("rms_norm").unwrap();
        let cache = JudgeCache::default();
        let is_one_row = |problem: &Problem| problem.to_string().contains("m=1");
        let few = cache.committed(contract, 3, 2, &is_one_row).unwrap();
        assert!(!few.is_empty() && few.iter().all(|case| is_one_row(case.problem())));
        assert_eq!(cache.committed.lock().unwrap().len(), few.len());
        let all = cache.committed(contract, 3, 2, &|_| true).unwrap();
        assert!(all.len() > few.len());
        let again = cache.committed(contract, 3, 2, &is_one_row).unwrap();
        assert!(few.iter().zip(&again).all(|(a, b)| Arc::ptr_eq(a, b)), "what was judged is not judged again");
        assert!(cache.committed(contract, 3, 2, &|_| false).unwrap().is_empty());
    }

    #[test]
    fn digests_depend_on_form_and_bytes() {
        use memra_contract::Tensor;
        let set = |name: &str, shape: &[usize], values: &[f32]| {
            outputs_digest(&TensorSet::new(vec![Tensor::f32(name, shape, values)]))
        };
        let one = set("out", &[2], &[0.0, 1.0]);
        assert_eq!(one, set("out", &[2], &[0.0, 1.0]));
        assert_ne!(one, set("out", &[2], &[-0.0, 1.0]));
        assert_ne!(one, set("out", &[1, 2], &[0.0, 1.0]));
        assert_ne!(one, set("other", &[2], &[0.0, 1.0]));
    }

    #[test]
    fn wrong_cases_are_refused() {
        let contract = registry::contract("quantise").unwrap();
        let error = JudgedCase::generated(contract, &"m=1,k=33".parse().unwrap(), "normal", 1).unwrap_err();
        assert!(error.to_string().contains("`k`"), "{error}");
        let error = JudgedCase::generated(contract, &"m=1,k=32".parse().unwrap(), "nrmal", 1).unwrap_err();
        assert!(error.to_string().contains("`nrmal`"), "{error}");
    }
}
