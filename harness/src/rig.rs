//! The machine a session runs on: what makes it a rig, and what is recorded beside that.

use std::path::{Path, PathBuf};

use memra_contract::DeviceKey;
use memra_contract::device::CudaClass;
use memra_kernels::backend::Backend as _;
use memra_kernels::backend::host::HostBackend;
use memra_ledger::record::RigClass;

/// Facts about this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFacts {
    /// What makes two machines the same rig.
    pub class: RigClass,
    /// Kernel release of the operating system.
    pub os_release: String,
    /// Total memory in bytes.
    pub memory_bytes: u64,
    /// Memory that can be had without swapping, in bytes.
    pub available_bytes: u64,
}

/// A fact that every receipt needs could not be read.
#[derive(Debug, thiserror::Error)]
pub enum RigReadError {
    /// A file of the system cannot be read.
    #[error("facts about this machine: {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file of the system does not say what it should.
    #[error("facts about this machine: {path} has no line `{line}` in kB")]
    Missing {
        /// The file.
        path: PathBuf,
        /// The line.
        line: &'static str,
    },
    /// The CPU does not say what it is.
    #[error("facts about this machine: the CPU does not give its {what}; only x86-64 CPUs are read")]
    Cpu {
        /// The fact.
        what: &'static str,
    },
}

impl HostFacts {
    /// Reads the facts. `cpus_usable` is the number of CPUs that arms may use.
    ///
    /// Cache sizes and the presence of a hypervisor come from the CPU and the system; the power limit is never given.
    ///
    /// # Errors
    ///
    /// [`RigReadError`] names the fact that cannot be had.
    pub fn read(cpus_usable: u32) -> Result<Self, RigReadError> {
        let memory_path = Path::new("/proc/meminfo");
        let memory = read_file(memory_path)?;
        let bytes = |line| {
            let missing = || RigReadError::Missing { path: memory_path.to_owned(), line };
            memory_line(&memory, line).ok_or_else(missing)
        };
        let cpu = cpu()?;
        let caches = caches(Path::new("/sys/devices/system/cpu/cpu0/cache")).unwrap_or(cpu.caches);
        Ok(Self {
            class: RigClass {
                device_key: HostBackend::detect().device_key().to_string(),
                vendor: cpu.vendor,
                family: cpu.family,
                model: cpu.model,
                stepping: cpu.stepping,
                cpus: cpus_usable,
                l2_bytes: caches.l2_bytes,
                last_level_bytes: caches.last_level_bytes,
                is_virtual: cpu.is_virtual,
                power_limit_mw: None,
                driver: None,
            },
            os_release: read_file(Path::new("/proc/sys/kernel/osrelease"))?.trim().to_owned(),
            memory_bytes: bytes("MemTotal")?,
            available_bytes: bytes("MemAvailable")?,
        })
    }
}

/// What a card says of itself that makes it a rig.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardFacts {
    /// What defaults are keyed by.
    pub class: CudaClass,
    /// Level-2 cache in bytes.
    pub l2_bytes: u64,
    /// Enforced power limit in milliwatts, if the card says.
    pub power_limit_mw: Option<u64>,
    /// The driver's name for itself, if it says.
    pub driver: Option<String>,
}

impl CardFacts {
    /// The rig class. Nothing of the host is in it.
    pub fn rig_class(&self) -> RigClass {
        let (family, model) = self.class.arch.capability();
        RigClass {
            device_key: DeviceKey::Cuda(self.class).to_string(),
            vendor: "NVIDIA".to_owned(),
            family,
            model,
            stepping: 0,
            cpus: 0,
            l2_bytes: Some(self.l2_bytes),
            last_level_bytes: Some(self.l2_bytes),
            is_virtual: false,
            power_limit_mw: self.power_limit_mw,
            driver: self.driver.clone(),
        }
    }
}

/// Cache sizes as far as they are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Caches {
    l2_bytes: Option<u64>,
    last_level_bytes: Option<u64>,
}

impl Caches {
    /// From (level, bytes) of the caches that hold data. The last level is the highest there is.
    fn of(data_caches: &[(u32, u64)]) -> Self {
        let bytes_of = |level| data_caches.iter().find(|cache| cache.0 == level).map(|cache| cache.1);
        Self {
            l2_bytes: bytes_of(2),
            last_level_bytes: data_caches.iter().map(|cache| cache.0).max().and_then(bytes_of),
        }
    }
}

struct Cpu {
    vendor: String,
    family: u32,
    model: u32,
    stepping: u32,
    is_virtual: bool,
    caches: Caches,
}

