//! Facts about the program itself, for receipts and promotions.

use std::path::Path;
use std::process::Command;

use memra_contract::device::CudaClass;
use memra_contract::digest::Digest;
use memra_contract::{DeviceKey, IsaTier};
use memra_kernels::contract::Target;
use memra_kernels::ops::CONTRACTS;
use memra_kernels::{Contract, Variant, registry};
use memra_ledger::promotion::{FamilyKey, VariantFacts};
use memra_ledger::record::Tool;
use sha2::{Digest as _, Sha256};

use crate::checkout;

/// sha256 of some bytes.
pub fn sha256(bytes: &[u8]) -> Digest {
    Digest::from_bytes(&Sha256::digest(bytes).into())
}

/// The measuring program: its own bytes, its profile, and the state of the checkout it runs in.
pub fn tool() -> Tool {
    let binary = std::env::current_exe().ok().and_then(|path| std::fs::read(path).ok());
    let checkout = checkout::checkout();
    let git = |arguments: &[&str]| checkout.as_deref().and_then(|folder| git(folder, arguments));
    let difference = git(&["diff", "HEAD", "--", "*.rs", "*.toml", "*.lock", "*.cu", "*.cuh"]);
    let is_dirty = difference.as_ref().map(|text| !text.is_empty());
    Tool {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        binary_sha256: binary.as_deref().map(sha256),
        profile: env!("MEMRA_BUILD_PROFILE").to_owned(),
        commit: git(&["rev-parse", "HEAD"]).map(|text| String::from_utf8_lossy(&text).trim().to_owned()),
        is_dirty,
        dirty_sha256: difference.filter(|text| !text.is_empty()).as_deref().map(sha256),
        lock_sha256: checkout.and_then(|folder| std::fs::read(folder.join("Cargo.lock")).ok()).as_deref().map(sha256),
    }
}

fn git(folder: &Path, arguments: &[&str]) -> Option<Vec<u8>> {
    let output = Command::new("git").arg("-C").arg(folder).args(arguments).output().ok()?;
    output.status.success().then_some(output.stdout)
}

/// What the registry knows of every variant, in the form promotions are judged by.
pub fn variants() -> Vec<VariantFacts> {
    let mut facts = Vec::new();
    for contract in CONTRACTS {
        for variant in contract.variants() {
            facts.push(VariantFacts {
                contract: contract.info().id.to_owned(),
                revision: contract.info().revision,
                variant: variant.name.to_owned(),
                layout: variant.layout.to_owned(),
                order_class: variant.order_class.id.to_owned(),
                isa: variant.target.to_string(),
                source_path: variant.source.path.to_owned(),
                source_sha256: variant.source_sha256(),
                is_baseline: is_baseline(*contract, variant),
            });
        }
    }
    facts
}

/// Whether everything else is compared with a variant: the scalar ones of the host, and on a card the first that serves a
/// committed problem.
fn is_baseline(contract: &dyn Contract, variant: &Variant) -> bool {
    let Target::Cuda(build) = variant.target else { return variant.target.is_within(IsaTier::Scalar) };
    build.archs.iter().any(|arch| {
        let key = DeviceKey::Cuda(CudaClass { arch: *arch, sms: 0, l2_mib: 0, memory_gib: 0, power_w: 0 });
        contract.cases().cases.iter().any(|case| {
            let problem = case.problem().and_then(|problem| contract.normalise(&problem));
            let first = problem.ok().and_then(|problem| registry::baseline(contract, &problem, key).ok());
            first.is_some_and(|first| first.name == variant.name)
        })
    })
}

/// The family a problem belongs to.
pub fn family_of(contract: &str, problem: &str) -> Option<FamilyKey> {
    let contract = registry::contract(contract).ok()?;
    let class = contract.class(&contract.normalise(&problem.parse().ok()?).ok()?).ok()?;
    Some(FamilyKey { format: class.format, class: class.class })
}
