//! The rig registry: which machines have a label of their own.
//!
//! A label is never used for another machine and never renamed, because receipts and boards are filed under it. A rig
//! that is gone stays in the registry, marked as retired. The registry says what a machine is, never where it is.

use memra_contract::device::{DeviceKey, DeviceKeyError};
use memra_contract::digest::Digest;
use serde::Deserialize;

use crate::canonical::{self, CanonicalError};
use crate::record::{Rig, RigClass};

/// What the label of every rig outside the registry starts with.
pub const PROVISIONAL: &str = "provisional-";

const BUILTIN: &str = include_str!("../rigs.toml");

/// The registered rigs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RigRegistry {
    rigs: Vec<RegisteredRig>,
}

/// One registered rig.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegisteredRig {
    /// Label: lower-case words joined by dashes.
    pub label: String,
    /// What the machine is, in one line.
    pub title: String,
    /// What it gives evidence of.
    pub produces: Vec<String>,
    /// Whether the project has the machine for itself for as long as it likes.
    pub owned: bool,
    /// Whether the machine is gone. Its receipts stay valid.
    pub retired: bool,
    /// What makes a machine this rig.
    pub class: RigClass,
}

/// The label of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedRig {
    /// Label from the registry, or `provisional-` and the first 8 digits of the fingerprint.
    pub label: String,
    /// Whether the label stands in the registry.
    pub is_registered: bool,
    /// sha256 of the canonical JSON of the class.
    pub fingerprint: Digest,
}

/// Why a registry or a class is refused.
#[derive(Debug, thiserror::Error)]
pub enum RigError {
    /// Not the TOML of a registry.
    #[error("rig registry {name}: {source}")]
    Toml {
        /// File name or label.
        name: String,
        /// What the parser said.
        source: Box<toml::de::Error>,
    },
    /// A rig breaks a rule.
    #[error("rig registry {name}: rig `{label}`: {why}")]
    Rig {
        /// File name or label.
        name: String,
        /// Label of the rig.
        label: String,
        /// The broken rule.
        why: String,
    },
    /// A rig's device key is none.
    #[error("rig registry {name}: rig `{label}`: {source}")]
    Key {
        /// File name or label.
        name: String,
        /// Label of the rig.
        label: String,
        /// Why.
        source: DeviceKeyError,
    },
    /// A class has no canonical text.
    #[error("rig class: {0}")]
    Canonical(#[from] CanonicalError),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RegistryFile {
    #[serde(default)]
    rig: Vec<toml::Table>,
}

impl RigRegistry {
    /// The registry that is part of the program.
    ///
    /// # Errors
    /// [`RigError`] naming the rig that breaks a rule; a test holds the shipped file to having none.
    pub fn builtin() -> Result<Self, RigError> {
        Self::parse("rigs.toml", BUILTIN)
    }

    /// Reads and checks a registry; `name` stands in errors.
    ///
    /// # Errors
    /// [`RigError`] naming the rig that breaks a rule.
    pub fn parse(name: &str, text: &str) -> Result<Self, RigError> {
        let toml_error = |source| RigError::Toml { name: name.to_owned(), source: Box::new(source) };
        let file: RegistryFile = toml::from_str(text).map_err(toml_error)?;
        let mut rigs: Vec<RegisteredRig> = Vec::new();
        for table in file.rig {
            let class_fields: Vec<String> = table
                .get("class")
                .and_then(toml::Value::as_table)
                .map(|class| class.keys().cloned().collect())
                .unwrap_or_default();
            let rig: RegisteredRig = table.try_into().map_err(toml_error)?;
            let refuse = |why: String| RigError::Rig { name: name.to_owned(), label: rig.label.clone(), why };
            let known = canonical::to_value(&rig.class)?;
            if let Some(field) = class_fields.iter().find(|field| known.get(field.as_str()).is_none()) {
                return Err(refuse(format!("a class has no field `{field}`")));
            }
            if !is_label(&rig.label) || rig.label.starts_with(PROVISIONAL) {
                return Err(refuse(format!(
                    "a label is lower-case letters and digits joined by dashes and does not start with `{PROVISIONAL}`"
                )));
            }
            if rig.title.trim().is_empty() || rig.title.contains('\n') {
                return Err(refuse("the title is not one line of text".to_owned()));
            }
            rig.class.device_key.parse::<DeviceKey>().map_err(|source| RigError::Key {
                name: name.to_owned(),
                label: rig.label.clone(),
                source,
            })?;
            if rigs.iter().any(|other| other.label == rig.label) {
                return Err(refuse("stands twice".to_owned()));
            }
            if let Some(other) = rigs.iter().find(|other| is_rig(&other.class, &rig.class)) {
                return Err(refuse(format!("has the class of rig `{}`", other.label)));
            }
            rigs.push(rig);
        }
        Ok(Self { rigs })
    }

