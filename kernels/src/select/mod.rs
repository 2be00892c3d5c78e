//! Selection: which variant serves a problem on a device, and why. One pure function.

mod rows;

pub use rows::{ByRows, LADDER, by_rows};

use memra_contract::defaults::{DefaultRow, DefaultsTable, FamilyDefault};
use memra_contract::{ContractId, DeviceKey, Problem, ProblemError};

use crate::contract::{Contract, ProblemClass, Variant};
use crate::registry::{self, LookupError};

/// How a selection was found, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Asked for by name.
    Forced,
    /// A default promoted on this machine from its own receipts.
    LocalDefault,
    /// A shipped default of this device key.
    ShippedDefault,
    /// A shipped default of another key of the same architecture; not measured here.
    SameArchitecture,
    /// A default of the same class for the nearest number of rows; not measured for this one.
    NearestRows,
    /// A default of the nearest class of shapes; not measured for this one.
    NearestClass,
    /// Nothing was promoted: the highest instruction set that serves, as the engine takes it; never by [`select`].
    HighestTier,
    /// Nothing was promoted: the baseline.
    Baseline,
}

impl Reason {
    /// Lower-case words, as they stand in receipts and listings.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Forced => "asked for",
            Self::LocalDefault => "local default",
            Self::ShippedDefault => "shipped default",
            Self::SameArchitecture => "same architecture, unmeasured",
            Self::NearestRows => "nearest rows, unmeasured",
            Self::NearestClass => "nearest class, unmeasured",
            Self::HighestTier => "highest tier, unmeasured",
            Self::Baseline => "baseline",
        }
    }
}

/// What was selected.
#[derive(Debug, Clone)]
pub struct Selection {
    /// The variant.
    pub variant: &'static Variant,
    /// How it was found.
    pub reason: Reason,
    /// Ledger id of the promotion, where there is one.
    pub promotion: Option<String>,
    /// Defaults that were passed over, and why: void where the source differs, or not runnable here.
    pub passed_over: Vec<String>,
}

/// Tables a selection looks into.
#[derive(Debug, Default)]
pub struct Tables {
    /// Local defaults of this device, if there are some.
    pub local: Option<DefaultsTable>,
    /// Shipped defaults, any keys.
    pub shipped: Vec<DefaultsTable>,
    /// Contract and variant names that go before every default, where the variant serves the problem: to run an engine with
    /// a kernel that is not promoted.
    pub forced: Vec<(String, String)>,
}

/// A selection could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SelectError {
    /// The problem is wrong.
    #[error(transparent)]
    Problem(#[from] ProblemError),
    /// No variant serves it.
    #[error(transparent)]
    Lookup(#[from] LookupError),
}

/// The shipped tables that are compiled in.
///
/// # Errors
/// [`memra_contract::defaults::DefaultsError`] naming the file; a test reads every one.
pub fn shipped() -> Result<Vec<DefaultsTable>, memra_contract::defaults::DefaultsError> {
    SHIPPED.iter().map(|(name, text)| DefaultsTable::parse(name, text)).collect()
}

/// Files under `kernels/defaults`.
const SHIPPED: &[(&str, &str)] = &[
    ("cuda-sm_90a-132sm-60l2-140gib-700w.toml", include_str!("../../defaults/cuda-sm_90a-132sm-60l2-140gib-700w.toml")),
    ("host-x86_64-avx2.toml", include_str!("../../defaults/host-x86_64-avx2.toml")),
    ("host-x86_64-avx512vnni.toml", include_str!("../../defaults/host-x86_64-avx512vnni.toml")),
];

/// Selects a variant for a problem on a device.
///
/// # Errors
/// [`SelectError`] when the problem is wrong or nothing serves it.
pub fn select(
    contract: &'static dyn Contract,
    problem: &Problem,
    key: DeviceKey,
    tables: &Tables,
) -> Result<Selection, SelectError> {
    let problem = contract.normalise(problem)?;
    let class = contract.class(&problem)?;
    let mut search = Search { contract, problem: &problem, class: &class, key, passed_over: Vec::new() };
    if let Some(variant) = search.forced(tables) {
        let passed_over = search.passed_over;
        return Ok(Selection { variant, reason: Reason::Forced, promotion: None, passed_over });
    }
    let found = search.run(tables);
    let passed_over = search.passed_over;
    if let Some((variant, reason, promotion)) = found {
        return Ok(Selection { variant, reason, promotion: Some(promotion), passed_over });
    }
    let variant = registry::baseline(contract, &problem, key)?;
    Ok(Selection { variant, reason: Reason::Baseline, promotion: None, passed_over })
}

struct Search<'a> {
    contract: &'static dyn Contract,
    problem: &'a Problem,
    class: &'a ProblemClass,
    key: DeviceKey,
    passed_over: Vec<String>,
}

