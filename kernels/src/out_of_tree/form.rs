//! What a file of device text launches for a problem, by its header.

use memra_contract::{AxisValue, Problem, TensorSet};

use super::header::{ArgTemplate, ArmHeader, LaunchTemplate, tensor};
use crate::contract::{Contract, PrepareError, Target, Variant};
use crate::form::{Arg, DeviceForm, LaunchForm};

/// Most threads of a launch.
const MOST_THREADS: u64 = 1 << 40;

/// Most dynamic shared memory that a block may have on any card, in bytes.
const MOST_SHARED: u64 = 227 << 10;

/// Most scratch memory of a form, in bytes.
const MOST_SCRATCH: u64 = 4 << 30;

/// A layout of a weight has at most so many times the stored bytes, and a mebibyte more for small ones.
const MOST_GROWTH: u64 = 8;

/// Word axes whose values need an argument: contract, axis, value, tensor.
const NEEDED: &[(&str, &str, &str, &str)] = &[
    ("matmul", "epi", "residual", "residual"),
    ("matmul", "act", "q8", "quants"),
    ("matmul", "act", "f32", "activation"),
    ("matmul", "act", "f16", "activation"),
    ("matmul", "act", "bf16", "activation"),
];

/// Axes of a problem with the sizes that segments give.
struct Axes<'a> {
    problem: &'a Problem,
    segments: Vec<u64>,
    sms: u32,
}

impl<'a> Axes<'a> {
    fn new(problem: &'a Problem, sms: u32) -> Self {
        let text = problem.get("seg").map(ToString::to_string).unwrap_or_default();
        let size = |part: &str| part.rsplit_once(':').and_then(|(_, n)| n.parse().ok());
        Self { problem, segments: text.split('+').filter_map(size).collect(), sms }
    }

    /// The value of an axis; `n` are the rows of all segments, or of the one whose weight is laid out.
    fn get(&self, name: &str, segment: Option<usize>) -> Option<u64> {
        match (self.problem.get(name), name) {
            (Some(AxisValue::Size(size)), _) => Some(*size),
            (Some(AxisValue::Word(_)), _) => None,
            (None, "sms") => Some(u64::from(self.sms)),
            (None, "n") => match segment {
                Some(index) => self.segments.get(index).copied(),
                None if self.segments.is_empty() => None,
                None => self.segments.iter().try_fold(0_u64, |all, n| all.checked_add(*n)),
            },
            (None, _) => self.segments.get(name.strip_prefix('n')?.parse::<usize>().ok()?).copied(),
        }
    }
}

/// Why a file does not serve a problem.
pub(super) fn refusal(header: &ArmHeader, problem: &Problem) -> Option<String> {
    let contract = header.contract;
    let names =
        |name: &str| header.launch.args.iter().any(|arg| matches!(arg, ArgTemplate::Tensor(known) if known == name));
    let (full, class) = match contract.normalise(problem).and_then(|full| Ok((contract.class(&full)?, full))) {
        Ok((class, full)) => (full, class),
        Err(error) => return Some(error.to_string()),
    };
    let problem = &full;
    if let Some(AxisValue::Size(rows)) = problem.get(contract.info().rows_axis)
        && !(header.rows.0..=header.rows.1).contains(rows)
    {
        return Some(format!("it serves {} to {} rows", header.rows.0, header.rows.1));
    }
    if !header.formats.is_empty()
        && let Some(other) = class.format.split('+').find(|format| !header.formats.iter().any(|known| known == format))
    {
        return Some(format!("it serves {}, and not {other}", header.formats.join(", ")));
    }
    for (name, allowed) in &header.axes {
        if !problem.get(name).is_some_and(|value| allowed.contains(value)) {
            let allowed: Vec<_> = allowed.iter().map(ToString::to_string).collect();
            return Some(format!("it serves {name} = {}", allowed.join(", ")));
        }
    }
    let axes = Axes::new(problem, 0);
    for (name, multiple) in &header.multiples {
        if !axes.get(name, None).is_some_and(|value| value.is_multiple_of(*multiple)) {
            return Some(format!("it serves multiples of {multiple} as {name}"));
        }
    }
    let is_named_weight = |arg: &&ArgTemplate| matches!(arg, ArgTemplate::Tensor(name) if is_weight(header, name));
    let (named, segments) = (header.launch.args.iter().filter(is_named_weight).count(), axes.segments.len());
    if segments > 0 && (named != segments || (0..segments).any(|index| !names(&format!("weight{index}")))) {
        return Some(format!("its arguments name {named} weights, and there are {segments} segments"));
    }
    for (of, axis, value, tensor) in NEEDED {
        let is_so = problem.get(axis).is_some_and(|found| found.to_string() == *value);
        if *of == contract.info().id && is_so && !names(tensor) {
            return Some(format!("{axis} is {value}, and its arguments do not name `{tensor}`"));
        }
    }
    let keeps = |variant: &&&Variant| variant.order_class == header.order_class;
    let serves = |variant: &&Variant| contract.supports(variant, problem).is_ok();
    if !header.order_class.is_device() && !contract.variants().iter().filter(keeps).any(serves) {
        return Some(format!("no variant of the contract keeps {} for it", header.order_class.id));
    }
    if pattern(contract, problem).is_none() {
        return Some("no CUDA variant of the contract serves it, so its buffers on a card are not known".to_owned());
    }
    None
}

