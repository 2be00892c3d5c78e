//! From the command line to cells.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use memra_contract::{AxisValue, Problem};
use memra_harness::arm::{ArmSpec, CommandLine, Commands};
use memra_harness::cell::{self, BackendKind, CacheMode, CellSpec, FileTensor};
use memra_harness::weights;
use memra_kernels::out_of_tree::ArmText;
use memra_kernels::{Contract, registry};

use crate::checkout;
use crate::cli::{self, RunArguments};

/// The engine that this program is.
const OWN_ENGINE: &str = "memra";
/// The command of this program that runs it.
const OWN_ENGINE_COMMAND: &str = "engine-arm";

/// The cell that is raced when none is named.
const DEFAULT_CELL: &str = "demo";

/// The cells of a session, with their files found and their arms replaced.
///
/// # Errors
/// When a name, an arm, a problem or a file is wrong; the message names the nearest right one.
pub(super) fn cells(arguments: &RunArguments) -> anyhow::Result<Vec<CellSpec>> {
    if !arguments.arm.is_empty() && arguments.arm.len() != 2 {
        bail!(
            "--arm stands {} times: a race has two arms, first the incumbent, then the challenger",
            arguments.arm.len()
        );
    }
    let mut cells = match (&arguments.contract, &arguments.workload) {
        (Some(contract), _) => vec![given(arguments, contract)?],
        (None, Some(workload)) => vec![given_workload(arguments, workload)?],
        (None, None) => named(arguments)?,
    };
    for cell in &mut cells {
        if let [a, b] = arguments.arm.as_slice() {
            (cell.a, cell.b) = (a.clone(), b.clone());
        }
        if let Some(threads) = arguments.threads {
            cell.threads = threads;
        }
        if let Some(backend) = arguments.backend.kind() {
            cell.backend = backend;
        }
        cell.check()?;
        check_files(cell)?;
        let weights = cell.weights.as_ref().map(|weights| (&weights.file, "--weights"));
        let model = cell.workload.as_ref().map(|workload| (&workload.model, "--model"));
        for (file, option) in [weights, model].into_iter().flatten() {
            if !file.is_file() {
                bail!(
                    "cell `{}` needs the model file {}{}: fetch it with tools/fetch-model.sh, or say --models DIR or {option} FILE",
                    cell.name,
                    file.display(),
                    checkout::nearest_model(file)
                );
            }
        }
    }
    if let [first, others @ ..] = cells.as_slice()
        && let Some(other) = others.iter().find(|cell| cell.backend != first.backend)
    {
        bail!(
            "cell `{}` is for the backend {} and cell `{}` for {}: a session has one, say --backend",
            first.name,
            first.backend,
            other.name,
            other.backend
        );
    }
    Ok(cells)
}

/// Holds files that are arms to the cell, so that what is wrong with them is said before anything is measured.
fn check_files(cell: &CellSpec) -> anyhow::Result<()> {
    for text in [&cell.a, &cell.b] {
        let ArmSpec::File(path) = text.parse()? else { continue };
        let header = ArmText::read(&path)?.header()?;
        let contract = header.contract.info().id;
        if contract != cell.contract {
            bail!("{text}: contract: it is an arm of `{contract}`, and the cell is of `{}`", cell.contract);
        }
        if cell.backend != BackendKind::Cuda {
            bail!("{text} runs on a card: say --backend cuda");
        }
    }
    Ok(())
}

/// The commands of process arms and engines. This program itself is the engine `memra`, unless another command was given.
///
/// # Errors
/// When one is not NAME=COMMAND, or this program does not know where it is.
pub(super) fn commands(arguments: &RunArguments, cells: &[CellSpec]) -> anyhow::Result<Commands> {
    let mut commands = Commands::default();
    for text in &arguments.process {
        commands.add(text)?;
    }
    let own = ArmSpec::Engine(OWN_ENGINE.to_owned()).to_string();
    if commands.get(OWN_ENGINE).is_none() && cells.iter().any(|cell| cell.a == own || cell.b == own) {
        let program = std::env::current_exe().context("path of this program")?;
        let Some(program) = program.to_str() else { bail!("the path of this program is no UTF-8 text") };
        let words = vec![program.to_owned(), OWN_ENGINE_COMMAND.to_owned()];
        commands.insert(OWN_ENGINE, CommandLine::try_from(words)?)?;
    }
    Ok(commands)
}

fn named(arguments: &RunArguments) -> anyhow::Result<Vec<CellSpec>> {
    let models = models_folder(arguments.models.as_deref());
    let default = [DEFAULT_CELL.to_owned()];
    let names = if arguments.cells.is_empty() { &default[..] } else { &arguments.cells };
    let mut found: Vec<&cell::Cell> = Vec::new();
    for pattern in names {
        for cell in cell::select(pattern)? {
            if !found.iter().any(|known| known.name == cell.name) {
                found.push(cell);
            } else if cell.name == *pattern {
                bail!("cell `{pattern}` is named twice");
            }
        }
    }
    if let Some(most) = arguments.priority {
        found.retain(|cell| cell.priority <= most);
        if found.is_empty() {
            bail!("no cell of {} has a priority of {most} or before it", names.join(", "));
        }
    }
    let mut cells = Vec::new();
    for cell in found {
        let name = &cell.name;
        let mut spec = cell.spec(&models);
        match (&mut spec.weights, &arguments.weights) {
            (Some(weights), Some(file)) => {
                weights.file.clone_from(file);
                if let Some(tensor) = &arguments.tensor {
                    weights.tensor.clone_from(tensor);
                }
            }
            (None, Some(_)) if spec.workload.is_some() => bail!("cell `{name}` is a workload: say --model FILE"),
            (None, Some(_)) => bail!("cell `{name}` has generated weights: --weights is for cells on a model's tensor"),
            (_, None) => {}
        }
        match (&mut spec.workload, &arguments.model) {
            (Some(workload), Some(file)) => workload.model.clone_from(file),
            (None, Some(_)) => bail!("cell `{name}` is no workload: --model is for cells that engines run"),
            (_, None) => {}
        }
        cells.push(spec);
    }
    Ok(cells)
}

