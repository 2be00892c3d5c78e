//! Finding contracts and variants by name, with the nearest name where there is none.

use memra_contract::{DeviceKey, Problem};

use crate::backend::host::check_target;
use crate::contract::{Contract, PrepareError, Variant};
use crate::ops::CONTRACTS;

/// No such name.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    /// No contract of this name.
    #[error("no contract `{name}`{hint}; there are {known}")]
    Contract {
        /// The name.
        name: String,
        /// The nearest name, as a phrase.
        hint: String,
        /// All names.
        known: String,
    },
    /// No variant of this name.
    #[error("contract `{contract}` has no variant `{name}`{hint}; it has {known}")]
    Variant {
        /// The contract.
        contract: &'static str,
        /// The name.
        name: String,
        /// The nearest name, as a phrase.
        hint: String,
        /// All names.
        known: String,
    },
    /// No variant serves the problem on this device.
    #[error("no variant of `{contract}` serves `{problem}` on {device}")]
    Nothing {
        /// The contract.
        contract: &'static str,
        /// The problem.
        problem: String,
        /// The device key.
        device: DeviceKey,
    },
}

/// `, did you mean X?` for the nearest of some names, empty where none is near.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let best = known
        .into_iter()
        .map(|candidate| (strsim::normalized_damerau_levenshtein(name, candidate), candidate))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    match best {
        Some((likeness, candidate)) if likeness >= 0.4 => format!(", did you mean `{candidate}`?"),
        _ => String::new(),
    }
}

/// The contract of a name.
///
/// # Errors
/// [`LookupError::Contract`] with the nearest name.
pub fn contract(name: &str) -> Result<&'static dyn Contract, LookupError> {
    CONTRACTS.iter().copied().find(|contract| contract.info().id == name).ok_or_else(|| {
        let known: Vec<_> = CONTRACTS.iter().map(|contract| contract.info().id).collect();
        LookupError::Contract {
            name: name.to_owned(),
            hint: nearest(name, known.iter().copied()),
            known: known.join(", "),
        }
    })
}

/// The variant of a name.
///
/// # Errors
/// [`LookupError::Variant`] with the nearest name.
pub fn variant(contract: &dyn Contract, name: &str) -> Result<&'static Variant, LookupError> {
    contract.variants().iter().copied().find(|variant| variant.name == name).ok_or_else(|| {
        let known: Vec<_> = contract.variants().iter().map(|variant| variant.name).collect();
        LookupError::Variant {
            contract: contract.info().id,
            name: name.to_owned(),
            hint: nearest(name, known.iter().copied()),
            known: known.join(", "),
        }
    })
}

/// Whether a variant can run a problem on a device.
///
/// # Errors
/// [`PrepareError`] with the reason.
pub fn can_run(
    contract: &dyn Contract,
    variant: &Variant,
    problem: &Problem,
    key: DeviceKey,
) -> Result<(), PrepareError> {
    check_target(contract, variant, key)?;
    contract.supports(variant, problem)
}

/// The first registered variant that serves a problem on a device: what everything is compared with.
///
/// # Errors
/// [`LookupError::Nothing`] when there is none.
pub fn baseline(contract: &dyn Contract, problem: &Problem, key: DeviceKey) -> Result<&'static Variant, LookupError> {
    contract
        .variants()
        .iter()
        .copied()
        .find(|variant| can_run(contract, variant, problem, key).is_ok())
        .ok_or_else(|| LookupError::Nothing { contract: contract.info().id, problem: problem.to_string(), device: key })
}

/// The variant of the highest instruction set that serves a problem on a device; of several the one registered last. What an
/// engine runs where nothing was promoted: no measurement speaks for it.
///
/// # Errors
/// [`LookupError::Nothing`] when there is none.
pub fn highest_tier(
    contract: &dyn Contract,
    problem: &Problem,
    key: DeviceKey,
) -> Result<&'static Variant, LookupError> {
    contract
        .variants()
        .iter()
        .copied()
        .filter(|variant| can_run(contract, variant, problem, key).is_ok())
        .max_by_key(|variant| variant.target.tier())
        .ok_or_else(|| LookupError::Nothing { contract: contract.info().id, problem: problem.to_string(), device: key })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_names_get_the_nearest_right_one() {
        let error = contract("matmull").err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.contains("did you mean `matmul`"), "{error}");
        let matmul = contract("matmul").unwrap();
        let error = variant(matmul, "avx2_row").unwrap_err().to_string();
        assert!(error.contains("avx2_q8_row"), "{error}");
        assert!(!contract("zzzz").err().unwrap().to_string().contains("did you mean"));
    }

    #[test]
    fn the_highest_tier_is_the_devices() {
        use memra_contract::IsaTier;
        use memra_contract::device::HostArch;
        let matmul = contract("matmul").unwrap();
        let problem = matmul.normalise(&"m=1,k=64,seg=q4_1:8".parse().unwrap()).unwrap();
        let name =
            |tier| highest_tier(matmul, &problem, DeviceKey::Host { arch: HostArch::X86_64, tier }).unwrap().name;
        assert_eq!(name(IsaTier::Scalar), "scalar_q4_1");
        if cfg!(target_arch = "x86_64") {
            assert_eq!(name(IsaTier::Avx2), "avx2_q4_1_panel8");
            assert_eq!(name(IsaTier::Avx512Vnni), "avx512vnni_q4_1_panel16");
        }
    }

    #[test]
    fn names_are_names_and_unique() {
        for contract in CONTRACTS {
            memra_contract::ContractId::new(contract.info().id).unwrap();
            let mut names: Vec<_> = contract.variants().iter().map(|v| v.name).collect();
            for name in &names {
                memra_contract::VariantId::new(*name).unwrap();
            }
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), contract.variants().len());
        }
    }
}
