//! What ledger entries can say.

use memra_contract::digest::Digest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Citation, EntryError};
use crate::record::{CellKey, CellResult, Verdict};

/// Kind and body of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", content = "body", rename_all = "snake_case")]
pub enum EntryBody {
    /// A variant became the default of a range of a family.
    Promotion(Box<PromotionBody>),
    /// A default lost its place, or is flagged until it is confirmed again.
    Demotion(Box<DemotionBody>),
    /// A mechanism was tried and did not hold.
    Refutation(Box<RefutationBody>),
    /// Something is known to be missing.
    Gap(GapBody),
}

/// A promotion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PromotionBody {
    /// Device key whose defaults table the promotion extends.
    pub device_key: String,
    /// Label of the rig all evidence comes from.
    pub rig: String,
    /// Whether the rig stands in the registry; only local promotions may rest on another one.
    pub is_registered: bool,
    /// Contract id.
    pub contract: String,
    /// Contract revision.
    pub revision: u32,
    /// Weight format of the family.
    pub format: String,
    /// Class of the family.
    pub class: String,
    /// Weight layout.
    pub layout: String,
    /// Order class.
    pub order_class: String,
    /// Smallest m served.
    pub m_min: u64,
    /// Largest m served.
    pub m_max: u64,
    /// The promoted variant.
    pub variant: String,
    /// Its source text.
    pub source: SourceDigest,
    /// Variants that rows of the table named for some of these m before; empty where the baseline served all of them.
    pub replaces: Vec<String>,
    /// What all cited cells share.
    pub regime: Regime,
    /// The cells the variant won.
    pub cells: Vec<CellEvidence>,
    /// Cells it must not lose.
    pub guards: Vec<GuardEvidence>,
}

/// A demotion of a promoted variant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DemotionBody {
    /// Id of the promotion.
    pub promotion: String,
    /// Device key whose defaults table is meant.
    pub device_key: String,
    /// Contract id.
    pub contract: String,
    /// Contract revision.
    pub revision: u32,
    /// Weight format of the family.
    pub format: String,
    /// Class of the family.
    pub class: String,
    /// Smallest m that is no longer served.
    pub m_min: u64,
    /// Largest m that is no longer served.
    pub m_max: u64,
    /// The demoted variant.
    pub variant: String,
    /// Its source text.
    pub source: SourceDigest,
    /// Why.
    pub reason: DemotionReason,
    /// The reason in words.
    pub detail: String,
    /// What all cited cells share; `null` without cells.
    pub regime: Option<Regime>,
    /// The cells the variant lost; empty when stale.
    pub cells: Vec<CellEvidence>,
}

/// Why a default is demoted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DemotionReason {
    /// It lost against another variant: its row leaves the table.
    Slower,
    /// The ground under its evidence moved: its row stays and is flagged.
    Stale,
}

/// A refutation of a mechanism.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RefutationBody {
    /// Name of the mechanism, `[a-z][a-z0-9_]*`.
    pub mechanism: String,
    /// What was expected, in one sentence.
    pub hypothesis: String,
    /// How it failed.
    pub failure: FailureClass,
    /// Device key.
    pub device_key: String,
    /// Label of the rig.
    pub rig: String,
    /// What all cited cells share; `null` where only gates are cited.
    pub regime: Option<Regime>,
    /// Verdicts that refute; each SLOWER or EQUIVALENT.
    pub cells: Vec<CellEvidence>,
    /// Failed gates that refute.
    #[schemars(with = "Vec<String>")]
    pub gates: Vec<Citation>,
    /// The variants that were tried.
    pub variants: Vec<VariantDigest>,
    /// Largest minimum detectable effect of the cited cells in parts per million: a smaller effect was not excluded.
    pub mde_ppm: Option<i64>,
    /// What would make another try worthwhile.
    pub revisit_when: String,
}

/// How a mechanism failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// It is slower.
    Slower,
    /// It changes the time by no more than the tau of the cited verdicts.
    NoEffectAbove,
    /// It changes bits or misses the tolerance.
    BrokeBits,
    /// It cannot be launched with the resources of the device.
    ResourceLimit,
}

/// An open gap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GapBody {
    /// What is missing.
    pub what: String,
    /// Records that show it; may be empty.
    #[schemars(with = "Vec<String>")]
    pub evidence: Vec<Citation>,
    /// What to try next.
    pub next: String,
}

/// A source file and its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceDigest {
    /// Path relative to the repository.
    pub path: String,
    /// sha256 of the text.
    #[schemars(with = "String")]
    pub sha256: Digest,
}

/// A variant and its content.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VariantDigest {
    /// Contract id.
    pub contract: String,
    /// Contract revision.
    pub revision: u32,
    /// Variant name.
    pub variant: String,
    /// sha256 of its source text.
    #[schemars(with = "String")]
    pub source_sha256: Digest,
}

/// What two cells must share, besides the rig, before they may stand in one entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Regime {
    /// Clock regime.
    pub clock: String,
    /// Cache mode.
    pub cache: String,
    /// Host mode.
    pub host_mode: String,
    /// Threads.
    pub threads: u32,
}

impl Regime {
    /// The regime of a cell.
    pub fn of(key: &CellKey) -> Self {
        Self {
            clock: key.clock.clone(),
            cache: key.cache.clone(),
            host_mode: key.host_mode.clone(),
            threads: key.threads,
        }
    }
}

impl std::fmt::Display for Regime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { clock, cache, host_mode, threads } = self;
        write!(f, "clock {clock}, cache {cache}, host mode {host_mode}, {threads} threads")
    }
}

