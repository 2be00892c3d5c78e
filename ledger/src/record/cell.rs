//! The records of a measured cell and of the verdict on it.

use memra_contract::digest::Digest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Everything that must be equal before two results may be compared.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct CellKey {
    /// Contract id; `workload` where engines run a model.
    pub contract: String,
    /// Contract revision.
    pub revision: u32,
    /// Problem in canonical text.
    pub problem: String,
    /// Inputs: generator, family, seed, and weights from a file where there are some.
    pub inputs: Inputs,
    /// Device key.
    pub device_key: String,
    /// Cache mode: `rotate` (weights rotate over at least three last-level caches) or `hot`; `workload` where engines run a
    /// model and the caches hold what that leaves in them.
    pub cache: String,
    /// Host mode: how the arms are driven, `pool`, `graph`, `process` or `engine`.
    pub host_mode: String,
    /// Clock regime.
    pub clock: String,
    /// Threads.
    pub threads: u32,
}

/// Where the numbers in the buffers came from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Inputs {
    /// Generator and its revision, for example `counter/1`.
    pub generator: String,
    /// Distribution family.
    pub family: String,
    /// Seed.
    pub seed: u64,
    /// Real weights, where the cell has some.
    pub weights: Option<WeightSource>,
}

/// A tensor of a model file, or a whole file. The file's name stands here, never its path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct WeightSource {
    /// File name.
    pub file: String,
    /// Tensor name; empty where the whole file is meant.
    pub tensor: String,
    /// sha256 of the tensor's bytes, or of the whole file.
    #[schemars(with = "String")]
    pub tensor_sha256: Digest,
}

/// One cell measured in one replicate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CellBody {
    /// Name of the cell, from its file or from the command line.
    pub cell: String,
    /// Replicate, from 0.
    pub replicate: u32,
    /// What the cell is.
    pub key: CellKey,
    /// The incumbent.
    pub a: Arm,
    /// The challenger.
    pub b: Arm,
    /// Schedule.
    pub plan: CellPlan,
    /// Warm-up and its slope gate.
    pub warm_up: WarmUp,
    /// Incumbent against a second, separately prepared copy of itself.
    pub aa: Vec<Block>,
    /// Incumbent against challenger; `null` where warm-up or a gate ended the cell first.
    pub ab: Option<Block>,
    /// Largest memory of the arms, where they are engines that said so. Left out for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peaks: Option<PeakMemory>,
    /// What follows from the blocks. A reader recomputes every number of it.
    pub result: CellResult,
}

/// Largest resident memory of the processes that did the work of each arm, up to the end of the cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PeakMemory {
    /// Of A, in bytes; `null` where it was not said.
    pub a_bytes: Option<u64>,
    /// Of B, in bytes; `null` where it was not said.
    pub b_bytes: Option<u64>,
}

/// What kind of competitor an arm is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ArmKind {
    /// A registered variant with its parameters.
    Kernel,
    /// A long-lived child process that runs the same product.
    Process,
    /// A long-lived child process that runs a model: an inference engine.
    Engine,
}

/// What [`Arm::chosen`] says of a file that was never compiled in. Nothing is promoted on a record of such an arm.
pub const OUT_OF_TREE: &str = "out-of-tree";

/// One competitor.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Arm {
    /// Kind.
    pub kind: ArmKind,
    /// Variant name, or the name the process gave itself.
    pub variant: String,
    /// How the variant was named: `explicit`, `out-of-tree` for a file that was never compiled in, or the selection reason for
    /// `default` and `baseline`.
    pub chosen: String,
    /// Weight layout; empty for a process.
    pub layout: String,
    /// Order class; `null` for a process.
    pub order_class: Option<String>,
    /// Instruction-set tier the variant needs; empty for a process.
    pub isa: String,
    /// Source file relative to the repository; `null` for a process.
    pub source: Option<String>,
    /// sha256 of the source text.
    #[schemars(with = "Option<String>")]
    pub source_sha256: Option<Digest>,
    /// Version and build facts a process gave about itself; empty for a kernel.
    pub about: Vec<String>,
    /// `id` of the passed gate in this session; `null` where the gate failed.
    #[schemars(with = "Option<String>")]
    pub gate: Option<Digest>,
}

/// The schedule of a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CellPlan {
    /// Launches in a slot, the same for both arms.
    pub launches: u32,
    /// Copies of the rotating buffers; 1 in mode `hot`.
    pub copies: u32,
    /// Bytes that rotate, all copies together.
    pub rotated_bytes: u64,
    /// Seed of the quad orders.
    pub seed: u64,
    /// Timer resolution in nanoseconds.
    pub timer_ns: u64,
    /// Bytes moved by one launch, from the contract's cost.
    pub moved_bytes: u64,
    /// Operations of one launch, from the contract's cost.
    pub flops: u64,
    /// What engines ran, and how they were warmed up. Left out for other arms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<WorkloadPlan>,
}

/// A run of a model, the same for both arms. It is a slot of its own: one launch, timed by the engine, without loading the
/// model and without filling the cache up to the depth.
///
/// Slots of a second are too few for a slope: a declared number of them is run before each pair of arms and not recorded,
/// and the drift of the warm-up record is 0 by that declaration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkloadPlan {
    /// Tokens of the prompt that are processed in a slot; 0 where tokens are generated.
    pub prompt_tokens: u32,
    /// Tokens that are generated in a slot; 0 where a prompt is processed.
    pub generated_tokens: u32,
    /// Tokens in the cache before the slot.
    pub depth_tokens: u32,
    /// Slots of each arm that are run and not recorded, before the A/A blocks and again before the A/B block.
    pub warm_up_slots: u32,
}

