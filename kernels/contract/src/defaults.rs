//! The defaults table of one device key: which variant serves which class of problems, and on what evidence.

use serde::{Deserialize, Serialize};

use crate::device::{DeviceKey, DeviceKeyError};
use crate::digest::Digest;
use crate::id::{ContractId, VariantId};

/// The schema name this crate reads and writes.
pub const SCHEMA: &str = "memra-lab.defaults/1";

/// Defaults of one device key, as they stand in `kernels/defaults/<device-key>.toml`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DefaultsTable {
    /// [`SCHEMA`].
    pub schema: String,
    /// The device key, in its text form.
    pub device_key: String,
    /// One entry per (contract, format, class), in that order.
    #[serde(default, rename = "family", skip_serializing_if = "Vec::is_empty")]
    pub families: Vec<FamilyDefault>,
}

/// The promoted family of one (contract, format, class).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FamilyDefault {
    /// Contract id.
    pub contract: ContractId,
    /// Contract revision the evidence was made for.
    pub revision: u32,
    /// Weight format, or `none` for contracts without weights in a block format.
    pub format: String,
    /// Class of shapes, as the contract names it.
    pub class: String,
    /// Weight layout that all rows share.
    pub layout: String,
    /// Order class that all rows share.
    pub order_class: String,
    /// Which variant serves which numbers of rows; ranges do not overlap.
    #[serde(rename = "row")]
    pub rows: Vec<DefaultRow>,
}

/// One range of the m-axis and the variant that serves it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DefaultRow {
    /// Smallest m served.
    pub m_min: u64,
    /// Largest m served.
    pub m_max: u64,
    /// Variant name.
    pub variant: VariantId,
    /// sha256 of the variant's source text; the row is void where it differs.
    pub source_sha256: Digest,
    /// Ledger id of the promotion.
    pub promotion: String,
    /// Receipts the promotion cites, as `file#record`.
    pub receipts: Vec<String>,
}

/// What can be wrong with a table.
#[derive(Debug, thiserror::Error)]
pub enum DefaultsError {
    /// Not the TOML of a table.
    #[error("defaults {name}: {source}")]
    Toml {
        /// File name or label.
        name: String,
        /// What the parser said.
        source: Box<toml::de::Error>,
    },
    /// Another schema.
    #[error("defaults {name}: schema `{found}` is not `{SCHEMA}`")]
    Schema {
        /// File name or label.
        name: String,
        /// The schema in the file.
        found: String,
    },
    /// The key is no device key.
    #[error("defaults {name}: {source}")]
    Key {
        /// File name or label.
        name: String,
        /// Why.
        source: DeviceKeyError,
    },
    /// Two entries for the same class, or rows that overlap or are empty.
    #[error("defaults {name}: {contract} {format} {class}: {why}")]
    Rows {
        /// File name or label.
        name: String,
        /// Contract.
        contract: String,
        /// Format.
        format: String,
        /// Class.
        class: String,
        /// The broken rule.
        why: String,
    },
}

impl DefaultsTable {
    /// A table with no entries.
    pub fn empty(key: DeviceKey) -> Self {
        Self { schema: SCHEMA.to_owned(), device_key: key.to_string(), families: Vec::new() }
    }

    /// Reads and checks a table; `name` stands in errors.
    ///
    /// # Errors
    /// [`DefaultsError`] naming the entry that breaks a rule.
    pub fn parse(name: &str, text: &str) -> Result<Self, DefaultsError> {
        let table: Self = toml::from_str(text)
            .map_err(|source| DefaultsError::Toml { name: name.to_owned(), source: Box::new(source) })?;
        if table.schema != SCHEMA {
            return Err(DefaultsError::Schema { name: name.to_owned(), found: table.schema });
        }
        table.key().map_err(|source| DefaultsError::Key { name: name.to_owned(), source })?;
        for (i, family) in table.families.iter().enumerate() {
            let refuse = |why: String| DefaultsError::Rows {
                name: name.to_owned(),
                contract: family.contract.to_string(),
                format: family.format.clone(),
                class: family.class.clone(),
                why,
            };
            if table.families[..i].iter().any(|other| other.is_for(&family.contract, &family.format, &family.class)) {
                return Err(refuse("stands twice".to_owned()));
            }
            for (j, row) in family.rows.iter().enumerate() {
                if row.m_min == 0 || row.m_min > row.m_max {
                    return Err(refuse(format!("the range m = {}..{} is empty", row.m_min, row.m_max)));
                }
                let overlaps = |other: &&DefaultRow| other.m_min <= row.m_max && row.m_min <= other.m_max;
                if let Some(other) = family.rows[..j].iter().find(overlaps) {
                    return Err(refuse(format!(
                        "m = {}..{} overlaps m = {}..{}",
                        row.m_min, row.m_max, other.m_min, other.m_max
                    )));
                }
            }
        }
        Ok(table)
    }

