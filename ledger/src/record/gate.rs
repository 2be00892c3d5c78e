//! The record of a correctness check.

use memra_contract::digest::Digest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A judgement of one arm against its contract.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GateBody {
    /// Replicate the check ran in, from 0.
    pub replicate: u32,
    /// Contract id.
    pub contract: String,
    /// Contract revision.
    pub revision: u32,
    /// Variant, or the name of a process arm.
    pub variant: String,
    /// sha256 of the source text that was judged; `null` for a process arm.
    #[schemars(with = "Option<String>")]
    pub source_sha256: Option<Digest>,
    /// Comparison rule: `bits` (order class and f64 reference), `rows` (f64 reference, and every row the same alone and in
    /// another place, for order classes that are a device's own), `error` (f64 reference only, for process arms), `workload`
    /// (token counts, and the output of every run that of the first, for engines) or `workload-counts` (token counts only,
    /// for engines that do not say their output).
    pub rule: String,
    /// Order class that was judged by; `null` under the rule `error`.
    pub order_class: Option<String>,
    /// Problems judged.
    pub problems: Vec<String>,
    /// (problem, input family, seed) combinations judged.
    pub cases: u32,
    /// Thread counts each combination ran on.
    pub threads: Vec<u32>,
    /// Runs of each combination whose output hashes had to agree.
    pub repeats: u32,
    /// Byte patterns outputs were filled with before the runs.
    pub poison: Vec<u32>,
    /// Largest error against the f64 reference, in parts per billion of the scale the contract defines.
    pub max_error_ppb: u64,
    /// Allowed error on the case with the largest share of its allowance, in parts per billion.
    pub allowed_error_ppb: u64,
    /// sha256 over the outputs of all combinations.
    #[schemars(with = "String")]
    pub output_sha256: Digest,
    /// Whether everything held.
    pub is_passed: bool,
    /// What did not hold; empty when passed.
    pub failures: Vec<GateFailure>,
}

/// One thing that did not hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GateFailure {
    /// Problem and input family.
    pub case: String,
    /// Threads it ran on.
    pub threads: u32,
    /// Kind: `bits`, `error`, `repeat`, `poison`, `guard`, `non_finite`, `launch`, `rows`; `tokens`, `output` for engines.
    pub reason: String,
    /// The first differing element and both values, or the message.
    pub detail: String,
}
