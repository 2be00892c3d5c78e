//! `ab run`: one session. The parent process plans, starts a fresh process for every replicate, and alone writes.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use memra_contract::digest::Digest;
use memra_harness::arm::{self, Commands};
use memra_harness::cell::{self, BackendKind, CellSpec};
use memra_harness::lock::{self, DeviceLock};
use memra_harness::observe::{Observer, observe_quads};
use memra_harness::outcome;
use memra_harness::suite::{self, ReplicateLine, ReplicateSpec};
use memra_harness::trial::WarmUpLimits;
use memra_ledger::chain::{ReceiptName, ReceiptWriter};
use memra_ledger::judge::verdict_body;
use memra_ledger::record::{Body, CellBody, CellPlan, QuadObservation, SessionBody, SessionPlan, VerdictBody};

use super::plan;
use super::report::{self, Failed, Report};
use crate::cli::RunArguments;
use crate::commands::session::{rig, seed_of_now, session_id};
use crate::commands::{now, privacy, today};
use crate::cuda::Card;
use crate::{EXIT_ERROR, checkout, cuda, facts, ui};

/// How long a session waits for other processes to leave the CPUs before each replicate.
const QUIET_PATIENCE: Duration = Duration::from_mins(1);
/// Time over which their use of the CPUs is judged.
const QUIET_WINDOW: Duration = Duration::from_millis(500);

/// A cell of one replicate with the id of its record.
type Measured = (Digest, CellBody);

/// Runs the command.
///
/// # Errors
/// Whatever keeps the session from being measured or recorded.
pub(super) fn run(arguments: &RunArguments) -> anyhow::Result<u8> {
    if arguments.list {
        return list(arguments.json);
    }
    let raced = race(arguments)?;
    report::print(&raced.report, &raced.root, arguments.json)?;
    Ok(raced.report.code)
}

/// A session that was measured and recorded.
pub struct Raced {
    report: Report,
    root: PathBuf,
}

impl Raced {
    /// The verdicts with their citations.
    pub fn verdicts(&self) -> impl Iterator<Item = (String, &VerdictBody)> {
        let citation = |id: &Digest| format!("{}#{}", self.report.file, id.short());
        self.report.verdicts.iter().map(move |(id, verdict)| (citation(id), verdict))
    }

    /// The schedule of a cell.
    pub fn plan(&self, cell: &str) -> Option<&CellPlan> {
        self.report.cells.iter().map(|(_, body)| body).find(|body| body.cell == cell).map(|body| &body.plan)
    }

    /// Cells without a result, and why.
    pub fn failed(&self) -> impl Iterator<Item = (&str, &str)> {
        self.report.failed.iter().map(|failed| (failed.cell.as_str(), failed.reason.as_str()))
    }

    /// Exit code.
    pub const fn code(&self) -> u8 {
        self.report.code
    }
}

/// Measures and records what the command line says, and makes the boards anew.
///
/// # Errors
/// Whatever keeps the session from being measured or recorded.
pub fn race(arguments: &RunArguments) -> anyhow::Result<Raced> {
    let cells = plan::cells(arguments)?;
    let commands = plan::commands(arguments, &cells)?;
    let root = checkout::evidence_root(arguments.root.root.as_deref())?;
    let smallest_ppm = smallest_ppm(arguments.smallest)?;
    let machine = Machine::of(&cells)?;
    let _lock = lock(machine.lock())?;
    let finished = until_undisturbed(arguments.attempts, || {
        let finished = session(arguments, &machine, cells.clone(), commands.clone(), &root, smallest_ppm)?;
        let (code, file) = (finished.code, finished.file.clone());
        Ok((finished, code, file))
    })?;
    #[cfg(feature = "boards")]
    crate::commands::board::refresh(&root)?;
    Ok(Raced { report: finished, root })
}

/// Measures until a session is not VOID, at most `attempts` times, and hands out the last.
///
/// VOID says that the machine was disturbed and nothing of the arms, so measuring again selects no outcome.
fn until_undisturbed<T>(
    attempts: u32,
    mut session: impl FnMut() -> anyhow::Result<(T, u8, String)>,
) -> anyhow::Result<T> {
    let mut attempt = 1;
    loop {
        let (finished, code, file) = session()?;
        if code != outcome::VOID || attempt >= attempts {
            return Ok(finished);
        }
        attempt += 1;
        ui::say(format_args!("VOID: the session was disturbed; it stands in {file}"));
        ui::say(format_args!("measuring again, attempt {attempt} of {attempts}"));
    }
}