/// A cited verdict and what it says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CellEvidence {
    /// Name of the cell.
    pub cell: String,
    /// Problem in canonical text.
    pub problem: String,
    /// The arm the variant was compared with.
    pub against: String,
    /// The verdict record.
    #[schemars(with = "String")]
    pub record: Citation,
    /// What it says.
    pub verdict: Verdict,
    /// Its numbers.
    pub effect: Effect,
}

/// A guard and how far it is from SLOWER.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GuardEvidence {
    /// The verdict.
    pub evidence: CellEvidence,
    /// Two-sided p of the replicate estimates against tau, Holm-corrected over all guards, in parts per million.
    pub holm_p_ppm: u64,
}

/// The numbers of a verdict in parts per million; negative means that the variant is faster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Effect {
    /// Estimate of ln(B/A).
    pub theta_ppm: Option<i64>,
    /// Lower end of its interval.
    pub lo_ppm: Option<i64>,
    /// Upper end.
    pub hi_ppm: Option<i64>,
    /// Noise band.
    pub band_ppm: Option<i64>,
    /// A/A blocks behind the band.
    pub band_m: u32,
    /// max(band, smallest difference worth shipping).
    pub tau_ppm: Option<i64>,
    /// Minimum detectable effect.
    pub mde_ppm: Option<i64>,
    /// Replicates that count: those that are not void.
    pub replicates: u32,
    /// Whether the band rests on fewer A/A blocks than a firm one.
    pub is_provisional: bool,
}

impl Effect {
    /// The numbers of a verdict's result over `replicates` replicates.
    pub fn of(result: &CellResult, replicates: usize) -> Self {
        Self {
            theta_ppm: result.theta_ppm,
            lo_ppm: result.lo_ppm,
            hi_ppm: result.hi_ppm,
            band_ppm: result.band_ppm,
            band_m: result.band_m,
            tau_ppm: result.tau_ppm,
            mde_ppm: result.mde_ppm,
            replicates: u32::try_from(replicates).unwrap_or(u32::MAX),
            is_provisional: result.is_provisional,
        }
    }
}

impl EntryBody {
    /// Name of the kind.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Promotion(_) => "promotion",
            Self::Demotion(_) => "demotion",
            Self::Refutation(_) => "refutation",
            Self::Gap(_) => "gap",
        }
    }

    /// First letter of the id.
    pub(super) const fn letter(&self) -> char {
        match self {
            Self::Promotion(_) => 'p',
            Self::Demotion(_) => 'd',
            Self::Refutation(_) => 'r',
            Self::Gap(_) => 'g',
        }
    }

    /// The verdicts the entry rests on, guards included.
    pub fn cells(&self) -> Vec<&CellEvidence> {
        match self {
            Self::Promotion(body) => body.cells.iter().chain(body.guards.iter().map(|guard| &guard.evidence)).collect(),
            Self::Demotion(body) => body.cells.iter().collect(),
            Self::Refutation(body) => body.cells.iter().collect(),
            Self::Gap(_) => Vec::new(),
        }
    }

    pub(super) fn citations(&self) -> Vec<&Citation> {
        let others: &[Citation] = match self {
            Self::Promotion(_) | Self::Demotion(_) => &[],
            Self::Refutation(body) => &body.gates,
            Self::Gap(body) => &body.evidence,
        };
        self.cells().into_iter().map(|cell| &cell.record).chain(others).collect()
    }

    pub(super) fn validate(&self) -> Result<(), EntryError> {
        match self {
            Self::Promotion(body) => {
                range(body.m_min, body.m_max)?;
                relative_path("source.path", &body.source.path)?;
                check(!body.cells.is_empty(), "cells", "a promotion cites at least one verdict")
            }
            Self::Demotion(body) => {
                range(body.m_min, body.m_max)?;
                relative_path("source.path", &body.source.path)?;
                text("detail", &body.detail)?;
                let is_slower = body.reason == DemotionReason::Slower;
                check(!is_slower || !body.cells.is_empty(), "cells", "a demotion as slower cites at least one verdict")
            }
            Self::Refutation(body) => {
                one_line("hypothesis", &body.hypothesis)?;
                text("revisit_when", &body.revisit_when)?;
                let mut bytes = body.mechanism.bytes();
                let is_name = bytes.next().is_some_and(|byte| byte.is_ascii_lowercase())
                    && bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
                check(is_name, "mechanism", "a mechanism is named [a-z][a-z0-9_]*")?;
                let has_evidence = !body.cells.is_empty() || !body.gates.is_empty();
                check(has_evidence, "cells", "a refutation cites at least one record")
            }
            Self::Gap(body) => {
                text("what", &body.what)?;
                text("next", &body.next)
            }
        }
    }
}

fn check(holds: bool, field: &str, why: &str) -> Result<(), EntryError> {
    if holds { Ok(()) } else { Err(EntryError::Field { field: field.to_owned(), why: why.to_owned() }) }
}

fn range(m_min: u64, m_max: u64) -> Result<(), EntryError> {
    check(0 < m_min && m_min <= m_max, "m_min", "the range of m is empty")
}

fn text(field: &str, value: &str) -> Result<(), EntryError> {
    check(!value.trim().is_empty(), field, "is empty")?;
    let has_control = value.chars().any(|c| c.is_control() && c != '\n');
    check(!has_control, field, "holds a control character")
}

pub(super) fn one_line(field: &str, value: &str) -> Result<(), EntryError> {
    text(field, value)?;
    check(!value.contains('\n'), field, "is more than one line")?;
    check(value.chars().count() <= 300, field, "is longer than 300 characters")
}

fn relative_path(field: &str, path: &str) -> Result<(), EntryError> {
    let is_relative = !path.is_empty()
        && !path.contains(['\\', ':'])
        && path.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    check(is_relative, field, "is not a path relative to the repository")
}
