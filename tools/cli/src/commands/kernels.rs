//! `kernels`: list what is registered, show one contract or variant, say what would be selected, compile what is CUDA text.

mod compile;

use memra_contract::DeviceKey;
use memra_kernels::backend::Backend as _;
use memra_kernels::backend::cuda::resources;
use memra_kernels::backend::host::HostBackend;
use memra_kernels::contract::Target;
use memra_kernels::ops::CONTRACTS;
use memra_kernels::{Contract, Variant, headers, registry, select};
use serde_json::json;

use crate::cli::KernelsCommand;
use crate::{checkout, ui};

/// Runs a subcommand.
///
/// # Errors
/// When a name is wrong, naming the nearest right one.
pub fn run(command: &KernelsCommand) -> anyhow::Result<u8> {
    match command {
        KernelsCommand::List { json } => list(*json)?,
        KernelsCommand::Show { name, problem, device, json } => show(name, problem.as_deref(), *device, *json)?,
        KernelsCommand::Compile { arguments, json } => return compile::run(arguments, *json),
        KernelsCommand::Bundle { arguments, output } => return compile::run_bundle(arguments, output),
    }
    Ok(0)
}

fn describe(contract: &dyn Contract, variant: &Variant) -> serde_json::Value {
    json!({
        "contract": contract.info().id,
        "revision": contract.info().revision,
        "variant": variant.name,
        "isa": variant.target.to_string(),
        "layout": variant.layout,
        "order_class": variant.order_class.id,
        "rows": [variant.rows.0, variant.rows.1],
        "source": variant.source.path,
        "source_sha256": variant.source_sha256(),
        "summary": variant.summary,
        "cuda": cuda(variant),
    })
}

/// How the text of a CUDA variant is built; nothing for a host variant.
fn cuda(variant: &Variant) -> Option<serde_json::Value> {
    let Target::Cuda(build) = variant.target else { return None };
    let headers = headers::included(variant.source.text);
    Some(json!({
        "archs": build.archs.iter().map(|arch| arch.name()).collect::<Vec<_>>(),
        "defines": build.defines.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>(),
        "entries": resources::entries(variant.source.text),
        "headers": headers.iter().map(|header| header.name).collect::<Vec<_>>(),
    }))
}

fn list(json: bool) -> anyhow::Result<()> {
    let all =
        || CONTRACTS.iter().flat_map(|contract| contract.variants().iter().map(move |variant| (contract, variant)));
    if json {
        return ui::print_json(&all().map(|(contract, variant)| describe(*contract, variant)).collect::<Vec<_>>());
    }
    let rows = all()
        .map(|(contract, variant)| {
            vec![
                format!("{}/{}", contract.info().id, variant.name),
                variant.target.to_string(),
                format!("{}-{}", variant.rows.0, variant.rows.1),
                variant.layout.to_owned(),
                variant.order_class.id.to_owned(),
                variant.source_sha256().short().to_owned(),
            ]
        })
        .collect();
    ui::print(ui::table(&["variant", "isa", "rows", "layout", "order class", "source"], rows))
}

fn show(name: &str, problem: Option<&str>, device: Option<DeviceKey>, json: bool) -> anyhow::Result<()> {
    let (contract_name, variant_name) = match name.split_once('/') {
        Some((contract, variant)) => (contract, Some(variant)),
        None => (name, None),
    };
    let contract = registry::contract(contract_name)?;
    let variant = variant_name.map(|name| registry::variant(contract, name)).transpose()?;
    let key = device.unwrap_or_else(|| HostBackend::detect().device_key());
    let selection = problem.map(|text| selected(contract, text, key)).transpose()?;
    if json {
        let variants: Vec<_> = match variant {
            Some(variant) => vec![describe(contract, variant)],
            None => contract.variants().iter().map(|variant| describe(contract, variant)).collect(),
        };
        return ui::print_json(&json!({
            "contract": contract.info().id,
            "revision": contract.info().revision,
            "summary": contract.info().summary,
            "variants": variants,
            "selection": selection.map(|(problem, selection)| json!({
                "problem": problem,
                "device": key.to_string(),
                "variant": selection.variant.name,
                "reason": selection.reason.text(),
                "promotion": selection.promotion,
                "passed_over": selection.passed_over,
            })),
        }));
    }
    match variant {
        Some(variant) => show_variant(contract, variant)?,
        None => show_contract(contract)?,
    }
    if let Some((problem, selection)) = selection {
        ui::print(format_args!("\n{problem} on {key}"))?;
        ui::print(format_args!("  selects {} ({})", selection.variant.name, selection.reason.text()))?;
        if let Some(promotion) = selection.promotion {
            ui::print(format_args!("  promoted by {promotion}"))?;
        }
        for passed in selection.passed_over {
            ui::print(format_args!("  passed over: {passed}"))?;
        }
    }
    Ok(())
}

fn selected(
    contract: &'static dyn Contract,
    problem: &str,
    key: DeviceKey,
) -> anyhow::Result<(String, select::Selection)> {
    let problem = contract.normalise(&problem.parse()?)?;
    let selection = select::select(contract, &problem, key, &checkout::tables(key)?)?;
    Ok((problem.to_string(), selection))
}

fn show_contract(contract: &dyn Contract) -> anyhow::Result<()> {
    let info = contract.info();
    ui::print(format_args!("{} revision {}\n  {}", info.id, info.revision, info.summary))?;
    ui::print("\naxes")?;
    ui::print(ui::table(
        &["", ""],
        info.axes.iter().map(|a| vec![format!("  {}", a.name), a.meaning.to_owned()]).collect(),
    ))?;
    ui::print("\ntensors")?;
    let tensors = info.tensors.iter().map(|t| vec![format!("  {}", t.name), t.role.to_owned(), t.meaning.to_owned()]);
    ui::print(ui::table(&["", "", ""], tensors.collect()))?;
    ui::print("\ninput families")?;
    let families = info.families.iter().map(|(name, meaning)| vec![format!("  {name}"), (*meaning).to_owned()]);
    ui::print(ui::table(&["", ""], families.collect()))?;
    ui::print("\nvariants")?;
    let variants =
        contract.variants().iter().map(|v| vec![format!("  {}", v.name), v.target.to_string(), v.summary.to_owned()]);
    ui::print(ui::table(&["", "", ""], variants.collect()))
}

fn show_variant(contract: &dyn Contract, variant: &Variant) -> anyhow::Result<()> {
    ui::print(format_args!("{}/{}\n  {}\n", contract.info().id, variant.name, variant.summary))?;
    let mut rows = vec![
        ("isa", variant.target.to_string()),
        ("rows", format!("{} to {}", variant.rows.0, variant.rows.1)),
        ("layout", variant.layout.to_owned()),
        ("order class", variant.order_class.id.to_owned()),
        ("", variant.order_class.text.to_owned()),
        ("source", variant.source.path.to_owned()),
        ("sha256", variant.source_sha256().to_string()),
    ];
    if let Some(cuda) = cuda(variant) {
        for name in ["archs", "defines", "entries", "headers"] {
            let words: Vec<_> = cuda[name].as_array().into_iter().flatten().filter_map(|word| word.as_str()).collect();
            rows.push((name, if words.is_empty() { "none".to_owned() } else { words.join(" ") }));
        }
    }
    let rows = rows.into_iter().map(|(name, value)| vec![format!("  {name}"), value]).collect();
    ui::print(ui::table(&["", ""], rows))
}
