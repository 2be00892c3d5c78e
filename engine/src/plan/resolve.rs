//! What was selected for a step, and why.

use memra_contract::{DeviceKey, Problem};
use memra_kernels::contract::{Contract, Variant};
use memra_kernels::registry;
use memra_kernels::select::{ByRows, Reason, Selection, Tables, by_rows};

use crate::error::LoadError;

/// A family that was selected for a step.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// Contract id.
    pub contract: &'static str,
    /// The problem of one row.
    pub problem: String,
    /// Selection by number of rows.
    pub selections: ByRows<Selection>,
    /// Bytes one launch of one row reads.
    pub read_bytes: u64,
    /// Least floating-point operations of one row.
    pub flops: u64,
}

/// Finds selections for the steps of a plan.
pub(super) struct Resolver<'a> {
    pub(super) key: DeviceKey,
    pub(super) tables: &'a Tables,
    pub(super) max_rows: usize,
}

impl Resolver<'_> {
    /// Selects a variant for every number of rows. A family has one layout and one order class: where the selection for more
    /// rows has another, the one for a single row serves on, unmeasured.
    pub(super) fn resolve(
        &self,
        label: &str,
        contract: &'static dyn Contract,
        problem: impl Fn(u64) -> Problem,
        max_rows: usize,
    ) -> Result<Resolved, LoadError> {
        let refuse = |source| LoadError::Select { step: label.to_owned(), source };
        let selections =
            by_rows(contract, &problem, self.key, self.tables, max_rows.min(self.max_rows)).map_err(refuse)?;
        // Where nothing was promoted the baseline would be correct and of no use to anybody.
        let selections = selections.try_map(|rows, selection| {
            let mut selection = selection.clone();
            if selection.reason == Reason::Baseline {
                let problem = contract.normalise(&problem(rows as u64)).map_err(|source| refuse(source.into()))?;
                let highest = registry::highest_tier(contract, &problem, self.key);
                selection.variant = highest.map_err(|source| refuse(source.into()))?;
                selection.reason = Reason::HighestTier;
            }
            Ok::<_, LoadError>(selection)
        })?;
        let first = selections.get(1).clone();
        let selections = selections.try_map(|_, selection| {
            let is_family = (selection.variant.layout, selection.variant.order_class)
                == (first.variant.layout, first.variant.order_class);
            if is_family {
                return Ok::<_, LoadError>(selection.clone());
            }
            let mut serves_on = first.clone();
            if serves_on.promotion.is_some() {
                serves_on.reason = serves_on.reason.max(Reason::NearestRows);
            }
            Ok(serves_on)
        })?;
        let one = contract.normalise(&problem(1)).map_err(|source| refuse(source.into()))?;
        let cost = contract.cost(&one).map_err(|source| refuse(source.into()))?;
        Ok(Resolved {
            contract: contract.info().id,
            problem: one.to_string(),
            selections,
            read_bytes: cost.read_bytes,
            flops: cost.flops,
        })
    }
}

impl Resolved {
    /// The contract's own entry of every selected variant.
    pub(super) fn entries<T>(
        &self,
        label: &str,
        by_name: impl Fn(&str) -> Option<&'static T>,
    ) -> Result<ByRows<&'static T>, LoadError> {
        self.selections.try_map(|_, selection| {
            by_name(selection.variant.name).ok_or_else(|| LoadError::Step {
                step: label.to_owned(),
                why: format!("`{}` is not registered", selection.variant.name),
            })
        })
    }

    /// The variant of a single row.
    pub fn variant(&self) -> &'static Variant {
        self.selections.get(1).variant
    }
}

/// A contract of the registry.
pub(super) fn contract(label: &str, name: &str) -> Result<&'static dyn Contract, LoadError> {
    registry::contract(name).map_err(|error| LoadError::Step { step: label.to_owned(), why: error.to_string() })
}
