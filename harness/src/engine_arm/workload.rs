//! What engines run.

use std::fmt;
use std::io::Read as _;
use std::path::Path;
use std::str::FromStr;

use memra_contract::digest::Digest;
use memra_ledger::record::{WeightSource, WorkloadPlan};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Contract of workload cells in records.
pub const CONTRACT: &str = "workload";

/// Revision of what a workload means.
pub const REVISION: u32 = 1;

/// Most tokens of each part of a workload.
pub const MAX_TOKENS: u32 = 1 << 20;

/// Bytes of a model file that are hashed at once.
const CHUNK: usize = 1 << 20;

/// Numbers of tokens. Its text is the canonical problem of the cell, `depth=0,generated=128,prompt=0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Tokens of the prompt that are processed in a slot; 0 where tokens are generated.
    pub prompt: u32,
    /// Tokens that are generated in a slot; 0 where a prompt is processed.
    pub generated: u32,
    /// Tokens in the cache before the slot.
    pub depth: u32,
}

/// A text or numbers that are no workload.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkloadError {
    /// A part that is no number of tokens.
    #[error("`{0}` is not one of prompt=N, generated=N and depth=N")]
    Part(String),
    /// A part stands twice.
    #[error("`{0}` stands twice")]
    Twice(String),
    /// More tokens than allowed.
    #[error("{part}={tokens} is more than {MAX_TOKENS} tokens")]
    TooMany {
        /// The part.
        part: &'static str,
        /// Its number.
        tokens: u32,
    },
    /// Nothing is timed, or two things at once.
    #[error("a workload times either a prompt or generated tokens: prompt={prompt}, generated={generated}")]
    Timed {
        /// Tokens of the prompt.
        prompt: u32,
        /// Generated tokens.
        generated: u32,
    },
}

impl Workload {
    /// Holds the numbers to their rules.
    ///
    /// # Errors
    /// [`WorkloadError`] when a number is too large, or not exactly one of prompt and generated is above 0.
    pub fn check(&self) -> Result<(), WorkloadError> {
        for (part, tokens) in [("prompt", self.prompt), ("generated", self.generated), ("depth", self.depth)] {
            if tokens > MAX_TOKENS {
                return Err(WorkloadError::TooMany { part, tokens });
            }
        }
        if (self.prompt == 0) == (self.generated == 0) {
            return Err(WorkloadError::Timed { prompt: self.prompt, generated: self.generated });
        }
        Ok(())
    }

    /// The plan of a cell record.
    pub fn plan(&self, warm_up_slots: u32) -> WorkloadPlan {
        WorkloadPlan {
            prompt_tokens: self.prompt,
            generated_tokens: self.generated,
            depth_tokens: self.depth,
            warm_up_slots,
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.plan(0).problem())
    }
}

impl FromStr for Workload {
    type Err = WorkloadError;

    /// Reads `prompt=512`, `generated=64,depth=2048` and the like; a part that is left out is 0.
    fn from_str(text: &str) -> Result<Self, WorkloadError> {
        let mut workload = Self { prompt: 0, generated: 0, depth: 0 };
        let mut seen = Vec::new();
        for part in text.split(',') {
            let refused = || WorkloadError::Part(part.to_owned());
            let (name, number) = part.trim().split_once('=').ok_or_else(refused)?;
            let place = match name {
                "prompt" => &mut workload.prompt,
                "generated" => &mut workload.generated,
                "depth" => &mut workload.depth,
                _ => return Err(refused()),
            };
            *place = number.parse().map_err(|_| refused())?;
            if seen.contains(&name) {
                return Err(WorkloadError::Twice(name.to_owned()));
            }
            seen.push(name);
        }
        workload.check()?;
        Ok(workload)
    }
}

/// What a receipt says of a model file: its name, and the digest of all its bytes.
///
/// # Errors
/// What the system says when the file cannot be read.
pub fn model_source(path: &Path) -> std::io::Result<WeightSource> {
    let mut file = std::fs::File::open(path)?;
    let mut hash = Sha256::new();
    let mut chunk = vec![0; CHUNK];
    loop {
        let read = file.read(&mut chunk)?;
        if read == 0 {
            break;
        }
        hash.update(chunk.get(..read).unwrap_or_default());
    }
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    Ok(WeightSource { file: name, tensor: String::new(), tensor_sha256: Digest::from_bytes(&hash.finalize().into()) })
}

#[cfg(test)]
mod unit {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_is_read_in_any_order_and_written_in_one() {
        for (text, canonical) in [
            ("prompt=512", "depth=0,generated=0,prompt=512"),
            ("generated=64, depth=2048", "depth=2048,generated=64,prompt=0"),
            ("depth=0,generated=128,prompt=0", "depth=0,generated=128,prompt=0"),
        ] {
            assert_eq!(text.parse::<Workload>().unwrap().to_string(), canonical);
        }
        for (text, needle) in [
            ("", "`` is not one of"),
            ("prompt", "`prompt` is not one of"),
            ("tokens=3", "`tokens=3` is not"),
            ("prompt=-1", "`prompt=-1` is not"),
            ("prompt=1,prompt=2", "`prompt` stands twice"),
            ("depth=5", "prompt=0, generated=0"),
            ("prompt=1,generated=1", "prompt=1, generated=1"),
            ("prompt=2000000", "prompt=2000000 is more than 1048576"),
        ] {
            let error = text.parse::<Workload>().unwrap_err().to_string();
            assert!(error.contains(needle), "{text}: {error}");
        }
    }

    #[test]
    fn a_model_is_known_by_name_and_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tiny.gguf");
        let bytes = vec![7_u8; CHUNK + 5];
        std::fs::write(&path, &bytes).unwrap();
        let source = model_source(&path).unwrap();
        assert_eq!((source.file.as_str(), source.tensor.as_str()), ("tiny.gguf", ""));
        assert_eq!(source.tensor_sha256, Digest::from_bytes(&Sha256::digest(&bytes).into()));
        assert!(model_source(&folder.path().join("none")).is_err());
    }

    proptest! {
        #[test]
        fn texts_come_back(tokens in 1..=MAX_TOKENS, depth in 0..=MAX_TOKENS, is_prompt: bool) {
            let (prompt, generated) = if is_prompt { (tokens, 0) } else { (0, tokens) };
            let workload = Workload { prompt, generated, depth };
            prop_assert_eq!(workload.to_string().parse::<Workload>(), Ok(workload));
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = text.parse::<Workload>();
        }
    }
}
