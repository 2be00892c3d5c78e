//! The board: what is written to `boards/<rig>.json`. Integers and text only, fields in declared order.

use crate::error::BoardError;
use memra_contract::digest::Digest;
use memra_ledger::record::{ArmKind, CellKey, RigClass, Verdict};
use serde::{Deserialize, Serialize};

/// Schema name and version of a rig's board.
pub const BOARD_SCHEMA: &str = "memra-lab.board/1.0.0";
/// Schema name and version of the file of figures from elsewhere.
pub const EXTERNAL_SCHEMA: &str = "memra-lab.external/1.0.0";

/// Replicates a binding row needs.
pub(crate) const BINDING_REPLICATES: u32 = 5;
/// A/A blocks a binding row's band needs.
pub(crate) const BINDING_BLOCKS: u32 = 22;

/// Everything a set of receipts says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Boards {
    /// One board a rig, sorted by label.
    pub rigs: Vec<Board>,
    /// Figures from elsewhere. They belong to no rig of ours and are never divided.
    pub external: ExternalFigures,
}

/// The board of one rig.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Board {
    /// [`BOARD_SCHEMA`].
    pub schema: String,
    /// The machine.
    pub rig: RigFacts,
    /// The last check of all variants that was recorded. Left out where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked: Option<CheckedPairs>,
    /// All verdicts of the rig, sorted by cell key and arms; within one key the current one first, then the superseded
    /// and the withdrawn ones, newest first.
    pub rows: Vec<BoardRow>,
    /// Things that ended without a verdict: failed checks and sessions that were cut short.
    pub notes: Vec<String>,
}

/// The machine of a board.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RigFacts {
    /// Label.
    pub label: String,
    /// Whether the label stands in the registry.
    pub is_registered: bool,
    /// sha256 of the canonical JSON of `class`.
    pub fingerprint: Digest,
    /// What makes two machines the same rig.
    pub class: RigClass,
    /// Operating-system kernel releases its sessions ran on, sorted.
    pub os_releases: Vec<String>,
    /// Memory sizes its sessions reported, in bytes, sorted.
    pub memory_bytes: Vec<u64>,
    /// Sessions folded into the board.
    pub sessions: u32,
}

/// A check of all variants of a rig on their committed cases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckedPairs {
    /// Pairs of a variant and a case.
    pub pairs: u64,
    /// Variants.
    pub variants: u32,
    /// Variants of those that failed.
    pub failed_variants: u32,
    /// Date of the session, RFC 3339.
    pub date: String,
    /// The session record: `receipts/<rig>/<file>.jsonl#<first 12 digits of its id>`.
    pub receipt: String,
}

/// Where a row stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowStatus {
    /// Current, on at least 5 replicates and a band of at least 22 A/A blocks.
    Binding,
    /// Current, on less than that.
    Provisional,
    /// Current, but the measurement does not count.
    Void,
    /// Replaced by a later verdict on the same cell and arms.
    Superseded,
    /// Taken back by a correction.
    Withdrawn,
    /// Measured elsewhere.
    External,
}

impl RowStatus {
    /// Lower-case name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Binding => "binding",
            Self::Provisional => "provisional",
            Self::Void => "void",
            Self::Superseded => "superseded",
            Self::Withdrawn => "withdrawn",
            Self::External => "external",
        }
    }
}

