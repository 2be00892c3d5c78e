//! The rules by which a variant becomes a default, loses that place, or is refuted, and the check of what was recorded.
//!
//! Nothing here measures or interprets: a rule compares cited records with each other, with the registry of variants, with
//! the rig registry and with the defaults table, and either makes a ledger entry or says which rule which receipt breaks.
//!
//! Whether receipts are whole, and whether their numbers follow from their raw slots, is the verifier's business
//! ([`crate::verify`]); its findings come in with the [`Receipts`].
//!
//! # The range of a promotion
//!
//! The range m_min..=m_max of a promotion is bound to the cells it cites:
//!
//! - every cited cell lies inside the range, and both ends of the range are cited cells;
//! - of two neighbours among the cited m, the larger is at most [`MAX_M_RATIO`] times the smaller;
//! - the range falls into parts by what serves them so far (a row of the table, or the baseline where there is no row or
//!   the row is void). Each part has a cited cell, and arm A of every cited cell is what serves its m so far.
//!
//! A contract without an axis `m` has no such points: any range may be asked for, and arm A of every cited cell must be
//! what serves each part of it.

mod demote;
mod evidence;
mod examine;
#[cfg(test)]
mod fixture;
mod guard;
mod promote;
mod range;
mod refute;
mod verify;

pub use demote::{Demotion, DemotionRequest, check_demotion};
pub use evidence::Receipts;
pub use guard::{GUARD_ALPHA, holm, student_two_sided};
pub use promote::{Promotion, PromotionRequest, check_promotion};
pub use range::{MAX_M_RATIO, place_row};
pub use refute::{RefutationRequest, check_refutation};
pub use verify::{DEFAULTS_FOLDERS, verify_ledger};

use std::fmt;

use memra_contract::digest::Digest;

use crate::entry::Citation;

/// Fewest replicates, void ones apart, that a promotion, a demotion or a guard may rest on, local ones included.
pub const MIN_REPLICATES: usize = 5;

/// What the registry knows of a variant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariantFacts {
    /// Contract id.
    pub contract: String,
    /// Contract revision.
    pub revision: u32,
    /// Variant name.
    pub variant: String,
    /// Weight layout.
    pub layout: String,
    /// Order class.
    pub order_class: String,
    /// Instruction-set tier.
    pub isa: String,
    /// Source file relative to the repository.
    pub source_path: String,
    /// sha256 of the source text.
    pub source_sha256: Digest,
    /// Whether the variant serves where nothing was promoted.
    pub is_baseline: bool,
}

/// What of a family is read from a problem.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FamilyKey {
    /// Weight format, or `none`.
    pub format: String,
    /// Class of shapes.
    pub class: String,
}

/// The registry, as far as the rules need it.
#[derive(Clone, Copy)]
pub struct RegistryFacts<'a> {
    /// Every registered variant.
    pub variants: &'a [VariantFacts],
    /// The family a problem of a contract belongs to, from contract id and problem text; `None` for no problem of it.
    pub family_of: &'a dyn Fn(&str, &str) -> Option<FamilyKey>,
}

impl<'a> RegistryFacts<'a> {
    /// The facts of a variant at a revision of its contract.
    pub fn find(&self, contract: &str, revision: u32, variant: &str) -> Option<&'a VariantFacts> {
        find_variant(self.variants, contract, revision, variant)
    }
}

fn find_variant<'a>(
    variants: &'a [VariantFacts],
    contract: &str,
    revision: u32,
    variant: &str,
) -> Option<&'a VariantFacts> {
    variants.iter().find(|facts| facts.contract == contract && facts.revision == revision && facts.variant == variant)
}

/// The rules, in the order they are applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rule {
    /// At least one record is cited, none twice.
    Cited,
    /// A cited record exists, once, and is of the needed kind.
    Exists,
    /// The receipts passed verification, the cited files before all.
    Chain,
    /// No correction withdraws the record or what it rests on.
    Withdrawn,
    /// The verdict is the one that is needed, and its numbers say so.
    Verdict,
    /// Enough replicates, all there, none left out.
    Replicates,
    /// Both arms are registered variants and are what the registry says.
    Variant,
    /// The measured source text is the registered one.
    Source,
    /// Both arms passed the gate in the session.
    Gate,
    /// The rig stands in the registry.
    Rig,
    /// All records come from one rig class.
    SameRig,
    /// The records are of the device key the table is for.
    DeviceKey,
    /// All records share clock, cache mode, host mode and threads.
    Regime,
    /// All records judge one variant of one contract.
    SameVariant,
    /// All problems belong to one family, and the row fits into it.
    Family,
    /// The range is covered by the cited cells.
    Range,
    /// Arm A is what serves so far.
    Incumbent,
    /// No guard is slower.
    Guard,
    /// The entry itself can be written.
    Entry,
}

impl Rule {
    /// Name of the rule.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cited => "cited",
            Self::Exists => "exists",
            Self::Chain => "chain",
            Self::Withdrawn => "withdrawn",
            Self::Verdict => "verdict",
            Self::Replicates => "replicates",
            Self::Variant => "variant",
            Self::Source => "source",
            Self::Gate => "gate",
            Self::Rig => "rig",
            Self::SameRig => "same-rig",
            Self::DeviceKey => "device-key",
            Self::Regime => "regime",
            Self::SameVariant => "same-variant",
            Self::Family => "family",
            Self::Range => "range",
            Self::Incumbent => "incumbent",
            Self::Guard => "guard",
            Self::Entry => "entry",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A refused promotion, demotion or refutation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("refused by the rule `{rule}`: {}{why}", .receipt.as_ref().map(|receipt| format!("{receipt}: ")).unwrap_or_default())]
pub struct Refusal {
    /// The broken rule.
    pub rule: Rule,
    /// The receipt that breaks it, where it is one.
    pub receipt: Option<Citation>,
    /// How.
    pub why: String,
}

impl Refusal {
    fn new(rule: Rule, why: impl Into<String>) -> Self {
        Self { rule, receipt: None, why: why.into() }
    }

    fn at(rule: Rule, receipt: &Citation, why: impl Into<String>) -> Self {
        Self { rule, receipt: Some(receipt.clone()), why: why.into() }
    }
}
