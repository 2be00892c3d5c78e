//! `doctor`: what this machine is, what it can run, where evidence goes.

mod cuda;

use memra_contract::defaults::DefaultsTable;
use memra_harness::rig::HostFacts;
use memra_kernels::backend::Backend as _;
use memra_kernels::backend::host::HostBackend;
use memra_kernels::ops::CONTRACTS;
use memra_kernels::registry;
use memra_ledger::rigs::RigRegistry;
use serde::Serialize;

use crate::cuda::Card;
use crate::{checkout, facts, ui};

#[derive(Serialize)]
struct Diagnosis {
    version: &'static str,
    profile: String,
    device_key: String,
    rig: String,
    is_registered: bool,
    class: memra_ledger::record::RigClass,
    memory_bytes: u64,
    card: Option<CardDiagnosis>,
    variants_here: usize,
    variants: usize,
    checkout: bool,
    evidence_root: Option<String>,
    local_defaults: Option<String>,
    shipped_rows: usize,
    local_rows: usize,
    models: Vec<String>,
    cuda: cuda::Cuda,
    findings: Vec<String>,
}

/// A card as a rig; its class can stand in the registry as it is printed.
#[derive(Serialize)]
struct CardDiagnosis {
    name: String,
    rig: String,
    is_registered: bool,
    class: memra_ledger::record::RigClass,
    memory_bytes: u64,
}

impl CardDiagnosis {
    fn of(card: Card) -> anyhow::Result<Self> {
        let class = card.facts.rig_class();
        let rig = RigRegistry::builtin()?.resolve(&class)?;
        let (name, memory_bytes) = (card.name, card.memory_bytes);
        Ok(Self { name, rig: rig.label, is_registered: rig.is_registered, class, memory_bytes })
    }

    fn line(&self) -> String {
        let known = if self.is_registered { "" } else { ", not registered" };
        let (key, mib) = (&self.class.device_key, self.memory_bytes >> 20);
        format!("{} ({key}), {mib} MiB, rig {}{known}", self.name, self.rig)
    }
}

/// Runs the command.
///
/// # Errors
/// When the machine cannot be read at all.
pub fn run(json: bool) -> anyhow::Result<u8> {
    let key = HostBackend::detect().device_key();
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let facts = HostFacts::read(u32::try_from(cpus)?)?;
    let rig = RigRegistry::builtin()?.resolve(&facts.class)?;
    let mut findings = Vec::new();
    if !rig.is_registered {
        findings.push("this rig is not registered: its evidence stays off tracked boards".to_owned());
    }
    if facts.class.last_level_bytes.is_none() {
        findings.push("the last-level cache is unknown: rotating cells need it".to_owned());
    }
    let card = crate::cuda::look(crate::cuda::ORDINAL).ok();
    if let Some(why) = card.as_ref().and_then(|card| card.unobserved.as_ref()) {
        findings.push(format!("NVML does not answer ({why}): a card's power limit and driver are not known"));
    }
    let tables = checkout::tables(key)?;
    let own: Vec<_> = tables.shipped.iter().filter(|table| table.key() == Ok(key)).collect();
    for table in own.iter().copied().chain(&tables.local) {
        findings.extend(void_rows(table));
    }
    let rows = |table: &DefaultsTable| table.families.iter().map(|family| family.rows.len()).sum::<usize>();
    let cuda = cuda::look();
    findings.extend(cuda.faults.iter().cloned());
    let runnable =
        CONTRACTS.iter().flat_map(|contract| contract.variants()).filter(|variant| variant.target.serves(key));
    let diagnosis = Diagnosis {
        version: env!("CARGO_PKG_VERSION"),
        profile: env!("MEMRA_BUILD_PROFILE").to_owned(),
        device_key: key.to_string(),
        rig: rig.label,
        is_registered: rig.is_registered,
        class: facts.class,
        memory_bytes: facts.memory_bytes,
        card: card.map(CardDiagnosis::of).transpose()?,
        variants_here: runnable.count(),
        variants: facts::variants().len(),
        checkout: checkout::checkout().is_some(),
        evidence_root: checkout::evidence_root(None).ok().map(|path| path.display().to_string()),
        local_defaults: checkout::local_defaults_file(key).ok().map(|path| path.display().to_string()),
        shipped_rows: own.into_iter().map(rows).sum(),
        local_rows: tables.local.iter().map(rows).sum(),
        models: models(),
        cuda,
        findings,
    };
    if json {
        ui::print_json(&diagnosis)?;
    } else {
        show(&diagnosis)?;
    }
    Ok(0)
}

