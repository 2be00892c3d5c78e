//! What must not stand in a receipt: absolute paths, and the names of the machine and of its user.

use serde_json::Value;

use crate::canonical;

/// Account and machine names that say nothing about anyone. A record may well hold them as ordinary words.
const COMMON_NAMES: [&str; 14] = [
    "admin",
    "debian",
    "default",
    "docker",
    "fedora",
    "guest",
    "host",
    "kernel",
    "localhost",
    "root",
    "runner",
    "test",
    "ubuntu",
    "user",
];

/// Shortest name that is looked for: shorter ones are words of records, `a` and `b` before all.
const SHORTEST_NAME: usize = 3;

/// Fields of a record whose values this crate chooses itself.
const OWN_FIELDS: [&str; 2] = ["schema", "kind"];

/// The check every line passes before it is written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrivacyLint {
    names: Vec<(&'static str, String)>,
}

/// A private fact in a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} holds {what}, which must not stand in a receipt: `{excerpt}`")]
pub struct PrivacyError {
    /// The field, from the top of the record.
    pub field: String,
    /// What it holds.
    pub what: String,
    /// The text, shortened to what surrounds the fact.
    pub excerpt: String,
}

impl PrivacyLint {
    /// A lint that looks for absolute paths and for these two names.
    ///
    /// Names are found as whole words in any case; of a host name with dots the first label is looked for too. Names
    /// shorter than three characters and common ones (`root`, `ubuntu`, `localhost` and their like) tell nothing and
    /// are not looked for.
    pub fn new(host: Option<&str>, user: Option<&str>) -> Self {
        let mut names: Vec<(&'static str, String)> = Vec::new();
        let mut add = |what: &'static str, name: &str| {
            let name = name.trim().to_lowercase();
            let is_telling = name.chars().count() >= SHORTEST_NAME && !COMMON_NAMES.contains(&name.as_str());
            if is_telling && !names.iter().any(|(_, known)| *known == name) {
                names.push((what, name));
            }
        };
        if let Some(host) = host {
            add("the host name", host);
            add("the host name", host.split('.').next().unwrap_or_default());
        }
        if let Some(user) = user {
            add("the user name", user);
        }
        Self { names }
    }

    /// Checks every string of a record, keys included.
    ///
    /// # Errors
    ///
    /// [`PrivacyError`] names the field.
    pub fn check(&self, record: &Value) -> Result<(), PrivacyError> {
        canonical::visit_strings(record, &mut String::new(), &mut |field, text| {
            if OWN_FIELDS.contains(&field) {
                return Ok(());
            }
            let Some((what, at)) = self.find(text) else { return Ok(()) };
            let field = if field.is_empty() { "a key of the record".to_owned() } else { field.to_owned() };
            Err(PrivacyError { field, what, excerpt: excerpt(text, at) })
        })
    }

    fn find(&self, text: &str) -> Option<(String, usize)> {
        if let Some(at) = find_absolute_path(text) {
            return Some(("an absolute path".to_owned(), at));
        }
        let lower = text.to_lowercase();
        self.names.iter().find_map(|(what, name)| {
            // Lower case may change the length of text that is not ASCII; the place is only used for an excerpt.
            find_word(&lower, name).map(|at| ((*what).to_owned(), at.min(text.len())))
        })
    }
}

/// The place of a path from the root of a file system, of a drive or of a home folder.
fn find_absolute_path(text: &str) -> Option<usize> {
    for home in ["/home/", "/Users/", "~/", "~\\"] {
        if let Some(at) = text.find(home) {
            return Some(at);
        }
    }
    if text.starts_with('/') || text.starts_with("\\\\") {
        return Some(0);
    }
    let bytes = text.as_bytes();
    let at = |index: usize| bytes.get(index).copied().unwrap_or(b' ');
    (0..bytes.len()).find(|&index| {
        let before = if index == 0 { b' ' } else { at(index - 1) };
        let is_root = at(index) == b'/'
            && (before.is_ascii_whitespace() || b"'\"`=:,;|<([{".contains(&before))
            && (at(index + 1).is_ascii_alphanumeric() || b"._".contains(&at(index + 1)));
        let is_drive = at(index).is_ascii_alphabetic()
            && !before.is_ascii_alphanumeric()
            && at(index + 1) == b':'
            && b"/\\".contains(&at(index + 2));
        is_root || is_drive
    })
}

