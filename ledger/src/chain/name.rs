//! Where a receipt file lies below its root.

/// The name of a receipt file: `receipts/<rig label>/<date>-<slug>-<first 8 digits of the session>.jsonl`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReceiptName {
    rig_label: String,
    date: String,
    slug: String,
    session: String,
}

/// A part of a receipt file's name that does not have its form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// A label or slug.
    #[error("{part} `{text}` must be 1 to 64 lower-case letters, digits and hyphens, with no hyphen at either end")]
    Label {
        /// `rig label` or `slug`.
        part: &'static str,
        /// The text given.
        text: String,
    },
    /// The date.
    #[error("date `{0}` must be a day of the calendar as YYYY-MM-DD")]
    Date(String),
    /// The session.
    #[error("session `{0}` must be 32 lower-case hexadecimal digits")]
    Session(String),
}

impl ReceiptName {
    /// Checks the parts: `date` as YYYY-MM-DD, `session` as 32 lower-case hexadecimal digits.
    ///
    /// # Errors
    ///
    /// [`NameError`] names the part that does not have its form.
    pub fn new(rig_label: &str, date: &str, slug: &str, session: &str) -> Result<Self, NameError> {
        check_label("rig label", rig_label)?;
        check_label("slug", slug)?;
        let is_date = chrono::NaiveDate::parse_from_str(date, "%Y-%m-%d")
            .is_ok_and(|day| date.len() == 10 && day.format("%Y-%m-%d").to_string() == date);
        if !is_date {
            return Err(NameError::Date(date.to_owned()));
        }
        check_session(session)?;
        Ok(Self {
            rig_label: rig_label.to_owned(),
            date: date.to_owned(),
            slug: slug.to_owned(),
            session: session.to_owned(),
        })
    }

    /// The rig label.
    pub fn rig_label(&self) -> &str {
        &self.rig_label
    }

    /// The session, 32 digits.
    pub fn session(&self) -> &str {
        &self.session
    }

    /// The path below the root, with `/` between folders.
    pub fn relative_path(&self) -> String {
        let Self { rig_label, date, slug, session } = self;
        format!("receipts/{rig_label}/{date}-{slug}-{}.jsonl", session.get(..8).unwrap_or(session))
    }
}

/// Refuses text that is no session identifier.
pub(crate) fn check_session(session: &str) -> Result<(), NameError> {
    let is_hex = session.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    if session.len() == 32 && is_hex { Ok(()) } else { Err(NameError::Session(session.to_owned())) }
}

fn check_label(part: &'static str, text: &str) -> Result<(), NameError> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_good =
        (1..=64).contains(&text.len()) && text.bytes().all(is_plain) && !text.starts_with('-') && !text.ends_with('-');
    if is_good { Ok(()) } else { Err(NameError::Label { part, text: text.to_owned() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn a_name_becomes_a_path_below_the_root() {
        let name = ReceiptName::new("rig-1", "2024-02-29", "q4-k", SESSION).unwrap();
        assert_eq!(name.relative_path(), "receipts/rig-1/2024-02-29-q4-k-01234567.jsonl");
    }

    #[test]
    fn parts_that_could_leave_the_folder_or_confuse_it_are_refused() {
        for label in ["", "..", "a/b", "A", "a b", "-a", "a-", "a.b", "\u{e9}", &"a".repeat(65)] {
            let error = ReceiptName::new(label, "2024-01-01", "s", SESSION).unwrap_err();
            assert!(error.to_string().starts_with("rig label `"), "{error}");
            let error = ReceiptName::new("r", "2024-01-01", label, SESSION).unwrap_err();
            assert!(error.to_string().starts_with("slug `"), "{error}");
        }
        for date in ["", "2023-02-29", "2024-1-1", "24-01-01", "2024-01-01x", "2024/01/01", "+024-01-01"] {
            assert_eq!(ReceiptName::new("r", date, "s", SESSION), Err(NameError::Date(date.to_owned())));
        }
        for session in ["", "0123", &SESSION.to_uppercase(), &format!("{SESSION}0")] {
            assert!(matches!(ReceiptName::new("r", "2024-01-01", "s", session), Err(NameError::Session(_))));
        }
    }
}
