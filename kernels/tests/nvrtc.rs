//! The compiler itself, on texts of this test, where `tools/fetch-nvrtc.sh` has put it into the checkout.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use memra_contract::DeviceKey;
use memra_contract::device::{CudaArch, CudaClass};
use memra_contract::order::OrderClass;
use memra_kernels::Variant;
use memra_kernels::backend::cuda::bundle::{Bundle, Packed, pack};
use memra_kernels::backend::cuda::cubins::{CubinError, Cubins, Origin, compile};
use memra_kernels::backend::cuda::key::SourceKey;
use memra_kernels::backend::cuda::nvrtc::Nvrtc;
use memra_kernels::backend::cuda::resources::{entries, resources};
use memra_kernels::backend::cuda::toolkit::{Candidates, Toolkit};
use memra_kernels::contract::{Contract as _, CudaBuild, Source, Target};
use memra_kernels::out_of_tree::{ArmFile, ArmText};

/// The compiler, or `None` with a line that says what is left out. With `MEMRA_REQUIRE_NVRTC=1` it must be there.
fn nvrtc() -> Option<Nvrtc> {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_owned);
    match Toolkit::find(&Candidates { checkout, ..Candidates::default() }) {
        Ok(toolkit) => Some(Nvrtc::load(&toolkit).unwrap()),
        Err(error) => {
            assert!(env::var("MEMRA_REQUIRE_NVRTC").as_deref() != Ok("1"), "{error}");
            // Written past the capture of test output, so that it is seen.
            let _ = writeln!(std::io::stderr(), "left out: NVRTC: {error}");
            None
        }
    }
}

fn variant(name: &'static str, text: &'static str) -> (Variant, CudaBuild) {
    let build = CudaBuild { archs: &CudaArch::ALL, defines: &[("SCALE", "3.0f")] };
    let variant = Variant {
        name,
        summary: "",
        target: Target::Cuda(build),
        layout: "none",
        order_class: OrderClass { id: "test", text: "" },
        rows: (1, 1),
        source: Source { path: "test/text.cu", text },
    };
    (variant, build)
}

const PLAIN: &str = r#"
#include "memra.cuh"
#include <cuda_fp16.h>
extern "C" __global__ void __launch_bounds__(64) turn(float* a) {
    __shared__ float kept[64];
    kept[threadIdx.x] = a[threadIdx.x] * SCALE;
    __syncthreads();
    a[threadIdx.x] = kept[63 - threadIdx.x];
}
extern "C" __global__ void sum(float* a) { a[threadIdx.x] = warp_pair_tree(a[threadIdx.x]); }
"#;

/// The accumulators are used while products are on their way, so the assembler waits for each.
const SERIALISED: &str = r#"
#include "memra.cuh"
extern "C" __global__ void waits(float* out, u64 a, u64 b, int n) {
    float d[4] = {0, 0, 0, 0};
    asm volatile("wgmma.fence.sync.aligned;");
    for (int i = 0; i < n; i++) {
        asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a + i), "l"(b));
        d[0] += 1.0f;
        asm volatile("wgmma.commit_group.sync.aligned;");
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;");
    out[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}
"#;

#[test]
fn a_text_is_compiled_for_every_architecture_and_its_log_is_read() {
    let Some(nvrtc) = nvrtc() else { return };
    let (variant, build) = variant("plain", PLAIN);
    std::thread::scope(|scope| {
        for arch in CudaArch::ALL {
            let (nvrtc, variant, build) = (&nvrtc, &variant, &build);
            scope.spawn(move || {
                let compiled = compile(nvrtc, "test", variant, build, arch).unwrap();
                assert!(compiled.cubin.starts_with(b"\x7fELF"), "{arch}");
                let mut found = resources(&compiled.log);
                found.sort_by(|a, b| a.entry.cmp(&b.entry));
                let names: Vec<_> = found.iter().map(|row| row.entry.as_str()).collect();
                assert_eq!(names, ["sum", "turn"], "{arch}: {}", compiled.log);
                assert!(found.iter().all(|row| row.registers >= 8 && row.stack_bytes == 0), "{found:?}");
                // From Blackwell on the system keeps some shared memory of every block.
                assert!(found[1].shared_bytes >= 256 && found[1].barriers == 1, "{found:?}");
            });
        }
    });
    assert_eq!(entries(PLAIN), ["turn", "sum"]);
}

#[test]
fn the_examples_of_arms_out_of_the_tree_compile() {
    let Some(nvrtc) = nvrtc() else { return };
    let key = DeviceKey::Cuda(CudaClass { arch: CudaArch::Sm90a, sms: 132, l2_mib: 60, memory_gib: 140, power_w: 700 });
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples");
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 2);
    for path in files {
        let file = ArmFile::load(&ArmText::read(&path).unwrap(), key).unwrap();
        let variant = file.variant();
        let Target::Cuda(build) = variant.target else { panic!("{}", variant.name) };
        let launches = std::iter::once(&file.header().launch).chain(file.header().repack.iter().map(|r| &r.launch));
        for arch in build.archs {
            let compiled = compile(&nvrtc, file.info().id, variant, &build, *arch).unwrap();
            let found = resources(&compiled.log);
            for launch in launches.clone() {
                let row = found.iter().find(|row| row.entry == launch.entry).unwrap();
                assert_eq!(row.spill_store_bytes + row.stack_bytes, 0, "{row:?}");
            }
        }
    }
}

#[test]
fn faults_are_named_with_the_log() {
    let Some(nvrtc) = nvrtc() else { return };
    let (wrong, build) = variant("wrong", "extern \"C\" __global__ void k() { nothing(); }\n");
    let error = compile(&nvrtc, "test", &wrong, &build, CudaArch::Sm80).unwrap_err();
    assert!(error.to_string().contains("test/wrong") && error.to_string().contains("nothing"), "{error}");
    let (waits, build) = variant("waits", SERIALISED);
    let error = compile(&nvrtc, "test", &waits, &build, CudaArch::Sm90a).unwrap_err();
    assert!(matches!(error, CubinError::Serialised { .. }), "{error}");
    assert!(error.log().unwrap().contains("(C75"), "{error}");
}

#[test]
fn a_cubin_comes_from_the_compiler_then_from_the_cache_then_from_a_bundle() {
    let Some(nvrtc) = nvrtc() else { return };
    let version = nvrtc.version();
    let folder: PathBuf = env::temp_dir().join(format!("memra-nvrtc-{}", std::process::id()));
    let (variant, build) = variant("plain", PLAIN);
    let arch = CudaArch::Sm90a;
    let cubins = Cubins { nvrtc: Some(nvrtc), cache: Some(folder.clone()), bundles: Vec::new() };
    let first = cubins.get("test", &variant, &build, arch).unwrap();
    let second = cubins.get("test", &variant, &build, arch).unwrap();
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!((first.origin, second.origin), (Origin::Compiled, Origin::Cache));
    assert_eq!(first.bytes, second.bytes);
    let key = SourceKey::of(&variant.source, &build, arch);
    let bytes = pack(&[Packed { key, arch, nvrtc: version, cubin: first.bytes }]);
    let bundles = vec![Bundle::parse("b.cubins", bytes).unwrap()];
    let third = Cubins { bundles, ..Cubins::default() }.get("test", &variant, &build, arch).unwrap();
    assert_eq!((third.nvrtc, third.bytes), (version, second.bytes));
}
