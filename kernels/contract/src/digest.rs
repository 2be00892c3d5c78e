//! Content digests as lower-case hexadecimal text.

use std::fmt;

/// A sha256, printed as 64 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

/// Text that is not 64 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a sha256: 64 lower-case hexadecimal digits are needed")]
pub struct DigestError(pub String);

impl Digest {
    /// Prints the 32 bytes of a hash.
    pub fn from_bytes(bytes: &[u8; 32]) -> Self {
        use fmt::Write as _;
        let mut text = String::with_capacity(64);
        for byte in bytes {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        Self(text)
    }

    /// The 64 digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first 12 digits, for people.
    pub fn short(&self) -> &str {
        &self.0[..12]
    }
}

impl TryFrom<String> for Digest {
    type Error = DigestError;
    fn try_from(text: String) -> Result<Self, DigestError> {
        let is_hex = text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if is_hex { Ok(Self(text)) } else { Err(DigestError(text)) }
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sha256_text_is_a_digest() {
        let digest = Digest::from_bytes(&[0xab; 32]);
        assert_eq!(Digest::try_from(digest.to_string()), Ok(digest.clone()));
        assert_eq!(digest.short(), "abababababab");
        for bad in ["", "ab", &"AB".repeat(32), &"g".repeat(64)] {
            assert!(Digest::try_from(bad.to_owned()).is_err());
        }
    }
}
