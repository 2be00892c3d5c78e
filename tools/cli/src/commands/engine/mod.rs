//! Commands that run a model.

pub mod arm;
pub mod bench;
pub mod explain;
pub mod generate;
mod golden;
pub mod inspect;
pub mod logits;
pub mod serve;
mod workload;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use memra_artifact::GgufModel;
use memra_contract::device::HostArch;
use memra_contract::{DeviceKey, IsaTier};
use memra_engine::runner::{Runner, RunnerOptions};
use memra_kernels::backend::host::this_tier;
use memra_kernels::registry;
use memra_kernels::select::Tables;

use crate::checkout;
use crate::cli::ModelArguments;

/// The model file a command is about: as given, or the checkout's smollm2.
fn model_file(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(file) = given {
        if !file.is_file() {
            bail!("no model file `{}`{}", file.display(), checkout::nearest_model(file));
        }
        return Ok(file.to_owned());
    }
    let Some(checkout) = checkout::checkout() else {
        bail!("no model: say which with --model FILE");
    };
    let file = checkout.join("models/smollm2.gguf");
    if !file.is_file() {
        bail!("no model: fetch one with `tools/fetch-model.sh smollm2`, or say which with --model FILE");
    }
    Ok(file)
}

fn open(file: &Path) -> anyhow::Result<GgufModel> {
    GgufModel::open(file).with_context(|| format!("model {}", file.display()))
}

/// The device: this one, or as if it had a poorer instruction set.
fn device(tier: Option<&str>) -> anyhow::Result<DeviceKey> {
    let (arch, own) = (HostArch::of_this_build(), this_tier());
    let Some(name) = tier else { return Ok(DeviceKey::Host { arch, tier: own }) };
    let known = [IsaTier::Scalar, IsaTier::Avx2, IsaTier::Avx512Vnni];
    let Some(tier) = known.into_iter().find(|tier| tier.name() == name) else {
        let names: Vec<_> = known.iter().map(|tier| tier.name()).collect();
        bail!("no tier `{name}`{}; there are {}", registry::nearest(name, names.iter().copied()), names.join(", "));
    };
    if tier > own {
        bail!("tier `{name}` is more than this device has, which is {own}");
    }
    Ok(DeviceKey::Host { arch, tier })
}

/// Defaults, with the kernels that were asked for before them.
fn tables(key: DeviceKey, kernels: &[String]) -> anyhow::Result<Tables> {
    let mut tables = checkout::tables(key)?;
    for text in kernels {
        let Some((contract, variant)) = text.split_once('=') else {
            bail!("--kernel `{text}` is not of the form CONTRACT=VARIANT");
        };
        registry::variant(registry::contract(contract)?, variant)?;
        tables.forced.push((contract.to_owned(), variant.to_owned()));
    }
    Ok(tables)
}

/// How much a command wants to run at a time.
struct Room {
    /// Rows of a step that logits are made for.
    wanted: usize,
    /// Positions of all sequences together.
    positions: usize,
}

fn load(model: &GgufModel, arguments: &ModelArguments, room: &Room) -> anyhow::Result<Runner> {
    let key = device(arguments.tier.as_deref())?;
    let options = RunnerOptions {
        key,
        threads: arguments.threads.map(usize::from),
        max_rows: usize::from(arguments.chunk).max(room.wanted.min(64)),
        max_wanted: room.wanted,
        cache_positions: room.positions,
    };
    Ok(Runner::load(model, &tables(key, &arguments.kernel)?, options)?)
}

/// Seeded token ids: content is no matter where only the time counts.
fn filler(count: usize, vocab: usize, seed: u64) -> Vec<u32> {
    let stream = memra_kernels::input::Stream::new(seed, "tokens");
    (0..count as u64).map(|i| (stream.bits(i) % vocab as u64) as u32).collect()
}
