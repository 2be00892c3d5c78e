//! The record that opens a session.

use memra_contract::digest::Digest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Tool, rig, regime and plan of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionBody {
    /// The program that measured.
    pub tool: Tool,
    /// The machine.
    pub rig: Rig,
    /// Clock regime: `free` where the lab does not lock clocks.
    pub clock: String,
    /// Threads of the cells that do not name a number of their own.
    pub threads: u32,
    /// What was declared before the first slot.
    pub plan: SessionPlan,
    /// The command line without paths: option names and values that name registered things.
    pub command: Vec<String>,
    /// Start, RFC 3339 in UTC.
    pub started_utc: String,
}

/// The program that measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tool {
    /// Crate version.
    pub version: String,
    /// sha256 of the running binary.
    #[schemars(with = "Option<String>")]
    pub binary_sha256: Option<Digest>,
    /// Build profile.
    pub profile: String,
    /// Commit of the checkout the session ran in, if it ran in one.
    pub commit: Option<String>,
    /// Whether tracked files differed from the commit; `null` outside a checkout.
    pub is_dirty: Option<bool>,
    /// sha256 of the difference from the commit, where it is dirty.
    #[schemars(with = "Option<String>")]
    pub dirty_sha256: Option<Digest>,
    /// sha256 of the lock file the binary was built from.
    #[schemars(with = "Option<String>")]
    pub lock_sha256: Option<Digest>,
}

/// The machine a session ran on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rig {
    /// Label from the rig registry, or `provisional-` and the first digits of the fingerprint.
    pub label: String,
    /// Whether the label stands in the registry.
    pub is_registered: bool,
    /// sha256 of the canonical JSON of `class`.
    #[schemars(with = "String")]
    pub fingerprint: Digest,
    /// What makes two machines the same rig.
    pub class: RigClass,
    /// Operating-system kernel release; recorded, not compared.
    pub os_release: String,
    /// Total memory in bytes; recorded, not compared.
    pub memory_bytes: u64,
}

/// What makes two machines the same rig.
///
/// Where a card is what measures, the class is the card's: family and model are its compute capability, both caches its
/// level-2 cache, the power limit the enforced one; CPUs are 0 and no hypervisor counts, because the host is not part of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct RigClass {
    /// Device key, for example `host-x86_64-avx2`.
    pub device_key: String,
    /// CPU vendor.
    pub vendor: String,
    /// CPU family.
    pub family: u32,
    /// CPU model.
    pub model: u32,
    /// CPU stepping.
    pub stepping: u32,
    /// Logical CPUs this process may use.
    pub cpus: u32,
    /// Level-2 cache of one core in bytes, if the machine says.
    pub l2_bytes: Option<u64>,
    /// Last-level cache in bytes, if the machine says.
    pub last_level_bytes: Option<u64>,
    /// Whether a hypervisor is present.
    pub is_virtual: bool,
    /// Power limit in milliwatts; `null` where the machine does not say.
    pub power_limit_mw: Option<u64>,
    /// Driver of a card, as it names itself. Left out for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
}

/// Stopping mode of a session that checks variants and measures no cell.
pub const GATES_ONLY: &str = "gates";

/// What a session declares before its first slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionPlan {
    /// Stopping mode; `fixed`: every cell runs the declared number of quads; `gates`: variants are checked, there is no cell.
    pub stop: String,
    /// Quads of an A/B block and of each A/A block.
    pub quads: u32,
    /// A/A blocks run in each replicate.
    pub aa_blocks: u32,
    /// Replicates, each a fresh process running the whole suite.
    pub replicates: u32,
    /// Seed of cell order, quad order and inputs.
    pub seed: u64,
    /// Smallest difference worth shipping, in parts per million.
    pub smallest_ppm: i64,
    /// Names of the cells, in declared order.
    pub cells: Vec<String>,
}
