//! Reads the records into verdict entries and refuses what cannot be a receipt.

use crate::board::RigFacts;
use crate::corrections::{Correction, Corrections};
use crate::error::BoardError;
use crate::input::{BoardInput, FoldOptions, check_path, is_label};
use crate::time::unix_ns;
use memra_contract::digest::Digest;
use memra_ledger::record::{Body, CellBody, ExternalBody, GateBody, Record, SessionBody, Verdict, VerdictBody};
use std::collections::{BTreeMap, BTreeSet};

/// A verdict with everything it rests on.
#[derive(Debug)]
pub(crate) struct Entry<'a> {
    /// The verdict record.
    pub(crate) record: &'a Record,
    /// Its body.
    pub(crate) verdict: &'a VerdictBody,
    /// The file it stands in.
    pub(crate) file: &'a File<'a>,
    /// The cell records it cites, by replicate.
    pub(crate) replicates: Vec<&'a CellBody>,
}

/// A receipt file with a session.
#[derive(Debug)]
pub(crate) struct File<'a> {
    /// Path relative to the evidence root.
    pub(crate) path: &'a str,
    /// The session record.
    pub(crate) record: &'a Record,
    /// Its body.
    pub(crate) session: &'a SessionBody,
    /// Start of the session in nanoseconds since 1970.
    pub(crate) started_ns: i64,
    /// Checks by record id.
    pub(crate) gates: BTreeMap<&'a Digest, &'a GateBody>,
    /// Cell records by id.
    pub(crate) cells: BTreeMap<&'a Digest, &'a CellBody>,
    /// Verdict records, in file order.
    pub(crate) verdicts: Vec<(&'a Record, &'a VerdictBody)>,
    /// Whether the file was closed.
    pub(crate) is_finished: bool,
}

/// A figure from elsewhere with its place.
#[derive(Debug)]
pub(crate) struct External<'a> {
    /// File and position of the record.
    pub(crate) path: &'a str,
    /// The record.
    pub(crate) record: &'a Record,
    /// Its body.
    pub(crate) body: &'a ExternalBody,
}

/// All receipts, read.
#[derive(Debug)]
pub(crate) struct Collected<'a> {
    /// Files whose rig may have a board, by path.
    pub(crate) files: Vec<File<'a>>,
    /// The rigs of those files, by label.
    pub(crate) rigs: BTreeMap<&'a str, RigFacts>,
    /// Figures from elsewhere.
    pub(crate) externals: Vec<External<'a>>,
    /// Corrections that hold, from all files.
    pub(crate) corrections: Corrections,
}

/// Reads all files in path order.
///
/// Files of unregistered rigs count only where `options` allow it; their corrections always do.
pub(crate) fn collect(inputs: &[BoardInput], options: FoldOptions) -> Result<Collected<'_>, BoardError> {
    let mut ordered: Vec<&BoardInput> = inputs.iter().collect();
    ordered.sort_by(|a, b| a.file.cmp(&b.file));
    let mut places: BTreeMap<&Digest, &str> = BTreeMap::new();
    let mut corrections = Vec::new();
    let mut collected = Collected {
        files: Vec::new(),
        rigs: BTreeMap::new(),
        externals: Vec::new(),
        corrections: Corrections::default(),
    };
    let mut previous = None;
    for input in ordered {
        let path = input.file.as_str();
        check_path(path)?;
        if previous.replace(path) == Some(path) {
            return Err(BoardError::SameFile(path.to_owned()));
        }
        for record in &input.records {
            if let Some(other) = places.insert(&record.id, path) {
                let id = record.id.short().to_owned();
                return Err(BoardError::SameRecord { id, file: path.to_owned(), other: other.to_owned() });
            }
        }
        let mut externals = Vec::new();
        let file = read_file(path, &input.records, &mut externals, &mut corrections)?;
        let counts = file.as_ref().is_none_or(|file| file.session.rig.is_registered || options.allow_provisional);
        if counts {
            collected.externals.append(&mut externals);
            if let Some(file) = file {
                add_rig(&mut collected, &file)?;
                collected.files.push(file);
            }
        }
    }
    collected.corrections = Corrections::new(corrections);
    for rig in collected.rigs.values_mut() {
        rig.os_releases.sort();
        rig.os_releases.dedup();
        rig.memory_bytes.sort_unstable();
        rig.memory_bytes.dedup();
    }
    Ok(collected)
}

