//! The metadata of a file: keys and values in file order, with lookup and typed access.

use std::collections::HashMap;

use super::array::Array;
use super::error::GgufError;
use super::strings::StringArray;
use super::value::Value;

/// One key and its value.
#[derive(Debug, Clone)]
pub struct MetadataEntry {
    pub(crate) key: String,
    pub(crate) value: Value,
    pub(crate) offset: u64,
}

impl MetadataEntry {
    /// The key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The value.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Bytes from the start of the file to the value (after its type).
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

/// The metadata of one file.
///
/// The `get_*` functions answer a missing key with [`GgufError::MissingKey`]; the `optional_*` functions answer it with
/// `None`. Both answer a value of another type, or a number that does not fit, with [`GgufError::WrongType`].
#[derive(Debug, Clone)]
pub struct Metadata {
    file: String,
    entries: Vec<MetadataEntry>,
    index: HashMap<String, usize>,
}

impl Metadata {
    /// No metadata yet, of the file of this name.
    pub(crate) fn new(file: &str) -> Self {
        Self { file: file.to_owned(), entries: Vec::new(), index: HashMap::new() }
    }

    /// Appends an entry; false, and nothing appended, where the key is there already.
    #[must_use]
    pub(crate) fn insert(&mut self, entry: MetadataEntry) -> bool {
        if self.index.contains_key(&entry.key) {
            return false;
        }
        self.index.insert(entry.key.clone(), self.entries.len());
        self.entries.push(entry);
        true
    }

    /// Whether the key is there.
    pub(crate) fn contains(&self, key: &str) -> bool {
        self.index.contains_key(key)
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries in file order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &MetadataEntry> {
        self.entries.iter()
    }

    /// The entry of `key`, if there is one.
    pub fn entry(&self, key: &str) -> Option<&MetadataEntry> {
        self.index.get(key).and_then(|index| self.entries.get(*index))
    }

    /// The value of `key`, if there is one.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entry(key).map(MetadataEntry::value)
    }

    fn optional<'a, T>(
        &'a self,
        key: &str,
        wanted: &'static str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, GgufError> {
        let Some(entry) = self.entry(key) else { return Ok(None) };
        match convert(&entry.value) {
            Some(value) => Ok(Some(value)),
            None => Err(GgufError::WrongType {
                file: self.file.clone(),
                offset: entry.offset,
                key: key.to_owned(),
                wanted,
                found: entry.value.to_string(),
            }),
        }
    }

    fn present<T>(&self, key: &str, found: Option<T>) -> Result<T, GgufError> {
        found.ok_or_else(|| GgufError::MissingKey { file: self.file.clone(), key: key.to_owned() })
    }

    /// The text of `key`.
    ///
    /// # Errors
    ///
    /// The key is missing or holds something else.
    pub fn get_str(&self, key: &str) -> Result<&str, GgufError> {
        self.present(key, self.optional_str(key)?)
    }

    /// The text of `key`, if the key is there.
    ///
    /// # Errors
    ///
    /// The key holds something else.
    pub fn optional_str(&self, key: &str) -> Result<Option<&str>, GgufError> {
        self.optional(key, "a string", Value::as_str)
    }

    /// The integer of `key`, stored as an integer of any type and not negative.
    ///
    /// # Errors
    ///
    /// The key is missing, holds something else or a negative number.
    pub fn get_u64(&self, key: &str) -> Result<u64, GgufError> {
        self.present(key, self.optional_u64(key)?)
    }

    /// The integer of `key`, if the key is there.
    ///
    /// # Errors
    ///
    /// The key holds something else or a negative number.
    pub fn optional_u64(&self, key: &str) -> Result<Option<u64>, GgufError> {
        self.optional(key, "an integer of 0 or more", Value::as_u64)
    }

    /// The integer of `key`, stored as an integer of any type and less than 2^32.
    ///
    /// # Errors
    ///
    /// The key is missing, holds something else or a number that does not fit.
    pub fn get_u32(&self, key: &str) -> Result<u32, GgufError> {
        self.present(key, self.optional_u32(key)?)
    }

    /// The integer of `key`, if the key is there.
    ///
    /// # Errors
    ///
    /// The key holds something else or a number that does not fit.
    pub fn optional_u32(&self, key: &str) -> Result<Option<u32>, GgufError> {
        self.optional(key, "an integer from 0 to 2^32 - 1", |value| {
            value.as_u64().and_then(|number| u32::try_from(number).ok())
        })
    }

    /// The number of `key`, stored as f32 or f64.
    ///
    /// # Errors
    ///
    /// The key is missing or holds something else.
    pub fn get_f32(&self, key: &str) -> Result<f32, GgufError> {
        self.present(key, self.optional_f32(key)?)
    }

    /// The number of `key`, if the key is there.
    ///
    /// # Errors
    ///
    /// The key holds something else.
    pub fn optional_f32(&self, key: &str) -> Result<Option<f32>, GgufError> {
        self.optional(key, "a floating-point number", Value::as_f32)
    }

    /// The boolean of `key`.
    ///
    /// # Errors
    ///
    /// The key is missing or holds something else.
    pub fn get_bool(&self, key: &str) -> Result<bool, GgufError> {
        self.present(key, self.optional_bool(key)?)
    }

    /// The boolean of `key`, if the key is there.
    ///
    /// # Errors
    ///
    /// The key holds something else.
    pub fn optional_bool(&self, key: &str) -> Result<Option<bool>, GgufError> {
        self.optional(key, "a boolean", Value::as_bool)
    }

    /// The array of `key`, of any element type.
    ///
    /// # Errors
    ///
    /// The key is missing or holds something else.
    pub fn get_array(&self, key: &str) -> Result<&Array, GgufError> {
        self.present(key, self.optional(key, "an array", Value::as_array)?)
    }