#[cfg(target_arch = "x86_64")]
fn cpu() -> Result<Cpu, RigReadError> {
    let id = raw_cpuid::CpuId::new();
    let vendor = id.get_vendor_info().ok_or(RigReadError::Cpu { what: "vendor" })?;
    let features = id.get_feature_info().ok_or(RigReadError::Cpu { what: "family and model" })?;
    let data_caches: Vec<(u32, u64)> = id
        .get_cache_parameters()
        .into_iter()
        .flatten()
        .filter(|cache| matches!(cache.cache_type(), raw_cpuid::CacheType::Data | raw_cpuid::CacheType::Unified))
        .filter_map(|cache| {
            let parts = [cache.associativity(), cache.physical_line_partitions(), cache.coherency_line_size()];
            let ways = parts.iter().try_fold(1_u64, |product, &part| product.checked_mul(part as u64))?;
            Some((u32::from(cache.level()), ways.checked_mul(cache.sets() as u64)?))
        })
        .collect();
    Ok(Cpu {
        vendor: vendor.as_str().to_owned(),
        family: u32::from(features.family_id()),
        model: u32::from(features.model_id()),
        stepping: u32::from(features.stepping_id()),
        is_virtual: features.has_hypervisor(),
        caches: Caches::of(&data_caches),
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn cpu() -> Result<Cpu, RigReadError> {
    Err(RigReadError::Cpu { what: "family and model" })
}

/// Caches of a CPU in a folder with one folder `index<n>` a cache; nothing where the folder has none that can be read.
fn caches(folder: &Path) -> Option<Caches> {
    let mut data_caches = Vec::new();
    for entry in std::fs::read_dir(folder).ok()?.flatten() {
        let field = |name: &str| std::fs::read_to_string(entry.path().join(name)).ok();
        let (Some(kind), Some(level), Some(size)) = (field("type"), field("level"), field("size")) else { continue };
        let (Ok(level), Some(bytes)) = (level.trim().parse::<u32>(), size_bytes(size.trim())) else { continue };
        if matches!(kind.trim(), "Data" | "Unified") {
            data_caches.push((level, bytes));
        }
    }
    (!data_caches.is_empty()).then(|| Caches::of(&data_caches))
}

/// A size such as `2048K` or `32M`.
fn size_bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match text.get(digits.len()..)? {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit).filter(|bytes| *bytes > 0)
}

/// The bytes in a line such as `MemTotal:       24684092 kB`.
fn memory_line(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    value.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok()?.checked_mul(1024)
}

fn read_file(path: &Path) -> Result<String, RigReadError> {
    std::fs::read_to_string(path).map_err(|source| RigReadError::Io { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_lines_are_read_by_their_whole_name() {
        let text = "MemTotal:       24684092 kB\nMemFree:        19106360 kB\nMemAvailable:   23067144 kB\nOdd: 3\n";
        assert_eq!(memory_line(text, "MemTotal"), Some(24_684_092 * 1024));
        assert_eq!(memory_line(text, "MemAvailable"), Some(23_067_144 * 1024));
        for name in ["Mem", "Odd", "SwapTotal"] {
            assert_eq!(memory_line(text, name), None, "{name}");
        }
        assert_eq!(memory_line("MemTotal: 99999999999999999999 kB", "MemTotal"), None);
        assert_eq!(memory_line("MemTotal: 18446744073709551615 kB", "MemTotal"), None);
    }

    #[test]
    fn sizes_have_a_unit_or_none() {
        assert_eq!(size_bytes("2048K"), Some(2 << 20));
        assert_eq!(size_bytes("32M"), Some(32 << 20));
        assert_eq!(size_bytes("512"), Some(512));
        for bad in ["", "K", "0K", "12Q", "-1K", "12K3", "99999999999999999999K", "é"] {
            assert_eq!(size_bytes(bad), None, "{bad}");
        }
    }

    #[test]
    fn caches_are_found_by_level_and_kind() {
        let folder = tempfile::tempdir().unwrap();
        let caches_of = |entries: &[(&str, &str, &str)]| {
            let folder = tempfile::tempdir_in(folder.path()).unwrap();
            std::fs::write(folder.path().join("uevent"), "").unwrap();
            for (index, (level, kind, size)) in entries.iter().enumerate() {
                let cache = folder.path().join(format!("index{index}"));
                std::fs::create_dir(&cache).unwrap();
                for (name, text) in [("level", level), ("type", kind), ("size", size)] {
                    std::fs::write(cache.join(name), format!("{text}\n")).unwrap();
                }
            }
            caches(folder.path())
        };
        let data = ("1", "Data", "48K");
        let code = ("1", "Instruction", "32K");
        let known = |l2_bytes, last_level_bytes| Some(Caches { l2_bytes, last_level_bytes });
        let all = [data, code, ("2", "Unified", "2048K"), ("3", "Unified", "266240K")];
        assert_eq!(caches_of(&all), known(Some(2 << 20), Some(260 << 20)));
        assert_eq!(caches_of(&[data, code, ("2", "Unified", "1M")]), known(Some(1 << 20), Some(1 << 20)));
        assert_eq!(caches_of(&[data, code, ("2", "Unified", "?")]), known(None, Some(48 << 10)));
        assert_eq!(caches_of(&[code]), None);
        assert_eq!(caches(&folder.path().join("missing")), None);
    }

    #[test]
    fn a_card_is_the_rig_that_is_registered() {
        use memra_contract::device::CudaArch;
        let class = CudaClass { arch: CudaArch::Sm90a, sms: 132, l2_mib: 60, memory_gib: 140, power_w: 700 };
        let driver = Some("580.159.04".to_owned());
        let facts = CardFacts { class, l2_bytes: 60 << 20, power_limit_mw: Some(700_000), driver };
        let registry = memra_ledger::rigs::RigRegistry::builtin().unwrap();
        assert_eq!(registry.resolve(&facts.rig_class()).unwrap().label, "h200-1gpu");
        // A limit set below the default is another rig.
        let limited = CardFacts { power_limit_mw: Some(500_000), ..facts };
        assert!(!registry.resolve(&limited.rig_class()).unwrap().is_registered);
    }

    #[test]
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    fn this_machine_says_what_it_is() {
        let facts = HostFacts::read(3).unwrap();
        assert_eq!(facts.class.cpus, 3);
        assert!(facts.class.device_key.starts_with("host-x86_64-"));
        assert!(!facts.class.vendor.is_empty() && facts.class.family > 0);
        assert_eq!(facts.class.power_limit_mw, None);
        assert!(facts.memory_bytes >= facts.available_bytes && facts.available_bytes > 0);
        assert!(!facts.os_release.is_empty() && facts.os_release.trim() == facts.os_release);
        // Two readings agree on what is compared.
        assert_eq!(HostFacts::read(3).unwrap().class, facts.class);
    }
}
