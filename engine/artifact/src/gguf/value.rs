//! Metadata values.

use std::fmt;

use super::array::Array;

/// The type of a metadata value, with the numbers GGUF gives them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ValueType {
    /// Unsigned byte.
    U8 = 0,
    /// Signed byte.
    I8 = 1,
    /// Unsigned 16-bit integer.
    U16 = 2,
    /// Signed 16-bit integer.
    I16 = 3,
    /// Unsigned 32-bit integer.
    U32 = 4,
    /// Signed 32-bit integer.
    I32 = 5,
    /// IEEE binary32.
    F32 = 6,
    /// A byte that is 0 or 1.
    Bool = 7,
    /// UTF-8 text.
    String = 8,
    /// Values of one type, back to back.
    Array = 9,
    /// Unsigned 64-bit integer.
    U64 = 10,
    /// Signed 64-bit integer.
    I64 = 11,
    /// IEEE binary64.
    F64 = 12,
}

impl ValueType {
    const ALL: [Self; 13] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::F32,
        Self::Bool,
        Self::String,
        Self::Array,
        Self::U64,
        Self::I64,
        Self::F64,
    ];

    /// The type GGUF calls `id`, if there is one.
    pub fn from_id(id: u32) -> Option<Self> {
        Self::ALL.get(id as usize).copied()
    }

    /// The number GGUF stores for this type.
    pub const fn id(self) -> u32 {
        self as u32
    }

    /// Lower-case name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::U16 => "u16",
            Self::I16 => "i16",
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::F32 => "f32",
            Self::Bool => "bool",
            Self::String => "string",
            Self::Array => "array",
            Self::U64 => "u64",
            Self::I64 => "i64",
            Self::F64 => "f64",
        }
    }

    /// Fewest bytes one value of this type takes in an array.
    pub(crate) const fn min_bytes(self) -> u64 {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::String | Self::U64 | Self::I64 | Self::F64 => 8,
            Self::Array => 12,
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One metadata value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Unsigned byte.
    U8(u8),
    /// Signed byte.
    I8(i8),
    /// Unsigned 16-bit integer.
    U16(u16),
    /// Signed 16-bit integer.
    I16(i16),
    /// Unsigned 32-bit integer.
    U32(u32),
    /// Signed 32-bit integer.
    I32(i32),
    /// IEEE binary32.
    F32(f32),
    /// A boolean.
    Bool(bool),
    /// Text.
    String(String),
    /// Values of one type.
    Array(Array),
    /// Unsigned 64-bit integer.
    U64(u64),
    /// Signed 64-bit integer.
    I64(i64),
    /// IEEE binary64.
    F64(f64),
}

impl Value {
    /// The type.
    pub const fn value_type(&self) -> ValueType {
        match self {
            Self::U8(_) => ValueType::U8,
            Self::I8(_) => ValueType::I8,
            Self::U16(_) => ValueType::U16,
            Self::I16(_) => ValueType::I16,
            Self::U32(_) => ValueType::U32,
            Self::I32(_) => ValueType::I32,
            Self::F32(_) => ValueType::F32,
            Self::Bool(_) => ValueType::Bool,
            Self::String(_) => ValueType::String,
            Self::Array(_) => ValueType::Array,
            Self::U64(_) => ValueType::U64,
            Self::I64(_) => ValueType::I64,
            Self::F64(_) => ValueType::F64,
        }
    }

    /// The number, if this is an integer of any type that is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Self::U64(value) => Some(*value),
            other => other.as_i64().and_then(|value| u64::try_from(value).ok()),
        }
    }

    /// The number, if this is an integer of any type that an i64 holds.
    pub fn as_i64(&self) -> Option<i64> {
        Some(match self {
            Self::U8(value) => i64::from(*value),
            Self::I8(value) => i64::from(*value),
            Self::U16(value) => i64::from(*value),
            Self::I16(value) => i64::from(*value),
            Self::U32(value) => i64::from(*value),
            Self::I32(value) => i64::from(*value),
            Self::I64(value) => *value,
            Self::U64(value) => i64::try_from(*value).ok()?,
            Self::F32(_) | Self::F64(_) | Self::Bool(_) | Self::String(_) | Self::Array(_) => {
                return None;
            }
        })
    }

    /// The number, if this is an f32, or an f64 (rounded to the nearest f32).
    pub fn as_f32(&self) -> Option<f32> {
        match self {
            Self::F32(value) => Some(*value),
            Self::F64(value) => Some(*value as f32),
            _ => None,
        }
    }

    /// The number, if this is an f32 or an f64.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::F32(value) => Some(f64::from(*value)),
            Self::F64(value) => Some(*value),
            _ => None,
        }
    }

    /// The boolean, if this is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The text, if this is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(value) => Some(value),
            _ => None,
        }
    }

    /// The array, if this is one.
    pub fn as_array(&self) -> Option<&Array> {
        match self {
            Self::Array(value) => Some(value),
            _ => None,
        }
    }
}

impl fmt::Display for Value {
    /// What the value is, for messages: type and number or length, and the start of a text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::U8(value) => write!(f, "u8 {value}"),
            Self::I8(value) => write!(f, "i8 {value}"),
            Self::U16(value) => write!(f, "u16 {value}"),
            Self::I16(value) => write!(f, "i16 {value}"),
            Self::U32(value) => write!(f, "u32 {value}"),
            Self::I32(value) => write!(f, "i32 {value}"),
            Self::F32(value) => write!(f, "f32 {value}"),
            Self::Bool(value) => write!(f, "bool {value}"),
            Self::String(value) => {
                let shown: String = value.chars().take(40).collect();
                let more = if shown.len() < value.len() { "..." } else { "" };
                write!(f, "string \"{}{more}\"", shown.escape_debug())
            }
            Self::Array(values) => {
                write!(f, "an array of {} {}", values.len(), values.element_type())
            }
            Self::U64(value) => write!(f, "u64 {value}"),
            Self::I64(value) => write!(f, "i64 {value}"),
            Self::F64(value) => write!(f, "f64 {value}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_ids_round_trip() {
        for id in 0..13 {
            assert_eq!(ValueType::from_id(id).map(ValueType::id), Some(id));
        }
        assert_eq!(ValueType::from_id(13), None);
        assert_eq!(ValueType::from_id(u32::MAX), None);
    }

    #[test]
    fn integers_of_every_type_answer_when_they_fit() {
        let values = [
            Value::U8(7),
            Value::I8(7),
            Value::U16(7),
            Value::I16(7),
            Value::U32(7),
            Value::I32(7),
            Value::U64(7),
            Value::I64(7),
        ];
        for value in &values {
            assert_eq!(value.as_u64(), Some(7), "{value}");
            assert_eq!(value.as_i64(), Some(7), "{value}");
        }
        assert_eq!(Value::I32(-1).as_u64(), None);
        assert_eq!(Value::I32(-1).as_i64(), Some(-1));
        assert_eq!(Value::U64(u64::MAX).as_u64(), Some(u64::MAX));
        assert_eq!(Value::U64(u64::MAX).as_i64(), None);
        assert_eq!(Value::Bool(true).as_u64(), None);
        assert_eq!(Value::F32(7.0).as_u64(), None);
    }

    #[test]
    fn values_describe_themselves() {
        assert_eq!(Value::I16(-3).to_string(), "i16 -3");
        assert_eq!(Value::Array(Array::F32(vec![0.0; 3])).to_string(), "an array of 3 f32");
        let long = Value::String("x".repeat(100)).to_string();
        assert_eq!(long, format!("string \"{}...\"", "x".repeat(40)));
    }
}
