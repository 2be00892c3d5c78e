//! One record and its line.

use memra_contract::digest::Digest;
use serde_json::{Map, Value};

use super::{PrivacyError, PrivacyLint};
use crate::canonical::{self, CanonicalError};
use crate::record::{Body, Record, SCHEMA};

/// Why a record has no line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// It holds something that has no canonical text.
    #[error(transparent)]
    Canonical(#[from] CanonicalError),
    /// It holds a private fact.
    #[error(transparent)]
    Private(#[from] PrivacyError),
}

/// Makes the record of a place in a chain, and its line with the line end.
///
/// # Errors
///
/// [`LineError`] names the field that may not be written.
pub fn compose(
    session: &str,
    seq: u64,
    prev: Option<&Digest>,
    body: Body,
    lint: &PrivacyLint,
) -> Result<(Record, String), LineError> {
    let mut fields = match canonical::to_value(&body)? {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    fields.insert("schema".to_owned(), Value::from(SCHEMA));
    fields.insert("seq".to_owned(), Value::from(seq));
    fields.insert("prev".to_owned(), prev.map_or(Value::Null, |id| Value::from(id.as_str())));
    fields.insert("session".to_owned(), Value::from(session));
    let mut value = Value::Object(fields);
    lint.check(&value)?;
    let id = canonical::record_id(&value)?;
    if let Value::Object(fields) = &mut value {
        fields.insert("id".to_owned(), Value::from(id.as_str()));
    }
    let mut line = canonical::text(&value)?;
    line.push('\n');
    let record = Record { schema: SCHEMA.to_owned(), seq, prev: prev.cloned(), session: session.to_owned(), body, id };
    Ok((record, line))
}
