//! Command lines of process arms: given by the user as `NAME=COMMAND`, split without a shell.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A program and its arguments. Prints as nothing but the number of its words, so that no path of it reaches a record or a
/// log by accident.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct CommandLine {
    words: Vec<String>,
}

impl fmt::Debug for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CommandLine({} words)", self.words.len())
    }
}

/// A command of a process arm that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// Not of the form `NAME=COMMAND`.
    #[error("`{0}` is not of the form NAME=COMMAND with a name of letters, digits, dots, hyphens and underscores")]
    Form(String),
    /// The command has no words.
    #[error("the command of a process arm is empty")]
    Empty,
    /// A quote is not closed, or a backslash ends the text.
    #[error("the command of a process arm ends inside {0}")]
    Open(&'static str),
    /// The name was given before.
    #[error("the process arm `{0}` has two commands")]
    Twice(String),
}

/// Whether a text can name a process arm.
pub(super) fn is_process_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 64
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
}

impl CommandLine {
    /// Splits text at white space. Single quotes keep everything, double quotes keep white space, a backslash keeps the
    /// character after it; nothing is expanded.
    ///
    /// # Errors
    /// [`CommandError`] for an empty command and for an open quote.
    pub fn parse(text: &str) -> Result<Self, CommandError> {
        let mut words = Vec::new();
        let mut word: Option<String> = None;
        let mut quote: Option<char> = None;
        let mut characters = text.chars();
        while let Some(character) = characters.next() {
            match (quote, character) {
                (Some('\''), '\'') | (Some('"'), '"') => quote = None,
                (None, '\'' | '"') => {
                    quote = Some(character);
                    word.get_or_insert_default();
                }
                (None | Some('"'), '\\') => {
                    word.get_or_insert_default().push(characters.next().ok_or(CommandError::Open("an escape"))?);
                }
                (None, character) if character.is_whitespace() => words.extend(word.take()),
                (_, character) => word.get_or_insert_default().push(character),
            }
        }
        if quote.is_some() {
            return Err(CommandError::Open("a quote"));
        }
        words.extend(word);
        Self::try_from(words)
    }

    /// The program.
    pub fn program(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    /// Its arguments.
    pub fn arguments(&self) -> &[String] {
        self.words.get(1..).unwrap_or_default()
    }
}

impl TryFrom<Vec<String>> for CommandLine {
    type Error = CommandError;

    fn try_from(words: Vec<String>) -> Result<Self, CommandError> {
        match words.first() {
            Some(program) if !program.is_empty() => Ok(Self { words }),
            _ => Err(CommandError::Empty),
        }
    }
}

impl From<CommandLine> for Vec<String> {
    fn from(command: CommandLine) -> Self {
        command.words
    }
}

/// The commands a user gave, by name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Commands {
    by_name: BTreeMap<String, CommandLine>,
}

impl Commands {
    /// Adds `NAME=COMMAND`.
    ///
    /// # Errors
    /// [`CommandError`] when the text has another form or the name stands twice.
    pub fn add(&mut self, text: &str) -> Result<(), CommandError> {
        let form = || CommandError::Form(text.to_owned());
        let (name, command) = text.split_once('=').ok_or_else(form)?;
        if !is_process_name(name) {
            return Err(form());
        }
        self.insert(name, CommandLine::parse(command)?)
    }

    /// Adds a command under a name.
    ///
    /// # Errors
    /// [`CommandError`] when the name cannot name a process arm or stands twice.
    pub fn insert(&mut self, name: &str, command: CommandLine) -> Result<(), CommandError> {
        if !is_process_name(name) {
            return Err(CommandError::Form(name.to_owned()));
        }
        match self.by_name.entry(name.to_owned()) {
            Entry::Occupied(_) => Err(CommandError::Twice(name.to_owned())),
            Entry::Vacant(vacant) => {
                vacant.insert(command);
                Ok(())
            }
        }
    }

    /// The command of a name.
    pub fn get(&self, name: &str) -> Option<&CommandLine> {
        self.by_name.get(name)
    }

    /// All names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(text: &str) -> Vec<String> {
        CommandLine::parse(text).unwrap().into()
    }

    #[test]
    fn words_are_split_without_a_shell() {
        assert_eq!(words("a b  c"), ["a", "b", "c"]);
        assert_eq!(words(r#"a 'b c' "d 'e' \" f" g\ h ''"#), ["a", "b c", "d 'e' \" f", "g h", ""]);
        assert_eq!(words("a $HOME *;rm"), ["a", "$HOME", "*;rm"]);
        for (text, error) in [
            ("", CommandError::Empty),
            ("  ", CommandError::Empty),
            ("''", CommandError::Empty),
            ("a 'b", CommandError::Open("a quote")),
            ("a \"b", CommandError::Open("a quote")),
            ("a \\", CommandError::Open("an escape")),
        ] {
            assert_eq!(CommandLine::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn commands_are_kept_by_name_and_never_printed() {
        let mut commands = Commands::default();
        commands.add("peer=/opt/peer/run --size=3").unwrap();
        assert_eq!(commands.get("peer").unwrap().program(), "/opt/peer/run");
        assert_eq!(commands.get("peer").unwrap().arguments(), ["--size=3"]);
        assert!(!format!("{commands:?}").contains("/opt"));
        assert_eq!(commands.add("peer=x"), Err(CommandError::Twice("peer".to_owned())));
        for text in ["x", "=x", "a b=x", "a/b=x"] {
            assert_eq!(commands.add(text), Err(CommandError::Form(text.to_owned())));
        }
        let text = serde_json::to_string(&commands).unwrap();
        assert_eq!(serde_json::from_str::<Commands>(&text).unwrap(), commands);
        assert!(serde_json::from_str::<Commands>(r#"{"a":[]}"#).is_err());
    }

    proptest! {
        #[test]
        fn quoted_words_come_back(parts in prop::collection::vec("[ -&(-~]{1,12}", 1..6)) {
            let text = parts.iter().map(|part| format!("'{part}'")).collect::<Vec<_>>().join(" ");
            prop_assert_eq!(words(&text), parts);
        }

        #[test]
        fn no_text_panics(text in ".{0,60}") {
            let _ = CommandLine::parse(&text);
        }
    }
}