/// The place of `word` in `text` where neither neighbour is a letter, a digit or an underscore.
fn find_word(text: &str, word: &str) -> Option<usize> {
    let is_inner = |character: char| character.is_alphanumeric() || character == '_';
    text.match_indices(word).map(|(at, _)| at).find(|&at| {
        let before = text.get(..at).and_then(|head| head.chars().next_back());
        let after = text.get(at + word.len()..).and_then(|tail| tail.chars().next());
        !before.is_some_and(is_inner) && !after.is_some_and(is_inner)
    })
}

/// Up to 40 characters from a place.
fn excerpt(text: &str, at: usize) -> String {
    let mut start = at.min(text.len());
    while !text.is_char_boundary(start) {
        start -= 1;
    }
    text.get(start..).unwrap_or(text).chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lint() -> PrivacyLint {
        PrivacyLint::new(Some("gpu-box.lab.example"), Some("alice"))
    }

    #[test]
    fn absolute_paths_are_found_wherever_they_stand() {
        for text in [
            "/",
            "/opt/x.cu",
            "see ~/notes",
            "in /home/x",
            "data/home/x",
            "C:\\x",
            "at D:/x",
            "\\\\server\\x",
            "--root=/srv",
            "failed: `/usr/lib/x.so` is missing",
            "cause:/x",
            "(/tmp)",
            "file:///Users/x/y",
        ] {
            let error = lint().check(&json!({"a": {"b": ["", text]}})).unwrap_err();
            assert_eq!((error.field.as_str(), error.what.as_str()), ("a.b[1]", "an absolute path"), "{text}");
        }
        for text in [
            "kernels/src/a.cu",
            "1/2",
            "a / b",
            "https://example.org/a/b",
            "memra-lab.receipt/1.0.0",
            "tok/s",
            "A: B",
            "x:y",
        ] {
            assert_eq!(lint().check(&json!({ "a": text })), Ok(()), "{text}");
        }
    }

    #[test]
    fn names_of_host_and_user_are_found_as_words() {
        for (text, what) in [
            ("run by Alice", "the user name"),
            ("alice@example.org", "the user name"),
            ("on GPU-BOX", "the host name"),
            ("gpu-box.lab.example:80", "the host name"),
        ] {
            let error = lint().check(&json!({ "a": text })).unwrap_err();
            assert_eq!((error.field.as_str(), error.what.as_str()), ("a", what), "{text}");
        }
        for text in ["malice", "alice_2", "gpu-boxes", "gpu"] {
            assert_eq!(lint().check(&json!({ "a": text })), Ok(()), "{text}");
        }
        let error = lint().check(&json!({"alice": 1})).unwrap_err();
        assert_eq!(error.field, "a key of the record");
    }

    #[test]
    fn names_that_tell_nothing_do_not_stop_a_session() {
        let lint = PrivacyLint::new(Some("localhost.localdomain"), Some("root"));
        assert_eq!(lint.check(&json!({"a": "the root of b on localhost"})), Ok(()));
        assert_eq!(PrivacyLint::new(Some(""), Some("a")), PrivacyLint::default());
    }

    #[test]
    fn words_of_this_crate_are_not_taken_for_names() {
        let lint = PrivacyLint::new(Some("memra"), Some("cell"));
        assert_eq!(lint.check(&json!({"schema": "memra-lab.receipt/1.0.0", "kind": "cell"})), Ok(()));
        assert!(lint.check(&json!({"a": {"kind": "cell"}})).is_err());
    }
}