fn given(arguments: &RunArguments, contract: &str) -> anyhow::Result<CellSpec> {
    let [a, b] = arguments.arm.as_slice() else {
        bail!("a cell given here needs --arm twice: first the incumbent, then the challenger");
    };
    let contract = registry::contract(contract)?;
    let mut problem = arguments.problem.clone().unwrap_or_default();
    let weights = match (&arguments.weights, &arguments.tensor) {
        (Some(file), Some(_)) if !file.is_file() => {
            bail!("no model file {}{}", file.display(), checkout::nearest_model(file))
        }
        (Some(file), Some(tensor)) => {
            problem = completed(contract, &problem, file, tensor)?;
            Some(FileTensor { file: file.clone(), tensor: tensor.clone() })
        }
        (Some(file), None) => bail!("--weights {} needs --tensor NAME", file.display()),
        (None, _) => None,
    };
    let family = match (&arguments.family, contract.info().families.first()) {
        (Some(family), _) => family.clone(),
        (None, Some((family, _))) => (*family).to_owned(),
        (None, None) => bail!("contract `{}` has no input family", contract.info().id),
    };
    let problem = contract.normalise(&problem.parse()?).context("--problem")?.to_string();
    let cache = match arguments.cache {
        Some(cli::CacheMode::Hot) => CacheMode::Hot,
        Some(cli::CacheMode::Rotate) | None => CacheMode::Rotate,
    };
    Ok(CellSpec {
        name: "given".to_owned(),
        title: format!("{} {problem}", contract.info().id),
        contract: contract.info().id.to_owned(),
        problem,
        a: a.clone(),
        b: b.clone(),
        family,
        input_seed: 1,
        cache,
        threads: 0,
        priority: 1,
        weights,
        workload: None,
        backend: BackendKind::Host,
    })
}

fn given_workload(arguments: &RunArguments, workload: &str) -> anyhow::Result<CellSpec> {
    let [a, b] = arguments.arm.as_slice() else {
        bail!("a workload given here needs --arm twice: first the incumbent, then the challenger");
    };
    let Some(model) = &arguments.model else { bail!("--workload needs --model FILE") };
    let workload = workload.parse().context("--workload")?;
    Ok(CellSpec::given_workload(model.clone(), workload, a.clone(), b.clone()))
}

/// The axes that a stored tensor says, with those that were given.
fn completed(contract: &dyn Contract, given: &str, file: &Path, tensor: &str) -> anyhow::Result<String> {
    let tensor = weights::load_tensor(file, tensor)?;
    let given: Problem = given.parse().context("--problem")?;
    let mut problem = match contract.info().id {
        "matmul" => weights::problem_for(&tensor, 1)?,
        "rms_norm" => {
            tensor.dims.first().map_or_else(Problem::new, |hidden| Problem::new().with("m", 1).with("hidden", *hidden))
        }
        other => bail!("contract `{other}` has no weights that a tensor could be"),
    };
    for (axis, value) in given.axes() {
        problem = match value {
            AxisValue::Size(size) => problem.with(axis, *size),
            AxisValue::Word(word) => problem.with_word(axis, word),
        };
    }
    Ok(problem.to_string())
}

/// `--models`, else the folder `models` of the checkout or of the working folder.
fn models_folder(given: Option<&Path>) -> PathBuf {
    match (given, checkout::checkout()) {
        (Some(folder), _) => folder.to_owned(),
        (None, Some(checkout)) => checkout.join("models"),
        (None, None) => PathBuf::from("models"),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{AbCommand, Cli, Command};

    fn planned(words: &[&str]) -> anyhow::Result<Vec<CellSpec>> {
        let line = ["memra-lab", "ab", "run", "--contract=matmul", "--problem=m=1,k=64,seg=q8_0:8", "--arm=default"];
        let Command::Ab { command: AbCommand::Run(arguments) } = Cli::parse_from(line.iter().chain(words)).command
        else {
            bail!("another command")
        };
        cells(&arguments)
    }

    #[test]
    fn files_are_held_to_the_cell_before_anything_is_measured() {
        let example = |name: &str| format!("--arm={}/../../docs/examples/{name}", env!("CARGO_MANIFEST_DIR"));
        let (file, other) = (example("q8_rows.cu"), example("quantise_warp.cu"));
        let cells = planned(&[file.as_str(), "--backend=cuda"]).unwrap();
        assert_eq!((cells[0].backend, cells[0].a.as_str()), (BackendKind::Cuda, "default"));
        assert!(cells[0].b.ends_with("q8_rows.cu"));
        for (words, wanted) in [
            ([file.as_str(), "--backend=host"], "q8_rows.cu runs on a card: say --backend cuda"),
            ([other.as_str(), "--backend=cuda"], "an arm of `quantise`, and the cell is of `matmul`"),
            (["--arm=none.cu", "--backend=cuda"], "none.cu: "),
        ] {
            let error = planned(&words).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