type Found = (&'static Variant, Reason, String);

impl Search<'_> {
    /// The first variant asked for by name that serves the problem.
    fn forced(&mut self, tables: &Tables) -> Option<&'static Variant> {
        let names = tables.forced.iter().filter(|(contract, _)| contract == self.contract.info().id);
        for (_, name) in names {
            let variant = match registry::variant(self.contract, name) {
                Ok(variant) => variant,
                Err(error) => {
                    self.passed_over.push(error.to_string());
                    continue;
                }
            };
            match registry::can_run(self.contract, variant, self.problem, self.key) {
                Ok(()) => return Some(variant),
                Err(error) => self.passed_over.push(error.to_string()),
            }
        }
        None
    }

    fn run(&mut self, tables: &Tables) -> Option<Found> {
        let is_own = |table: &&DefaultsTable| table.key() == Ok(self.key);
        let own: Vec<_> = tables.shipped.iter().filter(is_own).collect();
        let mut others: Vec<_> = tables.shipped.iter().filter(|table| self.is_kin(table)).collect();
        // The richest tier first; tables of one tier do not stand twice.
        others.sort_by_key(|table| std::cmp::Reverse(table.key().ok()));
        for (reason, group) in [
            (Reason::LocalDefault, tables.local.iter().collect::<Vec<_>>()),
            (Reason::ShippedDefault, own.clone()),
            (Reason::SameArchitecture, others),
        ] {
            for table in group {
                if let Some(found) = self.exact(table, reason) {
                    return Some(found);
                }
            }
        }
        tables.local.iter().chain(own).find_map(|table| self.nearest(table))
    }

    /// Whether a table is of another key of the same architecture: a host of a poorer tier, or a card that runs the same code.
    fn is_kin(&self, table: &DefaultsTable) -> bool {
        match (table.key(), self.key) {
            (Ok(DeviceKey::Host { arch, tier }), DeviceKey::Host { arch: own, tier: own_tier }) => {
                arch == own && tier < own_tier
            }
            (Ok(DeviceKey::Cuda(class)), DeviceKey::Cuda(own)) => class != own && class.arch == own.arch,
            _ => false,
        }
    }

    fn exact(&mut self, table: &DefaultsTable, reason: Reason) -> Option<Found> {
        let id = ContractId::new(self.contract.info().id).ok()?;
        let family = table.find(&id, &self.class.format, &self.class.class)?;
        self.usable(table, family, reason)
    }

    /// The family of the same contract and format whose class name is nearest in its sizes.
    fn nearest(&mut self, table: &DefaultsTable) -> Option<Found> {
        let mut families: Vec<&FamilyDefault> = table
            .families
            .iter()
            .filter(|family| {
                family.contract.as_str() == self.contract.info().id
                    && family.format == self.class.format
                    && family.class != self.class.class
            })
            .collect();
        families.sort_by_key(|family| (distance(&family.class, &self.class.class), family.class.clone()));
        families.into_iter().find_map(|family| self.usable(table, family, Reason::NearestClass))
    }

    fn usable(&mut self, table: &DefaultsTable, family: &FamilyDefault, reason: Reason) -> Option<Found> {
        let (row, reason) = match family.row(self.class.m) {
            Some(row) => (row, reason),
            None => (self.nearest_row(family)?, reason.max(Reason::NearestRows)),
        };
        match self.judge(family, row) {
            Ok(variant) => Some((variant, reason, row.promotion.clone())),
            Err(why) => {
                self.passed_over.push(format!("{} {} `{}`: {why}", reason.text(), table.device_key, row.variant));
                None
            }
        }
    }

    /// The row of a family whose range is nearest; of two at the same distance the one for fewer rows.
    fn nearest_row<'f>(&self, family: &'f FamilyDefault) -> Option<&'f DefaultRow> {
        let m = self.class.m;
        family.rows.iter().min_by_key(|row| (row.m_min.saturating_sub(m) + m.saturating_sub(row.m_max), row.m_min))
    }

    fn judge(&self, family: &FamilyDefault, row: &DefaultRow) -> Result<&'static Variant, String> {
        let variant = registry::variant(self.contract, row.variant.as_str()).map_err(|error| error.to_string())?;
        if family.revision != self.contract.info().revision {
            return Err(format!(
                "void: promoted for revision {} of the contract, which is at {}",
                family.revision,
                self.contract.info().revision
            ));
        }
        if variant.source_sha256() != row.source_sha256 {
            return Err("void: the source differs from the one that was promoted".to_owned());
        }
        if variant.layout != family.layout || variant.order_class.id != family.order_class {
            return Err("void: layout or order class differs from the family's".to_owned());
        }
        registry::can_run(self.contract, variant, self.problem, self.key).map_err(|error| error.to_string())?;
        Ok(variant)
    }
}