/// What a session measures on.
enum Machine {
    Host,
    Card(Box<Card>),
}

impl Machine {
    fn of(cells: &[CellSpec]) -> anyhow::Result<Self> {
        match cells.first() {
            Some(cell) if cell.backend == BackendKind::Cuda => {
                Ok(Self::Card(Box::new(cuda::needed(&format!("cell `{}`", cell.name))?)))
            }
            _ => Ok(Self::Host),
        }
    }

    /// What tells the device from others of the machine.
    fn lock(&self) -> &str {
        match self {
            Self::Host => "host",
            Self::Card(card) => &card.lock,
        }
    }

    fn card(&self) -> Option<&Card> {
        match self {
            Self::Host => None,
            Self::Card(card) => Some(card),
        }
    }

    fn threads(&self, cpus: usize) -> anyhow::Result<u32> {
        match self {
            Self::Host => Ok(u32::try_from(cpus)?),
            Self::Card(_) => Ok(1),
        }
    }
}

/// Measures and records one session.
fn session(
    arguments: &RunArguments,
    machine: &Machine,
    cells: Vec<CellSpec>,
    commands: Commands,
    root: &Path,
    smallest_ppm: i64,
) -> anyhow::Result<Report> {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let rig = rig(machine.card())?;
    let seed = arguments.seed.unwrap_or_else(seed_of_now);
    let session = SessionBody {
        tool: facts::tool(),
        rig,
        clock: "free".to_owned(),
        threads: arguments.threads.unwrap_or(machine.threads(cpus)?),
        plan: SessionPlan {
            stop: "fixed".to_owned(),
            quads: arguments.quads,
            aa_blocks: arguments.aa_blocks,
            replicates: arguments.replicates,
            seed,
            smallest_ppm,
            cells: cells.iter().map(|cell| cell.name.clone()).collect(),
        },
        command: command_line(arguments),
        started_utc: now(),
    };
    let mut spec = ReplicateSpec {
        cells,
        replicate: 0,
        seed,
        quads: arguments.quads,
        aa_blocks: arguments.aa_blocks,
        smallest_ppm,
        warm_up: WarmUpLimits::default(),
        local_defaults: checkout::tables(session.rig.class.device_key.parse()?)?.local,
        commands,
        scratch: std::env::temp_dir(),
    };
    let expected = suite::expected_seconds(&spec).saturating_mul(u64::from(arguments.replicates));
    ui::say(format_args!(
        "{}, {}, {} quads a block, {} A/A blocks: about {expected} s, longer where an arm is slow",
        counted(spec.cells.len(), "cell"),
        counted(arguments.replicates as usize, "replicate"),
        spec.quads,
        spec.aa_blocks,
    ));
    let name = ReceiptName::new(&session.rig.label, &today(), &slug(arguments, &session.plan), &session_id(seed))?;
    let mut writer = ReceiptWriter::create(root, &name, privacy())?;
    writer.append(Body::Session(Box::new(session.clone())))?;
    let mut written = Written::default();
    for replicate in 0..session.plan.replicates {
        spec.replicate = replicate;
        if session.plan.replicates > 1 {
            ui::say(format_args!("replicate {} of {}", replicate + 1, session.plan.replicates));
        }
        // What a card does is not the host's business; who else computes on it is looked at quad by quad.
        if matches!(machine, Machine::Host) {
            wait_for_quiet(cpus);
        }
        let program = std::env::current_exe().context("path of this program")?;
        let command = || {
            let mut command = Command::new(&program);
            command.args(["ab", "replicate"]);
            command
        };
        run_replicate(&spec, &mut writer, &mut written, &command)?;
    }
    let verdicts = append_verdicts(&spec.cells, &written.cells, smallest_ppm, &mut writer)?;
    let outcomes: Vec<_> = verdicts.iter().map(|(_, verdict)| verdict.result.verdict).collect();
    let is_unopened =
        written.failed.iter().any(|failed| !verdicts.iter().any(|(_, verdict)| verdict.cell == failed.cell));
    let code = match outcome::exit_code(&outcomes, written.is_gate_failed, false) {
        outcome::PASSED if is_unopened => EXIT_ERROR,
        code => code,
    };
    let file = writer.name().to_owned();
    writer.finish(now(), code)?;
    Ok(Report { file, session, cells: written.cells, verdicts, failed: written.failed, code })
}