/// Rows whose variant is gone or whose source differs.
fn void_rows(table: &DefaultsTable) -> Vec<String> {
    let mut void = Vec::new();
    for family in &table.families {
        for row in &family.rows {
            let name = format!("{}/{} for m = {} to {}", family.contract, row.variant, row.m_min, row.m_max);
            let variant = registry::contract(family.contract.as_str())
                .ok()
                .and_then(|contract| registry::variant(contract, row.variant.as_str()).ok());
            match variant {
                None => void.push(format!("the default {name} is not registered")),
                Some(variant) if variant.source_sha256() != row.source_sha256 => {
                    void.push(format!("the default {name} is void: its source is not the one that was promoted"));
                }
                Some(_) => {}
            }
        }
    }
    void
}

fn models() -> Vec<String> {
    let Some(folder) = checkout::checkout().map(|checkout| checkout.join("models")) else { return Vec::new() };
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<_> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| std::path::Path::new(name).extension().is_some_and(|extension| extension == "gguf"))
        .collect();
    names.sort();
    names
}

fn show(diagnosis: &Diagnosis) -> anyhow::Result<()> {
    let class = &diagnosis.class;
    let mib = |bytes: Option<u64>| bytes.map_or_else(|| "unknown".to_owned(), |bytes| format!("{} MiB", bytes >> 20));
    let mut rows = vec![
        ("version", format!("{} (profile {})", diagnosis.version, diagnosis.profile)),
        ("device key", diagnosis.device_key.clone()),
        ("rig", format!("{}{}", diagnosis.rig, if diagnosis.is_registered { "" } else { " (not registered)" })),
        ("cpu", format!("{} family {} model {} stepping {}", class.vendor, class.family, class.model, class.stepping)),
        ("cpus", format!("{}{}", class.cpus, if class.is_virtual { ", under a hypervisor" } else { "" })),
        ("caches", format!("level 2 {}, last level {}", mib(class.l2_bytes), mib(class.last_level_bytes))),
        ("memory", format!("{} MiB", diagnosis.memory_bytes >> 20)),
        ("card", diagnosis.card.as_ref().map_or_else(|| "none".to_owned(), CardDiagnosis::line)),
        ("variants", format!("{} of {} run here", diagnosis.variants_here, diagnosis.variants)),
        ("defaults", format!("{} shipped rows, {} local rows", diagnosis.shipped_rows, diagnosis.local_rows)),
        ("evidence", diagnosis.evidence_root.clone().unwrap_or_else(|| "nowhere: say --root".to_owned())),
        ("models", if diagnosis.models.is_empty() { "none".to_owned() } else { diagnosis.models.join(", ") }),
    ];
    rows.extend(diagnosis.cuda.rows());
    let rows = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    ui::print(ui::table(&["", ""], rows))?;
    if !diagnosis.is_registered {
        ui::print("\nan entry for ledger/rigs.toml:\n")?;
        ui::print(rig_entry(class))?;
    }
    if let Some(card) = diagnosis.card.as_ref().filter(|card| !card.is_registered) {
        ui::print("\nan entry for the card:\n")?;
        ui::print(rig_entry(&card.class))?;
    }
    for finding in &diagnosis.findings {
        ui::say(format_args!("note: {finding}"));
    }
    Ok(())
}

fn rig_entry(class: &memra_ledger::record::RigClass) -> String {
    let mut text =
        "[[rig]]\nlabel = \"\"\ntitle = \"\"\nproduces = [\"kernel cells\"]\nowned = false\nretired = false\n\n[rig.class]\n"
            .to_owned();
    let mut line = |name: &str, value: String| text.push_str(&[name, " = ", &value, "\n"].concat());
    line("device_key", format!("{:?}", class.device_key));
    line("vendor", format!("{:?}", class.vendor));
    line("family", class.family.to_string());
    line("model", class.model.to_string());
    line("stepping", class.stepping.to_string());
    line("cpus", class.cpus.to_string());
    if let Some(bytes) = class.l2_bytes {
        line("l2_bytes", bytes.to_string());
    }
    if let Some(bytes) = class.last_level_bytes {
        line("last_level_bytes", bytes.to_string());
    }
    line("is_virtual", class.is_virtual.to_string());
    if let Some(milliwatts) = class.power_limit_mw {
        line("power_limit_mw", milliwatts.to_string());
    }
    if let Some(driver) = &class.driver {
        line("driver", format!("{driver:?}"));
    }
    text
}