    /// The array of texts of `key`.
    ///
    /// # Errors
    ///
    /// The key is missing or holds something else.
    pub fn get_strings(&self, key: &str) -> Result<&StringArray, GgufError> {
        self.present(key, self.optional_strings(key)?)
    }

    /// The array of texts of `key`, if the key is there.
    ///
    /// # Errors
    ///
    /// The key holds something else.
    pub fn optional_strings(&self, key: &str) -> Result<Option<&StringArray>, GgufError> {
        self.optional(key, "an array of strings", |value| value.as_array().and_then(Array::as_strings))
    }

    /// The array of integers of `key`, of any integer type and none negative.
    ///
    /// # Errors
    ///
    /// The key is missing, holds something else or a negative number.
    pub fn get_u64s(&self, key: &str) -> Result<Vec<u64>, GgufError> {
        self.present(key, self.optional_u64s(key)?)
    }

    /// The array of integers of `key`, if the key is there.
    ///
    /// # Errors
    ///
    /// The key holds something else or a negative number.
    pub fn optional_u64s(&self, key: &str) -> Result<Option<Vec<u64>>, GgufError> {
        self.optional(key, "an array of integers of 0 or more", |value| value.as_array().and_then(Array::to_u64s))
    }

    /// The array of numbers of `key`, stored as f32 or f64.
    ///
    /// # Errors
    ///
    /// The key is missing or holds something else.
    pub fn get_f32s(&self, key: &str) -> Result<Vec<f32>, GgufError> {
        self.present(key, self.optional_f32s(key)?)
    }

    /// The array of numbers of `key`, if the key is there.
    ///
    /// # Errors
    ///
    /// The key holds something else.
    pub fn optional_f32s(&self, key: &str) -> Result<Option<Vec<f32>>, GgufError> {
        self.optional(key, "an array of floating-point numbers", |value| value.as_array().and_then(Array::to_f32s))
    }

    /// One integer for each of `layers` layers: an array of that many, or one integer that holds for all.
    ///
    /// # Errors
    ///
    /// The key is missing, holds something else or a negative number, or an array of another length.
    pub fn get_u64_per_layer(&self, key: &str, layers: usize) -> Result<Vec<u64>, GgufError> {
        let found = self.optional(key, "an integer of 0 or more, or an array of one for each layer", |value| {
            match value.as_array() {
                Some(array) if array.len() == layers => array.to_u64s(),
                Some(_) => None,
                None => value.as_u64().map(|number| vec![number; layers]),
            }
        })?;
        self.present(key, found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(entries: &[(&str, Value)]) -> Metadata {
        let mut metadata = Metadata::new("model.gguf");
        for (key, value) in entries {
            let entry = MetadataEntry { key: (*key).to_owned(), value: value.clone(), offset: 40 };
            assert!(metadata.insert(entry));
        }
        metadata
    }

    #[test]
    fn a_missing_key_and_a_wrong_type_name_file_and_key() {
        let metadata = metadata(&[("llama.block_count", Value::String("30".to_owned()))]);
        assert_eq!(
            metadata.get_u64("llama.context_length").unwrap_err().to_string(),
            "model.gguf: metadata key \"llama.context_length\" is missing"
        );
        assert_eq!(
            metadata.get_u64("llama.block_count").unwrap_err().to_string(),
            "model.gguf: byte 40: metadata \"llama.block_count\" is string \"30\", not an integer of 0 or more"
        );
        assert!(metadata.optional_u64("llama.context_length").unwrap().is_none());
        assert!(metadata.optional_u64("llama.block_count").is_err());
    }

    #[test]
    fn a_second_value_for_a_key_is_refused() {
        let mut metadata = metadata(&[("a", Value::U8(1))]);
        assert!(!metadata.insert(MetadataEntry { key: "a".to_owned(), value: Value::U8(2), offset: 0 }));
        assert_eq!(metadata.get_u64("a").unwrap(), 1);
    }

    #[test]
    fn typed_access_takes_what_fits() {
        let metadata = metadata(&[
            ("count", Value::I32(3)),
            ("large", Value::U64(1 << 40)),
            ("rate", Value::F32(0.5)),
            ("flag", Value::Bool(true)),
            ("tokens", Value::Array(Array::String(StringArray::from_texts(["a", "b"]).unwrap()))),
            ("scores", Value::Array(Array::F32(vec![1.0, 2.0]))),
            ("types", Value::Array(Array::I32(vec![1, 2]))),
        ]);
        assert_eq!(metadata.get_u32("count").unwrap(), 3);
        assert!(metadata.get_u32("large").is_err());
        assert_eq!(metadata.get_f32("rate").unwrap(), 0.5);
        assert!(metadata.get_f32("count").is_err());
        assert!(metadata.get_bool("flag").unwrap());
        assert_eq!(metadata.get_strings("tokens").unwrap().get(1), Some("b"));
        assert!(metadata.get_strings("scores").is_err());
        assert_eq!(metadata.get_f32s("scores").unwrap(), [1.0, 2.0]);
        assert_eq!(metadata.get_u64s("types").unwrap(), [1, 2]);
        assert_eq!(metadata.get_array("types").unwrap().len(), 2);
    }

    #[test]
    fn one_number_holds_for_every_layer_and_an_array_must_have_them_all() {
        let metadata = metadata(&[("same", Value::U32(8)), ("each", Value::Array(Array::I32(vec![8, 4, 8])))]);
        assert_eq!(metadata.get_u64_per_layer("same", 3).unwrap(), [8, 8, 8]);
        assert_eq!(metadata.get_u64_per_layer("each", 3).unwrap(), [8, 4, 8]);
        assert!(metadata.get_u64_per_layer("each", 4).is_err());
    }
}