#[derive(Default)]
struct Written {
    is_gate_failed: bool,
    cells: Vec<Measured>,
    failed: Vec<Failed>,
}

/// Waits, for a while, until other processes leave the CPUs alone. Whether they did is judged quad by quad all the same.
fn wait_for_quiet(cpus: usize) {
    let mut observer = Observer::new(Instant::now());
    let until = Instant::now() + QUIET_PATIENCE;
    let mut is_said = false;
    let mut before = observer.observe();
    while Instant::now() < until {
        std::thread::sleep(QUIET_WINDOW);
        let after = observer.observe();
        let (observed, _) = observe_quads(&[before, after]);
        before = after;
        // The share is of all CPUs; a tenth of one is quiet.
        let is_quiet = |quad: &QuadObservation| quad.foreign_ppm.is_none_or(|ppm| ppm as usize * cpus < 100_000);
        if observed.iter().all(is_quiet) {
            return;
        }
        if !is_said {
            ui::say(format_args!("waiting for other processes to leave the CPUs"));
            is_said = true;
        }
    }
}

/// Measures one replicate: in one process, and in further ones for the cells that are left where one did not live to its end.
///
/// A process that says itself that it cannot measure ends the session.
fn run_replicate(
    spec: &ReplicateSpec,
    writer: &mut ReceiptWriter,
    written: &mut Written,
    command: &dyn Fn() -> Command,
) -> anyhow::Result<()> {
    let mut spec = spec.clone();
    loop {
        let ended = run_process(&spec, writer, written, command())?;
        if ended.status.success() && ended.is_done {
            return Ok(());
        }
        if ended.status.code() == Some(i32::from(EXIT_ERROR)) {
            bail!("a replicate ended early ({}); what it measured stands in {}", ended.status, writer.name());
        }
        let (culprit, rest) = spec.after_a_crash(&ended.heard, ended.is_lost);
        match culprit {
            Some(cell) => {
                let reason = format!("the process of the replicate ended with it ({})", ended.status);
                ui::say(format_args!("cell `{cell}`: {reason}"));
                written.failed.push(Failed { cell, reason });
            }
            None => ui::say(format_args!("the process of the replicate ended ({})", ended.status)),
        }
        if rest.cells.is_empty() {
            return Ok(());
        }
        ui::say(format_args!("{} left: measured in another process", counted(rest.cells.len(), "cell")));
        spec = rest;
    }
}

/// How the process of a replicate ended.
struct Ended {
    status: ExitStatus,
    /// Whether it said that it was through.
    is_done: bool,
    /// Whether it said that its device was lost.
    is_lost: bool,
    /// Cells it said something of.
    heard: BTreeSet<String>,
}

/// Starts a process for the cells of one replicate and writes what it finds.
fn run_process(
    spec: &ReplicateSpec,
    writer: &mut ReceiptWriter,
    written: &mut Written,
    mut command: Command,
) -> anyhow::Result<Ended> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("process of a replicate")?;
    // A child that dies early closes its stdin; what it said on stderr and its exit code tell why.
    if let Some(mut stdin) = child.stdin.take() {
        let _ = stdin.write_all(serde_json::to_string(spec)?.as_bytes());
    }
    let stdout = child.stdout.take().context("output of a replicate")?;
    let mut gates: Vec<(u32, Digest)> = Vec::new();
    let (mut is_done, mut is_lost, mut heard) = (false, false, BTreeSet::new());
    for line in BufReader::new(stdout).lines() {
        let line = line.context("output of a replicate")?;
        match serde_json::from_str(&line).with_context(|| format!("output of a replicate: {line}"))? {
            ReplicateLine::Gate { local, gate } => {
                written.is_gate_failed |= !gate.is_passed;
                for failure in &gate.failures {
                    ui::say(format_args!(
                        "check of {}: {}: {}: {}",
                        gate.variant, failure.case, failure.reason, failure.detail
                    ));
                }
                gates.push((local, writer.append(Body::Gate(gate))?.id));
            }
            ReplicateLine::Cell { gate_a, gate_b, mut cell } => {
                let id = |local: Option<u32>| {
                    gates.iter().find(|(known, _)| Some(*known) == local).map(|(_, id)| id.clone())
                };
                (cell.a.gate, cell.b.gate) = (id(gate_a), id(gate_b));
                heard.insert(cell.cell.clone());
                let record = writer.append(Body::Cell(cell.clone()))?;
                written.cells.push((record.id, *cell));
            }
            ReplicateLine::Failed { cell, reason } => {
                ui::say(format_args!("cell `{cell}`: {reason}"));
                heard.insert(cell.clone());
                written.failed.push(Failed { cell, reason });
            }
            ReplicateLine::Lost => is_lost = true,
            ReplicateLine::Done => is_done = true,
        }
    }
    let status = child.wait().context("process of a replicate")?;
    Ok(Ended { status, is_done, is_lost, heard })
}

