//! `logits`: the logits of given tokens, for oracles.

use std::fs::File;
use std::io::{BufWriter, Write as _};

use anyhow::{Context as _, ensure};
use memra_engine::plan::{Batch, Chunk, Wanted};

use super::{Room, load, model_file, open};
use crate::cli::LogitsArguments;
use crate::ui;

/// Runs the command.
///
/// # Errors
/// When a file cannot be read or written, or an id is not one of the vocabulary.
pub fn run(arguments: &LogitsArguments) -> anyhow::Result<u8> {
    let model = open(&model_file(Some(&arguments.file))?)?;
    let text = std::fs::read_to_string(&arguments.ids).with_context(|| format!("ids {}", arguments.ids.display()))?;
    let tokens = text
        .split_whitespace()
        .map(|word| word.parse().with_context(|| format!("`{word}` is no token id")))
        .collect::<anyhow::Result<Vec<u32>>>()?;
    ensure!(!tokens.is_empty(), "{} holds no ids", arguments.ids.display());
    let wanted = usize::from(arguments.model.chunk).min(64).min(tokens.len());
    let mut runner = load(&model, &arguments.model, &Room { wanted, positions: tokens.len() })?;
    let (vocab, context) = (runner.config().vocab, runner.config().context);
    ensure!(tokens.len() <= context, "{} ids, and the model's context is {context}", tokens.len());
    if let Some(token) = tokens.iter().find(|token| **token as usize >= vocab) {
        anyhow::bail!("token {token} is not one of the vocabulary's {vocab}");
    }
    let failed = || format!("output {}", arguments.out.display());
    let mut out = BufWriter::new(File::create(&arguments.out).with_context(failed)?);
    out.write_all(&npy_header(tokens.len(), vocab)).with_context(failed)?;
    let table = runner.admit(tokens.len()).context("the cache has no room")?;
    for (index, chunk) in tokens.chunks(wanted).enumerate() {
        let chunk = Chunk { pages: table.pages(), first_position: index * wanted, tokens: chunk, wanted: Wanted::All };
        runner.step(&Batch { chunks: &[chunk] });
        for row in 0..chunk.tokens.len() {
            for logit in runner.logits(row) {
                out.write_all(&logit.to_le_bytes()).with_context(failed)?;
            }
        }
    }
    runner.release(table);
    out.flush().with_context(failed)?;
    ui::say(format_args!("{} rows of {vocab} logits, program {}", tokens.len(), runner.plan().program));
    Ok(0)
}

/// Header of NumPy's format 1.0: C order, little-endian f32, padded to a multiple of 64 bytes.
fn npy_header(rows: usize, columns: usize) -> Vec<u8> {
    let mut text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {columns}), }}");
    let padded = (10 + text.len() + 1).next_multiple_of(64) - 10;
    text.push_str(&" ".repeat(padded - text.len() - 1));
    text.push('\n');
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    header.extend_from_slice(&(padded as u16).to_le_bytes());
    header.extend_from_slice(text.as_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_padded_and_says_its_length() {
        let header = npy_header(7, 49152);
        assert_eq!(header.len() % 64, 0);
        assert_eq!(usize::from(u16::from_le_bytes([header[8], header[9]])), header.len() - 10);
        assert!(header.ends_with(b"\n") && String::from_utf8_lossy(&header).contains("(7, 49152)"));
    }
}