    /// The rigs in the order of the file.
    pub fn rigs(&self) -> &[RegisteredRig] {
        &self.rigs
    }

    /// The rig with a label.
    pub fn find(&self, label: &str) -> Option<&RegisteredRig> {
        self.rigs.iter().find(|rig| rig.label == label)
    }

    /// The label of a machine of this class.
    ///
    /// # Errors
    /// [`RigError::Canonical`] when the class has no canonical text.
    pub fn resolve(&self, class: &RigClass) -> Result<ResolvedRig, RigError> {
        let fingerprint = fingerprint(class)?;
        let registered = self.rigs.iter().find(|rig| is_rig(&rig.class, class));
        let label = registered.map_or_else(
            || format!("{PROVISIONAL}{}", fingerprint.as_str().get(..8).unwrap_or_default()),
            |rig| rig.label.clone(),
        );
        Ok(ResolvedRig { label, is_registered: registered.is_some(), fingerprint })
    }

    /// The rig part of a session record: the class, its label, and the two facts that are recorded but not compared.
    ///
    /// # Errors
    /// [`RigError::Canonical`] when the class has no canonical text.
    pub fn describe(&self, class: RigClass, os_release: &str, memory_bytes: u64) -> Result<Rig, RigError> {
        let ResolvedRig { label, is_registered, fingerprint } = self.resolve(&class)?;
        Ok(Rig { label, is_registered, fingerprint, class, os_release: os_release.to_owned(), memory_bytes })
    }
}

/// sha256 of the canonical JSON of a class.
///
/// # Errors
/// [`RigError::Canonical`] when the class has no canonical text.
pub fn fingerprint(class: &RigClass) -> Result<Digest, RigError> {
    Ok(canonical::digest(&canonical::to_value(class)?)?)
}

/// Whether a machine of a class is a registered rig: every field of the class is compared, and none is left to chance. A card's
/// class holds nothing of the host it is in.
fn is_rig(registered: &RigClass, class: &RigClass) -> bool {
    let RigClass {
        device_key,
        vendor,
        family,
        model,
        stepping,
        cpus,
        l2_bytes,
        last_level_bytes,
        is_virtual,
        power_limit_mw,
        driver,
    } = registered;
    let silicon = (device_key, vendor, family, model, stepping)
        == (&class.device_key, &class.vendor, &class.family, &class.model, &class.stepping);
    let caches = (l2_bytes, last_level_bytes) == (&class.l2_bytes, &class.last_level_bytes);
    let regime = (cpus, is_virtual, power_limit_mw, driver)
        == (&class.cpus, &class.is_virtual, &class.power_limit_mw, &class.driver);
    silicon && caches && regime
}

fn is_label(text: &str) -> bool {
    !text.is_empty()
        && text
            .split('-')
            .all(|word| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(label: &str, stepping: u32) -> String {
        format!(
            "[[rig]]\nlabel = \"{label}\"\ntitle = \"a machine\"\nproduces = [\"cells\"]\nowned = false\nretired = false\n\
             [rig.class]\ndevice_key = \"host-x86_64-avx2\"\nvendor = \"v\"\nfamily = 6\nmodel = 1\nstepping = {stepping}\n\
             cpus = 4\nis_virtual = false\n"
        )
    }

    #[test]
    fn the_shipped_registry_has_its_rigs_and_finds_them() {
        let registry = RigRegistry::builtin().unwrap();
        assert_eq!(registry.rigs().len(), 2);
        let rig = registry.find("emerald-2c-vm").unwrap();
        assert_eq!(rig.class.l2_bytes, Some(2 << 20));
        assert_eq!(rig.class.last_level_bytes, Some(260 << 20));
        let resolved = registry.resolve(&rig.class).unwrap();
        assert_eq!((resolved.label.as_str(), resolved.is_registered), ("emerald-2c-vm", true));
        let card = &registry.find("h200-1gpu").unwrap().class;
        assert_eq!((card.cpus, card.is_virtual), (0, false), "the host is no part of a card's class");
        assert_eq!(registry.resolve(card).unwrap().label, "h200-1gpu");
        for other in [
            RigClass { driver: None, ..card.clone() },
            RigClass { driver: Some("580.1".to_owned()), ..card.clone() },
            RigClass { power_limit_mw: Some(600_000), ..card.clone() },
            RigClass { cpus: 16, ..card.clone() },
        ] {
            assert!(!registry.resolve(&other).unwrap().is_registered, "{other:?}");
        }
    }

    #[test]
    fn another_class_is_provisional_and_named_by_its_fingerprint() {
        let registry = RigRegistry::parse("t", &(entry("one", 1) + &entry("two-a", 2))).unwrap();
        let known = registry.find("two-a").unwrap().class.clone();
        let described = registry.describe(known.clone(), "6.1.0", 1 << 30).unwrap();
        assert_eq!((described.label.as_str(), described.is_registered), ("two-a", true));
        let other = RigClass { cpus: 2, ..known.clone() };
        let resolved = registry.resolve(&other).unwrap();
        assert!(!resolved.is_registered);
        assert_eq!(resolved.label, format!("provisional-{}", &resolved.fingerprint.as_str()[..8]));
        assert_ne!(resolved.fingerprint, fingerprint(&known).unwrap());
    }

    #[test]
    fn the_fingerprint_of_a_class_is_fixed() {
        let registry = RigRegistry::parse("t", &entry("one", 1)).unwrap();
        let text = "{\"cpus\":4,\"device_key\":\"host-x86_64-avx2\",\"family\":6,\"is_virtual\":false,\"l2_bytes\":null,\
                    \"last_level_bytes\":null,\"model\":1,\"power_limit_mw\":null,\"stepping\":1,\"vendor\":\"v\"}";
        assert_eq!(fingerprint(&registry.rigs()[0].class).unwrap(), canonical::sha256(text.as_bytes()));
    }

    #[test]
    fn broken_registries_are_named() {
        for (text, why) in [
            (entry("one", 1) + &entry("one", 2), "rig `one`: stands twice"),
            (entry("one", 1) + &entry("two", 1), "rig `two`: has the class of rig `one`"),
            (entry("One", 1), "rig `One`: a label is"),
            (entry("a--b", 1), "rig `a--b`: a label is"),
            (entry("provisional-0123", 1), "does not start with `provisional-`"),
            (entry("one", 1) + "colour = 1\n", "rig `one`: a class has no field `colour`"),
            (entry("one", 1).replace("owned", "host = \"h\"\nowned"), "host"),
            (entry("one", 1).replace("avx2", "mmx"), "`host-x86_64-mmx` is not a device key"),
            (entry("one", 1).replace("a machine", " "), "one line"),
            (entry("one", 1).replace("cpus = 4", ""), "cpus"),
            ("colour = 1".to_owned(), "colour"),
        ] {
            let error = RigRegistry::parse("file.toml", &text).unwrap_err().to_string();
            assert!(error.contains("file.toml") && error.contains(why), "{error}");
        }
    }
}