fn append_verdicts(
    cells: &[CellSpec],
    measured: &[Measured],
    smallest_ppm: i64,
    writer: &mut ReceiptWriter,
) -> anyhow::Result<Vec<(Digest, VerdictBody)>> {
    let mut verdicts = Vec::new();
    for cell in cells {
        let replicates: Vec<_> =
            measured.iter().filter(|(_, body)| body.cell == cell.name).map(|(id, body)| (id, body)).collect();
        if let Some(verdict) = verdict_body(&replicates, smallest_ppm) {
            let record = writer.append(Body::Verdict(Box::new(verdict.clone())))?;
            verdicts.push((record.id, verdict));
        }
    }
    Ok(verdicts)
}

/// One session at a time on a device: the lock is the device's, not the root's.
fn lock(device: &str) -> anyhow::Result<DeviceLock> {
    let path = std::env::temp_dir().join(lock::file_name(device));
    let mut is_said = false;
    let lock = DeviceLock::acquire(&path, &mut |waiting| {
        if !is_said {
            let holder = waiting.holder.map_or_else(String::new, |pid| format!(" (process {pid})"));
            ui::say(format_args!("waiting for another session on this device{holder}"));
            is_said = true;
        }
        ControlFlow::Continue(())
    })?;
    Ok(lock)
}

fn smallest_ppm(percent: f64) -> anyhow::Result<i64> {
    if percent.is_finite() && percent > 0.0 && percent <= 50.0 {
        return Ok((percent * 10_000.0).round() as i64);
    }
    bail!("--smallest {percent}: a percentage above 0 and up to 50 is needed");
}

/// The command line as it stands in the receipt: paths and commands are left out.
fn command_line(arguments: &RunArguments) -> Vec<String> {
    let mut line = vec!["ab".to_owned(), "run".to_owned()];
    line.extend(arguments.cells.iter().cloned());
    let mut option = |name: &str, value: Option<String>| line.extend(value.map(|value| format!("--{name}={value}")));
    option("priority", arguments.priority.map(|priority| priority.to_string()));
    option("contract", arguments.contract.clone());
    option("problem", arguments.problem.clone());
    option("workload", arguments.workload.clone());
    for arm in &arguments.arm {
        // Of a file its name alone.
        let name = if arm::is_file(arm) { arm.rsplit(['/', '\\']).next().unwrap_or_default() } else { arm };
        option("arm", Some(name.to_owned()));
    }
    option("tensor", arguments.tensor.clone());
    option("family", arguments.family.clone());
    option("backend", arguments.backend.kind().map(|kind| kind.name().to_owned()));
    option("cache", arguments.cache.map(|cache| cache.name().to_owned()));
    option("threads", arguments.threads.map(|threads| threads.to_string()));
    option("quads", Some(arguments.quads.to_string()));
    option("aa-blocks", Some(arguments.aa_blocks.to_string()));
    option("replicates", Some(arguments.replicates.to_string()));
    option("smallest", Some(arguments.smallest.to_string()));
    line
}

fn slug(arguments: &RunArguments, plan: &SessionPlan) -> String {
    let text = arguments.slug.clone().unwrap_or_else(|| plan.cells.join("-"));
    let words: String = text
        .to_lowercase()
        .chars()
        .map(|c| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' })
        .take(48)
        .collect();
    match words.split('-').filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-") {
        words if words.is_empty() => "session".to_owned(),
        words => words,
    }
}

