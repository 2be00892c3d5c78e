//! Whole-number expressions over the axes of a problem: `+ - * /`, `cdiv`, `min`, `max` and brackets.

use std::fmt;

/// Longest expression in bytes.
const MOST_BYTES: usize = 240;

/// Most brackets inside each other.
const MOST_DEPTH: usize = 24;

/// An expression that was read. Every step of its evaluation is checked: no number leaves the range of 64 bits unsigned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expression {
    text: String,
    root: Node,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    Number(u64),
    Axis(String),
    Both(Operation, Box<(Node, Node)>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Add,
    Subtract,
    Multiply,
    Divide,
    DivideUp,
    Least,
    Most,
}

/// Text that is no expression, or one without a value for a problem.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpressionError {
    /// The text cannot be read.
    #[error("`{text}`, byte {at}: {why}")]
    Syntax {
        /// The text, cut where it is long.
        text: String,
        /// Where.
        at: usize,
        /// What is wrong.
        why: String,
    },
    /// There is no value.
    #[error("`{text}`: {why}")]
    Value {
        /// The text.
        text: String,
        /// Why.
        why: String,
    },
}

impl Expression {
    /// Reads an expression.
    ///
    /// # Errors
    /// [`ExpressionError::Syntax`] naming the byte.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        let mut parser = Parser { text, at: 0, depth: 0 };
        if text.len() > MOST_BYTES {
            return Err(parser.fault(format!("an expression has at most {MOST_BYTES} bytes")));
        }
        let root = parser.sum()?;
        match parser.next() {
            None => Ok(Self { text: text.to_owned(), root }),
            Some(found) => Err(parser.fault(format!("`{found}` is not expected here"))),
        }
    }

    /// A number.
    pub fn number(value: u64) -> Self {
        Self { text: value.to_string(), root: Node::Number(value) }
    }

    /// The first axis that it names and `is_known` does not know.
    pub fn unknown(&self, is_known: &dyn Fn(&str) -> bool) -> Option<&str> {
        fn of<'a>(node: &'a Node, is_known: &dyn Fn(&str) -> bool) -> Option<&'a str> {
            match node {
                Node::Number(_) => None,
                Node::Axis(name) => (!is_known(name)).then_some(name.as_str()),
                Node::Both(_, sides) => of(&sides.0, is_known).or_else(|| of(&sides.1, is_known)),
            }
        }
        of(&self.root, is_known)
    }

    /// The value, with the values of axes that `axis` knows.
    ///
    /// # Errors
    /// [`ExpressionError::Value`] when an axis has no value, a divisor is 0, or a step leaves the range of 64 bits unsigned.
    pub fn value(&self, axis: &dyn Fn(&str) -> Option<u64>) -> Result<u64, ExpressionError> {
        evaluate(&self.root, axis).map_err(|why| ExpressionError::Value { text: self.text.clone(), why })
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn evaluate(node: &Node, axis: &dyn Fn(&str) -> Option<u64>) -> Result<u64, String> {
    let (operation, a, b) = match node {
        Node::Number(value) => return Ok(*value),
        Node::Axis(name) => return axis(name).ok_or_else(|| format!("`{name}` is no number in this problem")),
        Node::Both(operation, sides) => (*operation, evaluate(&sides.0, axis)?, evaluate(&sides.1, axis)?),
    };
    let (value, what) = match operation {
        Operation::Add => (a.checked_add(b), format!("{a} + {b} is too large")),
        Operation::Subtract => (a.checked_sub(b), format!("{a} - {b} is below 0")),
        Operation::Multiply => (a.checked_mul(b), format!("{a} * {b} is too large")),
        Operation::Divide => (a.checked_div(b), format!("{a} is divided by 0")),
        Operation::DivideUp => ((b > 0).then(|| a.div_ceil(b)), format!("{a} is divided by 0")),
        Operation::Least => (Some(a.min(b)), String::new()),
        Operation::Most => (Some(a.max(b)), String::new()),
    };
    value.ok_or(what)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn fault(&self, why: String) -> ExpressionError {
        let text = self.text.chars().take(MOST_BYTES).collect();
        ExpressionError::Syntax { text, at: self.at, why }
    }

    /// The next character behind spaces, which stays.
    fn next(&mut self) -> Option<char> {
        let rest = self.text.get(self.at..)?;
        let trimmed = rest.trim_start();
        self.at += rest.len() - trimmed.len();
        trimmed.chars().next()
    }

    fn take(&mut self, wanted: char) -> Result<(), ExpressionError> {
        match self.next() {
            Some(found) if found == wanted => {
                self.at += found.len_utf8();
                Ok(())
            }
            Some(found) => Err(self.fault(format!("`{wanted}` is expected, and `{found}` stands here"))),
            None => Err(self.fault(format!("`{wanted}` is expected, and the text ends"))),
        }
    }

    fn chain(
        &mut self,
        operations: [(char, Operation); 2],
        part: fn(&mut Self) -> Result<Node, ExpressionError>,
    ) -> Result<Node, ExpressionError> {
        let mut left = part(self)?;
        while let Some(found) = self.next()
            && let Some((_, operation)) = operations.iter().find(|(sign, _)| *sign == found)
        {
            self.at += 1;
            left = Node::Both(*operation, Box::new((left, part(self)?)));
        }
        Ok(left)
    }

    fn sum(&mut self) -> Result<Node, ExpressionError> {
        self.depth += 1;
        if self.depth > MOST_DEPTH {
            return Err(self.fault(format!("more than {MOST_DEPTH} brackets are open")));
        }
        let sum = self.chain([('+', Operation::Add), ('-', Operation::Subtract)], Self::product);
        self.depth -= 1;
        sum
    }

    fn product(&mut self) -> Result<Node, ExpressionError> {
        self.chain([('*', Operation::Multiply), ('/', Operation::Divide)], Self::atom)
    }

    fn atom(&mut self) -> Result<Node, ExpressionError> {
        let Some(first) = self.next() else {
            return Err(self.fault("a number, an axis or a bracket is expected, and the text ends".to_owned()));
        };
        if first == '(' {
            self.at += 1;
            let inner = self.sum()?;
            self.take(')')?;
            return Ok(inner);
        }
        let begin = self.at;
        let rest = &self.text[begin..];
        let length = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let word = &rest[..length];
        if first.is_ascii_digit() {
            let number = word.parse().map_err(|_| self.fault(format!("`{word}` is no number of 64 bits")))?;
            self.at += length;
            return Ok(Node::Number(number));
        }
        if !first.is_ascii_alphabetic() {
            return Err(self.fault(format!("`{first}` begins no number and no axis")));
        }
        let operation = match word {
            "cdiv" => Operation::DivideUp,
            "min" => Operation::Least,
            "max" => Operation::Most,
            _ => {
                self.at += length;
                return if self.next() == Some('(') {
                    Err(self.fault(format!("no function `{word}`: there are cdiv(a, b), min(a, b) and max(a, b)")))
                } else {
                    Ok(Node::Axis(word.to_owned()))
                };
            }
        };
        self.at += length;
        self.take('(')?;
        let a = self.sum()?;
        self.take(',')?;
        let b = self.sum()?;
        self.take(')')?;
        Ok(Node::Both(operation, Box::new((a, b))))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn axis(name: &str) -> Option<u64> {
        [("m", 3), ("k", 576), ("n", 49152), ("sms", 132)].iter().find(|(known, _)| *known == name).map(|(_, v)| *v)
    }

    fn value(text: &str) -> Result<u64, ExpressionError> {
        Expression::parse(text)?.value(&axis)
    }

    #[test]
    fn values_are_those_of_arithmetic() {
        for (text, wanted) in [
            ("7", 7),
            (" m ", 3),
            ("1 + 2 * 3", 7),
            ("(1 + 2) * 3", 9),
            ("20 - 5 - 4", 11),
            ("100 / 7 / 2", 7),
            ("cdiv(n, 7)", 7022),
            ("min(sms * 2, cdiv(n,32))", 264),
            ("max(m, cdiv(k, 256)) * 16", 48),
            ("k/32*34*n", 18 * 34 * 49152),
            ("((((m))))", 3),
        ] {
            assert_eq!(value(text), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn what_has_no_value_says_why() {
        for (text, wanted) in [
            ("m - 4", "3 - 4 is below 0"),
            ("n / (m - 3)", "divided by 0"),
            ("cdiv(n, 0)", "divided by 0"),
            ("18446744073709551615 + 1", "too large"),
            ("n * n * n * n * n", "too large"),
            ("q + 1", "`q` is no number in this problem"),
            ("", "the text ends"),
            ("1 +", "the text ends"),
            ("1 2", "byte 2: `2` is not expected here"),
            ("(1", "`)` is expected, and the text ends"),
            ("cdiv(1)", "`,` is expected, and `)` stands here"),
            ("cdiv 1", "`(` is expected"),
            ("pow(2, 3)", "no function `pow`"),
            ("18446744073709551616", "no number of 64 bits"),
            ("0x10", "no number of 64 bits"),
            ("-1", "`-` begins no number"),
            ("m % 2", "`%` is not expected here"),
            ("ä", "begins no number"),
        ] {
            let error = value(text).unwrap_err().to_string();
            assert!(error.contains(wanted) && error.contains(&format!("`{text}`")), "{text}: {error}");
        }
        let deep = format!("{}1{}", "(".repeat(60), ")".repeat(60));
        assert!(value(&deep).unwrap_err().to_string().contains("brackets are open"));
        assert!(value(&"1+".repeat(200)).unwrap_err().to_string().contains("at most 240 bytes"));
        assert_eq!(Expression::parse("m + rows").unwrap().unknown(&|name| axis(name).is_some()), Some("rows"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "([a-z]{1,4}|[0-9]{1,20}|[-+*/(), ]|cdiv\\(|\\PC){0,40}") {
            if let Ok(expression) = Expression::parse(&text) {
                let _ = expression.value(&axis);
                prop_assert_eq!(Expression::parse(&expression.to_string()), Ok(expression));
            }
        }

        #[test]
        fn sums_and_products_keep_their_order(a in 0_u64..1000, b in 1_u64..1000, c in 1_u64..1000) {
            prop_assert_eq!(value(&format!("{a}+{b}*{c}")), Ok(a + b * c));
            prop_assert_eq!(value(&format!("({a}+{b})/{c}")), Ok((a + b) / c));
            prop_assert_eq!(value(&format!("cdiv({a}, {b})")), Ok(a.div_ceil(b)));
        }
    }
}