/// One verdict. Ratios are B against A; negative means B is faster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoardRow {
    /// Where the row stands.
    pub status: RowStatus,
    /// Name of the cell.
    pub cell: String,
    /// What the cell is: contract, problem, inputs, device key, cache mode, host mode, clock regime, threads.
    pub key: CellKey,
    /// The incumbent.
    pub a: RowArm,
    /// The challenger.
    pub b: RowArm,
    /// Verdict, as its receipt says it.
    pub verdict: Verdict,
    /// exp(theta) - 1, in parts per million.
    pub delta_ppm: Option<i64>,
    /// Lower end of the interval of delta, from `lo_ppm`.
    pub delta_lo_ppm: Option<i64>,
    /// Upper end of the interval of delta, from `hi_ppm`.
    pub delta_hi_ppm: Option<i64>,
    /// Estimate of ln(B/A), in parts per million.
    pub theta_ppm: Option<i64>,
    /// Lower end of its interval.
    pub lo_ppm: Option<i64>,
    /// Upper end.
    pub hi_ppm: Option<i64>,
    /// How the interval was made: `signed-rank` over quads or `t` over replicates.
    pub interval: String,
    /// Median time of a launch of A, in picoseconds.
    pub median_a_ps: Option<u64>,
    /// Median time of a launch of B, in picoseconds.
    pub median_b_ps: Option<u64>,
    /// Noise band, in parts per million of ln(B/A).
    pub band_ppm: Option<i64>,
    /// A/A blocks behind the band.
    pub band_m: u32,
    /// max(band, smallest difference worth shipping).
    pub tau_ppm: Option<i64>,
    /// Minimum detectable effect at 5 % and power 0.8.
    pub mde_ppm: Option<i64>,
    /// Two-sided sign test, in parts per million.
    pub sign_p_ppm: Option<u64>,
    /// Quads that count with one replicate, replicates with several.
    pub n: u32,
    /// Replicates.
    pub p: u32,
    /// Quads run in all replicates.
    pub quads: u32,
    /// Quads of those that do not count.
    pub void_quads: u32,
    /// Bytes moved by one launch, from the contract's cost; `null` where the replicates disagree or there is none.
    pub moved_bytes: Option<u64>,
    /// Operations of one launch, from the contract's cost.
    pub flops: Option<u64>,
    /// `moved_bytes` over `median_a_ps`.
    pub a_bytes_per_s: Option<u64>,
    /// `moved_bytes` over `median_b_ps`.
    pub b_bytes_per_s: Option<u64>,
    /// `flops` over `median_a_ps`.
    pub a_flops_per_s: Option<u64>,
    /// `flops` over `median_b_ps`.
    pub b_flops_per_s: Option<u64>,
    /// What part of the read ceiling of its weights a matrix product reaches, where the session has measured that ceiling too.
    /// Left out for other rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<RowShare>,
    /// Where engines ran a model: tokens, rates and memory. Left out for other rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<RowWorkload>,
    /// Why the row is void or incomparable.
    pub reasons: Vec<String>,
    /// What a reader must know beside the numbers.
    pub caveats: Vec<String>,
    /// Date of the session, RFC 3339.
    pub date: String,
    /// Start of the session, RFC 3339 in UTC.
    pub started_utc: String,
    /// Session that gave the verdict.
    pub session: String,
    /// Version of the program that measured.
    pub tool_version: String,
    /// Commit the session ran in, if it ran in a checkout.
    pub commit: Option<String>,
    /// The verdict record: `receipts/<rig>/<file>.jsonl#<first 12 digits of its id>`.
    pub receipt: String,
    /// `id` of the cell record of each replicate.
    pub replicates: Vec<Digest>,
    /// Citation of the current row, where this one is superseded.
    pub superseded_by: Option<String>,
    /// Plot of the raw slots, relative to the evidence root; only current rows have one.
    pub plot: Option<String>,
}

/// What part of a read ceiling the arms of a matrix product reach: the ceiling's median time over theirs. Both were measured by
/// the same processes. Shares are in parts per million, rounded down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowShare {
    /// Name of the ceiling's cell.
    pub ceiling: String,
    /// Its faster arm, which is the ceiling.
    pub variant: String,
    /// Bytes it reads: those of the blocks of the weights, rounded up to 16 KiB.
    pub bytes: u64,
    /// Median time of a launch of it, in picoseconds.
    pub median_ps: u64,
    /// The verdict record of the ceiling.
    pub receipt: String,
    /// Share that A reaches, by the medians.
    pub a_ppm: Option<u64>,
    /// The worse end for A: of the replicates' shares, sorted, the one of rank `rank`.
    pub a_low_ppm: Option<u64>,
    /// Share that B reaches.
    pub b_ppm: Option<u64>,
    /// The worse end for B.
    pub b_low_ppm: Option<u64>,
    /// Replicates that measured both cells.
    pub p: u32,
    /// The largest rank that is at or below the median with 95 %; 1, which is the lowest, below 5 replicates.
    pub rank: u32,
}

/// A run of a model by engines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowWorkload {
    /// Tokens of the prompt that a slot processes; 0 where tokens are generated.
    pub prompt_tokens: u32,
    /// Tokens that a slot generates; 0 where a prompt is processed.
    pub generated_tokens: u32,
    /// Tokens in the cache before the slot.
    pub depth_tokens: u32,
    /// Timed tokens over `median_a_ps`, in thousandths of a token per second.
    pub a_milli_tokens_per_s: Option<u64>,
    /// Timed tokens over `median_b_ps`, in thousandths of a token per second.
    pub b_milli_tokens_per_s: Option<u64>,
    /// Largest resident memory of A in any replicate, in bytes; `null` where no replicate says it.
    pub a_peak_bytes: Option<u64>,
    /// Largest resident memory of B in any replicate, in bytes; `null` where no replicate says it.
    pub b_peak_bytes: Option<u64>,
}