    /// The device key of the table.
    ///
    /// # Errors
    /// [`DeviceKeyError`] when the text is no key.
    pub fn key(&self) -> Result<DeviceKey, DeviceKeyError> {
        self.device_key.parse()
    }

    /// The table as TOML, entries and rows in order, so that equal tables give equal bytes.
    ///
    /// # Errors
    /// The serializer's error; a table made by [`DefaultsTable::parse`] has none.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        let mut sorted = self.clone();
        sorted.families.sort_by(|a, b| (&a.contract, &a.format, &a.class).cmp(&(&b.contract, &b.format, &b.class)));
        for family in &mut sorted.families {
            family.rows.sort_by_key(|row| row.m_min);
        }
        let body = toml::to_string_pretty(&sorted)?;
        Ok(format!("# Written by `memra-lab promote`; every row cites the receipts it rests on.\n{body}"))
    }

    /// The entry for a class, if there is one.
    pub fn find(&self, contract: &ContractId, format: &str, class: &str) -> Option<&FamilyDefault> {
        self.families.iter().find(|family| family.is_for(contract, format, class))
    }
}

impl FamilyDefault {
    /// Whether this entry is the one for the class.
    pub fn is_for(&self, contract: &ContractId, format: &str, class: &str) -> bool {
        self.contract == *contract && self.format == format && self.class == class
    }

    /// The row that serves `m`, if there is one.
    pub fn row(&self, m: u64) -> Option<&DefaultRow> {
        self.rows.iter().find(|row| (row.m_min..=row.m_max).contains(&m))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &str) -> String {
        format!(
            "schema = \"{SCHEMA}\"\ndevice_key = \"host-x86_64-avx2\"\n[[family]]\ncontract = \"matmul\"\nrevision = 1\n\
             format = \"q8_0\"\nclass = \"any\"\nlayout = \"plain\"\norder_class = \"dot_i8_block32_chain8\"\n{rows}"
        )
    }

    fn row(m_min: u64, m_max: u64) -> String {
        format!(
            "[[family.row]]\nm_min = {m_min}\nm_max = {m_max}\nvariant = \"scalar\"\nsource_sha256 = \"{}\"\n\
             promotion = \"p\"\nreceipts = []\n",
            "0".repeat(64)
        )
    }

    #[test]
    fn round_trip_is_byte_stable() {
        let text = table(&(row(2, 64) + &row(1, 1)));
        let parsed = DefaultsTable::parse("t", &text).unwrap();
        let written = parsed.to_toml().unwrap();
        assert_eq!(DefaultsTable::parse("t", &written).unwrap().to_toml().unwrap(), written);
        let contract = ContractId::new("matmul").unwrap();
        let family = parsed.find(&contract, "q8_0", "any").unwrap();
        assert_eq!(family.row(64).unwrap().m_min, 2);
        assert!(family.row(65).is_none());
    }

    #[test]
    fn bad_tables_are_named() {
        for (rows, why) in [(row(2, 1), "is empty"), (row(0, 1), "is empty"), (row(1, 4) + &row(4, 8), "overlaps")] {
            let error = DefaultsTable::parse("t", &table(&rows)).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("matmul q8_0 any"), "{error}");
        }
        let unknown = table(&row(1, 1)) + "colour = 1\n";
        assert!(DefaultsTable::parse("t", &unknown).unwrap_err().to_string().contains("colour"));
    }
}
