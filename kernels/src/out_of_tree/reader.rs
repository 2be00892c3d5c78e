//! The fields of a header, held to its contract one by one.

use std::collections::BTreeMap;

use memra_contract::device::CudaArch;
use memra_contract::{AxisValue, BlockFormat, OrderClass, order};
use serde::Deserialize;

use super::ArmFileError;
use super::expression::Expression;
use super::header::{ArgTemplate, ArmHeader, LaunchTemplate, Repack, SCHEMA, field, is_axis, tensor};
use crate::contract::Contract;
use crate::registry::nearest;

/// Most arguments of a launch, and most other entries of a list.
const MOST_ENTRIES: usize = 64;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawHeader {
    schema: String,
    pub(super) contract: String,
    entry: String,
    order_class: String,
    archs: Vec<String>,
    layout: String,
    #[serde(default)]
    defines: Vec<String>,
    #[serde(default)]
    formats: Vec<String>,
    rows: [u64; 2],
    #[serde(default)]
    axes: BTreeMap<String, Vec<RawNumber>>,
    #[serde(default)]
    multiples: BTreeMap<String, u64>,
    launch: RawLaunch,
    repack: Option<RawRepack>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLaunch {
    block: Vec<u64>,
    grid: Vec<RawNumber>,
    shared_bytes: Option<RawNumber>,
    args: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRepack {
    entry: String,
    block: Vec<u64>,
    grid: Vec<RawNumber>,
    bytes: RawNumber,
    #[serde(default)]
    args: Vec<String>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a whole number or text is needed")]
enum RawNumber {
    Number(u64),
    Text(String),
}

fn is_identifier(text: &str) -> bool {
    let is_first = |b: u8| b.is_ascii_alphabetic() || b == b'_';
    text.len() <= 128
        && text.bytes().next().is_some_and(is_first)
        && text.bytes().all(|b| is_first(b) || b.is_ascii_digit())
}

/// Reads the fields of the header of a file.
pub(super) struct Reader<'a> {
    pub(super) file: &'a str,
    pub(super) contract: &'static dyn Contract,
}

impl Reader<'_> {
    fn fault<T>(&self, name: &str, why: impl Into<String>) -> Result<T, ArmFileError> {
        Err(field(self.file, name, why.into()))
    }

    pub(super) fn header(&self, raw: RawHeader) -> Result<ArmHeader, ArmFileError> {
        if raw.schema != SCHEMA {
            return self.fault("schema", format!("is `{}`; `{SCHEMA}` is read", raw.schema));
        }
        let lists = [raw.archs.len(), raw.defines.len(), raw.formats.len(), raw.axes.len(), raw.multiples.len()];
        if lists.into_iter().chain(raw.axes.values().map(Vec::len)).any(|length| length > MOST_ENTRIES) {
            return self.fault("header", format!("a list has more than {MOST_ENTRIES} entries"));
        }
        let (least, most) = (raw.rows[0], raw.rows[1]);
        if least == 0 || least > most {
            return self.fault("rows", format!("[{least}, {most}] is no range of rows, fewest first"));
        }
        let is_word = |text: &str| !text.is_empty() && text.len() <= 120 && !text.chars().any(char::is_control);
        if !is_word(&raw.layout) {
            return self.fault("layout", "says in 1 to 120 bytes how weights lie");
        }
        for format in &raw.formats {
            if BlockFormat::from_name(format).is_none() {
                return self.fault("formats", format!("no weight format `{format}`"));
            }
        }
        let axes = self.contract.info().axes;
        for name in raw.axes.keys() {
            if !axes.iter().any(|axis| axis.name == name) {
                let hint = nearest(name, axes.iter().map(|axis| axis.name));
                return self.fault("axes", format!("contract `{}` has no axis `{name}`{hint}", raw.contract));
            }
        }
        for (name, multiple) in &raw.multiples {
            if !is_axis(self.contract, name) || *multiple == 0 {
                return self.fault("multiples", format!("`{name} = {multiple}` is no multiple of an axis"));
            }
        }
        let value = |raw: RawNumber| match raw {
            RawNumber::Number(size) => AxisValue::Size(size),
            RawNumber::Text(word) => AxisValue::Word(word),
        };
        let launch = self.launch("", raw.entry, raw.launch)?;
        let has_output = launch.args.iter().any(|arg| self.has_role(arg, "out"));
        if !has_output {
            return self.fault("launch.args", "name no output of the contract");
        }
        let repack = raw.repack.map(|repack| self.repack(repack, &launch)).transpose()?;
        Ok(ArmHeader {
            contract: self.contract,
            order_class: self.order_class(&raw.order_class)?,
            archs: self.archs(&raw.archs)?,
            layout: raw.layout,
            defines: self.defines(&raw.defines)?,
            formats: raw.formats,
            rows: (least, most),
            axes: raw.axes.into_iter().map(|(name, list)| (name, list.into_iter().map(value).collect())).collect(),
            multiples: raw.multiples,
            launch,
            repack,
        })
    }

    fn has_role(&self, arg: &ArgTemplate, role: &str) -> bool {
        let ArgTemplate::Tensor(name) = arg else { return false };
        tensor(self.contract, name).is_some_and(|tensor| tensor.role == role)
    }

    /// A class that some variant of the contract keeps, or one of a device's own.
    fn order_class(&self, name: &str) -> Result<OrderClass, ArmFileError> {
        let mut known: Vec<OrderClass> = Vec::new();
        for class in self.contract.variants().iter().map(|variant| variant.order_class) {
            if !known.contains(&class) {
                known.push(class);
            }
        }
        known.extend(order::ALL.iter().filter(|class| class.is_device() && !known.contains(class)).collect::<Vec<_>>());
        if let Some(class) = known.iter().find(|class| class.id == name) {
            return Ok(*class);
        }
        let names: Vec<_> = known.iter().map(|class| class.id).collect();
        let hint = nearest(name, names.iter().copied());
        self.fault("order_class", format!("no class `{name}` here{hint}; there are {}", names.join(", ")))
    }

    fn archs(&self, names: &[String]) -> Result<Vec<CudaArch>, ArmFileError> {
        let mut archs = Vec::new();
        for name in names {
            let Some(arch) = CudaArch::from_name(name) else {
                let hint = nearest(name, CudaArch::ALL.iter().map(|arch| arch.name()));
                return self.fault("archs", format!("no architecture `{name}`{hint}"));
            };
            archs.push(arch);
        }
        archs.sort_unstable();
        archs.dedup();
        if archs.is_empty() { self.fault("archs", "names no architecture") } else { Ok(archs) }
    }

    fn defines(&self, texts: &[String]) -> Result<Vec<(String, String)>, ArmFileError> {
        let mut defines = Vec::new();
        for text in texts {
            let (name, value) = text.split_once('=').unwrap_or((text, "1"));
            if !is_identifier(name) || value.len() > 200 || value.chars().any(char::is_control) {
                return self.fault("defines", format!("`{}` is not NAME=VALUE", text.escape_debug()));
            }
            defines.push((name.to_owned(), value.to_owned()));
        }
        Ok(defines)
    }

    fn expression(&self, name: &str, raw: RawNumber) -> Result<Expression, ArmFileError> {
        let text = match raw {
            RawNumber::Number(value) => return Ok(Expression::number(value)),
            RawNumber::Text(text) => text,
        };
        self.read(name, &text)
    }

    fn read(&self, name: &str, text: &str) -> Result<Expression, ArmFileError> {
        let expression = Expression::parse(text).map_err(|error| field(self.file, name, error.to_string()))?;
        let unknown = expression.unknown(&|name| is_axis(self.contract, name)).map(str::to_owned);
        match unknown {
            None => Ok(expression),
            Some(axis) => {
                let known: Vec<_> = self.contract.info().axes.iter().map(|axis| axis.name).chain(["sms"]).collect();
                let hint = nearest(&axis, known.iter().copied());
                self.fault(name, format!("`{text}`: contract `{}` has no axis `{axis}`{hint}", self.contract.info().id))
            }
        }
    }

    fn launch(&self, prefix: &str, entry: String, raw: RawLaunch) -> Result<LaunchTemplate, ArmFileError> {
        let of = |name: &str| if prefix.is_empty() { format!("launch.{name}") } else { format!("{prefix}.{name}") };
        if !is_identifier(&entry) {
            let name = if prefix.is_empty() { "entry".to_owned() } else { of("entry") };
            return self.fault(&name, format!("`{}` is no name of a function", entry.escape_debug()));
        }
        let mut block = [1; 3];
        let threads = raw.block.iter().try_fold(1_u64, |all, n| all.checked_mul(*n));
        if !(1..=3).contains(&raw.block.len()) || !threads.is_some_and(|threads| (1..=1024).contains(&threads)) {
            return self.fault(&of("block"), format!("{:?} is not one to three sizes of 1 to 1024 threads", raw.block));
        }
        for (to, from) in block.iter_mut().zip(&raw.block) {
            *to = u32::try_from(*from).unwrap_or(u32::MAX);
        }
        if block[2] > 64 {
            return self.fault(&of("block"), "the third size is at most 64");
        }
        if !(1..=3).contains(&raw.grid.len()) {
            return self.fault(&of("grid"), "is not one to three expressions");
        }
        let mut grid = [Expression::number(1), Expression::number(1), Expression::number(1)];
        for (index, (to, from)) in grid.iter_mut().zip(raw.grid).enumerate() {
            *to = self.expression(&of(&format!("grid[{index}]")), from)?;
        }
        let shared_bytes = raw.shared_bytes.unwrap_or(RawNumber::Number(0));
        let shared_bytes = self.expression(&of("shared_bytes"), shared_bytes)?;
        if raw.args.len() > MOST_ENTRIES {
            return self.fault(&of("args"), format!("more than {MOST_ENTRIES} arguments"));
        }
        let mut args = Vec::with_capacity(raw.args.len());
        for (index, text) in raw.args.iter().enumerate() {
            let name = of(&format!("args[{index}]"));
            let arg = self.arg(&name, text)?;
            if matches!(arg, ArgTemplate::Tensor(_)) && args.contains(&arg) {
                return self.fault(&name, format!("`{text}` stands twice"));
            }
            args.push(arg);
        }
        Ok(LaunchTemplate { entry, block, grid, shared_bytes, args })
    }

    fn repack(&self, raw: RawRepack, main: &LaunchTemplate) -> Result<Repack, ArmFileError> {
        if !main.args.iter().any(|arg| self.has_role(arg, "weight")) {
            return self.fault("repack", "the arguments of the launch name no weight");
        }
        let (bytes, launch) = (self.expression("repack.bytes", raw.bytes)?, (raw.block, raw.grid, raw.args));
        let launch = RawLaunch { block: launch.0, grid: launch.1, shared_bytes: None, args: launch.2 };
        let launch = self.launch("repack", raw.entry, launch)?;
        let is_number = |arg: &ArgTemplate| !matches!(arg, ArgTemplate::Tensor(_) | ArgTemplate::Scratch(_));
        if !launch.args.iter().all(is_number) {
            return self
                .fault("repack.args", "are u32: and f32: alone; the stored bytes and the buffer stand before them");
        }
        Ok(Repack { launch, bytes })
    }

    fn arg(&self, name: &str, text: &str) -> Result<ArgTemplate, ArmFileError> {
        match text.split_once(':') {
            None if tensor(self.contract, text).is_some() => Ok(ArgTemplate::Tensor(text.to_owned())),
            None => {
                let known: Vec<_> =
                    self.contract.info().tensors.iter().flat_map(|tensor| tensor.name.split(", ")).collect();
                let hint = nearest(text, known.iter().copied());
                let known = known.join(", ");
                self.fault(
                    name,
                    format!("no tensor `{text}`{hint}; there are {known}; and scratch:NAME=BYTES, u32:EXPR, f32:EXPR"),
                )
            }
            Some(("u32", rest)) => Ok(ArgTemplate::U32(self.read(name, rest)?)),
            Some(("f32", rest)) => self.float(name, rest.trim()),
            Some(("scratch", rest)) => match rest.split_once('=') {
                Some((scratch, bytes)) if is_identifier(scratch.trim()) => {
                    Ok(ArgTemplate::Scratch(self.read(name, bytes)?))
                }
                _ => self.fault(name, format!("`{text}` is not scratch:NAME=BYTES")),
            },
            Some((kind, _)) => {
                self.fault(name, format!("no argument of the kind `{kind}`: there are scratch, u32 and f32"))
            }
        }
    }

    fn float(&self, name: &str, text: &str) -> Result<ArgTemplate, ArmFileError> {
        let is_plain = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '.'));
        match text.parse::<f32>() {
            Ok(value) if is_plain && value.is_finite() => Ok(ArgTemplate::Float(value)),
            _ if is_axis(self.contract, text) => Ok(ArgTemplate::FloatAxis(text.to_owned())),
            _ => self.fault(name, format!("`{text}` is neither a finite number nor an axis")),
        }
    }
}