fn read_file<'a>(
    path: &'a str,
    records: &'a [Record],
    externals: &mut Vec<External<'a>>,
    corrections: &mut Vec<Correction>,
) -> Result<Option<File<'a>>, BoardError> {
    let mut file: Option<File<'a>> = None;
    for record in records {
        let no_session = |kind| BoardError::NoSession { file: path.to_owned(), seq: record.seq, kind };
        match &record.body {
            Body::Session(session) => {
                if file.is_some() {
                    return Err(BoardError::SecondSession { file: path.to_owned(), seq: record.seq });
                }
                let started_ns = unix_ns(&session.started_utc)
                    .ok_or_else(|| BoardError::Started { file: path.to_owned(), text: session.started_utc.clone() })?;
                file = Some(File {
                    path,
                    record,
                    session,
                    started_ns,
                    gates: BTreeMap::new(),
                    cells: BTreeMap::new(),
                    verdicts: Vec::new(),
                    is_finished: false,
                });
            }
            Body::Gate(gate) => {
                file.as_mut().ok_or_else(|| no_session("gate"))?.gates.insert(&record.id, gate);
            }
            Body::Cell(cell) => {
                file.as_mut().ok_or_else(|| no_session("cell"))?.cells.insert(&record.id, cell);
            }
            Body::Verdict(verdict) => {
                file.as_mut().ok_or_else(|| no_session("verdict"))?.verdicts.push((record, verdict));
            }
            Body::End(_) => {
                if let Some(file) = &mut file {
                    file.is_finished = true;
                }
            }
            Body::External(body) => externals.push(External { path, record, body }),
            Body::Correction(body) => corrections.push(Correction {
                id: record.id.clone(),
                corrects: body.corrects.clone(),
                text: body.text.clone(),
                withdraws: body.withdraws,
                citation: citation(path, &record.id),
            }),
        }
    }
    Ok(file)
}

fn add_rig<'a>(collected: &mut Collected<'a>, file: &File<'a>) -> Result<(), BoardError> {
    let rig = &file.session.rig;
    if !is_label(&rig.label) {
        return Err(BoardError::RigLabel { file: file.path.to_owned(), label: rig.label.clone() });
    }
    let facts = collected.rigs.entry(&rig.label).or_insert_with(|| RigFacts {
        label: rig.label.clone(),
        is_registered: rig.is_registered,
        fingerprint: rig.fingerprint.clone(),
        class: rig.class.clone(),
        os_releases: Vec::new(),
        memory_bytes: Vec::new(),
        sessions: 0,
    });
    if facts.fingerprint != rig.fingerprint || facts.class != rig.class {
        let other = collected.files.iter().find(|other| other.session.rig.label == rig.label);
        return Err(BoardError::RigDiffers {
            label: rig.label.clone(),
            file: file.path.to_owned(),
            other: other.map_or_else(String::new, |other| other.path.to_owned()),
        });
    }
    facts.is_registered |= rig.is_registered;
    facts.os_releases.push(rig.os_release.clone());
    facts.memory_bytes.push(rig.memory_bytes);
    facts.sessions += 1;
    Ok(())
}

/// The verdicts of all files, each with its replicates.
pub(crate) fn entries<'a>(files: &'a [File<'a>]) -> Result<Vec<Entry<'a>>, BoardError> {
    let mut entries = Vec::new();
    for file in files {
        for &(record, verdict) in &file.verdicts {
            let replicates = replicates_of(file, record, verdict)?;
            check_numbers(file, record, verdict)?;
            entries.push(Entry { record, verdict, file, replicates });
        }
    }
    Ok(entries)
}

fn replicates_of<'a>(file: &File<'a>, record: &Record, verdict: &VerdictBody) -> Result<Vec<&'a CellBody>, BoardError> {
    let mut seen = BTreeSet::new();
    let mut replicates = Vec::with_capacity(verdict.replicates.len());
    for id in &verdict.replicates {
        let (path, verdict_id, replicate) = (file.path.to_owned(), record.id.short().to_owned(), id.short().to_owned());
        if !seen.insert(id) {
            return Err(BoardError::RepeatedReplicate { file: path, verdict: verdict_id, replicate });
        }
        let Some(&cell) = file.cells.get(id) else {
            return Err(BoardError::MissingReplicate { file: path, verdict: verdict_id, replicate });
        };
        // An INCOMPARABLE verdict is the one that says that the sides are not the same cell.
        if verdict.result.verdict != Verdict::Incomparable && cell.key != verdict.key {
            return Err(BoardError::OtherCell { file: path, verdict: verdict_id, replicate });
        }
        replicates.push(cell);
    }
    replicates.sort_by_key(|cell| cell.replicate);
    Ok(replicates)
}

/// A decided verdict has all numbers that a headline row prints.
fn check_numbers(file: &File<'_>, record: &Record, verdict: &VerdictBody) -> Result<(), BoardError> {
    let result = &verdict.result;
    if !crate::board::is_decided(result.verdict) {
        return Ok(());
    }
    let needed = [
        ("median_a_ps", result.median_a_ps.is_some()),
        ("median_b_ps", result.median_b_ps.is_some()),
        ("theta_ppm", result.theta_ppm.is_some()),
        ("lo_ppm", result.lo_ppm.is_some()),
        ("hi_ppm", result.hi_ppm.is_some()),
        ("delta_ppm", result.delta_ppm.is_some()),
        ("band_ppm", result.band_ppm.is_some()),
        ("tau_ppm", result.tau_ppm.is_some()),
    ];
    match needed.into_iter().find(|(_, is_there)| !is_there) {
        None => Ok(()),
        Some((field, _)) => {
            Err(BoardError::MissingNumber { file: file.path.to_owned(), verdict: record.id.short().to_owned(), field })
        }
    }
}

/// How a record is cited.
pub(crate) fn citation(path: &str, id: &Digest) -> String {
    format!("{path}#{}", id.short())
}
