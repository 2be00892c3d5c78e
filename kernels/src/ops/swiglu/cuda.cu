// The gated product of rows that hold their gates and then their ups.
#include "memra.cuh"
#include "swiglu.cuh"

// One block of threads a row, one column after another.
extern "C" __global__ void __launch_bounds__(256)
swiglu_row(const float* __restrict__ gate_up, float* out, u32 ffn) {
    const float* gate = gate_up + (u64)blockIdx.x * 2 * ffn;
    const float* up = gate + ffn;
    float* to = out + (u64)blockIdx.x * ffn;
    for (u32 i = threadIdx.x; i < ffn; i += blockDim.x) to[i] = swiglu(gate[i], up[i]);
}

// Four columns a thread; row blockIdx.y. `quads` is the number of columns over four.
extern "C" __global__ void __launch_bounds__(128)
swiglu_quads(const float4* __restrict__ gate_up, float4* out, u32 quads) {
    const u32 quad = blockIdx.x * blockDim.x + threadIdx.x;
    if (quad >= quads) return;
    const float4* row = gate_up + (u64)blockIdx.y * 2 * quads;
    out[(u64)blockIdx.y * quads + quad] = swiglu(__ldg(row + quad), __ldg(row + quads + quad));
}
