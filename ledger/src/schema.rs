//! The published JSON schema of a receipt's records.

use crate::record::Record;

/// The committed text of the schema, relative to the repository.
pub const SCHEMA_PATH: &str = "ledger/schema/receipt.schema.json";

/// The JSON schema of one line of a receipt file.
///
/// Fields it does not know are allowed: a later minor version may add some. Chain and digests are beyond a schema.
pub fn receipt_schema() -> serde_json::Value {
    schemars::schema_for!(Record).to_value()
}

/// The schema as committed: indented, with a line end.
pub fn receipt_schema_text() -> String {
    format!("{:#}\n", receipt_schema())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{Synthetic, SyntheticCell};

    #[test]
    fn the_committed_schema_is_the_generated_one() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("schema/receipt.schema.json");
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            committed == receipt_schema_text(),
            "{SCHEMA_PATH} is stale; regenerate it: memra-lab receipts schema > {SCHEMA_PATH}"
        );
    }

    #[test]
    fn no_record_can_hold_a_float() {
        let text = receipt_schema_text();
        assert!(text.contains("\"integer\""));
        for word in ["\"number\"", "\"float\"", "\"double\""] {
            assert!(!text.contains(word), "{word}");
        }
    }

    #[test]
    fn records_are_valid_and_broken_ones_are_not() {
        let validator = jsonschema::validator_for(&receipt_schema()).unwrap();
        let cells = vec![SyntheticCell::named("first"), SyntheticCell::named("second").with_void_quad(1, "steal")];
        let session = Synthetic { replicates: 2, cells, ..Synthetic::new(3) };
        for line in session.text().unwrap().lines() {
            let mut record: serde_json::Value = serde_json::from_str(line).unwrap();
            let errors: Vec<String> = validator.iter_errors(&record).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "{errors:?}");
            record["later"] = serde_json::json!({"x": 1});
            assert!(validator.is_valid(&record), "fields of later minors are allowed");
            for (field, wrong) in [("seq", serde_json::json!(0.5)), ("kind", "x".into()), ("prev", 1.into())] {
                let mut broken = record.clone();
                broken[field] = wrong;
                assert!(!validator.is_valid(&broken), "{field}");
            }
        }
    }
}