/// Sum of the differences of the numbers in two class names such as `n4^7-k4^4`.
fn distance(a: &str, b: &str) -> u64 {
    let numbers =
        |text: &str| -> Vec<u64> { text.split('-').filter_map(|part| part.rsplit('^').next()?.parse().ok()).collect() };
    let (a, b) = (numbers(a), numbers(b));
    if a.len() != b.len() {
        return u64::MAX;
    }
    a.iter().zip(&b).map(|(a, b)| a.abs_diff(*b)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use memra_contract::device::HostArch;
    use memra_contract::{IsaTier, VariantId};

    const AVX2: DeviceKey = DeviceKey::Host { arch: HostArch::X86_64, tier: IsaTier::Avx2 };
    const AVX512: DeviceKey = DeviceKey::Host { arch: HostArch::X86_64, tier: IsaTier::Avx512Vnni };

    fn matmul() -> &'static dyn Contract {
        registry::contract("matmul").unwrap()
    }

    fn table(key: DeviceKey, class: &str, variant: &str) -> DefaultsTable {
        let facts = registry::variant(matmul(), variant).unwrap();
        let row = DefaultRow {
            m_min: 1,
            m_max: 16,
            variant: VariantId::new(variant).unwrap(),
            source_sha256: facts.source_sha256(),
            promotion: "p-1".to_owned(),
            receipts: Vec::new(),
        };
        let mut table = DefaultsTable::empty(key);
        table.families.push(FamilyDefault {
            contract: ContractId::new("matmul").unwrap(),
            revision: 1,
            format: "q8_0".to_owned(),
            class: class.to_owned(),
            layout: facts.layout.to_owned(),
            order_class: facts.order_class.id.to_owned(),
            rows: vec![row],
        });
        table
    }

    fn selected(key: DeviceKey, m: u64, tables: &Tables) -> Selection {
        let problem = Problem::new().with("m", m).with("k", 576).with_word("seg", "q8_0:49152");
        select(matmul(), &problem, key, tables).unwrap()
    }

    #[test]
    fn reasons_come_in_order() {
        let mut tables = Tables::default();
        assert_eq!(selected(AVX2, 1, &tables).reason, Reason::Baseline);
        tables.shipped.push(table(AVX2, "n4^5-k4^4", "avx2_q8_row"));
        assert_eq!(selected(AVX2, 1, &tables).reason, Reason::NearestClass);
        tables.shipped[0].families.extend(table(AVX2, "n4^7-k4^4", "avx2_q8_panel8").families);
        let selection = selected(AVX2, 1, &tables);
        assert_eq!((selection.reason, selection.variant.name), (Reason::ShippedDefault, "avx2_q8_panel8"));
        assert_eq!(selected(AVX512, 1, &tables).reason, Reason::SameArchitecture);
        tables.local = Some(table(AVX2, "n4^7-k4^4", "avx2_q8_row"));
        assert_eq!(selected(AVX2, 1, &tables).reason, Reason::LocalDefault);
        let selection = selected(AVX2, 17, &tables);
        assert_eq!((selection.reason, selection.variant.name), (Reason::NearestRows, "avx2_q8_row"));
    }

    #[test]
    fn what_is_asked_for_goes_first_where_it_serves() {
        let forced = ["avx2_q8_panel8", "scalar_q8", "no_such"].map(|name| ("matmul".to_owned(), name.to_owned()));
        let tables = Tables { forced: forced.to_vec(), ..Tables::default() };
        let selection = selected(AVX2, 1, &tables);
        assert_eq!((selection.reason, selection.variant.name), (Reason::Forced, "avx2_q8_panel8"));
        let scalar = DeviceKey::Host { arch: HostArch::X86_64, tier: IsaTier::Scalar };
        let selection = selected(scalar, 1, &tables);
        assert_eq!(selection.variant.name, "scalar_q8");
        assert!(selection.passed_over[0].contains("needs avx2"), "{:?}", selection.passed_over);
    }

    #[test]
    fn void_and_foreign_defaults_are_passed_over_aloud() {
        let mut tables = Tables { shipped: vec![table(AVX2, "n4^7-k4^4", "avx2_q8_row")], ..Tables::default() };
        tables.shipped[0].families[0].rows[0].source_sha256 = memra_contract::digest::Digest::from_bytes(&[0; 32]);
        let selection = selected(AVX2, 1, &tables);
        assert_eq!(selection.reason, Reason::Baseline);
        assert!(selection.passed_over[0].contains("source differs"), "{:?}", selection.passed_over);

        let mut tables = Tables { shipped: vec![table(AVX2, "n4^7-k4^4", "avx2_q8_row")], ..Tables::default() };
        tables.shipped[0].families[0].revision = 9;
        assert!(selected(AVX2, 1, &tables).passed_over[0].contains("revision 9"));

        // A table of a richer tier is of no use to a poorer device, and is not looked into.
        let tables = Tables { shipped: vec![table(AVX512, "n4^7-k4^4", "avx512vnni_q8_panel16")], ..Tables::default() };
        assert_eq!(selected(AVX2, 1, &tables).reason, Reason::Baseline);
        // A key that names a device without the needed tier is refused by the variant itself.
        let tables = Tables { local: Some(table(AVX2, "n4^7-k4^4", "avx512vnni_q8_panel16")), ..Tables::default() };
        assert!(selected(AVX2, 1, &tables).passed_over[0].contains("needs avx512vnni"));
    }

    #[test]
    fn shipped_tables_parse_and_stand_under_their_key() {
        for (table, (name, _)) in shipped().unwrap().iter().zip(SHIPPED) {
            assert_eq!(format!("{}.toml", table.device_key), *name);
        }
    }
}