/// The CUDA variant whose buffers are those of a problem: what is read back, and what rotates.
fn pattern(contract: &dyn Contract, problem: &Problem) -> Option<&'static Variant> {
    let is_cuda = |variant: &&&Variant| matches!(variant.target, Target::Cuda(_));
    contract.variants().iter().filter(is_cuda).find(|variant| contract.supports(variant, problem).is_ok()).copied()
}

/// A weight of a segment, not one of the scales beside it.
fn is_weight(header: &ArmHeader, name: &str) -> bool {
    tensor(header.contract, name).is_some_and(|tensor| tensor.role == "weight") && name.starts_with("weight")
}

/// The form of a problem that the file serves.
///
/// # Errors
/// Why there is none, as text, or what the contract says.
pub(super) fn form(
    header: &ArmHeader,
    problem: &Problem,
    inputs: &TensorSet,
    sms: u32,
) -> Result<Result<DeviceForm, String>, PrepareError> {
    let Some(pattern) = pattern(header.contract, problem) else {
        return Ok(Err("its buffers on a card are not known".to_owned()));
    };
    let pattern = header.contract.device_form(pattern, problem, inputs)?;
    let builder = Builder { header, axes: Axes::new(problem, sms), inputs, pattern: &pattern };
    Ok(builder.build())
}

struct Builder<'a> {
    header: &'a ArmHeader,
    axes: Axes<'a>,
    inputs: &'a TensorSet,
    pattern: &'a DeviceForm,
}

