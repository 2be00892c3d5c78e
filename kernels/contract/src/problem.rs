//! Problems: values for all free axes of a contract, as one canonical line of text.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// The value of one axis.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AxisValue {
    /// A size.
    Size(u64),
    /// A word, for axes such as the activation type or the list of segments.
    Word(String),
}

impl fmt::Display for AxisValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(n) => write!(f, "{n}"),
            Self::Word(w) => f.write_str(w),
        }
    }
}

/// Values for all free axes of one contract. Prints as `axis=value` joined by commas, axes sorted by name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Problem {
    axes: BTreeMap<String, AxisValue>,
}

/// What can be wrong with a problem.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProblemError {
    /// A part of the text is not `axis=value`.
    #[error("problem `{text}`: `{part}` is not of the form axis=value")]
    Syntax {
        /// The whole text.
        text: String,
        /// The part that was refused.
        part: String,
    },
    /// An axis stands twice.
    #[error("problem `{text}` names the axis `{axis}` twice")]
    Twice {
        /// The whole text.
        text: String,
        /// The repeated axis.
        axis: String,
    },
    /// The contract has no such axis.
    #[error("contract `{contract}` has no axis `{axis}`; its axes are {known}")]
    Unknown {
        /// The contract.
        contract: String,
        /// The axis that was given.
        axis: String,
        /// The contract's axes, joined by commas.
        known: String,
    },
    /// A needed axis is missing.
    #[error("contract `{contract}` needs the axis `{axis}`")]
    Missing {
        /// The contract.
        contract: String,
        /// The axis that is missing.
        axis: String,
    },
    /// The value of an axis is outside the contract.
    #[error("contract `{contract}`: axis `{axis}` cannot be `{value}`: {why}")]
    Value {
        /// The contract.
        contract: String,
        /// The axis.
        axis: String,
        /// The value that was given.
        value: String,
        /// The rule it breaks.
        why: String,
    },
}

impl Problem {
    /// An empty problem, to be filled with [`Problem::with`].
    pub fn new() -> Self {
        Self::default()
    }

    /// The same problem with one axis set to a size.
    #[must_use]
    pub fn with(mut self, axis: &str, size: u64) -> Self {
        self.axes.insert(axis.to_owned(), AxisValue::Size(size));
        self
    }

    /// The same problem with one axis set to a word.
    #[must_use]
    pub fn with_word(mut self, axis: &str, word: &str) -> Self {
        self.axes.insert(axis.to_owned(), AxisValue::Word(word.to_owned()));
        self
    }

    /// The value of an axis.
    pub fn get(&self, axis: &str) -> Option<&AxisValue> {
        self.axes.get(axis)
    }

    /// The axes in order of their names.
    pub fn axes(&self) -> impl Iterator<Item = (&str, &AxisValue)> {
        self.axes.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// The size of an axis.
    ///
    /// # Errors
    /// [`ProblemError`] when the axis is missing, is a word, or lies outside `range`.
    pub fn size(&self, contract: &str, axis: &str, range: std::ops::RangeInclusive<u64>) -> Result<u64, ProblemError> {
        match self.axes.get(axis) {
            None => Err(ProblemError::Missing { contract: contract.to_owned(), axis: axis.to_owned() }),
            Some(AxisValue::Size(n)) if range.contains(n) => Ok(*n),
            Some(value) => Err(ProblemError::Value {
                contract: contract.to_owned(),
                axis: axis.to_owned(),
                value: value.to_string(),
                why: format!("a whole number from {} to {} is needed", range.start(), range.end()),
            }),
        }
    }

    /// The word of an axis.
    ///
    /// # Errors
    /// [`ProblemError::Missing`] when the axis is missing.
    pub fn word(&self, contract: &str, axis: &str) -> Result<String, ProblemError> {
        self.axes
            .get(axis)
            .map(ToString::to_string)
            .ok_or_else(|| ProblemError::Missing { contract: contract.to_owned(), axis: axis.to_owned() })
    }

    /// Refuses axes the contract does not have.
    ///
    /// # Errors
    /// [`ProblemError::Unknown`] naming the first foreign axis.
    pub fn only(&self, contract: &str, known: &[&str]) -> Result<(), ProblemError> {
        match self.axes.keys().find(|axis| !known.contains(&axis.as_str())) {
            None => Ok(()),
            Some(axis) => Err(ProblemError::Unknown {
                contract: contract.to_owned(),
                axis: axis.clone(),
                known: known.join(", "),
            }),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (axis, value)) in self.axes.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            write!(f, "{axis}={value}")?;
        }
        Ok(())
    }
}

impl FromStr for Problem {
    type Err = ProblemError;
    fn from_str(text: &str) -> Result<Self, ProblemError> {
        let mut problem = Self::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let refused = || ProblemError::Syntax { text: text.to_owned(), part: part.to_owned() };
            let (axis, value) = part.split_once('=').ok_or_else(refused)?;
            let (axis, value) = (axis.trim(), value.trim());
            if axis.is_empty() || value.is_empty() {
                return Err(refused());
            }
            let value = match value.parse::<u64>() {
                Ok(n) => AxisValue::Size(n),
                Err(_) => AxisValue::Word(value.to_owned()),
            };
            if problem.axes.insert(axis.to_owned(), value).is_some() {
                return Err(ProblemError::Twice { text: text.to_owned(), axis: axis.to_owned() });
            }
        }
        Ok(problem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_canonical() {
        let problem: Problem = "n=4, m=1,act=q8".parse().unwrap();
        assert_eq!(problem.to_string(), "act=q8,m=1,n=4");
        assert_eq!(problem.to_string().parse(), Ok(problem));
    }

    #[test]
    fn errors_name_the_axis() {
        assert!(matches!("m".parse::<Problem>(), Err(ProblemError::Syntax { .. })));
        assert!(matches!("m=".parse::<Problem>(), Err(ProblemError::Syntax { .. })));
        assert!(matches!("m=1,m=2".parse::<Problem>(), Err(ProblemError::Twice { .. })));
        let problem: Problem = "m=0,x=1".parse().unwrap();
        let error = problem.size("matmul", "m", 1..=64).unwrap_err().to_string();
        assert!(error.contains("`m`") && error.contains("1 to 64"), "{error}");
        let error = problem.only("matmul", &["m", "n"]).unwrap_err().to_string();
        assert!(error.contains("`x`") && error.contains("m, n"), "{error}");
    }
}