impl WorkloadPlan {
    /// The canonical text of the problem: `depth=0,generated=128,prompt=0`.
    pub fn problem(&self) -> String {
        format!("depth={},generated={},prompt={}", self.depth_tokens, self.generated_tokens, self.prompt_tokens)
    }

    /// Tokens that a slot is timed over.
    pub fn timed_tokens(&self) -> u64 {
        u64::from(self.prompt_tokens) + u64::from(self.generated_tokens)
    }
}

/// Warm-up of a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WarmUp {
    /// Slots run, both arms in turn.
    pub slots: u32,
    /// Time spent, in nanoseconds.
    pub elapsed_ns: u64,
    /// Drift of ln(slot) over the expected session by the slope of the last slots, in parts per million.
    pub drift_ppm: i64,
    /// Largest drift that was allowed, in parts per million.
    pub allowed_drift_ppm: i64,
    /// Whether the gate opened.
    pub is_steady: bool,
}

/// A run of quads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Block {
    /// Order of each quad: `A` for ABBA, `B` for BAAB.
    pub order: String,
    /// Raw slots.
    pub slots: Slots,
    /// What was observed during each quad.
    pub observed: Vec<QuadObservation>,
    /// Quads that do not count, and why.
    pub void: Vec<VoidQuad>,
}

/// Raw slots in schedule order, four a quad.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Slots {
    /// Start of each slot minus the end of the one before, in nanoseconds; the first counts from the block's start.
    pub gap_ns: Vec<u64>,
    /// Elapsed time of each slot, in nanoseconds.
    pub elapsed_ns: Vec<u64>,
}

/// What was observed around a quad: the system counts time in steps of 10 ms, so the values are those of the window of at
/// least 100 ms that the quad lies in. What a card says is read after the quad and is that moment's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QuadObservation {
    /// Time the hypervisor gave to others, in parts per million of the CPUs' time; `null` where the system does not say.
    pub steal_ppm: Option<u32>,
    /// CPU time of other processes, in parts per million of the CPUs' time; `null` where the system does not say.
    pub foreign_ppm: Option<u32>,
    /// Clock frequency in kHz, of a card that of its multiprocessors; `null` where the system does not say.
    pub clock_khz: Option<u64>,
    /// Why a card's clocks are what they are, as the word that its driver gives. Left out where there is no card or no word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_reasons: Option<u64>,
    /// Temperature of a card in thousandths of a degree Celsius. Left out as above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_mc: Option<u64>,
    /// Power of a card in milliwatts. Left out as above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_mw: Option<u64>,
}

/// A quad that does not count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VoidQuad {
    /// Index of the quad in its block.
    pub quad: u32,
    /// Reason: `steal`, `foreign`, `clock` or `throttle`.
    pub reason: String,
    /// Arm the reason is blamed on, where it is one.
    pub blamed: Option<String>,
}

/// The outcome of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verdict {
    /// The challenger is faster by more than the larger of band and smallest difference.
    Faster,
    /// The challenger is slower by more than that.
    Slower,
    /// The difference is smaller than that.
    Equivalent,
    /// The interval covers both.
    Undecided,
    /// The measurement does not count.
    Void,
    /// The two sides are not the same cell.
    Incomparable,
}

/// What follows from the blocks of one cell in one replicate. Ratios are B against A; negative means B is faster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CellResult {
    /// Quads that count.
    pub n: u32,
    /// Median time of a launch of A, in picoseconds.
    pub median_a_ps: Option<u64>,
    /// Median time of a launch of B, in picoseconds.
    pub median_b_ps: Option<u64>,
    /// Hodges-Lehmann estimate of ln(B/A), in parts per million.
    pub theta_ppm: Option<i64>,
    /// Lower end of the signed-rank interval of theta.
    pub lo_ppm: Option<i64>,
    /// Upper end.
    pub hi_ppm: Option<i64>,
    /// exp(theta) - 1, in parts per million.
    pub delta_ppm: Option<i64>,
    /// Estimate of each A/A block, in parts per million.
    pub aa_theta_ppm: Vec<i64>,
    /// Noise band: the largest absolute A/A estimate; `null` where there is no A/A block.
    pub band_ppm: Option<i64>,
    /// A/A blocks behind the band.
    pub band_m: u32,
    /// max(band, smallest difference worth shipping): what the verdict was judged by.
    pub tau_ppm: Option<i64>,
    /// Minimum detectable effect at 5 % and power 0.8, never below the band.
    pub mde_ppm: Option<i64>,
    /// Two-sided sign test, in parts per million.
    pub sign_p_ppm: Option<u64>,
    /// Verdict.
    pub verdict: Verdict,
    /// Whether the band rests on fewer than 22 A/A blocks.
    pub is_provisional: bool,
    /// Why the cell is void, incomparable or without an estimate; empty otherwise.
    pub reasons: Vec<String>,
}

/// The verdict on a cell over all replicates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VerdictBody {
    /// Name of the cell.
    pub cell: String,
    /// What the cell is.
    pub key: CellKey,
    /// Name of the incumbent.
    pub a: String,
    /// Name of the challenger.
    pub b: String,
    /// `id` of the cell record of each replicate.
    #[schemars(with = "Vec<String>")]
    pub replicates: Vec<Digest>,
    /// Interval: `signed-rank` over the quads of one replicate, `t` over the estimates of several.
    pub interval: String,
    /// The numbers, pooled: with one replicate its own; with several n is the number of replicates, theta their mean,
    /// medians are medians of the replicates' medians, the band is over all A/A blocks.
    pub result: CellResult,
}
