//! Where evidence goes: the checkout a command runs in, the user's data folder, or `--root`.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use memra_contract::DeviceKey;
use memra_contract::defaults::DefaultsTable;
use memra_kernels::select::{self, Tables};

/// The repository a command runs in, if it runs in one.
pub fn checkout() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    here.ancestors()
        .find(|folder| folder.join("kernels/defaults").is_dir() && folder.join("ledger/rigs.toml").is_file())
        .map(Path::to_owned)
}

/// The folder of this user's own defaults and, outside a checkout, of evidence.
///
/// # Errors
/// When neither `XDG_DATA_HOME` nor `HOME` is set.
pub fn data_folder() -> anyhow::Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(folder) = set("XDG_DATA_HOME").filter(|folder| folder.is_absolute()) {
        return Ok(folder.join("memra-lab"));
    }
    match set("HOME") {
        Some(home) => Ok(home.join(".local/share/memra-lab")),
        None => bail!("no data folder: set XDG_DATA_HOME or HOME, or say where evidence goes with --root"),
    }
}

/// The evidence root: `--root` as given, else the ignored folder `evidence` of the checkout, else the data folder.
///
/// # Errors
/// When there is none, or it cannot be made.
pub fn evidence_root(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    let root = match (given, checkout()) {
        (Some(root), _) => root.to_owned(),
        (None, Some(checkout)) => checkout.join("evidence"),
        (None, None) => data_folder()?.join("evidence"),
    };
    std::fs::create_dir_all(&root).with_context(|| format!("evidence root {}", root.display()))?;
    Ok(root)
}

/// Whether a root holds tracked evidence: it is the checkout itself.
pub fn is_tracked(root: &Path) -> bool {
    let Some(checkout) = checkout() else { return false };
    match (root.canonicalize(), checkout.canonicalize()) {
        (Ok(root), Ok(checkout)) => root == checkout,
        _ => false,
    }
}

/// `, did you mean X?` for the nearest model file in the folder of a file that is not there.
pub fn nearest_model(file: &Path) -> String {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let wanted = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let names: Vec<String> = std::fs::read_dir(folder)
        .map(|entries| entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect())
        .unwrap_or_default();
    let models =
        names.iter().map(String::as_str).filter(|name| Path::new(name).extension().is_some_and(|e| e == "gguf"));
    memra_kernels::registry::nearest(&wanted, models)
}

/// The file of this machine's own defaults.
///
/// # Errors
/// When there is no data folder.
pub fn local_defaults_file(key: DeviceKey) -> anyhow::Result<PathBuf> {
    Ok(data_folder()?.join("defaults").join(format!("{key}.toml")))
}

/// The tables a selection on this device looks into: shipped ones as compiled in, local ones from the data folder.
///
/// # Errors
/// When a table does not parse.
pub fn tables(key: DeviceKey) -> anyhow::Result<Tables> {
    let local = match local_defaults_file(key) {
        Ok(file) if file.is_file() => {
            let text = std::fs::read_to_string(&file).with_context(|| format!("defaults {}", file.display()))?;
            Some(DefaultsTable::parse(&file.display().to_string(), &text)?)
        }
        _ => None,
    };
    Ok(Tables { local, shipped: select::shipped()?, forced: Vec::new() })
}
