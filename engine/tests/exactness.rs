//! One request, one numeric program: whole or in chunks, alone or in a batch, on any number of threads and any tier.

use memra_artifact::GgufModel;
use memra_contract::device::HostArch;
use memra_contract::{DeviceKey, IsaTier};
use memra_engine::exactness;
use memra_engine::runner::{Runner, RunnerOptions};
use memra_engine::testing::SyntheticModel;
use memra_kernels::backend::host::this_tier;
use memra_kernels::input::Stream;
use memra_kernels::select::Tables;

fn prompt(length: usize, seed: u64) -> Vec<u32> {
    let stream = Stream::new(seed, "prompt");
    (0..length as u64).map(|i| (stream.bits(i) % SyntheticModel::vocab() as u64) as u32).collect()
}

fn load(model: &GgufModel, threads: usize, tier: Option<IsaTier>, max_rows: usize) -> Runner {
    let (arch, own) = (HostArch::of_this_build(), this_tier());
    let options = RunnerOptions {
        key: DeviceKey::Host { arch, tier: tier.unwrap_or(own).min(own) },
        threads: Some(threads),
        max_rows,
        max_wanted: 8,
        cache_positions: 4096,
    };
    Runner::load(model, &Tables::default(), options).expect("a synthetic model loads")
}

#[test]
fn chunks_batches_threads_and_tiers_give_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let shape = SyntheticModel { heads: 6, kv_heads: 2, head_dim: 32, ffn: 160, ..SyntheticModel::default() };
    shape.write(&path).unwrap();
    let model = GgufModel::open(&path).unwrap();
    // Across a page, across a split of attention, and short ones.
    let prompts = [prompt(300, 1), prompt(5, 2), prompt(64, 3), prompt(1, 4), prompt(130, 5)];
    let prompts: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
    let mut expected: Option<Vec<exactness::Trace>> = None;
    let mut programs = Vec::new();
    let tiers = [(3, None), (2, Some(IsaTier::Scalar)), (1, Some(IsaTier::Avx2)), (1, Some(IsaTier::Avx512Vnni))];
    for (threads, tier) in tiers.into_iter().chain([2, 3].map(|threads| (threads, Some(IsaTier::Avx512Vnni)))) {
        let mut runner = load(&model, threads, tier, 512);
        let free = runner.pages().free();
        let (traces, findings) = exactness::check(&mut runner, &prompts, 12).unwrap();
        for finding in &findings {
            assert!(finding.is_equal(), "{threads} threads, {tier:?}: {finding:?}");
            assert_eq!(finding.rows, 12);
        }
        assert_eq!(runner.pages().free(), free, "every page came back");
        let largest = findings.iter().map(|finding| finding.batch).max();
        assert_eq!(largest, Some(prompts.len()), "all sequences shared a step");
        assert_eq!(expected.get_or_insert_with(|| traces.clone()), &traces, "{threads} threads, {tier:?}");
        programs.push(runner.plan().program.clone());
    }
    programs.dedup();
    assert_eq!(programs.len(), 1, "the program's digest does not depend on threads or tier");
    let tokens: Vec<_> = expected.unwrap().into_iter().map(|trace| trace.tokens).collect();
    assert!(tokens.iter().any(|answer| answer != &tokens[0]), "different prompts have different answers");
}

#[test]
fn small_steps_give_the_bits_of_large_ones() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    SyntheticModel::default().write(&path).unwrap();
    let model = GgufModel::open(&path).unwrap();
    let prompt = prompt(200, 9);
    let mut traces = [8, 33, 512].map(|max_rows| {
        let mut runner = load(&model, 2, None, max_rows);
        exactness::alone(&mut runner, &prompt, 6, usize::MAX).unwrap()
    });
    traces.sort_by_key(|trace| trace.tokens.clone());
    assert_eq!(traces[0], traces[1]);
    assert_eq!(traces[1], traces[2]);
}

#[test]
fn another_model_has_other_bits() {
    let folder = tempfile::tempdir().unwrap();
    let traces = [1, 2].map(|seed| {
        let path = folder.path().join(format!("{seed}.gguf"));
        SyntheticModel { seed, ..SyntheticModel::default() }.write(&path).unwrap();
        let mut runner = load(&GgufModel::open(&path).unwrap(), 1, None, 64);
        exactness::alone(&mut runner, &prompt(20, 1), 4, usize::MAX).unwrap()
    });
    assert_ne!(traces[0], traces[1], "the comparison can fail");
}

#[test]
fn a_full_cache_is_an_error_and_nothing_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    SyntheticModel::default().write(&path).unwrap();
    let mut runner = load(&GgufModel::open(&path).unwrap(), 1, None, 64);
    let long = prompt(3000, 1);
    let error = exactness::together(&mut runner, &[&long, &long], 4, 64, 0).unwrap_err();
    assert!(error.to_string().contains("no room for another 3004"), "{error}");
    assert_eq!(runner.pages().free(), runner.pages().total());
}
