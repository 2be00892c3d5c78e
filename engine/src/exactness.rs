//! Exactness, shown on a model: how a prompt is cut and who shares a step with it must not change a bit.

use serde::Serialize;

use crate::cache::PageTable;
use crate::plan::{Batch, Chunk, Wanted};
use crate::runner::Runner;

/// One comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was compared with the prompt read whole and the answer made alone.
    pub what: String,
    /// Rows whose logits were compared, bit by bit.
    pub rows: usize,
    /// The first row that differs.
    pub differs_at: Option<usize>,
    /// The most sequences that shared a step.
    pub batch: usize,
}

impl Finding {
    /// Whether every bit was equal.
    pub const fn is_equal(&self) -> bool {
        self.differs_at.is_none()
    }
}

/// What a run gave: the answer, and digests of the logits of the prompt's last row and of every row of the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// The most likely tokens, one after another.
    pub tokens: Vec<u32>,
    /// One digest a row of logits.
    digests: Vec<u64>,
}

/// A sequence that is being made.
struct Track {
    table: PageTable,
    tokens: Vec<u32>,
    computed: usize,
    trace: Trace,
}

/// No room in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the cache has no room for another {0} positions")]
pub struct NoRoom(pub usize);

/// FNV-1a over the bits of a row.
fn digest(logits: &[f32]) -> u64 {
    logits.iter().fold(0xCBF2_9CE4_8422_2325, |hash, logit| {
        (hash ^ u64::from(logit.to_bits())).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

impl Track {
    fn new(runner: &mut Runner, prompt: &[u32], answer: usize) -> Result<Self, NoRoom> {
        let positions = prompt.len() + answer;
        let table = runner.admit(positions).ok_or(NoRoom(positions))?;
        let trace = Trace { tokens: Vec::new(), digests: Vec::new() };
        Ok(Self { table, tokens: prompt.to_vec(), computed: 0, trace })
    }

    /// Rows of the next step, when at most so many of a prompt are read at a time.
    fn rows(&self, chunk: usize) -> usize {
        (self.tokens.len() - self.computed).min(chunk)
    }

    fn is_whole(&self, rows: usize) -> bool {
        self.computed + rows == self.tokens.len()
    }
}

/// One step over tracks that are not yet done.
fn step(runner: &mut Runner, tracks: &mut [&mut Track], chunks: &[usize]) {
    let parts: Vec<Chunk<'_>> = tracks
        .iter()
        .zip(chunks)
        .map(|(track, chunk)| {
            let rows = track.rows(*chunk);
            Chunk {
                pages: track.table.pages(),
                first_position: track.computed,
                tokens: &track.tokens[track.computed..track.computed + rows],
                wanted: if track.is_whole(rows) { Wanted::Last } else { Wanted::None },
            }
        })
        .collect();
    runner.step(&Batch { chunks: &parts });
    drop(parts);
    let mut wanted = 0;
    for (track, chunk) in tracks.iter_mut().zip(chunks) {
        let rows = track.rows(*chunk);
        let is_whole = track.is_whole(rows);
        track.computed += rows;
        if is_whole {
            track.trace.digests.push(digest(runner.logits(wanted)));
            track.trace.tokens.push(runner.best(wanted));
            track.tokens.push(runner.best(wanted));
            wanted += 1;
        }
    }
}

/// Reads a prompt in chunks and makes `answer` tokens, alone.
///
/// # Errors
/// [`NoRoom`] when the cache is too small.
pub fn alone(runner: &mut Runner, prompt: &[u32], answer: usize, chunk: usize) -> Result<Trace, NoRoom> {
    let mut track = Track::new(runner, prompt, answer)?;
    let chunk = chunk.min(runner.plan().max_rows);
    while track.trace.tokens.len() < answer {
        step(runner, &mut [&mut track], &[chunk]);
    }
    runner.release(track.table);
    Ok(track.trace)
}

/// Makes the answers of several prompts together; each enters `stagger` steps after the one before it, so that they are at
/// different depths. Returns the traces and the most sequences that shared a step.
///
/// # Errors
/// [`NoRoom`] when the cache is too small.
pub fn together(
    runner: &mut Runner,
    prompts: &[&[u32]],
    answer: usize,
    chunk: usize,
    stagger: usize,
) -> Result<(Vec<Trace>, usize), NoRoom> {
    let mut tracks: Vec<Track> = Vec::new();
    for prompt in prompts {
        match Track::new(runner, prompt, answer) {
            Ok(track) => tracks.push(track),
            Err(error) => {
                for track in tracks {
                    runner.release(track.table);
                }
                return Err(error);
            }
        }
    }
    let (mut turn, mut largest) = (0, 0);
    while tracks.iter().any(|track| track.trace.tokens.len() < answer) {
        let mut room = runner.plan().max_rows;
        let (mut live, mut chunks) = (Vec::new(), Vec::new());
        for (index, track) in tracks.iter_mut().enumerate() {
            if track.trace.tokens.len() >= answer || turn < index * stagger || room == 0 {
                continue;
            }
            let rows = track.rows(chunk.min(room));
            room -= rows;
            chunks.push(rows);
            live.push(track);
        }
        largest = largest.max(live.len());
        if !live.is_empty() {
            step(runner, &mut live, &chunks);
        }
        turn += 1;
    }
    let traces = tracks.iter().map(|track| track.trace.clone()).collect();
    for track in tracks {
        runner.release(track.table);
    }
    Ok((traces, largest))
}

fn compare(what: String, want: &Trace, got: &Trace, batch: usize) -> Finding {
    let differs_at = (0..want.digests.len())
        .find(|row| (want.digests.get(*row), want.tokens.get(*row)) != (got.digests.get(*row), got.tokens.get(*row)));
    Finding { what, rows: want.digests.len(), differs_at, batch }
}

/// Reads every prompt whole and answers it alone, then in chunks, token by token, and together with the others at staggered
/// depths; compares every bit of the logits.
///
/// # Errors
/// [`NoRoom`] when the cache is too small.
pub fn check(runner: &mut Runner, prompts: &[&[u32]], answer: usize) -> Result<(Vec<Trace>, Vec<Finding>), NoRoom> {
    let mut wants = Vec::new();
    for prompt in prompts {
        wants.push(alone(runner, prompt, answer, usize::MAX)?);
    }
    let mut findings = Vec::new();
    for chunk in [1, 7, 64] {
        for (place, (prompt, want)) in prompts.iter().zip(&wants).enumerate() {
            let got = alone(runner, prompt, answer, chunk)?;
            findings.push(compare(format!("prompt {place} in chunks of {chunk}"), want, &got, 1));
        }
    }
    if prompts.len() > 1 {
        for (chunk, stagger) in [(usize::MAX, 0), (16, 3)] {
            let (traces, batch) = together(runner, prompts, answer, chunk, stagger)?;
            for (place, (want, got)) in wants.iter().zip(&traces).enumerate() {
                let what = format!("prompt {place} among {}, entering every {stagger} steps", prompts.len());
                findings.push(compare(what, want, got, batch));
            }
        }
    }
    Ok((wants, findings))
}
