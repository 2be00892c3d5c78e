//! Names of contracts and variants: lower-case words joined by underscores, checked once when they are made.

use std::fmt;

/// A name that breaks the rule `[a-z][a-z0-9_]*`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} `{name}` is not a name: use lower-case letters, digits and underscores, starting with a letter")]
pub struct IdError {
    /// What was being named.
    pub what: &'static str,
    /// The text that was refused.
    pub name: String,
}

fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_lowercase())
        && bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

macro_rules! name_type {
    ($(#[$doc:meta])* $type:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(String);

        impl $type {
            /// Checks the rule and keeps the name.
            ///
            /// # Errors
            /// [`IdError`] when the text is not a name.
            pub fn new(name: impl Into<String>) -> Result<Self, IdError> {
                let name = name.into();
                if is_name(&name) { Ok(Self(name)) } else { Err(IdError { what: $what, name }) }
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $type {
            type Error = IdError;
            fn try_from(name: String) -> Result<Self, IdError> {
                Self::new(name)
            }
        }

        impl From<$type> for String {
            fn from(id: $type) -> Self {
                id.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name_type!(
    /// The name of a contract, for example `matmul`.
    ContractId,
    "contract"
);
name_type!(
    /// The name of a variant inside its contract, for example `avx2_row`.
    VariantId,
    "variant"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        assert!(ContractId::new("rms_norm").is_ok());
        for bad in ["", "Rms", "1a", "a-b", "a b", "_a", "é"] {
            assert!(VariantId::new(bad).is_err(), "{bad}");
        }
    }
}