impl Builder<'_> {
    fn build(&self) -> Result<DeviceForm, String> {
        let mut form =
            DeviceForm { outputs: self.pattern.outputs.clone(), mode: self.pattern.mode, ..DeviceForm::default() };
        let rotating = self.rotating();
        let mut args = Vec::with_capacity(self.header.launch.args.len());
        for arg in &self.header.launch.args {
            args.push(match arg {
                ArgTemplate::Tensor(name) => self.tensor(name, &rotating, &mut form)?,
                ArgTemplate::Scratch(bytes) => {
                    let bytes = self.value(bytes, None)?;
                    let all = form.scratch.iter().map(|bytes| *bytes as u64).sum::<u64>();
                    if bytes == 0 || all.checked_add(bytes).is_none_or(|all| all > MOST_SCRATCH) {
                        return Err(format!("scratch of {bytes} bytes beside {all}: 1 to {MOST_SCRATCH} are given"));
                    }
                    form.scratch.push(usize::try_from(bytes).map_err(|error| error.to_string())?);
                    Arg::Scratch(form.scratch.len() - 1)
                }
                number => self.number(number, None)?,
            });
        }
        form.launches = vec![self.launch(&self.header.launch, args, None)?];
        Ok(form)
    }

    /// Names of the inputs that rotate, as they do for the pattern.
    fn rotating(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for buffer in &self.pattern.rotating {
            let is_it = |name: &str, bytes: &[u8]| !names.contains(&name) && bytes == buffer.as_slice();
            let found = self.inputs.iter().find(|tensor| is_it(&tensor.name, &tensor.bytes));
            names.extend(found.map(|tensor| tensor.name.as_str()));
        }
        names
    }

    /// The buffer of a tensor; null where the problem has none of the name.
    fn tensor(&self, name: &str, rotating: &[&str], form: &mut DeviceForm) -> Result<Arg, String> {
        if let Some(index) = form.outputs.iter().position(|output| output.name == name) {
            return Ok(Arg::Output(index));
        }
        let Some(tensor) = self.inputs.get(name) else { return Ok(Arg::Null) };
        if let (Some(_), true) = (&self.header.repack, is_weight(self.header, name)) {
            return self.repacked(name, &tensor.bytes, form);
        }
        let buffers = if rotating.contains(&name) { &mut form.rotating } else { &mut form.fixed };
        buffers.push(tensor.bytes.clone());
        let index = buffers.len() - 1;
        Ok(if rotating.contains(&name) { Arg::Rotating(index) } else { Arg::Fixed(index) })
    }

    /// A rotating buffer that a launch fills from the stored bytes before anything else.
    fn repacked(&self, name: &str, stored: &[u8], form: &mut DeviceForm) -> Result<Arg, String> {
        let Some(repack) = &self.header.repack else { return Err("there is no repack".to_owned()) };
        let segment = name.strip_prefix("weight").and_then(|rest| rest.parse::<usize>().ok());
        let bytes = self.value(&repack.bytes, segment)?;
        let most = (stored.len() as u64).saturating_mul(MOST_GROWTH).saturating_add(1 << 20);
        if bytes == 0 || bytes > most {
            let stored = stored.len();
            return Err(format!(
                "repack.bytes `{}` is {bytes} for {stored} stored bytes: 1 to {most} are given",
                repack.bytes
            ));
        }
        form.fixed.push(stored.to_vec());
        form.rotating.push(vec![0; usize::try_from(bytes).map_err(|error| error.to_string())?]);
        let buffer = Arg::Rotating(form.rotating.len() - 1);
        let mut args = vec![Arg::Fixed(form.fixed.len() - 1), buffer];
        for arg in &repack.launch.args {
            args.push(self.number(arg, segment)?);
        }
        form.prologue.push(self.launch(&repack.launch, args, segment)?);
        Ok(buffer)
    }

    fn value(&self, expression: &super::Expression, segment: Option<usize>) -> Result<u64, String> {
        expression.value(&|name| self.axes.get(name, segment)).map_err(|error| error.to_string())
    }

    fn number(&self, arg: &ArgTemplate, segment: Option<usize>) -> Result<Arg, String> {
        match arg {
            ArgTemplate::U32(expression) => {
                let value = self.value(expression, segment)?;
                u32::try_from(value)
                    .map(Arg::U32)
                    .map_err(|_| format!("`{expression}` is {value}, more than 32 bits hold"))
            }
            ArgTemplate::Float(value) => Ok(Arg::F32(*value)),
            ArgTemplate::FloatAxis(name) => {
                let word = self.axes.problem.get(name).map(ToString::to_string);
                let text = word.or_else(|| self.axes.get(name, segment).map(|size| size.to_string()));
                let value = text.as_deref().and_then(|text| text.parse::<f32>().ok()).filter(|value| value.is_finite());
                value.map(Arg::F32).ok_or_else(|| format!("the axis `{name}` is no number here"))
            }
            ArgTemplate::Tensor(name) => Err(format!("`{name}` is no number")),
            ArgTemplate::Scratch(_) => Err("scratch is no number".to_owned()),
        }
    }

    fn launch(&self, template: &LaunchTemplate, args: Vec<Arg>, segment: Option<usize>) -> Result<LaunchForm, String> {
        let mut grid = [1_u32; 3];
        for (to, (expression, most)) in grid.iter_mut().zip(template.grid.iter().zip([0x7FFF_FFFF, 65535, 65535])) {
            let blocks = self.value(expression, segment)?;
            *to = u32::try_from(blocks).ok().filter(|blocks| (1..=most).contains(blocks)).ok_or_else(|| {
                format!("{}: grid `{expression}` is {blocks} blocks: 1 to {most} are given", template.entry)
            })?;
        }
        let threads = grid.iter().chain(&template.block).try_fold(1_u64, |all, n| all.checked_mul(u64::from(*n)));
        if threads.is_none_or(|threads| threads > MOST_THREADS) {
            return Err(format!("{}: a grid of {grid:?} has more than {MOST_THREADS} threads", template.entry));
        }
        let shared_bytes = self.value(&template.shared_bytes, segment)?;
        if shared_bytes > MOST_SHARED {
            return Err(format!(
                "{}: {shared_bytes} bytes of shared memory: at most {MOST_SHARED} are given",
                template.entry
            ));
        }
        let (entry, block) = (template.entry.clone(), template.block);
        Ok(LaunchForm {
            entry,
            grid,
            block,
            shared_bytes: u32::try_from(shared_bytes).unwrap_or(u32::MAX),
            args,
            persistent: None,
        })
    }
}
