//! `promote`: a variant becomes a default, on the evidence of cited receipts.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use memra_contract::DeviceKey;
use memra_contract::defaults::DefaultsTable;
use memra_ledger::entry::{Citation, write_entry, write_index};
use memra_ledger::promotion::{PromotionRequest, Receipts, RegistryFacts, check_promotion};
use memra_ledger::rigs::RigRegistry;

use crate::cli::PromoteArguments;
use crate::{checkout, facts, ui};

/// Runs the command.
///
/// # Errors
/// The refusal, naming the rule and the receipt; or when a file cannot be read or written.
pub fn run(arguments: &PromoteArguments) -> anyhow::Result<u8> {
    let root = checkout::evidence_root(arguments.root.root.as_deref())?;
    if !arguments.local && !checkout::is_tracked(&root) {
        bail!(
            "shipped defaults rest on tracked evidence: run this in the checkout with --root ., or promote with --local"
        );
    }
    let (m_min, m_max) = range(&arguments.rows)?;
    let verdicts = citations(&arguments.verdicts)?;
    let receipts = Receipts::load(&root);
    let key = device_key(&receipts, &verdicts)?;
    let file = table_file(arguments.local, key)?;
    let table = read_table(&file, key)?;
    let request = PromotionRequest {
        verdicts,
        guards: citations(&arguments.guard)?,
        m_min,
        m_max,
        is_local: arguments.local,
        may_replace_family: arguments.replace_family,
        date: super::today(),
    };
    let variants = facts::variants();
    let registry = RegistryFacts { variants: &variants, family_of: &facts::family_of };
    let promotion = check_promotion(&receipts, &RigRegistry::builtin()?, &registry, &table, &request)?;
    for notice in &promotion.notices {
        ui::say(format_args!("note: {notice}"));
    }
    ui::print(&promotion.entry.title)?;
    if arguments.dry_run {
        ui::print(format_args!("would write {} and {}", promotion.entry.path(), file.display()))?;
        return Ok(0);
    }
    let entry = write_entry(&root, &promotion.entry, &super::privacy())?;
    write_index(&root)?;
    write_table(&file, &promotion.table)?;
    ui::print(format_args!("wrote {entry} and {}", file.display()))?;
    if !arguments.local {
        ui::say(format_args!("note: shipped defaults are compiled in; build again to select by them"));
    }
    for cell in promotion.entry.body.cells() {
        let delta = cell.effect.theta_ppm.map_or_else(|| "no estimate".to_owned(), |ppm| ui::percent(ui::effect(ppm)));
        ui::print(format_args!(
            "  {}: {delta} against {} over {} replicates",
            cell.cell, cell.against, cell.effect.replicates
        ))?;
    }
    Ok(0)
}

/// The device that the first verdict was measured on; the rules of a promotion hold all others against it.
fn device_key(receipts: &Receipts, verdicts: &[Citation]) -> anyhow::Result<DeviceKey> {
    let first = verdicts.first().context("no verdict is cited")?;
    let found = receipts.find(first).with_context(|| format!("verdict {first}"))?;
    let key = &found.session.rig.class.device_key;
    key.parse().with_context(|| format!("the device of verdict {first}"))
}

fn table_file(is_local: bool, key: DeviceKey) -> anyhow::Result<PathBuf> {
    if is_local {
        return checkout::local_defaults_file(key);
    }
    let checkout = checkout::checkout().context("shipped defaults stand in a checkout, and this is none")?;
    Ok(checkout.join("kernels/defaults").join(format!("{key}.toml")))
}

fn read_table(file: &PathBuf, key: DeviceKey) -> anyhow::Result<DefaultsTable> {
    if !file.is_file() {
        return Ok(DefaultsTable::empty(key));
    }
    let text = std::fs::read_to_string(file).with_context(|| format!("defaults {}", file.display()))?;
    Ok(DefaultsTable::parse(&file.display().to_string(), &text)?)
}

fn write_table(file: &PathBuf, table: &DefaultsTable) -> anyhow::Result<()> {
    let folder = file.parent().context("a defaults file has a folder")?;
    std::fs::create_dir_all(folder).with_context(|| format!("folder {}", folder.display()))?;
    let mut temporary =
        tempfile::NamedTempFile::new_in(folder).with_context(|| format!("folder {}", folder.display()))?;
    std::io::Write::write_all(&mut temporary, table.to_toml()?.as_bytes())?;
    temporary.as_file().sync_all()?;
    temporary.persist(file).with_context(|| format!("defaults {}", file.display()))?;
    Ok(())
}

/// Citations from the command line.
///
/// # Errors
/// The first text that is none.
pub fn citations(texts: &[String]) -> anyhow::Result<Vec<Citation>> {
    texts.iter().map(|text| text.parse::<Citation>().with_context(|| format!("`{text}`"))).collect()
}

/// `N` or `MIN-MAX`.
fn range(text: &str) -> anyhow::Result<(u64, u64)> {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    match (low.trim().parse(), high.trim().parse()) {
        (Ok(low), Ok(high)) if 0 < low && low <= high => Ok((low, high)),
        _ => bail!("--rows `{text}` is not N or MIN-MAX with 1 <= MIN <= MAX"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        assert_eq!(range("1").unwrap(), (1, 1));
        assert_eq!(range("2-16").unwrap(), (2, 16));
        for bad in ["", "0", "3-2", "a-b", "1-", "-1"] {
            assert!(range(bad).is_err(), "{bad}");
        }
    }
}