fn counted(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

fn list(json: bool) -> anyhow::Result<u8> {
    let cells = cell::cells();
    if json {
        let cells: Vec<_> = cells.iter().map(|cell| cell.spec(Path::new("models"))).collect();
        ui::print_json(&cells)?;
        return Ok(0);
    }
    let rows = cells
        .iter()
        .map(|cell| {
            let arms = format!("{} against {}", cell.b, cell.a);
            vec![cell.name.clone(), format!("{} {}", cell.contract, cell.problem), cell.cache.name().to_owned(), arms]
        })
        .collect();
    ui::print(ui::table(&["cell", "problem", "cache", "arms"], rows))?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_void_sessions_are_measured_again() {
        for (codes, attempts, wanted) in [
            (&[12, 12, 0][..], 3, 3),
            (&[12, 10], 3, 2),
            (&[12, 12], 2, 2),
            (&[11], 3, 1),
            (&[14], 3, 1),
            (&[12], 1, 1),
        ] {
            let mut ran = 0;
            let last = until_undisturbed(attempts, || {
                ran += 1;
                Ok((ran, codes[ran - 1], String::new()))
            });
            assert_eq!((last.unwrap(), ran), (wanted, wanted));
        }
        assert!(until_undisturbed::<()>(3, || bail!("broken")).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn a_process_that_dies_costs_its_cell_and_the_others_are_measured() {
        use memra_harness::suite::ReplicateSpec;
        let folder = tempfile::tempdir().unwrap();
        let name = ReceiptName::new("some-rig", "2026-01-02", "test", &"0a".repeat(16)).unwrap();
        let mut writer = ReceiptWriter::create(folder.path(), &name, privacy()).unwrap();
        let cells = ["demo", "quantise-m1", "rms-norm-m1"].map(|name| cell::cell(name).unwrap().spec(Path::new("")));
        let spec = ReplicateSpec {
            cells: cells.to_vec(),
            replicate: 0,
            seed: 1,
            quads: 6,
            aa_blocks: 1,
            smallest_ppm: 1,
            warm_up: WarmUpLimits::default(),
            local_defaults: None,
            commands: Commands::default(),
            scratch: std::env::temp_dir(),
        };
        // A child that answers for no cell and dies, as often as it is started.
        let run = |script: &str, writer: &mut ReceiptWriter| {
            let mut written = Written::default();
            let command = || {
                let mut command = Command::new("sh");
                command.args(["-c", script]).current_dir(folder.path());
                command
            };
            let ran = run_replicate(&spec, writer, &mut written, &command);
            let mut failed: Vec<_> = written.failed.into_iter().map(|failed| (failed.cell, failed.reason)).collect();
            failed.sort();
            (ran, failed)
        };
        let (ran, failed) = run("cat >>seen; echo >>seen; kill -SEGV $$", &mut writer);
        ran.unwrap();
        assert_eq!(
            failed.iter().map(|(cell, _)| cell.as_str()).collect::<Vec<_>>(),
            ["demo", "quantise-m1", "rms-norm-m1"]
        );
        assert!(failed.iter().all(|(_, reason)| reason.contains("signal: 11")), "{failed:?}");
        let seen = std::fs::read_to_string(folder.path().join("seen")).unwrap();
        assert_eq!(seen.lines().count(), 3, "every process gets the cells that are left");
        // A device that is lost behind a cell that was told of: the others are measured, and none is blamed.
        let told = r#"cat >spec; for n in demo quantise-m1 rms-norm-m1; do grep -q "$n" spec && [ ! -e "told-$n" ] && {
            : >"told-$n"; echo '{"line":"failed","cell":"'$n'","reason":"its check"}'; echo '{"line":"lost"}'; exit 0; }; done"#;
        let (ran, failed) = run(told, &mut writer);
        ran.unwrap();
        assert_eq!(failed.len(), 3);
        assert!(failed.iter().all(|(_, reason)| reason == "its check"), "{failed:?}");
        // A process that cannot measure at all says so with its exit code.
        let (ran, failed) = run("cat >spec; exit 1", &mut writer);
        assert!(ran.unwrap_err().to_string().contains("ended early") && failed.is_empty());
    }

    #[test]
    fn percentages_become_parts_per_million() {
        assert_eq!(smallest_ppm(0.5).unwrap(), 5000);
        for bad in [0.0, -1.0, 51.0, f64::NAN] {
            assert!(smallest_ppm(bad).is_err());
        }
    }
}