/// One competitor of a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowArm {
    /// Name in the verdict.
    pub name: String,
    /// Kind; `null` where no replicate was measured.
    pub kind: Option<ArmKind>,
    /// How the variant was named: `explicit`, or a selection reason.
    pub chosen: String,
    /// Weight layout; empty for a process.
    pub layout: String,
    /// Order class; `null` for a process.
    pub order_class: Option<String>,
    /// Instruction-set tier; empty for a process.
    pub isa: String,
    /// Source file relative to the repository.
    pub source: Option<String>,
    /// sha256 of the source text.
    pub source_sha256: Option<Digest>,
    /// Version and build facts a process gave about itself.
    pub about: Vec<String>,
}

/// What is written to `boards/external.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalFigures {
    /// [`EXTERNAL_SCHEMA`].
    pub schema: String,
    /// The figures, sorted by title, date and citation.
    pub figures: Vec<ExternalRow>,
}

impl Default for ExternalFigures {
    fn default() -> Self {
        Self { schema: EXTERNAL_SCHEMA.to_owned(), figures: Vec::new() }
    }
}

/// A figure from elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalRow {
    /// `external`, or `withdrawn`.
    pub status: RowStatus,
    /// What was measured, by whom and on what.
    pub title: String,
    /// Where the figure was read.
    pub source: String,
    /// Date of the figure.
    pub date: String,
    /// The figure in its own unit, times 1000.
    pub value_milli: i64,
    /// The unit.
    pub unit: String,
    /// What a reader must know beside the figure.
    pub caveats: Vec<String>,
    /// The record: `receipts/<...>.jsonl#<first 12 digits of its id>`.
    pub receipt: String,
}

impl BoardRow {
    /// Whether the row is the latest verdict on its cell and arms that was not withdrawn.
    pub fn is_current(&self) -> bool {
        matches!(self.status, RowStatus::Binding | RowStatus::Provisional | RowStatus::Void)
    }

    /// Whether the row may stand in a headline table: current, counted and decided.
    pub fn is_headline(&self) -> bool {
        matches!(self.status, RowStatus::Binding | RowStatus::Provisional) && is_decided(self.verdict)
    }
}

impl Board {
    /// The current rows, in board order.
    pub fn current(&self) -> impl Iterator<Item = &BoardRow> {
        self.rows.iter().filter(|row| row.is_current())
    }

    /// The rows of one status, in board order.
    pub fn with_status(&self, status: RowStatus) -> impl Iterator<Item = &BoardRow> {
        self.rows.iter().filter(move |row| row.status == status)
    }

    /// Path of the board relative to the evidence root.
    pub fn path(&self) -> String {
        format!("boards/{}.json", self.rig.label)
    }

    /// Path of the forest plot relative to the evidence root.
    pub fn forest_path(&self) -> String {
        format!("boards/plots/{}.forest.svg", self.rig.label)
    }

    /// The bytes of the board's file, with a newline at the end.
    ///
    /// # Errors
    ///
    /// [`BoardError::Json`] if serialisation fails.
    pub fn to_json(&self) -> Result<Vec<u8>, BoardError> {
        json(&self.rig.label, self)
    }
}

impl ExternalFigures {
    /// The bytes of `boards/external.json`, with a newline at the end.
    ///
    /// # Errors
    ///
    /// [`BoardError::Json`] if serialisation fails.
    pub fn to_json(&self) -> Result<Vec<u8>, BoardError> {
        json(crate::input::RESERVED_LABEL, self)
    }
}

/// Whether a verdict says something about the difference.
pub(crate) const fn is_decided(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Faster | Verdict::Slower | Verdict::Equivalent)
}

/// Upper-case name of a verdict.
pub(crate) const fn verdict_name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Faster => "FASTER",
        Verdict::Slower => "SLOWER",
        Verdict::Equivalent => "EQUIVALENT",
        Verdict::Undecided => "UNDECIDED",
        Verdict::Void => "VOID",
        Verdict::Incomparable => "INCOMPARABLE",
    }
}

fn json<T: Serialize>(board: &str, value: &T) -> Result<Vec<u8>, BoardError> {
    let mut text =
        serde_json::to_vec_pretty(value).map_err(|source| BoardError::Json { board: board.to_owned(), source })?;
    text.push(b'\n');
    Ok(text)
}
